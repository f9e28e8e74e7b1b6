"""Blocks that run as programs: scripts, SQL through `psql`, and Python that runs a payload."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.harness.blocks import Block
from tests.harness.page import Failure, Page
from tests.harness.python import Raised, check_python, stated_output
from tests.harness.versions import PACKAGES

TIMEOUT = 60.0


def run(
    page: Page,
    command: list[str],
    *,
    merge: bool,
    text: str = "",
    environ: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str, str]:
    """Return the exit code, the output and, unless merged into it, the errors.

    Args:
        page: where it runs.
        command: the program and its arguments.
        merge: whether errors stand where they happen in the output.
        text: its input.
        environ: what it sees instead of what blocks of the page do.

    Raises:
        Failure: it did not end in time. What it started was ended with it.
    """
    with subprocess.Popen(
        command,
        cwd=page.folder,
        env={**page.child_environ(), **environ},
        stdin=subprocess.PIPE if text else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merge else subprocess.PIPE,
        encoding="utf-8",
        errors="backslashreplace",
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(text or None, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failure(f"still running after {TIMEOUT:g} s; make it end") from None
    return process.returncode, page.shown(output), page.shown(errors or "")


def run_bash(page: Page, block: Block) -> str:
    """Run a script to its end, or to the failure that it announces; return what it printed."""
    # The mark cannot be in anyone's output.
    mark = f"<{secrets.token_hex(16)}>"
    script = f"{block.text}\nprintf '{mark}%s\\n' \"$?\""
    code, output, _ = run(page, ["bash", "-euo", "pipefail", "-c", script], merge=True)
    output, *end = re.split(rf"{mark}(\d+)\n", output)
    if end:
        code, output = int(end[0]), output + end[1]
    wanted = int(block.attributes.get("data-exit", "0"))
    if code != wanted:
        raise Failure(f"exit code {code} instead of {wanted} from: the script\n{output}")
    if not end and "data-exit" not in block.attributes:
        raise Failure(f"the script ended before its last line; let it reach that\n{output}")
    return output


_ERROR = re.compile(r"^ERROR:  ", re.MULTILINE)


def run_login(page: Page, block: Block) -> str:
    """Run a block as its login, and return what a reader sees in `psql`.

    A refused block goes on after an error, so that it can show several; each of its results is
    stated below it. Any other one ends with the first error.
    """
    if ("unsafe" in block.classes) != block.text.startswith("-- UNSAFE: "):
        raise Failure(
            "an .unsafe block starts with -- UNSAFE: and what it shows, and no other does"
        )
    refused = "refused" in block.classes and "data-exit" not in block.attributes
    psql = ["psql", "-X", "-q", "-w", "-U", block.attributes["data-login"]]
    psql += ["-v", f"ON_ERROR_STOP={0 if refused else 1}"]
    code, output, _ = run(
        page, psql, merge=True, text=f"{block.text}\n", environ=page.postgres.client_environ()
    )
    wanted = int(block.attributes.get("data-exit", "0"))
    if code != wanted:
        raise Failure(f"exit code {code} instead of {wanted} from psql\n{output}")
    if refused and not _ERROR.search(output):
        raise Failure(f".refused, and PostgreSQL does it; remove the class\n{output}")
    if code == 0 and not refused:
        page.postgres.remember(block.text)
    # An aligned table fills its last column with spaces, and ends with an empty line.
    lines = [line.rstrip() for line in output.rstrip().split("\n")]
    return "\n".join(lines) + "\n" if any(lines) else ""


# The block becomes __main__, as it would in a reader's own file, and the folder it runs in is the
# first entry of sys.path.
_CHILD: Final = """
import sys
_source, _file, _first, _report, _packages = sys.argv[1:]
sys.argv = [_file]
def _main(report, packages, source, file, first):
    import __main__, json, sys, traceback
    space = {k: v for k, v in vars(__main__).items() if k.startswith("__")}
    vars(__main__).clear()
    vars(__main__).update(space)
    raised = None
    try:
        with open(source, encoding="utf-8") as stream:
            text = "\\n" * (int(first) - 1) + stream.read()
        exec(compile(text, file, "exec"), vars(__main__))
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in frames if frame.filename == file), None)
        raised = [type(error).__name__, str(error), traceback.format_exc(), line]
    imported = [name for name in packages.split(",") if name in sys.modules]
    with open(report, "w", encoding="utf-8") as stream:
        json.dump({"raised": raised, "imported": imported}, stream)
_main(_report, _packages, _source, _file, _first)
"""


def run_unsafe(page: Page, block: Block) -> str:
    """Run an unsafe block and return the output that is still unchecked."""
    if not block.text.startswith("# UNSAFE: "):
        raise Failure("an unsafe block starts with # UNSAFE: and what it shows; add that line")
    name = block.attributes.get("data-marker")
    marker = page.folder / name if name else None
    if marker and marker.exists():
        raise Failure(f"the marker {name} is there before the block runs; choose another name")
    stdout, raised = _run_child(page, block)
    rest = check_python(page, block, stdout, raised)
    if marker and not marker.exists():
        raise Failure(f"the marker {name} is not there afterwards: the payload did not run")
    if not (marker or raised or rest or stated_output(block.text)):
        raise Failure('shows no effect; add data-marker="file", printed output or data-raises')
    return rest


def _run_child(page: Page, block: Block) -> tuple[str, Raised | None]:
    with tempfile.TemporaryDirectory() as folder:
        source, report = Path(folder, "block.py"), Path(folder, "report.json")
        source.write_text(block.text, encoding="utf-8")
        where = [str(source), str(block.file), str(block.first), str(report)]
        command = [sys.executable, "-c", _CHILD, *where, ",".join(PACKAGES)]
        code, stdout, stderr = run(page, command, merge=False)
        if not report.exists():
            raise Failure(f"ended with exit code {code} before its last line\n{stderr}")
        result = json.loads(report.read_text(encoding="utf-8"))
    page.imported |= set(result["imported"])
    return stdout, Raised(*result["raised"]) if result["raised"] else None
