"""The checks of a store that apply, wherever it is kept: in files, in SQLite, in PostgreSQL."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from safepoint._files import absolute
from safepoint._sqlite import BESIDE
from safepoint.anchor import Anchor
from safepoint.audit.anchor import check_anchor
from safepoint.audit.append_only import check_append_only
from safepoint.audit.approvals import approvals
from safepoint.audit.approvers import approvers_apart
from safepoint.audit.contents import check_contents, keys_inside
from safepoint.audit.files import content
from safepoint.audit.finding import Finding
from safepoint.audit.judges import Judges
from safepoint.audit.keys import check_keys
from safepoint.audit.location import check_location
from safepoint.audit.network import check_network
from safepoint.audit.ownership import check_ownership
from safepoint.audit.postgres import check_privileges
from safepoint.audit.reading import read
from safepoint.audit.resumed import resumptions, tools, versions
from safepoint.audit.seen import Seen
from safepoint.audit.sqlite import check_database
from safepoint.cli import Bar
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    KeyRefused,
    StorageError,
    UnsafeLocation,
    shell,
)
from safepoint.keys import Keyring
from safepoint.ledger import Ledger
from safepoint.storage.base import CheckpointStorage
from safepoint.storage.file import StoredFolder
from safepoint.storage.sqlite import SQLiteCheckpointStorage

_SQLITE: Final = b"SQLite format 3\0"


def look_at_path(
    seen: Seen, options: argparse.Namespace, keys: Keyring | None, anchor: Anchor | None
) -> bool:
    """Look at the folder of a file storage, or at the file of an SQLite storage.

    Returns:
        Whether there is either.
    """
    path = options.path
    if is_database(path):
        _look_at_file(seen, options, keys, anchor)
    else:
        seen.add("the location", lambda: check_location(path))
        if not os.path.isdir(path):  # noqa: PTH112
            return False
        _look_at_folder(seen, options, keys, anchor)
    # That no worker ever owned a thread is how it is for whoever runs one worker.
    seen.add("owners", lambda: [each for each in check_ownership(path) if each.severity != "note"])
    return True


def _look_at_folder(
    seen: Seen, options: argparse.Namespace, keys: Keyring | None, anchor: Anchor | None
) -> None:
    path = options.path
    seen.add("what the files hold", lambda: check_contents(path, keys))
    seen.add("what may change", lambda: check_append_only(path))
    if keys is not None:
        _verify(seen, options, keys, anchor, lambda: StoredFolder(path))


def _look_at_file(
    seen: Seen, options: argparse.Namespace, keys: Keyring | None, anchor: Anchor | None
) -> None:
    path = options.path
    seen.add("the database", lambda: check_database(path))
    place = absolute(path)
    files = {os.path.realpath(place + suffix) for suffix in BESIDE}
    folder = str(Path(place).parent)
    seen.add("keys in the storage", lambda: keys_inside(folder, keys, without=files))
    if keys is None:
        return
    try:
        storage = SQLiteCheckpointStorage(path, read_only=True)
    except StorageError:
        seen.add("the store", lambda: [_not_verified(shell(path))])  # the first check said why
        return
    with closing(storage):
        _verify(seen, options, keys, anchor, lambda: storage)


def look_at_postgres(
    seen: Seen, options: argparse.Namespace, keys: Keyring | None, anchor: Anchor | None
) -> None:
    """Look at a database of PostgreSQL, and at the logins and the way to it."""
    dsn, apart, notes = options.postgres, options.postgres_anchor, options.postgres_journal
    seen.add("privileges", lambda: check_privileges(dsn, anchor=apart, journal=notes))
    seen.add("the network", lambda: check_network(dsn, admin=options.postgres_admin))
    for other in (apart, notes):
        if other is not None:
            seen.add("the network", lambda each=other: check_network(each))  # type: ignore[misc]
    if keys is None:
        return
    with ExitStack() as stack:
        try:
            from safepoint.postgres import PostgresAnchor, PostgresCheckpointStorage

            storage = stack.enter_context(PostgresCheckpointStorage(dsn))
            if apart is not None:
                anchor = stack.enter_context(PostgresAnchor(apart))
        except CheckpointError as refusal:
            seen.failures[str(refusal)] = None
        else:
            _verify(seen, options, keys, anchor, lambda: storage)


def is_database(path: str) -> bool:
    """Tell whether a path is the file of an SQLite database, by how it begins."""
    try:
        found = content(path, len(_SQLITE))
    except (OSError, ValueError):
        return False
    return found is not None and found[0] == _SQLITE


def name_of(options: argparse.Namespace) -> str | None:
    """Return what to call the store, for a person; None if there is none to look at."""
    if options.postgres is not None:
        from safepoint.postgres.connection import parsed, place

        return place(parsed(options.postgres))
    return None if options.path is None else shell(options.path)


def _verify(
    seen: Seen,
    options: argparse.Namespace,
    keys: Keyring,
    anchor: Anchor | None,
    opened: Callable[[], CheckpointStorage],
) -> None:
    name = name_of(options) or ""
    try:
        ledger = Ledger(
            opened(),
            store=options.store,
            keys=keys,
            anchor=anchor,
            anchor_every=options.anchor_every,
        )
    except ConfigurationError as refusal:
        found = Finding("SP15", "error", refusal.what, refusal.do, name)
        seen.add("the store", lambda: [found, _not_verified(name)])
        return
    except (UnsafeLocation, KeyRefused):
        seen.add("the store", lambda: [_not_verified(name)])  # a check above has said why
        return
    seen.add("keys", lambda: check_keys(keys, ledger=ledger))
    checks = [versions(*options.app), resumptions(options.gate)]
    if options.gate is not None:
        judges = Judges(options.gate)
        checks += [tools(options.gate, ledger.store), approvals(judges)]
        seen.add("approvers", lambda: approvers_apart(ledger, judges.keys))
    with Bar("Verifying") as bar:
        seen.add("records", lambda: read(ledger, checks, progress=bar))
    if anchor is not None:
        seen.add("the anchor", lambda: check_anchor(ledger))


def _not_verified(name: str) -> Finding:
    return Finding(
        "SP02",
        "warning",
        f"The records in {name} were not verified.",
        "Mend the errors above, and run the audit again.",
        name,
    )
