"""Anchors: the head of each thread, kept out of reach of whoever writes the storage."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final, Protocol, Self

from safepoint import _files
from safepoint._sqlite import Database, Schema, place_of
from safepoint.errors import (
    AnchorMismatch,
    AnchorUnavailable,
    ConfigurationError,
    Forked,
    InvalidId,
    LimitExceeded,
    StorageFull,
    StorageUnavailable,
    UnsafeLocation,
    shell,
)
from safepoint.names import Head, check_name
from safepoint.storage.base import is_thread

_FORMAT = "safepoint-anchor/1"
_LIMIT = 256
_NAME = rb"[a-z0-9][a-z0-9_-]{0,63}"
_MARK_LINE = re.compile(rb"safepoint-anchor/1(?: (%b))?\n\Z" % _NAME)
_HEAD_LINE = re.compile(
    rb"safepoint-anchor/1 (%b) (%b) ([1-9][0-9]{0,9}) (sha256:[0-9a-f]{64})\n\Z" % (_NAME, _NAME)
)
_OTHER = re.compile(rb"safepoint-anchor/(?!1[ \n])[0-9]{1,9}[ \n]")
_GONE = (
    "Mount it again or put it back from a copy: until then no rollback would be noticed, so nothing"
    " is loaded."
)
_MARK = "store"
_HEAD = ".head"
_LOCK = ".lock"


class Anchor(Protocol):
    """Remembers how far each thread had come, where the storage's writer cannot write.

    A signed chain shows an edit. It does not show that its end was cut off, that a thread is gone,
    or that last week's copy was restored: what is left is genuine. The anchor shows these.

    Write your own in ten lines, for a database, a bucket or a service that you have:

    ```python
    from safepoint.names import Head
    from safepoint.anchor import is_further


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
            AnchorUnavailable: the anchor cannot be written. It still holds the head it had.
        """

    def threads(self, store: str) -> Iterable[str]:
        """Return the name of each thread of the store that was ever seen.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
        """


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
            "Pass safepoint.names.Head(sequence, digest).",
        )
    return head


class InMemoryAnchor:
    """Keeps the heads in this process until it ends, of any number of stores.

    It notices what is done to a storage while the process runs, and forgets with it: after a
    restart nothing is anchored. Several threads of one process may share it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._heads: dict[tuple[str, str], Head] = {}

    def __repr__(self) -> str:
        return f"InMemoryAnchor(<{len(self._heads)} threads>)"

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            InvalidId: a name is outside the grammar.
        """
        place = _check(store, thread)
        with self._lock:
            return self._heads.get(place)

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`. One that is older than what is known, or the same, is ignored.

        Raises:
            InvalidId: a name is outside the grammar.
            ConfigurationError: `head` is not a head.
            Forked: another record is known at that sequence. The anchor stays as it is.
        """
        place = _check(store, thread)
        with self._lock:
            if is_further(thread, self._heads.get(place), head):
                self._heads[place] = head

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted.

        Raises:
            InvalidId: the name of the store is outside the grammar.
        """
        check_name("store", store)
        with self._lock:
            return sorted(thread for owner, thread in self._heads if owner == store)

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head to what you say, further back or forgotten (None).

        It is for an operator who accepts a loss. What lay behind `head` is given up: from now on
        nothing tells a rollback to it from the truth.

        Raises:
            InvalidId: a name is outside the grammar.
            ConfigurationError: `head` is not a head.
        """
        place = _check(store, thread)
        with self._lock:
            if head is None:
                self._heads.pop(place, None)
            else:
                self._heads[place] = checked(head)


class FileAnchor:
    """Keeps the head of each thread in a file, for one store, in a folder that you name.

    ```python
    from safepoint import FileAnchor
    from safepoint.names import Head

    anchor = FileAnchor("anchor", create=True)
    anchor.advance("invoices", "order-7", Head(57, "sha256:" + "0" * 64))
    print((anchor.path / "order-7.head").read_text()[:40])
    #> safepoint-anchor/1 invoices order-7 57 s
    ```

    The folder holds a file `store` with the name of the store, one file such as `order-7.head` for
    each thread, with one line, `.lock`, which is held by whoever writes, and `.next` while a file
    is on its way in.

    A line names all that it is about, so that a file under another's name is seen.

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
        with _files.translated("open the anchor in", str(path), AnchorUnavailable):
            _files.require_posix("FileAnchor")
            self._path = _files.absolute(path, "The path of the anchor")
        self._gone = f"{shell(self._path)} is gone, and with it the anchor.", _GONE
        self._store: str | None = None
        with self._errors("open the anchor in"):
            named = _files.as_named(path, "The path of the anchor")
            _files.enforce(_files.rollback_refusals(named, self._path))
            if create:
                _files.create_root(self._path)
            _check_exists(self._path)
            found = _files.folder(self._path, self._path)
            with found as root:
                self._identity = found.identity
                if create and self._read(root, _MARK) is None:
                    self._begin(root)
                self._mark(root)

    def __repr__(self) -> str:
        return f"FileAnchor({self._path!r})"

    @property
    def path(self) -> Path:
        """The folder, absolute."""
        return Path(self._path)

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor or the thread's file cannot be read, or is damaged.
            UnsafeLocation: others could change what is stored there.
        """
        name = _file_name(store, thread)
        with self._root("read the anchor in") as root:
            text = self._read(root, name)
            if text is None or store != self._store:
                # A thread that was never seen, in an anchor that is still there and of this store.
                self._check_store(root, store)
            return self._head(store, thread, text)

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`, on disk when this returns. An older one, or the same, is ignored.

        Raises:
            Forked: another record is known at that sequence. The anchor stays as it is.
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the folder is gone, closed or full, the disk fails, or the thread's
                file is damaged. The anchor still holds the head it had.
            UnsafeLocation: others could change what is stored there.
        """
        name = _file_name(store, thread)
        checked(head)
        with self._locked() as root:
            self._bind(root, store)
            before = self._read(root, name)
            if is_further(thread, self._head(store, thread, before), head):
                text = _head_text(store, thread, head)
                _files.put(self._at(name), root, text, over=before is not None)
            else:
                # Whoever wrote what is known may have died before its own sync.
                os.fsync(root)

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
            UnsafeLocation: others could change what is stored there.
        """
        check_name("store", store)
        with self._root("read the anchor in") as root:
            self._check_store(root, store)
            with os.scandir(root) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(_HEAD)]
        return sorted(filter(is_thread, (name.removesuffix(_HEAD) for name in names)))

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head to what you say, further back or forgotten (None), on disk at return.

        It is for an operator who accepts a loss, or who replaces a file that is damaged. What lay
        behind `head` is given up: from now on nothing tells a rollback to it from the truth.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the folder is gone, closed or full, or the disk fails.
            UnsafeLocation: others could change what is stored there.
        """
        name = _file_name(store, thread)
        text = None if head is None else _head_text(store, thread, checked(head))
        with self._locked() as root:
            self._bind(root, store)
            if text is not None:
                _files.put(self._at(name), root, text, over=True)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=root)
                os.fsync(root)

    def _errors(self, doing: str) -> _files.translated:
        return _files.translated(doing, self._path, AnchorUnavailable, self._gone)

    @contextmanager
    def _root(self, doing: str) -> Iterator[int]:
        with (
            self._errors(doing),
            _files.same_folder(self._path, self._identity, "anchor") as root,
        ):
            yield root

    @contextmanager
    def _locked(self) -> Iterator[int]:
        with self._root("write the anchor in") as root, self._lock(root):
            yield root

    @contextmanager
    def _lock(self, root: int) -> Iterator[None]:
        # A file, and open for writing: on NFS, what is open for reading alone cannot be held.
        with _files.opened(_LOCK, _files.READ | os.O_RDWR | os.O_CREAT, root) as fd:
            if stat.S_IMODE(os.fstat(fd).st_mode) != 0o600:
                os.fchmod(fd, 0o600)  # it is new, and the umask took bits that the next one needs
            with _files.locked(fd, self._at(_LOCK)):
                yield

    def _begin(self, root: int) -> None:
        with self._lock(root):
            if self._read(root, _MARK) is not None:
                return  # another process was faster
            with os.scandir(root) as entries:
                strange = {entry.name for entry in entries} - {_LOCK, _files.TEMP}
            if strange:
                raise AnchorUnavailable(
                    f"{shell(self._path)} holds files but no anchor, so none is begun there.",
                    "Name a folder that is empty or does not exist. If it did hold an anchor, put"
                    f" its file {_MARK!r} back from a copy.",
                )
            _files.put(self._at(_MARK), root, f"{_FORMAT}\n".encode())

    def _bind(self, root: int, store: str) -> None:
        """Make this the anchor of the store, if it is of none yet."""
        self._check_store(root, store)
        if self._store is None:
            # On disk before any head is, so that a crash leaves no head in an anchor of no store.
            _files.put(self._at(_MARK), root, f"{_FORMAT} {store}\n".encode(), over=True)
            self._store = store

    def _check_store(self, root: int, store: str) -> bytes:
        text = self._mark(root)
        if self._store not in (None, store):
            raise _of_another_store(self._path, str(self._store), store)
        return text

    def _mark(self, root: int) -> bytes:
        """Read which store this is the anchor of, and return the text that says so."""
        text = self._read(root, _MARK)
        if text is None:
            raise AnchorUnavailable(
                f"{shell(self._path)} holds no anchor: its file {_MARK!r} is missing.",
                "Correct the path, mount the volume, or put the file back from a copy. To begin a"
                " new anchor, in an empty folder, pass create=True once.",
            )
        match = _MARK_LINE.match(text)
        if not match:
            raise _unreadable(self._at(_MARK), text, "the name of a store")
        self._store = match[1].decode() if match[1] else None
        return text

    def _head(self, store: str, thread: str, text: bytes | None) -> Head | None:
        if text is None:
            return None
        path = self._at(f"{thread}{_HEAD}")
        match = _HEAD_LINE.match(text)
        if not match:
            raise _unreadable(path, text, "the head of a thread")
        if match[1] != store.encode():
            raise _of_another_store(path, match[1].decode(), store)
        if match[2] != thread.encode():
            raise AnchorUnavailable(
                f"{shell(path)} holds the head of thread {match[2].decode()}, not of {thread}.",
                "Somebody copied or renamed it. Put the right file back from a copy of the anchor.",
            )
        return Head(int(match[3]), match[4].decode())

    def _read(self, root: int, name: str) -> bytes | None:
        path = self._at(name)
        try:
            with _files.translated("read", path, AnchorUnavailable), suppress(FileNotFoundError):
                return _files.read(path, name, root, _LIMIT + 1)
        except UnsafeLocation as refusal:
            # No seal stands behind this file as one does behind a record: a `chmod` is no cure.
            raise UnsafeLocation(
                refusal.what,
                "What it says may be somebody else's. Put the file back from a copy of the anchor,"
                f" as a file of user {os.geteuid()} with mode 600.",
            ) from None
        return None

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"


