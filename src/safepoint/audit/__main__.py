"""The audit of a storage folder, for a terminal: `python -m safepoint.audit PATH`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from safepoint.anchor import FileAnchor
from safepoint.audit.anchor import check_anchor
from safepoint.audit.append_only import check_append_only
from safepoint.audit.bounds import check_bounds
from safepoint.audit.files import content
from safepoint.audit.finding import Finding
from safepoint.audit.formats import check_formats
from safepoint.audit.keys import check_keys, keys_inside
from safepoint.audit.location import check_location
from safepoint.audit.pickles import check_pickles
from safepoint.audit.records import check_records
from safepoint.audit.stored import StoredFolder
from safepoint.audit.unsealed import unsealed
from safepoint.errors import CheckpointError, ConfigurationError, KeyRefused, UnsafeLocation, shell
from safepoint.ids import check_name
from safepoint.keys import Key, Keyring, Revoked, SigningKey, VerifyingKey
from safepoint.keys.files import PUBLIC
from safepoint.ledger import Ledger
from safepoint.progress import Bar


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        line = ascii(message)[1:-1]
        self.exit(2, f"{self.prog}: {line}. Try: {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per finding.

    Returns:
        0 if there is nothing to mend, 1 if there is an error or a warning, 2 if the path cannot
        be looked at.
    """
    options = _options(arguments)
    findings: dict[str, Finding] = {}
    stopped = None
    try:
        keys = _keyring(options.key, options.revoked) if options.key or options.revoked else None
        anchor = None if options.anchor is None else FileAnchor(options.anchor)
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


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="python -m safepoint.audit",
        description="Check the folder of a file storage, and what it holds. Nothing is changed.",
        epilog="exit status: 0 nothing to mend, 1 an error or a warning, 2 it cannot be looked at",
    )
    parser.add_argument("path", metavar="PATH", help="the folder: the storage_path of your storage")
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
    options = parser.parse_args(arguments)
    if options.revoked and options.store is None:
        parser.error("--revoked needs --store")
    if bool(options.key or options.revoked) != (options.store is not None):
        parser.error("--key and --store belong together")
    if options.anchor is not None and options.store is None:
        parser.error("--anchor needs --key and --store")
    if options.anchor_every < 1:
        parser.error("--anchor-every must be 1 or more")
    return options


def _keyring(paths: Sequence[str], revoked: Sequence[str] = ()) -> Keyring:
    """Load the keys, newest first. The first signs if it can, and is one that verifies if not."""
    keys = [_key(path) for path in reversed(paths)]
    gone = [_revoked(named) for named in revoked]
    if keys and isinstance(keys[-1], SigningKey):
        return Keyring(keys[-1], verify=keys[:-1], revoked=gone)
    return Keyring(verify=keys, revoked=gone)


def _revoked(named: str) -> Revoked:
    file, copied, until = named.partition("=")
    return Revoked(_key(file), FileAnchor(until) if copied else None)


def _key(path: str) -> Key:
    try:
        begins = content(path, len(PUBLIC.magic))
    except (OSError, ValueError):
        begins = None  # which the key's own reading says better
    if begins is not None and begins[0] == PUBLIC.magic:
        return VerifyingKey.from_file(path)
    return SigningKey.from_file(path)


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
    if keys is None:
        return
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
    except ConfigurationError as refusal:
        yield Finding("SP15", "error", refusal.what, refusal.do, path)
        yield _not_verified(path)
    except (UnsafeLocation, KeyRefused):
        yield _not_verified(path)  # which of the checks above has said why


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
