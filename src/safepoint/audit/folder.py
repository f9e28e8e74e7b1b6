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
from safepoint.audit.contents import KEY_FILE
from safepoint.audit.finding import (
    Closed,
    Finding,
    content,
    existing_folder,
    files,
    finding,
    guarded,
    listed,
    refused,
    unseen,
    worst_first,
)
from safepoint.errors import (
    CheckpointError,
    RecordMalformed,
    StorageError,
    StorageUnavailable,
    shell,
)
from safepoint.names import spelled
from safepoint.storage.base import MAX_SECONDS, MAX_TOKEN, beheaded, gap, is_thread, malformed_base
from safepoint.storage.file import BASE, LEASE, RECORD_NAME, FileCheckpointStorage
from safepoint.storage.sqlite import SQLiteCheckpointStorage

_RECORD: Final = re.compile(r"([0-9]{10})\.checkpoint\Z")
_FIRST: Final = re.compile(rb"([0-9]{10})\n")
_ON_ITS_WAY: Final = 600.0
_SLACK_NS: Final = 1_000_000_000
# Clocks may differ, though not by more than this.
_LONGEST: Final = timedelta(seconds=MAX_SECONDS, hours=1)


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
        found = [refused("SP04", each, path) for each in location_refusals(path)]
        found += surroundings(path)
        found += _way(path, os.fspath(storage_path))
        found += _threads(path) if stat.S_ISDIR(Path(path).lstat().st_mode) else ()
    return found


def surroundings(path: str, rule: str = "SP01") -> Iterator[Finding]:
    """Yield who can read a folder, what else happens where it lies, and who can replace it."""
    info = Path(path).lstat()
    if stat.S_ISDIR(info.st_mode) and info.st_mode & 0o055:
        yield finding(f"{rule}.readable", path, mode=stat.S_IMODE(info.st_mode))
    for folder in [each for each in temp_folders() if Path(path).is_relative_to(each)][:1]:
        yield finding(f"{rule}.temporary", path, folder=shell(folder))
    tree = _work_tree(path)
    if tree is not None:
        yield finding(f"{rule}.work-tree", path, tree=shell(tree))
    for above in Path(path).parents:
        info = above.lstat()
        for refusal in stranger_refusals(str(above), info):
            yield replace(refused(rule, refusal, str(above)), severity="warning")
        if info.st_mode & stat.S_IWGRP and not info.st_mode & stat.S_ISVTX:
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


def _way(path: str, named: str) -> Iterator[Finding]:
    """Look at the path as it was named: whoever owns a link in it decides where it leads."""
    for folder in (Path.cwd() / named).parents:
        info = folder.lstat()
        if stat.S_ISLNK(info.st_mode) and info.st_uid not in (0, os.geteuid()):
            yield finding("SP01.link", str(folder), user=info.st_uid)
    kind = network_file_system(path)
    if kind is not None:
        yield finding("SP01.network", path, kind=kind)


def _threads(path: str) -> list[Finding]:
    """Look at who else could change or read the threads and their records."""
    try:
        with os.scandir(path) as entries:
            children = sorted(entry.path for entry in entries if is_thread(entry.name))
    except OSError as error:
        return [unseen("SP04", path, error.strerror)]
    return worst_first(f for child in children for f in guarded("SP04", child, _thread(child)))


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


