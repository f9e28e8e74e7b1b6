"""Is the head of each thread anchored, recently, and somewhere else?"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from safepoint._files import SUPPORTED
from safepoint.audit.finding import Finding, worst_first
from safepoint.audit.reading import view_of
from safepoint.errors import AnchorError, CheckpointError, NotFound, shell
from safepoint.ledger import Ledger
from safepoint.names import Head
from safepoint.verify import View

_PATIENCE: Final = 0.2


def check_anchor(ledger: Ledger) -> list[Finding]:
    """Compare the store with its anchor, and look at where the two are kept.

    Nothing is changed: the anchor is asked and never moved. What does not verify by its own seal
    is for `check_records`, and a note here.

    ```python
    from safepoint import InMemoryAnchor, InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.audit import check_anchor

    keys, anchor = Keyring(SigningKey.generate()), InMemoryAnchor()
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys, anchor=anchor)
    ledger.save("order-7", {"amount": 42})
    print(check_anchor(ledger))
    #> []
    emptied = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys, anchor=anchor)
    print(check_anchor(emptied)[0].what)
    #> order-7 is gone, and the anchor has seen #1.
    ```

    Returns:
        Under SP15, an error for each thread that contradicts the anchor, and if the anchor cannot
        be asked; a warning if there is no anchor, for a thread that was never anchored, and for
        one of which more than `anchor_every` checkpoints are not; a note if storage and anchor
        have one owner, or one device.

    Raises:
        StorageError: the storage cannot be listed.
    """
    if ledger.anchor is None:
        return [
            Finding(
                "SP15",
                "warning",
                f"Store {ledger.store} has no anchor, so nobody notices when its newest"
                " checkpoints are cut off.",
                "Keep the heads where the storage's writer cannot write: Ledger(...,"
                " anchor=FileAnchor(path)).",
                ledger.store,
            )
        ]
    try:
        threads = ledger.threads()
    except AnchorError as refusal:
        return [_contradicts(refusal, ledger.store)]
    view = view_of(ledger)
    found: list[Finding] = []
    heads: dict[str, int] = {}
    for thread in threads:
        found += _compare(view, thread, heads)
    return [
        *worst_first([*found, *_late(ledger, view, heads)]),
        *_place(ledger),
    ]


def _contradicts(refusal: CheckpointError, where: str) -> Finding:
    return Finding("SP15", "error", refusal.what, refusal.do, where)


def _compare(view: View, thread: str, heads: dict[str, int]) -> Iterator[Finding]:
    """Compare the end of a thread with what the anchor has seen, and keep where it ends."""
    try:
        heads[thread] = view.latest(thread).header.sequence
    except AnchorError as refusal:
        yield _contradicts(refusal, thread)
    except CheckpointError as refusal:
        yield from _refused(view, thread, refusal)


def _refused(view: View, thread: str, refusal: CheckpointError) -> Iterator[Finding]:
    try:
        known = view.anchored(thread)
        lacks = known is not None and _lacks(view, thread, known)
    except AnchorError as lost:
        yield _contradicts(lost, thread)
        return
    if known is not None and isinstance(refusal, NotFound):
        yield Finding(
            "SP15",
            "error",
            f"The newest record of {thread} is gone, and the anchor has seen {known}.",
            "Somebody removed it. Restore it from a backup that verifies.",
            thread,
        )
    elif lacks:
        yield _contradicts(refusal, thread)
    elif not isinstance(refusal, NotFound):  # which says that nothing was ever there
        yield Finding(
            "SP15",
            "note",
            f"The end of {thread} does not verify, so it was not compared with the anchor.",
            "See what check_records says of it.",
            thread,
        )


def _late(ledger: Ledger, view: View, heads: dict[str, int]) -> Iterator[Finding]:
    """Ask the anchor after the storage was asked: by now it has seen what was saved by then.

    Some writers may have saved and not anchored yet, so those that seem late get a moment.
    """
    late = [thread for thread in heads if any(_lag(ledger, view, thread, heads[thread]))]
    if late:
        time.sleep(_PATIENCE)
    for thread in late:
        yield from _lag(ledger, view, thread, heads[thread])


def _lag(ledger: Ledger, view: View, thread: str, head: int) -> Iterator[Finding]:
    try:
        anchored = view.anchored(thread)
    except AnchorError as refusal:
        yield _contradicts(refusal, thread)
        return
    if anchored is None:
        yield Finding(
            "SP15",
            "warning",
            f"{thread} was never anchored, so nobody would notice if it were gone.",
            "Verify it and anchor it once, with Ledger.anchor_now.",
            thread,
        )
    elif head - anchored.sequence > ledger.anchor_every:
        yield Finding(
            "SP15",
            "warning",
            f"{thread} is at #{head} and anchored at {anchored}: what is newer could be cut off"
            " unnoticed.",
            f"Find out which writer does not anchor every {ledger.anchor_every}, and move it with"
            " Ledger.anchor_now.",
            thread,
        )


def _lacks(view: View, thread: str, known: Head) -> bool:
    """Tell whether the record that the anchor has seen is not in the storage."""
    try:
        view.open(thread, known.sequence)
    except NotFound:
        return True
    except CheckpointError:
        return False
    return False


def _place(ledger: Ledger) -> Iterator[Finding]:
    storage, anchor = _folder(ledger.storage), _folder(ledger.anchor)
    if storage is None or anchor is None or not SUPPORTED:
        return
    kept, apart = storage.stat(), anchor.stat()
    if kept.st_uid == apart.st_uid and _writable(anchor, apart):
        yield Finding(
            "SP15",
            "note",
            f"The anchor {shell(str(anchor))} can be written by user {apart.st_uid}, who owns the"
            f" storage {shell(str(storage))} too and could roll back both.",
            "If you fear that, keep the heads under a credential of their own, with an Anchor of"
            " ten lines. This is a courtesy: the check sees owners, not who holds a password.",
            str(anchor),
        )
    if kept.st_dev == apart.st_dev:
        yield Finding(
            "SP15",
            "note",
            f"The anchor {shell(str(anchor))} and the storage {shell(str(storage))} are on one"
            " device: a snapshot that is restored takes both back.",
            "Keep the anchor on another volume, and out of the storage's backup.",
            str(anchor),
        )


def _folder(value: object) -> Path | None:
    path = getattr(value, "path", None)
    found = Path(path) if isinstance(path, (str, os.PathLike)) else None
    if found is not None and found.is_file():
        return found.parent  # a database
    return found if found is not None and found.is_dir() else None


def _writable(path: Path, info: os.stat_result) -> bool:
    return bool(info.st_mode & stat.S_IWUSR) and not os.statvfs(path).f_flag & os.ST_RDONLY
