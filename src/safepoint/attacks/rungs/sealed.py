"""Rungs 6 and 7: our ledger, without an anchor and with one."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from safepoint._files import TEMP
from safepoint.anchor import Anchor, FileAnchor, InMemoryAnchor
from safepoint.attacks.medium import Disk, Medium
from safepoint.attacks.outcome import Miss
from safepoint.attacks.rungs.in_memory import Kept
from safepoint.attacks.target import BOTH, Target, Trick
from safepoint.journal import Journal
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.names import digest_of
from safepoint.record import Header, Kind, Place, seal
from safepoint.storage.base import CheckpointStorage
from safepoint.storage.file import FileCheckpointStorage

_Result = TypeVar("_Result")


class SignedChainTarget(Target):
    """A ledger without an anchor: every record is sealed, bound to its place and linked."""

    name = "signed-chain"
    title = "signed chain"
    media = BOTH

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self.keys = Keyring(SigningKey.generate())
        self.anchor: Anchor | None = None
        self.anchor_every = 1
        self._kept = Kept()

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Save through the ledger."""
        self.use(lambda ledger: ledger.save(thread, state))

    def latest(self, thread: str) -> Any:
        """Load through a ledger that was opened anew."""
        return self.use(lambda ledger: ledger.latest(thread).state)

    def history(self, thread: str) -> list[Any]:
        """Load everything, and follow each link."""
        return self.use(lambda ledger: [each.state for each in ledger.history(thread)])

    def oldest(self, thread: str) -> Any:
        """Take the first that a history hands out, before it has seen the rest."""
        return self.use(lambda ledger: next(ledger.history(thread)).state)

    def load(self, thread: str, sequence: int) -> Any:
        """Load by number."""
        return self.use(lambda ledger: ledger.load(thread, sequence).state)

    def prune(self, thread: str, keep: int) -> None:
        """Leave a signed base."""
        self.use(lambda ledger: ledger.prune(thread, keep=keep))

    def delete(self, thread: str) -> None:
        """Leave a tombstone."""
        self.use(lambda ledger: ledger.delete(thread))

    def rotate(self) -> None:
        """Seal with a new key. The old one still verifies: nobody can say since when it is lost."""
        self.keys = self.keys.rotated(SigningKey.generate())

    def records(self, thread: str) -> list[str]:
        """Return the names of the files, which sort in their order."""
        found = self.medium.names()
        return [n for n in found if n.startswith(f"{thread}/") and n.endswith(".checkpoint")]

    def place(self, thread: str, sequence: int) -> str:
        """Return the name of a record's file."""
        return f"{thread}/{sequence:010d}.checkpoint"

    def ahead(self, thread: str) -> list[str]:
        """Return the name of what is on its way in, and the next file."""
        return [f"{thread}/{TEMP}", *super().ahead(thread)]

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Write a perfect record for the same place, sealed by a key of one's own or by none."""
        if trick == "unsigned":
            return payload + b"\n"
        return self._forged(record, payload, trick, "state")

    def cut(self, thread: str, keep: int, trick: Trick = "best") -> None:
        """Leave a base that is perfect but for its seal, or none."""
        names = self.records(thread)
        record = self.medium.read(names[-keep])
        for name in names[:-keep]:
            self.medium.delete(name)
        if trick != "unsigned":
            base = self._forged(record, b"null", trick, "base")
            self.medium.write(f"{thread}/base", b"%010d\n%b" % (_parsed(record)[0].sequence, base))

    def relink(self, thread: str) -> None:
        """Mend the digest of a state that was changed. What it takes a key to mend stays broken."""
        for name in self.records(thread):
            record = self.medium.read(name)
            line_1, line_2, rest = (*record.split(b"\n", 2), b"", b"")[:3]
            header = Header.parse(line_2)
            if header is not None and header.digest != digest_of(rest):
                mended = line_2.replace(header.digest.encode(), digest_of(rest).encode())
                self.medium.write(name, b"\n".join((line_1, mended, rest)))

    def smuggle(self, thread: str, payload: bytes) -> None:
        """Seal it with the genuine key, as the record that follows."""
        header, digest = _parsed(self.medium.read(self.records(thread)[-1]))
        place = Place(self.store, thread, header.sequence + 1)
        record, _ = seal(
            payload, place, self.keys.signing, created=datetime.now(UTC), previous=digest
        )
        self.medium.write(self.place(thread, place.sequence), record)

    def by_default(self, medium: Medium | None = None) -> Self:
        """Leave the thief without the key: it is in a folder of its own."""
        other = super().by_default(medium)
        if medium is not None:
            other.keys = Keyring(SigningKey.generate())
        return other

    def _forged(self, record: bytes, payload: bytes, trick: Trick, kind: Kind) -> bytes:
        header, _ = _parsed(record)
        forged, _ = seal(
            payload,
            Place(header.store, header.thread, header.sequence),
            SigningKey.generate(),
            created=datetime.now(UTC),
            kind=kind,
            previous=header.previous,
        )
        if trick != "no-algorithm":
            return forged
        # The id of the genuine key, and a hash that needs none where its signature belongs.
        line_1 = record.partition(b"\n")[0]
        _, line_2, rest = forged.split(b"\n", 2)
        digest = base64.b64encode(hashlib.sha256(b"safepoint/1 record\n" + line_2).digest())
        return b"\n".join((b" ".join((*line_1.split(b" ")[:2], digest)), line_2, rest))

    def use(self, act: Callable[[Ledger], _Result]) -> _Result:
        """Open the ledger as a new process does, and use it once."""
        if isinstance(self.medium, Disk):
            return act(self._ledger(FileCheckpointStorage(self.medium.folder)))
        self._kept.load(self.medium)
        try:
            return act(self._ledger(self._kept))
        finally:
            self._kept.store(self.medium)

    def _ledger(self, storage: CheckpointStorage, journal: Journal | None = None) -> Ledger:
        tapped = storage if self.medium.tap is None else _Tapped(storage, self)
        return Ledger(
            tapped,
            store=self.store,
            keys=self.keys,
            anchor=self.anchor,
            anchor_every=self.anchor_every,
            journal=journal,
        )


