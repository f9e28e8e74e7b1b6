"""Ledger: a storage with its keys and its anchor, which saves and loads what a program gives it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from threading import Lock
from typing import Any, Final, NamedTuple

from safepoint.core.anchor import Anchor, RewindingAnchor
from safepoint.core.chain import (
    View,
    anchor_errors,
    check_apart,
    digests_of,
    is_same,
    plain_of,
    refuse_deleted,
    require,
    scoped,
    storage_errors,
)
from safepoint.core.codec import Codec
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    EncodeError,
    InvalidId,
    LimitExceeded,
    NotFound,
    NotOwner,
    RolledBack,
    Unavailable,
    quoted,
)
from safepoint.core.journal import Actor, Event, EventOutcome, Journal, What
from safepoint.core.keys import Keyring
from safepoint.core.names import (
    MAX_SEQUENCE,
    Head,
    Heads,
    check_name,
    check_sequence,
    check_store,
    check_tenant,
    journal_of,
    read_head,
    translated,
)
from safepoint.core.record import (
    KEY_ID,
    Checkpoint,
    Cipher,
    Kind,
    Opened,
    Place,
    check_signed,
    reseal,
    seal,
)
from safepoint.core.storage import (
    CheckpointStorage,
    Lease,
    LeasingStorage,
    LoginStorage,
    PurgingStorage,
    RetentionStorage,
)

_NOTHING: Final = b"\xc0"  # the state of a record that has none: a base, a tombstone


class Ledger:
    """Saves and loads checkpoints. It verifies every record before it decodes it.

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
        storage: where sealed bytes are stored: any object with the four methods of
            `CheckpointStorage`.
        store: the name of this store. It is sealed into every record, so that a record of another
            store is refused. It comes from you, never from the storage.
        keys: the key that seals and the trusted keys.
        codec: turns state into bytes and back. Give it your own types: `Codec([Invoice])`.
        cipher: encrypts the encoded state before it is sealed. With a cipher, a ledger refuses
            plaintext; without one, it refuses ciphertext.
        anchor: remembers the head of each thread where the storage's writer cannot change it. A
            save is anchored when it returns. Without an anchor, nobody notices that the newest
            checkpoints were cut off.
        journal: records each save and each refusal. If it cannot be written, nothing is saved.
        actor: the actor for the journal; by default the user of this process.
        tenant: the tenant of this ledger. Storage, anchor and journal are scoped to it, and its
            name is sealed into every record. The method `tenant` does the same for an open ledger.
        worker: the name under which this ledger takes leases by itself, where your code cannot call
            `own`: the first write to a thread takes its lease, and later writes renew it. Give each
            live worker a unique name, and the same one after a restart. The ledgers that `tenant`
            and `rotated` return are the same worker.
        seconds: how long such a lease lasts without a write.

    Raises:
        ConfigurationError: the anchor or the journal is in the same place as the storage, or
            a worker is named and the storage knows no owners.
        InvalidId: `store` is outside the grammar.
        Unsafe: a key is inside the storage's `path`, if it says one.
    """

    places: Any = None
    """The places of this ledger, if `open_ledger` made it."""

    def __init__(
        self,
        storage: CheckpointStorage,
        *,
        store: str,
        keys: Keyring,
        codec: Codec | None = None,
        cipher: Cipher | None = None,
        anchor: Anchor | None = None,
        journal: Journal | None = None,
        actor: Actor | None = None,
        tenant: str = "",
        worker: str | None = None,
        seconds: float = 60.0,
    ) -> None:
        check_apart(storage, keys, anchor, journal)
        self._whole: Final = storage, anchor, journal
        if tenant:
            storage = scoped(storage, tenant)
            anchor = None if anchor is None else scoped(anchor, tenant)
            journal = None if journal is None else journal.tenant(tenant)
        self.storage: Final = storage
        self.store: Final = check_store(store)
        self.tenant_name: Final = tenant
        self.keys: Final = keys
        self.codec: Final = codec if codec is not None else Codec()
        self.cipher: Final = cipher
        self.anchor: Final = anchor
        self.journal: Final = journal
        self.log: Final = Log(journal, actor, store, tenant)
        self.owners = Owners(storage, tenant, self.log, worker, seconds)
        self._view: Final = self._make_view(anchor)

    def __repr__(self) -> str:
        anchor = "" if self.anchor is None else f", anchor={type(self.anchor).__name__}"
        storage = type(self.storage).__name__
        tenant = f", tenant={self.tenant_name!r}" if self.tenant_name else ""
        return f"Ledger(store={self.store!r}{tenant}, storage={storage}{anchor}, {self.keys!r})"

    def _make_view(self, anchor: Anchor | None) -> View:
        limits, tenant = self.codec.limits, self.tenant_name
        return View(self.storage, self.store, self.keys, anchor, limits, tenant=tenant)

    @cached_property
    def anchored_journal(self) -> Journal | None:
        """The journal for what people answer: it has the ledger's anchor, unless it has its own."""
        return self.journal and self.journal.anchored_in(self.anchor, self.store)

    def tenant(self, name: str) -> Ledger:
        """Return the ledger of one tenant, with the same keys, codec, journal and options.

        It sees only that tenant's threads and refuses a record of another tenant. It is not an
        access check: code that has this ledger can open any tenant.

        Raises:
            InvalidId: the name is outside the grammar.
            ConfigurationError: the storage, the anchor or the journal knows no tenants, or this is
                the ledger of a tenant already.
        """
        return self._like(tenant=check_tenant(name, self.tenant_name))

    def _like(self, **changes: Any) -> Ledger:
        storage, anchor, journal = self._whole
        options: dict[str, Any] = {
            "store": self.store,
            "keys": self.keys,
            "codec": self.codec,
            "cipher": self.cipher,
            "anchor": anchor,
            "journal": journal,
            "actor": self.log.actor,
            "tenant": self.tenant_name,
        }
        made = Ledger(storage, **(options | changes))
        made.places = self.places
        made.owners = replace(
            self.owners, storage=made.storage, tenant=made.tenant_name, log=made.log
        )
        return made

    # --- save

    def save(
        self,
        thread: str,
        state: Any,
        *,
        app: str = "",
        tools: str | None = None,
        label: str = "",
        after: int | None = None,
    ) -> Checkpoint:
        """Seal `state` as the thread's next checkpoint. When this returns, it is durable.

        If there is an anchor, it is also anchored. The returned checkpoint has the object that you
        passed as its state.

        Args:
            thread: one run of one workflow.
            state: anything the codec can restore faithfully.
            app: what writes it: a name, a version.
            tools: the digest of the tool set in use.
            label: a word that `back` returns with it. It is stored in plain text.
            after: the sequence of the state that you built on, 0 for a new thread. If the thread
                has a newer state, the save is refused and nothing is lost. Notes in between do not
                matter. Without it, the state is appended in any case.

        Raises:
            InvalidId: the thread, `app`, `tools` or `label` is outside its grammar.
            EncodeError: the state holds something that could not be restored.
            LimitExceeded: the state is too large, too deep or has too many values.
            Conflict: the thread has another state than the one that you built on.
            ThreadDeleted: the thread was deleted.
            SealBroken: the checkpoint to build on does not verify. This process does not look again
                at one that it saved or verified itself.
            RolledBack: the storage contradicts the anchor.
            Unavailable: the storage, the anchor or the journal cannot be used. The message says
                whether the state was saved before that.
            NotOwner: another worker owns the thread.
        """
        return self._keep(thread, state, _Fields("state", app, tools, label), after)

    def note(
        self,
        thread: str,
        value: Any,
        *,
        label: str = "",
        after: int | Head | None = None,
        rides_along: bool = False,
    ) -> Checkpoint:
        """Seal `value` as the thread's next record, without making it a state.

        A note is a link of the chain like any other: swapping, dropping or repeating it is
        detected. `latest` and `history` skip notes, `back` and `load` return them, and `verify`
        counts them. Arguments and errors are as for `save`.

        Args:
            thread: the thread.
            value: what to note.
            label: as in `save`.
            after: as in `save`; or the head of the record that it must directly follow.
            rides_along: do not anchor it; the next state will. For the pending writes of a
                framework, which are repeated if they are lost: until the next state, they can be
                cut off unnoticed.

        Raises:
            NotFound: the thread has no state to note anything about.
        """
        return self._keep(thread, value, _Fields("note", label=label), after, rides_along)

    def _keep(
        self,
        thread: str,
        value: Any,
        fields: _Fields,
        after: int | Head | None,
        rides_along: bool = False,
    ) -> Checkpoint:
        check_name("thread", thread)
        with self.log.watching("save", thread):
            payload = self.codec.encode(value)
            opened = self._append(thread, payload, fields, after, rides_along=rides_along)
            return opened.checkpoint(value)

    def _append(
        self,
        thread: str,
        payload: bytes,
        fields: _Fields,
        after: int | Head | None = None,
        *,
        rides_along: bool = False,
    ) -> Opened:
        """Seal a record, write it to the journal, append it to the thread, and anchor it."""
        what: What = "delete" if fields.kind == "deleted" else "save"

        def write(place: Place, previous: str | None) -> tuple[bytes, Opened]:
            if previous is None and fields.kind == "note":
                raise NotFound(
                    f"{thread} has no state yet, so there is nothing to note.",
                    "Save its first state.",
                )
            sealed = self._seal(payload, place, fields, previous)
            # If another writer is faster, this is called again, for the next sequence.
            self.log.write(what, "intended", thread, sealed[1].head)
            return sealed

        return self._view.append(
            thread,
            write,
            after=after,
            fence=self.owners.token(thread),
            rides_along=rides_along,
        )

    def _seal(
        self, payload: bytes, place: Place, fields: _Fields, previous: str | None
    ) -> tuple[bytes, Opened]:
        key, now, options = self.keys.signing, datetime.now(UTC), fields._asdict()
        if self.cipher is not None and fields.kind in ("state", "note"):
            options["cipher"], payload = self._encrypt(self.cipher, payload, place)
        return seal(payload, place, key, created=now, previous=previous, **options)

    def _encrypt(self, cipher: Cipher, plain: bytes, place: Place) -> tuple[str, bytes]:
        most = self.codec.limits.state_bytes + 2048
        with translated("The cipher could not encrypt the state", to=EncodeError):
            closed = cipher.close(plain, place)
            if type(closed[1]) is not bytes or not KEY_ID.fullmatch(closed[0]):
                raise TypeError
        if len(closed[1]) > most:
            raise LimitExceeded(
                f"{place} has {len(closed[1])} bytes once it is encrypted, over the limit of"
                f" {most}."
            )
        return closed

    # --- load

    def load(self, thread: str, sequence: int | Head) -> Checkpoint:
        """Return the record at `sequence`, verified: a state or a note, as its `kind` says.

        It follows the links from the end of the thread, so it reads every later record. A thief of
        the key cannot replace a record that the anchor has seen.

        Args:
            thread: the thread.
            sequence: the sequence; or the `Head` of a record that you have verified before: then
                its digest is checked and no other record is read, not even a later one that
                deletes the thread.

        Raises:
            InvalidId: the thread or the sequence is outside its grammar.
            NotFound: there is none.
            ThreadDeleted: the thread was deleted.
            SealBroken: it, or one that follows it, does not verify. Nothing in it was decoded.
            RolledBack: the storage contradicts the anchor.
            DecodeError: it holds a type that this ledger's codec does not know.
        """
        check_name("thread", thread)
        check_sequence(sequence.sequence if isinstance(sequence, Head) else sequence)
        with self.log.watching("verify", thread, quiet=READING):
            return self._decode(self._view.at(thread, sequence))

    def latest(self, thread: str) -> Checkpoint:
        """Return the newest state, verified. It never falls back to an older one.

        If notes follow it, they are verified as well, from the end of the thread back to the state.

        Raises:
            NotFound: the thread has no checkpoint.
            ThreadDeleted: the thread was deleted.
            SealBroken: the newest one does not verify.
            RolledBack: it does not extend what the anchor has seen.
            DecodeError: it holds a type that this ledger's codec does not know.
        """
        check_name("thread", thread)
        with self.log.watching("verify", thread, quiet=READING):
            return self._decode(self._view.at(thread))

    def history(self, thread: str) -> Iterator[Checkpoint]:
        """Return each state, oldest first, once the whole thread is verified.

        Notes are verified but not returned: `back` returns both.

        Raises:
            SealBroken: one does not verify. None was handed out.
            NotFound: the next one was pruned while you looked at the last.
            RolledBack: the storage contradicts the anchor.
        """
        check_name("thread", thread)
        with self.log.watching("verify", thread, quiet=READING):
            for opened in islice(self._view.back(thread), 1):
                refuse_deleted(opened)  # a tombstone is last, and must be seen first
            for opened in self._view.forward(thread):
                if opened.header.kind != "note":
                    yield self._decode(opened)

    def back(self, thread: str) -> Iterator[Link]:
        """Return each state and note, newest first, each verified by its successor.

        Every record is read and verified, but a state is decoded only when you access it, so
        searching for a record is cheap.

        ```python
        from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey

        keys = Keyring(SigningKey.generate())
        ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
        ledger.save("order-7", {"amount": 42}, label="fetch-1")
        ledger.note("order-7", {"mail": "pending"})
        for link in ledger.back("order-7"):
            print(link.sequence, link.kind, link.label, link.state)
            #> 2 note  {'mail': 'pending'}
            #> 1 state fetch-1 {'amount': 42}
        print(ledger.latest("order-7").state)
        #> {'amount': 42}
        ```

        Raises:
            NotFound: the thread has none, or the next one was pruned meanwhile.
            SealBroken: one does not verify. Those after it were already handed out.
            RolledBack: the storage contradicts the anchor.
        """
        check_name("thread", thread)
        with self.log.watching("verify", thread, quiet=READING):
            opened = None
            for opened in self._view.back(thread):
                refuse_deleted(opened)
                yield Link(opened, self._decode)
            if opened is None:
                self._view.at(thread)  # which says that there is none

    def threads(self) -> list[str]:
        """Return the names of the threads in the storage or in the anchor, sorted.

        The names are not verified. A removed thread is listed if it was anchored.
        """
        return self._view.threads()

    def tenants(self) -> list[str]:
        """Return the names of the tenants in the storage or in the anchor, sorted.

        As with `threads`, a tenant whose records were removed is listed if it was anchored. The
        ledger of a tenant returns none.
        """
        return self._view.tenants()

    def _decode(self, opened: Opened) -> Checkpoint:
        refuse_deleted(opened)
        opened = check_signed(opened, self._view.keys, "record")
        return opened.checkpoint(self.codec.decode(plain_of(opened, self.cipher)))

    # --- verify and anchor

    def verify(self, thread: str, *, anchor: bool = False) -> int:
        """Verify each record of a thread, including notes, and each link, without decoding any.

        Args:
            thread: the thread.
            anchor: then move the anchor to the end of the thread. Use it for a thread from before
                there was an anchor, or whose writer died between its two writes. A save does it by
                itself.

        Returns:
            The number of records; 0 for an unknown thread.

        Raises:
            ConfigurationError: it is to be anchored, and there is no anchor.
            SealBroken: one does not verify, or does not follow the one before it.
            RolledBack: the storage contradicts the anchor.
        """
        check_name("thread", thread)
        if anchor:
            self._anchor()
        with self.log.watching("verify", thread):
            return self._view.verify(thread, anchor=anchor)

    def anchored(self, thread: str) -> Head | None:
        """Return the anchor's head of a thread, or None if there is none.

        Raises:
            Unavailable: it cannot be asked.
        """
        return self._view.anchored(check_name("thread", thread))

    def accept_loss(self, thread: str) -> tuple[Head | None, Head | None]:
        """Verify a thread as it is in the storage, and set the anchor back to its end.

        For an operator who restored a backup and knows what is missing. Afterwards nobody can
        detect that there was more, not even that the thread was deleted, or what its journal had:
        if that has no anchor of its own, it is set back to the journal's end as well. Stop the
        writers first, and save once afterwards: until then, the lost records still fit, if someone
        kept them.

        Returns:
            The anchor's head before and after.

        Raises:
            ConfigurationError: there is no anchor, or it cannot be set back.
            CheckpointError: what is there does not verify.
        """
        check_name("thread", thread)
        anchor = require(self._anchor(), RewindingAnchor, "cannot be set back")
        before, bare = self._view.anchored(thread), self._make_view(None)
        with self.log.watching("accept-loss", thread):
            after = None
            bare.base(thread)  # even if no record is left
            for opened in bare.back(thread, every_signature=True):
                after = after or opened.head
        detail = f"from {before or 'none'} to {after or 'none'}"
        with self.log.doing("accept-loss", thread, detail=detail):
            with anchor_errors("be set back for", thread):
                journal = None if self.journal and self.journal.anchor else self.journal
                end = journal.end(thread) if journal else None  # verified before anything moves
                anchor.rewind(self.store, thread, after)
                if journal:
                    anchor.rewind(journal_of(self.store), thread, end)
            self._view.known.pop(thread, None)
            return before, after

    def _anchor(self) -> Anchor:
        if self.anchor is None:
            raise ConfigurationError(
                "This ledger has no anchor.", "Write Ledger(..., anchor=SQLiteAnchor(path))."
            )
        return self.anchor

    def _retention(self) -> RetentionStorage:
        kept: RetentionStorage = require(self.storage, RetentionStorage, "keeps everything")
        return kept

    # --- forget

    def prune(self, thread: str, *, keep: int, since: int | None = None) -> int:
        """Verify a thread, then remove all but the newest `keep` states and what follows them.

        A signed base says where the thread begins now, so the rest still verifies. A deleted thread
        is left as it is: use `erase`.

        Args:
            thread: the thread.
            keep: how many of the newest states to keep.
            since: also keep everything from this sequence on.

        Returns:
            How many records were removed.

        Raises:
            ConfigurationError: the storage cannot remove records, or `keep` is not 1 or more.
            NotFound: the thread has no checkpoint.
            CheckpointError: the thread does not verify. Nothing was removed.
        """
        if type(keep) is not int or keep < 1:
            raise ConfigurationError(f"keep must be a whole number from 1 up, not {quoted(keep)}.")
        self._retention()
        if self._verified_end(thread).header.kind == "deleted":
            return 0  # `erase` is for that
        needed = MAX_SEQUENCE if since is None else check_sequence(since)
        first = self._view.first_to_keep(thread, keep, needed)
        if first is None or first.header.sequence == 1:
            return 0
        detail = f"keep from #{first.header.sequence} on"
        with self.log.doing("prune", thread, detail=detail):
            return self._cut(first)

    def delete(self, thread: str) -> Head:
        """Delete a thread: append a signed tombstone, which is anchored at once.

        Any writer of the thread may delete it; on PostgreSQL it must own the thread first. From
        then on nobody can load or continue the thread, and its name stays taken. Nothing is removed
        yet: until `erase`, the storage still contains the earlier states. If it was interrupted,
        call it again.

        Returns:
            The head of the thread: its tombstone.

        Raises:
            NotFound: the thread has no checkpoint.
            CheckpointError: the thread does not verify, or the tombstone could not be written. It
                is not deleted.
            Unavailable: the tombstone is saved but not anchored.
            RolledBack: the anchor has another history, perhaps after the tombstone was saved.
        """
        opened = self._verified_end(thread)
        if opened.header.kind == "deleted":
            return opened.head
        with self.log.watching("delete", thread, opened.head):
            return self._append(thread, _NOTHING, _Fields("deleted"), opened.head).head

    def _verified_end(self, thread: str) -> Opened:
        """Verify a thread, anchor its end, and return its newest record, even a tombstone.

        It is anchored before anything is removed: no base names a record that the anchor has not
        seen.
        """
        self.verify(thread, anchor=self.anchor is not None)
        return next(self._view.back(thread), None) or self._view.at(thread)  # which says that none

    def erase(self, thread: str) -> int:
        """Remove everything before the tombstone of a deleted thread.

        When this returns, the storage has only the tombstone and a base; a backup, a replica or the
        disk may still have the states. A storage may allow this only to an operator: then nothing
        is erased, and the thread stays deleted. If it was interrupted, call it again.

        Returns:
            How many records were removed.

        Raises:
            ConfigurationError: the thread is not deleted, or the storage cannot remove records.
            NotFound: the thread has no checkpoint.
            Unavailable: this login may not; or the records are removed, and their bytes are still
                in the log of an SQLite database that another program uses. The message says what to
                do.
            CheckpointError: the thread does not verify. Nothing was removed.
        """
        self._retention()
        opened = self._verified_end(thread)
        if opened.header.kind != "deleted":
            raise ConfigurationError(
                f"{thread} is not deleted, so nothing of it is erased.",
                "Call Ledger.delete first; to shorten a thread that continues, Ledger.prune.",
            )
        with self.log.doing("erase", thread, opened.head):
            removed = self._cut(opened)
            if isinstance(self.storage, PurgingStorage):
                with storage_errors("purge", thread):
                    removed += self.storage.purge(thread)
            return removed

    def _cut(self, first: Opened) -> int:
        """Remove the records before one, leave a signed base, and return how many were removed."""
        place = first.header.place
        base, _ = self._seal(_NOTHING, place, _Fields("base"), first.header.previous)
        with storage_errors("prune", place.thread):
            return self._retention().prune(place.thread, place.sequence, base)

    # --- keys, and copies under another key

    def rotated(self, keys: Keyring) -> Ledger:
        """Return a ledger of the same store with another keyring, and record that.

        Raises:
            Unsafe: a key is inside the storage folder.
            Unavailable: it cannot be written down.
        """
        following = self._like(keys=keys)  # it keeps the leases of this ledger
        detail = f"from {self.keys!r} to {keys!r}"
        with self.log.doing("rotate", detail=detail):
            return following

    def copy_to(
        self,
        target: Ledger,
        *,
        threads: Iterable[str] | None = None,
        up_to: Heads | None = None,
    ) -> int:
        """Verify each thread, and copy it to the target's storage, sealed by the target's key.

        The links do not depend on the key, so an anchor stays valid; the target's own anchor is
        moved. A record that is there already, as this would write it, is left as it is: repeat an
        interrupted copy with the same keys. Stop the writers first. Holds, denials and the journal
        are not in the threads: they need a copy of their own.

        Args:
            target: the ledger to copy to. Ciphertext is copied as it is: use the same cipher.
            threads: the threads to copy; by default all, including those of each tenant.
            up_to: an anchor from before a key was stolen. Each thread is copied up to the head in
                that anchor; a thread that is not in it is skipped.

        Returns:
            How many records were copied or were already there.

        Raises:
            ConfigurationError: the target is another store, or the same storage.
            Conflict: the target has another record at some place.
            CheckpointError: a thread does not verify. Unless somebody changed it meanwhile, nothing
                of it was copied.
        """
        ours, theirs = (Place(each.store, each.tenant_name, "", 0) for each in (self, target))
        if theirs != ours:
            raise ConfigurationError(
                f"Cannot copy from {ours.scope} to {theirs.scope}: the names differ."
            )
        if is_same(self.storage, target.storage):
            raise ConfigurationError(
                "Source and target are the same storage, so nothing would be sealed again."
            )
        if up_to is not None and self.tenant_name:
            up_to = scoped(up_to, self.tenant_name)
        names = self.threads() if threads is None else [check_name("thread", t) for t in threads]
        tenants = self.tenants() if threads is None else []
        scopes = [(self.tenant(name), target.tenant(name)) for name in tenants]
        done = 0
        for thread in names:
            with (
                self.log.doing("copy", thread, detail=f"to {target!r}"),
                target.log.doing("copy", thread, detail=f"from {self!r}"),
            ):
                done += self._copy(target, thread, up_to)
        return done + sum(scope.copy_to(other, up_to=up_to) for scope, other in scopes)

    def _copy(self, target: Ledger, thread: str, up_to: Heads | None) -> int:
        """Verify a thread, then copy each record, or find it in the target as it would be."""
        end = None if up_to is None else read_head(up_to, self.store, thread)
        if up_to is not None and end is None:
            return 0
        ours = digests_of(self._view.back(thread, end=end, every_signature=True))
        first, last, seen = min(ours, default=1), max(ours, default=0), target.anchored(thread)
        if seen is not None and seen.sequence <= last and ours.get(seen.sequence) != seen.digest:
            raise _differs(thread, seen.sequence)  # or the anchor would move to another history
        with storage_errors("find the latest of", thread):
            is_new = target._view.base(thread) is None and not target.storage.head(thread)
        for opened in self._view.forward(thread, ours):
            place, record = opened.header.place, reseal(opened, target.keys.signing)
            with storage_errors("keep", place):
                try:
                    if is_new and place.sequence == first > 1:
                        target._cut(opened)
                    target.storage.append(thread, place.sequence, record)
                except (Conflict, NotFound, RolledBack):
                    with suppress(NotFound):  # one signature of one key is like another
                        if target.storage.read(thread, place.sequence) == record:
                            continue
                    raise _differs(thread, place.sequence) from None
        if last and target.anchor is not None:
            with anchor_errors("be moved for", thread):
                target.anchor.advance(self.store, thread, Head(last, ours[last]))
        return len(ours)

    # --- who writes a thread

    def own(self, thread: str, worker: str, *, seconds: float = 60.0) -> Owned:
        """Own a thread: from now on the storage refuses saves by anyone else.

        Use it in a `with`. The storage numbers the owners, so it recognizes a former owner that was
        paused or cut off by the number in its saves. Each step of a workflow renews the lease
        before it runs.

        Args:
            thread: the thread, which may be new.
            worker: the unique name of this worker. Another worker with the same name would take the
                thread at once, with a new token.
            seconds: how long without renewal before another worker may take the thread.

        Raises:
            NotOwner: another worker owns it.
            ConfigurationError: the storage knows no owners, or `seconds` is not a time.
            Unavailable: it cannot be written down.
        """
        return self.owners.own(thread, worker, seconds)


