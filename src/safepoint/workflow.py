"""Workflow: steps, the state between them, and a checkpoint after each.

Small on purpose: enough to show what resuming means, and what it trusts.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from safepoint.checkpoint import Checkpoint
from safepoint.errors import Conflict, WorkflowError, WorkflowMismatch, quoted
from safepoint.ids import check_name

Step = Callable[[dict[str, Any]], Mapping[str, Any] | None]


class SavesAndLoads(Protocol):
    """What a workflow needs of a ledger."""

    def save(
        self, thread: str, state: Any, *, app: str = ..., after: int | None = ...
    ) -> Checkpoint:
        """Keep `state` as the thread's next checkpoint."""

    def load(self, thread: str, sequence: int) -> Checkpoint:
        """Return the checkpoint at `sequence`."""

    def latest(self, thread: str) -> Checkpoint:
        """Return the newest checkpoint."""


class Workflow:
    """A name and a list of steps. A step takes the state and returns what changes in it.

    A step is a plain function. If it was interrupted, or another worker took the thread at the
    same time, it runs again: what it does outside of the state must bear that.

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
        anchor_before: the steps that cannot be undone. The checkpoint before each of them is
            anchored at once, whatever the ledger's interval.

    Raises:
        WorkflowError: the steps are none, not plain functions, or two of one name.
    """

    def __init__(
        self, name: str, steps: Iterable[Step], *, anchor_before: Iterable[Step] = ()
    ) -> None:
        self.name = check_name("workflow", name)
        named = [(_step_name(step), step) for step in _listed(steps, "steps")]
        self.steps = dict(named)
        if not named or len(self.steps) != len(named):
            raise WorkflowError(
                f"The workflow {name} needs one or more steps with different names.",
                "Give each step a function of its own.",
            )
        irrevocable = _listed(anchor_before, "anchor_before")
        self.anchor_before = frozenset(_step_name(step) for step in irrevocable)
        if not self.anchor_before <= set(self.steps):
            raise WorkflowError(
                f"The workflow {name} has no step to anchor before.",
                "Name steps of this workflow in anchor_before.",
            )

    def start(self, ledger: SavesAndLoads, /, thread: str, **state: Any) -> Run:
        """Begin a new thread with `state` and run every step.

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
        run = Run(self, ledger, thread, copy.deepcopy(state), done=(), head=0)
        try:
            run.capture()
        except Conflict:
            raise Conflict(
                f"{thread} has started already.",
                "Nothing was overwritten. Go on with resume, or start a thread of another name.",
            ) from None
        return run

    def resume(self, ledger: SavesAndLoads, /, thread: str, sequence: int | None = None) -> Run:
        """Go on from the latest checkpoint, or from the one that you name, and run what is left.

        Raises:
            CheckpointError: the checkpoint was refused, or belongs to another workflow.
        """
        return self.rehydrate(ledger, thread, sequence).finish()

    def rehydrate(self, ledger: SavesAndLoads, /, thread: str, sequence: int | None = None) -> Run:
        """Rebuild a run from a checkpoint, in any process, without running anything yet.

        Raises:
            CheckpointError: the checkpoint was refused, or belongs to another workflow.
        """
        latest = ledger.latest(thread)
        checkpoint = latest if sequence is None else ledger.load(thread, sequence)
        state, done = self._unpack(checkpoint)
        return Run(self, ledger, thread, state, done=done, head=latest.sequence)

    def _unpack(self, checkpoint: Checkpoint) -> tuple[dict[str, Any], tuple[str, ...]]:
        saved = checkpoint.state
        if checkpoint.app != self.name or not isinstance(saved, dict):
            raise WorkflowMismatch(
                f"{checkpoint.thread} #{checkpoint.sequence} was not written by the workflow "
                f"{self.name} but by {quoted(checkpoint.app)}.",
                "Resume it with the workflow that wrote it.",
            )
        state, done = saved.get("state"), saved.get("done")
        if not isinstance(state, dict) or not isinstance(done, list):
            raise WorkflowMismatch(
                f"{checkpoint.thread} #{checkpoint.sequence} does not hold a workflow's state.",
                "Load it with Ledger.load, if you wrote it with Ledger.save.",
            )
        if done != list(self.steps)[: len(done)]:
            raise WorkflowMismatch(
                f"{checkpoint.thread} #{checkpoint.sequence} was written by other steps than "
                f"those of {self.name} today.",
                "Resume it with the code that wrote it, or start the thread anew.",
            )
        return state, tuple(done)


class Run:
    """One run of a workflow: its state, what is done, and what comes next.

    Iterating over it runs one step at a time and yields the checkpoint after each.

    Attributes:
        thread: the name of the thread.
        state: the state after the last step that finished.
        done: the names of the steps that finished.
        head: the sequence of the thread's latest checkpoint.
    """

    def __init__(
        self,
        workflow: Workflow,
        ledger: SavesAndLoads,
        thread: str,
        state: dict[str, Any],
        *,
        done: tuple[str, ...],
        head: int,
    ) -> None:
        self.workflow = workflow
        self.thread = thread
        self.state = state
        self.done = done
        self.head = head
        self._ledger = ledger

    @property
    def next(self) -> str | None:
        """The name of the step that runs next, or None at the end."""
        names = list(self.workflow.steps)
        return names[len(self.done)] if len(self.done) < len(names) else None

    def step(self) -> Checkpoint:
        """Run the next step and capture its result.

        A step that raises changes nothing: the state and the last checkpoint stay.

        Raises:
            WorkflowError: there is no step left, or the step did not return what changes.
            CheckpointError: the checkpoint was refused.
        """
        name = self.next
        if name is None:
            raise WorkflowError(
                f"{self.thread} has run every step.", "Start a new thread to run it again."
            )
        before = self.state, self.done
        given = copy.deepcopy(self.state)
        returned = self.workflow.steps[name](given)
        changes = _changes(name, returned, given, self.state)
        self.state = {**self.state, **copy.deepcopy(dict(changes))}
        self.done = (*self.done, name)
        try:
            return self.capture()
        except BaseException:
            self.state, self.done = before
            raise

    def capture(self) -> Checkpoint:
        """Save the run as it is now, as the thread's next checkpoint."""
        saved = {"done": list(self.done), "state": copy.deepcopy(self.state)}
        anchor: dict[str, Any] = (
            {"anchor": "now"} if self.next in self.workflow.anchor_before else {}
        )
        checkpoint = self._ledger.save(
            self.thread, saved, app=self.workflow.name, after=self.head, **anchor
        )
        self.head = checkpoint.sequence
        return checkpoint

    def finish(self) -> Run:
        """Run every step that is left, and return the run itself."""
        for _ in self:
            pass
        return self

    def __iter__(self) -> Iterator[Checkpoint]:
        while self.next is not None:
            yield self.step()

    def __repr__(self) -> str:
        return (
            f"Run({self.workflow.name!r}, {self.thread!r}, done={self.done!r}, next={self.next!r})"
        )


