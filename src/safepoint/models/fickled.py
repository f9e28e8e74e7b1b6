"""fickling, asked in a process of its own: a pickle as Python, without a way for it to act.

What it says is a hint, for a person who looks. It never makes a pickle safe to load.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Final

from safepoint.core.errors import DecodeError, LimitExceeded, missing
from safepoint.models.opcodes import scan

_SECONDS: Final = 20
_LONGEST: Final = 100_000
_HOSTILE: Final = "Nothing was run. Treat it as hostile: do not load it, and ask who wrote it."
# Imports are done first, with a pickle of ours; then every event of the interpreter is an end.
_ASK: Final = """
import ast, json, resource, sys
try:
    from fickling.analysis import check_safety
    from fickling.fickle import Pickled
except ImportError:
    sys.exit(3)
for what, most in ((resource.RLIMIT_AS, 2 << 30), (resource.RLIMIT_CPU, 20)):
    resource.setrlimit(what, (most, most))
def ask(data):
    pickled = Pickled.load(data)
    return check_safety(pickled).severity.name, ast.unparse(pickled.ast)
ask(b"(Vx\\nS'y'\\nI1\\nL1L\\ncdatetime\\ndate\\n(tRt.")
data = sys.stdin.buffer.read()
def stop(event, _):
    if event not in ("builtins.id", "object.__getattr__", "object.__setattr__"):
        raise SystemExit(4)
sys.addaudithook(stop)
print(json.dumps(ask(data)))
"""


def decompile(data: bytes) -> tuple[str, str]:
    r"""Return what fickling's checks say of a pickle, and the Python code that it stands for.

    ```python
    from safepoint.models.fickled import decompile

    severity, code = decompile(b"cos\nsystem\n(S'id'\ntR.")
    print(severity)
    #> LIKELY_OVERTLY_MALICIOUS
    print(code)
    #> from os import system
    #> _var0 = system('id')
    #> result = _var0
    ```

    Raises:
        DecodeError: fickling cannot make sense of it.
        LimitExceeded: it takes too long, or becomes too long.
        MissingPackage: fickling is not installed.
    """
    found = scan(io.BytesIO(data))
    if found.broken is not None or found.end != len(data):
        raise DecodeError("The pickle is damaged, or has bytes behind its end.", _HOSTILE)
    command = [sys.executable, "-I", "-c", _ASK]  # the text above, and nothing of the pickle's
    try:
        done = subprocess.run(  # noqa: S603
            command, input=data, capture_output=True, cwd="/", timeout=3 * _SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise LimitExceeded("fickling needs too long for it.", _HOSTILE) from None
    if done.returncode == 3:
        raise missing("safepoint.models.fickled needs fickling, which is not installed.", "pickle")
    try:
        severity, code = json.loads(done.stdout)
    except ValueError:
        raise DecodeError("fickling cannot make sense of it.", _HOSTILE) from None
    if len(code) > _LONGEST:
        raise LimitExceeded("It becomes more text than anybody reads.", _HOSTILE)
    # It quotes the pickle: what is no plain text could write to a terminal.
    plain = (
        line if line.isascii() and line.isprintable() else ascii(line)[1:-1]
        for line in code.splitlines()
    )
    return severity, "\n".join(plain)
