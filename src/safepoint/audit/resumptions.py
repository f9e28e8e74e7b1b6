"""Who approved each resume that went back to an older checkpoint?"""

from __future__ import annotations

from collections.abc import Iterator

from safepoint.approval import Approval, Reason
from safepoint.audit.finding import Finding, worst_first
from safepoint.audit.records import view_of
from safepoint.audit.statements import STOLEN, UNEXPLAINED, Judges
from safepoint.audit.steps import begins, goes_on, is_carried, is_origin, unbegun
from safepoint.audit.workflows import Record, payload_of, records_of, unverified
from safepoint.errors import AnchorError, ApprovalMismatch, CheckpointError
from safepoint.gate import Gate
from safepoint.ledger import Ledger
from safepoint.names import Head
from safepoint.tools import ToolSet
from safepoint.workflow import Payload, Resumed


def check_resumptions(ledger: Ledger, gate: Gate | None = None) -> list[Finding]:
    """Find each resume that went back to an older checkpoint, and who approved it.

    Nothing is changed. What does not verify is for `check_records`, and a note here. The ledger
    needs the keys, but not your types.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey, Workflow
    from safepoint.audit.resumptions import check_resumptions

    def pay(state):
        return {"paid": 42}

    storage, keys = InMemoryCheckpointStorage(), Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="invoices", keys=keys)
    Workflow("invoice", [pay]).start(ledger, thread="order-7")
    print(check_resumptions(ledger))
    #> []
    ledger.save("order-7", ledger.load("order-7", 1).state, app="invoice")
    print(check_resumptions(ledger)[0].what)
    #> order-7 #3 does not go on from #2, and no record says who resumed it.
    ```

    Args:
        ledger: the store, with its keys and its anchor.
        gate: who may approve, and how many of them it takes. Without it, approvals are counted and
            not verified.

    Returns:
        Under SP16, an error for each way back that too few people approved, that carries an
        approval which does not count, or that no record of a resumption explains, and for a run
        that nothing began, that goes on after a denial, or by more than a step at a time, and for a
        record that does not say why it was resumed, or says wrong where its last step ended; a
        warning for a way back that a key approved which was revoked since; a note for each other,
        which says who approved it.

    Raises:
        ConfigurationError: `gate` is no gate.
        StorageError: the storage cannot be listed.
    """
    try:
        threads = ledger.threads()
    except AnchorError as refusal:
        return [Finding("SP15", "error", refusal.what, refusal.do, ledger.store)]
    judges = None if gate is None else Judges(gate)
    view, found = view_of(ledger), list[Finding]()
    for thread in threads:
        before: Record | None = None
        first: int | None = None
        try:
            for record in records_of(view, thread, ledger.codec.limits):
                first = record.sequence if first is None else first
                seen = list(_look(record, before, first, judges))
                if all(finding.severity != "error" for finding in seen):
                    seen += _told(record, before, first)
                found += seen
                # What is not a workflow's is not what the next record goes on from.
                before = before if record.payload is None else record
        except CheckpointError:
            found.append(unverified("SP16", thread, "resumptions"))
    return worst_first(found)


def _look(
    record: Record, before: Record | None, first: int, judges: Judges | None
) -> Iterator[Finding]:
    payload, resumed = record.payload, record.resumed
    if payload is None:
        return
    last = None if before is None else before.payload
    at = record.sequence - 1
    if resumed is None and last is None and not begins(payload, record.sequence, first):
        yield unbegun("SP16", record, record.thread)
    elif resumed is not None and not _is_there(record, resumed):
        yield _error(
            record,
            f"{record} says that it was resumed from #{resumed.sequence}, and that is not the"
            " record there.",
            _WRITER,
        )
    elif resumed is not None and not _is_carried(record):
        yield _error(
            record,
            f"{record} says that it was resumed from #{resumed.sequence}, and other steps are done"
            " there.",
            _WRITER,
        )
    elif resumed is not None and resumed.sequence < at:
        yield _back(record, resumed, judges)
    elif before is not None and last is not None:
        yield from _on(record, payload, before, last)


def _on(record: Record, payload: Payload, before: Record, last: Payload) -> Iterator[Finding]:
    """Look at a record that goes on from the end, as its thread had it."""
    at = record.sequence - 1
    if last.denied is not None and payload.denied is None:
        where = f"#{before.sequence}"
        yield _error(record, f"{record} goes on, and somebody denied that at {where}.", _WRITER)
    elif record.resumed is None and (before.sequence != at or not goes_on(payload, last)):
        more = len(payload.done) - len(last.done)
        if more > 1 and payload.done[:-more] == last.done:
            what = f"{record} is {more} steps after #{before.sequence}, and each leaves a record."
        else:
            what = f"{record} does not go on from #{at}, and no record says who resumed it."
        yield _error(
            record, what, "Find out what wrote it: a workflow of this package would have said so."
        )


