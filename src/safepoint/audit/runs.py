"""How each run of a store came to go on: across versions, back in time, with other tools, by whom.

The writer's key seals the records, so a seal does not say that anybody was asked. What a workflow
would have written, and whom its gate would have asked, is worked out again, and compared with what
is there and with what people signed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from safepoint.audit.finding import Finding, finding, of_tenant, refused, worst_first
from safepoint.audit.ledger import approvers_apart
from safepoint.audit.reading import Entry, Thread, all_threads, read
from safepoint.core.errors import (
    ApprovalError,
    ApprovalExpired,
    CheckpointError,
    ConfigurationError,
    ResumeRefused,
    quoted,
)
from safepoint.core.ledger import Ledger
from safepoint.core.names import Head, spelled
from safepoint.resume.answers import held
from safepoint.resume.approval import SKEW, Approval, Question, Reason
from safepoint.resume.gate import Decision, Gate, compare
from safepoint.resume.workflow import Payload, Resumed

_RULES: Final = {
    Reason.OLD_CHECKPOINT: "SP16",
    Reason.VERSION_CHANGED: "SP17",
    Reason.NO_MIGRATION: "SP17",
    Reason.TOOLS_ADDED: "SP18",
    Reason.TOOL_CHANGED: "SP18",
    Reason.PERMISSIONS_WIDENED: "SP18",
    Reason.ASKED: "SP19",
    Reason.OWNED_BY_ANOTHER: "SP19",
}
_MANY: Final = 10
_OLD: Final = Reason.OLD_CHECKPOINT
_LAPSED: Final = "By then it did not count any more."


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
    print(check_versions(ledger, "invoice@1"))
    #> []
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
    return _looked(ledger, "SP17", Runs(apps=apps))


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
        Under SP16, an error for each way back that nobody approved, for a record that goes on from
        elsewhere than the one before it and does not say who resumed it, or says wrong where it
        comes from or where its last step ended, and for a run that nothing began; a warning for a
        way back that fewer approved than the policy asks for, and for a record that no workflow
        wrote in the thread of one; a note for each other way back, which says who approved it.

    Raises:
        StorageError: the storage cannot be listed.
    """
    return _looked(ledger, "SP16", Runs(gate))


def check_tools(ledger: Ledger, gate: Gate) -> list[Finding]:
    """Compare the tool set of every record with the one before it, and look for the approvals.

    Nothing is changed, and no state is decoded. What may be wrong with an approval itself is for
    `check_approvals`.

    ```python
    from safepoint import (
        Gate,
        InMemoryAnchor,
        InMemoryCheckpointStorage,
        InMemoryJournal,
        Keyring,
        Ledger,
        Policy,
        SigningKey,
        Tool,
        Workflow,
    )
    from safepoint.resume.approval import Reason
    from safepoint.audit import check_tools


    def read(state):
        return {}


    keys, journal = Keyring(SigningKey.generate()), InMemoryJournal()
    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=keys,
        anchor=InMemoryAnchor(),
        journal=journal,
    )
    mail = Tool("mail", permissions=["read"])
    Workflow("inbox", [read], tools=[mail]).begin(ledger, thread="run-1")
    print(check_tools(ledger, Gate()))
    #> []

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
        what it goes on from, that nobody approved; a warning if fewer approved it than the policy
        asks for; a note if no run of the store says which tools it has.

    Raises:
        StorageError: the storage cannot be listed.
    """
    runs = Runs(gate)
    return [*_looked(ledger, "SP18", runs), *runs.without_tools(ledger.store)]


