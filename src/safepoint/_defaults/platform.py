"""The folders that a platform has for state, logs and keys, by the environment alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from safepoint.errors import StorageUnavailable

if sys.platform != "win32":
    import pwd

_MAC: Final = Path("Library", "Application Support")


@dataclass(frozen=True, slots=True)
class Bases:
    """Where a program keeps its things: state, logs and keys; and the home of its user, if any."""

    state: Path
    logs: Path
    keys: Path
    home: Path | None = None


def is_service(environ: Mapping[str, str]) -> bool:
    """Tell whether this looks like a service: root runs it, or systemd gave it a folder."""
    return os.geteuid() == 0 or _first(environ, "STATE_DIRECTORY") is not None


def of_a_service(environ: Mapping[str, str]) -> Bases:
    """Return the folders that systemd made for a service, or those that every system has."""
    return Bases(
        state=_first(environ, "STATE_DIRECTORY") or Path("/var/lib"),
        logs=_first(environ, "LOGS_DIRECTORY") or Path("/var/log"),
        keys=_first(environ, "CONFIGURATION_DIRECTORY") or Path("/etc"),
    )


def of_a_user(environ: Mapping[str, str], platform: str = sys.platform) -> Bases:
    """Return the folders of a user, by the XDG specification or as macOS has them.

    Keys are data and no configuration: many people publish their `.config`.

    Raises:
        StorageUnavailable: the user has no home.
    """
    home = _home(environ)
    if platform == "darwin":
        return Bases(home / _MAC, home / _MAC, home / _MAC, home)
    state = _absolute(environ.get("XDG_STATE_HOME", "")) or home / ".local" / "state"
    data = _absolute(environ.get("XDG_DATA_HOME", "")) or home / ".local" / "share"
    return Bases(state, state, data, home)


def _first(environ: Mapping[str, str], name: str) -> Path | None:
    """Return the first folder of a list, as systemd writes them."""
    return _absolute(environ.get(name, "").split(":")[0])


def _absolute(value: str) -> Path | None:
    """Return a path, unless it is relative or empty: then the variable counts as not set."""
    path = Path(value)
    return path if path.is_absolute() else None


def _home(environ: Mapping[str, str]) -> Path:
    named = _absolute(environ.get("HOME", ""))
    if named is not None:
        return named
    with suppress(KeyError):
        known = _absolute(pwd.getpwuid(os.geteuid()).pw_dir)
        if known is not None:
            return known
    raise StorageUnavailable(
        f"User {os.geteuid()} has no home folder.",
        "Set HOME to an absolute path, or pass service=True.",
    )
