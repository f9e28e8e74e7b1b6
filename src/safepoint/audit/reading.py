"""One reading of a ledger: each thread is walked once, and every signature is checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from safepoint.audit.finding import Finding, finding, listed, of_tenant, refused, worst_first
from safepoint.core.chain import View, plain_of
from safepoint.core.codec import inspect_state
from safepoint.core.errors import (
    ApprovalRefused,
    CheckpointError,
    ConfigurationError,
    DecodeError,
    LimitExceeded,
    NotFound,
    ResumeRefused,
    RolledBack,
    SealBroken,
    Unavailable,
    Unsafe,
)
from safepoint.core.keys import Keyring
from safepoint.core.ledger import Ledger
from safepoint.core.names import Head, Limits
from safepoint.core.record import Checkpoint, Cipher, Header, Opened, Place, open_sealed
from safepoint.resume.approval import Question, unverified
from safepoint.resume.asking import SPENT
from safepoint.resume.workflow import Payload, without_state
from safepoint.shared.terminal import tick

_RULES: Final[tuple[tuple[type[CheckpointError], str], ...]] = (
    (Unsafe, "SP04"),
    (LimitExceeded, "SP11"),
    (SealBroken, "SP12"),
    (NotFound, "SP13"),
    (Unavailable, "SP13"),
    (RolledBack, "SP15"),
    (ConfigurationError, "SP15"),
)
_KINDS: Final = {
    "form": "SP02",
    "key": "SP02",
    "revoked": "SP08",
    "missing": "SP13",
    "anchor": "SP15",
}
_SEQUENCE: Final = re.compile(r"#([1-9][0-9]{0,9})\b")
_ATTEMPTS: Final = 3


class Spend(NamedTuple):
    """A note that says that people's answers were used, or that none was needed.

    Attributes:
        checkpoint: the note.
        question: what they were asked.
        texts: what they are said to have signed.
    """

    checkpoint: Checkpoint
    question: Question
    texts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.checkpoint.thread} #{self.checkpoint.sequence}"

    @property
    def is_no(self) -> bool:
        """Whether it is said to end the run: by a no, or because nobody answered in time."""
        if not self.texts:
            return self.question.until != "" and self.question.then == "deny"
        return any(unverified(text).get("verdict") == "denied" for text in self.texts)


@dataclass(frozen=True, slots=True)
class Entry:
    """One verified record, without the state.

    Attributes:
        checkpoint: the record; the state is left out.
        payload: how far the run came, and what it asks.
        is_run: whether a workflow wrote it. If not, the payload says nothing.
        spends: the notes after it that say what people answered.
    """

    checkpoint: Checkpoint
    payload: Payload
    is_run: bool = True
    spends: list[Spend] = field(default_factory=list)

    @property
    def head(self) -> Head:
        """The record, as the end that it once was."""
        return Head(self.checkpoint.sequence, self.checkpoint.digest)

    def __str__(self) -> str:
        return f"{self.checkpoint.thread} #{self.checkpoint.sequence}"


class Thread(NamedTuple):
    """What was read of a thread, up to where it does not verify or cannot be looked into.

    Attributes:
        name: its name.
        entries: what was read.
        refusal: why no more of it verifies, or None.
        hidden: of each state that verifies and cannot be looked into, the key that it says it is
            encrypted under, and the reason.
    """

    name: str
    entries: list[Entry]
    refusal: Finding | None
    hidden: list[tuple[str | None, DecodeError]]

    def findings(self, rule: str) -> list[Finding]:
        """Return what keeps from looking at it: that it does not verify, or is encrypted."""
        found = [] if self.refusal is None else [self.refusal]
        if self.hidden:
            key, why = min(self.hidden, key=lambda each: each[0] is not None)
            how = {"severity": "warning" if key else "error", "count": len(self.hidden)}
            found.append(finding(f"{rule}.hidden", self.name, why=why.what, do=why.do, **how))
        return found


def check_records(ledger: Ledger) -> list[Finding]:
    """Verify each thread of a store from its first checkpoint to its last, each by its own seal.

    Those of its tenants are verified, too, unless the ledger is that of one tenant.
    Nothing is changed, and no state is decoded: the ledger needs the keys, but not your types.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.audit import check_records

    storage = InMemoryCheckpointStorage()
    storage.append("order-7", 1, b'{"amount": 42}')
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    for finding in check_records(ledger):
        print(finding.rule, finding.severity, finding.what)
        #> SP02 error order-7 #1 is not a sealed record.
    storage = InMemoryCheckpointStorage()
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    ledger.save("order-7", {"amount": 42})
    print(check_records(ledger))
    #> []
    ```

    Args:
        ledger: the store, with its keys and its anchor.

    Returns:
        The first refusal of each thread that has one, as an error under the rule that it breaks:
        SP02 if nobody you trust sealed the record, SP08 if a key did that is revoked, SP11 if it
        is over a limit, SP12 if the seal is broken or of another place, SP13 if records are
        missing or cannot be read, SP14 if a genuine record does not follow the one before it, SP15
        if the anchor knows better or cannot be asked, SP30 if it is a record of another tenant, and
        SP04 if others could change the file. A
        warning under SP10 for a thread with states that the ledger has no cipher or key for, and an
        error for one with plain states where the ledger has a cipher: seals and links are verified
        all the same, and its runs cannot be looked at from there on.

    Raises:
        Unavailable: the storage cannot be listed.
    """
    return read(ledger, lambda thread: thread.findings("SP10"))


def check_tenants(ledger: Ledger) -> list[Finding]:
    """Find records that lie with another tenant than they were sealed for, and threads of nobody.

    Nothing is changed. Whether an application takes the tenant from a request, no store can tell.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.audit import check_tenants

    storage, keys = InMemoryCheckpointStorage(), Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="invoices", keys=keys)
    ledger.tenant("acme").save("order-7", {"amount": 42})
    print(check_tenants(ledger))
    #> []
    ledger.save("order-8", {"amount": 43})
    print(check_tenants(ledger)[0].what)
    #> invoices has tenants (acme), and threads that are no tenant's: order-8.
    ```

    Args:
        ledger: the store as a whole, with its keys and its anchor.

    Returns:
        Under SP30, an error for each thread with a record of another tenant, or of none where
        there should be one, and a warning if some threads have a tenant and others do not.

    Raises:
        Unavailable: the storage cannot be listed.
    """
    moved = (each for each in check_records(ledger) if each.rule == "SP30")
    return worst_first([*moved, *mixed(ledger)])


def mixed(ledger: Ledger) -> list[Finding]:
    """Find threads that belong to no tenant, beside those of tenants."""
    with suppress(RolledBack, Unavailable):  # which check_records reports
        threads, tenants = ledger.threads(), ledger.tenants()
        if threads and tenants:
            shown = {"tenants": listed(tenants), "threads": listed(threads)}
            return [finding("SP30.mixed", ledger.store, **shown)]
    return []


def read(ledger: Ledger, look: Callable[[Thread], Iterable[Finding]]) -> list[Finding]:
    """Walk each thread once, those of the tenants too, and return what is found in it.

    Raises:
        Unavailable: the storage cannot be listed.
    """
    threads, found = all_threads(ledger)
    for scope, name in threads:
        found += of_tenant(scope.tenant_name, look(_walked(view_of(scope), name, scope.cipher)))
    return worst_first(found)


def all_threads(ledger: Ledger) -> tuple[list[tuple[Ledger, str]], list[Finding]]:
    """Return each thread with the ledger of its tenant, and what cannot be listed.

    A tenant whose threads cannot be listed keeps nobody from the others.

    Raises:
        Unavailable: the storage cannot be listed.
    """
    try:
        threads, tenants = [(ledger, name) for name in ledger.threads()], ledger.tenants()
    except (RolledBack, Unavailable) as refusal:
        if isinstance(refusal, Unavailable) and refusal.kind != "anchor":
            raise
        return [], [refused("SP15", refusal, ledger.store)]
    found: list[Finding] = []
    for tenant in tenants:
        try:
            scope = ledger.tenant(tenant)
            threads += [(scope, name) for name in scope.threads()]
        except CheckpointError as refusal:
            found += of_tenant(tenant, [refused(_kind(refusal), refusal, "")])
    return threads, found


def _walked(view: View, name: str, cipher: Cipher | None) -> Thread:
    refusal: CheckpointError
    for _ in range(_ATTEMPTS):
        entries: list[Entry] = []
        hidden: list[tuple[str | None, DecodeError]] = []
        try:
            for opened in view.forward(name, every_signature=True):
                tick()
                is_state = opened.header.kind == "state"
                if not is_state and opened.header.label != SPENT:
                    continue
                try:
                    plain = plain_of(opened, cipher)
                    state = without_state(plain, view.limits) if is_state else None
                except DecodeError as error:
                    hidden.append((opened.header.cipher, error))
                    continue
                if is_state and not hidden:
                    entries.append(_entry(opened.checkpoint(state)))
                elif entries and not hidden:
                    entries[-1].spends.extend(_spends(opened, plain, view.limits))
        except NotFound as error:
            refusal = error  # if it was pruned meanwhile, it is walked again
        except CheckpointError as error:
            refusal = error
            break
        else:
            return Thread(name, entries, None, hidden)
    return Thread(name, entries, refused(_rule(view, name, refusal), refusal, name), hidden)


def view_of(ledger: Ledger, keys: Keyring | None = None) -> View:
    """Return a view of the ledger's storage that remembers nothing of what it saw before."""
    trusted = ledger.keys if keys is None else keys
    limits, tenant = ledger.codec.limits, ledger.tenant_name
    return View(ledger.storage, ledger.store, trusted, ledger.anchor, limits, tenant=tenant)