def check_places(
    storage: str | os.PathLike[str],
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
    ```

    Args:
        storage: the folder of the storage.
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
        StorageUnavailable: the system is not POSIX.
    """
    require_posix()
    parts = ("storage", "keys", "anchor", "journal", "journal's anchor")
    places: dict[str, str] = {}
    findings: list[Finding] = []
    for part, path in zip(parts, (storage, keys, anchor, journal, journal_anchor), strict=True):
        try:
            places |= {} if path is None else {part: absolute(path, f"The folder of the {part}")}
        except StorageError as refusal:
            findings.append(refused("SP22", refusal, str(path)))
    findings += guarded("SP22", os.fspath(storage), _together(places))
    for part, place in places.items():
        findings += guarded("SP22", place, _place(part, place))
    return findings


def _together(places: dict[str, str]) -> Iterator[Finding]:
    for (one, first), (other, second) in combinations(places.items(), 2):
        paths = Path(first).resolve(), Path(second).resolve()
        if _is_inside(*paths) or _is_inside(*reversed(paths)):
            yield finding("SP22.together", second, other=other, one=one, first=shell(first))


def _is_inside(path: Path, folder: Path) -> bool:
    """Tell whether one is inside the other, also where a mount gives a folder a second name."""
    return path.is_relative_to(folder) or any(
        above.exists() and folder.exists() and above.samefile(folder)
        for above in (path, *path.parents)
    )


def _place(part: str, path: str) -> Iterator[Finding]:
    current = Path.cwd()
    if not os.path.lexists(path):
        yield finding("SP22.missing", path, part=part)
        return
    yield from (refused("SP22", each, path) for each in location_refusals(path))
    yield from surroundings(path, "SP22")
    home = Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111  Path.home may raise
    # Whoever is at home, or above it, has everything of theirs below the current folder.
    if Path(path).is_relative_to(current) and not home.is_relative_to(current):
        yield finding("SP22.current-folder", path, current=shell(str(current)))
    if part != "storage" and stat.S_ISDIR(Path(path).lstat().st_mode):
        yield from _secrets(part, path)


def _secrets(part: str, path: str) -> Iterator[Finding]:
    """Look for secret keys where they do not belong, or where others could take them."""
    closed, committed = Closed(), part == "keys" and _work_tree(path) is not None
    for file in files(path, closed):
        try:
            begins = content(file, 128)
            mode = stat.S_IMODE(os.lstat(file).st_mode)
        except FileNotFoundError:
            continue  # gone by now
        except OSError as error:
            closed.add(file, error)
            continue
        key = KEY_FILE.match(b"" if begins is None else begins[0])
        if key is None or key[1]:
            continue  # it is none, or it is public
        if part != "keys":
            yield finding("SP22.key-astray", file, part=part)
        if mode & 0o077:
            yield finding("SP22.key-mode", file, mode=mode)
        if committed:
            yield finding("SP22.key-work-tree", file)
    yield from closed.findings("SP22")


class Thread:
    """The files of one thread, as a listing of its folder shows them, whatever lies there.

    A busy store changes meanwhile. The base is read after the folder was listed, because `prune`
    moves it before any record goes; and where a record seems to be missing the folder is listed
    once more, because one that was saved during the listing may not be on it.

    Attributes:
        name: the thread.
        path: its folder.
        records: what `lstat` says of the file of each record, by its sequence.
        strange: the names that this storage never gives.
        first: where the thread begins by what `prune` left, or 0.
        pruned: when that was written, in seconds since 1970.
        malformed: what is wrong with what `prune` left, or None.
    """

    def __init__(self, path: str) -> None:
        self.name, self.path = Path(path).name, path
        self._list()
        if self.missing:
            self._list()

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The first and the last of each row of sequences that are not there."""
        kept = [number for number in sorted(self.records) if number >= self.first]
        rows = pairwise([max(self.first, 1) - 1, *kept])
        return [(before + 1, after - 1) for before, after in rows if after > before + 1]

    def _list(self) -> None:
        self.records: dict[int, os.stat_result] = {}
        self.strange: list[str] = []
        self.malformed: RecordMalformed | None = None
        self.first, self.pruned = 0, 0.0
        for name in sorted(os.listdir(self.path)):  # noqa: PTH208  names, as strings
            match = _RECORD.match(name)
            try:
                info = Path(self.path, name).lstat()
            except FileNotFoundError:
                continue  # it was pruned, or published, a moment ago
            is_temp = name == TEMP and stat.S_ISREG(info.st_mode)
            if match is not None and int(match[1]):
                self.records[int(match[1])] = info
            elif not is_temp and name not in (BASE, LEASE):
                self.strange.append(f"{self.path}/{name}")
        base = f"{self.path}/{BASE}"
        if os.path.lexists(base):
            found = content(base, 11)
            line = _FIRST.match(found[0]) if found is not None else None
            self.first = int(line[1]) if line is not None else 0
            self.malformed = None if self.first else malformed_base(base)
            self.pruned = Path(base).lstat().st_mtime


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
    Path("state/order-7/0000000002.checkpoint").unlink()
    for finding in check_append_only("state"):
        print(finding.rule, finding.severity, finding.what)
        #> SP13 error Thread 'order-7' has checkpoint 3 but not 2.
    ```

    Returns:
        Under SP13, an error for each thread with a gap; a warning for a name outside the layout,
        for records left below the base, for records that were written after later ones, which a
        restore does, too, and for what could not be looked at; a note for what a crash left behind.
        Of a folder that no file storage wrote, one note. Who else could change a record is for
        `check_location`.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    root = existing_folder(path)
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.path for entry in entries)
    except OSError as error:
        return [unseen("SP13", root, error.strerror)]
    threads, closed, strange = list[Thread](), list[Finding](), list[str]()
    for child in names:
        try:
            if is_thread(Path(child).name) and stat.S_ISDIR(Path(child).lstat().st_mode):
                threads.append(Thread(child))
            else:
                strange.append(child)
        except OSError as error:
            closed.append(unseen("SP13", child, error.strerror))
    if not any(thread.records for thread in threads):
        return [*closed, finding("SP13.foreign", root)] if names else []
    found = [f for each in threads for f in guarded("SP13", each.path, _added(each))]
    strange += [name for each in threads for name in each.strange]
    return worst_first([*found, *(finding("SP13.stray", file) for file in strange), *closed])


