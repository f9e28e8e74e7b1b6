"""How each run of a store came to go on: across versions, back in time, with other tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from safepoint.approval import Approval, Reason
from safepoint.audit.finding import Finding
from safepoint.audit.judges import FORGED, STOLEN, UNEXPLAINED, WIDER, Judges, impossible, is_here
from safepoint.audit.reading import Check, Entry, Link, looked, strays, unbegun
from safepoint.errors import ApprovalMismatch, CheckpointError, ConfigurationError, quoted
from safepoint.gate import Gate, compare
from safepoint.ledger import Ledger
from safepoint.names import Head
from safepoint.tools import ToolSet
from safepoint.workflow import Payload, Resumed

_WRITER: Final = "Whoever wrote it had the writer's key, and not this package. Replace that key."


def check_versions(ledger: Ledger, *apps: str) -> list[Finding]:
    """Find threads that another version of your workflow wrote, and changes that nobody explains.

    Nothing is changed. What does not verify is for `check_records`, and a note here. The ledger
    needs the keys, but not your types.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.audit import check_versions

    storage, keys = InMemoryCheckpointStorage(), Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="invoices", keys=keys)
    ledger.save("order-7", {"amount": 42}, app="invoice@1")
    print(check_versions(ledger, "invoice@2")[0].what)
    #> order-7 ends at #1, which invoice@1 wrote, and you run invoice@2.
    ```

    Args:
        ledger: the store, with its keys and its anchor.
        apps: what you run today, as `Workflow.app` says it: "invoice@2". Each is compared with the
            threads of its own name; without any, only changes in the middle are found.

    Returns:
        Under SP17, an error for each change of version, or of workflow, in the middle of a thread
        that no record of a resumption explains; a note for each thread that ends with a checkpoint
        of another version, unless somebody denied how it goes on.

    Raises:
        ConfigurationError: an app is not one.
        StorageError: the storage cannot be listed.
    """
    return looked(ledger, versions(*apps))


def versions(*apps: str) -> Check:
    """Return the check of SP17."""
    today = dict(_named(app) for app in apps)
    return Check("SP17", "versions", _changed, lambda last: _left_behind(last, today))


def _changed(link: Link) -> Iterator[Finding]:
    if link.last is None:
        return
    app, resumed, named, was = link.entry.checkpoint.app, link.resumed, link.named, link.last.app
    if resumed is not None:
        was = resumed.app if named is None else named.checkpoint.app
    explained = (
        resumed is not None
        and resumed.app == was
        and was.partition("@")[0] == app.partition("@")[0]
        and Reason.VERSION_CHANGED in resumed.reasons
    )
    if was != app and not explained:
        yield Finding(
            "SP17",
            "error",
            f"{link.entry} was written by {_shown(app)} upon a state of {_shown(was)}, and no"
            " record says that it was resumed across versions.",
            "Find out what wrote it: its state may mean something else than it says.",
            link.thread,
        )


def _left_behind(last: Entry, today: dict[str, str]) -> Iterator[Finding]:
    if last.payload.denied is not None:
        return
    was, thread = last.checkpoint.app, last.checkpoint.thread
    app = today.get(was.partition("@")[0], was)
    if app != was:
        yield Finding(
            "SP17",
            "note",
            f"{thread} ends at #{last.checkpoint.sequence}, which {was} wrote, and you run {app}.",
            "If it is not over, keep a migration from that version, or let that version end it.",
            thread,
        )


def _named(app: object) -> tuple[str, str]:
    if not isinstance(app, str) or not app:
        raise ConfigurationError(
            f"{quoted(app)} is not the name of a workflow.", 'Give Workflow.app: "invoice@2".'
        )
    return app.partition("@")[0], app


def _shown(app: str) -> str:
    return app or "something without a name"


def check_resumptions(ledger: Ledger, gate: Gate | None = None) -> list[Finding]:
    """Find each resume that went back to an older checkpoint, and who approved it.

    Nothing is changed. What does not verify is for `check_records`, and a note here. The ledger
    needs the keys, but not your types.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey, Workflow
    from safepoint.audit import check_resumptions

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
    return looked(ledger, resumptions(gate))


def resumptions(gate: Gate | None = None) -> Check:
    """Return the check of SP16."""
    judges = None if gate is None else Judges(gate)

    def look(link: Link) -> list[Finding]:
        payload = link.entry.payload
        if not link.entry.is_run:
            return []
        found = list(_goes_on(link, payload, judges))
        if all(finding.severity != "error" for finding in found):
            found += _told(link, payload)
        return found

    return Check("SP16", "resumptions", look)


def _goes_on(link: Link, payload: Payload, judges: Judges | None) -> Iterator[Finding]:
    entry, before, resumed = link.entry, link.before, link.resumed
    if not link.begins:
        yield unbegun(link, "SP16")
    elif resumed is not None and not _is_there(link, resumed):
        yield _error(
            link,
            f"{entry} says that it was resumed from #{resumed.sequence}, and that is not the"
            " record there.",
        )
    elif resumed is not None and not _is_carried(link, payload):
        yield _error(
            link,
            f"{entry} says that it was resumed from #{resumed.sequence}, and other steps are done"
            " there.",
        )
    elif resumed is not None and resumed.sequence < entry.checkpoint.sequence - 1:
        yield _back(link, resumed, judges)
    elif before is not None:
        yield from _on(link, payload, before, before.payload)


def _on(link: Link, payload: Payload, before: Entry, last: Payload) -> Iterator[Finding]:
    """Look at a record that goes on from the end, as its thread had it."""
    entry, at = link.entry, link.entry.checkpoint.sequence - 1
    kept = before.checkpoint.sequence
    if last.denied is not None and payload.denied is None:
        yield _error(link, f"{entry} goes on, and somebody denied that at #{kept}.")
    elif link.resumed is None and (kept != at or not _is_next(payload, last)):
        more = len(payload.done) - len(last.done)
        if more > 1 and payload.done[:-more] == last.done:
            what = f"{entry} is {more} steps after #{kept}, and each leaves a record."
        else:
            what = f"{entry} does not go on from #{at}, and no record says who resumed it."
        yield _error(
            link, what, "Find out what wrote it: a workflow of this package would have said so."
        )


def is_same(payload: Payload, before: Payload) -> bool:
    """Tell whether a record holds a run where it was, as `Run.capture` saves it."""
    over = payload.denied is not None or before.denied is not None
    return not over and (payload.done, payload.asked) == (before.done, before.asked)


def _is_next(payload: Payload, before: Payload) -> bool:
    """Tell whether a record that did not go through the gate may follow another: by one step."""
    one_more = len(payload.done) == len(before.done) + 1
    return is_same(payload, before) or (one_more and payload.done[:-1] == before.done)


def _is_there(link: Link, resumed: Resumed) -> bool:
    """Tell whether a record is what it says that it was resumed from, as far as one can see."""
    named = link.named
    if named is None:  # pruned, or no record before this one
        return 0 < resumed.sequence < link.entry.checkpoint.sequence
    return named.checkpoint.digest == resumed.digest


def _is_carried(link: Link, payload: Payload) -> bool:
    """Tell whether the record of a resumption may come from another: no step ran between them.

    Another version may name steps anew and leave some out, and not say that more are done; and if
    the answer was no, it did nothing.
    """
    named = link.named
    if named is None:
        return True  # nobody can tell any more
    source = named.payload
    if not named.is_run or payload.asked is not None:
        return False
    migrated = named.checkpoint.app != link.entry.checkpoint.app
    if migrated and payload.denied == source.denied:
        return len(payload.done) <= len(source.done)
    return payload.done == source.done


def _told(link: Link, payload: Payload) -> Iterator[Finding]:
    """Look at what a record says of itself, where it goes on from the right one."""
    if link.resumed is not None and not link.resumed.reasons:
        yield _error(link, UNEXPLAINED.format(link.entry))
    elif not _is_origin(link, payload):
        where = "here" if payload.origin is None else f"at #{payload.origin}"
        yield _error(link, f"{link.entry} says that the last step ended {where}, and it did not.")


def _is_origin(link: Link, payload: Payload) -> bool:
    """Tell whether a record in which no step ended says where the last one did.

    That is part of the key of an action, by which it is done once.
    """
    resumed, at, origin = link.resumed, link.entry.checkpoint.sequence - 1, payload.origin
    if resumed is not None:
        if resumed.sequence < at:
            return origin is None  # it went back to do again what was done
        named = link.named
        return _ended(origin, None if named is None else named.payload, resumed.sequence)
    before = link.before
    if before is None:
        return origin is None or (link.first > 1 and _ended(origin, None, at))
    kept = before.checkpoint.sequence
    if payload.done == before.payload.done:
        return _ended(origin, before.payload, kept)
    # `Run.capture` saves the end of a step that could not be saved when the anchor was not there.
    return origin in (None, kept)


def _ended(origin: int | None, source: Payload | None, sequence: int) -> bool:
    if source is None:  # it was pruned
        return origin is not None and 0 < origin <= sequence
    return origin == (source.origin or sequence)


def _back(link: Link, resumed: Resumed, judges: Judges | None) -> Finding:
    at = link.entry.checkpoint.sequence - 1
    way = f"{link.entry} went back from #{at} to #{resumed.sequence}"
    needed = 1 if judges is None else judges.gate.policy.needs(Reason.OLD_CHECKPOINT)
    needed = 1 if needed is None else needed  # a stricter policy of today does not undo it
    count, revoked = len(resumed.statements), list[Approval]()
    if judges is None or judges.gate.approvers is None:
        by = f"with {count} approval{'s' * (count > 1)}, which nobody verified here"
    else:
        try:
            approvals = _approvals(link, resumed, judges)
        except CheckpointError as refusal:
            return _error(
                link,
                f"{way} with an approval that does not count: {refusal.what}",
                "Look at which steps ran again, and ask whoever is said to have signed it.",
            )
        names = sorted({approval.approver for approval in approvals})
        count, by = len(names), f"approved by {' and '.join(names)}"
        revoked = [approval for approval in approvals if approval.key in judges.revoked]
    if count < needed:
        people = "nobody" if count == 0 else f"{count} of {needed} people"
        return _error(
            link,
            f"{way}, and {people} approved it.",
            "Look at which steps ran again. The journal says who resumed it.",
        )
    if revoked:
        keys = " and ".join(f"key {each.key} of {each.approver}" for each in revoked)
        was = "was" if len(revoked) == 1 else "were"
        what = f"{way}, {by}, and {keys} {was} revoked."
        return Finding("SP16", "warning", what, STOLEN, link.thread)
    return Finding(
        "SP16",
        "note",
        f"{way}, {by if count else 'which your policy lets anybody do'}.",
        "If that was meant, there is nothing to do.",
        link.thread,
    )


def _approvals(link: Link, resumed: Resumed, judges: Judges) -> list[Approval]:
    """Return the approvals of exactly this way back.

    Raises:
        ApprovalError: an approval is not genuine, or was given for something else.
    """
    approvers = judges.gate.approvers
    approvals = [] if approvers is None else [approvers.open(text) for text in resumed.statements]
    for approval in approvals:
        if not _fits(link, resumed, approval):
            raise ApprovalMismatch(
                f"{approval.approver} signed it for something else.", "Ask again."
            )
    return approvals


def _fits(link: Link, resumed: Resumed, approval: Approval) -> bool:
    place, question = link.entry.checkpoint, approval.question
    return (
        approval.verdict == "approved"
        and Reason.OLD_CHECKPOINT in question.reasons
        and (question.store, question.thread) == (place.store, place.thread)
        and (question.app, question.tools) == (place.app, place.tools or ToolSet().digest)
        and question.checkpoint == Head(resumed.sequence, resumed.digest)
        and (question.head.sequence, question.head.digest) == (place.sequence - 1, place.previous)
    )


def _error(link: Link, what: str, do: str = _WRITER) -> Finding:
    return Finding("SP16", "error", what, do, link.thread)


def check_tools(ledger: Ledger, gate: Gate) -> list[Finding]:
    """Compare the tool set of every record with the one before it, and look for the approvals.

    Nothing is changed, and no state is decoded. The approvals count if these people signed them;
    what else may be wrong with them is for `check_approvals`.

    ```python
    from safepoint import (
        Gate,
        InMemoryCheckpointStorage,
        InMemoryJournal,
        Keyring,
        Ledger,
        Policy,
        SigningKey,
        Tool,
        Workflow,
    )
    from safepoint.approval import Reason
    from safepoint.audit import check_tools


    def read(state):
        return {}


    keys, journal = Keyring(SigningKey.generate()), InMemoryJournal()
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys, journal=journal)
    mail = Tool("mail", permissions=["read"])
    Workflow("inbox", [read], tools=[mail]).begin(ledger, thread="run-1")

    careless = Gate(Policy({Reason.TOOLS_ADDED: 0}))
    wider = Workflow("inbox", [read], tools=[mail, Tool("bank")], gate=careless)
    wider.resume(ledger, thread="run-1")
    print(check_tools(ledger, Gate())[0].what)
    #> run-1 #2 was resumed from #1. The tool bank is new. It needed 1 to approve it, and 0 did.
    ```

    Args:
        ledger: the store, with its keys and its anchor.
        gate: the gate of your workflow: the policy, and the people.

    Returns:
        Under SP18, an error for each record with more tools, other tools or more permissions than
        what it goes on from, that nobody approved, or that could not have been resumed at all; a
        warning if fewer approved it than the policy asks for; a note if no run of the store says
        which tools it has.

    Raises:
        ConfigurationError: `gate` is no gate.
        StorageError: the storage cannot be listed.
    """
    return looked(ledger, tools(gate, ledger.store))


def tools(gate: Gate, store: str) -> Check:
    """Return the check of SP18."""
    judges = Judges(gate)
    said = set[bool]()

    def look(link: Link) -> Iterator[Finding]:
        yield from strays(link, "SP18")
        if link.entry.is_run:
            said.add(bool(link.entry.payload.tools))
            yield from _widened(link, judges) if link.source is not None else _stepped(link, judges)

    def close() -> Iterator[Finding]:
        if said == {False}:
            yield Finding(
                "SP18",
                "note",
                f"No run of store {store} says which tools it has, so a wider set would not show.",
                'Describe them: Workflow(..., tools=[Tool("mail", permissions=["read"])]).',
                store,
            )

    return Check("SP18", "tools", look, close=close)


def _stepped(link: Link, judges: Judges) -> Iterator[Finding]:
    """Look at a record that did not go through the gate: it has what the one before it has.

    One that went back to what was pruned since has what people let it have.
    """
    entry, before = link.entry, link.before
    if before is None or (link.is_pruned and _is_let(link, judges)):
        return
    compared = compare(entry.payload.tools, before.payload.tools)
    wider = {name for reason, name, _ in compared if reason is not None}
    if wider:
        names = ", ".join(sorted(wider))
        how = "nobody approved it" if link.is_pruned else "did not go through the gate"
        yield Finding(
            "SP18",
            "error",
            f"{entry} has more than {before.head} had, and {how}: {names}.",
            FORGED,
            entry.checkpoint.thread,
        )


def _is_let(link: Link, judges: Judges) -> bool:
    """Tell whether somebody approved a way back as it is, or nobody has to."""
    opened = [each.approval for each in judges.statements(link, None)]
    return judges.gate.policy.needs(Reason.OLD_CHECKPOINT) == 0 or any(
        each is not None and each.verdict == "approved" and is_here(link.entry, each)
        for each in opened
    )


def _widened(link: Link, judges: Judges) -> Iterator[Finding]:
    try:
        wanted, question = judges.judged(link)
    except CheckpointError as refusal:
        yield impossible(link, refusal, "SP18")
        return
    if not WIDER & set(wanted.decision.reasons):
        return
    statements = judges.statements(link, question)
    approvals = [each.approval for each in statements if each.approval is not None]
    if link.source is None or link.entry.payload.tools != link.source.payload.tools:
        yield from judges.missing(link, wanted, approvals, "SP18")