class SealedTarget(SignedChainTarget):
    """A ledger with an anchor in a folder that the adversary cannot write."""

    name = "anchored"
    title = "sealed and anchored"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        on_disk = isinstance(self.medium, Disk)
        self.anchor: Anchor = (
            FileAnchor(self.folder / "anchor", create=True) if on_disk else InMemoryAnchor()
        )

    def go_back(self, thread: str, sequence: int) -> None:
        """Drop the records, and accept the loss by name."""
        super().go_back(thread, sequence)
        self.use(lambda ledger: ledger.accept_loss(thread))

    def rotate(self) -> None:
        """Seal with a new key. What the old one sealed counts as far as the anchor saw it."""
        old = self.keys.signing
        super().rotate()
        until = InMemoryAnchor()
        for thread in self.anchor.threads(self.store):
            head = self.anchor.read(self.store, thread)
            if head is not None:
                until.advance(self.store, thread, head)
        self.keys = self.keys.revoking(old, until=until)

    def seldom(self) -> Self:
        """Return the same store, anchored after every hundredth checkpoint."""
        other = self.on(self.medium)
        other.anchor_every = 100
        return other

    def twin(self, medium: Medium, store: str | None = None) -> Self:
        """Return a copy that knows the key and cannot touch the anchor."""
        other = super().twin(medium, store)
        other.anchor = InMemoryAnchor()
        return other


def _parsed(record: bytes) -> tuple[Header, str]:
    """Return what anybody can read in a record, and its digest.

    Raises:
        Miss: it has no header.
    """
    line_2 = record.split(b"\n", 2)[1]
    header = Header.parse(line_2)
    if header is None:
        raise Miss
    return header, digest_of(line_2)


class _Tapped:
    """A storage that answers through the adversary."""

    def __init__(self, storage: CheckpointStorage, target: SignedChainTarget) -> None:
        self._storage = storage
        self._target = target

    def append(self, thread: str, sequence: int, record: bytes) -> None:
        self._storage.append(thread, sequence, record)

    def read(self, thread: str, sequence: int) -> bytes:
        record = self._storage.read(thread, sequence)
        tap = self._target.medium.tap
        return record if tap is None else tap(self._target.place(thread, sequence), record)

    def head(self, thread: str) -> int:
        return self._storage.head(thread)

    def threads(self) -> Iterable[str]:
        return self._storage.threads()
