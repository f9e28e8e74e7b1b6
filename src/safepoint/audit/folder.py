"""The folder of a store: private, apart from its other parts, whole, only ever added to, owned.

What `FileCheckpointStorage` refuses is asked of the very functions that it asks. The rest are
things that it accepts and that you should know of.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise
from pathlib import Path
from typing import Final

from safepoint.audit.contents import KEY_FILE, File, look_into
from safepoint.audit.finding import (
    Finding,
    existing_folder,
    finding,
    guarded,
    listed,
    of_tenant,
    refused,
    unseen,
    worst_first,
)
from safepoint.core.errors import CheckpointError, Unavailable, shell
from safepoint.core.files import stranger_refusals
from safepoint.core.names import spelled
from safepoint.core.storage import MAX_SECONDS, is_thread
from safepoint.settings import is_beside
from safepoint.stores.checks import first_gone, gap
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
    translated,
)
from safepoint.stores.files import BASE, LEASE, RECORD_NAME, FileCheckpointStorage
from safepoint.stores.sqlite import SQLiteCheckpointStorage

_RECORD: Final = re.compile(r"([0-9]{10})\.checkpoint\Z")
_ON_ITS_WAY: Final = 600.0
# Clocks may differ, though not by more than this.
_LONGEST: Final = timedelta(seconds=MAX_SECONDS, hours=1)


def check_location(storage_path: str | os.PathLike[str]) -> list[Finding]:
    """Look at the folder of a file storage. Nothing is created, opened for writing or changed.

    ```python
    from pathlib import Path

    from safepoint.audit import check_location

    state = Path("state")
    state.mkdir()
    for mode in (0o777, 0o700):
        state.chmod(mode)
        print([each.id for each in check_location(state) if each.severity == "error"])
        #> ['SP04.writable']
        #> []
    ```

    Returns:
        What was found, the refusals of `FileCheckpointStorage` first; empty if all is well.

    Raises:
        Unavailable: there is nothing at that path, or it cannot be looked at.
        Unsafe: its parent is not a folder.
    """
    require_posix()
    path = absolute(storage_path)
    if not os.path.lexists(path):
        raise Unavailable(f"{shell(path)} does not exist.", f"Run: mkdir -m 700 {shell(path)}")
    with translated("look at", path):
        found = [*location(path, named=storage_path)]
        found += _threads(path) if stat.S_ISDIR(Path(path).lstat().st_mode) else ()
    return found


def location(path: str, *, named: str | os.PathLike[str] = "") -> Iterator[Finding]:
    """Yield what is wrong with an absolute folder as a place for state, whoever wrote that."""
    yield from (refused("SP04", each, path) for each in location_refusals(path))
    yield from surroundings(path, named=named)
    if (kind := network_file_system(path)) is not None:
        yield finding("SP01.network", path, kind=kind)


def surroundings(
    path: str, rule: str = "SP01", *, named: str | os.PathLike[str] = ""
) -> Iterator[Finding]:
    """Yield who can read a folder, what else happens where it lies, and who can replace it.

    Args:
        path: the folder, absolute.
        rule: under which to say so.
        named: what was named, before links were resolved: who owns one decides where it leads.
    """
    info = Path(path).lstat()
    if stat.S_ISDIR(info.st_mode) and info.st_mode & 0o055:
        yield finding(f"{rule}.readable", path, mode=stat.S_IMODE(info.st_mode))
    for folder in [each for each in temp_folders() if Path(path).is_relative_to(each)][:1]:
        yield finding(f"{rule}.temporary", path, folder=shell(folder))
    tree = _work_tree(path)
    if tree is not None:
        yield finding(f"{rule}.work-tree", path, tree=shell(tree))
    links = (each for each in Path(named or path).absolute().parents if each.is_symlink())
    for above in (*Path(path).parents, *links):
        info = above.lstat()
        for refusal in stranger_refusals(str(above), info):
            yield replace(refused(rule, refusal, str(above)), severity="warning")
        is_open = info.st_mode & stat.S_IWGRP and not info.st_mode & stat.S_ISVTX
        if is_open and not stat.S_ISLNK(info.st_mode):
            yield finding(
                f"{rule}.group", str(above), group=info.st_gid, mode=stat.S_IMODE(info.st_mode)
            )


def temp_folders() -> list[str]:
    """Return the folders that the system empties, without asking `tempfile`, which writes."""
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    return [os.path.realpath(folder) for folder in ("/tmp", "/var/tmp", *named) if folder]  # noqa: S108


def _work_tree(path: str) -> str | None:
    trees = (each for each in (Path(path), *Path(path).parents) if os.path.lexists(each / ".git"))
    return str(next(trees, "")) or None


def _threads(path: str) -> list[Finding]:
    """Look at who else could change or read the threads and their records."""
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError as error:
        return [unseen("SP04", path, error.strerror)]
    within = [f for name in names if _is_tenant(path, name) for f in _threads(f"{path}/{name}")]
    kept = [f"{path}/{name}" for name in names if is_thread(name.removeprefix("@"))]
    return worst_first(
        [*within, *(f for child in kept for f in guarded("SP04", child, _thread(child)))]
    )


def _is_tenant(path: str, name: str) -> bool:
    """Tell whether a tenant's threads are in a folder: it is named after the tenant, with an @."""
    is_named = name[:1] == "@" and is_thread(name[1:])
    return is_named and stat.S_ISDIR(Path(path, name).lstat().st_mode)


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


