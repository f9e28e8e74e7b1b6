"""Is each thread written by the worker that owns it?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Final

from safepoint._files import absolute
from safepoint.audit.files import existing_folder, unseen
from safepoint.audit.finding import Finding, shortened
from safepoint.errors import CheckpointError
from safepoint.names import spelled
from safepoint.storage.base import MAX_SECONDS, MAX_TOKEN, Lease
from safepoint.storage.file import StoredFolder
from safepoint.storage.sqlite import SQLiteCheckpointStorage

# Clocks may differ, though not by more than this.
_LONGEST: Final = timedelta(seconds=MAX_SECONDS, hours=1)


def check_ownership(path: str | os.PathLike[str]) -> list[Finding]:
    """Look for threads that no worker owns or ever owned, in a storage in files or in SQLite.

    ```python
    from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.audit import check_ownership

    storage, keys = FileCheckpointStorage("state"), Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="invoices", keys=keys)
    ledger.save("order-7", {"amount": 42})
    with ledger.own("order-8", "worker-1"):
        ledger.save("order-8", {"amount": 42})
    for finding in check_ownership("state"):
        print(finding.rule, finding.severity, finding.what)
        #> SP07 note No worker ever owned thread 'order-7', so any worker may write it.
    ```

    Args:
        path: the folder of a file storage, or the file of an SQLite storage.

    Returns:
        Under SP07, an error for a lease that does not say who owns its thread, that ends later
        than any can, or that is the last there can be; a warning for one that ended, and was never
        released; a note for a thread that was never owned.

    Raises:
        StorageUnavailable: there is no such folder, and no such file.
    """
    return check_ownership_at_time(path, datetime.now(UTC))


def check_ownership_at_time(path: str | os.PathLike[str], now: datetime) -> list[Finding]:
    """Do as `check_ownership` does, with the time that you give."""
    in_file = os.path.isfile(path)  # noqa: PTH113  that of Path may raise
    root = absolute(path) if in_file else existing_folder(path)
    try:
        with (
            closing(SQLiteCheckpointStorage(root, read_only=True))
            if in_file
            else nullcontext(StoredFolder(root)) as storage
        ):
            findings = [each for name in storage.threads() for each in _thread(storage, name, now)]
    except CheckpointError as refusal:
        return [Finding("SP07", "error", refusal.what, refusal.do, root)]
    except OSError as error:
        return [unseen("SP07", root, error.strerror)]
    return shortened(findings, "SP07", root)


def _thread(
    storage: StoredFolder | SQLiteCheckpointStorage, name: str, now: datetime
) -> Iterator[Finding]:
    where = str(storage.path / name) if isinstance(storage, StoredFolder) else name
    try:
        lease, token = storage.lease(name), storage.token(name)
    except CheckpointError as refusal:
        yield Finding("SP07", "error", refusal.what, refusal.do, where)
        return
    if token >= MAX_TOKEN:
        yield Finding(
            "SP07",
            "error",
            f"Thread '{name}' has handed out its last token, so no worker can own it any more.",
            "Somebody edited its lease. Go on in a new thread.",
            where,
        )
    if lease is not None and lease.expires - now > _LONGEST:
        yield _endless(lease, where)
    elif lease is not None and lease.expires <= now:
        yield _ended(lease, where)
    elif not token:
        yield Finding(
            "SP07",
            "note",
            f"No worker ever owned thread '{name}', so any worker may write it.",
            "Let workers own what they work on: with ledger.own(thread, worker).",
            where,
        )


def _endless(lease: Lease, where: str) -> Finding:
    return Finding(
        "SP07",
        "error",
        f"Worker '{lease.owner}' owns thread '{lease.thread}' until {spelled(lease.expires)}, and"
        f" no lease lasts longer than {MAX_SECONDS // 3600} hours.",
        "Somebody edited it, or the clock of that worker is wrong. Find out, then own the thread"
        " under that worker's name and release it.",
        where,
    )


def _ended(lease: Lease, where: str) -> Finding:
    return Finding(
        "SP07",
        "warning",
        f"Worker '{lease.owner}' owned thread '{lease.thread}' until {spelled(lease.expires)}, and"
        " never released it.",
        "It may have died in the middle of its work. Find out, then let another worker own the"
        " thread and resume it.",
        where,
    )
