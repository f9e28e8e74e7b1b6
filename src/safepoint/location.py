"""Is a path a safe place? Asked by the file storage, the anchor, the keys and the audit alike.

Each function looks at what `stat` says and yields the refusals that follow from it. Nothing here
creates, opens or changes a file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from safepoint.errors import StorageError, StorageUnavailable, UnsafeLocation, quoted, shell

NETWORK = frozenset(
    [
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "coda", "ncpfs", "davfs"),
        *("ceph", "glusterfs", "lustre", "beegfs", "gpfs", "orangefs", "gfs2", "ocfs2"),
        # Shared by a machine and its host: neither sees what is mapped into the other's memory.
        *("9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "fakeowner"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.juicefs"),
        *("fuse.s3fs", "fuse.goofys", "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2"),
        *("fuse.rclone", "fuse.davfs", "fuse.davfs2", "fuse.curlftpfs", "fuse.vmhgfs-fuse"),
        *("fuse.grpcfuse", "fuse.osxfs"),
    ]
)
"""Where files are that other machines reach too, as /proc/self/mountinfo calls the kinds."""
_LONGEST = 4095
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def enforce(refusals: Iterable[StorageError]) -> None:
    """Raise the first refusal, if there is one."""
    for refusal in refusals:
        raise refusal


def absolute(path: object, what: str = "storage_path") -> str:
    """Return the path of the folder: absolute, links resolved in its parent but not in itself.

    Args:
        path: the folder, as somebody named it.
        what: what the path is called, at the start of a message.

    Raises:
        StorageUnavailable: it is not a path, or its parent does not exist or cannot be reached.
        UnsafeLocation: its parent is not a folder.
    """
    named = as_named(path, what)
    # "x/.." has no last name of its own that could be a link; all of it is parent.
    parent, name = (named, "") if named.name in ("", "..") else (named.parent, named.name)
    resolved = _resolved(parent)
    return str(Path(resolved, name))


def as_named(path: object, what: str, kind: str = "folder") -> Path:
    """Return the path from the root on, with whatever links are in it.

    Args:
        path: the path, as somebody named it.
        what: what the path is called, at the start of a message.
        kind: what it leads to: a folder, or a file.

    Raises:
        StorageUnavailable: it is not a path, or is relative to a folder that is gone.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise StorageUnavailable(
            f"{what} is {type(path).__name__}, not a path.",
            f"Pass a str or a pathlib.Path that names a {kind}.",
        )
    if not text:
        raise StorageUnavailable(f"{what} is empty.", f"Name a {kind}: there is no default.")
    if not _nameable(text):
        raise StorageUnavailable(
            f"{quoted(text)} cannot be the path of a {kind}.",
            f"Use at most {_LONGEST} bytes, no NUL character and no lone surrogate.",
        )
    if Path(text).is_absolute():
        return Path(text)
    try:
        return Path.cwd() / text
    except OSError as error:
        raise StorageUnavailable(
            f"{what} is relative, and the current folder is gone.", "Pass an absolute path."
        ) from error


def _nameable(text: str) -> bool:
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return b"\0" not in encoded and len(encoded) <= _LONGEST


def _resolved(parent: Path) -> str:
    shown = shell(str(parent))
    try:
        resolved = os.path.realpath(parent, strict=True)
        found = Path(resolved).is_dir()
    except NotADirectoryError:
        found = False
    except FileNotFoundError as error:
        raise StorageUnavailable(
            f"{shown} does not exist.", f"Run: mkdir -p -m 700 {shown}"
        ) from error
    except OSError as error:
        raise StorageUnavailable(
            f"{quoted(str(parent))} cannot be reached ({error.strerror}).",
            "Name a folder that this user can reach.",
        ) from error
    if not found:
        raise UnsafeLocation(
            f"{shown} is not a folder, so nothing can be inside it.",
            f"Name another path; see what is there: ls -ld {shown}",
        )
    return resolved


def location_refusals(path: str) -> Iterator[StorageError]:
    """Yield each reason why the file storage refuses this absolute path.

    A folder that does not exist yet is no reason: the storage creates it.
    """
    try:
        info = Path(path).lstat()
    except FileNotFoundError:
        pass
    else:
        yield from folder_refusals(path, info)
    for ancestor in Path(path).parents:
        yield from ancestor_refusals(str(ancestor), ancestor.lstat())


def replaceable_refusals(path: str) -> Iterator[StorageError]:
    """Yield each reason why others could replace what lies in this absolute folder.

    A link among the names counts as what it is, since its owner decides where it leads; so does
    each folder on the way that it leads.
    """
    for folder in (Path(path), *Path(path).parents):
        info = folder.lstat()
        yield from stranger_refusals(str(folder), info)
        if not stat.S_ISLNK(info.st_mode):
            yield from ancestor_refusals(str(folder), info)
    resolved = os.path.realpath(path)
    if resolved != path:
        yield from replaceable_refusals(resolved)


def group_refusals(path: str) -> Iterator[StorageError]:
    """Yield each folder from this absolute one up in which another group can replace things.

    The group of this process is let pass: where each user has a group of their own, new folders
    can be written by it.
    """
    for folder in (Path(path), *Path(path).parents):
        info = folder.lstat()
        shared = info.st_mode & stat.S_IWGRP and not info.st_mode & stat.S_ISVTX
        if stat.S_ISDIR(info.st_mode) and shared and info.st_gid not in (0, os.getegid()):
            shown = shell(str(folder))
            yield UnsafeLocation(
                f"The group {info.st_gid} can replace what is inside {shown}"
                f" (mode {stat.S_IMODE(info.st_mode):04o}).",
                f"Run: chmod g-w {shown}",
            )


