"""One reading of a ledger: each thread is walked once, and every signature is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from safepoint.audit.finding import Finding, finding, listed, of_tenant, refused
from safepoint.core.chain import plain_of
from safepoint.core.codec import inspect_state
from safepoint.core.errors import (
    ApprovalRefused,
    CheckpointError,
    DecodeError,
    NotFound,
    ResumeRefused,
    RolledBack,
    Unavailable,
)
from safepoint.core.ledger import Ledger
from safepoint.core.names import Head, Limits
from safepoint.core.record import Checkpoint, Opened
from safepoint.resume.approval import Question, peek
from safepoint.resume.asking import SPENT, read_note
from safepoint.resume.workflow import Payload, without_state
from safepoint.shared.explanations import EXPLANATIONS
from safepoint.shared.states import view_of
from safepoint.shared.terminal import tick

_KINDS: Final = {
    "form": "SP02",
    "key": "SP02",
    "missing": "SP13",
    "chain": "SP14",
    "anchor": "SP15",
    "tenant": "SP30",
}
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
        """Whether it is said to end the run: by a denial, or because nobody answered in time."""
        if not self.texts:
            return self.question.until != ""
        return any(peek(text).get("verdict") == "denied" for text in self.texts)


@dataclass(frozen=True, slots=True)
class Frame:
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


class History(NamedTuple):
    """What was read of a thread, up to where it does not verify or cannot be looked into.

    Attributes:
        name: its name.
        entries: what was read.
        refusal: why no more of it verifies, or None.
        hidden: of each state that verifies and cannot be looked into, the key that it says it is
            encrypted under, and the reason.
        head: the sequence of its last record that is not a note.
        keys: how many records each key sealed.
    """

    name: str
    entries: list[Frame]
    refusal: Finding | None
    hidden: list[tuple[str | None, DecodeError]]
    head: int
    keys: Counter[str]

    def findings(self) -> list[Finding]:
        """Return what keeps from looking at it: that it does not verify, or is encrypted."""
        found = [] if self.refusal is None else [self.refusal]
        if self.hidden:
            key, why = min(self.hidden, key=lambda each: each[0] is not None)
            how = {"severity": "warning" if key else "error", "count": len(self.hidden)}
            found.append(finding("SP10.hidden", self.name, why=why.what, do=why.do, **how))
        return found


def all_threads(ledger: Ledger) -> tuple[list[tuple[Ledger, str]], list[Finding]]:
    """Return each thread with the ledger of its tenant; what cannot be listed, and what is mixed.

    A tenant whose threads cannot be listed keeps nobody from the others.

    Raises:
        Unavailable: the storage cannot be listed.
    """
    try:
        names, tenants = ledger.threads(), ledger.tenants()
    except (RolledBack, Unavailable) as refusal:
        if isinstance(refusal, Unavailable) and refusal.kind != "anchor":
            raise
        return [], [refused("SP15", refusal, ledger.store)]
    threads, found = [(ledger, name) for name in names], list[Finding]()
    if names and tenants:  # threads that belong to no tenant, beside those of tenants
        shown = {"tenants": listed(tenants), "threads": listed(names)}
        found.append(finding("SP30.mixed", ledger.store, **shown))
    for tenant in tenants:
        try:
            scope = ledger.tenant(tenant)
            threads += [(scope, name) for name in scope.threads()]
        except CheckpointError as refusal:
            found += of_tenant(tenant, [refused(_rule(refusal), refusal, "")])
    return threads, found


def walk(ledger: Ledger, name: str) -> History:
    """Read a thread once, and check every signature."""
    view = view_of(ledger)
    refusal: CheckpointError
    for _ in range(_ATTEMPTS):
        entries: list[Frame] = []
        hidden: list[tuple[str | None, DecodeError]] = []
        head, keys = 0, Counter[str]()
        try:
            base = view.base(name)
            keys.update([] if base is None else [base.key])
            for opened in view.forward(name):
                tick()
                keys[opened.key] += 1
                head = head if opened.header.kind == "note" else opened.header.sequence
                is_state = opened.header.kind == "state"
                if not is_state and opened.header.label != SPENT:
                    continue
                try:
                    plain = plain_of(opened, ledger.cipher)
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
            return History(name, entries, None, hidden, head, keys)
    found = refused(_rule(refusal), refusal, name)
    return History(name, entries, found, hidden, head, keys)


def _entry(checkpoint: Checkpoint) -> Frame:
    try:
        return Frame(checkpoint, Payload.unpack(checkpoint))
    except ResumeRefused:
        return Frame(checkpoint, Payload({}), is_run=False)


def _spends(opened: Opened, plain: bytes, limits: Limits) -> Iterator[Spend]:
    """Yield what a note spends, if it is one of this package, and about something."""
    with suppress(DecodeError, ApprovalRefused):
        text, signed = read_note(inspect_state(plain, limits))
        yield Spend(opened.checkpoint(None), Question.from_text(text), tuple(signed))


def _rule(refusal: CheckpointError) -> str:
    """Return the rule that a refusal holds up: by its kind, or the first that its error names."""
    named = (each.__name__ for each in type(refusal).__mro__ if each.__name__ in EXPLANATIONS)
    return _KINDS.get(refusal.kind or "") or EXPLANATIONS[next(named)].rules[0]
