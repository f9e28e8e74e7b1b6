"""What Microsoft Agent Framework puts into its checkpoints, as plain data.

A checkpoint holds the messages that are under way, each as a pickle of a class of the framework.
Here they become what that class's own `to_dict` returns, and its `from_dict` takes: neither needs
the framework.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final

from safepoint.errors import PickleRefused, quoted
from safepoint.migrate import Link

EVENTS: Final = "agent_framework._workflows._events"
"""Where the framework keeps the class of a request that waits for an answer."""

VERSION: Final = "1.0"
NOT_SEALED: Final = "Nothing of it was sealed. Look who wrote it."
_CONTEXT: Final = "agent_framework._workflows._runner_context"


class Delivery(Enum):
    """The framework's `MessageType`."""

    STANDARD = "standard"
    RESPONSE = "response"


@dataclass
class Message:
    """The framework's `WorkflowMessage`, with the same fields."""

    data: Any
    source_id: str
    target_id: str | None
    type: Delivery
    trace_contexts: list[dict[str, str]] | None
    source_span_ids: list[str] | None
    original_request_info_event: None


FRAMEWORK: Final[Mapping[str, type]] = {
    f"{_CONTEXT}.WorkflowMessage": Message,
    f"{_CONTEXT}.MessageType": Delivery,
}
"""The framework's names, and what stands for them here."""


def beside(types: Iterable[type] | Mapping[str, type]) -> Mapping[str, type]:
    """Return the types of the caller by name, and the framework's. The caller's come first."""
    if not isinstance(types, Mapping):
        types = {f"{cls.__module__}.{cls.__qualname__}": cls for cls in types}
    return {**FRAMEWORK, **types}


def as_data(value: Any) -> Any:
    """Return a value with each message in it as a dict."""
    if type(value) is Message:
        shown = {each.name: as_data(getattr(value, each.name)) for each in fields(value)}
        return {**shown, "type": value.type.value}
    if type(value) is dict:
        return {key: as_data(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(as_data(inner) for inner in value)
    return value


def link_of(name: str, value: Any) -> Link:
    """Return what a checkpoint of the framework says about its place.

    Args:
        name: the name of its file.
        value: its JSON.

    Raises:
        PickleRefused: it is none, or is not the one that its name says.
    """
    said = value if isinstance(value, dict) else {}
    identity, previous = said.get("checkpoint_id"), said.get("previous_checkpoint_id")
    iteration, workflow = said.get("iteration_count"), said.get("workflow_name")
    if not (
        isinstance(identity, str)
        and isinstance(workflow, str)
        and type(iteration) is int
        and iteration >= 0
        and (previous is None or (isinstance(previous, str) and previous))
        and isinstance(said.get("state"), dict)
    ):
        raise PickleRefused(
            "It is JSON, and no checkpoint of Agent Framework.",
            "Nothing of it was sealed. Read it with safepoint.migrate.json_files, or move it"
            " to another folder.",
        )
    if name != f"{identity}.json":
        raise PickleRefused(
            f"It says that it is the checkpoint {quoted(identity)}, and its name says otherwise.",
            NOT_SEALED,
        )
    if said.get("version") != VERSION:
        raise PickleRefused(
            f"It is a checkpoint of version {quoted(said.get('version'))}, and"
            f" {VERSION} is known here.",
            NOT_SEALED,
        )
    return Link(name, identity, previous, iteration, workflow)