def _check(store: object, thread: object) -> tuple[str, str]:
    """Refuse bad names before the anchor is asked: what it holds itself is another matter."""
    return check_name("store", store), check_name("thread", thread)


def _check_exists(path: str) -> None:
    if not os.path.lexists(path):
        raise AnchorUnavailable(
            f"{shell(path)} does not exist, so no rollback would be noticed.",
            "Correct the path, or mount the volume. To begin a new anchor there, pass create=True"
            " once.",
        )


def _file_name(store: str, thread: str) -> str:
    return f"{_check(store, thread)[1]}{_HEAD}"


def _head_text(store: str, thread: str, head: Head) -> bytes:
    return f"{_FORMAT} {store} {thread} {head.sequence} {head.digest}\n".encode()


def _of_another_store(path: str, owner: str, store: str) -> AnchorMismatch:
    return AnchorMismatch(
        f"{shell(path)} belongs to store {owner}, and was asked about store {store}.",
        "Give each store an anchor of its own, in a folder of its own.",
    )


def _unreadable(path: str, text: bytes, kind: str) -> AnchorUnavailable:
    if _OTHER.match(text):
        return AnchorUnavailable(
            f"{shell(path)} was written by another version of safepoint.",
            f"This one reads {_FORMAT}. Use the version that wrote it.",
        )
    return AnchorUnavailable(
        f"{shell(path)} does not hold {kind}.",
        "Nothing is loaded without it. Put the file back from a copy of the anchor, and find out"
        " what happened to the disk.",
    )


