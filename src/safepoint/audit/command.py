"""`safepoint audit`: read a place once, and make each check of the table. Nothing is changed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from safepoint import settings
from safepoint._command import keyring_of
from safepoint._files import absolute
from safepoint.anchor import Anchor, FileAnchor, SQLiteAnchor
from safepoint.approval import Approvers, Reason
from safepoint.audit.accepting import accept, entries
from safepoint.audit.contents import check_contents, keys_inside
from safepoint.audit.finding import WORST_FIRST, Finding, content, finding, refused, worst_first
from safepoint.audit.folder import (
    check_append_only,
    check_location,
    check_ownership,
    check_places,
)
from safepoint.audit.formats import FORMATS
from safepoint.audit.ledger import approvers_apart, check_anchor, check_journal, check_keys
from safepoint.audit.models import check_loads, check_models, check_safety_test, check_torch
from safepoint.audit.network import check_network, may_see_rules
from safepoint.audit.postgres import check_privileges, unseen_tenants
from safepoint.audit.reading import mixed, read
from safepoint.audit.report import Failure, Report
from safepoint.audit.runs import Runs
from safepoint.audit.sqlite import BESIDE, check_database
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    KeyRefused,
    StorageError,
    quoted,
    shell,
)
from safepoint.gate import Gate, Policy
from safepoint.keys import VerifyingKey
from safepoint.ledger import Ledger
from safepoint.names import check_name
from safepoint.storage.file import FileCheckpointStorage
from safepoint.storage.sqlite import SQLiteCheckpointStorage

if TYPE_CHECKING:
    from safepoint.postgres import PostgresCheckpointStorage

_SHOWN: Final = 20
_SQLITE: Final = b"SQLite format 3\0"
# Each with what is given to it: a dot stands for "again for each", N for a number that is 1.
_OPTIONS: Final = """
postgres DSN the connection string of your workers, without a password: name a PGPASSFILE
postgres-anchor DSN that of the anchor, if it is in PostgreSQL
postgres-journal DSN that of the journal, to look at its login
postgres-admin DSN one that may read pg_hba_file_rules, which a worker may not
models FOLDER a folder of models; also checks the PyTorch here
code PROJECT a project that loads models or pickles, and its tests
store NAME the store's name, to verify its records
key FILE. the key that sealed them, secret or public; again for each older one
revoked FILE=PATH. a stolen key, and a copy of the anchor from before: what it sealed later shows
anchor PATH the folder or the file of its anchor, to notice a rollback
anchor-every N after how many checkpoints your ledger moves the anchor (1), or step
approver NAME=FILE. who may approve a resume, and the file of their public key
revoked-approver NAME=FILE. whose public key no longer counts: its approvals are warnings
people N how many different people have to approve what a step asks (1)
app NAME@VERSION. what runs today: threads that another version of it wrote show
journal PATH the folder of the journal, to verify it
journal-key FILE. the key that signs the journal, secret or public; again for each older one
journal-anchor PATH the folder of the journal's own anchor
journal-name NAME the journal's name (journal); that of default_locations is its store's
"""
_NEEDS: Final = {
    "postgres": ("postgres_anchor", "postgres_journal", "postgres_admin"),
    "store": ("key", "revoked", "anchor", "approver", "app"),
    "approver": ("people", "revoked_approver"),
    "journal_key": ("journal",),
    "journal": ("journal_key", "journal_anchor", "journal_name"),
}


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
    parser.add_argument("--format", choices=FORMATS, default="text", help="how to say it (text)")
    parser.add_argument("--fail-on", choices=WORST_FIRST, default="warning", help="(warning)")
    parser.add_argument("--config", metavar="FILE", help="the settings, if not those found here")
    path = "the folder of a file storage, or the file of an SQLite storage or its folder"
    parser.add_argument("path", metavar="PATH", nargs="?", help=path)
    for line in _OPTIONS.strip().splitlines():
        name, given, what = line.split(" ", 2)
        how: dict[str, Any] = {"action": "append", "default": []} if given.endswith(".") else {}
        kind = number_or_step if name == "anchor-every" else int
        how |= {"type": kind, "default": 1} if given == "N" else {}
        parser.add_argument(f"--{name}", metavar=given.rstrip("."), help=what, **how)


def number_or_step(text: str) -> int | str:
    """Return what a ledger takes as `anchor_every`."""
    return text if text == "step" else int(text)


class Place:
    """What the command was told of. What more than one check needs of it is read once.

    Attributes:
        given: the options.
        keys: the keys that sealed the records, None if none was given.
        gate: who may approve, None if nobody was named.
        models: the folder of models, or None.
        code: the folder of a project, or None.
        database: the file of an SQLite storage, by how it begins, or None.
        location: any other path that was given, or None.
        folder: that path, if it is a folder, or None.
        disk: the storage on disk, or None.
        name: what to call the store, for a person; None if there is none to look at.
        unverified: why its records are not verified, although there are keys.
    """

    def __init__(self, given: argparse.Namespace, stack: ExitStack) -> None:
        self.given = given
        self._stack = stack
        sealed = given.key or given.revoked
        self.keys = keyring_of(given.key, given.revoked) if sealed else None
        self._anchor = None if given.anchor is None else _anchor(given.anchor)
        self.gate = _gate_of(given) if given.approver else None
        for part, name in (("store", given.store), ("journal", given.journal_name)):
            if name is not None:
                check_name(part, name)
        self.models, self.code = given.models, given.code
        path = given.path and _inside(given.path)
        self.database = path if path is not None and _is_sqlite(path) else None
        self.location = path if self.database is None else None
        is_folder = path is not None and os.path.isdir(path)  # noqa: PTH112
        self.folder = path if is_folder else None
        self.disk = self.folder or self.database
        self.name = None if path is None else shell(path)
        if given.postgres is not None:
            from safepoint.postgres.connection import parsed, place

            self.name = place(parsed(given.postgres))
        self.unverified: list[Finding] = []

    @property
    def home(self) -> str | None:
        """The folder that the storage is in, if it is on disk."""
        return str(Path(absolute(self.database)).parent) if self.database else self.folder

    @property
    def is_empty(self) -> bool:
        """Whether there is a store, as far as it may be read, and no record in it."""
        if (self.disk or self.ledger) is None:
            return False
        storage = self._storage.tenant(self._tenant) if self._tenant else self._storage
        return not storage.threads() and not storage.tenants()

    @cached_property
    def ledger(self) -> Ledger | None:
        """The store, opened with its keys; None if there are none, or it could not be opened."""
        given, anchor = self.given, self._anchor
        if self.keys is None or (self.disk is None and given.postgres is None):
            return None
        self.unverified = [finding("SP02.not-verified", self.name or "")]
        try:
            if given.postgres_anchor is not None:
                from safepoint.postgres import PostgresAnchor

                anchor = self._stack.enter_context(PostgresAnchor(given.postgres_anchor))
            options = {"anchor": anchor, "anchor_every": given.anchor_every, "tenant": self._tenant}
            ledger = Ledger(self._storage, store=given.store, keys=self.keys, **options)
        except ConfigurationError as refusal:
            self.unverified.insert(0, refused("SP15", refusal, self.name or ""))
            return None
        except (StorageError, KeyRefused):
            if given.postgres is not None:
                raise
            return None  # another check has said why
        self.unverified = []
        return ledger

    @cached_property
    def _storage(
        self,
    ) -> FileCheckpointStorage | SQLiteCheckpointStorage | PostgresCheckpointStorage:
        if self.folder is not None:
            return FileCheckpointStorage(self.folder, read_only=True)
        if self.database is not None:
            opened = SQLiteCheckpointStorage(self.database, read_only=True)
            return self._stack.enter_context(opened)
        from safepoint.postgres import PostgresCheckpointStorage

        return self._stack.enter_context(PostgresCheckpointStorage(self.given.postgres))

    @cached_property
    def _tenant(self) -> str:
        """The tenant that the login of a database serves, if it serves one."""
        whose = "" if self.given.postgres is None else unseen_tenants(self.given.postgres)[0]
        return "" if whose == "*" else whose


def _contents(place: Place) -> Iterable[Finding]:
    if place.database is None:
        return [] if place.folder is None else check_contents(place.folder, place.keys)
    # SQLite loses its locks if somebody else in the process opens its files.
    ours = {os.path.realpath(absolute(place.database) + suffix) for suffix in BESIDE}
    return keys_inside(place.home or "", place.keys, without=ours)


def _owners(path: str) -> Iterable[Finding]:
    # That no worker ever owned a thread is how it is for whoever runs one worker.
    return [each for each in check_ownership(path) if each.severity != "note"]


def _privileges(place: Place) -> Iterable[Finding]:
    given = place.given
    if given.postgres is None:
        return []
    apart = {"anchor": given.postgres_anchor, "journal": given.postgres_journal}
    return check_privileges(given.postgres, **apart)


def _network(place: Place) -> Iterator[Finding]:
    given = place.given
    if given.postgres is not None:
        yield from check_network(given.postgres, admin=given.postgres_admin)
    for other in (given.postgres_anchor, given.postgres_journal):
        yield from () if other is None else check_network(other)


def _records(place: Place) -> Iterator[Finding]:
    ledger, gate = place.ledger, place.gate
    yield from place.unverified
    if ledger is None:
        return
    runs = Runs(gate, place.given.app)
    if gate is not None:
        yield from approvers_apart(ledger, gate.people)
    yield from read(ledger, lambda each: [*each.findings("SP10"), *runs.look(each)])
    yield from runs.without_tools(ledger.store) if gate is not None else ()


def _anchored(ledger: Ledger) -> Iterable[Finding]:
    return [] if ledger.anchor is None else check_anchor(ledger)


def _journal(place: Place) -> Iterator[Finding]:
    given = place.given
    if given.journal is None:
        return
    ends = given.journal_anchor
    yield from check_journal(
        given.journal,
        keyring_of(given.journal_key),
        name=given.journal_name or "journal",
        anchor=None if ends is None else FileAnchor(ends),
    )
    keys = Path(given.key[0]).parent if given.key else None
    parts = {"keys": keys, "anchor": given.anchor, "journal": given.journal}
    yield from check_places(place.home, **parts, journal_anchor=ends)


Look = Callable[[Place], Iterable[Finding]]


def _on(part: str, check: Callable[[Any], Iterable[Finding]]) -> Look:
    """Return how to make a check on a part of a place, if it has that part."""
    return lambda place: [] if getattr(place, part) is None else check(getattr(place, part))


CHECKS: Final[dict[str, Look]] = {
    "location": _on("location", check_location),
    "contents": _contents,
    "append-only": _on("folder", check_append_only),
    "database": _on("database", check_database),
    "privileges": _privileges,
    "network": _network,
    "keys": _on("ledger", lambda ledger: check_keys(ledger.keys, ledger=ledger)),
    "records": _records,
    "tenants": _on("ledger", mixed),
    "anchor": _on("ledger", _anchored),
    "owners": _on("disk", _owners),
    "journal": _journal,
    "torch": _on("models", lambda _: check_torch()),
    "models": _on("models", check_models),
    "loads": _on("code", check_loads),
    "safety-test": _on("code", check_safety_test),
}
"""Each check by a name of its own."""


def _audit(given: argparse.Namespace) -> int:
    """Make each check, and print one line per finding. One that fails keeps no other from it."""
    _check(given)
    # By their words: two rules may speak of one thing in the same ones, and the first is enough.
    found: dict[str, Finding] = {}
    failures: dict[str, None] = {}
    with ExitStack() as stack:
        try:
            place = Place(given, stack)
        except CheckpointError as refusal:
            print(refusal, file=sys.stderr)
            return 2
        for name, look in CHECKS.items():
            try:
                for each in look(place):
                    found.setdefault(each.what, each)
            except CheckpointError as refusal:
                failures[str(refusal)] = None
            except Exception as error:  # noqa: BLE001  whoever wrote the store may have meant it to
                failures[f"The check {name} failed: {type(error).__name__}. Report it."] = None
        told = settings.read(given.config)
        found_all = accept(found.values(), entries(told), told.folder, datetime.now(UTC).date())
        if given.format != "text" or told.audit:
            looked = tuple(filter(None, (place.name, place.models, place.code)))
            failed = tuple(Failure("", "", each) for each in failures)
            report = Report(looked, tuple(found_all), failed)
            status = report.status(given.fail_on)
            print(*FORMATS[given.format](report, status=status, fail_on=given.fail_on), sep="\n")
            return status
        lines = _lines(found.values())
        if not failures:
            lines = [*(lines or _nothing(place)), *_not_seen(given)]
    for line in lines:
        print(line)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 2 if failures else int(any(each.severity != "note" for each in found.values()))


def _lines(findings: Iterable[Finding]) -> list[str]:
    """Return a line per finding, the worst first. A long row is cut, and none of errors."""
    rows: dict[tuple[str, str], list[str]] = {}
    for each in worst_first(findings):
        rows.setdefault((each.rule, each.severity), []).append(str(each))
    lines = []
    for (rule, severity), row in rows.items():
        shown = len(row) if severity == "error" else _SHOWN
        lines += row[:shown]
        if len(row) > shown:
            lines.append(
                f"{rule} {severity}: There are {len(row) - shown} more findings like these."
                " Mend those above, and run the audit again."
            )
    return lines


def _nothing(place: Place) -> Iterator[str]:
    """Say that nothing was found, and where nobody looked."""
    given, rest = place.given, ""
    looked = [shell(each) for each in (given.models, given.code) if each is not None]
    if place.is_empty:
        yield (
            f"No records: {place.name} holds none, so none was verified. If there should be some,"
            " check the path."
        )
    elif place.name is not None:
        looked.insert(0, place.name)
        if place.keys is None:
            rest = " (records not verified: give --key and --store)"
        elif given.anchor is None and given.postgres_anchor is None:
            rest = " (a rollback would not show: give --anchor)"
    if looked:
        yield f"No findings: {', '.join(looked)}{rest}"


def _not_seen(given: argparse.Namespace) -> list[str]:
    """Say what no worker's login can look at, and nobody else was asked to."""
    if given.postgres is None:
        return []
    missed = unseen_tenants(given.postgres)[1]
    lines = [missed] if missed else []
    if given.postgres_admin is None and not may_see_rules(given.postgres):
        line = "pg_hba.conf was not looked at: this login may not read it, as it should be."
        lines.append(f"{line} Give --postgres-admin.")
    return lines


