"""The audit of a store, for a terminal: `python -m safepoint.audit PATH`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from safepoint._command import keyring_of, print_lines
from safepoint._files import absolute
from safepoint.anchor import Anchor, FileAnchor, SQLiteAnchor
from safepoint.audit.command import gate_of, options_of
from safepoint.audit.defaults import check_places
from safepoint.audit.journal import check_journal
from safepoint.audit.loads import check_loads
from safepoint.audit.models import check_models, check_torch
from safepoint.audit.network import may_see_rules
from safepoint.audit.safety import check_safety_test
from safepoint.audit.seen import Seen
from safepoint.audit.stores import is_database, look_at_path, look_at_postgres, name_of
from safepoint.errors import CheckpointError, shell
from safepoint.keys import Keyring
from safepoint.names import check_name
from safepoint.progress import Bar


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per finding.

    Returns:
        0 if there is nothing to mend, 1 if there is an error or a warning, 2 if the path, or a part
        of what is there, cannot be looked at.
    """
    options = options_of(arguments)
    seen = Seen()
    keys: Keyring | None = None
    try:
        keys = keyring_of(options.key, options.revoked) if options.key or options.revoked else None
        anchor = None if options.anchor is None else _anchor(options.anchor)
        options.gate = None
        if options.approver:
            gone, people = options.revoked_approver, options.people
            options.gate = gate_of(options.approver, revoked=gone, people=people)
        for part, name in (("store", options.store), ("journal", options.journal_name)):
            if name is not None:
                check_name(part, name)
        if options.path is not None:
            if look_at_path(seen, options, keys, anchor) and options.journal is not None:
                _look_at_journal(seen, options)
        elif options.postgres is not None:
            look_at_postgres(seen, options, keys, anchor)
            if options.journal is not None:
                _look_at_journal(seen, options)
        _look_at_models(seen, options)
    except CheckpointError as error:
        seen.failures[str(error)] = None
    lines = [str(finding) for finding in seen.findings.values()]
    if not lines and not seen.failures:
        rest = ""
        store = name_of(options)
        looked = [shell(each) for each in (options.models, options.code) if each is not None]
        if store is None:
            pass
        elif keys is None:
            rest = " (records not verified: give --key and --store)"
        elif options.anchor is None and options.postgres_anchor is None:
            rest = " (a rollback would not show: give --anchor)"
        lines = [f"No findings: {', '.join([*([] if store is None else [store]), *looked])}{rest}"]
    print_lines([*lines, *_not_seen(seen, options)])
    for failure in seen.failures:
        print(failure, file=sys.stderr)
    if seen.failures:
        return 2
    return int(any(finding.severity != "note" for finding in seen.findings.values()))


def _anchor(path: str) -> Anchor:
    """Open an anchor of files, or one in a file of SQLite."""
    in_file = os.path.isfile(path)  # noqa: PTH113  that of Path may raise
    return SQLiteAnchor(path, read_only=True) if in_file else FileAnchor(path)


def _not_seen(seen: Seen, options: argparse.Namespace) -> list[str]:
    """Say what no worker's login can look at, and nobody else was asked to."""
    if options.postgres is None or options.postgres_admin is not None or seen.failures:
        return []
    if may_see_rules(options.postgres):
        return []
    line = "pg_hba.conf was not looked at: this login may not read it, as it should be."
    return [f"{line} Give --postgres-admin."]


def _look_at_journal(seen: Seen, options: argparse.Namespace) -> None:
    ends, storage = options.journal_anchor, options.path
    if storage is not None and is_database(storage):
        storage = Path(absolute(storage)).parent
    with Bar("Verifying the journal") as bar:
        seen.add(
            "the journal",
            lambda: check_journal(
                options.journal,
                keyring_of(options.journal_key),
                name=options.journal_name or "journal",
                anchor=None if ends is None else FileAnchor(ends),
                storage=storage,
                progress=bar,
            ),
        )
    if storage is None:
        return
    keys = [Path(file).parent for file in options.key[:1]]
    seen.add(
        "places",
        lambda: check_places(
            storage,
            keys=keys[0] if keys else None,
            anchor=options.anchor,
            journal=options.journal,
            journal_anchor=ends,
        ),
    )


def _look_at_models(seen: Seen, options: argparse.Namespace) -> None:
    if options.models is not None:
        seen.add("the PyTorch here", check_torch)
        seen.add("models", lambda: check_models(options.models))
    if options.code is not None:
        seen.add("code", lambda: check_loads(options.code))
        seen.add("the safety test", lambda: check_safety_test(options.code))


if __name__ == "__main__":
    sys.exit(main())