def with_codec(ledger: Ledger, codec: Codec) -> Ledger:
    """Return a ledger of the same store and the same worker, with another codec.

    An adapter uses it to add the types of its framework.
    """
    return ledger._like(codec=codec)  # noqa: SLF001  the other half of the class


def _differs(thread: str, sequence: int) -> Conflict:
    return Conflict(
        f"{thread} #{sequence} is another record in the storage to copy to, or was pruned there.",
        "Copy into a new, empty storage.",
    )


class _Fields(NamedTuple):
    """The fields of a header that a caller chooses."""

    kind: Kind
    app: str = ""
    tools: str | None = None
    label: str = ""


class Link:
    """A verified record from `back`. Its state is decoded when you access it.

    Attributes:
        header: line 2: `app`, `created`, `previous`, `tools` and the rest.
        digest: the digest of line 2, which the next record names.
        sequence: its sequence in the thread.
        kind: `state` or `note`.
        label: a word chosen by its writer, or "".
        opened: the verified record with its encoded state.
    """

    def __init__(self, opened: Opened, decode: Callable[[Opened], Checkpoint]) -> None:
        self.header = header = opened.header
        self.sequence, self.kind, self.label = header.sequence, header.kind, header.label
        self.digest = opened.digest
        self.opened, self._decode = opened, decode

    def __repr__(self) -> str:
        return f"Link({self.header.place}, {self.kind}, label={self.label!r})"

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The decoded checkpoint.

        Raises:
            DecodeError: it holds a type that the ledger's codec does not know.
        """
        return self._decode(self.opened)

    @property
    def state(self) -> Any:
        """The decoded state or note."""
        return self.checkpoint.state


# --- what a ledger writes down

NO_NEWS = (InvalidId, ConfigurationError)
"""Errors of the caller, which say nothing about the store."""

READING = (*NO_NEWS, NotFound)
"""Errors that are not recorded when someone only reads."""

RESUMING = (InvalidId,)
"""Errors that are not recorded about a resume."""


class Log:
    """A journal for one store and one actor. Without a journal, nothing is written.

    It does not anchor what it writes, unless the journal has an anchor of its own. Entries about
    answers are anchored by `Journal.anchor_end` before the answer counts.

    Args:
        journal: where to write, or None.
        actor: who acts.
        store: the name of the store.
        tenant: the tenant of the threads, or "".
    """

    def __init__(
        self, journal: Journal | None, actor: Actor | None, store: str, tenant: str = ""
    ) -> None:
        self.journal = journal
        self.actor = actor if actor is not None or journal is None else Actor.process()
        self.store = store
        self.tenant = tenant

    def write(
        self,
        what: What,
        outcome: EventOutcome,
        thread: str | None = None,
        at: Head | None = None,
        detail: str = "",
        *,
        actor: Actor | None = None,
    ) -> None:
        """Write one entry.

        Raises:
            Unavailable: that is not possible, so what was intended must not happen; or it has
                happened, and the message says so.
        """
        who = actor or self.actor
        if self.journal is None or who is None:
            return
        known = (None, None) if at is None else (at.sequence, at.digest)
        rest = *known, detail, self.tenant
        event = Event(what, outcome, who, self.store, thread, *rest)
        try:
            with translated("The journal could not be written", "journal"):
                self.journal.record(event)
        except CheckpointError as error:
            if outcome != "done":
                raise
            raise Unavailable(
                f"It is done ({what}), but the journal could not be written. {error.what}",
                "The change was not undone: look at the thread before you repeat it.",
                "journal",
            ) from error

    @contextmanager
    def watching(
        self,
        what: What,
        thread: str | None = None,
        at: Head | None = None,
        quiet: tuple[type[CheckpointError], ...] = NO_NEWS,
    ) -> Iterator[None]:
        """Record each error in this block, except the `quiet` ones."""
        try:
            yield
        except CheckpointError as error:
            if not isinstance(error, quiet) and error.kind != "journal":
                with suppress(CheckpointError):  # the refusal stands, whether or not this succeeds
                    self.refuse(what, thread, error, at)
            raise

    def refuse(
        self, what: What, thread: str | None, error: CheckpointError, at: Head | None = None
    ) -> None:
        """Record that something was refused, and why."""
        # What differs between two questions is for whoever asked: it may be an argument.
        other = error.kind == "mismatch"
        why = "it answers another question." if other else error.what
        self.write(what, "refused", thread, at, f"{type(error).__name__}: {why}")

    @contextmanager
    def doing(
        self, what: What, thread: str | None = None, at: Head | None = None, detail: str = ""
    ) -> Iterator[None]:
        """Record the intention, run the block, and record the outcome.

        Raises:
            Unavailable: it cannot be written down, so it does not happen. At the end of the
                block, that it happened cannot be.
        """
        self.write(what, "intended", thread, at, detail)
        with self.watching(what, thread, at):
            yield
        self.write(what, "done", thread, at, detail)


# --- leases: who may write a thread


@dataclass(eq=False)
class Owners:
    """The leases on the threads of one ledger. The ledgers of one worker share theirs.

    Attributes:
        storage: where the leases are, if it is a `LeasingStorage`.
        tenant: the tenant of the threads, or "".
        log: where each owner is recorded.
        worker: the name under which the first write takes a lease; None to take none.
        seconds: how long such a lease lasts. A write renews it after half of that time.
        threads: the lease of each thread, by process, tenant and thread.

    Raises:
        ConfigurationError: a worker is named, and the storage knows no owners.
    """

    storage: CheckpointStorage
    tenant: str
    log: Log
    worker: str | None
    seconds: float
    threads: dict[tuple[int, str, str], Owned] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        if self.worker is not None:
            check_name("worker", self.worker)
            self.leasing()

    def own(self, thread: str, worker: str, seconds: float) -> Owned:
        """Take the lease of a thread, as `Ledger.own` says."""
        storage, at = self.leasing(), self.at(check_name("thread", thread))
        if at in self.threads:
            raise ConfigurationError(f"This ledger owns {thread} already.")
        with self.log.watching("own", thread), storage_errors("lease", thread):
            lease = storage.acquire(thread, worker, seconds)
        try:
            detail = f"{lease.owner} with token {lease.token}"
            self.log.write("own", "done", thread, detail=detail)
        except BaseException:
            storage.release(lease)
            raise
        self.threads[at] = owned = Owned(self, lease, seconds)
        return owned

    def token(self, thread: str) -> int | None:
        """Return the token to save with and take or renew the lease if necessary."""
        at = self.at(thread)
        owned = self.threads.get(at)
        if self.worker is not None:
            if owned is None:
                with self.lock:  # or two threads of this process would fence each other off
                    owned = self.threads.get(at) or self.own(thread, self.worker, self.seconds)
            elif time.monotonic() - owned.renewed > owned.seconds / 2:
                owned.renew()
        return None if owned is None else owned.lease.token

    def keep(self, thread: str) -> None:
        """Renew the lease on a thread, or take it, before a step acts.

        An expired lease counts until another worker takes the thread: until then the storage
        refuses saves by anyone else.

        Raises:
            NotOwner: another worker holds it.
        """
        if owned := self.threads.get(self.at(thread)):
            owned.renew()
            return
        if self.token(thread) is not None:
            return
        why, storage = "", self.storage
        with storage_errors("find the owner of", thread):
            if isinstance(storage, LeasingStorage) and (lease := storage.lease(thread)):
                why = f"is held by worker '{lease.owner}' until {lease.expires:%H:%M:%S} UTC"
            elif isinstance(storage, LoginStorage) and storage.foreign(thread):
                why = "was written by another login, and this one has not acquired it"
        if why:
            raise NotOwner(f"Thread '{thread}' {why}.")

    def release(self, thread: str | None = None) -> None:
        """Release a thread of this worker, or all of them.

        If another worker has taken it in the meantime, it stays theirs.
        """
        for at, owned in list(self.threads.items()):
            if at == self.at(at[2] if thread is None else thread):
                owned.release()

    def at(self, thread: str) -> tuple[int, str, str]:
        """Return where its lease is. What was taken before a fork stays with the parent."""
        return os.getpid(), self.tenant, thread

    def leasing(self) -> LeasingStorage:
        """Return the storage, if it knows owners."""
        storage: LeasingStorage = require(self.storage, LeasingStorage, "knows no owners")
        return storage


@dataclass(eq=False)
class Owned(AbstractContextManager["Owned"]):
    """A thread that a ledger owns, until the end of a `with`.

    Attributes:
        owners: the leases of the ledger that owns it.
        lease: the lease as it was last renewed.
        seconds: for how long it is renewed before each step.
    """

    owners: Owners = field(repr=False)
    lease: Lease
    seconds: float
    renewed: float = field(default_factory=time.monotonic, init=False, repr=False)

    def release(self) -> None:
        """Release the thread, once. If another worker has taken it, it stays theirs."""
        thread, owners = self.lease.thread, self.owners
        if owners.threads.get(at := owners.at(thread)) is self:
            del owners.threads[at]
            with suppress(NotOwner), storage_errors("release", thread):
                owners.leasing().release(self.lease)

    def renew(self) -> None:
        """Renew the lease for as many seconds from now."""
        thread, owners = self.lease.thread, self.owners
        with owners.log.watching("own", thread), storage_errors("lease", thread):
            self.lease = owners.leasing().renew(self.lease, self.seconds)
        self.renewed = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.release()
