"""Workflow: steps, the state between them, and a checkpoint after each.

Small on purpose: enough to show what resuming means, and what it trusts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from safepoint._workflow import resumption
from safepoint._workflow.asking import Approved, Ask, Call
from safepoint._workflow.granting import check_not_refused
from safepoint._workflow.ledgers import SavesAndLoads
from safepoint._workflow.looking import look
from safepoint._workflow.migration import Migration
from safepoint._workflow.payload import Payload
from safepoint._workflow.plan import Plan, Step
from safepoint._workflow.run import Run
from safepoint.approval import Question
from safepoint.errors import (
    CheckpointError,
    Conflict,
)

__all__ = ["Approved", "Ask", "Call", "Migration", "Run", "SavesAndLoads", "Step", "Workflow"]


class Workflow(Plan):
    """A name and a list of steps. A step takes the state and returns what changes in it.

    A step is a plain function. If it was interrupted, or another worker took the thread at the
    same time, it runs again: what it does outside of the state must bear that. A step with a second
    argument gets a `Call`, which has a key for that.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey, Workflow

    def fetch(state):
        return {"amount": 42}

    def pay(state):
        return {"paid": state["amount"]}

    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
    )
    run = Workflow("invoice", [fetch, pay]).start(ledger, thread="order-7", order=7)
    print(run.state)
    #> {'order': 7, 'amount': 42, 'paid': 42}
    ```

    Args:
        name: the workflow's name; a checkpoint of another workflow is refused.
        steps: functions, in order. Their names are what a checkpoint remembers.
        version: of the steps. A checkpoint of another version goes through the gate.
        tools: what the run can use. A wider set than a checkpoint's goes through the gate.
        migrations: how the state of an older version becomes one of this version.
        gate: who may resume into what. The default is strict, and knows nobody who approves.
        anchor_before: the steps that cannot be undone. The checkpoint before each of them is
            anchored at once, whatever the ledger's interval.

    Raises:
        WorkflowError: the steps are none, not plain functions, or two of one name.
        ConfigurationError: an argument is of the wrong kind, or the migrations lead elsewhere.
    """

    def start(self, ledger: SavesAndLoads, /, thread: str, **state: Any) -> Run:
        """Begin a new thread with `state`, and run every step up to the end or a pause.

        Raises:
            Conflict: the thread exists. Resume it, or choose another name.
            CheckpointError: a checkpoint was refused; the steps stop there.
        """
        return self.begin(ledger, thread, **state).finish()

    def begin(self, ledger: SavesAndLoads, /, thread: str, **state: Any) -> Run:
        """Begin a new thread and capture its first checkpoint, without running a step yet.

        Raises:
            Conflict: the thread exists. Resume it, or choose another name.
            CheckpointError: the checkpoint was refused.
        """
        run = Run(self, ledger, thread, Payload(copy.deepcopy(state), tools=self.tools))
        try:
            run.record()
        except Conflict:
            raise Conflict(
                f"{thread} has started already.",
                "Nothing was overwritten. Go on with resume, or start a thread of another name.",
            ) from None
        return run

    def resume(
        self,
        ledger: SavesAndLoads,
        /,
        thread: str,
        sequence: int | None = None,
        *,
        approvals: Iterable[str] = (),
    ) -> Run:
        """Go on from the latest checkpoint, or from the one that you name, and run what is left.

        Args:
            ledger: where the thread is.
            thread: the thread.
            sequence: an older checkpoint to go back to. The gate asks for a person's approval.
            approvals: what people signed, if the gate asks for them.

        Raises:
            ApprovalNeeded: the gate wants people to approve it. The error has the question.
            ResumeRefused: the gate says no.
            ApprovalError: an approval does not count.
            CheckpointError: the checkpoint was refused, or belongs to another workflow.
        """
        return self.rehydrate(ledger, thread, sequence, approvals=approvals).finish()

    def rehydrate(
        self,
        ledger: SavesAndLoads,
        /,
        thread: str,
        sequence: int | None = None,
        *,
        approvals: Iterable[str] = (),
    ) -> Run:
        """Rebuild a run from a checkpoint, in any process, without running anything yet.

        It passes the same gate as `resume`, and takes and raises the same.
        """
        now = datetime.now(UTC)
        return self.rehydrate_at_time(ledger, thread, sequence, approvals=approvals, now=now)

    def rehydrate_at_time(
        self,
        ledger: SavesAndLoads,
        /,
        thread: str,
        sequence: int | None = None,
        *,
        approvals: Iterable[str] = (),
        now: datetime,
    ) -> Run:
        """Rebuild a run as if it were `now`, an aware time. Approvals and leases end by it."""
        return resumption.resume(self, ledger, thread, sequence, approvals, now)

    def resume_at_time(
        self,
        ledger: SavesAndLoads,
        /,
        thread: str,
        sequence: int | None = None,
        *,
        approvals: Iterable[str] = (),
        now: datetime,
    ) -> Run:
        """Go on as if it were `now` when the gate is passed."""
        run = self.rehydrate_at_time(ledger, thread, sequence, approvals=approvals, now=now)
        return run.finish()

    def question(
        self, ledger: SavesAndLoads, /, thread: str, sequence: int | None = None
    ) -> Question | None:
        """Return what people must approve before such a resume, or None if nothing.

        It is for the approver's own process: it reads the verified store, and needs no word of the
        worker, who may still own the thread.

        Raises:
            ResumeRefused: nobody can approve it.
            CheckpointError: the checkpoint was refused, or belongs to another workflow.
        """
        wanted = look(self, ledger, thread, sequence, to_ask=True)
        if wanted.is_over:
            return None
        check_not_refused(wanted)
        return wanted.question

    def waiting(self, ledger: SavesAndLoads) -> Iterator[Question]:
        """Return the question of each thread of this workflow that waits for people.

        A thread that does not verify, or is of another workflow, is left out: `Ledger.verify` tells
        about the first.
        """
        for thread in ledger.threads():
            with suppress(CheckpointError):
                found = look(self, ledger, thread, None, to_ask=True)
                if found.asked is not None and found.question is not None and not found.is_over:
                    yield found.question
