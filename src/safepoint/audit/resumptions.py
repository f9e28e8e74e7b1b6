"""Who approved each resume that went back to an older checkpoint?"""

from __future__ import annotations

from collections.abc import Iterator

from safepoint._workflow.payload import Payload, Resumed
from safepoint.approval import Approval, Approvers
from safepoint.audit.finding import Finding, shortened
from safepoint.audit.records import view_of
from safepoint.audit.steps import begins, goes_on, is_carried, unbegun
from safepoint.audit.workflows import Record, payload_of, records_of, unverified
from safepoint.errors import AnchorError, ApprovalMismatch, CheckpointError
from safepoint.gate import Gate
from safepoint.heads import Head
from safepoint.ledger import Ledger
from safepoint.reasons import Reason
from safepoint.tools import ToolSet


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
        that nothing began, that goes on after a denial, or by more than a step at a time; a note
        for each other way back, which says who approved it.

    Raises:
        StorageError: the storage cannot be listed.
    """
    try:
        threads = ledger.threads()
    except AnchorError as refusal:
        return [Finding("SP15", "error", refusal.what, refusal.do, ledger.store)]
    view, found = view_of(ledger), list[Finding]()
    for thread in threads:
        before: Record | None = None
        first: int | None = None
        try:
            for record in records_of(view, thread, ledger.codec.limits):
                first = record.sequence if first is None else first
                found += _look(record, before, first, gate)
                # What is not a workflow's is not what the next record goes on from.
                before = before if record.payload is None else record
        except CheckpointError:
            found.append(unverified("SP16", thread, "resumptions"))
    return shortened(found, "SP16", ledger.store)


def _look(
    record: Record, before: Record | None, first: int, gate: Gate | None
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
        yield _back(record, resumed, gate)
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


def _back(record: Record, resumed: Resumed, gate: Gate | None) -> Finding:
    way = f"{record} went back from #{record.sequence - 1} to #{resumed.sequence}"
    needed = 1 if gate is None else gate.policy.needs(Reason.OLD_CHECKPOINT)
    needed = 1 if needed is None else needed  # a stricter policy of today does not undo it
    count = len(resumed.statements)
    if gate is None or gate.approvers is None:
        by = f"with {count} approval{'s' * (count > 1)}, which nobody verified here"
    else:
        try:
            names = _names(record, resumed, gate.approvers)
        except CheckpointError as refusal:
            return _error(
                record,
                f"{way} with an approval that does not count: {refusal.what}",
                "Look at which steps ran again, and ask whoever is said to have signed it.",
            )
        count, by = len(names), f"approved by {' and '.join(names)}"
    if count < needed:
        people = "nobody" if count == 0 else f"{count} of {needed} people"
        return _error(
            record,
            f"{way}, and {people} approved it.",
            "Look at which steps ran again. The journal says who resumed it.",
        )
    return Finding(
        "SP16",
        "note",
        f"{way}, {by if count else 'which your policy lets anybody do'}.",
        "If that was meant, there is nothing to do.",
        record.thread,
    )


def _names(record: Record, resumed: Resumed, approvers: Approvers) -> list[str]:
    """Return who approved exactly this way back.

    Raises:
        ApprovalError: an approval is not genuine, or was given for something else.
    """
    approvals = [approvers.open(text) for text in resumed.statements]
    for approval in approvals:
        if not _fits(record, resumed, approval):
            raise ApprovalMismatch(
                f"{approval.approver} signed it for something else.", "Ask again."
            )
    return sorted({approval.approver for approval in approvals})


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
