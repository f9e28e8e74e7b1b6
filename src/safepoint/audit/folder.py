"""Where the parts of a store lie: private, apart, without keys; and who owns its threads.

What the storages refuse is asked of the very functions that they ask. The rest are things that
they accept and that you should know of.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Final

from safepoint.audit.contents import KEY_FILE, has_pickle
from safepoint.audit.finding import (
    Finding,
    content,
    finding,
    guarded,
    of_tenant,
    refused,
    unseen,
    worst_first,
)
from safepoint.core.errors import CheckpointError, LimitExceeded, NotFound, Unavailable, shell
from safepoint.core.files import stranger_refusals
from safepoint.core.names import stamp
from safepoint.core.storage import MAX_SECONDS, is_thread
from safepoint.models import inspect
from safepoint.models.look import SEALED
from safepoint.places import is_beside, is_database
from safepoint.stores.database import BESIDE
from safepoint.stores.disk import (
    TEMP,
    absolute,
    folder_refusals,
    hard_link_refusals,
    location_refusals,
    network_file_system,
    record_refusals,
    require_posix,
)
from safepoint.stores.files import RECORD_NAME, FileCheckpointStorage
from safepoint.stores.sqlite import SQLiteCheckpointStorage

# Clocks may differ, though not by more than this.
_LONGEST: Final = timedelta(seconds=MAX_SECONDS, hours=1)


def check_places(parts: Mapping[str, str], keys: Iterable[str] = ()) -> Iterator[Finding]:
    """Look at where each part of a store lies, and how they lie to each other.

    Args:
        parts: the path of each by its name.
        keys: the files of its keys, absolute.
    """
    require_posix()
    places: dict[str, str] = {}
    for key in keys:
        folder = str(Path(key).parent)
        yield from (refused("SP22", each, folder) for each in location_refusals(folder))
        yield from guarded("SP22", key, key_file(key))
    for part, named in parts.items():
        try:
            path = absolute(named)
        except CheckpointError as refusal:
            yield refused("SP22", refusal, named)
            continue
        is_file = is_database(path)
        places[part] = str(Path(path).parent) if is_file else path
        yield from guarded("SP04", path, around(named) if is_file else location(named))
        if part in ("storage", "answers"):
            yield from _threads(path)
        yield from guarded("SP08", path, _keys_in(part, places[part], path if is_file else ""))
    for (one, first), (other, second) in combinations(places.items(), 2):
        paths = Path(os.path.realpath(first)), Path(os.path.realpath(second))
        if _is_inside(*paths) or _is_inside(*reversed(paths)):
            yield finding("SP22.together", second, other=other, one=one, first=shell(first))


def _is_inside(path: Path, folder: Path) -> bool:
    """Tell whether one is inside the other, also where a mount gives a folder a second name."""
    return path.is_relative_to(folder) or any(
        os.path.exists(above) and os.path.exists(folder) and above.samefile(folder)  # noqa: PTH110
        for above in (path, *path.parents)
    )


def location(named: str | os.PathLike[str]) -> Iterator[Finding]:
    """Yield what is wrong with a folder as a place for state, whoever wrote that."""
    path = absolute(named)
    yield from (refused("SP04", each, path) for each in location_refusals(path))
    info = Path(path).lstat()
    if stat.S_ISDIR(info.st_mode) and info.st_mode & 0o055:
        yield finding("SP01.readable", path, mode=stat.S_IMODE(info.st_mode))
    for folder in [each for each in temp_folders() if Path(path).is_relative_to(each)][:1]:
        yield finding("SP01.temporary", path, folder=shell(folder))
    tree = work_tree(path)
    if tree is not None:
        yield finding("SP01.work-tree", path, tree=shell(tree))
    # Whoever owns a link decides where it leads.
    links = (each for each in Path(named).absolute().parents if each.is_symlink())
    for above in (*Path(path).parents, *links):
        info = above.lstat()
        for refusal in stranger_refusals(str(above), info):
            yield replace(refused("SP01", refusal, str(above)), severity="warning")
        is_open = info.st_mode & stat.S_IWGRP and not info.st_mode & stat.S_ISVTX
        if is_open and not stat.S_ISLNK(info.st_mode):
            mode = stat.S_IMODE(info.st_mode)
            yield finding("SP01.group", str(above), group=info.st_gid, mode=mode)
    if (kind := network_file_system(path)) is not None:
        yield finding("SP01.network", path, kind=kind)


def temp_folders() -> list[str]:
    """Return the folders that the system empties, without asking `tempfile`, which writes."""
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    return [os.path.realpath(folder) for folder in ("/tmp", "/var/tmp", *named) if folder]  # noqa: S108


def work_tree(path: str) -> str | None:
    """Return the git work tree that a path is in, if it is in one."""
    trees = (each for each in (Path(path), *Path(path).parents) if os.path.lexists(each / ".git"))
    return str(next(trees, "")) or None


def _threads(path: str) -> list[Finding]:
    """Look at who else could change or read the threads in a folder, and their records."""
    if os.path.islink(path) or not os.path.isdir(path):  # noqa: PTH112, PTH114
        return []
    try:
        names = sorted(os.listdir(path))  # noqa: PTH208  names, as strings
    except OSError as error:
        return [unseen("SP04", path, error.strerror)]
    tenants = [name for name in names if name[:1] == "@" and is_thread(name[1:])]
    within = [f for name in tenants for f in _threads(f"{path}/{name}")]
    kept = [f"{path}/{name}" for name in names if is_thread(name.removeprefix("@"))]
    return worst_first(
        [*within, *(f for child in kept for f in guarded("SP04", child, _thread(child)))]
    )


def _thread(child: str) -> Iterator[Finding]:
    folder = Path(child)
    yield from (refused("SP04", each, child) for each in folder_refusals(child, folder.lstat()))
    if stat.S_ISDIR(folder.lstat().st_mode):
        for record in folder.iterdir():
            if RECORD_NAME.match(record.name):
                found = record_file(record, record.with_name(TEMP).lstat)
                yield from guarded("SP04", str(record), found)


def record_file(file: Path, temp: Callable[[], os.stat_result] | None) -> Iterator[Finding]:
    """Yield who else could change or read a file of a storage.

    Args:
        file: the file.
        temp: how to look at what is published by a link to it, if anything is.
    """
    path, info = str(file), file.lstat()
    refusals = [*record_refusals(path, info)] or [*hard_link_refusals(path, file.lstat, temp)]
    yield from (refused("SP04", refusal, path) for refusal in refusals)
    if not refusals and info.st_mode & 0o077:
        yield finding("SP04.mode", path, mode=stat.S_IMODE(info.st_mode))


def around(named: str | os.PathLike[str]) -> Iterator[Finding]:
    """Yield who else could change or read a file of SQLite, what is next to it, and its folder."""
    yield from location(Path(named).absolute().parent)
    for file in (absolute(named) + suffix for suffix in BESIDE):
        yield from guarded("SP04", file, record_file(Path(file), None))
        if file != absolute(named) and os.path.lexists(file) and not is_beside(file):
            yield finding("SP13.stray", file)


def _keys_in(part: str, folder: str, database: str) -> Iterator[Finding]:
    """Look for keys next to a part. SQLite loses its locks if somebody else opens its files."""
    if part == "storage" and not database:
        return  # all of whose files are looked at
    with os.scandir(folder) as entries:
        names = sorted(each.path for each in entries)
    for name in names:
        begins = None if name in [database + suffix for suffix in BESIDE] else content(name, 128)
        key = KEY_FILE.match(begins[0]) if begins else None
        if key is not None:
            yield finding("SP08.public-inside" if key[1] else "SP08.inside", name, part=part)


def key_file(file: str) -> Iterator[Finding]:
    """Look at who could take a secret key."""
    begins = content(file, 128)
    key = KEY_FILE.match(begins[0]) if begins else None
    if key is None or key[1]:
        return  # it is none, or it is public
    if work_tree(file) is not None:
        yield finding("SP22.key-work-tree", file)
    mode = stat.S_IMODE(os.lstat(file).st_mode)
    if mode & 0o077:
        yield finding("SP22.key-mode", file, mode=mode)


def check_database(path: str) -> list[Finding]:
    """Ask SQLite whether the file of a storage is whole, and look at the bytes of each record."""
    try:
        with SQLiteCheckpointStorage(path, read_only=True) as storage:
            [(state,)] = storage.select("PRAGMA integrity_check(1)")
            return [*_unsealed(storage)] if state == "ok" else [finding("SP13.damaged", path)]
    except Unavailable as refusal:
        return [refused("SP13", refusal, path)]


def _unsealed(storage: SQLiteCheckpointStorage) -> Iterator[Finding]:
    """Find what is in the place of a record and nobody sealed."""
    there = "SELECT sequence FROM checkpoints WHERE tenant = ? AND thread = ? ORDER BY sequence"
    for tenant in ("", *storage.tenants()):
        scope = storage.tenant(tenant) if tenant else storage
        for thread in scope.threads():
            for (sequence,) in scope.select(there, tenant, thread):
                yield from of_tenant(tenant, _record(scope, thread, sequence))


def _record(storage: SQLiteCheckpointStorage, thread: str, sequence: int) -> Iterator[Finding]:
    try:
        record = storage.read(thread, sequence)
    except NotFound:
        return  # it was pruned
    except CheckpointError as refusal:
        yield refused("SP11" if isinstance(refusal, LimitExceeded) else "SP10", refusal, thread)
        return
    if not SEALED.match(record):
        kind = "SP03.record" if has_pickle(inspect(record)) else "SP10.record"
        yield finding(kind, thread, sequence=sequence)


def check_ownership(
    storage: FileCheckpointStorage | SQLiteCheckpointStorage, now: datetime | None = None
) -> Iterator[Finding]:
    """Look for threads whose worker did not give them back."""
    moment = datetime.now(UTC) if now is None else now
    for tenant in ("", *storage.tenants()):
        scope = storage.tenant(tenant) if tenant else storage
        for name in scope.threads():
            yield from of_tenant(tenant, _lease(scope, name, moment))


def _lease(
    storage: FileCheckpointStorage | SQLiteCheckpointStorage, name: str, now: datetime
) -> Iterator[Finding]:
    where = str(storage.path / name) if isinstance(storage, FileCheckpointStorage) else name
    try:
        lease = storage.lease(name)
    except CheckpointError as refusal:
        yield refused("SP07", refusal, where)
        return
    if lease is None:
        return
    until = {"name": name, "lease": lease, "expires": stamp(lease.expires)}
    if lease.expires - now > _LONGEST:
        yield finding("SP07.too-long", where, hours=MAX_SECONDS // 3600, **until)
    elif lease.expires <= now:
        yield finding("SP07.abandoned", where, **until)
