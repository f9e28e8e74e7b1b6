"""The folders that a platform has for state, logs and keys, by the environment alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from safepoint.errors import StorageUnavailable, shell

if sys.platform != "win32":
    import pwd

_MAC: Final = Path("Library", "Application Support")


@dataclass(frozen=True, slots=True)
class Bases:
    """Where a program keeps its state, anchors, logs and keys; and the home of its user, if any."""

    state: Path
    anchors: Path
    logs: Path
    keys: Path
    home: Path | None = None


def is_service(environ: Mapping[str, str]) -> bool:
    """Tell whether this looks like a service: root runs it, or systemd gave it a folder."""
    return os.geteuid() == 0 or _folder(environ, "STATE_DIRECTORY") is not None


def of_a_service(environ: Mapping[str, str]) -> Bases:
    """Return the folders that systemd made for a service, or those that every system has.

    A folder that systemd made is what people back up and restore. So the anchors need another one.

    Raises:
        StorageUnavailable: systemd made a folder for state, and none apart from it for the anchors.
    """
    state, anchors = _folder(environ, "STATE_DIRECTORY"), _folder(environ, "STATE_DIRECTORY", 1)
    if state is None:
        state = anchors = Path("/var/lib")
    elif anchors is None or anchors.is_relative_to(state) or state.is_relative_to(anchors):
        raise StorageUnavailable(
            f"systemd gave one folder for state, {shell(str(state))}, so that the storage and its"
            " anchor would be restored together.",
            "Name two in the unit: StateDirectory=invoices invoices-anchor",
        )
    return Bases(
        state=state,
        anchors=anchors,
        logs=_folder(environ, "LOGS_DIRECTORY") or Path("/var/log"),
        keys=_folder(environ, "CONFIGURATION_DIRECTORY") or Path("/etc"),
    )


def of_a_user(environ: Mapping[str, str], platform: str = sys.platform) -> Bases:
    """Return the folders of a user, by the XDG specification or as macOS has them.

    Keys are data and no configuration: many people publish their `.config`.

    Raises:
        StorageUnavailable: the user has no home.
    """
    home = _home(environ)
    if platform == "darwin":
        return Bases(home / _MAC, home / _MAC, home / _MAC, home / _MAC, home)
    state = _absolute(environ.get("XDG_STATE_HOME", "")) or home / ".local" / "state"
    data = _absolute(environ.get("XDG_DATA_HOME", "")) or home / ".local" / "share"
    return Bases(state, state, state, data, home)


def _folder(environ: Mapping[str, str], name: str, index: int = 0) -> Path | None:
    """Return one folder of a list, as systemd writes them, or None."""
    return _absolute("".join(environ.get(name, "").split(":")[index : index + 1]))


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
