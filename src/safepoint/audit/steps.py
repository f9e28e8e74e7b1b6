"""Steps: how far a run may come from one of its records to the next."""

from __future__ import annotations

from safepoint.audit.finding import Finding
from safepoint.workflow import Payload


def begins(payload: Payload, sequence: int, first: int) -> bool:
    """Tell whether a run may begin with a record, of which none before it is a workflow's.

    Args:
        payload: what it holds.
        sequence: its place in the thread.
        first: the first place that is kept. If others were pruned, nobody can tell.
    """
    if sequence != first:
        return False  # something else comes first, and a workflow begins in an empty thread
    return first > 1 or (not payload.done and payload.asked is None)


def unbegun(rule: str, record: object, thread: str) -> Finding:
    """Say that a run comes from nowhere."""
    return Finding(
        rule,
        "error",
        f"{record} does not begin a run, and goes on from no record of one.",
        "Find out what wrote it: a migration of states without a seal, which its report names, or"
        " whoever has the writer's key.",
        thread,
    )


def is_same(payload: Payload, before: Payload) -> bool:
    """Tell whether a record holds a run where it was, as `Run.capture` saves it."""
    over = payload.denied is not None or before.denied is not None
    return not over and (payload.done, payload.asked) == (before.done, before.asked)


def goes_on(payload: Payload, before: Payload) -> bool:
    """Tell whether a record that did not go through the gate may follow another: by one step."""
    one_more = len(payload.done) == len(before.done) + 1
    return is_same(payload, before) or (one_more and payload.done[:-1] == before.done)


def is_carried(payload: Payload, source: Payload, *, migrated: bool) -> bool:
    """Tell whether the record of a resumption may come from another: no step ran between them.

    Args:
        payload: what it holds.
        source: what was resumed.
        migrated: whether another version did. It may name steps anew and leave some out, and not
            say that more are done; and if the answer was no, it did nothing.
    """
    if payload.asked is not None:
        return False
    if migrated and payload.denied == source.denied:
        return len(payload.done) <= len(source.done)
    return payload.done == source.done


def is_origin(payload: Payload, source: Payload | None, sequence: int) -> bool:
    """Tell whether a record in which no step ended says where the last one did.

    That is part of the key of an action, by which it is done once.

    Args:
        payload: what it holds.
        source: what it goes on from; None if that was pruned.
        sequence: the place of that one.
    """
    if source is None:
        return payload.origin is not None and 0 < payload.origin <= sequence
    return payload.origin == (source.origin or sequence)