def stranger_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield that a folder belongs to somebody who is neither root nor this user."""
    if info.st_uid not in (0, os.geteuid()):
        yield UnsafeLocation(
            f"{shell(path)} belongs to user {info.st_uid}, who can replace what is inside it.",
            "Name a folder that has only root and your own user above it.",
        )


def folder_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a folder of the store, by what `lstat` or `fstat` says of it."""
    shown = shell(path)
    if stat.S_ISLNK(info.st_mode):
        yield UnsafeLocation(
            f"{shown} is a symbolic link.",
            f"Whoever owns the link decides where it leads. See where, and name that folder"
            f" instead: readlink -f {shown}",
        )
    elif not stat.S_ISDIR(info.st_mode):
        yield UnsafeLocation(
            f"{shown} is not a folder.",
            f"Name another path; see what is there: ls -ld {shown}",
        )
    elif info.st_uid != os.geteuid():
        yield UnsafeLocation(
            f"{shown} belongs to user {info.st_uid}, and this process is user {os.geteuid()}.",
            _of_your_own(path),
        )
    elif info.st_mode & _OTHERS_WRITE and info.st_mode & stat.S_ISVTX:
        yield UnsafeLocation(f"{shown} is shared by all users.", _of_your_own(path))
    elif info.st_mode & _OTHERS_WRITE:
        yield _writable(path, info, 0o700)


def _of_your_own(path: str) -> str:
    """Say what to do about a folder that is not ours to change."""
    inside = str(Path(path, "checkpoints"))
    return f"Name a folder of your own, such as {shell(inside)}: mkdir -m 700 {shell(inside)}"


def ancestor_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a folder above the store."""
    if info.st_mode & stat.S_IWOTH and not info.st_mode & stat.S_ISVTX:
        shown = shell(path)
        yield UnsafeLocation(
            f"Every user can rename and replace what is inside {shown}"
            f" (mode {stat.S_IMODE(info.st_mode):04o}).",
            f"Run: chmod o-w {shown}",
        )


def record_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with the file of a record, by what `lstat` or `fstat` says of it."""
    shown = shell(path)
    if stat.S_ISLNK(info.st_mode):
        yield UnsafeLocation(
            f"{shown} is a symbolic link.",
            f"This store never makes one. See who did, then remove it: ls -l {shown}",
        )
    elif not stat.S_ISREG(info.st_mode):
        yield UnsafeLocation(
            f"{shown} is not a regular file.",
            f"This store never makes one. See who did, then remove it: ls -l {shown}",
        )
    else:
        yield from _owner_refusals(path, info)
        if info.st_mode & _OTHERS_WRITE:
            yield _writable(path, info, 0o600)


def hard_link_refusals(
    path: str, stat_again: Callable[[], os.stat_result], temps: int | str | None
) -> Iterator[StorageError]:
    """Yield a refusal if a record has a name that this store did not give it.

    A record has two names for a moment while it is published, and after a crash at that moment
    until the next start; the second is then among the temps. The link count is read after the
    temps were listed, so that a publish that ends in between raises no alarm.

    Args:
        path: the record, for the message.
        stat_again: reads the record's `stat`, fresh on each call.
        temps: the folder of the temps as a descriptor or a path, or None if there is none.
    """
    info = stat_again()
    if info.st_nlink < 2:
        return
    ours = 0
    if temps is not None:
        with os.scandir(temps) as entries:
            ours = sum(_same_file(entry, info) for entry in entries)
    if stat_again().st_nlink > 1 + ours:
        shown = shell(path)
        yield UnsafeLocation(
            f"{shown} has a second name (hard link).",
            f"Whoever holds it may change the record. Find it, and remove it:"
            f" find / -samefile {shown}",
        )


def _same_file(entry: os.DirEntry[str], info: os.stat_result) -> bool:
    try:
        return os.path.samestat(entry.stat(follow_symlinks=False), info)
    except FileNotFoundError:
        return False


def _owner_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    user = os.geteuid()
    if info.st_uid != user:
        yield UnsafeLocation(
            f"{shell(path)} belongs to user {info.st_uid}, and this process is user {user}.",
            f"Run: sudo chown {user} {shell(path)}",
        )


def _writable(path: str, info: os.stat_result, mode: int) -> UnsafeLocation:
    return UnsafeLocation(
        f"{shell(path)} can be written by others (mode {stat.S_IMODE(info.st_mode):04o}).",
        f"Run: chmod {mode:o} {shell(path)}",
    )


def file_system(path: str, mountinfo: str) -> str | None:
    """Return the type of the file system at an absolute path, by the text of a mountinfo file."""
    best, kind = "", None
    for line in mountinfo.splitlines():
        mount, separator, source = line.partition(" - ")
        fields = mount.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        # A later mount at the same point hides the earlier one, hence >=.
        if Path(path).is_relative_to(point) and len(point) >= len(best):
            best, kind = point, source.split(" ")[0]
    return kind


def network_file_system(path: str) -> str | None:
    """Return the type of the file system that an absolute path is on, if machines share it.

    It is None on a local one. The type can be read on Linux alone: elsewhere it is None too.
    """
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", errors="surrogateescape")
    except OSError:
        return None
    kind = file_system(path, mounts)
    return kind if kind in NETWORK else None