def check_approvals(ledger: Ledger, gate: Gate) -> list[Finding]:
    """Work out again, for every run of a store, who had to be asked, and look at what they signed.

    The writer's key seals the records, so a seal does not say that anybody approved. This trusts
    the approvers' keys alone. Nothing is changed, and no state is decoded.

    ```python
    from safepoint import (
        Approvers,
        Ask,
        Gate,
        InMemoryAnchor,
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


    gate = Gate(approvers=Approvers({"dana": SigningKey.generate().public}))
    keys, journal = Keyring(SigningKey.generate()), InMemoryJournal()
    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=keys,
        anchor=InMemoryAnchor(),
        journal=journal,
    )
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
        Under SP19, an error for each record that goes on without an answer or after a denial, that
        carries an approval which nobody of these people signed, or for something else, or that it
        was not resumed with, or that does not say why it was resumed; for an approver's key that is
        on the ring, in the storage, or here as a secret; a warning for one by fewer people than the
        policy asks for, outside of its time by the record's own, or by a key that was revoked
        since; a note for what was pruned.

    Raises:
        StorageError: the storage cannot be listed.
    """
    found = _looked(ledger, "SP19", Runs(gate))
    return worst_first([*approvers_apart(ledger, gate.people), *found])


def check_waits(ledger: Ledger, gate: Gate | None = None) -> list[Finding]:
    """Find the runs that wait: without an end, for too long, or because somebody holds them.

    Nothing is changed, and no state is decoded.

    ```python
    from datetime import timedelta

    from safepoint import Approvers, Ask, Gate, InMemoryAnchor, InMemoryCheckpointStorage
    from safepoint import InMemoryJournal, Keyring, Ledger, SigningKey, Workflow
    from safepoint.audit import check_waits


    def ask(state):
        return Ask("pay", {"amount": 42})


    gate = Gate(approvers=Approvers({"dana": SigningKey.generate().public}))
    keys, journal = Keyring(SigningKey.generate()), InMemoryJournal()
    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=keys,
        anchor=InMemoryAnchor(),
        journal=journal,
    )
    Workflow("invoice", [ask], gate=gate).start(ledger, thread="order-7")
    print(check_waits(ledger)[0].what)
    #> order-7 #2 waits for an approval of pay, and no time ends that.


    def ask_today(state):
        return Ask("pay", {"amount": 42}, within=timedelta(hours=24))


    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=keys,
        anchor=InMemoryAnchor(),
        journal=journal,
    )
    Workflow("invoice", [ask_today], gate=gate).start(ledger, thread="order-7")
    print(check_waits(ledger))
    #> []
    ```

    Args:
        ledger: the store, with its keys and its anchor.
        gate: the gate of your workflow. Its place of answers tells which runs are held.

    Returns:
        Under SP31, an error for each end of a wait that came too early, or was not what the run
        had asked for, and for a place of answers that does not verify; a warning for each run that
        waits without an end, and for each wait that is over and that nobody ended; a note for each
        run that an operator holds.

    Raises:
        StorageError: the storage cannot be listed.
    """
    return worst_first([*_looked(ledger, "SP31", Runs(gate)), *holds(ledger, gate or Gate())])


def holds(ledger: Ledger, gate: Gate) -> Iterator[Finding]:
    """Look into the place of the answers, if there is one, for the holds of each thread."""
    if gate.answers is None:
        return
    for scope, name in all_threads(ledger)[0]:
        tenant, operators = scope.tenant_name, gate.operators
        found: list[Finding] = []
        try:
            orders = gate.answers.orders(scope.store, name, operators, tenant=tenant)
            found += [finding("SP31.held", name, hold=each) for each in held(orders, operators)]
        except CheckpointError as refusal:
            found.append(refused("SP31", refusal, name))
        yield from of_tenant(tenant, found)