def _check(given: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    has = {name for name, value in vars(given).items() if value not in (None, [], 1)}
    store = has & {"path", "postgres"}
    if not store and not has & {"models", "code"}:
        given.refuse("give PATH, --postgres, --models or --code")
    if not store and has & {"key", "store", "anchor", "journal"}:
        given.refuse("--key, --store, --anchor and --journal need PATH or --postgres")
    if len(store) == 2:
        given.refuse("give PATH or --postgres, and run it again for the other one")
    if {"anchor", "postgres_anchor"} <= has:
        given.refuse("give --anchor or --postgres-anchor")
    if "store" in has and not has & {"key", "revoked"}:
        given.refuse("--store needs --key")
    for other, names in _NEEDS.items():
        for name in has.intersection(names) if other not in has else ():
            given.refuse(f"--{name} needs --{other}".replace("_", "-"))
    for name in ("anchor_every", "people"):
        if getattr(given, name) != "step" and getattr(given, name) < 1:
            given.refuse(f"--{name} must be 1 or more".replace("_", "-"))


def _gate_of(given: argparse.Namespace) -> Gate:
    """Load the public keys of those who may approve.

    Raises:
        KeyRefused: one is no public key.
        ConfigurationError: a name has no file, or there are fewer people.
    """
    keys: dict[str, list[VerifyingKey]] = {}
    gone: list[VerifyingKey] = []
    for option in ("approver", "revoked-approver"):
        for each in getattr(given, option.replace("-", "_")):
            name, equals, file = each.partition("=")
            if not equals:
                raise ConfigurationError(
                    f"{quoted(each)} does not say whose key it is.",
                    f"Write --{option} dana=dana.key",
                )
            key = VerifyingKey.from_file(file)
            keys.setdefault(name, []).append(key)
            gone += [key] if option != "approver" else []
    return Gate(Policy({Reason.ASKED: given.people}), Approvers(keys, revoked=gone))


def _anchor(path: str) -> Anchor:
    """Open an anchor of files, or one in a file of SQLite."""
    file = _inside(path)
    in_file = os.path.isfile(file)  # noqa: PTH113  that of Path may raise
    return SQLiteAnchor(file, read_only=True) if in_file else FileAnchor(path)


def _inside(path: str) -> str:
    """Return the database of a folder that holds nothing else; or the path as it is.

    What lies beside other files does not choose how those are read: they are looked at as files.
    """
    with suppress(OSError, ValueError):
        found = [str(each) for each in Path(path).iterdir()]
        file = min(found, key=len)
        if {*found} <= {file + each for each in BESIDE} and _is_sqlite(file):
            return file
    return path


def _is_sqlite(path: str) -> bool:
    with suppress(OSError, ValueError):
        begins = content(path, len(_SQLITE))
        return begins is not None and begins[0] == _SQLITE
    return False
