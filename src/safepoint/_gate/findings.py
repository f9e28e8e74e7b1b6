"""The findings: what there is to say about a situation, one sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from safepoint._gate.situation import Runtime, Situation
from safepoint.reasons import Reason
from safepoint.tools import ToolSet


def find(situation: Situation) -> Iterator[tuple[Reason, str]]:
    """Yield each concrete finding with its reason."""
    checkpoint, head = situation.checkpoint, situation.head
    worker = situation.runtime.worker
    if situation.owner not in (None, worker):
        who = "a worker without a name" if worker is None else f"worker {worker!a}"
        yield (
            Reason.OWNED_BY_ANOTHER,
            f"Worker {situation.owner!a} owns the thread, and {who} wants to resume it.",
        )
    # What was not verified is not looked into: nothing else is said about it.
    if checkpoint is None:
        yield Reason.UNVERIFIED, "The checkpoint was not verified."
    elif head is None:
        yield Reason.UNVERIFIED, "The end of the thread was not verified."
    elif checkpoint.sequence > head.sequence:
        yield (
            Reason.UNVERIFIED,
            f"Checkpoint #{checkpoint.sequence} is beyond the end of the thread, {head}.",
        )
    elif checkpoint.sequence == head.sequence and checkpoint.digest != head.digest:
        yield Reason.UNVERIFIED, f"Another record than this checkpoint ends the thread at {head}."
    else:
        if checkpoint.sequence < head.sequence:
            yield (
                Reason.OLD_CHECKPOINT,
                f"The run would go back from {head} to #{checkpoint.sequence}.",
            )
        yield from _versions(checkpoint.app, situation.runtime)
        yield from _tools(situation.runtime.tools, situation.tools)
        if situation.asked:
            yield (
                Reason.ASKED,
                f"The run paused at #{checkpoint.sequence} for a person's answer.",
            )


def _versions(app: str, runtime: Runtime) -> Iterator[tuple[Reason, str]]:
    before, now = (text.partition("@")[2] for text in (app, runtime.app))
    if before == now:
        return
    old, new = (_version(text, "an unnamed version") for text in (before, now))
    yield (
        Reason.VERSION_CHANGED,
        f"The checkpoint was written by {old}, and would be resumed by {new}.",
    )
    if before not in runtime.migrates_from:
        yield Reason.NO_MIGRATION, f"No migration leads from {old} to {new}."


def _tools(now: ToolSet, before: ToolSet) -> Iterator[tuple[Reason, str]]:
    changes = now.changes_from(before)
    for name in changes.added:
        yield Reason.TOOLS_ADDED, f"The tool {name} is new."
        if words := now[name].permissions:
            yield Reason.TOOLS_ADDED, f"The tool {name} comes with {_listed(words)}."
    for name in changes.changed:
        old, new = before[name], now[name]
        if old.version != new.version:
            has, had = (_version(tool.version, "no version") for tool in (new, old))
            yield Reason.TOOL_CHANGED, f"The tool {name} has {has}, and had {had}."
        if old.schema != new.schema:
            yield Reason.TOOL_CHANGED, f"The tool {name} has another schema."
    for name, words in changes.widened:
        yield Reason.PERMISSIONS_WIDENED, f"The tool {name} gains {_listed(words)}."


def find_narrower(situation: Situation) -> Iterator[str]:
    """Yield what the run could do at the checkpoint, and can do no more."""
    changes = situation.runtime.tools.changes_from(situation.tools)
    for name in changes.removed:
        yield f"The tool {name} is gone."
    for name, words in changes.narrowed:
        yield f"The tool {name} loses {_listed(words)}."


def _version(text: str, otherwise: str) -> str:
    return f"version {text!a}" if text else otherwise


def _listed(permissions: Iterable[str]) -> str:
    words = list(permissions)
    return f"the permission{'s' * (len(words) > 1)} {', '.join(words)}"
