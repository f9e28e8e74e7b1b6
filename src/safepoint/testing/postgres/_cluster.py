"""The folder of a server, and the cluster in it."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from safepoint.errors import ConfigurationError, StorageUnavailable, UnsafeLocation, shell
from safepoint.testing.postgres._passfile import write_secret
from safepoint.testing.postgres._wheel import User

_SECONDS: Final = 10.0
_EVERYBODYS: Final = "/tmp"  # noqa: S108  a folder of a random name is made in it


def made(folder: str | os.PathLike[str] | None, user: User) -> Path:
    """Make the folder of a server, or take one that was made before.

    Raises:
        ConfigurationError: it holds something else.
        UnsafeLocation: it belongs to somebody else, or others can write it.
        StorageUnavailable: it cannot be made, or the user of the server cannot reach it.
    """
    if folder is None:
        # A temporary folder of root's own may be one that the other user cannot enter.
        place = tempfile.gettempdir()
        path = Path(
            tempfile.mkdtemp(
                prefix="safepoint-postgres-",
                dir=place if user.reaches(Path(place)) else _EVERYBODYS,
            )
        )
        # Its user passes through; what it holds is closed to others.
        path.chmod(0o711 if user.id is not None else 0o700)
    else:
        path = Path(folder)
        try:
            path.mkdir(mode=0o711 if user.id is not None else 0o700, exist_ok=True)
            path = path.resolve(strict=True)
            others = any(path.iterdir())
        except OSError as error:
            raise StorageUnavailable(
                f"The folder {shell(str(path))} cannot be used: {error.strerror}.",
                "Choose another one.",
            ) from None
        if others and not (path / "passfile").exists():
            raise ConfigurationError(
                f"The folder {shell(str(path))} holds something else.",
                "Choose a new one, or one of an earlier run.",
            )
        _check_ours(path)
    if not user.reaches(path):
        raise StorageUnavailable(
            "PostgreSQL does not run as root, and the user nobody, who runs it for root,"
            f" cannot reach {shell(str(path))}.",
            "Choose a folder that everybody can enter, or run this as another user.",
        )
    return path.resolve()


def _check_ours(path: Path) -> None:
    """Refuse a folder into which somebody else can put a link, a password or a program."""
    info = path.stat()
    if info.st_uid != os.geteuid():
        raise UnsafeLocation(
            f"The folder {shell(str(path))} belongs to user {info.st_uid}, and this process is user"
            f" {os.geteuid()}.",
            "Choose a new one.",
        )
    if info.st_mode & 0o022:
        raise UnsafeLocation(
            f"Others can write the folder {shell(str(path))}"
            f" (mode {stat.S_IMODE(info.st_mode):04o}).",
            "Choose a new one.",
        )


def create(
    folder: Path, programs: Path, user: User, superuser: str, password: str, *, sync: bool
) -> None:
    """Create a cluster in which everybody needs a password.

    Raises:
        StorageUnavailable: it cannot be created.
    """
    data = folder / "data"
    data.mkdir(mode=0o700)
    user.give(data)
    once = folder / "password"
    write_secret(once, password)
    user.give(once)
    command = [str(programs / "initdb"), "-D", str(data), "-U", superuser, f"--pwfile={once}"]
    command += ["--auth=scram-sha-256", "--locale=C", "--encoding=UTF8"]
    code, said = user.run(command if sync else [*command, "--no-sync"], folder)
    once.unlink()
    if code:
        last = " / ".join(said.splitlines()[-4:]).rstrip(".")
        raise StorageUnavailable(
            f"PostgreSQL cannot make its files: {last}.",
            f"Look at the folder: {shell(str(folder))}.",
        )


def remove(folder: Path) -> None:
    """Remove a temporary folder, as far as this user may."""
    end = time.monotonic() + _SECONDS
    shutil.rmtree(folder, ignore_errors=True)
    # Where making a cluster was interrupted, a child of `initdb` writes on for a moment.
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)