def _added(thread: Thread) -> Iterator[Finding]:
    last = max(thread.records, default=0)
    if thread.malformed is not None:
        yield refused("SP13", thread.malformed, f"{thread.path}/base")
    elif thread.missing:
        rows = [f"{a}" if a == b else f"{a} to {b}" for a, b in thread.missing]
        refusal = gap(thread.name, thread.missing[0][0], last)
        what = f"Thread '{thread.name}' has checkpoint {last} but not {listed(rows)}."
        yield replace(refused("SP13", refusal, thread.path), what=what)
    if thread.first and last < thread.first:
        yield refused("SP13", beheaded(thread.name, thread.first), thread.path)
    below = [number for number in thread.records if number < thread.first]
    if below and time.time() - thread.pruned > _ON_ITS_WAY:
        left = f"{len(below)} record{'s' * (len(below) > 1)}"
        yield finding("SP13.below-base", thread.path, thread=thread, left=left)
    written, touched = list[int](), list[int]()
    kept = [each for each in sorted(thread.records.items()) if each[0] >= thread.first]
    for (number, before), (_, after) in pairwise(kept):
        if before.st_mtime_ns > after.st_mtime_ns:
            written.append(number)
        elif before.st_ctime_ns > after.st_ctime_ns + _SLACK_NS:
            touched.append(number)
    for numbers, kind in ((written, "SP13.rewritten"), (touched, "SP13.touched")):
        if numbers:
            late = listed([f"#{number}" for number in numbers])
            yield finding(kind, thread.path, thread=thread, late=late)
    temp = f"{thread.path}/{TEMP}"
    is_left = os.path.lexists(temp) and temp not in thread.strange
    if is_left and time.time() - os.lstat(temp).st_mtime > _ON_ITS_WAY:
        yield finding("SP13.temp", temp)


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
    ```

    Args:
        path: the folder of a file storage, or the file of an SQLite storage.
        now: what to reckon from; the present if None.

    Returns:
        Under SP07, an error for a lease that does not say who owns its thread, that ends later
        than any can, or that is the last there can be; a warning for one that ended, and was never
        released; a note for a thread that was never owned.

    Raises:
        StorageUnavailable: there is no such folder, and no such file.
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
            return worst_first(
                f for name in storage.threads() for f in _lease(storage, name, moment)
            )
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
    if token >= MAX_TOKEN:
        yield finding("SP07.last-token", where, name=name)
    if lease is None:
        if not token:
            yield finding("SP07.never-owned", where, name=name)
        return
    until = {"name": name, "lease": lease, "expires": spelled(lease.expires)}
    if lease.expires - now > _LONGEST:
        yield finding("SP07.too-long", where, hours=MAX_SECONDS // 3600, **until)
    elif lease.expires <= now:
        yield finding("SP07.abandoned", where, **until)
