"""Anchors: the head of each thread, kept out of reach of whoever writes the storage."""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from safepoint.core.errors import (
    AnchorMismatch,
    AnchorUnavailable,
    ConfigurationError,
    Forked,
    InvalidId,
    StorageFull,
    StorageUnavailable,
    UnsafeLocation,
    shell,
)
from safepoint.core.names import Head, check_name
from safepoint.core.storage import Tenants, is_thread
from safepoint.stores import disk
from safepoint.stores.connections import Database, Schema, place_of

_T = TypeVar("_T")
_FORMAT = "safepoint-anchor/1"
_LIMIT = 512
_GONE = (
    "Mount it again or put it back from a copy: until then no rollback would be noticed, so nothing"
    " is loaded."
)
_MARK, _LOCK, _HEAD = "store", ".lock", ".head"


class Anchor(Protocol):
    """Remembers how far each thread had come, where the storage's writer cannot write.

    A signed chain shows an edit. It does not show that its end was cut off, that a thread is gone,
    or that last week's copy was restored: what is left is genuine. The anchor shows these.

    Write your own in ten lines, for a database, a bucket or a service that you have:

    ```python
    from safepoint.core.names import Head
    from safepoint.core.anchor import is_further


    class DictAnchor:
        def __init__(self):
            self._heads = {}
        def read(self, store, thread):
            return self._heads.get((store, thread))
        def advance(self, store, thread, head):
            if is_further(thread, self.read(store, thread), head):
                self._heads[store, thread] = head
        def threads(self, store):
            return [thread for owner, thread in self._heads if owner == store]


    anchor = DictAnchor()
    anchor.advance("invoices", "order-7", Head(2, "sha256:" + "b" * 64))
    anchor.advance("invoices", "order-7", Head(1, "sha256:" + "a" * 64))  # older: ignored
    print(anchor.read("invoices", "order-7"))
    #> #2
    ```

    What yours must guarantee, and what this dict does not:

    - **Monotonic**: a head never moves back, whoever calls and in whichever order.
    - **Atomic**: the comparison and the write are one step for all processes that share it (a
      lock, a transaction, a compare-and-set), and a reader sees the old head or the new one.
    - **Durable**: when `advance` returns, the head survives a crash of the machine.
    - **Out of reach**: it is written under a credential that the storage's other writers do not
      have. An anchor that they can write protects from nothing.
    - **Never silent**: if it cannot be asked, it raises `AnchorUnavailable`. None means that the
      thread was never seen, and nothing else.

    Ours are a `TenantAnchor` and a `RewindingAnchor`, too.
    """

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
        """

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`. One that is older than what is known, or the same, is ignored.

        Raises:
            Forked: another record is known at that sequence. The anchor stays as it is.
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be written. It holds the head it had, or this one.
        """

    def threads(self, store: str) -> Iterable[str]:
        """Return the name of each thread of the store that was ever seen.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
        """


@runtime_checkable
class TenantAnchor(Protocol):
    """An anchor that keeps the threads of each tenant apart, as its storage must."""

    def tenant(self, name: str) -> Any:
        """Return the same anchor for the threads of one tenant."""

    def tenants(self, store: str) -> Iterable[str]:
        """Return the name of each tenant of whom a thread was ever seen."""


