"""`safepoint audit --fix`: who may read and write a place, and nothing else.

Between the look and the change somebody may put something else under a name. So what is changed
is what was opened, without following a link, and only if it is still the very thing that was
looked at, with one name and one owner as before.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from safepoint._files import opened
from safepoint.audit.finding import Finding
from safepoint.errors import shell

# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
_OPEN: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_KINDS: Final = frozenset(
    {"group", "key-mode", "mode", "other-owner", "readable", "replaceable", "writable"}
)


@dataclass(frozen=True, slots=True)
class Fix:
    """A change of one mode, or of one owner, that a finding asks for.

    Attributes:
        path: what to change.
        info: what was there when it was planned.
        mode: the mode that it gets.
        owner: who it will belong to.
    """

    path: str
    info: os.stat_result
    mode: int
    owner: int

    def __str__(self) -> str:
        said = []
        if self.owner != self.info.st_uid:
            said.append(f"chown {self.info.st_uid} → {self.owner} {shell(self.path)}")
        if self.mode != stat.S_IMODE(self.info.st_mode):
            now = stat.S_IMODE(self.info.st_mode)
            said.append(f"chmod {now:04o} → {self.mode:04o} {shell(self.path)}")
        return ", ".join(said)

    def refusal(self) -> str:
        """Return why it is left alone, empty if it is not."""
        info, user = self.info, os.geteuid()
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
            return "it is a link, a pipe or a device"
        if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
            return "it has a second name (hard link), and may be something else there"
        if stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX:
            return "it is a folder that users share (sticky); name another one"
        if self.owner != user:
            return f"it belongs to user {info.st_uid}, and this process is user {user}"
        return ""


def planned(findings: Iterable[Finding]) -> list[Fix]:
    """Return the changes that mend what has a mode or an owner as its cause, one for each path."""
    fixes: dict[str, Fix] = {}
    for each in findings:
        kind = each.id.partition(".")[2]
        paths = [Path(each.where)]
        if kind not in _KINDS or not paths[0].is_absolute():
            continue
        if kind == "replaceable":  # by those who can write a folder above it
            paths = [*paths[0].parents]
        for path in paths:
            try:
                info = path.lstat()
            except OSError:
                continue  # gone by now
            known = fixes.get(str(path))
            mode = stat.S_IMODE(info.st_mode) if known is None else known.mode
            owner = info.st_uid if known is None else known.owner
            if kind == "other-owner" and stat.S_ISREG(info.st_mode) and os.geteuid() == 0:
                owner = (
                    0  # nobody else may take what is another's; whose a folder is, its user knows
                )
            fixes[str(path)] = Fix(str(path), info, _mode(kind, mode, info), owner)
    return [each for each in fixes.values() if str(each) or each.owner != os.geteuid()]


def _mode(kind: str, mode: int, info: os.stat_result) -> int:
    if kind == "group":
        return mode & ~stat.S_IWGRP
    if kind == "replaceable":
        return mode if mode & stat.S_ISVTX else mode & ~stat.S_IWOTH
    return 0o700 if stat.S_ISDIR(info.st_mode) else 0o600


def apply(fixes: Iterable[Fix], *, dry_run: bool = False) -> Iterator[str]:
    """Yield what is done to each path, and do it then; or why it is left alone.

    Args:
        fixes: what was planned.
        dry_run: only say what would be done.
    """
    for fix in fixes:
        why = fix.refusal()
        if not why:
            yield f"would {fix}" if dry_run else str(fix)
            why = "" if dry_run else _apply(fix)
        if why:
            yield f"Left alone: {shell(fix.path)}: {why}."


def _apply(fix: Fix) -> str:
    """Make one change, and return why it was not made."""
    try:
        found = opened(fix.path, _OPEN)
        with found as fd:
            now, then = found.info, fix.info
            same = ["st_dev", "st_ino", "st_mode", "st_uid"]
            if stat.S_ISREG(now.st_mode):  # a new file may get the number of an old one
                same += ["st_nlink", "st_ctime_ns"]
            if any(getattr(now, each) != getattr(then, each) for each in same):
                return "it changed meanwhile; run it again"
            # First the mode: what becomes root's must not run as root, or be open to others.
            os.fchmod(fd, fix.mode)
            if fix.owner != now.st_uid:
                os.fchown(fd, fix.owner, -1)
    except OSError as error:
        # Of a link that was put there, the system says so itself.
        return f"it could not be opened or changed ({error.strerror})"
    return ""
