"""Is the folder of a file storage as private as the rules SP04 and SP01 want it?

What `FileCheckpointStorage` refuses is asked of the very functions that it asks. The rest are
things that it accepts and that you should know of.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from safepoint._files import (
    TEMP,
    absolute,
    folder_refusals,
    hard_link_refusals,
    location_refusals,
    network_file_system,
    record_refusals,
    require_posix,
    stranger_refusals,
    translated,
)
from safepoint.audit.files import guarded, unseen
from safepoint.audit.finding import Finding, worst_first
from safepoint.errors import StorageError, StorageUnavailable, shell
from safepoint.storage.base import is_thread
from safepoint.storage.file import RECORD_NAME

_OTHERS_READ = stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH


def check_location(storage_path: str | os.PathLike[str]) -> list[Finding]:
    """Look at the folder of a file storage. Nothing is created, opened for writing or changed.

    Returns:
        What was found, the refusals of `FileCheckpointStorage` first; empty if all is well.

    Raises:
        StorageUnavailable: there is nothing at that path, or it cannot be looked at.
        UnsafeLocation: its parent is not a folder.
    """
    require_posix()
    path = absolute(storage_path)
    if not os.path.lexists(path):
        raise StorageUnavailable(
            f"{shell(path)} does not exist.", f"Run: mkdir -m 700 {shell(path)}"
        )
    with translated("look at", path):
        findings = [_refused(path, refusal) for refusal in location_refusals(path)]
        findings += readable(path)
        findings += temporary(path)
        findings += work_tree(path)
        findings += ancestors(path)
        findings += _links(os.fspath(storage_path))
        findings += _network(path)
        findings += _contents(path)
    return findings


def _refused(where: str, refusal: StorageError) -> Finding:
    return Finding("SP04", "error", refusal.what, refusal.do, where)


def readable(path: str) -> Iterator[Finding]:
    """Yield that others can read the folder."""
    info = Path(path).lstat()
    if stat.S_ISDIR(info.st_mode) and info.st_mode & _OTHERS_READ:
        yield Finding(
            "SP01",
            "warning",
            f"{shell(path)} can be read by others (mode {stat.S_IMODE(info.st_mode):04o}).",
            f"Run: chmod 700 {shell(path)}",
            path,
        )


def temp_folders() -> list[str]:
    """Return the folders that the system empties, without asking `tempfile`, which writes."""
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    return [os.path.realpath(folder) for folder in ("/tmp", "/var/tmp", *named) if folder]  # noqa: S108


def temporary(path: str) -> Iterator[Finding]:
    """Yield that the system empties the folder, or one above it."""
    for folder in temp_folders():
        if Path(path).is_relative_to(folder):
            yield Finding(
                "SP01",
                "warning",
                f"{shell(path)} is inside the temporary folder {shell(folder)}: other users can"
                " create names there, and the system may empty it.",
                "Name a folder that is kept, such as one below /var/lib.",
                path,
            )
            return


def work_tree(path: str) -> Iterator[Finding]:
    """Yield that the folder lies in a git work tree, from which it could be published."""
    for folder in (Path(path), *Path(path).parents):
        if os.path.lexists(folder / ".git"):
            yield Finding(
                "SP01",
                "warning",
                f"{shell(path)} is inside the git work tree {shell(str(folder))}, so state could"
                " be committed.",
                "Name a folder outside of it.",
                path,
            )
            return


def ancestors(path: str) -> Iterator[Finding]:
    """Yield what is wrong with the folders above."""
    for folder in Path(path).parents:
        info, shown = folder.lstat(), shell(str(folder))
        for refusal in stranger_refusals(str(folder), info):
            yield Finding("SP01", "warning", refusal.what, refusal.do, str(folder))
        if info.st_mode & stat.S_IWGRP and not info.st_mode & stat.S_ISVTX:
            yield Finding(
                "SP01",
                "warning",
                f"The group {info.st_gid} can replace what is inside {shown}"
                f" (mode {stat.S_IMODE(info.st_mode):04o}).",
                f"Run: chmod g-w {shown}",
                str(folder),
            )


def _links(named: str) -> Iterator[Finding]:
    """Look at the path as it was named: whoever owns a link in it decides where it leads."""
    for folder in (Path.cwd() / named).parents:
        info = folder.lstat()
        if stat.S_ISLNK(info.st_mode) and info.st_uid not in (0, os.geteuid()):
            yield Finding(
                "SP01",
                "warning",
                f"{shell(str(folder))} is a symbolic link of user {info.st_uid}, who decides where"
                " it leads.",
                "Name the path without that link.",
                str(folder),
            )


def _network(path: str) -> Iterator[Finding]:
    kind = network_file_system(path)
    if kind is not None:
        yield Finding(
            "SP01",
            "note",
            f"{shell(path)} is on a network file system ({kind}): whether link and flock hold"
            " there depends on the server, and so does who can write.",
            "Prefer a local disk, or test both with two machines that write at once.",
            path,
        )


def _contents(path: str) -> Iterator[Finding]:
    if not stat.S_ISDIR(Path(path).lstat().st_mode):
        return
    try:
        children = _children(path)
    except OSError as error:
        yield unseen("SP04", path, error.strerror)
        return
    for child in children:
        yield from guarded("SP04", child, _folder(child))
    found = (f for child in children for f in guarded("SP04", child, _records(child)))
    yield from worst_first(found)


def _children(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(e.path for e in entries if is_thread(e.name))


def _folder(child: str) -> Iterator[Finding]:
    for refusal in folder_refusals(child, Path(child).lstat()):
        yield _refused(child, refusal)


def _records(child: str) -> Iterator[Finding]:
    thread = Path(child)
    if not stat.S_ISDIR(thread.lstat().st_mode):
        return
    for record in thread.iterdir():
        if RECORD_NAME.match(record.name):
            yield from guarded(
                "SP04", str(record), record_file(record, record.with_name(TEMP).lstat)
            )


def record_file(file: Path, temp: Callable[[], os.stat_result] | None) -> Iterator[Finding]:
    """Yield who else could change or read a file of a storage.

    Args:
        file: the file.
        temp: how to look at what is published by a link to it, if anything is.
    """
    path, info = str(file), file.lstat()
    refusals = [*record_refusals(path, info)]
    if not refusals:
        refusals += hard_link_refusals(path, file.lstat, temp)
    yield from (_refused(path, refusal) for refusal in refusals)
    if not refusals and info.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield Finding(
            "SP04",
            "error",
            f"{shell(path)} can be read by others (mode {stat.S_IMODE(info.st_mode):04o}).",
            f"Run: chmod 600 {shell(path)}",
            path,
        )