@runtime_checkable
class RewindingAnchor(Protocol):
    """An anchor that an operator can set back, with `Ledger.accept_loss`."""

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head to what is said, further back or forgotten (None), durably."""


def is_further(thread: str, known: Head | None, head: Head) -> bool:
    """Tell whether an anchor that knows `known` has to move to `head`.

    Args:
        thread: the thread, for the message.
        known: what the anchor holds.
        head: what it is asked to hold.

    Raises:
        Forked: both have the same sequence, and they are not the same record.
        ConfigurationError: `head` is not a head.
    """
    checked(head)
    if known is None or head.sequence > known.sequence:
        return True
    if head.sequence == known.sequence and head.digest != known.digest:
        raise Forked(
            f"{thread} {head} is not the record that the anchor has seen there.",
            "Two copies of the store are in use, or one was rewritten. The anchor was not moved:"
            " find out which copy is the right one before you save again.",
        )
    return False


def checked(head: object) -> Head:
    """Return `head` if it is one.

    Raises:
        ConfigurationError: it is something else.
    """
    if not isinstance(head, Head):
        raise ConfigurationError(
            f"A head was asked for, and {type(head).__name__} was given.",
            "Pass safepoint.core.names.Head(sequence, digest).",
        )
    return head


class _Heads(Tenants, ABC):
    """What each anchor does, with whatever it holds while it is asked."""

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read, or is damaged.
            UnsafeLocation: others could change what is stored there.
        """
        place = check_name("store", store), check_name("thread", thread)
        return self._hold(store, lambda held: self._head(held, *place))

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`, on disk when this returns. An older one, or the same, is ignored.

        Raises:
            Forked: another record is known at that sequence. The anchor stays as it is.
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor is gone, closed, full or held, or the disk fails. It holds
                the head it had, or this one.
            UnsafeLocation: others could change what is stored there.
        """
        place = check_name("store", store), check_name("thread", thread)
        checked(head)

        def move(held: Any) -> None:
            known = self._head(held, *place)
            # The same is written again: who wrote it may have died before the sync.
            if is_further(thread, known, head) or head == known:
                self._put(held, *place, head)

        self._hold(store, move, write=True)

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
            UnsafeLocation: others could change what is stored there.
        """
        check_name("store", store)
        return self._hold(store, lambda held: sorted(self._threads(held, store)))

    def tenants(self, store: str) -> list[str]:
        """Return the name of each tenant of whom a thread was ever seen, sorted.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
            UnsafeLocation: others could change what is stored there.
        """
        check_name("store", store)
        return self._hold(store, lambda held: self._tenants_in(self._tenants(held, store)))

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head to what you say, further back or forgotten (None), on disk at return.

        It is for an operator who accepts a loss, or who replaces what is damaged. What lay behind
        `head` is given up: from now on nothing tells a rollback to it from the truth.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor is gone, closed, full or held, or the disk fails.
            UnsafeLocation: others could change what is stored there.
        """
        place = check_name("store", store), check_name("thread", thread)
        to = None if head is None else checked(head)
        self._hold(store, lambda held: self._put(held, *place, to), write=True)

    @abstractmethod
    def _hold(self, store: str, act: Callable[[Any], _T], *, write: bool = False) -> _T:
        """Return what `act` makes of the anchor of this store, held alone in order to write."""

    @abstractmethod
    def _head(self, held: Any, store: str, thread: str) -> Head | None: ...

    @abstractmethod
    def _put(self, held: Any, store: str, thread: str, head: Head | None) -> None: ...

    @abstractmethod
    def _threads(self, held: Any, store: str) -> Iterable[str]: ...

    @abstractmethod
    def _tenants(self, held: Any, store: str) -> Iterable[str]: ...


class InMemoryAnchor(_Heads):
    """Keeps the heads in this process until it ends, of any number of stores.

    It notices what is done to a storage while the process runs, and forgets with it: after a
    restart nothing is anchored. Several threads of one process may share it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._heads: dict[tuple[str, str, str], Head] = {}

    def __repr__(self) -> str:
        return f"InMemoryAnchor(<{len(self._heads)} threads>)"

    def _hold(self, store: str, act: Callable[[Any], _T], *, write: bool = False) -> _T:
        with self._lock:
            return act(None)

    def _head(self, held: None, store: str, thread: str) -> Head | None:
        return self._heads.get((store, self._tenant, thread))

    def _put(self, held: None, store: str, thread: str, head: Head | None) -> None:
        if head is None:
            self._heads.pop((store, self._tenant, thread), None)
        else:
            self._heads[store, self._tenant, thread] = head

    def _threads(self, held: None, store: str) -> Iterable[str]:
        return (thread for *of, thread in self._heads if of == [store, self._tenant])

    def _tenants(self, held: None, store: str) -> Iterable[str]:
        return [tenant for of, tenant, _ in self._heads if of == store]


class FileAnchor(_Heads):
    """Keeps the head of each thread in a file, for one store, in a folder that you name.

    ```python
    from safepoint import FileAnchor
    from safepoint.core.names import Head

    anchor = FileAnchor("anchor", create=True)
    anchor.advance("invoices", "order-7", Head(57, "sha256:" + "0" * 64))
    print((anchor.path / "order-7.head").read_text()[:40])
    #> safepoint-anchor/1 invoices order-7 57 s
    ```

    The folder holds a file `store` with the name of the store, one file such as `order-7.head` for
    each thread (`@acme.order-7.head` if it is a tenant's), with one line, `.lock`, which is held by
    whoever writes, and `.next` while a file is on its way in.

    A line names all that it is about, so that a file under another's name is seen. Last in it is
    since when the head is known.

    Choose a folder that whoever can write the storage cannot write: another volume, not shared
    and not restored together with the storage. That is all its protection: whoever can write
    here can delete a thread's file, and the thread then counts as never seen. A process of your
    own user, or root, can do that; if you fear those, keep the heads under another credential
    with an `Anchor` of your own.

    The folder has the rules of the file storage: yours, not writable by others, no links. Those
    above it, and the links on the way, must be yours or root's, and writable by no other group.
    Any number of processes may share it; those that write take turns. No file stays open between
    calls. Reading needs no right to write, so a frozen copy of the folder is an anchor too.

    Args:
        path: the folder.
        create: begin a new anchor if the folder is missing or empty. Pass it once, when you set
            the store up: a wrong path, or a volume that is not mounted, is then refused ever
            after instead of counting as an anchor that has seen nothing.

    Raises:
        AnchorUnavailable: there is no anchor at that path, or it cannot be made or opened.
        UnsafeLocation: others could change what is stored there. The message says what to run.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        with disk.translated("open the anchor in", str(path), AnchorUnavailable):
            disk.require_posix("FileAnchor")
            self._path = disk.absolute(path, "The path of the anchor")
            named = disk.as_named(path, "The path of the anchor")
            disk.enforce(disk.rollback_refusals(named, self._path))
            self._gone = f"{shell(self._path)} is gone, and with it the anchor.", _GONE
            if create:
                disk.create_root(self._path)
            _check_exists(self._path)
            found = disk.folder(self._path, self._path)
            with found as root:
                self._identity = found.identity
                if create and self._read(root, _MARK) is None:
                    self._begin(root)
                self._owner(root)

    def __repr__(self) -> str:
        return f"FileAnchor({self._path!r})"

    @property
    def path(self) -> Path:
        """The folder, absolute."""
        return Path(self._path)

    def _hold(self, store: str, act: Callable[[Any], _T], *, write: bool = False) -> _T:
        doing = "write the anchor in" if write else "read the anchor in"
        with (
            disk.translated(doing, self._path, AnchorUnavailable, self._gone),
            disk.same_folder(self._path, self._identity, "anchor") as root,
            self._locked(root) if write else nullcontext(),
        ):
            owner = self._owner(root, store)
            if owner not in (None, store):
                raise _of_another_store(self._path, str(owner), store)
            if write and owner is None:
                # On disk before any head is: a crash leaves no head in an anchor of no store.
                disk.put(self._at(_MARK), root, _mark_of(store), over=True)
            return act(root)

    @contextmanager
    def _locked(self, root: int) -> Iterator[None]:
        # Not the folder: whoever can open that for reading can lock it, and stop every writer.
        with disk.opened(_LOCK, disk.READ | os.O_RDWR | os.O_CREAT, root) as fd:
            os.fchmod(fd, 0o600)  # whatever the umask
            with disk.locked(fd, self._at(_LOCK)):
                yield

    def _begin(self, root: int) -> None:
        # The mark is read after that: another process may be faster, and puts it before any head.
        strange = set(os.listdir(root)) - {_LOCK, disk.TEMP}
        if strange and self._read(root, _MARK) is None:
            raise AnchorUnavailable(
                f"{shell(self._path)} holds files but no anchor, so none is begun there.",
                "Name a folder that is empty or does not exist. If it did hold an anchor, put"
                f" its file {_MARK!r} back from a copy.",
            )
        with self._locked(root):
            if self._read(root, _MARK) is None:
                disk.put(self._at(_MARK), root, _mark_of(None))

    def _owner(self, root: int, store: str | None = None) -> str | None:
        """Return the store that this is the anchor of, or None if it is of none yet."""
        text = self._read(root, _MARK)
        if text is None:
            raise AnchorUnavailable(
                f"{shell(self._path)} holds no anchor: its file {_MARK!r} is missing.",
                "Correct the path, mount the volume, or put the file back from a copy. To begin a"
                " new anchor, in an empty folder, pass create=True once.",
            )
        if store is not None and text == _mark_of(store):
            return store
        owner = text.decode("ascii", "replace").removeprefix(_FORMAT).strip() or None
        if text != _mark_of(owner) or not (owner is None or is_thread(owner)):
            raise _unreadable(self._at(_MARK), "the name of a store")
        return owner

    def _head(self, held: int, store: str, thread: str) -> Head | None:
        name = f"{self._before}{thread}"
        text = self._read(held, f"{name}{_HEAD}")
        if text is None:
            return None
        with suppress(ValueError, InvalidId):
            *_, sequence, digest = text.decode("ascii").split()
            head = Head(int(sequence), digest)
            if text == _line_of(store, name, head):
                return head
        said = f"the head of thread {thread} of store {store}"
        raise _unreadable(self._at(f"{name}{_HEAD}"), said)

    def _put(self, held: int, store: str, thread: str, head: Head | None) -> None:
        name = f"{self._before}{thread}{_HEAD}"
        if head is not None:
            line = _line_of(store, name.removesuffix(_HEAD), head)
            disk.put(self._at(name), held, line, over=True)
            return
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=held)
        os.fsync(held)

    def _threads(self, held: int, store: str) -> Iterable[str]:
        begin, end = self._before, _HEAD
        names = [each for each in os.listdir(held) if each.startswith(begin) and each.endswith(end)]
        return filter(is_thread, (each[len(begin) : -len(end)] for each in names))

    def _tenants(self, held: int, store: str) -> Iterable[str]:
        names = [each for each in os.listdir(held) if each.startswith("@") and each.endswith(_HEAD)]
        return [each[1:].partition(".")[0] for each in names]

    def _read(self, root: int, name: str) -> bytes | None:
        try:
            with suppress(FileNotFoundError):
                return disk.read(self._at(name), name, root, _LIMIT + 1)
        except UnsafeLocation as refusal:
            # No seal stands behind this file as one does behind a record: a `chmod` is no cure.
            raise UnsafeLocation(
                refusal.what,
                "What it says may be somebody else's. Put the file back from a copy of the anchor,"
                f" as a file of user {os.geteuid()} with mode 600.",
            ) from None
        return None

    @property
    def _before(self) -> str:
        """With what the name of a thread's file begins: a thread's own begins otherwise."""
        return self._tenant and f"@{self._tenant}."

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"


def _check_exists(path: str) -> None:
    if not os.path.lexists(path):
        raise AnchorUnavailable(
            f"{shell(path)} does not exist, so no rollback would be noticed.",
            "Correct the path, or mount the volume. To begin a new anchor there, pass create=True"
            " once.",
        )


def _mark_of(store: str | None) -> bytes:
    return f"{_FORMAT} {store}\n".encode() if store else f"{_FORMAT}\n".encode()


def _line_of(store: str, name: str, head: Head) -> bytes:
    return f"{_FORMAT} {store} {name} {head.sequence} {head.digest}\n".encode()


def _of_another_store(path: str, owner: str, store: str) -> AnchorMismatch:
    return AnchorMismatch(
        f"{shell(path)} belongs to store {owner}, and was asked about store {store}.",
        "Give each store an anchor of its own, in a folder of its own.",
    )


def _unreadable(path: str, kind: str) -> AnchorUnavailable:
    return AnchorUnavailable(
        f"{shell(path)} does not hold {kind}.",
        "Nothing is loaded without it. Put it back from a copy of the anchor, and find out what"
        " happened to it.",
    )


_SQL: Final = """
CREATE TABLE store (
    number INTEGER NOT NULL PRIMARY KEY CHECK (number = 1),
    name TEXT NOT NULL
) STRICT;
CREATE TABLE heads (
    tenant TEXT NOT NULL DEFAULT '',
    thread TEXT NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    digest TEXT NOT NULL,
    PRIMARY KEY (tenant, thread)
) STRICT, WITHOUT ROWID;
"""
_SCHEMA: Final = Schema(0x53465041, 1, _SQL)  # "SFPA"
# Whose anchor it is comes with each head, in one look.
_STORE: Final = "SELECT name FROM store"
_READ: Final = (
    "SELECT name, sequence, digest FROM (SELECT 1) LEFT JOIN store"
    " LEFT JOIN heads ON tenant = ? AND thread = ?"
)
_PUT: Final = "REPLACE INTO heads (tenant, thread, sequence, digest) VALUES (?, ?, ?, ?)"
_THREADS: Final = "SELECT thread FROM heads WHERE tenant = ?"
_TENANTS: Final = "SELECT DISTINCT tenant FROM heads WHERE tenant <> ''"
_FORGET: Final = "DELETE FROM heads WHERE tenant = ? AND thread = ?"


class SQLiteAnchor(Database, _Heads):
    """Keeps the head of each thread, for one store, in a file that you name.

    ```python
    from safepoint import SQLiteAnchor
    from safepoint.core.names import Head

    anchor = SQLiteAnchor("anchor/heads.db", create=True)
    anchor.advance("invoices", "order-7", Head(57, "sha256:" + "0" * 64))
    print(anchor.read("invoices", "order-7"))
    #> #57
    ```

    It costs one transaction where a `FileAnchor` costs two files. Choose a folder that whoever can
    write the storage cannot write: another volume, not restored together with the storage. That is
    all its protection: whoever can write the file can set a head back.

    The file has the rules of the SQLite storage: yours, in a folder that nobody else can write.
    The folders above it, and the links on the way, must be yours or root's, and writable by no
    other group. Any number of processes may share it, on one machine.

    Args:
        path: the file. Give it a folder of its own.
        create: begin a new anchor if the file is missing, and make its folder. Pass it once, when
            you set the store up: a wrong path, or a volume that is not mounted, is then refused
            ever after instead of counting as an anchor that has seen nothing.
        read_only: ask an anchor, or a frozen copy of one, and make and change nothing.

    Raises:
        AnchorUnavailable: there is no anchor at that path, or it cannot be made or opened.
        UnsafeLocation: others could change what is stored there. The message says what to run.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = False, read_only: bool = False
    ) -> None:
        with disk.translated("open the anchor in", str(path), AnchorUnavailable):
            place = place_of(path)
            if disk.SUPPORTED:
                named = disk.as_named(path, "path", "file").parent
                disk.enforce(disk.rollback_refusals(named, str(Path(place).parent)))
            if not create:
                _check_exists(place)
            super().__init__(path, _SCHEMA, longest=_LIMIT, create=create, read_only=read_only)

    def _hold(self, store: str, act: Callable[[Any], _T], *, write: bool = False) -> _T:
        def owned(connection: sqlite3.Connection) -> _T:
            row = connection.execute(_STORE).fetchone() or (None,)
            self._check_owner(row[0], store)
            if row[0] is None:
                connection.execute("INSERT INTO store (number, name) VALUES (1, ?)", (store,))
            return act(connection)

        try:
            if write:
                return self._run(owned, "write the anchor in", write=True)
            return self._run(act, "read the anchor in")
        except (StorageUnavailable, StorageFull) as error:
            gone = isinstance(error.__cause__, FileNotFoundError)
            told = (f"{shell(self._file)} is gone, and with it the anchor.", _GONE)
            raise AnchorUnavailable(*told if gone else (error.what, error.do)) from error
        except ValueError as error:  # what it holds is no name, no head, or too long
            raise _unreadable(self._file, "what an anchor writes") from error

    def _head(self, held: sqlite3.Connection, store: str, thread: str) -> Head | None:
        owner, sequence, digest = held.execute(_READ, (self._tenant, thread)).fetchone()
        self._check_owner(owner, store)
        return None if sequence is None else Head(sequence, digest)

    def _put(self, held: sqlite3.Connection, store: str, thread: str, head: Head | None) -> None:
        if head is None:
            held.execute(_FORGET, (self._tenant, thread))
        else:
            held.execute(_PUT, (self._tenant, thread, head.sequence, head.digest))

    def _threads(self, held: sqlite3.Connection, store: str) -> Iterable[str]:
        return self._names(held, store, "thread", _THREADS, self._tenant)

    def _tenants(self, held: sqlite3.Connection, store: str) -> Iterable[str]:
        return self._names(held, store, "tenant", _TENANTS)

    def _names(
        self, held: sqlite3.Connection, store: str, what: str, statement: str, *given: str
    ) -> list[str]:
        self._check_owner((held.execute(_STORE).fetchone() or [None])[0], store)
        return [check_name(what, name) for (name,) in held.execute(statement, given)]

    def _check_owner(self, owner: object, store: str) -> None:
        if owner not in (None, store):
            raise _of_another_store(self._file, check_name("store", owner), store)