def _told(record: Record, before: Record | None, first: int) -> Iterator[Finding]:
    """Look at what a record says of itself, where it goes on from the right one."""
    payload, resumed = record.payload, record.resumed
    if payload is None:
        return
    if resumed is not None and not resumed.reasons:
        yield _error(record, UNEXPLAINED.format(record), _WRITER)
        return
    if not _is_origin(record, payload, before, first):
        where = "here" if payload.origin is None else f"at #{payload.origin}"
        what = f"{record} says that the last step ended {where}, and it did not."
        yield _error(record, what, _WRITER)


def _is_origin(record: Record, payload: Payload, before: Record | None, first: int) -> bool:
    resumed, at, origin = record.resumed, record.sequence - 1, payload.origin
    if resumed is not None:
        if resumed.sequence < at:
            return origin is None  # it went back to do again what was done
        source = record.source()
        last = None if source is None else payload_of(source, record.view.limits)
        return is_origin(payload, last, resumed.sequence)
    if before is None or before.payload is None:
        return origin is None or (first > 1 and is_origin(payload, None, at))
    if payload.done == before.payload.done:
        return is_origin(payload, before.payload, before.sequence)
    # `Run.capture` saves the end of a step that could not be saved when the anchor was not there.
    return origin in (None, before.sequence)


_WRITER = "Whoever wrote it had the writer's key, and not this package. Replace that key."


def _is_there(record: Record, resumed: Resumed) -> bool:
    """Tell whether a record is what it says that it was resumed from, as far as one can see."""
    source = record.source()
    if source is None:  # pruned, or no record before this one
        return 0 < resumed.sequence < record.sequence
    return source.digest == resumed.digest and source.header.kind == "state"


def _is_carried(record: Record) -> bool:
    source = record.source()
    if source is None or record.payload is None:
        return True  # nobody can tell any more
    payload = payload_of(source, record.view.limits)
    migrated = source.header.app != record.app
    return payload is not None and is_carried(record.payload, payload, migrated=migrated)


def _back(record: Record, resumed: Resumed, judges: Judges | None) -> Finding:
    way = f"{record} went back from #{record.sequence - 1} to #{resumed.sequence}"
    needed = 1 if judges is None else judges.gate.policy.needs(Reason.OLD_CHECKPOINT)
    needed = 1 if needed is None else needed  # a stricter policy of today does not undo it
    count, revoked = len(resumed.statements), list[Approval]()
    if judges is None or judges.gate.approvers is None:
        by = f"with {count} approval{'s' * (count > 1)}, which nobody verified here"
    else:
        try:
            approvals = _approvals(record, resumed, judges)
        except CheckpointError as refusal:
            return _error(
                record,
                f"{way} with an approval that does not count: {refusal.what}",
                "Look at which steps ran again, and ask whoever is said to have signed it.",
            )
        names = sorted({approval.approver for approval in approvals})
        count, by = len(names), f"approved by {' and '.join(names)}"
        revoked = [approval for approval in approvals if approval.key in judges.revoked]
    if count < needed:
        people = "nobody" if count == 0 else f"{count} of {needed} people"
        return _error(
            record,
            f"{way}, and {people} approved it.",
            "Look at which steps ran again. The journal says who resumed it.",
        )
    if revoked:
        keys = " and ".join(f"key {each.key} of {each.approver}" for each in revoked)
        was = "was" if len(revoked) == 1 else "were"
        what = f"{way}, {by}, and {keys} {was} revoked."
        return Finding("SP16", "warning", what, STOLEN, record.thread)
    return Finding(
        "SP16",
        "note",
        f"{way}, {by if count else 'which your policy lets anybody do'}.",
        "If that was meant, there is nothing to do.",
        record.thread,
    )


def _approvals(record: Record, resumed: Resumed, judges: Judges) -> list[Approval]:
    """Return the approvals of exactly this way back.

    Raises:
        ApprovalError: an approval is not genuine, or was given for something else.
    """
    approvers = judges.gate.approvers
    approvals = [] if approvers is None else [approvers.open(text) for text in resumed.statements]
    for approval in approvals:
        if not _fits(record, resumed, approval):
            raise ApprovalMismatch(
                f"{approval.approver} signed it for something else.", "Ask again."
            )
    return approvals


def _fits(record: Record, resumed: Resumed, approval: Approval) -> bool:
    header, question = record.opened.header, approval.question
    return (
        approval.verdict == "approved"
        and Reason.OLD_CHECKPOINT in question.reasons
        and (question.store, question.thread) == (header.store, header.thread)
        and (question.app, question.tools) == (header.app, header.tools or ToolSet().digest)
        and question.checkpoint == Head(resumed.sequence, resumed.digest)
        and (question.head.sequence, question.head.digest) == (header.sequence - 1, header.previous)
    )


def _error(record: Record, what: str, do: str) -> Finding:
    return Finding("SP16", "error", what, do, record.thread)
