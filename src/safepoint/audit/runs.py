"""How each run of a store came to go on: across versions, back in time, with other tools, by whom.

The writer's key seals the records, so a seal does not say that anybody was asked. What had to be
asked is worked out again, and compared with what people signed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from safepoint.approval import SKEW, Approval, Approvers, Question, Reason
from safepoint.audit.finding import Finding, finding, worst_first
from safepoint.audit.ledger import approvers_apart
from safepoint.audit.reading import Check, Entry, Link, looked, strays, unbegun
from safepoint.errors import (
    ApprovalError,
    ApprovalExpired,
    CheckpointError,
    ConfigurationError,
    WorkflowMismatch,
    quoted,
)
from safepoint.gate import Gate, Policy, compare
from safepoint.keys import VerifyingKey
from safepoint.ledger import Ledger
from safepoint.names import Head
from safepoint.workflow import Migration, Payload, Resumed, Resumption, Workflow, judge

_WIDER: Final = frozenset({Reason.TOOLS_ADDED, Reason.TOOL_CHANGED, Reason.PERMISSIONS_WIDENED})
_MANY: Final = 10
_UNCOUNTED: Final = Policy(dict.fromkeys(Reason))


class Statement(NamedTuple):
    """An approval or a denial in a record.

    Attributes:
        text: what is in the record.
        approval: what it says, if one of these people signed it for this; None if not.
        why: why not.
    """

    text: str
    approval: Approval | None
    why: str = ""


class Judges:
    """A gate for looking back: whoever has a key today, or had one.

    Attributes:
        gate: the policy, and everybody, those included whose key was revoked since.
        revoked: the ids of those keys.
    """

    def __init__(self, gate: Gate) -> None:
        self.keys: list[tuple[str, VerifyingKey]] = []
        self.revoked: frozenset[str] = frozenset()
        self.gate = gate
        if gate.approvers is None:
            return
        self.keys = list(gate.approvers.keys.values())
        self.revoked = gate.approvers.revoked
        self.gate = Gate(gate.policy, self._approvers())

    def judged(self, link: Link) -> tuple[Resumption, Question | None]:
        """Return what the policy says of a resumption, and what people had to be asked then.

        Whether an approval from before still counted was for the people and the policy of that
        time to say, so each answer that they may have given is tried.

        Raises:
            CheckpointError: no workflow could have resumed it.
        """
        signed = [each.approval for each in self.statements(link, None) if each.approval]
        denials = [approval for approval in signed if approval.verdict == "denied"]
        if denials:
            wanted, question = _denied(link, self._gates(link)[0], denials[0].question)
        else:
            app = link.entry.checkpoint.app
            judged = [_judged(link, gate, app) for gate in self._gates(link)]
            reasons = None if link.resumed is None else link.resumed.reasons
            same = [each for each in judged if each[0].decision.reasons == reasons]
            answered = [each for each in same if signed and each[1] == signed[0].question]
            wanted, question = (answered or same or judged)[0]
        people = self.gate.policy.needs(*wanted.decision.reasons)
        return replace(wanted, decision=replace(wanted.decision, approvers=people)), question

    def _gates(self, link: Link) -> list[Gate]:
        """Return gates for which what people approved before a resumption counts, or lapsed."""
        approvers = self.gate.approvers
        gates = [Gate(_UNCOUNTED, approvers)]
        texts = () if link.source is None else link.source.payload.approved
        if approvers is None or not texts:
            return gates
        opened = [each.approval for each in map(self._open, texts) if each.approval is not None]
        keys = dict.fromkeys(approval.key for approval in opened)
        gates += [Gate(_UNCOUNTED, self._approvers(revoked=[key])) for key in keys]
        more = len({each.approver for each in opened}) + 1
        if more <= len(approvers):
            asks = Policy({**dict.fromkeys(Reason), Reason.ASKED: more})
            gates.append(Gate(asks, approvers))
        return gates

    def _approvers(self, **options: list[str]) -> Approvers:
        people = {name: [key for who, key in self.keys if who == name] for name, _ in self.keys}
        return Approvers(people, **options)

    def statements(self, link: Link, question: Question | None) -> list[Statement]:
        """Return what is in a record, each with whether it answers the question."""
        texts = () if link.resumed is None else link.resumed.statements
        return [self._open(text, question) for text in texts]

    def _open(self, text: str, question: Question | None = None) -> Statement:
        approvers = self.gate.approvers
        if approvers is None:
            return Statement(text, None, "There are no approvers to check it.")
        try:
            approval = approvers.open(text)
            if question is not None:
                approval.check_answers(question)
        except ApprovalError as refusal:
            return Statement(text, None, refusal.what)
        return Statement(text, approval)

    def missing(
        self, link: Link, wanted: Resumption, approvals: list[Approval], rule: str
    ) -> Iterator[Finding]:
        """Say whether too few people approved a resumption."""
        decision = wanted.decision
        details, more = " ".join(decision.details[:_MANY]), len(decision.details) - _MANY
        details += f" And {more} more like these." if more > 0 else ""
        people = len({each.approver for each in approvals if each.verdict == "approved"})
        severity = "warning" if people else "error"
        values = {"severity": severity, "source": wanted.at, "details": details}
        needed = decision.approvers
        if needed is None:
            yield link.found(f"{rule}.forbidden", **values)
        elif people < needed:
            yield link.found(f"{rule}.too-few", **values, needed=needed, people=people)


def _judged(link: Link, gate: Gate, app: str) -> tuple[Resumption, Question | None]:
    """Return what a gate says of the resumption by an app, and what people had to be asked.

    Raises:
        CheckpointError: no workflow could have resumed it.
    """
    source, last = link.source, link.last
    if source is None or last is None:
        raise WorkflowMismatch(f"{link.entry} was not resumed.", "Judge one that was.")
    name, _, version = app.partition("@")
    old = source.checkpoint.app.partition("@")[2]
    as_it_was = Workflow(
        name,
        [_nothing],
        version=version,
        tools=link.entry.payload.tools,
        migrations=[] if old == version else [Migration(old, version, dict)],
        gate=gate,
    )
    # Who owned the thread at the time, nobody knows any more.
    wanted = judge(as_it_was, None, source.checkpoint, last)
    if not wanted.decision.reasons:
        return wanted, None
    # Whatever the policy is today: if people were asked, this is what they were asked.
    return wanted, wanted.question()


def _nothing(state: dict[str, Any]) -> None:
    """Stand in for the steps, which nobody runs."""


def _denied(link: Link, gate: Gate, signed: Question) -> tuple[Resumption, Question | None]:
    """Judge a no. The run keeps the app and the tools that it had, and not those that were denied.

    Of those tools there is no more than the digest, so which of them are new is as it was signed.
    """
    wanted, question = _judged(link, gate, signed.app)
    if question is None or signed.tools == question.tools:
        return wanted, question
    question = replace(question, tools=signed.tools)
    others = tuple(reason for reason in signed.reasons if reason not in _WIDER)
    if others == question.reasons != signed.reasons:
        question = replace(question, reasons=signed.reasons, details=signed.details)
        reasons = tuple(Reason(reason) for reason in signed.reasons)
        wanted = replace(wanted, decision=replace(wanted.decision, reasons=reasons))
    return wanted, question


def _is_here(entry: Entry, approval: Approval) -> bool:
    """Tell whether people were asked about the end that a record follows, and to go on as it."""
    place, question = entry.checkpoint, approval.question
    follows = None if place.previous is None else Head(place.sequence - 1, place.previous)
    if (place.store, place.thread, follows) != (question.store, question.thread, question.head):
        return False
    if approval.verdict == "denied":  # what was denied may be another version, with other tools
        return question.app.partition("@")[0] == place.app.partition("@")[0]
    return (place.app, entry.payload.tools.digest) == (question.app, question.tools)


def _outside(approval: Approval, created: datetime, lifetime: timedelta) -> str | None:
    """Return why an approval was not valid when the record was written, give or take a minute."""
    # Nothing is taken off `created`: whoever wrote it may have put the first day there is.
    just_late = timedelta() <= created - approval.expires < SKEW
    try:
        approval.check_time(approval.issued if just_late else created, lifetime)
    except ApprovalExpired as refusal:
        return refusal.what
    return None


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
        now, before = (each or "something without a name" for each in (app, was))
        yield link.found("SP17.unexplained", now=now, before=before)


def _left_behind(last: Entry, today: dict[str, str]) -> Iterator[Finding]:
    end = last.checkpoint
    was = end.app
    app = today.get(was.partition("@")[0], was)
    if app != was and last.payload.denied is None:
        yield finding("SP17.left-behind", end.thread, last=end, app=app)


def _named(app: object) -> tuple[str, str]:
    if not isinstance(app, str) or not app:
        raise ConfigurationError(
            f"{quoted(app)} is not the name of a workflow.", 'Give Workflow.app: "invoice@2".'
        )
    return app.partition("@")[0], app


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
        if all(each.severity != "error" for each in found):
            found += _told(link, payload)
        return found

    return Check("SP16", "resumptions", look)


def _goes_on(link: Link, payload: Payload, judges: Judges | None) -> Iterator[Finding]:
    entry, before, resumed = link.entry, link.before, link.resumed
    if not link.begins:
        yield unbegun(link, "SP16")
    elif resumed is not None and not _is_there(link, resumed):
        yield link.found("SP16.not-there", source=resumed.sequence)
    elif resumed is not None and not _is_carried(link, payload):
        yield link.found("SP16.other-steps", source=resumed.sequence)
    elif resumed is not None and resumed.sequence < entry.checkpoint.sequence - 1:
        yield _back(link, resumed, judges)
    elif before is not None:
        yield from _on(link, payload, before, before.payload)


def _on(link: Link, payload: Payload, before: Entry, last: Payload) -> Iterator[Finding]:
    """Look at a record that goes on from the end, as its thread had it."""
    at = link.entry.checkpoint.sequence - 1
    kept = before.checkpoint.sequence
    if last.denied is not None and payload.denied is None:
        yield link.found("SP16.denied", kept=kept)
    elif link.resumed is None and (kept != at or not _is_next(payload, last)):
        more = len(payload.done) - len(last.done)
        if more > 1 and payload.done[:-more] == last.done:
            yield link.found("SP16.skipped", more=more, kept=kept)
        else:
            yield link.found("SP16.no-resume", end=at)


def _is_same(payload: Payload, before: Payload) -> bool:
    """Tell whether a record holds a run where it was, as `Run.capture` saves it."""
    over = payload.denied is not None or before.denied is not None
    return not over and (payload.done, payload.asked) == (before.done, before.asked)


def _is_next(payload: Payload, before: Payload) -> bool:
    """Tell whether a record that did not go through the gate may follow another: by one step."""
    one_more = len(payload.done) == len(before.done) + 1
    return _is_same(payload, before) or (one_more and payload.done[:-1] == before.done)


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
        yield link.found("SP16.no-reason")
    elif not _is_origin(link, payload):
        origin = "here" if payload.origin is None else f"at #{payload.origin}"
        yield link.found("SP16.origin", origin=origin)


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
    way = {"end": link.entry.checkpoint.sequence - 1, "source": resumed.sequence}
    needed = 1 if judges is None else judges.gate.policy.needs(Reason.OLD_CHECKPOINT)
    needed = 1 if needed is None else needed  # a stricter policy of today does not undo it
    count, revoked = len(resumed.statements), list[Approval]()
    by = f"with {count} approval{'s' * (count > 1)}, which nobody verified here"
    if judges is not None and judges.gate.approvers is not None:
        approvals = list[Approval]()
        for _, approval, why in judges.statements(link, None):
            if approval is None:
                return link.found("SP16.not-counted", **way, why=why)
            if not _fits(link, resumed, approval):
                other = f"{approval.approver} signed it for something else."
                return link.found("SP16.not-counted", **way, why=other)
            approvals.append(approval)
        names = sorted({approval.approver for approval in approvals})
        count, by = len(names), f"approved by {' and '.join(names)}"
        revoked = [approval for approval in approvals if approval.key in judges.revoked]
    if count < needed:
        people = "nobody" if count == 0 else f"{count} of {needed} people"
        return link.found("SP16.unapproved", **way, people=people)
    if revoked:
        keys = " and ".join(f"key {each.key} of {each.approver}" for each in revoked)
        was = "was" if len(revoked) == 1 else "were"
        return link.found("SP16.revoked", **way, by=by, keys=keys, was=was)
    how = by if count else "which your policy lets anybody do"
    return link.found("SP16.back", **way, how=how)


def _fits(link: Link, resumed: Resumed, approval: Approval) -> bool:
    """Tell whether somebody approved exactly this way back."""
    question = approval.question
    return (
        approval.verdict == "approved"
        and Reason.OLD_CHECKPOINT in question.reasons
        and question.checkpoint == Head(resumed.sequence, resumed.digest)
        and _is_here(link.entry, approval)
    )


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
            yield from _widened(link, judges) if link.source is not None else _kept(link, judges)

    def close() -> Iterator[Finding]:
        if said == {False}:
            yield finding("SP18.no-tools", store)

    return Check("SP18", "tools", look, close=close)


def _kept(link: Link, judges: Judges) -> Iterator[Finding]:
    """Look at a record that did not go through the gate: it has what the one before it has.

    One that went back to what was pruned since has what people let it have.
    """
    entry, before = link.entry, link.before
    if before is None or (link.is_pruned and _is_let(link, judges)):
        return
    compared = compare(entry.payload.tools, before.payload.tools)
    wider = {name for reason, name, _ in compared if reason is not None}
    if wider:
        how = "nobody approved it" if link.is_pruned else "did not go through the gate"
        names = ", ".join(sorted(wider))
        yield link.found("SP18.wider", head=before.head, how=how, names=names)


def _is_let(link: Link, judges: Judges) -> bool:
    """Tell whether somebody approved a way back as it is, or nobody has to."""
    opened = [each.approval for each in judges.statements(link, None)]
    return judges.gate.policy.needs(Reason.OLD_CHECKPOINT) == 0 or any(
        each is not None and each.verdict == "approved" and _is_here(link.entry, each)
        for each in opened
    )


def _widened(link: Link, judges: Judges) -> Iterator[Finding]:
    try:
        wanted, question = judges.judged(link)
    except CheckpointError as refusal:
        yield _impossible(link, refusal, "SP18")
        return
    if not _WIDER & set(wanted.decision.reasons):
        return
    statements = judges.statements(link, question)
    approvals = [each.approval for each in statements if each.approval is not None]
    if link.source is None or link.entry.payload.tools != link.source.payload.tools:
        yield from judges.missing(link, wanted, approvals, "SP18")


def check_approvals(ledger: Ledger, gate: Gate) -> list[Finding]:
    """Work out again, for every run of a store, who had to be asked, and look at what they signed.

    The writer's key seals the records, so a seal does not say that anybody approved. This trusts
    the approvers' keys alone. Nothing is changed, and no state is decoded.

    ```python
    from safepoint import (
        Approvers,
        Ask,
        Gate,
        InMemoryCheckpointStorage,
        InMemoryJournal,
        Keyring,
        Ledger,
        SigningKey,
        Workflow,
    )
    from safepoint.audit import check_approvals


    def ask(state):
        return Ask("pay", {"amount": 42})


    gate = Gate(approvers=Approvers({"dana": SigningKey.generate("ed25519").public}))
    keys, journal = Keyring(SigningKey.generate()), InMemoryJournal()
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys, journal=journal)
    Workflow("invoice", [ask], gate=gate).start(ledger, thread="order-7")
    print(check_approvals(ledger, gate))
    #> []
    ledger.save("order-7", {"done": ["ask"], "state": {}}, app="invoice")
    print(check_approvals(ledger, gate)[0].what)
    #> order-7 #3 goes on without an answer to what #2 asked.
    ```

    Args:
        ledger: the store, with its keys and its anchor.
        gate: the gate of your workflow: the policy, and the people.

    Returns:
        Under SP19, an error for each run that nothing began, and for each record that goes on
        without an answer, that carries an approval which nobody of these people signed, or for
        something else, or which was used before, or that it was not resumed with, or that does not
        say why it was resumed; for an approver's
        key that is on the ring, in the storage, or here as a secret; a warning for one by fewer
        people than the policy asks for, outside of its time by the record's own, or by a key that
        was revoked since; a note for what was pruned.

    Raises:
        StorageError: the storage cannot be listed.
    """
    judges = Judges(gate)
    return worst_first([*approvers_apart(ledger, judges.keys), *looked(ledger, approvals(judges))])


def approvals(judges: Judges) -> Check:
    """Return the check of SP19, without that of where the keys are."""
    spent: dict[str, str] = {}

    def look(link: Link) -> Iterator[Finding]:
        yield from strays(link, "SP19")
        if not link.entry.is_run:
            return
        if link.resumed is None:
            yield from _stepped(link)
        elif link.is_pruned:
            yield from _pruned(link, judges)
        else:
            yield from _resumed(link, judges, spent)

    return Check("SP19", "approvals", look)


def _impossible(link: Link, refusal: CheckpointError, rule: str) -> Finding:
    """Say that no workflow could have written a resumption."""
    return link.found(f"{rule}.impossible", why=refusal.what)


def _stepped(link: Link) -> Iterator[Finding]:
    """Look at a record that a step left. It may ask; the answer is in a resumption alone."""
    before, payload = link.before, link.entry.payload
    if before is not None and _is_same(payload, before.payload):
        before = None  # Run.capture saved what the run waits for, or how it ended, once more
    elif before is None and payload.denied is not None and link.first == 1:
        yield link.found("SP19.answers-nothing")
    if before is not None and before.payload.asked is not None:
        yield link.found("SP19.unanswered", head=before.head)
    elif before is not None and before.payload.denied is not None:
        yield link.found("SP19.denied", head=before.head)
    elif payload.approved:
        yield link.found("SP19.not-resumed")
    elif before is not None and payload.denied is not None:
        yield link.found("SP19.answers-nothing")
    elif link.before is not None and link.last is not link.before.checkpoint:
        yield link.found("SP19.foreign")
    elif link.before is None and link.first > 1 and _passed(payload):
        yield link.found("SP19.first-kept")


def _passed(payload: Payload) -> tuple[str, ...]:
    """Return the steps that may have asked, and that the run went on from."""
    return payload.done if payload.asked is None else payload.done[:-1]


def _pruned(link: Link, judges: Judges) -> Iterator[Finding]:
    """Look at as much as can be seen when the checkpoint that was resumed is gone."""
    entry, resumed = link.entry, link.resumed
    if resumed is None:
        return
    genuine, asked, denial = True, False, None
    for statement in judges.statements(link, None):
        approval = statement.approval
        if approval is None or not _is_here(entry, approval):
            genuine = False
            why = statement.why or "It was given for something else."
            yield link.found("SP19.not-counted", why=why)
        elif approval.verdict == "denied":
            denial = approval.text
        elif Reason.ASKED in approval.question.reasons:
            asked = True
    if genuine and entry.payload.denied != denial:
        yield link.found("SP19.other-denial")
    elif genuine and entry.payload.approved != (resumed.statements if asked else ()):
        yield link.found("SP19.other-approval")
    yield link.found("SP19.pruned", source=resumed.sequence)


def _resumed(link: Link, judges: Judges, spent: dict[str, str]) -> Iterator[Finding]:
    """Look at a record that spent approvals, or that went through the gate without."""
    entry, resumed, source = link.entry, link.resumed, link.source
    if resumed is None or source is None:
        yield link.found("SP19.no-source")
        return
    try:
        wanted, question = judges.judged(link)
    except CheckpointError as refusal:
        yield _impossible(link, refusal, "SP19")
        return
    statements = judges.statements(link, question)
    for statement in statements:
        yield from _statement(link, judges, statement, spent)
    approvals = [each.approval for each in statements if each.approval is not None]
    denial = next((each.text for each in approvals if each.verdict == "denied"), None)
    ends = source.payload.asked is not None and link.last is source.checkpoint
    carried = resumed.statements if wanted.asked is not None and denial is None else ()
    if source is link.before and source.payload.denied is not None:
        yield link.found("SP19.denied", head=source.head)
    elif entry.payload.denied != denial:
        yield link.found("SP19.other-denial")
    elif denial is not None and not (ends and resumed.statements == (denial,)):
        yield link.found("SP19.denial-inside")
    elif denial is not None and not _is_as_before(entry, source):
        yield link.found("SP19.denial-changed", head=source.head)
    elif entry.payload.approved != carried:
        yield link.found("SP19.other-approval")
    elif resumed.reasons != wanted.decision.reasons:
        said, was = (", ".join(e) or "nothing" for e in (resumed.reasons, wanted.decision.reasons))
        yield link.found("SP19.reasons", said=said, was=was)
    elif not resumed.reasons:
        yield link.found("SP19.no-reason")
    elif denial is None and Reason.ASKED in resumed.reasons:
        yield from judges.missing(link, wanted, approvals, "SP19")


def _is_as_before(entry: Entry, source: Entry) -> bool:
    return (entry.checkpoint.app, entry.payload.tools, entry.payload.done) == (
        source.checkpoint.app,
        source.payload.tools,
        source.payload.done,
    )


def _statement(
    link: Link, judges: Judges, statement: Statement, spent: dict[str, str]
) -> Iterator[Finding]:
    """Look at one statement of a resumption: whether it counts, for the first time, and then."""
    entry, approval = link.entry, statement.approval
    if approval is None:
        used = spent.get(statement.text)
        if used is None:
            yield link.found("SP19.not-counted", why=statement.why)
        else:
            yield link.found("SP19.spent", used=used)
        return
    spent[statement.text] = str(entry)
    does = "ends with a denial" if approval.verdict == "denied" else "goes on from an approval"
    if approval.key in judges.revoked:
        yield link.found("SP19.revoked", does=does, approval=approval)
    late = _outside(approval, entry.checkpoint.created, judges.gate.policy.lifetime)
    if late is not None:
        yield link.found("SP19.late", does=does, late=late)
