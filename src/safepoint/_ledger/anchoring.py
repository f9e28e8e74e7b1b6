"""Moving the anchor: on to a head that was verified, or back to one that somebody accepts."""

from __future__ import annotations

from safepoint._ledger.guards import anchor_errors
from safepoint._ledger.retention import seal_base_anew
from safepoint._ledger.view import View
from safepoint._ledger.walk import verify, walk
from safepoint.anchor import Anchor
from safepoint.errors import ConfigurationError
from safepoint.heads import Head


def required(view: View) -> Anchor:
    """Return the anchor.

    Raises:
        ConfigurationError: there is none.
    """
    if view.anchor is None:
        raise ConfigurationError(
            "This ledger has no anchor.", "Write Ledger(..., anchor=FileAnchor(path))."
        )
    return view.anchor


def move(view: View, thread: str, head: Head) -> None:
    """Tell the anchor where a thread ends now.

    Raises:
        AnchorError: it cannot be written, or has seen another record there.
    """
    with anchor_errors("be moved for", thread):
        required(view).advance(view.store, thread, head)


def anchor_now(view: View, thread: str) -> Head:
    """Verify a whole thread, and move the anchor to its head.

    Raises:
        ConfigurationError: there is no anchor.
        CheckpointError: there is no such thread, it does not verify, or the anchor cannot move.
    """
    required(view)
    verify(view, thread)
    head = view.latest(thread).head
    move(view, thread, head)
    return head


def settle(view: View, thread: str) -> None:
    """Let the anchor see the newest record, if there is an anchor and it has not yet.

    Raises:
        CheckpointError: the newest record does not verify, or the anchor cannot move.
    """
    if view.anchor is None:
        return
    anchored = view.anchored(thread)
    if anchored is None:
        anchor_now(view, thread)  # nothing vouches for the past yet, so all of it is looked at
        return
    head = view.latest(thread).head
    if head != anchored:
        move(view, thread, head)


def accept_loss(view: View, thread: str) -> tuple[Head | None, Head | None]:
    """Verify what there is of a thread, and set the anchor back to that.

    Raises:
        ConfigurationError: there is no anchor, or it cannot be set back.
        CheckpointError: what is there does not verify.
    """
    anchor = required(view)
    rewind = getattr(anchor, "rewind", None)
    if not callable(rewind):
        raise ConfigurationError(
            f"{type(anchor).__name__} cannot be set back.", "Do it where the anchor is kept."
        )
    before = view.anchored(thread)
    bare = View(view.storage, view.store, view.keys, None, view.limits)
    seal_base_anew(bare, thread)
    after = None
    for opened in walk(bare, thread):
        after = opened.head
    with anchor_errors("be set back for", thread):
        rewind(view.store, thread, after)
    view.forget(thread)
    return before, after
