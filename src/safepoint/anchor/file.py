"""FileAnchor: one small file per thread, in a folder apart from the storage.

<path>/
    store          safepoint-anchor/1 invoices
    order-7.head   safepoint-anchor/1 invoices order-7 57 sha256:…
    .lock          held by whoever writes
    .next          a file on its way in; of a crash, the next write replaces it
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safepoint import _files as _posix
from safepoint.anchor import _folder, _text
from safepoint.anchor.base import checked, is_further
from safepoint.errors import AnchorUnavailable, UnsafeLocation, shell
from safepoint.names import Head, check_name
from safepoint.storage.file import is_thread

MARK = "store"
HEAD = ".head"
_OWN = frozenset([_folder.LOCK, _folder.TEMP])


class FileAnchor:
    """Keeps the head of each thread in a file, for one store, in a folder that you name.

    ```python
    from safepoint import FileAnchor, Head

    anchor = FileAnchor("anchor", create=True)
    anchor.advance("invoices", "order-7", Head(57, "sha256:" + "0" * 64))
    print((anchor.path / "order-7.head").read_text()[:40])
    #> safepoint-anchor/1 invoices order-7 57 s
    ```

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
        self._path = _folder.absolute(path)
        self._store: str | None = None
        with _folder.translated("open the anchor in", self._path):
            _folder.check_place(path, self._path)
            if create:
                _posix.create_root(self._path)
            elif not os.path.lexists(self._path):
                raise AnchorUnavailable(
                    f"{shell(self._path)} does not exist, so no rollback would be noticed.",
                    "Correct the path, or mount the volume. To begin a new anchor there, pass"
                    " create=True once.",
                )
            with _posix.folder(self._path, self._path) as root:
                self._identity = _folder.identity(root)
                if create:
                    self._begin(root)
                self._owner(root)

    def __repr__(self) -> str:
        return f"FileAnchor({self._path!r})"

    @property
    def path(self) -> Path:
        """The folder, absolute."""
        return Path(self._path)

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            InvalidId: a name is outside the grammar.
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
            InvalidId: a name is outside the grammar.
            ConfigurationError: `head` is not a head.
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
            if not is_further(thread, self._head(store, thread, before), head):
                # Whoever wrote what is known may have died before its own sync.
                os.fsync(root)
                return
            _folder.replace(root, name, _text.write_head(store, thread, head))
            try:
                # The sync of the file covers its bytes. That the name now leads to them is in
                # the folder, and without this a crash of the machine may bring the old head back.
                os.fsync(root)
            except BaseException:
                _folder.withdraw(root, name, before, self._at(name))
                raise

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted.

        Raises:
            InvalidId: the name of the store is outside the grammar.
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
            UnsafeLocation: others could change what is stored there.
        """
        check_name("store", store)
        with self._root("read the anchor in") as root:
            self._check_store(root, store)
            with os.scandir(root) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(HEAD)]
        return sorted(filter(is_thread, (name.removesuffix(HEAD) for name in names)))

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head to what you say, further back or forgotten (None), on disk at return.

        It is for an operator who accepts a loss, or who replaces a file that is damaged. What lay
        behind `head` is given up: from now on nothing tells a rollback to it from the truth.

        Raises:
            InvalidId: a name is outside the grammar.
            ConfigurationError: `head` is not a head.
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the folder is gone, closed or full, or the disk fails.
            UnsafeLocation: others could change what is stored there.
        """
        name = _file_name(store, thread)
        text = None if head is None else _text.write_head(store, thread, checked(head))
        with self._locked() as root:
            self._bind(root, store)
            if text is None:
                _folder.remove(root, name)
            else:
                _folder.replace(root, name, text)
            os.fsync(root)

    @contextmanager
    def _root(self, doing: str) -> Iterator[int]:
        with (
            _folder.translated(doing, self._path),
            _posix.folder(self._path, self._path) as root,
        ):
            if _folder.identity(root) != self._identity:
                raise UnsafeLocation(
                    f"{shell(self._path)} is not the folder that this anchor was opened on.",
                    "Find out who replaced it, and construct the anchor again if that is right:"
                    f" ls -ld {shell(self._path)}",
                )
            yield root

    @contextmanager
    def _locked(self) -> Iterator[int]:
        with self._root("write the anchor in") as root, _folder.locked(root, self._path):
            yield root

    def _begin(self, root: int) -> None:
        if self._read(root, MARK) is not None:
            return
        with _folder.locked(root, self._path):
            if self._read(root, MARK) is not None:
                return  # another process was faster
            with os.scandir(root) as entries:
                strange = {entry.name for entry in entries} - _OWN
            if strange:
                raise AnchorUnavailable(
                    f"{shell(self._path)} holds files but no anchor, so none is begun there.",
                    "Name a folder that is empty or does not exist. If it did hold an anchor, put"
                    f" its file {MARK!r} back from a copy.",
                )
            _folder.replace(root, MARK, _text.write_mark(None))
            os.fsync(root)

    def _bind(self, root: int, store: str) -> None:
        """Make this the anchor of the store, if it is of none yet."""
        self._check_store(root, store)
        if self._store is None:
            _folder.replace(root, MARK, _text.write_mark(store))
            # Before any head is there, so that a crash leaves no head in an anchor of no store.
            os.fsync(root)
            self._store = store

    def _check_store(self, root: int, store: str) -> None:
        self._store = self._owner(root)
        if self._store not in (None, store):
            raise _text.of_another_store(self._path, str(self._store), store)

    def _owner(self, root: int) -> str | None:
        text = self._read(root, MARK)
        if text is None:
            raise AnchorUnavailable(
                f"{shell(self._path)} holds no anchor: its file {MARK!r} is missing.",
                "Correct the path, mount the volume, or put the file back from a copy. To begin a"
                " new anchor, in an empty folder, pass create=True once.",
            )
        return _text.read_mark(self._at(MARK), text)

    def _head(self, store: str, thread: str, text: bytes | None) -> Head | None:
        path = self._at(f"{thread}{HEAD}")
        return None if text is None else _text.read_head(path, text, store, thread)

    def _read(self, root: int, name: str) -> bytes | None:
        return _folder.read(root, name, self._at(name), _text.LIMIT)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"


def _file_name(store: str, thread: str) -> str:
    check_name("store", store)
    return f"{check_name('thread', thread)}{HEAD}"
