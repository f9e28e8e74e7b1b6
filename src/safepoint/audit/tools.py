"""Did a run ever wake up with more tools than somebody approved?"""

from __future__ import annotations

from collections.abc import Iterator

from safepoint.approval import Reason
from safepoint.audit.finding import Finding, worst_first
from safepoint.audit.replay import Link, links
from safepoint.audit.statements import FORGED, WIDER, Judges, impossible, is_here
from safepoint.errors import CheckpointError
from safepoint.gate import Gate, compare
from safepoint.ledger import Ledger


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
        Reason,
        SigningKey,
        Tool,
        Workflow,
    )
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
    judges = Judges(gate)
    found: list[Finding] = []
    runs, described = False, False
    for link in links(ledger, "SP18"):
        if isinstance(link, Finding):
            found.append(link)
            continue
        runs, described = True, described or bool(link.entry.payload.tools)
        found += _resumed(link, judges) if link.source is not None else _stepped(link, judges)
    if runs and not described:
        found.append(
            Finding(
                "SP18",
                "note",
                f"No run of store {ledger.store} says which tools it has, so a wider set would not"
                " show.",
                'Describe them: Workflow(..., tools=[Tool("mail", permissions=["read"])]).',
                ledger.store,
            )
        )
    return worst_first(found)


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


def _resumed(link: Link, judges: Judges) -> Iterator[Finding]:
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
