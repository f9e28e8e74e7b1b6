"""All tests, by one more pytest side by side than there are processors: each waits now and then.

With arguments there is one, and they are its own. Without, the files are dealt out into parts,
whoever is done takes the next one, and what it printed comes when it has ended, so that the lines
do not mix. `make check` runs beside them, and if all went well, the census follows. Such a whole
run begins new evidence: its plan is written first, and how each of them ended last.

Temporary files are in memory where there is room: most of the time would go into waiting for the
disk, and no test asks for that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from tests.harness.evidence import Done, Plan, append, read
from tests.harness.shared import SHARED

ROOT: Final = Path(__file__).resolve().parents[2]
EVIDENCE: Final = "build/evidence.jsonl"
MEMORY: Final = Path("/dev/shm")  # noqa: S108  the folder in it is made by tempfile
ROOM: Final = 2 << 30
SHARE: Final = 150_000
"""Bytes of tests that are enough for one pytest: a folder that has more is dealt out."""
_SLOW: Final = ("browser", "pages", "attacks", "unit", "integrations")
"""What takes longest comes first: a short part is the one that the others wait for at the end."""
_PYTEST: Final = (sys.executable, "-m", "pytest")
_CHECK: Final = ("make", "--no-print-directory", "check")


def parts(root: Path) -> dict[str, list[str]]:
    """Deal out every test: each folder below `tests/` is a part or several, the pages are one."""
    folders: dict[str, list[Path]] = defaultdict(list)
    for file in sorted((root / "tests").rglob("test_*.py")):
        below = file.relative_to(root / "tests").parts
        folders[below[0] if len(below) > 1 else "others"].append(file)
    found = {"pages": ["--ignore-glob=tests/*"]}
    for folder, files in folders.items():
        hands: list[list[Path]] = [[]]
        for file in files:  # neighbours import the same packages, and share a server
            if sum(each.stat().st_size for each in hands[-1]) + file.stat().st_size / 2 > SHARE:
                hands.append([])
            hands[-1].append(file)
        for number, hand in enumerate(hands, 1):
            name = f"{folder}-{number}" if len(hands) > 1 else folder
            found[name] = sorted(file.relative_to(root).as_posix() for file in hand)
    rank = {name: place for place, name in enumerate(_SLOW)}
    return dict(
        sorted(found.items(), key=lambda part: rank.get(part[0].partition("-")[0], len(rank)))
    )


class Running(NamedTuple):
    """A pytest, and the file for what it prints."""

    name: str
    process: subprocess.Popen[bytes]
    said: IO[bytes]

    def end(self) -> int:
        """Print what it said, and return how it ended; one that still runs is killed."""
        self.process.kill()
        code = self.process.wait()
        print("==", self.name, flush=True)
        self.said.seek(0)
        sys.stdout.buffer.write(self.said.read())
        sys.stdout.flush()
        self.said.close()
        return code


def main(
    arguments: Sequence[str], root: Path = ROOT, at_once: int | None = None, *, check: bool = False
) -> int:
    """Run them, and return 0 if all went well."""
    place = MEMORY if has_room(MEMORY) else None
    with tempfile.TemporaryDirectory(prefix="t-", dir=place, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o1777)  # as the system's own, which other users can enter
        environ = {**os.environ, "TMPDIR": folder, SHARED: f"{folder}/shared"}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of programs would compile the same
        if arguments:
            command = [*_PYTEST, *arguments]
            return subprocess.run(command, cwd=root, env=environ, check=False).returncode
        return _all(root, environ, at_once or max(2, os.cpu_count() or 0) + 1, check=check)


def has_room(place: Path, room: int = ROOM) -> bool:
    """Tell whether files can be made there, and programs among them can be run."""
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        return False
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize >= room and not found.f_flag & os.ST_NOEXEC


def _all(root: Path, environ: Mapping[str, str], at_once: int, *, check: bool) -> int:
    waiting, running, codes = parts(root), list[Running](), dict[str, int]()
    evidence = root / EVIDENCE
    evidence.unlink(missing_ok=True)
    append(evidence, Plan(list(waiting))._asdict())
    if check:
        running.append(_start("check", _CHECK, root, environ))
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                name = next(iter(waiting))
                command = [*_PYTEST, f"--run={name}", *waiting.pop(name)]
                running.append(_start(name, command, root, environ))
            time.sleep(0.1)
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                codes[each.name] = each.end()
    finally:
        for each in running:
            codes[each.name] = each.end()
        if not any(codes.values()) and not waiting:
            print("== census", flush=True)
            command = [sys.executable, "-m", "tests.harness.census", f"--root={root}"]
            codes["census"] = subprocess.run(command, cwd=root, env=environ, check=False).returncode
        append(evidence, Done(codes)._asdict())
    return _judged(evidence)


def _judged(evidence: Path) -> int:
    """Say how it went, by what is written down: a pytest that ended early may have ended with 0."""
    found = read(evidence)
    for said in (*found.failed, *found.partial):
        print(f"== {said}")
    for name in found.failures:
        print(f"   {name}")
    print(
        f"== {found.total('passed'):,} passed, {found.total('failed'):,} failed,"
        f" {found.total('skipped'):,} skipped, {found.total('deep'):,} left for make deep",
        flush=True,
    )
    return found.status


def _start(name: str, command: Sequence[str], root: Path, environ: Mapping[str, str]) -> Running:
    said = tempfile.TemporaryFile()  # noqa: SIM115  closed when the process has ended
    process = subprocess.Popen(command, cwd=root, env=environ, stdout=said, stderr=said)
    return Running(name, process, said)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is in memory is removed
    try:
        sys.exit(main(sys.argv[1:], check=True))
    except KeyboardInterrupt:
        sys.exit(130)
