"""The audit of a storage folder, for a terminal: `python -m safepoint.audit PATH`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from safepoint._command import keyring_of, print_lines
from safepoint.anchor import FileAnchor
from safepoint.audit.anchor import check_anchor
from safepoint.audit.append_only import check_append_only
from safepoint.audit.approvals import check_approvals
from safepoint.audit.bounds import check_bounds
from safepoint.audit.command import gate_of, options_of
from safepoint.audit.defaults import check_places
from safepoint.audit.finding import Finding
from safepoint.audit.formats import check_formats
from safepoint.audit.journal import check_journal
from safepoint.audit.keys import check_keys, keys_inside
from safepoint.audit.loads import check_loads
from safepoint.audit.location import check_location
from safepoint.audit.models import check_models, check_torch
from safepoint.audit.ownership import check_ownership
from safepoint.audit.pickles import check_pickles
from safepoint.audit.records import check_records
from safepoint.audit.resumptions import check_resumptions
from safepoint.audit.safety import check_safety_test
from safepoint.audit.seen import Check, Seen
from safepoint.audit.tools import check_tools
from safepoint.audit.unsealed import unsealed
from safepoint.audit.versions import check_versions
from safepoint.audit.workflows import SEE_RECORDS
from safepoint.errors import CheckpointError, ConfigurationError, KeyRefused, UnsafeLocation, shell
from safepoint.ids import check_name
from safepoint.keys import Keyring
from safepoint.ledger import Ledger
from safepoint.progress import Bar
from safepoint.storage.stored import StoredFolder


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
        anchor = None if options.anchor is None else FileAnchor(options.anchor)
        options.gate = None
        if options.approver:
            gone, people = options.revoked_approver, options.people
            options.gate = gate_of(options.approver, revoked=gone, people=people)
        for part, name in (("store", options.store), ("journal", options.journal_name)):
            if name is not None:
                check_name(part, name)
        if options.path is not None:
            _look(seen, options, keys, anchor)
        _look_at_models(seen, options)
    except CheckpointError as error:
        seen.failures[str(error)] = None
    lines = [str(finding) for finding in seen.findings.values()]
    if not lines and not seen.failures:
        rest = ""
        looked = [each for each in (options.path, options.models, options.code) if each is not None]
        if options.path is None:
            pass
        elif keys is None:
            rest = " (records not verified: give --key and --store)"
        elif options.anchor is None:
            rest = " (a rollback would not show: give --anchor)"
        lines = [f"No findings: {', '.join(map(shell, looked))}{rest}"]
    print_lines(lines)
    for failure in seen.failures:
        print(failure, file=sys.stderr)
    if seen.failures:
        return 2
    return int(any(finding.severity != "note" for finding in seen.findings.values()))


def _look(
    seen: Seen, options: argparse.Namespace, keys: Keyring | None, anchor: FileAnchor | None
) -> None:
    path = options.path
    seen.add("the location", lambda: check_location(path))
    if not os.path.isdir(path):  # noqa: PTH112  that of Path may raise
        return
    seen.add("what is sealed", lambda: unsealed(path))
    seen.add("pickles", lambda: check_pickles(path))
    seen.add("formats", lambda: check_formats(path))
    seen.add("bounds", lambda: check_bounds(path))
    seen.add("what may change", lambda: check_append_only(path))
    seen.add("keys in the storage", lambda: keys_inside(path, keys))
    if keys is not None:
        _verify(seen, options, keys, anchor)
    # That no worker ever owned a thread is how it is for whoever runs one worker.
    seen.add("owners", lambda: [each for each in check_ownership(path) if each.severity != "note"])
    if options.journal is not None:
        _look_at_journal(seen, options)


def _verify(
    seen: Seen, options: argparse.Namespace, keys: Keyring, anchor: FileAnchor | None
) -> None:
    path = options.path
    try:
        ledger = Ledger(
            StoredFolder(path),
            store=options.store,
            keys=keys,
            anchor=anchor,
            anchor_every=options.anchor_every,
        )
    except ConfigurationError as refusal:
        found = Finding("SP15", "error", refusal.what, refusal.do, path)
        seen.add("the store", lambda: [found, _not_verified(path)])
        return
    except (UnsafeLocation, KeyRefused):
        seen.add("the store", lambda: [_not_verified(path)])  # a check above has said why
        return
    seen.add("keys", lambda: check_keys(keys, ledger=ledger))
    with Bar("Verifying") as bar:
        seen.add("records", lambda: check_records(ledger, progress=bar))
    if anchor is not None:
        seen.add("the anchor", lambda: check_anchor(ledger))
    gate = options.gate
    resumed: dict[str, Check] = {
        "versions": lambda: check_versions(ledger, *options.app),
        "resumptions": lambda: check_resumptions(ledger, gate),
    }
    if gate is not None:
        resumed["tools"] = lambda: check_tools(ledger, gate)
        resumed["approvals"] = lambda: check_approvals(ledger, gate)
    for name, check in resumed.items():
        seen.add(name, check, unless=SEE_RECORDS)  # what does not verify was said above


def _look_at_journal(seen: Seen, options: argparse.Namespace) -> None:
    ends = options.journal_anchor
    with Bar("Verifying the journal") as bar:
        seen.add(
            "the journal",
            lambda: check_journal(
                options.journal,
                keyring_of(options.journal_key),
                name=options.journal_name or "journal",
                anchor=None if ends is None else FileAnchor(ends),
                storage=options.path,
                progress=bar,
            ),
        )
    keys = [Path(file).parent for file in options.key[:1]]
    seen.add(
        "places",
        lambda: check_places(
            options.path,
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


def _not_verified(path: str) -> Finding:
    return Finding(
        "SP02",
        "warning",
        f"The records in {shell(path)} were not verified.",
        "Mend the errors above, and run the audit again.",
        path,
    )


if __name__ == "__main__":
    sys.exit(main())
