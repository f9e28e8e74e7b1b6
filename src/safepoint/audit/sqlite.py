"""Is the database of an SQLite storage whole, and is all of it sealed?"""

from __future__ import annotations

from collections.abc import Iterator

from safepoint.audit.contents import has_pickle
from safepoint.audit.finding import Finding, finding, of_tenant, refused, worst_first
from safepoint.core.errors import CheckpointError, LimitExceeded, NotFound, Unavailable
from safepoint.models import inspect
from safepoint.models.look import SEALED
from safepoint.stores.checks import gap
from safepoint.stores.sqlite import SQLiteCheckpointStorage


def check_database(path: str) -> list[Finding]:
    """Look at the records of an SQLite storage, by their bytes. Nothing is changed."""
    try:
        with SQLiteCheckpointStorage(path, read_only=True) as storage:
            return worst_first(_contents(storage))
    except Unavailable as refusal:
        return [refused("SP13", refusal, path)]


def _contents(storage: SQLiteCheckpointStorage) -> Iterator[Finding]:
    [(state,)] = storage.select("PRAGMA integrity_check(1)")
    if state != "ok":
        yield finding("SP13.damaged", str(storage.path))
        return
    for tenant in ("", *storage.tenants()):
        scope = storage.tenant(tenant) if tenant else storage
        for thread in scope.threads():
            yield from of_tenant(tenant, _thread(scope, thread))


def _thread(storage: SQLiteCheckpointStorage, thread: str) -> Iterator[Finding]:
    try:
        head, base = storage.head(thread), storage.base(thread)
    except CheckpointError as refusal:
        yield refused("SP13", refusal, thread)
        return
    for sequence in range(1 if base is None else base[0], head + 1):
        try:
            record = storage.read(thread, sequence)
        except NotFound:
            if storage.base(thread) == base:  # and otherwise it was pruned meanwhile
                yield refused("SP13", gap(thread, sequence, head), thread)
            return
        except CheckpointError as refusal:
            rule = "SP11" if isinstance(refusal, LimitExceeded) else "SP10"
            said = {"why": refusal.what, "do": refusal.do}
            yield finding(f"{rule}.record-refused", thread, sequence=sequence, **said)
            continue
        if not SEALED.match(record):
            kind = "SP03.record" if has_pickle(inspect(record)) else "SP10.record"
            yield finding(kind, thread, sequence=sequence)
