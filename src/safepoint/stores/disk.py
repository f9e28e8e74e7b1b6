"""What stores need of files beyond `safepoint.core.files`, which keys stand on, too."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from safepoint.core import files
from safepoint.core.errors import (
    LimitExceeded,
    StorageError,
    StorageFull,
    StorageUnavailable,
    UnsafeLocation,
    quoted,
    shell,
)

SUPPORTED = (
    os.name == "posix"
    and hasattr(os, "O_NOFOLLOW")
    and {os.open, os.mkdir, os.stat, os.chmod, os.link, os.unlink, os.rename} <= os.supports_dir_fd
)
# What the system says where there is no room.
FULL = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
# Where files are that other machines reach too, as /proc/self/mountinfo calls the kinds.
NETWORK = re.compile(
    "nfs4?|cifs|smb3|smbfs|afs|coda|ncpfs|davfs|ceph|glusterfs|lustre|beegfs|gpfs|orangefs|gfs2"
    # Shared by a machine and its host: neither sees what is mapped into the other's memory.
    "|ocfs2|9p|virtiofs|vboxsf|vmhgfs|prl_fs|fakeowner|fuse\\.(vmhgfs-fuse|grpcfuse|osxfs|sshfs"
    "|glusterfs|ceph|ceph-fuse|juicefs|s3fs|goofys|gcsfuse|blobfuse2?|rclone|davfs2?|curlftpfs)"
)
_KIND_AND_OTHERS = 0o170000 | files.OTHERS_WRITE


def require_posix() -> None:
    """Refuse a system that lacks the calls on which files stand here.

    Raises:
        StorageUnavailable: on Windows, and wherever files cannot be reached by descriptor.
    """
    if not SUPPORTED:
        raise StorageUnavailable(
            "FileCheckpointStorage needs a POSIX system.", "Use SQLiteCheckpointStorage here."
        )


# --- paths


def as_named(path: str | os.PathLike[str], what: str, kind: str = "folder") -> Path:
    """Return the path from the root on, with whatever links are in it.

    Args:
        path: the path, as somebody named it.
        what: what the path is called, at the start of a message.
        kind: what it leads to: a folder, or a file.

    Raises:
        StorageUnavailable: no file can have it, or it is relative to a folder that is gone.
    """
    try:
        text = os.fspath(path)
        if text and b"\0" not in os.fsencode(text):
            return Path(text).absolute()
    except (OSError, TypeError, ValueError):
        pass
    raise StorageUnavailable(
        f"{what} is {quoted(path)}, which cannot be the path of a {kind}.",
        f"Name a {kind}, from the root on: there is no default.",
    )


def absolute(path: str | os.PathLike[str], what: str = "storage_path") -> str:
    """Return the path of a folder: absolute, links resolved in its parent but not in itself.

    Raises:
        StorageUnavailable: no folder can have it, or its parent is missing or cannot be reached.
    """
    named = as_named(path, what)
    # "x/.." has no last name of its own that could be a link; all of it is parent.
    parent, name = (named, "") if named.name in ("", "..") else (named.parent, named.name)
    shown = shell(str(parent))
    try:
        resolved = os.path.realpath(parent, strict=True)
        if not Path(resolved).is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as error:
        what = f"{shown} cannot be reached ({error.strerror})."
        do = "Name a folder that this user can reach."
        if isinstance(error, FileNotFoundError):
            what, do = f"{shown} does not exist.", f"Run: mkdir -p -m 700 {shown}"
        raise StorageUnavailable(what, do) from error
    return str(Path(resolved, name))


def network_file_system(path: str) -> str | None:
    """Return the type of the file system that an absolute path is on, if machines share it.

    It is None on a local one. The type can be read on Linux alone: elsewhere it is None too.
    """
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", errors="surrogateescape")
    except OSError:
        return None
    device = (Path(path) if os.path.lexists(path) else Path(path).parent).lstat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        kind = source.split(" ")[0]
        if NETWORK.fullmatch(kind) and mount.split(" ")[2] == number:
            return kind
    return None


# --- who may write


def location_refusals(path: str) -> Iterator[StorageError]:
    """Yield each reason why this absolute path is no place for a folder of ours.

    A folder that does not exist yet is no reason: it can be made.
    """
    with suppress(FileNotFoundError):
        yield from files.folder_refusals(path, Path(path).lstat())
    for ancestor in Path(path).parents:
        yield from files.open_to_others(ancestor, groups=False)


def rollback_refusals(named: Path, resolved: str) -> Iterator[StorageError]:
    """Yield each reason why others could change an anchor, or put last night's copy in its place.

    Nothing stands behind an anchor: an older one is as genuine as the present one. So nobody else
    may own a folder above it, or a link on the way to it.

    Args:
        named: its folder as it was named, from the root on.
        resolved: what `absolute` made of that.
    """
    yield from location_refusals(resolved)
    for refusal in files.replaceable_refusals(str(named.parent)):
        yield UnsafeLocation(
            f"The anchor {shell(resolved)} could be replaced by an older copy. {refusal.what}",
            refusal.do,
            refusal.kind,
        )


# --- folders and files, open


def folder(path: str, name: str, dir_fd: int | None = None) -> files.opened:
    """Open a folder that only this user can write.

    Args:
        path: the whole path, for messages.
        name: what to open, seen from `dir_fd`.
        dir_fd: the folder around it, or None if `name` is absolute.

    Raises:
        UnsafeLocation: it is a link, not a folder, or others can write it.
        OSError: it cannot be opened.
    """
    return _checked(path, name, files.FOLDER, dir_fd, files.folder_refusals)


def same_folder(path: str, identity: tuple[int, int]) -> files.opened:
    """Open an absolute folder again, if it is still the one of that identity.

    Raises:
        UnsafeLocation: as `folder`, or somebody put another one in its place.
        OSError: it cannot be opened.
    """
    found = folder(path, path)
    if found.identity != identity:
        os.close(found.fd)
        raise UnsafeLocation(
            f"{shell(path)} is not the folder that this storage was opened on.",
            "Find out who replaced it, and construct the storage again if that is right:"
            f" ls -ld {shell(path)}",
            "replaced",
        )
    return found


def _checked(
    path: str,
    name: str,
    flags: int,
    dir_fd: int | None,
    refusals: Callable[[str, os.stat_result], Iterable[StorageError]],
) -> files.opened:
    try:
        found = files.opened(name, flags, dir_fd)
    except FileNotFoundError:
        raise
    except OSError:
        # The code depends on the system (a link: ELOOP, ENOTDIR, EMLINK). Look what it is.
        with suppress(FileNotFoundError):
            files.enforce(refusals(path, files.lstat(name, dir_fd)))
        raise
    # What counts is what was opened, not what the name meant a moment before or after.
    kind = stat.S_IFDIR if flags == files.FOLDER else stat.S_IFREG
    if found.info.st_mode & _KIND_AND_OTHERS != kind or found.info.st_uid != os.geteuid():
        for refusal in refusals(path, found.info):
            os.close(found.fd)
            raise refusal
    return found


def read(path: str, name: str, dir_fd: int, most: int, *, whole: bool = False) -> bytes:
    """Return the first so many bytes of a file that only this user can write, under one name.

    Args:
        path: the whole path, for messages.
        name: the file, seen from `dir_fd`.
        dir_fd: the folder.
        most: how many bytes to read, if it has as many.
        whole: refuse one that has more.

    Raises:
        LimitExceeded: it has more.
        UnsafeLocation: it is something else, or others can write it.
        OSError: it cannot be read; FileNotFoundError if there is none.
    """
    found = _checked(path, name, files.READ, dir_fd, files.record_refusals)
    with found as fd:
        if found.info.st_nlink > 1:
            temp = partial(files.lstat, files.TEMP, dir_fd)
            files.enforce(files.hard_link_refusals(path, lambda: os.fstat(fd), temp))
        size = min(found.info.st_size, most)
        if whole and size < found.info.st_size:
            raise LimitExceeded(
                f"{shell(path)} has {found.info.st_size} bytes or more, and the limit is {most}.",
                "Find out who wrote it; if it was you, pass the same Limits here as there.",
            )
        data = os.read(fd, size)
        while len(data) < size and (more := os.read(fd, size - len(data))):
            data += more
        return data


def exists(name: str, dir_fd: int) -> bool:
    """Tell whether a folder has something under a name, a link that leads nowhere included."""
    try:
        files.lstat(name, dir_fd)
    except FileNotFoundError:
        return False
    return True


# --- writing


def create_root(path: str) -> None:
    """Create an absolute folder if it is missing, and sync the name in its parent.

    Raises:
        StorageUnavailable: this user may not create it.
        OSError: another step failed. A folder that was made is removed again.
    """
    new = not os.path.lexists(path)
    try:
        if new:
            files.make_folder(path)
    except PermissionError as error:
        raise StorageUnavailable(
            f"This process may not create {shell(path)}.",
            f"Run: sudo install -d -m 700 -o {os.geteuid()} {shell(path)}",
        ) from error
    try:
        with files.opened(str(Path(path).parent), files.FOLDER) as parent:
            os.fsync(parent)
    except OSError:
        # An old folder's parent may be closed to us; whoever made the folder has synced it.
        if new:
            Path(path).rmdir()
            raise


# --- what the system says, in our words


@contextmanager
def translated(doing: str, path: str, gone: tuple[str, str] | None = None) -> Iterator[None]:
    """Turn what the system reports into the error tree.

    Args:
        doing: what failed, before a path: "save to", "read from", "open" or "prune".
        path: where, for the message.
        gone: what happened, and what to do, where there is nothing at the path any more.
    """
    try:
        yield
    except OSError as error:
        raise translate(error, doing, path, gone) from error


def translate(
    error: OSError, doing: str, path: str, gone: tuple[str, str] | None = None
) -> StorageError:
    """Return the error that says what the system's one means here, and what to do."""
    shown = shell(path)
    code = errno.errorcode.get(error.errno or 0, "unknown")
    lost = ", so nothing was saved" if doing == "save to" else ""
    if error.errno in FULL:
        return StorageFull(
            f"There is no room left for {shown} ({code}){lost}.",
            "Free some space, or raise the quota or the file size limit, and try again.",
        )
    what = f"The system could not {doing} {shown} ({code}){lost}."
    do = "Look at the system's log for the cause before you try again."
    if error.errno == errno.EROFS:
        what, do = f"{shown} is on a read-only file system{lost}.", "Mount it for writing."
    elif error.errno in (errno.EACCES, errno.EPERM):
        what, do = f"This process may not {doing} {shown}{lost}.", f"Run: chmod -R u+rwX {shown}"
    elif error.errno == errno.ENOENT:
        what, do = gone or (
            f"{shown} is gone{lost}.",
            "Put it back from a backup, or construct the storage again to begin an empty one.",
        )
    return StorageUnavailable(what, do)
