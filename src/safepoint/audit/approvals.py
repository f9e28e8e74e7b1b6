"""Did people approve what the records of a store say that they approved?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from safepoint.approval import Reason
from safepoint.audit.approvers import approvers_apart
from safepoint.audit.finding import Finding, Severity, worst_first
from safepoint.audit.judges import (
    FORGED,
    STOLEN,
    UNEXPLAINED,
    Judges,
    Statement,
    impossible,
    is_here,
    outside,
)
from safepoint.audit.reading import Check, Entry, Link, looked, strays
from safepoint.audit.resumed import is_same
from safepoint.errors import CheckpointError
from safepoint.gate import Gate
from safepoint.ledger import Ledger
from safepoint.workflow import Payload


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
        ConfigurationError: `gate` is no gate.
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


_ON: Final = "goes on from an approval"
_OTHER: Final = "{} carries another approval than the one that it was resumed with."
_NO: Final = "{} carries another denial than the one that was signed."
_COPY: Final = (
    "Look for it in a copy from before. Keep the checkpoints that people were asked about."
)


def _error(link: Link, what: str, do: str = FORGED, severity: Severity = "error") -> Finding:
    return Finding("SP19", severity, what, do, link.entry.checkpoint.thread)


def _stepped(link: Link) -> Iterator[Finding]:
    """Look at a record that a step left. It may ask; the answer is in a resumption alone."""
    entry, before, payload = link.entry, link.before, link.entry.payload
    if before is not None and is_same(payload, before.payload):
        before = None  # Run.capture saved what the run waits for, or how it ended, once more
    elif before is None and payload.denied is not None and link.first == 1:
        yield _error(link, f"{entry} carries a denial that answers nothing.")
    if before is not None and before.payload.asked is not None:
        yield _error(link, f"{entry} goes on without an answer to what {before.head} asked.")
    elif before is not None and before.payload.denied is not None:
        yield _error(link, f"{entry} goes on, and the run was denied at {before.head}.")
    elif payload.approved:
        yield _error(link, f"{entry} carries an approval, and was not resumed with it.")
    elif before is not None and payload.denied is not None:
        yield _error(link, f"{entry} carries a denial that answers nothing.")
    elif link.before is not None and link.last is not link.before.checkpoint:
        yield _error(link, f"{entry} goes on from what no workflow wrote.")
    elif link.before is None and link.first > 1 and _passed(payload):
        yield _error(
            link,
            f"{entry} is the first that is kept, so nobody can tell whether people answered what"
            " the run asked before it.",
            _COPY,
            "note",
        )


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
        if approval is None:
            genuine = False
            yield _refused(link, statement.why)
        elif not is_here(entry, approval):
            genuine = False
            yield _error(link, f"{entry} goes on from an approval of something else.")
        elif approval.verdict == "denied":
            denial = approval.text
        elif Reason.ASKED in approval.question.reasons:
            asked = True
    if genuine and entry.payload.denied != denial:
        yield _error(link, _NO.format(entry))
    elif genuine and entry.payload.approved != (resumed.statements if asked else ()):
        yield _error(link, _OTHER.format(entry))
    yield _error(
        link,
        f"{entry} was resumed from #{resumed.sequence}, which was pruned, so nobody can tell who"
        " had to approve it.",
        _COPY,
        "note",
    )


def _resumed(link: Link, judges: Judges, spent: dict[str, str]) -> Iterator[Finding]:
    """Look at a record that spent approvals, or that went through the gate without."""
    entry, resumed, source = link.entry, link.resumed, link.source
    if resumed is None or source is None:
        yield _error(link, f"{entry} says that it was resumed from a record that is not there.")
        return
    try:
        wanted, question = judges.judged(link)
    except CheckpointError as refusal:
        yield impossible(link, refusal, "SP19")
        return
    approvals = []
    for statement in judges.statements(link, question):
        yield from _statement(link, judges, statement, spent)
        approvals += [statement.approval] if statement.approval is not None else []
    denial = next((each.text for each in approvals if each.verdict == "denied"), None)
    ends = source.payload.asked is not None and link.last is source.checkpoint
    carried = resumed.statements if wanted.asked is not None and denial is None else ()
    if source is link.before and source.payload.denied is not None:
        yield _error(link, f"{entry} goes on, and the run was denied at {source.head}.")
    elif entry.payload.denied != denial:
        yield _error(link, _NO.format(entry))
    elif denial is not None and not (ends and resumed.statements == (denial,)):
        yield _error(link, f"{entry} ends the run with a denial that answers no step at its end.")
    elif denial is not None and not _is_as_before(entry, source):
        yield _error(link, f"{entry} ends with a denial, and is not as {source.head} was.")
    elif entry.payload.approved != carried:
        yield _error(link, _OTHER.format(entry))
    elif resumed.reasons != wanted.decision.reasons:
        yield _error(
            link,
            f"{entry} says that it was resumed for {_listed(resumed.reasons)}, and that was for"
            f" {_listed(wanted.decision.reasons)}.",
        )
    elif not resumed.reasons:
        yield _error(link, UNEXPLAINED.format(entry))
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
        again = f"{entry} goes on from an approval that was used for {used}."
        yield _refused(link, statement.why) if used is None else _error(link, again)
        return
    spent[statement.text] = str(entry)
    shown = f"{entry} {'ends with a denial' if approval.verdict == 'denied' else _ON}"
    if approval.key in judges.revoked:
        yield _error(
            link,
            f"{shown} by key {approval.key} of {approval.approver}, which was revoked.",
            STOLEN,
            "warning",
        )
    why = outside(approval, entry.checkpoint.created, judges.gate.policy.lifetime)
    if why is not None:
        yield _error(
            link,
            f"{shown} outside of its time. {why}",
            "Set the clocks of workers and approvers right, or find out who wrote it.",
            "warning",
        )


def _refused(link: Link, why: str) -> Finding:
    return _error(link, f"{link.entry} goes on from an approval that does not count. {why}")


def _listed(reasons: tuple[str, ...]) -> str:
    return ", ".join(reasons) or "nothing"
