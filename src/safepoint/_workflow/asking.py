"""What a step asks of people, and what it is told when it runs."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from safepoint.approval import checked_arguments
from safepoint.errors import CheckpointError, WorkflowError, quoted

_ACTION = re.compile(r"[A-Za-z0-9._:/-]{1,128}\Z")


@dataclass(frozen=True, slots=True)
class Ask:
    """What a step returns to let the run wait for people.

    The step counts as done. The run is captured and pauses; it goes on with the next step when
    enough people have approved exactly this action with exactly these arguments. That next step,
    and no other, is told what they approved.

    ```python
    from safepoint import Ask

    def ask(state):
        return Ask("pay", {"amount": state["amount"], "payee": state["payee"]})
    ```

    Args:
        action: what will be done, as one word.
        arguments: with what. The step that acts gets them from the signed approval, not from here.
        changes: what changes in the state.

    Raises:
        WorkflowError: the action is no word, or the arguments cannot be kept exactly.
    """

    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    changes: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.action, str) or not _ACTION.match(self.action):
            raise WorkflowError(
                f"{quoted(self.action)} cannot name what is asked.",
                "Use 1 to 128 of A-Z, a-z, 0-9 and . _ : / -",
            )
        for name in ("arguments", "changes"):
            if not isinstance(getattr(self, name), Mapping):
                raise WorkflowError(
                    f"The {name} of {self.action} are {type(getattr(self, name)).__name__}.",
                    'Give a dict: Ask("pay", {"amount": 42}).',
                )
        try:
            arguments = checked_arguments(dict(self.arguments))
        except CheckpointError as error:
            raise WorkflowError(
                f"What {self.action} is asked with cannot be signed. {error.what}",
                "Ask with a few plain values: text, numbers, Decimal, dates, lists and dicts.",
            ) from error
        object.__setattr__(self, "arguments", arguments)


class Approved(NamedTuple):
    """What people approved, out of the statements that they signed.

    Attributes:
        action: what may be done.
        arguments: with what, exactly.
        by: the names of those who approved it.
    """

    action: str
    arguments: dict[str, Any]
    by: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Approved({self.action!r}, by={self.by!r})"


@dataclass(frozen=True, slots=True)
class Call:
    """What a step that takes a second argument is told.

    Attributes:
        thread: the name of the thread.
        step: the name of the step.
        sequence: the checkpoint that the step builds on.
        key: a name for what this step does now, an idempotency key: store, thread, the checkpoint
            that the last step left, and step. It is the same if the step runs again after a crash,
            in another process, after an approval, or in a next version in which it has the same
            name and still comes next. Give it to whatever acts, and let that drop what it has seen.
    """

    thread: str
    step: str
    sequence: int
    key: str
    _approved: Approved | None = field(default=None, repr=False)

    @property
    def was_approved(self) -> bool:
        """Whether people approved what the step before this one asked for."""
        return self._approved is not None

    @property
    def approved(self) -> Approved:
        """What people approved, out of what they signed. It is for this step alone.

        Raises:
            WorkflowError: nobody was asked.
        """
        if self._approved is None:
            raise WorkflowError(
                f"Nobody was asked to approve the step {self.step}.",
                "Let the step right before it return an Ask.",
            )
        return self._approved._replace(arguments=copy.deepcopy(self._approved.arguments))
