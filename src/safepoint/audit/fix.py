"""`safepoint audit --fix`: who may read and write a place, and nothing else.

Only what was named, or is below that, is changed. Whose something is stays as it is: whoever put a
record there may have written it, and once it is root's nothing tells it from one that a worker
wrote.
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

from safepoint.audit.finding import Finding
from safepoint.core.errors import shell
from safepoint.stores.disk import opened

# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
_OPEN: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_KINDS: Final = frozenset(
    {"group", "key-mode", "mode", "other-owner", "readable", "replaceable", "writable"}
)


@dataclass(frozen=True, slots=True)
class Fix:
    """A change of one mode that a finding asks for.

    Attributes:
        path: what to change.
        info: what was there when it was planned.
        mode: the mode that it gets.
        named: whether it was named, or is below what was.
    """

    path: str
    info: os.stat_result
    mode: int
    named: bool

    def __str__(self) -> str:
        now = stat.S_IMODE(self.info.st_mode)
        return f"chmod {now:04o} → {self.mode:04o} {shell(self.path)}" if self.mode != now else ""

    def refusal(self) -> str:
        """Return why it is left alone, empty if it is not."""
        info, user = self.info, os.geteuid()
        if not self.named:
            return "it is no part of what was named; change it yourself, or name it"
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
            return "it is a link, a pipe or a device"
        if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
            return "it has a second name (hard link), and may be something else there"
        if stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX:
            return "it is a folder that users share (sticky); name another one"
        if info.st_uid != user:
            owners = f"it belongs to user {info.st_uid}, and this process is user {user}"
            return f"{owners}; find out who wrote it before you chown it"
        return ""


def planned(findings: Iterable[Finding], named: Iterable[str]) -> list[Fix]:
    """Return the changes that mend what has a mode as its cause, one for each path.

    Args:
        findings: what was found.
        named: what may be changed, with all that is below it.
    """
    fixes: dict[str, Fix] = {}
    above = {each for path in named for each in (_resolved(path), Path(os.path.realpath(path)))}
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
            real = _resolved(path)
            ours = not above.isdisjoint({real, *real.parents})
            fixes[str(path)] = Fix(str(path), info, _mode(kind, mode, info), ours)
    user = os.geteuid()
    return [
        each for each in fixes.values() if str(each) or (each.named and each.info.st_uid != user)
    ]


def _resolved(path: str | Path) -> Path:
    """Return where something is, without following it if it is a link itself."""
    found = Path(os.path.abspath(path))  # noqa: PTH100  its own links are not followed
    return Path(os.path.realpath(found.parent), found.name)


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
            os.fchmod(fd, fix.mode)
    except OSError as error:
        # Of a link that was put there, the system says so itself.
        return f"it could not be opened or changed ({error.strerror})"
    return ""