def _listed(steps: Iterable[Step], name: str) -> list[Step]:
    if not isinstance(steps, Iterable):
        raise WorkflowError(
            f"The {name} of a workflow are a list of functions, not {type(steps).__name__}.",
            f"Write {'[first, second]' if name == 'steps' else 'anchor_before=[pay]'}.",
        )
    return list(steps)


def _step_name(step: Step) -> str:
    name = getattr(step, "__name__", "")
    if not isinstance(name, str) or not name.isidentifier():
        raise WorkflowError(
            f"{quoted(name)} cannot name a step.", "Use functions that were defined with def."
        )
    if inspect.iscoroutinefunction(step):
        raise WorkflowError(
            f"The step {name} is async.", "Steps are plain functions: call asyncio.run inside it."
        )
    return str(name)


def _changes(
    name: str, returned: object, given: dict[str, Any], before: dict[str, Any]
) -> Mapping[str, Any]:
    """Return what a step changed, unless it changed what it was given and did not say so."""
    changes = {} if returned is None else returned
    if not isinstance(changes, Mapping):
        raise WorkflowError(
            f"The step {name} returned {type(returned).__name__}.",
            "Return a dict of what changes in the state, or nothing.",
        )
    unsaid = {key for key in {*given, *before} - set(changes) if _differs(key, given, before)}
    if unsaid:
        raise WorkflowError(
            f"The step {name} changed the state in place, which is not kept.",
            'Return what changes instead: return {"amount": 42}',
        )
    return changes


def _differs(key: str, given: dict[str, Any], before: dict[str, Any]) -> bool:
    if key not in given or key not in before:
        return True
    # A class without a comparison of its own differs from any copy, changed or not.
    return bool(given[key] != before[key] and copy.deepcopy(before[key]) == before[key])
