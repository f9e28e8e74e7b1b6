"""`safepoint audit`: check a store, models or code. Nothing is changed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from safepoint._files import absolute
from safepoint.anchor import Anchor, FileAnchor, SQLiteAnchor
from safepoint.approval import Approvers, Reason
from safepoint.audit.defaults import check_places
from safepoint.audit.finding import Finding, worst_first
from safepoint.audit.journal import check_journal
from safepoint.audit.loads import check_loads
from safepoint.audit.models import check_models, check_torch
from safepoint.audit.network import may_see_rules
from safepoint.audit.safety import check_safety_test
from safepoint.audit.seen import Seen
from safepoint.audit.stores import is_database, look_at_path, look_at_postgres, name_of
from safepoint.cli import Bar, keyring_of
from safepoint.errors import CheckpointError, ConfigurationError, quoted, shell
from safepoint.gate import Gate, Policy
from safepoint.keys import Keyring, VerifyingKey
from safepoint.names import check_name

_SHOWN: Final = 20


def commands(sub: Any) -> None:
    """Add `safepoint audit`."""
    parser = sub.add_parser(
        "audit",
        help="check a store, models or code",
        description="Check a store in files, SQLite or PostgreSQL, models, or code. Nothing is"
        " changed.",
        epilog="exit status: 0 nothing to mend, 1 an error or a warning, 2 it cannot be looked at",
    )
    parser.set_defaults(run=_audit)
    parser.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        help="the folder of a file storage, or the file of an SQLite storage",
    )
    parser.add_argument(
        "--postgres",
        metavar="DSN",
        help="the connection string of your workers, without a password: name a PGPASSFILE",
    )
    parser.add_argument(
        "--postgres-anchor", metavar="DSN", help="that of the anchor, if it is in PostgreSQL"
    )
    parser.add_argument(
        "--postgres-journal", metavar="DSN", help="that of the journal, to look at its login"
    )
    parser.add_argument(
        "--postgres-admin",
        metavar="DSN",
        help="one that may read pg_hba_file_rules, which a worker may not",
    )
    parser.add_argument(
        "--models", metavar="FOLDER", help="a folder of models; also checks the PyTorch here"
    )
    parser.add_argument(
        "--code", metavar="PROJECT", help="a project that loads models or pickles, and its tests"
    )
    parser.add_argument("--store", metavar="NAME", help="the store's name, to verify its records")
    parser.add_argument(
        "--key",
        metavar="FILE",
        action="append",
        default=[],
        help="the key that sealed them, secret or public; again for each older one",
    )
    parser.add_argument(
        "--revoked",
        metavar="FILE=PATH",
        action="append",
        default=[],
        help="a stolen key, and the folder of a copy of the anchor from before: what the key sealed"
        " later shows; FILE alone if nothing that it sealed counts; again for each",
    )
    parser.add_argument(
        "--anchor", metavar="PATH", help="the folder of its anchor, to notice a rollback"
    )
    parser.add_argument(
        "--anchor-every",
        metavar="N",
        type=int,
        default=1,
        help="after how many checkpoints your ledger moves the anchor (1)",
    )
    parser.add_argument(
        "--approver",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="who may approve a resume, and the file of their public key; again for each key",
    )
    parser.add_argument(
        "--revoked-approver",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="whose public key no longer counts: what it approved is a warning, and no forgery",
    )
    parser.add_argument(
        "--people",
        metavar="N",
        type=int,
        default=1,
        help="how many different people have to approve what a step asks (1); what needs an"
        " approval for another reason, such as new tools, needs one",
    )
    parser.add_argument(
        "--app",
        metavar="NAME@VERSION",
        action="append",
        default=[],
        help="what runs today: threads that another version of it wrote show; again for each",
    )
    parser.add_argument("--journal", metavar="PATH", help="the folder of the journal, to verify it")
    parser.add_argument(
        "--journal-key",
        metavar="FILE",
        action="append",
        default=[],
        help="the key that signs the journal, secret or public; again for each older one",
    )
    parser.add_argument(
        "--journal-anchor", metavar="PATH", help="the folder of the journal's own anchor"
    )
    parser.add_argument(
        "--journal-name",
        metavar="NAME",
        help="the journal's name (journal); that of default_locations has the name of its store",
    )


def _audit(options: argparse.Namespace) -> int:
    """Print one line per finding."""
    _check(options)
    seen = Seen()
    keys: Keyring | None = None
    try:
        keys = keyring_of(options.key, options.revoked) if options.key or options.revoked else None
        anchor = None if options.anchor is None else _anchor(options.anchor)
        options.gate = None
        if options.approver:
            gone, people = options.revoked_approver, options.people
            options.gate = _gate_of(options.approver, revoked=gone, people=people)
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
    lines = _lines(seen.findings.values())
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
    for line in [*lines, *_not_seen(seen, options)]:
        print(line)
    for failure in seen.failures:
        print(failure, file=sys.stderr)
    if seen.failures:
        return 2
    return int(any(finding.severity != "note" for finding in seen.findings.values()))


def _lines(findings: Iterable[Finding]) -> list[str]:
    """Return a line per finding, the worst first, and how many more there are of a long row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for each in worst_first(findings):
        rows.setdefault((each.rule, each.severity), []).append(str(each))
    lines = []
    for (rule, severity), row in rows.items():
        lines += row[:_SHOWN]
        if len(row) > _SHOWN:
            lines.append(
                f"{rule} {severity}: There are {len(row) - _SHOWN} more findings like these."
                " Mend those above, and run the audit again."
            )
    return lines


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


