"""Is the database of an SQLite storage private, whole, and only ever added to?

What `SQLiteCheckpointStorage` refuses is asked of the very functions that it asks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from safepoint.audit.contents import has_pickle
from safepoint.audit.finding import Finding, finding, guarded, of_tenant, refused, worst_first
from safepoint.audit.folder import around
from safepoint.audit.profiles import UNREAD, Recognised, recognise_database
from safepoint.core.errors import (
    CheckpointError,
    LimitExceeded,
    NotFound,
    Unavailable,
    shell,
)
from safepoint.core.names import DEFAULT_LIMITS, Limits
from safepoint.core.storage import is_thread
from safepoint.models import inspect
from safepoint.models.look import SEALED
from safepoint.stores.checks import gap
from safepoint.stores.disk import absolute, require_posix
from safepoint.stores.sqlite import SQLiteCheckpointStorage

_NAMES: Final = (
    "SELECT substr(tenant, 1, 999), substr(thread, 1, 999) FROM"
    " (SELECT DISTINCT tenant, thread FROM checkpoints UNION SELECT tenant, thread FROM threads)"
)
_BELOW: Final = "SELECT count(*) FROM checkpoints WHERE tenant = ? AND thread = ? AND sequence < ?"


def check_database(
    path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS
) -> list[Finding]:
    """Look at the file of an SQLite storage. Nothing is changed.

    ```python
    import sqlite3

    from safepoint import SQLiteCheckpointStorage
    from safepoint.audit import check_database

    with SQLiteCheckpointStorage("state/checkpoints.db") as storage:
        storage.append("order-7", 1, b"safepoint/1 ...")
    found = check_database("state/checkpoints.db")
    print([each.id for each in found if each.severity == "error"])
    #> []
    with sqlite3.connect("state/checkpoints.db") as thief:
        thief.execute("drop trigger checkpoints_update")
    thief.close()
    for finding in check_database("state/checkpoints.db"):
        if finding.severity == "error":
            print(finding.rule, finding.what.split(": ")[1])
            #> SP13 'checkpoints_update' is missing, new or changed.
    ```

    Args:
        path: the file.
        limits: how large a record may be.

    Returns:
        Under SP04, an error for each reason why the storage refuses the place, and for a file that
        others can read; under SP01, a warning for a place that others can read or replace, that is
        temporary, or in a git work tree. Under SP13, an error if the schema was changed, the
        database is damaged, or a thread has a gap or records from before its base; a warning for
        names of threads that this package never gives. Under SP10 and SP03, a warning for each
        record of the others that is not sealed, or is a pickle; under SP11, an error for each that
        is over the limit.

    Raises:
        Unavailable: there is no such file, or the system is not POSIX.
        Unsafe: what is above it is not a folder.
    """
    require_posix()
    place = absolute(path)
    if not os.path.lexists(place):
        raise Unavailable(
            f"{shell(place)} does not exist.", "Name the file of your SQLiteCheckpointStorage."
        )
    found = [*guarded("SP04", place, around(place, path))]
    try:
        with SQLiteCheckpointStorage(path, limits=limits, read_only=True) as storage:
            found += worst_first(_contents(storage))
    except Unavailable as refusal:
        known = foreign(place)
        found += [refused("SP13", refusal, place)] if known is None else known.findings
    unique: dict[str, Finding] = {}
    for each in found:
        unique.setdefault(each.what, each)  # what the place is like, it says once
    return list(unique.values())


def foreign(path: str) -> Recognised | None:
    """Return what others keep in a database, None if it is ours or cannot be read."""
    known = recognise_database(path)
    return None if known is None or known.name == UNREAD else known


def _contents(storage: SQLiteCheckpointStorage) -> Iterator[Finding]:
    where = str(storage.path)
    [(state,)] = storage.select("PRAGMA integrity_check(1)")
    if state != "ok":
        yield finding("SP13.damaged", where)
        return
    names = storage.select(_NAMES)
    odd = [name for name in names if not all(map(is_thread, filter(None, name))) or not name[1]]
    if odd:
        yield finding("SP13.odd-names", where, count=len(odd))
    for tenant in ("", *storage.tenants()):
        scope = storage.tenant(tenant) if tenant else storage
        for thread in scope.threads():
            yield from of_tenant(tenant, _thread(scope, tenant, thread))


def _thread(storage: SQLiteCheckpointStorage, tenant: str, thread: str) -> Iterator[Finding]:
    try:
        head, base = storage.head(thread), storage.base(thread)
    except CheckpointError as refusal:
        yield refused("SP13", refusal, thread)
        return
    first = 1 if base is None else base[0]
    [(below,)] = storage.select(_BELOW, tenant, thread, first)
    if below:
        said = {"thread": thread, "first": first, "count": below}
        yield finding("SP13.below-base", thread, severity="error", **said)
    for sequence in range(first, head + 1):
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
