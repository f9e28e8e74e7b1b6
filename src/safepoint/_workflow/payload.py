"""What a workflow keeps in a checkpoint: the state, how far it came, and what people said."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from safepoint._workflow.asking import Ask
from safepoint.checkpoint import Checkpoint
from safepoint.errors import CheckpointError, WorkflowMismatch
from safepoint.tools import ToolSet


class Resumed(NamedTuple):
    """Where a resumption came from, and why it was let through.

    Attributes:
        app: what wrote the checkpoint that was resumed.
        digest: the digest of that checkpoint.
        reasons: what the gate had to say.
        sequence: its sequence.
        statements: the approvals, as they were signed.
    """

    app: str
    digest: str
    reasons: tuple[str, ...]
    sequence: int
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Payload:
    """A workflow's state as a checkpoint holds it.

    Attributes:
        state: what the steps work on.
        done: the names of the steps that finished.
        tools: the tool set in force.
        asked: what the run waits for, or None.
        approved: the signed approvals of what was asked last, for the steps that follow.
        denied: the signed denial that ended the run, or None.
        resumed: where this checkpoint came from, if it was resumed through the gate.
        origin: the checkpoint at which the last step ended, if that is an earlier one.
    """

    state: dict[str, Any] = field(repr=False)
    done: tuple[str, ...] = ()
    tools: ToolSet = field(default_factory=ToolSet)
    asked: Ask | None = None
    approved: tuple[str, ...] = ()
    denied: str | None = None
    resumed: Resumed | None = None
    origin: int | None = None

    def pack(self) -> dict[str, Any]:
        """Return it as plain values, without what there is nothing to say about."""
        packed: dict[str, Any] = {"done": list(self.done), "state": copy.deepcopy(self.state)}
        if self.tools:
            packed["tools"] = self.tools.described
        if self.asked is not None:
            packed["asked"] = {
                "action": self.asked.action,
                "arguments": copy.deepcopy(dict(self.asked.arguments)),
            }
        if self.approved:
            packed["approved"] = list(self.approved)
        if self.denied is not None:
            packed["denied"] = self.denied
        if self.resumed is not None:
            packed["resumed"] = {
                **self.resumed._asdict(),
                "reasons": list(self.resumed.reasons),
                "statements": list(self.resumed.statements),
            }
        if self.origin is not None:
            packed["origin"] = self.origin
        return packed

    @classmethod
    def unpack(cls, checkpoint: Checkpoint) -> Payload:
        """Return what a workflow kept in a checkpoint.

        Raises:
            WorkflowMismatch: it holds something else.
        """
        try:
            payload = cls._unpacked(checkpoint.state)
        except (CheckpointError, KeyError, TypeError, ValueError):
            payload = None
        if payload is None or checkpoint.tools != (payload.tools.digest if payload.tools else None):
            raise WorkflowMismatch(
                f"{checkpoint.thread} #{checkpoint.sequence} does not hold a workflow's state.",
                "Load it with Ledger.load, if you wrote it with Ledger.save.",
            )
        return payload

    @classmethod
    def _unpacked(cls, saved: Any) -> Payload:
        rest = dict(saved)
        asked, resumed = rest.pop("asked", None), rest.pop("resumed", None)
        payload = cls(
            state=_a(dict, rest.pop("state")),
            done=_texts(rest.pop("done")),
            tools=ToolSet.from_described(rest.pop("tools", [])),
            asked=None if asked is None else Ask(**_a(dict, asked)),
            approved=_texts(rest.pop("approved", [])),
            denied=rest.pop("denied", None),
            resumed=None if resumed is None else _resumed(dict(_a(dict, resumed))),
            origin=rest.pop("origin", None),
        )
        _a((str, type(None)), payload.denied)
        _a((int, type(None)), payload.origin)
        if rest:
            raise ValueError
        return payload


def _resumed(saved: dict[str, Any]) -> Resumed:
    reasons, statements = _texts(saved.pop("reasons")), _texts(saved.pop("statements"))
    found = Resumed(reasons=reasons, statements=statements, **saved)
    _a(str, found.app), _a(str, found.digest), _a(int, found.sequence)
    return found


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_a(str, item) for item in _a(list, value))


def _a(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError
    return value