def _check(options: argparse.Namespace) -> None:
    if options.path is None and options.postgres is None:
        if options.models is None and options.code is None:
            options.refuse("give PATH, --postgres, --models or --code")
        if any((options.key, options.store, options.anchor, options.journal)):
            options.refuse("--key, --store, --anchor and --journal need PATH or --postgres")
    _check_postgres(options)
    if options.revoked and options.store is None:
        options.refuse("--revoked needs --store")
    if bool(options.key or options.revoked) != (options.store is not None):
        options.refuse("--key and --store belong together")
    if options.anchor is not None and options.store is None:
        options.refuse("--anchor needs --key and --store")
    if (options.approver or options.app) and options.store is None:
        options.refuse("--approver and --app need --key and --store")
    if bool(options.journal_key) != (options.journal is not None):
        options.refuse("--journal and --journal-key belong together")
    for name in ("anchor", "name"):
        if getattr(options, f"journal_{name}") is not None and options.journal is None:
            options.refuse(f"--journal-{name} needs --journal")
    if options.anchor_every < 1:
        options.refuse("--anchor-every must be 1 or more")
    if (options.revoked_approver or options.people != 1) and not options.approver:
        options.refuse("--people and --revoked-approver need --approver")
    if options.people < 1:
        options.refuse("--people must be 1 or more")


def _check_postgres(options: argparse.Namespace) -> None:
    if options.postgres is not None and options.path is not None:
        options.refuse("give PATH or --postgres, and run it again for the other one")
    for name in ("anchor", "journal", "admin"):
        if getattr(options, f"postgres_{name}") is not None and options.postgres is None:
            options.refuse(f"--postgres-{name} needs --postgres")
    if options.postgres_anchor is not None and options.anchor is not None:
        options.refuse("give --anchor or --postgres-anchor")


def _gate_of(named: Sequence[str], *, revoked: Sequence[str] = (), people: int = 1) -> Gate:
    """Load the public keys of those who may approve.

    Args:
        named: who, and the file of their key.
        revoked: whose key no longer counts, and its file.
        people: how many have to approve what a step asks.

    Raises:
        KeyRefused: one is no public key.
        ConfigurationError: a name has no file, or there are fewer people.
    """
    keys: dict[str, list[VerifyingKey]] = {}
    for option, each in (
        *(("--approver", each) for each in named),
        *(("--revoked-approver", each) for each in revoked),
    ):
        name, equals, file = each.partition("=")
        if not equals:
            raise ConfigurationError(
                f"{quoted(each)} does not say whose key it is.", f"Write {option} dana=dana.key"
            )
        keys.setdefault(name, []).append(VerifyingKey.from_file(file))
    gone = [VerifyingKey.from_file(each.partition("=")[2]) for each in revoked]
    return Gate(Policy({Reason.ASKED: people}), Approvers(keys, revoked=gone))


def _anchor(path: str) -> Anchor:
    """Open an anchor of files, or one in a file of SQLite."""
    in_file = os.path.isfile(path)  # noqa: PTH113  that of Path may raise
    return SQLiteAnchor(path, read_only=True) if in_file else FileAnchor(path)
