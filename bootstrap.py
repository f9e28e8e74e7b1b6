"""Make `.venv` ready: create it, fill it from the lock, and repair it when it is not whole.

`make` runs this before each target that needs Python. It uses the standard library alone. The lock
names every package, with the digests of its files, and pip resolves nothing. PyTorch alone has no
digests; what a build of it for GPUs needs besides is in the lock as well.

`bootstrap.py site` installs what it takes to read the guide, and nothing of what tests need.

The stamp `.venv/.ready` says where the environment stands, for which Python, from which lock, and
how much of that.
It goes away before the first change and comes back after the last one. So a stamp that is missing
or tells another story means an unfinished, moved or broken environment, and that one is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".ready"
SOURCES = (ROOT / "requirements.txt", ROOT / "pyproject.toml")
PIP = ["-I", "-m", "pip", "--no-input", "--disable-pip-version-check"]
ALONE = [*PIP, "install", "-qq", "--no-deps", "--no-compile"]


def main() -> None:
    """Return at once if the environment is ready, else make it so, one process at a time."""
    extent = "site" if "site" in sys.argv[1:] else "all"
    if is_ready(extent):
        return
    # The lock belongs to an open file, so it ends with the process, however that ends.
    with Path(__file__).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another make to finish setting up .venv.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_ready(extent):
            set_up(lock.fileno(), extent)


def is_ready(extent: str) -> bool:
    """Tell whether the stamp was written here, by this Python, for the sources as they are."""
    *story, found = read_stamp()
    return story == [ask_interpreter(), digest_of_sources()] and found in (extent, "all")


def read_stamp() -> list[str]:
    """Return what the stamp says: interpreter, sources and extent; empty if there is none."""
    try:
        story = STAMP.read_text(errors="replace").split("\n")
    except OSError:
        story = []
    return story if len(story) == 3 else ["", "", ""]


def digest_of_sources() -> str:
    """Name the state of the lock and of the package's metadata."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in SOURCES)).hexdigest()


def read_lock() -> list[str]:
    """Return the parts of the lock: for the site, for tests, PyTorch, and for its use of GPUs."""
    text = (ROOT / "requirements.txt").read_text()
    return re.split("^#.*\n", text, flags=re.MULTILINE)[1:]


def ask_interpreter(probe: str = "import sys; print(sys.prefix, *sys.version_info[:2])") -> str:
    """Ask the environment's own Python where it lives and what it is; "" if it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603 -- a fixed command
            [PYTHON, "-I", "-c", probe], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return answer.stdout.strip()


def set_up(lock: int, extent: str) -> None:
    """Bring the environment to what the sources say, from scratch unless it was whole before."""
    sources = digest_of_sources()  # now: what is edited while pip runs counts for the next run
    if read_stamp()[0] == ask_interpreter() != "":
        print("Updating .venv to the current requirements.", flush=True)
        STAMP.unlink()
    else:
        missing = [name for name in ("venv", "ensurepip") if not importlib.util.find_spec(name)]
        if missing:
            fail(
                f"{sys.executable} has no module {missing[0]}. Install it (on Debian and Ubuntu:"
                " apt install python3-venv), or name another Python: make PYTHON=python3.12"
            )
        version = platform.python_version()
        print(f"Setting up .venv with Python {version}: a minute or two, once.", flush=True)
        if VENV.exists():
            shutil.rmtree(VENV)
        run("creating .venv", lock, sys.executable, "-m", "venv", VENV)
    for_site, for_tests, torch, for_gpus = read_lock()
    if extent == "site":
        install("installing what the site needs", lock, for_site)
    else:
        install("installing requirements.txt", lock, for_site + for_tests)
        install("installing PyTorch", lock, torch, has_digests=False)
        wants = ask_interpreter("from importlib.metadata import requires as r; print(r('torch'))")
        names = re.findall(r"^([\w-]+)==", for_gpus, re.MULTILINE)
        if sys.platform == "linux" and any(name in wants for name in names):
            install("installing what PyTorch needs for GPUs", lock, for_gpus)
    run("installing safepoint itself", lock, PYTHON, *ALONE, "--no-build-isolation", "-e", ".")
    STAMP.write_text(f"{ask_interpreter()}\n{sources}\n{extent}")


def install(step: str, lock: int, part: str, *, has_digests: bool = True) -> None:
    """Install a part of the lock, and nothing else."""
    file = VENV / "part.txt"
    file.write_text(part)
    options = ["--require-hashes"] if has_digests else []
    run(step, lock, PYTHON, *ALONE, *options, "-r", file)


def run(step: str, lock: int, *command: str | Path) -> None:
    """Run one step in silence, and show all that it said if it fails."""
    # The child holds the lock too: if only this process is killed, nobody deletes under its pip.
    done = subprocess.run(  # noqa: S603 -- fixed commands
        command, cwd=ROOT, capture_output=True, errors="replace", check=False, pass_fds=(lock,)
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        fail(f"Set-up failed while {step}; the reason is above. The next run starts afresh.")


def fail(line: str) -> NoReturn:
    """End with one line and without a traceback."""
    print(line, file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        fail("Set-up interrupted. The next run starts afresh.")
    except OSError as error:
        fail(f"Set-up failed: {error}. Mend that, and run the same command again.")