def around(file: str, named: str | os.PathLike[str]) -> Iterator[Finding]:
    """Yield who else could change or read a file of SQLite, what lies beside it, and its folder.

    Args:
        file: the file, absolute.
        named: what was named, before links were resolved.
    """
    folder = str(Path(file).parent)
    yield from (refused("SP04", refusal, folder) for refusal in location_refusals(folder))
    yield from surroundings(folder, named=named)
    for suffix in BESIDE:
        yield from guarded("SP04", file + suffix, record_file(Path(file + suffix), None))
        if suffix and os.path.lexists(file + suffix) and not is_beside(file + suffix):
            yield finding("SP13.stray", file + suffix)


def check_places(
    storage: str | os.PathLike[str] | None,
    *,
    keys: str | os.PathLike[str] | None = None,
    anchor: str | os.PathLike[str] | None = None,
    journal: str | os.PathLike[str] | None = None,
    journal_anchor: str | os.PathLike[str] | None = None,
) -> list[Finding]:
    """Look at the folders of a store: at each, and at how they lie to each other.

    Nothing is created, opened for writing or changed.

    ```python
    from pathlib import Path

    from safepoint.audit import check_places

    for name in ("state", "state/keys"):
        Path(name).mkdir(mode=0o700)
    for finding in check_places("state", keys="state/keys"):
        if finding.severity == "error":
            print(finding.what)
            #> The keys /home/you/state/keys and the storage /home/you/state are in one place.
    Path("state/keys").rename("keys")
    found = check_places("state", keys="keys")
    print([each.id for each in found if each.severity == "error"])
    #> []
    ```

    Args:
        storage: the folder of the storage; None if it is not on disk.
        keys: the folder of the key files.
        anchor: the folder of the anchor.
        journal: the folder of the journal.
        journal_anchor: the folder of the journal's own anchor.

    Returns:
        Under SP22, an error if one folder is inside another, for a folder that is missing, that
        others can write or replace, for a secret key that others can read, that is not with the
        keys, or that is in a git work tree; a warning for a folder that others can read, that is
        temporary, in a git work tree, in the current folder, or below somebody else's. Keys in
        the storage are for `check_keys`.

    Raises:
        Unavailable: the system is not POSIX.
    """
    require_posix()
    parts = ("storage", "keys", "anchor", "journal", "journal's anchor")
    places: dict[str, str] = {}
    findings: list[Finding] = []
    for part, path in zip(parts, (storage, keys, anchor, journal, journal_anchor), strict=True):
        try:
            places |= {} if path is None else {part: absolute(path, f"The folder of the {part}")}
        except Unavailable as refusal:
            findings.append(refused("SP22", refusal, str(path)))
    findings += guarded("SP22", next(iter(places.values()), ""), _together(places))
    for part, place in places.items():
        findings += guarded("SP22", place, _place(part, place))
    return findings


def _together(places: dict[str, str]) -> Iterator[Finding]:
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