def _entry(checkpoint: Checkpoint) -> Entry:
    try:
        return Entry(checkpoint, Payload.unpack(checkpoint))
    except ResumeRefused:
        return Entry(checkpoint, Payload({}), is_run=False)


def _spends(opened: Opened, plain: bytes, limits: Limits) -> Iterator[Spend]:
    """Yield what a note spends, if it is one of this package, and about something."""
    with suppress(DecodeError, ApprovalRefused, AttributeError, TypeError):
        found = inspect_state(plain, limits)
        texts = tuple(found.get("statements"))
        if all(isinstance(text, str) for text in texts):
            yield Spend(opened.checkpoint(None), Question.from_text(found.get("question")), texts)


def _kind(refusal: CheckpointError) -> str:
    by_class = (rule for kind, rule in _RULES if isinstance(refusal, kind))
    return _KINDS.get(refusal.kind or "") or next(by_class, "SP02")


def _rule(view: View, thread: str, refusal: CheckpointError) -> str:
    rule = _kind(refusal)
    named = _SEQUENCE.search(refusal.what)
    if rule == "SP12" and named is not None:
        with suppress(CheckpointError):
            if refusal.kind == "place":
                found = Header.parse(view.storage.read(thread, int(named[1])).split(b"\n")[1])
                if found is not None and found.tenant != view.tenant:
                    return "SP30"
            place = Place(view.store, view.tenant, thread, int(named[1]))
            record = view.storage.read(thread, place.sequence)
            open_sealed(record, place, view.keys, limits=view.limits)
            return "SP14"  # the record stands by itself, so it is its link that is broken
    return rule
