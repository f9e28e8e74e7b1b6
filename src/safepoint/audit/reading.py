"""One reading of a ledger: each thread is walked once, every signature checked, by all checks.

The writer's key seals every record, so a seal does not prove that anybody was asked. The checks go
by what the records hold, and never by what they say of themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from safepoint.audit.finding import Finding, finding, refused, worst_first
from safepoint.codec import Codec, check_shape
from safepoint.errors import (
    AnchorError,
    CheckpointError,
    KeyRevoked,
    LimitExceeded,
    NotFound,
    RecordsMissing,
    SealBroken,
    StorageUnavailable,
    UnsafeLocation,
    WorkflowMismatch,
    WrongPlace,
)
from safepoint.keys import Keyring
from safepoint.ledger import Ledger
from safepoint.names import Head, Limits
from safepoint.record import Checkpoint, Opened
from safepoint.verify import Progress, View
from safepoint.workflow import Payload, Resumed

_RULES: Final[tuple[tuple[type[CheckpointError], str], ...]] = (
    (UnsafeLocation, "SP04"),
    (KeyRevoked, "SP08"),
    (LimitExceeded, "SP11"),
    (SealBroken, "SP12"),
    (WrongPlace, "SP12"),
    (RecordsMissing, "SP13"),
    (NotFound, "SP13"),
    (StorageUnavailable, "SP13"),
    (AnchorError, "SP15"),
)
_SEQUENCE: Final = re.compile(r"#([1-9][0-9]{0,9})\b")
_ATTEMPTS: Final = 3
_CODEC: Final = Codec()


@dataclass(frozen=True, slots=True)
class Entry:
    """One verified record, without the state.

    Attributes:
        checkpoint: the record; the state is left out.
        payload: how far the run came, and what people said.
        is_run: whether a workflow wrote it. If not, the payload says nothing.
    """

    checkpoint: Checkpoint
    payload: Payload
    is_run: bool = True

    @property
    def head(self) -> Head:
        """The record, as the end that it once was."""
        return Head(self.checkpoint.sequence, self.checkpoint.digest)

    def __str__(self) -> str:
        return f"{self.checkpoint.thread} #{self.checkpoint.sequence}"


@dataclass(frozen=True, slots=True)
class Link:
    """An entry, and what it follows.

    Attributes:
        entry: the entry.
        before: the last one before it that a workflow wrote; None if it is the first that is kept.
        last: the end of the thread before it, whoever wrote that; None if it is not kept.
        first: the first sequence that is kept.
        view: where it was read.
    """

    entry: Entry
    before: Entry | None
    last: Checkpoint | None
    first: int
    view: View

    @property
    def thread(self) -> str:
        """The thread."""
        return self.entry.checkpoint.thread

    def found(self, which: str, /, **values: object) -> Finding:
        """Return a finding about its entry."""
        return finding(which, self.thread, entry=self.entry, **values)

    @property
    def resumed(self) -> Resumed | None:
        """Where the entry says that it came from, None if it went on from the one before."""
        return self.entry.payload.resumed

    @property
    def is_pruned(self) -> bool:
        """Whether what it was resumed from was pruned, so that nobody can tell any more."""
        resumed = self.resumed
        return resumed is not None and 0 < resumed.sequence < self.first

    @property
    def named(self) -> Entry | None:
        """The record at the place from which it says that it was resumed, if there is one.

        Raises:
            CheckpointError: that one does not verify.
        """
        resumed = self.resumed
        if resumed is None or not 0 < resumed.sequence < self.entry.checkpoint.sequence:
            return None
        if self.before is not None and self.before.checkpoint.sequence == resumed.sequence:
            return self.before
        try:
            return _entry(self.view.open(self.thread, resumed.sequence), self.view.limits)
        except NotFound:
            return None

    @property
    def source(self) -> Entry | None:
        """The entry that it was resumed from, if it is the record that it names."""
        resumed, named = self.resumed, self.named
        if resumed is None or named is None or not named.is_run:
            return None
        same = (named.checkpoint.digest, named.checkpoint.app) == (resumed.digest, resumed.app)
        return named if same else None

    @property
    def begins(self) -> bool:
        """Whether it may begin a run, or goes on from a record of one.

        A workflow begins in an empty thread. If what came before was pruned, nobody can tell.
        """
        payload = self.entry.payload
        if not self.entry.is_run or self.before is not None or payload.resumed is not None:
            return True
        if self.entry.checkpoint.sequence != self.first:
            return False
        return self.first > 1 or (not payload.done and payload.asked is None)


@dataclass(frozen=True, slots=True)
class Check:
    """One check of what workflows left in a store.

    Attributes:
        rule: the id of the rule.
        about: what it looks at, for the note that it could not.
        look: what it finds in a record.
        end: what it finds once a thread was walked to its end; given the last record.
        close: what it finds once all were.
    """

    rule: str
    about: str
    look: Callable[[Link], Iterable[Finding]]
    end: Callable[[Entry], Iterable[Finding]] = lambda _: ()
    close: Callable[[], Iterable[Finding]] = tuple


def check_records(ledger: Ledger, *, progress: Progress | None = None) -> list[Finding]:
    """Verify each thread of a store from its first checkpoint to its last, each by its own seal.

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
    ```

    Args:
        ledger: the store, with its keys and its anchor.
        progress: called with how many checkpoints are done and how many there are, as `Bar` takes
            it.

    Returns:
        The first refusal of each thread that has one, as an error under the rule that it breaks:
        SP02 if nobody you trust sealed the record, SP08 if a key did that is revoked, SP11 if it
        is over a limit, SP12 if the seal is broken or of another place, SP13 if records are
        missing or cannot be read, SP14 if a genuine record does not follow the one before it, SP15
        if the anchor knows better or cannot be asked, and SP04 if others could change the file.

    Raises:
        StorageError: the storage cannot be listed.
    """
    return read(ledger, (), progress=progress)


def looked(ledger: Ledger, check: Check) -> list[Finding]:
    """Make one check, and leave what does not verify to `check_records`: here it is a note."""
    return worst_first(read(ledger, (check,), records=False))


def read(
    ledger: Ledger,
    checks: Sequence[Check],
    *,
    records: bool = True,
    progress: Progress | None = None,
) -> list[Finding]:
    """Walk each thread once, and make all checks on the way.

    Args:
        ledger: the store, with its keys and its anchor.
        checks: what to look for, beside what does not verify.
        records: whether to say why a thread does not verify, or only that it does not.
        progress: called with how many checkpoints are done and how many there are.

    Raises:
        StorageError: the storage cannot be listed.
    """
    refusals: list[Finding] = []
    found: list[list[Finding]] = [[] for _ in checks]
    view = view_of(ledger)
    try:
        heads = dict.fromkeys(ledger.threads(), 0)
    except AnchorError as refusal:
        return [refused("SP15", refusal, ledger.store)]
    for thread in heads if progress is not None else ():
        with suppress(CheckpointError):
            heads[thread] = view.reach(thread, None)
    done, total = 0, sum(heads.values())
    for thread, head in heads.items():
        done += head
        more, why, unread = _walked(
            view_of(ledger), thread, checks, _counted(progress, done, total)
        )
        for check, findings, new in zip(checks, found, more, strict=True):
            findings.extend(new)
            if unread and not (why is not None and records):
                findings.append(finding(f"{check.rule}.not-read", thread, about=check.about))
        if why is not None and records:
            refusals.append(refused(_rule(view, thread, why), why, thread))
    for check, findings in zip(checks, found, strict=True):
        findings.extend(check.close())
    return [*refusals, *chain.from_iterable(found)]


def _walked(
    view: View, thread: str, checks: Sequence[Check], progress: Progress | None
) -> tuple[list[list[Finding]], CheckpointError | None, bool]:
    """Walk a thread. Return what was found, why it does not verify, and if some was not read."""
    refusal: CheckpointError | None = None
    for _ in range(_ATTEMPTS):
        found: list[list[Finding]] = [[] for _ in checks]
        first = None
        try:
            first = view.first(thread)
            return found, None, _walk(view, thread, checks, found, progress)
        except CheckpointError as error:
            refusal = error
        moved = False
        with suppress(CheckpointError):
            moved = isinstance(refusal, NotFound) and view.first(thread) != first
        if not moved:  # if it was pruned meanwhile, it is walked again
            break
    return found, refusal, True


def _walk(
    view: View,
    thread: str,
    checks: Sequence[Check],
    found: list[list[Finding]],
    progress: Progress | None,
) -> bool:
    before: Entry | None = None
    entry: Entry | None = None
    first, unread = 0, False
    for opened in view.walk(thread, progress):
        if opened.header.kind != "state" or unread or not checks:
            continue
        last = None if entry is None else entry.checkpoint
        first = first or opened.header.sequence
        try:
            entry = _entry(opened, view.limits)
            link = Link(entry, before, last, first, view)
            for check, findings in zip(checks, found, strict=True):
                findings.extend(check.look(link))
        except CheckpointError:  # it is too deep, or what it was resumed from does not verify
            unread = True
        else:
            before = entry if entry.is_run else before
    if entry is not None and not unread:
        for check, findings in zip(checks, found, strict=True):
            findings.extend(check.end(entry))
    return unread


def view_of(ledger: Ledger, keys: Keyring | None = None) -> View:
    """Return a view of the ledger's storage that remembers nothing of what it saw before."""
    trusted = ledger.keys if keys is None else keys
    return View(ledger.storage, ledger.store, trusted, ledger.anchor, ledger.codec.limits)


def unbegun(link: Link, rule: str) -> Finding:
    """Say that a run comes from nowhere."""
    return link.found(f"{rule}.unbegun")


def strays(link: Link, rule: str) -> Iterator[Finding]:
    """Yield that a record is no workflow's, in the thread of one; or that nothing began a run."""
    if not link.entry.is_run and link.before is not None:
        yield link.found(f"{rule}.no-run", head=link.before.head)
    elif not link.begins:
        yield unbegun(link, rule)


def _entry(opened: Opened, limits: Limits) -> Entry:
    checkpoint = opened.checkpoint(_without_state(opened.payload, limits))
    try:
        return Entry(checkpoint, Payload.unpack(checkpoint))
    except WorkflowMismatch:
        return Entry(checkpoint, Payload({}), is_run=False)


def _without_state(payload: bytes, limits: Limits) -> Any:
    """Return what a workflow keeps besides the state, whose types only the application knows.

    Raises:
        LimitExceeded: it is too deep, or too much.
    """
    try:
        check_shape(payload, limits)
        found = json.loads(payload)
        if type(found) is not dict or type(found.get("state")) is not dict:
            return None
        text = json.dumps({**found, "state": {}}, sort_keys=True, separators=(",", ":"))
        return _CODEC.decode(text.encode("ascii"))
    except LimitExceeded:
        raise
    except (CheckpointError, ValueError):
        return None


def _counted(progress: Progress | None, end: int, total: int) -> Progress | None:
    """Return how to count within a thread after which `end` of `total` are done."""
    if progress is None:
        return None
    return lambda done, of: progress(max(end - of + done, done), max(total, done))


def _rule(view: View, thread: str, refusal: CheckpointError) -> str:
    rule = next((rule for kind, rule in _RULES if isinstance(refusal, kind)), "SP02")
    named = _SEQUENCE.search(refusal.what)
    if rule == "SP12" and named is not None:
        with suppress(CheckpointError):
            view.open(thread, int(named[1]))
            return "SP14"  # the record stands by itself, so it is its link that is broken
    return rule