def _place(part: str, path: str) -> Iterator[Finding]:
    if not os.path.lexists(path):
        yield finding("SP22.missing", path, part=part)
        return
    yield from (refused("SP22", each, path) for each in location_refusals(path))
    yield from surroundings(path, "SP22")
    current, home = Path.cwd(), os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111
    # Whoever is at home, or above it, has everything of theirs below the current folder.
    if Path(path).is_relative_to(current) and not Path(home).is_relative_to(current):
        yield finding("SP22.current-folder", path, current=shell(str(current)))
    if part != "storage" and stat.S_ISDIR(Path(path).lstat().st_mode):
        yield from look_into(path, "SP22", lambda file: key_file(part, file), most=128)


def key_file(part: str, file: File) -> Iterator[Finding]:
    """Look for a secret key where it does not belong, or where others could take it."""
    key, mode = KEY_FILE.match(file.data), stat.S_IMODE(os.lstat(file.path).st_mode)
    if key is None or key[1]:
        return  # it is none, or it is public
    if part != "keys":
        yield finding("SP22.key-astray", file.path, part=part)
    elif _work_tree(file.path) is not None:
        yield finding("SP22.key-work-tree", file.path)
    if mode & 0o077:
        yield finding("SP22.key-mode", file.path, mode=mode)


def check_append_only(path: str | os.PathLike[str]) -> list[Finding]:
    """Look for what an append-only folder cannot have: gaps, strange names, late changes.

    It goes by names and times. Whoever can write the folder can fake these; what proves that a
    record is the one that was saved is its seal, and `check_records` asks for that.

    ```python
    from pathlib import Path

    from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.audit import check_append_only

    storage, keys = FileCheckpointStorage("state"), Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="invoices", keys=keys)
    for amount in (1, 2, 3):
        ledger.save("order-7", {"amount": amount})
    print(check_append_only("state"))
    #> []
    Path("state/order-7/0000000002.checkpoint").unlink()
    for finding in check_append_only("state"):
        print(finding.rule, finding.severity, finding.what)
        #> SP13 error Thread 'order-7' has checkpoint 3 but not 2.
    ```

    Returns:
        Under SP13, an error for each thread with a gap; a warning for a name outside the layout,
        for records left below the base, for records that were written after later ones, which a
        restore does, too, and for what could not be looked at. Of a folder that no file storage
        wrote, one note. Who else could change a record is for `check_location`.

    Raises:
        Unavailable: there is no such folder.
    """
    root = existing_folder(path)
    found, strange, threads = list[Finding](), list[str](), list[str]()
    try:
        names = sorted(os.listdir(root))  # noqa: PTH208  names, as strings
        storage = FileCheckpointStorage(root, read_only=True)
    except OSError as error:
        return [unseen("SP13", root, error.strerror)]
    except CheckpointError as refusal:
        return [refused("SP13", refusal, root)]
    tenants = [name for name in names if _is_tenant(root, name)]
    for name in tenants:
        found += of_tenant(name[1:], check_append_only(f"{root}/{name}"))
    for name in (each for each in names if each not in tenants):
        is_folder = stat.S_ISDIR(Path(root, name).lstat().st_mode)
        (threads if is_folder and is_thread(name) else strange).append(name)
    kept = [RECORD_NAME.match(file) for each in threads for file in _names(Path(root, each))]
    links = [name for name in strange if Path(root, name).is_symlink() and is_thread(name)]
    if not (any(kept) or tenants or links):
        return [finding("SP13.foreign", root)] if names else []
    for name in threads:
        found += guarded("SP13", f"{root}/{name}", _added(storage, name))
    found += (unseen("SP13", f"{root}/{each}", "links are not followed") for each in links)
    found += (finding("SP13.stray", f"{root}/{each}") for each in strange if each not in links)
    return worst_first(found)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  names, as strings
    except OSError:
        return []  # which is said where it is looked at


