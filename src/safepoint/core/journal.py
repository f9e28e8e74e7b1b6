"""The journal, or audit log: who did what, when. It is made of sealed records with their own key.

Each entry is a record in a separate storage, signed for the use `journal`: the checkpoint key never
signs an entry, and a checkpoint never opens as one. The entries about one thread form one chain,
with the thread's name, so writers of different threads do not wait for each other. Entries about a
tenant are scoped to that tenant in the storage, in the anchor and in the sealed place.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from heapq import merge
from pathlib import Path
from typing import Final, Literal, Self, get_args

from safepoint.core.anchor import Anchor
from safepoint.core.chain import View, check_apart, digests_of
from safepoint.core.codec import read_json, write_json
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    DecodeError,
    EncodeError,
    InvalidId,
    LimitExceeded,
    NotFound,
    RolledBack,
    SealBroken,
    Unavailable,
    Unsafe,
    quoted,
)
from safepoint.core.keys import Keyring, SigningKey
from safepoint.core.names import (
    JOURNAL,
    Head,
    Limits,
    check_name,
    check_sequence,
    check_tenant,
    is_digest,
    journal_of,
    stamp,
    with_tenant,
)
from safepoint.core.record import Opened, Place, seal
from safepoint.core.storage import CheckpointStorage, Closing, InMemoryCheckpointStorage

MAX_TEXT: Final = 256
_PART: Final = 64


@dataclass(frozen=True, slots=True)
class Actor:
    """The person or process that acts, and how that was established.

    ```python
    from safepoint.core.journal import Actor

    print(Actor("ana@example.org", how="token of the identity provider"))
    #> 'ana@example.org' (by 'token of the identity provider')
    ```

    A journal records what callers claim. A name that the actor could choose freely proves nothing,
    so `how` names the evidence: a login, a certificate, a signature.

    Attributes:
        name: text of at most 256 characters.
        how: what established the name, text of the same length.

    Raises:
        ConfigurationError: one of them is not such a text.
    """

    name: str
    how: str

    def __post_init__(self) -> None:
        for text in (self.name, self.how):
            if not 1 <= len(text) <= MAX_TEXT or _valid(text) != text:
                raise ConfigurationError(
                    f"{quoted(text)} cannot be the name of an actor, or how it is known.",
                    f"Give a text of 1 to {MAX_TEXT} characters, without lone surrogates.",
                )

    @classmethod
    def process(cls) -> Actor:
        """Return the operating system user of this process."""
        user = f"process {os.getpid()}" if sys.platform == "win32" else f"uid {os.geteuid()}"
        host = _valid(platform.node())[:_PART] or "an unnamed host"
        return cls(f"{user} on {host}", "operating system")

    def __str__(self) -> str:
        return f"{self.name!a} (by {self.how!a})"


def _valid(text: str) -> str:
    """Escape lone surrogates, which have no UTF-8 form."""
    return text.encode("utf-8", "backslashreplace").decode()


def _cut_text(detail: str) -> str:
    text = _valid(detail)
    if len(text) <= MAX_DETAIL:
        return text
    mark = f"... ({len(text)} characters)"
    return text[: MAX_DETAIL - len(mark)] + mark


What = Literal[
    "save",
    "verify",
    "resume",
    "pause",
    "approve",
    "deny",
    "expire",
    "hold",
    "act",
    "rotate",
    "prune",
    "delete",
    "erase",
    "move",
    "copy",
    "accept-loss",
    "own",
]
"""What an actor did, or tried to do."""

EventOutcome = Literal["intended", "done", "refused"]
"""How it ended: not yet, well, or with an error, which the detail names."""

WHATS: Final[tuple[str, ...]] = get_args(What)
OUTCOMES: Final[tuple[str, ...]] = get_args(EventOutcome)
MAX_DETAIL: Final = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """An actor, an action, its thread and its outcome.

    ```python
    from safepoint.core.journal import Actor, Event

    event = Event("resume", "refused", Actor("ana", "login"), "invoices", "order-7")
    ```

    Attributes:
        what: one of `WHATS`.
        outcome: "intended" before it is done, then "done" or "refused". A save, a delete, a move,
            an act and the pause of a `Workflow` have no "done": the next record of their thread
            proves them.
        actor: who.
        store: the name of the store that it is about.
        thread: the thread, or None for the whole store.
        sequence: the checkpoint, or None.
        digest: the digest of the record, or None.
        detail: more text, for people. Longer text is cut to 1,000 characters, which is marked, and
            lone surrogates are escaped.
        tenant: the tenant of the thread, or "".

    Raises:
        InvalidId: the store, tenant, thread or sequence is outside its grammar.
        ConfigurationError: another field is of the wrong kind.
    """

    what: What
    outcome: EventOutcome
    actor: Actor
    store: str
    thread: str | None = None
    sequence: int | None = None
    digest: str | None = None
    detail: str = ""
    tenant: str = ""

    def __post_init__(self) -> None:
        choices = self.what in WHATS and self.outcome in OUTCOMES
        if not choices or not (self.digest is None or is_digest(self.digest)):
            raise ConfigurationError(
                f"{quoted(self.what)}, {quoted(self.outcome)} is not an event of an Actor."
            )
        check_name("store", self.store)
        if self.tenant != "":
            check_name("tenant", self.tenant)
        if self.thread is not None:
            check_name("thread", self.thread)
        if self.sequence is not None:
            check_sequence(self.sequence)

    @property
    def chain(self) -> str:
        """The name of its chain: the thread, or `journal` for the whole store."""
        return JOURNAL if self.thread is None else self.thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Event):
    """An event in the journal.

    Attributes:
        number: 1, 2, 3 … in its chain. It gives the order; the time does not.
        at: when it was written, by the writer's clock, in UTC.
    """

    number: int
    at: datetime

    def __str__(self) -> str:
        """Return one line of printable ASCII."""
        place = f"{self.store}/@{self.tenant}" if self.tenant else self.store
        if self.thread is not None:
            place += f"/{self.thread}"
        if self.sequence is not None:
            place += f" #{self.sequence}"
        if self.digest is not None:
            place += f" {self.digest[:19]}"
        line = f"{self.number} {stamp(self.at)} {self.what} {self.outcome} {place} {self.actor}"
        return f"{line}: {self.detail!a}" if self.detail else line


_SAID: Final = tuple(each.name for each in fields(Event))
LIMITS: Final = Limits(state_bytes=32 * 1024)
_FOREIGN: Final = (AttributeError, KeyError, TypeError)  # what fields of another type raise


class Journal(Closing):
    """Records who did what, when, before it counts as done, in any storage.

    An entry is durable when `record` returns. If it cannot be written, `record` raises: then do not
    perform the action. With the key, edited, removed and moved entries are detected. Only with an
    anchor is it detected that the newest entries of a chain, or a whole chain, were removed.

    Args:
        storage: where the entries are; use it only for this journal.
        keys: the key that signs, and older ones that verify. A ring that only verifies can read.
        name: the journal's name, in each entry and in the anchor.
        anchor: where the newest entry of each chain is remembered, out of reach of anyone who
            writes the storage. Answers of people are anchored where their ledger is, if this is
            None.

    Raises:
        ConfigurationError: the anchor is in the same place as the storage.
        Unsafe: a key is inside the storage folder.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        *,
        keys: Keyring,
        name: str = JOURNAL,
        anchor: Anchor | None = None,
    ) -> None:
        check_apart(storage, keys, anchor)
        self.keys, self.anchor = keys, anchor
        self._view = View(storage, check_name("journal", name), keys, anchor, LIMITS, "journal")

    def tenant(self, name: str) -> Self:
        """Return the journal of one tenant, which writes and reads only that tenant's entries.

        Raises:
            InvalidId: the name is outside the grammar.
            ConfigurationError: the storage or the anchor knows no tenants, or this is the journal
                of a tenant already.
        """
        scope = copy(self)
        scope._view = self._view.for_tenant(check_tenant(name, self._view.tenant))  # noqa: SLF001  of our own kind
        return scope

    def anchored_in(self, anchor: Anchor | None, store: str) -> Self:
        """Return this journal with the anchor of a store, unless it has one of its own.

        Raises:
            ConfigurationError: the anchor is in one place with the journal.
        """
        view, anchored = self._view, copy(self)
        if view.anchor is None:
            check_apart(view.storage, view.keys, anchor)
            anchored._view = replace(view, anchor=anchor, anchored_as=journal_of(store))  # noqa: SLF001  of our own kind
        return anchored

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._view.storage!r}, name={self._view.store!r})"

    @property
    def path(self) -> Path | None:
        """Where the entries are in the file system, if they are."""
        return getattr(self._view.storage, "path", None)

    def close(self) -> None:
        """Close its storage, if that can be closed."""
        if isinstance(self._view.storage, Closing):
            self._view.storage.close()

    def record(self, event: Event) -> Entry:
        """Write an event durably, to the chain of its thread and the scope of its tenant.

        Raises:
            ConfigurationError: the storage knows no tenants, or this is another tenant's journal.
            SealBroken: the end of the journal does not verify. Nothing was written.
            Unavailable: it could not be written.
            Unsafe: no key on the ring signs.
        """
        view = self._view.for_tenant(event.tenant)
        key = view.keys.signing
        said = {name: getattr(event, name) for name in _SAID}  # an Entry of another one has more
        said["detail"] = _cut_text(event.detail)
        actor = {"how": event.actor.how, "name": event.actor.name}
        payload, chain = write_json({**said, "actor": actor}, LIMITS.state_bytes), event.chain

        def write(place: Place, previous: str | None) -> tuple[bytes, Opened]:
            now = datetime.now(UTC)
            return seal(payload, place, key, created=now, previous=previous, use="journal")

        with _as_journal_errors():
            done = view.append(chain, write).header
        return Entry(**said, number=done.sequence, at=datetime.fromisoformat(done.created))

    def show(self, *, thread: str | None = None, what: str | None = None) -> Iterator[Entry]:
        """Yield the entries by time, those of all tenants as well, once all of them are verified.

        The entries of one chain stay in order, even if their times are not.

        Args:
            thread: only entries about this thread. Other chains are not read.
            what: only entries of this kind.

        Raises:
            SealBroken: an entry was edited, moved or removed, or a chain ends before what the
                anchor has seen.
            Unavailable: it cannot be read.
        """
        with _as_journal_errors():
            chains = _chains(self._view) if thread is None else [(self._view, thread)]
            shown = ([*map(_entry, view.back(chain))][::-1] for view, chain in chains)
            for entry in merge(*shown, key=lambda each: (each.at, each.tenant, each.chain)):
                if thread in (None, entry.thread) and what in (None, entry.what):
                    yield entry

    def back(self, thread: str) -> Iterator[Entry]:
        """Yield what is about one thread, newest first, verified up to there.

        Raises:
            CheckpointError: as `show` does.
        """
        with _as_journal_errors():
            yield from map(_entry, self._view.back(thread))

    def anchor_end(self, thread: str) -> None:
        """Verify what is about one thread from where the anchor is, and move the anchor to its end.

        Raises:
            CheckpointError: as `show` does.
        """
        with _as_journal_errors():
            self._view.anchor_end(thread)

    def end(self, thread: str) -> Head | None:
        """Verify what is about one thread, and return the head of its last entry.

        Raises:
            CheckpointError: as `show` does.
        """
        with _as_journal_errors():
            return next((Head(*each) for each in digests_of(self._view.back(thread)).items()), None)

    def verify(self) -> int:
        """Verify every entry and every link, and return how many entries there are.

        Raises:
            SealBroken: as `show` does.
        """
        return sum(self.counts().values())

    def counts(self) -> dict[str, int]:
        """Verify every entry and every link, and return how many entries each chain has.

        A chain is identified by its name: `order-7`, or `@acme/order-7` for a tenant's.

        Raises:
            SealBroken: as `show` does.
        """
        with _as_journal_errors():
            return {
                with_tenant(view.tenant, chain): sum(1 for _ in map(_entry, view.back(chain)))
                for view, chain in _chains(self._view)
            }


