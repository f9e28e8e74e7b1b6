"""The audit of a storage folder, for a terminal: `python -m safepoint.audit PATH`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from safepoint.anchor import FileAnchor
from safepoint.audit.anchor import check_anchor
from safepoint.audit.append_only import check_append_only
from safepoint.audit.approvals import check_approvals
from safepoint.audit.bounds import check_bounds
from safepoint.audit.command import gate_of, keyring_of, options_of
from safepoint.audit.defaults import check_places
from safepoint.audit.finding import Finding
from safepoint.audit.formats import check_formats
from safepoint.audit.journal import check_journal
from safepoint.audit.keys import check_keys, keys_inside
from safepoint.audit.location import check_location
from safepoint.audit.ownership import check_ownership
from safepoint.audit.pickles import check_pickles
from safepoint.audit.records import check_records
from safepoint.audit.resumptions import check_resumptions
from safepoint.audit.stored import StoredFolder
from safepoint.audit.tools import check_tools
from safepoint.audit.unsealed import unsealed
from safepoint.audit.versions import check_versions
from safepoint.audit.workflows import SEE_RECORDS
from safepoint.errors import CheckpointError, ConfigurationError, KeyRefused, UnsafeLocation, shell
from safepoint.ids import check_name
from safepoint.keys import Keyring
from safepoint.ledger import Ledger
from safepoint.progress import Bar


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per finding.

    Returns:
        0 if there is nothing to mend, 1 if there is an error or a warning, 2 if the path cannot
        be looked at.
    """
    options = options_of(arguments)
    findings: dict[str, Finding] = {}
    stopped = None
    try:
        keys = keyring_of(options.key, options.revoked) if options.key or options.revoked else None
        anchor = None if options.anchor is None else FileAnchor(options.anchor)
        options.gate = gate_of(options.approver) if options.approver else None
        for finding in _look(options, keys, anchor):
            # Two rules may speak of one thing in the same words. The first is enough to mend it.
            findings.setdefault(finding.what, finding)
    except CheckpointError as error:
        stopped = error
    lines = [str(finding) for finding in findings.values()]
    if not lines and stopped is None:
        rest = ""
        if keys is None:
            rest = " (records not verified: give --key and --store)"
        elif options.anchor is None:
            rest = " (a rollback would not show: give --anchor)"
        lines = [f"No findings: {shell(options.path)}{rest}"]
    _print(lines)
    if stopped is not None:
        print(stopped, file=sys.stderr)
        return 2
    return int(any(finding.severity != "note" for finding in findings.values()))


def _look(
    options: argparse.Namespace, keys: Keyring | None, anchor: FileAnchor | None
) -> Iterator[Finding]:
    path = options.path
    if options.store is not None:
        check_name("store", options.store)
    yield from check_location(path)
    if not Path(path).is_dir():
        return
    yield from unsealed(path)
    yield from check_pickles(path)
    yield from check_formats(path)
    yield from check_bounds(path)
    yield from check_append_only(path)
    yield from keys_inside(path, keys)
    if keys is not None:
        yield from _verified(options, keys, anchor)
    # That no worker ever owned a thread is how it is for whoever runs one worker.
    yield from (each for each in check_ownership(path) if each.severity != "note")
    if options.journal is not None:
        yield from _journal(options)


def _verified(
    options: argparse.Namespace, keys: Keyring, anchor: FileAnchor | None
) -> Iterator[Finding]:
    path = options.path
    try:
        ledger = Ledger(
            StoredFolder(path),
            store=options.store,
            keys=keys,
            anchor=anchor,
            anchor_every=options.anchor_every,
        )
        yield from check_keys(keys, ledger=ledger)
        with Bar("Verifying") as bar:
            yield from check_records(ledger, progress=bar)
        if anchor is not None:
            yield from check_anchor(ledger)
        # What does not verify was said above.
        yield from (each for each in _resumed(ledger, options) if each.do != SEE_RECORDS)
    except ConfigurationError as refusal:
        yield Finding("SP15", "error", refusal.what, refusal.do, path)
        yield _not_verified(path)
    except (UnsafeLocation, KeyRefused):
        yield _not_verified(path)  # which of the checks above has said why


def _resumed(ledger: Ledger, options: argparse.Namespace) -> Iterator[Finding]:
    yield from check_versions(ledger, *options.app)
    yield from check_resumptions(ledger, options.gate)
    if options.gate is not None:
        yield from check_tools(ledger, options.gate)
        yield from check_approvals(ledger, options.gate)


def _journal(options: argparse.Namespace) -> Iterator[Finding]:
    ends = options.journal_anchor
    with Bar("Verifying the journal") as bar:
        yield from check_journal(
            options.journal,
            keyring_of(options.journal_key),
            anchor=None if ends is None else FileAnchor(ends),
            storage=options.path,
            progress=bar,
        )
    keys = [Path(file).parent for file in options.key[:1]]
    yield from check_places(
        options.path,
        keys=keys[0] if keys else None,
        anchor=options.anchor,
        journal=options.journal,
        journal_anchor=ends,
    )


def _not_verified(path: str) -> Finding:
    return Finding(
        "SP02",
        "warning",
        f"The records in {shell(path)} were not verified.",
        "Mend the errors above, and run the audit again.",
        path,
    )


def _print(lines: Iterable[str]) -> None:
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough. What is left in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