def _added(storage: FileCheckpointStorage, thread: str) -> Iterator[Finding]:
    """Look at the files of a thread. A busy store changes meanwhile.

    The base is read after the folder was listed, because `prune` moves it before any record goes;
    and where a record seems to be missing the folder is listed once more, because one that was
    saved during the listing may not be on it.
    """
    folder = Path(storage.path, thread)
    for attempt in (1, 2):
        names = sorted(os.listdir(folder))  # noqa: PTH208  names, as strings
        try:
            base = storage.base(thread)
        except CheckpointError as refusal:
            yield refused("SP13", refusal, f"{folder}/{BASE}")
            return
        first = 1 if base is None else base[0]
        numbers = {int(match[1]): name for name in names if (match := _RECORD.match(name))}
        kept = [number for number in numbers if number >= first]
        holes = [before + 1 for before, after in pairwise([first - 1, *kept]) if after > before + 1]
        if attempt == 2 and holes:
            yield refused("SP13", gap(thread, holes[0], kept[-1]), str(folder))
        if not holes:
            break
    if base is not None and not kept:
        yield refused("SP13", first_gone(thread, first), str(folder))
    below = [name for number, name in numbers.items() if 0 < number < first]
    # A prune that is under way takes a moment.
    if below and time.time() - (folder / BASE).lstat().st_mtime > _ON_ITS_WAY:
        said = {"thread": thread, "first": first, "count": len(below)}
        yield finding("SP13.below-base", str(folder), severity="warning", **said)
    times = {number: (folder / numbers[number]).lstat().st_mtime_ns for number in kept}
    late = [f"#{one}" for one, other in pairwise(kept) if times[one] > times[other]]
    if late:
        yield finding("SP13.rewritten", str(folder), thread=thread, late=listed(late))
    for name in names:
        is_ours = _RECORD.match(name) and int(name[:10]) > 0
        is_temp = name == TEMP and stat.S_ISREG((folder / name).lstat().st_mode)
        if not (is_ours or is_temp or name in (BASE, LEASE)):
            yield finding("SP13.stray", f"{folder}/{name}")


def check_ownership(path: str | os.PathLike[str], now: datetime | None = None) -> list[Finding]:
    """Look for threads that no worker owns or ever owned, in a storage in files or in SQLite.

    ```python
    from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.audit import check_ownership

    storage, keys = FileCheckpointStorage("state"), Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="invoices", keys=keys)
    ledger.save("order-7", {"amount": 42})
    with ledger.own("order-8", "worker-1"):
        ledger.save("order-8", {"amount": 42})
    for finding in check_ownership("state"):
        print(finding.rule, finding.severity, finding.what)
        #> SP07 note No worker ever owned thread 'order-7', so any worker may write it.
    with ledger.own("order-7", "worker-1"):
        print(check_ownership("state"))
        #> []
    ```

    Args:
        path: the folder of a file storage, or the file of an SQLite storage.
        now: what to reckon from; the present if None.

    Returns:
        Under SP07, an error for a lease that does not say who owns its thread, or that ends later
        than any can; a warning for one that ended, and was never released; a note for a thread
        that was never owned.

    Raises:
        Unavailable: there is no such folder, and no such file.
    """
    in_file = os.path.isfile(path)  # noqa: PTH113  that of Path may raise
    root = absolute(path) if in_file else existing_folder(path)
    moment = datetime.now(UTC) if now is None else now
    try:
        with (
            closing(SQLiteCheckpointStorage(root, read_only=True))
            if in_file
            else nullcontext(FileCheckpointStorage(root, read_only=True)) as storage
        ):
            found: list[Finding] = []
            for tenant in ("", *storage.tenants()):
                scope = storage.tenant(tenant) if tenant else storage
                for name in scope.threads():
                    found += of_tenant(tenant, _lease(scope, name, moment))
            return worst_first(found)
    except CheckpointError as refusal:
        return [refused("SP07", refusal, root)]
    except OSError as error:
        return [unseen("SP07", root, error.strerror)]


def _lease(
    storage: FileCheckpointStorage | SQLiteCheckpointStorage, name: str, now: datetime
) -> Iterator[Finding]:
    where = str(storage.path / name) if isinstance(storage, FileCheckpointStorage) else name
    try:
        lease, token = storage.lease(name), storage.token(name)
    except CheckpointError as refusal:
        yield refused("SP07", refusal, where)
        return
    if lease is None:
        if not token:
            yield finding("SP07.never-owned", where, name=name)
        return
    until = {"name": name, "lease": lease, "expires": spelled(lease.expires)}
    if lease.expires - now > _LONGEST:
        yield finding("SP07.too-long", where, hours=MAX_SECONDS // 3600, **until)
    elif lease.expires <= now:
        yield finding("SP07.abandoned", where, **until)
