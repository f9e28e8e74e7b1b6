"""The command line of the audit: its options, and the keys that they name."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from safepoint._command import Parser
from safepoint.approval import Approvers, Reason
from safepoint.errors import ConfigurationError, quoted
from safepoint.gate import Gate, Policy
from safepoint.keys import VerifyingKey


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options, or end the process with a line that says what is wrong."""
    parser = Parser(
        prog="python -m safepoint.audit",
        description="Check a store in files, SQLite or PostgreSQL, models, or code. Nothing is"
        " changed.",
        epilog="exit status: 0 nothing to mend, 1 an error or a warning, 2 it cannot be looked at",
    )
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
    options = parser.parse_args(arguments)
    _check(options, parser)
    return options


def _check(options: argparse.Namespace, parser: Parser) -> None:
    if options.path is None and options.postgres is None:
        if options.models is None and options.code is None:
            parser.error("give PATH, --postgres, --models or --code")
        if any((options.key, options.store, options.anchor, options.journal)):
            parser.error("--key, --store, --anchor and --journal need PATH or --postgres")
    _check_postgres(options, parser)
    if options.revoked and options.store is None:
        parser.error("--revoked needs --store")
    if bool(options.key or options.revoked) != (options.store is not None):
        parser.error("--key and --store belong together")
    if options.anchor is not None and options.store is None:
        parser.error("--anchor needs --key and --store")
    if (options.approver or options.app) and options.store is None:
        parser.error("--approver and --app need --key and --store")
    if bool(options.journal_key) != (options.journal is not None):
        parser.error("--journal and --journal-key belong together")
    for name in ("anchor", "name"):
        if getattr(options, f"journal_{name}") is not None and options.journal is None:
            parser.error(f"--journal-{name} needs --journal")
    if options.anchor_every < 1:
        parser.error("--anchor-every must be 1 or more")
    if (options.revoked_approver or options.people != 1) and not options.approver:
        parser.error("--people and --revoked-approver need --approver")
    if options.people < 1:
        parser.error("--people must be 1 or more")


def _check_postgres(options: argparse.Namespace, parser: Parser) -> None:
    if options.postgres is not None and options.path is not None:
        parser.error("give PATH or --postgres, and run it again for the other one")
    for name in ("anchor", "journal", "admin"):
        if getattr(options, f"postgres_{name}") is not None and options.postgres is None:
            parser.error(f"--postgres-{name} needs --postgres")
    if options.postgres_anchor is not None and options.anchor is not None:
        parser.error("give --anchor or --postgres-anchor")


def gate_of(named: Sequence[str], *, revoked: Sequence[str] = (), people: int = 1) -> Gate:
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