_SQL: Final = """
CREATE TABLE store (
    number INTEGER NOT NULL PRIMARY KEY CHECK (number = 1),
    name TEXT NOT NULL
) STRICT;
CREATE TABLE heads (
    thread TEXT NOT NULL PRIMARY KEY,
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    digest TEXT NOT NULL
) STRICT;
"""
_SCHEMA: Final = Schema(0x53465041, 1, _SQL)  # "SFPA"
_LONGEST: Final = 256
_READ: Final = "SELECT sequence, digest FROM heads WHERE thread = ?"
_PUT: Final = (
    "INSERT INTO heads (thread, sequence, digest) VALUES (?, ?, ?) ON CONFLICT (thread)"
    " DO UPDATE SET sequence = excluded.sequence, digest = excluded.digest"
)


class SQLiteAnchor:
    """Keeps the head of each thread, for one store, in a file that you name.

    ```python
    from safepoint import SQLiteAnchor
    from safepoint.names import Head

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
        with _told(opening=True):
            place = place_of(path)
            if _files.SUPPORTED:
                named = _files.as_named(path, "path", "file").parent
                _files.enforce(_files.rollback_refusals(named, str(Path(place).parent)))
            if not create:
                _check_exists(place)
            self._database = Database(
                path, _SCHEMA, longest=_LONGEST, create=create, read_only=read_only
            )

    def __repr__(self) -> str:
        return f"SQLiteAnchor({str(self.path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. To close twice does nothing."""
        self._database.close()

    @property
    def path(self) -> Path:
        """The file: absolute, with the links above its folder resolved."""
        return Path(self._database.path)

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read, or is damaged.
            UnsafeLocation: others could change what is stored there.
        """
        _check(store, thread)
        with _told(), self._database.transaction("read the anchor in") as connection:
            self._owner(connection, store)
            return self._head(connection, thread)

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`, on disk when this returns. An older one, or the same, is ignored.

        Raises:
            Forked: another record is known at that sequence. The anchor stays as it is.
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor is gone, closed, full or held, or the disk fails. It still
                holds the head it had.
            UnsafeLocation: others could change what is stored there.
        """
        _check(store, thread)
        with self._writing(store) as connection:
            known = self._head(connection, thread)
            # One that is known is written again: who wrote it may have died before the sync.
            if is_further(thread, known, head) or head == known:
                connection.execute(_PUT, (thread, head.sequence, head.digest))

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
            UnsafeLocation: others could change what is stored there.
        """
        check_name("store", store)
        query = "SELECT thread FROM heads ORDER BY thread"
        with (
            _told(),
            self._database.transaction("read the anchor in", many=True) as connection,
        ):
            self._owner(connection, store)
            return [check_name("thread", name) for (name,) in connection.execute(query)]

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head to what you say, further back or forgotten (None), on disk at return.

        It is for an operator who accepts a loss. What lay behind `head` is given up: from now on
        nothing tells a rollback to it from the truth.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor is gone, closed, full or held, or the disk fails.
            UnsafeLocation: others could change what is stored there.
        """
        _check(store, thread)
        with self._writing(store) as connection:
            if head is None:
                connection.execute("DELETE FROM heads WHERE thread = ?", (thread,))
            else:
                connection.execute(_PUT, (thread, checked(head).sequence, head.digest))

    @contextmanager
    def _writing(self, store: str) -> Iterator[sqlite3.Connection]:
        with (
            _told(),
            self._database.transaction("write the anchor in", write=True) as connection,
        ):
            if self._owner(connection, store) is None:
                connection.execute("INSERT INTO store (number, name) VALUES (1, ?)", (store,))
            yield connection

    def _owner(self, connection: sqlite3.Connection, store: str) -> str | None:
        """Return the store that this is the anchor of, or None if it is of none yet."""
        row = connection.execute("SELECT name FROM store").fetchone()
        if row is None:
            return None
        owner = check_name("store", row[0])
        if owner != store:
            raise _of_another_store(str(self.path), owner, store)
        return owner

    def _head(self, connection: sqlite3.Connection, thread: str) -> Head | None:
        row = connection.execute(_READ, (thread,)).fetchone()
        return None if row is None else Head(*row)


@contextmanager
def _told(*, opening: bool = False) -> Iterator[None]:
    """Say what is wrong with the file as an anchor says it."""
    try:
        yield
    except (StorageUnavailable, StorageFull) as error:
        if isinstance(error.__cause__, FileNotFoundError) and not opening:
            raise AnchorUnavailable(
                "The file of the anchor is gone.",
                "Mount it again or put it back from a copy: until then no rollback would be"
                " noticed, so nothing is loaded.",
            ) from error
        raise AnchorUnavailable(error.what, error.do) from error
    except (InvalidId, LimitExceeded) as error:  # of what it holds
        raise AnchorUnavailable(
            f"The anchor holds something that no anchor wrote. {error.what}",
            "Nothing is loaded without it. Put the file back from a copy of the anchor.",
        ) from error
