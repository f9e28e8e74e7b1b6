"""All tests, by one more pytest side by side than there are processors: each waits now and then.

With arguments there is one, and they are its own. Without, whoever is done takes the next part, and
what it printed comes when it has ended, so that the lines do not mix. Temporary files are in memory
where there is room: most of the time would go into waiting for the disk, and no test asks for that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
_UNIT: Final = "--ignore-glob=tests/unit/test_"
# Each file is in one of them, whatever its name is. What takes longest comes first.
PARTS: Final = (
    ("tests/browser",),
    ("tests", "--ignore=tests/unit", "--ignore=tests/attacks", "--ignore=tests/browser"),
    ("tests/attacks",),
    ("tests/unit", f"{_UNIT}[p-z]*"),
    ("tests/unit", f"{_UNIT}[a-r]*"),
    ("tests/unit", f"{_UNIT}[a-o]*", f"{_UNIT}[s-z]*"),
    ("--ignore-glob=tests/*",),  # the pages and the docstrings
)
MEMORY: Final = Path("/dev/shm")  # noqa: S108  the folder in it is made by tempfile
ROOM: Final = 2 << 30
_PYTEST: Final = (sys.executable, "-m", "pytest")


class Running(NamedTuple):
    """A pytest, and the file for what it prints."""

    part: Sequence[str]
    process: subprocess.Popen[bytes]
    said: IO[bytes]

    def end(self) -> int:
        """Print what it said, and return how it ended; one that still runs is killed."""
        self.process.kill()
        code = self.process.wait()
        print("== pytest", *self.part, flush=True)
        self.said.seek(0)
        sys.stdout.buffer.write(self.said.read())
        sys.stdout.flush()
        self.said.close()
        return abs(code)  # one that a signal ended has a negative number


def main(arguments: Sequence[str], root: Path = ROOT, at_once: int | None = None) -> int:
    """Run them, and return 0 if all went well."""
    place = MEMORY if has_room(MEMORY) else None
    with tempfile.TemporaryDirectory(prefix="t-", dir=place, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o1777)  # as the system's own, which other users can enter
        environ = {**os.environ, "TMPDIR": folder}
        if arguments:
            command = [*_PYTEST, *arguments]
            return subprocess.run(command, cwd=root, env=environ, check=False).returncode
        return _all(root, environ, at_once or max(2, os.cpu_count() or 0) + 1)


def has_room(place: Path, room: int = ROOM) -> bool:
    """Tell whether files can be made there, and programs among them can be run."""
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        return False
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize >= room and not found.f_flag & os.ST_NOEXEC


def _all(root: Path, environ: dict[str, str], at_once: int) -> int:
    waiting, running, codes = list(PARTS), list[Running](), [0]
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_start(waiting.pop(0), root, environ))
            time.sleep(0.1)
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                codes.append(each.end())
    finally:
        for each in running:
            each.end()
    return max(codes)


def _start(part: Sequence[str], root: Path, environ: dict[str, str]) -> Running:
    said = tempfile.TemporaryFile()  # noqa: SIM115  closed when the process has ended
    command = [*_PYTEST, *part]
    return Running(
        part, subprocess.Popen(command, cwd=root, env=environ, stdout=said, stderr=said), said
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is in memory is removed
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