class InMemoryJournal(Journal):
    """A journal for tests and examples. It is gone with the process."""

    def __init__(self) -> None:
        super().__init__(InMemoryCheckpointStorage(), keys=Keyring(SigningKey.generate()))


def _chains(whole: View) -> Iterator[tuple[View, str]]:
    """Return each chain with its view, including the tenants' chains."""
    for view in (whole, *map(whole.for_tenant, whole.tenants())):
        yield from ((view, chain) for chain in view.threads())


def _entry(opened: Opened) -> Entry:
    """Return the entry that a verified record holds.

    Raises:
        SealBroken: it holds something else, so another program wrote it.
    """
    header, cause = opened.header, None
    try:
        fields = read_json(opened.payload, LIMITS.state_bytes)
        said = {**fields, "actor": Actor(**fields["actor"])}
        created = datetime.fromisoformat(header.created)
        entry = Entry(**said, number=header.sequence, at=created)
        whole = fields.keys() == set(_SAID) and _cut_text(entry.detail) == entry.detail
        here = (entry.tenant, entry.chain) == (header.tenant, header.thread)
        if whole and here:  # show(thread=…) looks there
            return entry
    except (*_FOREIGN, EncodeError, DecodeError, InvalidId, ConfigurationError) as error:
        cause = error
    raise SealBroken(
        f"Entry {header.sequence} of {header.thread} in the journal {header.store} is one that"
        " this release did not write."
    ) from cause


@contextmanager
def _as_journal_errors() -> Iterator[None]:
    """Turn errors of records into errors of the journal."""
    try:
        yield
    except (Unsafe, ConfigurationError):
        raise
    except (SealBroken, NotFound, RolledBack, LimitExceeded) as error:
        raise SealBroken(f"The journal does not verify. {error.what}", kind="journal") from error
    except CheckpointError as error:
        do = error.do if isinstance(error, Unavailable) else None
        raise Unavailable(f"The journal cannot be used. {error.what}", do, "journal") from error
