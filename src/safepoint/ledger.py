"""Ledger: a storage with its keys, and the only thing that an application talks to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from safepoint.checkpoint import Checkpoint
from safepoint.codec import Codec
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    NotFound,
    RecordsMissing,
    StorageUnavailable,
    WrongPlace,
)
from safepoint.ids import check_name, check_sequence
from safepoint.keys import Keyring
from safepoint.seal import Opened, Place, open_sealed, seal
from safepoint.storage.base import CheckpointStorage

_REMEMBERED_HEADS = 1024
_METHODS = ("append", "read", "head", "threads")


class Ledger:
    """Saves and loads checkpoints. Nothing that it returns was decoded before it was verified.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey

    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
    )
    ledger.save("order-7", {"amount": 42})
    print(ledger.latest("order-7").state)
    #> {'amount': 42}
    ```

    Args:
        storage: where sealed bytes are kept. Any object with the four methods of
            `CheckpointStorage`.
        store: the name of this store. It is sealed into every record, so that a record of another
            store is refused here. It comes from you, never from the storage.
        keys: the key that seals and the keys that are trusted.
        codec: turns state into bytes and back. Give it your own types: `Codec([Invoice])`.

    Raises:
        ConfigurationError: an argument is of the wrong type.
        InvalidId: `store` is outside the grammar.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        *,
        store: str,
        keys: Keyring,
        codec: Codec | None = None,
    ) -> None:
        _expect("keys", keys, Keyring, "Keyring(SigningKey.from_file(path))")
        _expect("codec", codec, (Codec, type(None)), "Codec([Invoice])")
        if not all(callable(getattr(storage, method, None)) for method in _METHODS):
            raise ConfigurationError(
                f"Ledger takes a storage, and was given {type(storage).__name__}.",
                f"Give it an object with the methods {', '.join(_METHODS)}:"
                " FileCheckpointStorage(path).",
            )
        self.storage = storage
        self.store = check_name("store", store)
        self.keys = keys
        self.codec = codec if codec is not None else Codec()
        self._heads: dict[str, tuple[int, str]] = {}

    def save(
        self,
        thread: str,
        state: Any,
        *,
        app: str = "",
        tools: str | None = None,
        after: int | None = None,
    ) -> Checkpoint:
        """Seal `state` as the thread's next checkpoint. When this returns, it is durable.

        The checkpoint that it returns carries the very object that you gave as its state.

        Args:
            thread: one run of one workflow.
            state: anything the codec can restore faithfully.
            app: what writes it: a name, a version.
            tools: the digest of the tool set in force.
            after: the sequence that you built on, 0 for a new thread. If the thread has moved on
                since, the save is refused and nothing is lost.

        Raises:
            InvalidId: the thread, `app` or `tools` is outside its grammar.
            EncodeError: the state holds something that could not be restored.
            LimitExceeded: the state is too large, too deep or has too many values.
            Conflict: another writer was first.
            SealError: the checkpoint to build on does not verify.
            StorageError: the storage refused. Nothing was saved.
        """
        check_name("thread", thread)
        payload = self.codec.encode(state)
        head = self._head(thread)
        if after is not None and after != head:
            raise Conflict(
                f"{thread} is at #{head}, and this save builds on #{after}.",
                "Nothing was overwritten. Load the latest, and decide again.",
            )
        previous = self._digest_at(thread, head) if head else None
        record, opened = seal(
            payload,
            Place(self.store, thread, head + 1),
            self.keys.signing,
            created=datetime.now(UTC),
            previous=previous,
            app=app,
            tools=tools,
        )
        with _storage_errors("keep", thread):
            self.storage.append(thread, head + 1, record)
        self._remember(thread, head + 1, opened.digest)
        return _checkpoint(opened, state)

    def load(self, thread: str, sequence: int) -> Checkpoint:
        """Return the checkpoint at `sequence`, verified.

        Raises:
            InvalidId: the thread or the sequence is outside its grammar.
            NotFound: there is none.
            SealError: it does not verify. Nothing in it was decoded.
            DecodeError: it holds a type that this ledger's codec does not know.
        """
        opened = self._open(check_name("thread", thread), check_sequence(sequence))
        return _checkpoint(opened, self.codec.decode(opened.payload))

    def latest(self, thread: str) -> Checkpoint:
        """Return the newest checkpoint, verified. It never falls back to an older one.

        Raises:
            NotFound: the thread has no checkpoint.
            SealError: the newest one does not verify.
        """
        head = self._head(check_name("thread", thread))
        if not head:
            raise NotFound(
                f"There is no checkpoint of {thread} in store {self.store}.",
                "Start the workflow, or check the name of the thread and the storage's path.",
            )
        return self.load(thread, head)

    def history(self, thread: str) -> Iterator[Checkpoint]:
        """Return each checkpoint, oldest first; each is verified, and that it follows the last.

        Raises:
            SealError: one does not verify. Those before it were already handed out.
        """
        for opened in self._walk(thread):
            yield _checkpoint(opened, self.codec.decode(opened.payload))

    def verify(self, thread: str) -> int:
        """Verify each checkpoint of a thread and each link, without decoding any state.

        Returns:
            How many there are.

        Raises:
            SealError: one does not verify, or does not follow the one before it.
        """
        return sum(1 for _ in self._walk(thread))

    def threads(self) -> list[str]:
        """Return the names of the threads in the storage, sorted. Names are not verified."""
        with _storage_errors("list", "the threads"):
            return sorted(self.storage.threads())

    def __repr__(self) -> str:
        return f"Ledger(store={self.store!r}, storage={type(self.storage).__name__}, {self.keys!r})"

    def _head(self, thread: str) -> int:
        known = self._heads.get(thread, (0, ""))[0]  # before asking: others may save meanwhile
        with _storage_errors("find the latest of", thread):
            head = self.storage.head(thread)
            if type(head) is not int or head < 0:
                raise TypeError
        if head < known:
            raise RecordsMissing(
                f"{thread} ended at #{known}, and now ends at #{head}.",
                "Records were removed while this process ran. Put them back from a backup.",
            )
        return head

    def _open(self, thread: str, sequence: int) -> Opened:
        with _storage_errors("read", f"{thread} #{sequence}"):
            record = self.storage.read(thread, sequence)
            if not isinstance(record, bytes):
                raise TypeError
        place = Place(self.store, thread, sequence)
        return open_sealed(record, place, self.keys, limits=self.codec.limits)

    def _walk(self, thread: str) -> Iterator[Opened]:
        previous: str | None = None
        for sequence in range(1, self._head(check_name("thread", thread)) + 1):
            opened = self._open(thread, sequence)
            if opened.header.previous != previous:
                raise WrongPlace(
                    f"{thread} #{sequence} does not follow the #{sequence - 1} that is stored.",
                    "One of the two was replaced. Restore both from a copy that verifies.",
                )
            previous = opened.digest
            yield opened

    def _digest_at(self, thread: str, sequence: int) -> str:
        known = self._heads.get(thread)
        if known is not None and known[0] == sequence:
            return known[1]
        return self._open(thread, sequence).digest

    def _remember(self, thread: str, sequence: int, digest: str) -> None:
        if len(self._heads) >= _REMEMBERED_HEADS:
            self._heads.clear()
        self._heads[thread] = (sequence, digest)


def _expect(name: str, value: object, kind: type | tuple[type, ...], example: str) -> None:
    if not isinstance(value, kind):
        raise ConfigurationError(
            f"Ledger was given {type(value).__name__} as {name}.", f"Write {name}={example}."
        )


def _checkpoint(opened: Opened, state: Any) -> Checkpoint:
    header = opened.header
    return Checkpoint(
        store=header.store,
        thread=header.thread,
        sequence=header.sequence,
        app=header.app,
        created=datetime.fromisoformat(header.created),
        previous=header.previous,
        digest=opened.digest,
        tools=header.tools,
        state=state,
    )


@contextmanager
def _storage_errors(doing: str, what: str) -> Iterator[None]:
    """Turn whatever a custom storage raises into an error of the tree."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise StorageUnavailable(
            f"The storage could not {doing} {what}: it raised {type(error).__name__}.",
            "See the error it came from, and make the storage raise errors of safepoint.errors.",
        ) from error