def _looked(ledger: Ledger, rule: str, runs: Runs) -> list[Finding]:
    """Return what is found under one rule, and a note of each thread that does not verify."""

    def look(thread: Thread) -> list[Finding]:
        found = [each for each in runs.look(thread) if each.rule == rule]
        unread = [finding(f"{rule}.not-read", thread.name)] * (thread.refusal is not None)
        return found + unread + thread._replace(refusal=None).findings(rule)

    return read(ledger, look)


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of a run, and what it follows.

    Attributes:
        entry: the entry.
        before: the last one before it that a workflow wrote; None if it is the first that is kept.
        last: the end of the thread before it, whoever wrote that; None if it is not kept.
        first: the first sequence that is kept.
    """

    entry: Entry
    before: Entry | None
    last: Entry | None
    first: int

    def found(self, which: str, /, **values: object) -> Finding:
        """Return a finding about its entry."""
        return finding(which, self.entry.checkpoint.thread, entry=self.entry, **values)

    @property
    def payload(self) -> Payload:
        """What the run kept in it."""
        return self.entry.payload

    @property
    def head(self) -> Head:
        """The state that it follows. A note in between is no other state, and no entry."""
        if self.last is not None:
            return self.last.head
        checkpoint = self.entry.checkpoint
        return Head(checkpoint.sequence - 1, checkpoint.previous or "")

    @property
    def end(self) -> int:
        """The sequence that it follows, 0 if there is none."""
        return self.entry.checkpoint.sequence - 1 if self.last is None else self.last.head.sequence


class Runs:
    """Looks at the runs of threads, for all five checks.

    Args:
        gate: the policy, and the people. Without it, approvals are counted and not verified.
        apps: what runs today.
    """

    def __init__(self, gate: Gate | None = None, apps: Iterable[str] = ()) -> None:
        self._verifies = gate is not None
        self._gate = gate or Gate()
        self._today = dict(map(_named, apps))
        self._has_tools: set[bool] = set()

    def without_tools(self, store: str) -> Iterator[Finding]:
        """Say that none of the runs that were looked at says which tools it has."""
        if self._has_tools == {False}:
            yield finding("SP18.no-tools", store)

    def look(self, thread: Thread) -> Iterator[Finding]:
        """Yield what is wrong with each record of a thread, and with its end."""
        entries = {entry.checkpoint.sequence: entry for entry in thread.entries}
        before = last = None
        for entry in thread.entries:
            yield from _version(entry, last, entries)
            if entry.is_run:
                self._has_tools.add(bool(entry.payload.tools))
                link = Link(entry, before, last, min(entries))
                resumed = entry.payload.resumed
                if resumed is None:
                    yield from _ended(link) if entry.payload.expired else _stepped(link)
                elif 0 < resumed.sequence < link.first:
                    yield from self._resumed(link, resumed, None)
                elif _is_named(link, resumed, source := entries.get(resumed.sequence)):
                    yield from self._resumed(link, resumed, source)
                else:
                    yield link.found("SP16.not-there", source=resumed.sequence)
                    yield from _wider(link)
                before = entry
            elif before is not None:
                yield finding("SP16.no-run", thread.name, entry=entry, head=before.head)
            last = entry
        if last is not None and thread.refusal is None and not thread.hidden:
            was = last.checkpoint.app
            app = self._today.get(was.partition("@")[0], was)
            if app != was and not last.payload.is_over:
                yield finding("SP17.left-behind", thread.name, last=last.checkpoint, app=app)
            yield from _waits(last)

    def _resumed(self, link: Link, resumed: Resumed, source: Entry | None) -> Iterator[Finding]:
        """Compare a record of a resumption with what the gate would have said there.

        Args:
            link: the record.
            resumed: what it says of itself.
            source: what it was resumed from, None if that was pruned.
        """
        if source is None:
            yield link.found("SP19.pruned", source=resumed.sequence)
        yield from _carried(link, resumed, source)
        decision = self._decided(link, resumed, source)
        approvals = list[Approval]()
        for text in resumed.statements if self._verifies else ():
            try:
                approval = self._gate.people.open(text, revoked=True)
                approval.check_answers(self._question(link, source, decision, approval))
            except ApprovalError as refusal:
                yield link.found("SP19.not-counted", why=refusal.what)
            else:
                approvals.append(approval)
                yield from self._outside(link, approval)
        denials = [each for each in approvals if each.verdict == "denied"]
        if denials:
            yield from _denied(link, resumed, source, denials[0])
        elif self._verifies and (not resumed.reasons or resumed.reasons != decision.reasons):
            yield _reasons(link, resumed, decision.reasons)
        if denials or (link.payload.denied is not None and not self._verifies):
            return
        names = sorted({each.approver for each in approvals})
        people, how = len(names), f"approved by {' and '.join(names)}"
        if not self._verifies:
            people = len(resumed.statements)
            how = f"with {people} approval{'s' * (people > 1)}, which nobody verified here"
        few = self._too_few(link, resumed, decision, people)
        yield from few.values()
        if approvals and "SP19" not in few:
            yield from self._without_role(link, approvals[0].question, names, people)
        if source is None and not people:
            yield from _wider(link)
        if resumed.sequence < link.end and "SP16" not in few:
            how = how if people else "which your policy lets anybody do"
            yield link.found("SP16.back", end=link.end, source=resumed.sequence, how=how)

    def _decided(self, link: Link, resumed: Resumed, source: Entry | None) -> Decision:
        """Return what the gate would have said."""
        if source is None:  # as far as one can tell
            back = resumed.sequence < link.end
            kept = [each for each in Reason if (back if each == _OLD else each in resumed.reasons)]
            return Decision(tuple(kept), self._gate.policy.needs(*kept), (), ())
        was = source.payload
        # Whether an approval from before still counted was for the people and the policy of that
        # time to say, so both are tried.
        decisions = [
            self._gate.decide(
                source.checkpoint,
                link.head,
                had=was.tools,
                has=link.payload.tools,
                app=link.entry.checkpoint.app,
                migrates_from=[source.checkpoint.app.partition("@")[2]],
                asked=was.asked is not None,
                lapsed=lapsed,
            )
            for lapsed in (("", _LAPSED) if was.approved else (None,))
        ]
        said = [each for each in decisions if each.reasons == resumed.reasons]
        return (said or decisions)[0]

    def _question(
        self, link: Link, source: Entry | None, decision: Decision, approval: Approval
    ) -> Question:
        """Return what somebody had to be asked, in the words that they signed.

        What was denied may be another version of the workflow, with other tools: of those there is
        no more than what was signed.
        """
        place, signed, resumed = link.entry.checkpoint, approval.question, link.payload.resumed
        tenant = place.tenant
        right = replace(
            signed, store=place.store, tenant=tenant, thread=place.thread, head=link.head
        )
        if resumed is not None:
            right = replace(right, checkpoint=Head(resumed.sequence, resumed.digest))
        if approval.verdict == "approved":
            tools, reasons = link.payload.tools.digest, decision.reasons or signed.reasons
            done = link.payload.done
            right = replace(right, app=place.app, tools=tools, reasons=reasons, done=done)
        elif signed.app.partition("@")[0] != place.app.partition("@")[0]:
            right = replace(right, app=place.app)
        if source is None:
            return right
        was = source.payload
        if was.asked is not None:
            over = until(source) if source is link.last else None
            right = replace(right, until=spelled(over) if over else "")
            return replace(right, action=was.asked.action, arguments=dict(was.asked.arguments))
        if Reason.ASKED in decision.reasons:
            asked = self._gate.people.open(was.approved[0], revoked=True).question
            return replace(right, action=asked.action, arguments=asked.arguments)
        return replace(right, action="", arguments={})

    def _outside(self, link: Link, approval: Approval) -> Iterator[Finding]:
        """Look at whether an answer counts by its key, and when the record was written."""
        does = "ends with a denial" if approval.verdict == "denied" else "goes on from an approval"
        if approval.key in self._gate.people.revoked:
            yield link.found("SP19.revoked", does=does, approval=approval)
        created = link.entry.checkpoint.created
        # Nothing is taken off `created`: whoever wrote it may have put the first day there is.
        just_late = timedelta() <= created - approval.expires < SKEW
        try:
            when = approval.issued if just_late else created
            approval.check_time(when, self._gate.policy.lifetime)
        except ApprovalExpired as refusal:
            yield link.found("SP19.late", does=does, late=refusal.what)

    def _without_role(
        self, link: Link, asked: Question, names: list[str], people: int
    ) -> Iterator[Finding]:
        """Look at whether these people may approve that amount."""
        try:
            why = self._gate.lacks(asked, names, people)
        except ResumeRefused as refusal:
            yield link.found("SP19.no-role", why=refusal.what)
        else:
            if why:
                yield link.found("SP19.no-role", why=f"It needed the approval of {why}.")

    def _too_few(
        self, link: Link, resumed: Resumed, decision: Decision, people: int
    ) -> dict[str, Finding]:
        """Return what too few people approved, by the rule that wants more of them."""
        rules: dict[str, list[Reason]] = {}
        for reason in decision.reasons:
            rules.setdefault(_RULES[reason], []).append(reason)
        more = len(decision.details) - _MANY
        details = [*decision.details[:_MANY], *[f"And {more} more like these."] * (more > 0)]
        found = {}
        for rule, reasons in rules.items():
            needed = self._gate.policy.needs(*reasons)
            if (needed is None or people < needed) and (self._verifies or rule == "SP16"):
                why = "The policy lets nobody approve that."
                if needed is not None:
                    why = f"It needed {needed} to approve it, and {people} did."
                found[rule] = link.found(
                    f"{rule}.too-few",
                    severity="warning" if people else "error",
                    source=resumed.sequence,
                    why=" ".join([*details, why]),
                )
        return found


def _named(app: str) -> tuple[str, str]:
    if not app:
        raise ConfigurationError(
            f"{quoted(app)} is not the name of a workflow.", 'Give Workflow.app: "invoice@2".'
        )
    return app.partition("@")[0], app


def _version(entry: Entry, last: Entry | None, entries: dict[int, Entry]) -> Iterator[Finding]:
    """Look for a change of version, or of workflow, that no resumption explains."""
    if last is None:
        return
    app, was = entry.checkpoint.app, last.checkpoint.app
    resumed = entry.payload.resumed
    explained = False
    if resumed is not None:
        named = entries.get(resumed.sequence)
        was = resumed.app if named is None else named.checkpoint.app
        same = app.partition("@")[0] == was.partition("@")[0] and resumed.app == was
        explained = same and Reason.VERSION_CHANGED in resumed.reasons
    if app != was and not explained:
        now, before = (each or "something without a name" for each in (app, was))
        thread = entry.checkpoint.thread
        yield finding("SP17.unexplained", thread, entry=entry, now=now, before=before)


def _stepped(link: Link) -> Iterator[Finding]:
    """Look at a record that a step left, or that begins a run."""
    payload, before = link.payload, link.before
    if before is None:
        yield from _begun(link)
        return
    was, kept = before.payload, before.checkpoint.sequence
    if was.asked is not None:
        yield link.found("SP19.unanswered", head=before.head)
    elif was.is_over:
        yield link.found("SP19.denied", head=before.head)
    elif kept != link.end or not payload.done or payload.done[:-1] != was.done:
        yield link.found("SP16.no-resume", end=link.end)
    elif payload.origin is not None:
        yield _origin(link)
    yield from _wider(link)


def _ended(link: Link) -> Iterator[Finding]:
    """Look at a record that says that a wait has ended. Nothing else changes with it."""
    payload, before = link.payload, link.before
    was = before.payload if before is not None else Payload({})
    asked, same = was.asked, False
    if before is not None and asked is not None and before is link.last:
        over = until(before)
        late = over is not None and link.entry.checkpoint.created >= over
        origin = was.origin or before.checkpoint.sequence
        same = late and replace(was, asked=None, resumed=None, origin=origin) == replace(
            payload, expired=""
        )
        same = same and payload.expired == asked.then
    if not same and link.first == 1:
        yield link.found("SP31.not-ended")
    yield from _wider(link)


def until(entry: Entry) -> datetime | None:
    """Return when a run ends its wait for people, None if it does not."""
    asked = entry.payload.asked
    return entry.checkpoint.created + asked.within if asked and asked.within else None


def _waits(last: Entry) -> Iterator[Finding]:
    """Look at whether a run that waits for people does so for ever."""
    asked, over, thread = last.payload.asked, until(last), last.checkpoint.thread
    if asked is not None and over is None:
        yield finding("SP31.no-end", thread, last=last, action=asked.action)
    elif over is not None and over < datetime.now(UTC):
        yield finding("SP31.over", thread, last=last, over=over)


def _begun(link: Link) -> Iterator[Finding]:
    """Look at the first record of a run. If what came before was pruned, nobody can tell."""
    payload, pruned = link.payload, link.first > 1
    if link.last is not None or (not pruned and (payload.done or payload.asked is not None)):
        yield link.found("SP16.unbegun")
    elif payload.origin is not None and not (pruned and 0 < payload.origin <= link.end):
        yield _origin(link)
    passed = payload.done if payload.asked is None else payload.done[:-1]
    if pruned and passed:
        yield link.found("SP19.first-kept")


def _is_named(link: Link, resumed: Resumed, source: Entry | None) -> bool:
    """Tell whether a record is the one of a workflow that another says it was resumed from."""
    return (
        source is not None
        and source.is_run
        and source.checkpoint.sequence <= link.end
        and (source.checkpoint.digest, source.checkpoint.app) == (resumed.digest, resumed.app)
    )


def _carried(link: Link, resumed: Resumed, source: Entry | None) -> Iterator[Finding]:
    """Look at whether no step ran between a record and what it was resumed from.

    Another version may name steps anew and leave some out, and not say that more are done; and if
    the answer was no, it did nothing. Going back is meant to repeat what was done.
    """
    payload, back = link.payload, resumed.sequence < link.end
    if source is None:
        right = payload.origin is None if back else 0 < (payload.origin or 0) <= resumed.sequence
        if not right:
            yield _origin(link)
        return
    was = source.payload
    migrated = link.entry.checkpoint.app != source.checkpoint.app and payload.denied is None
    fewer = migrated and len(payload.done) <= len(was.done)
    if was.is_over:
        yield link.found("SP19.denied", head=source.head)
    elif payload.asked is not None or not (fewer or payload.done == was.done):
        yield link.found("SP16.other-steps", source=resumed.sequence)
    elif payload.origin != (None if back else was.origin or resumed.sequence):
        yield _origin(link)


def _origin(link: Link) -> Finding:
    """Say that the place of the last step is wrong: it is part of the key of what is done once."""
    origin = link.payload.origin
    return link.found("SP16.origin", origin="here" if origin is None else f"at #{origin}")


def _wider(link: Link) -> Iterator[Finding]:
    """Look at a record that did not go through the gate: it has what the one before it has."""
    before = link.before
    if before is not None:
        compared = compare(link.payload.tools, before.payload.tools)
        wider = sorted({name for reason, name, _ in compared if reason is not None})
        if wider:
            yield link.found("SP18.wider", head=before.head, names=", ".join(wider))


def _denied(
    link: Link, resumed: Resumed, source: Entry | None, denial: Approval
) -> Iterator[Finding]:
    """Look at a no. It ends a run that waits for it, and changes nothing else."""
    ends = resumed.statements == (denial.text,)
    if source is not None:
        was = (source.checkpoint.app, source.payload.tools)
        as_it_was = was == (link.entry.checkpoint.app, link.payload.tools)
        waits = source.payload.asked is not None or bool(source.payload.approved)
        ends = ends and as_it_was and waits and source is link.last
    if not ends:
        yield link.found("SP19.not-the-end")
    elif resumed.reasons != denial.question.reasons:
        yield _reasons(link, resumed, denial.question.reasons)
    yield from _wider(link)


def _reasons(link: Link, resumed: Resumed, right: Iterable[str]) -> Finding:
    """Say that a record was not resumed for what it says."""
    said, was = (", ".join(each) or "nothing" for each in (resumed.reasons, right))
    return link.found("SP19.reasons", said=said, was=was)
