"""All tests, by two pytests side by side: those of the parts, and everything else.

With arguments there is one, and they are its own. What the first one prints comes after the
second has ended, so that the lines do not mix.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PARTS: Final = "tests/unit"
_PYTEST: Final = [sys.executable, "-m", "pytest"]


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Run them, and return 0 if all went well."""
    if arguments:
        return subprocess.run([*_PYTEST, *arguments], cwd=root, check=False).returncode
    with tempfile.TemporaryFile() as said:
        parts = subprocess.Popen([*_PYTEST, PARTS], cwd=root, stdout=said, stderr=said)
        try:
            rest = subprocess.run([*_PYTEST, f"--ignore={PARTS}"], cwd=root, check=False)
            print(f"== and {PARTS}", flush=True)
            parts.wait()
        finally:
            parts.kill()
            parts.wait()
            said.seek(0)
            sys.stdout.buffer.write(said.read())
            sys.stdout.flush()
    # One that a signal ended has a negative number.
    return next((abs(code) for code in (rest.returncode, parts.returncode) if code), 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
