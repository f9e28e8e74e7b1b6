"""Was each record of a file storage written once, at the next sequence, and never again?

It goes by names, modes and times. Whoever can write the folder can fake these; what proves that a
record is the one that was saved is its seal, and `check_records` asks for that.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from safepoint._files import TEMP, hard_link_refusals, record_refusals
from safepoint.audit.files import existing_folder, guarded, unseen
from safepoint.audit.finding import Finding, shortened
from safepoint.audit.threads import Record, Thread
from safepoint.errors import CheckpointError, shell
from safepoint.storage.base import beheaded, gap, is_thread

_ON_ITS_WAY: Final = 600.0
_SLACK_NS: Final = 1_000_000_000
_NAMED: Final = 5


def check_append_only(path: str | os.PathLike[str]) -> list[Finding]:
    """Look for what an append-only folder cannot have: gaps, strange names, late changes.

    ```python
    from pathlib import Path

    from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.audit import check_append_only

    storage, keys = FileCheckpointStorage("state"), Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="invoices", keys=keys)
    for amount in (1, 2, 3):
        ledger.save("order-7", {"amount": amount})
    Path("state/order-7/0000000002.checkpoint").unlink()
    for finding in check_append_only("state"):
        print(finding.rule, finding.severity, finding.what)
        #> SP13 error Thread 'order-7' has checkpoint 3 but not 2.
    ```

    Returns:
        Under SP13, an error for each thread with a gap and each record that others can change; a
        warning for a name outside the layout, for records left below the base, for records that
        were written after later ones, which a restore does, too, and for what could not be looked
        at; a note for what a crash left behind. Of a folder that no file storage wrote, one note.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    root = existing_folder(path)
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError as error:
        return [unseen("SP13", root, error.strerror)]
    threads: list[Thread] = []
    closed: list[Finding] = []
    strange: list[Finding] = []
    for name in names:
        child = f"{root}/{name}"
        try:
            if is_thread(name) and stat.S_ISDIR(Path(child).lstat().st_mode):
                threads.append(Thread(root, name))
            else:
                strange.append(_strange(child))
        except OSError as error:
            closed.append(unseen("SP13", child, error.strerror))
    if not any(thread.records for thread in threads):
        return shortened([*closed, _foreign(root)], "SP13", root) if names else []
    findings = [
        finding for thread in threads for finding in guarded("SP13", thread.path, _thread(thread))
    ]
    return shortened([*findings, *closed, *strange], "SP13", root)


def _foreign(root: str) -> Finding:
    return Finding(
        "SP13",
        "note",
        f"{shell(root)} holds no record of a FileCheckpointStorage, so nothing here tells whether"
        " it is append-only.",
        "Find out whether its writer can replace what it wrote, and keep a copy where it cannot.",
        root,
    )


def _strange(file: str) -> Finding:
    return Finding(
        "SP13",
        "warning",
        f"{shell(file)} is no file of this storage.",
        "Nothing reads it. Find out who put it there, and move it away.",
        file,
    )


def _thread(thread: Thread) -> Iterator[Finding]:
    yield from _sequence(thread)
    yield from (_strange(f"{thread.path}/{name}") for name in thread.strange)
    temp = Path(thread.path, TEMP)
    for record in thread.records.values():
        yield from guarded("SP13", record.path, _record(record, temp))
    yield from _times(thread)
    yield from guarded("SP13", str(temp), _left(temp))


def _record(record: Record, temp: Path) -> Iterator[Finding]:
    yield from (_error(each, record.path) for each in record_refusals(record.path, record.info))
    again = hard_link_refusals(record.path, Path(record.path).lstat, temp.lstat)
    yield from (_error(each, record.path) for each in again)


def _error(refusal: CheckpointError, where: str) -> Finding:
    return Finding("SP13", "error", refusal.what, refusal.do, where)


def _sequence(thread: Thread) -> Iterator[Finding]:
    if thread.malformed is not None:
        yield _error(thread.malformed, f"{thread.path}/base")
        return
    if thread.missing:
        shown = [f"{a}" if a == b else f"{a} to {b}" for a, b in thread.missing[:_NAMED]]
        more = " and more" if len(thread.missing) > _NAMED else ""
        yield Finding(
            "SP13",
            "error",
            f"Thread '{thread.name}' has checkpoint {thread.last} but not"
            f" {', '.join(shown)}{more}.",
            gap(thread.name, thread.missing[0][0], thread.last).do,
            thread.path,
        )
    if thread.first and thread.last < thread.first:
        yield _error(beheaded(thread.name, thread.first), thread.path)
    if thread.below and time.time() - thread.pruned > _ON_ITS_WAY:
        count = len(thread.below)
        left, it = (
            ("records below that are", "them") if count > 1 else ("record below that is", "it")
        )
        yield Finding(
            "SP13",
            "warning",
            f"Thread '{thread.name}' begins at {thread.first}, and {count} {left} left.",
            f"A prune was interrupted, or somebody put {it} back. Nothing reads {it}; the next"
            f" Ledger.prune removes {it}.",
            thread.path,
        )


def _times(thread: Thread) -> Iterator[Finding]:
    kept = [thread.records[number] for number in sorted(thread.records) if number >= thread.first]
    written, touched = [], []
    for record, following in pairwise(kept):
        before, after = record.info, following.info
        if before.st_mtime_ns > after.st_mtime_ns:
            written.append(record.number)
        elif before.st_ctime_ns > after.st_ctime_ns + _SLACK_NS:
            touched.append(record.number)
    if written:
        yield Finding(
            "SP13",
            "warning",
            f"Thread '{thread.name}' has records that were written after the next one:"
            f" {_numbers(written)}.",
            "A restore does that, and so does an edit. Verify the store with its key, and ask who"
            " restored it.",
            thread.path,
        )
    if touched:
        yield Finding(
            "SP13",
            "note",
            f"Thread '{thread.name}' has records whose files were changed in some way after the"
            f" next one was published: {_numbers(touched)}.",
            "A chmod, a restore or a crash does that, and so does an edit that hides its time."
            " Verify the store with its key.",
            thread.path,
        )


def _numbers(numbers: list[int]) -> str:
    shown = ", ".join(f"#{number}" for number in numbers[:_NAMED])
    return f"{shown} and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else shown


def _left(temp: Path) -> Iterator[Finding]:
    with suppress(FileNotFoundError):
        info = temp.lstat()
        if not stat.S_ISREG(info.st_mode):
            yield _strange(str(temp))
        elif time.time() - info.st_mtime > _ON_ITS_WAY:
            yield Finding(
                "SP13",
                "note",
                f"{shell(str(temp))} was left by a save that did not end.",
                "It was never acknowledged. The next save to its thread removes it.",
                str(temp),
            )
