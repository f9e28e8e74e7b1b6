"""`safepoint audit`: read each place once, and make each check of the table."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from safepoint.audit.accepting import accept, entries
from safepoint.audit.contents import File, check_contents, keys_inside
from safepoint.audit.discover import Found, check_code, check_tested, is_journal
from safepoint.audit.finding import (
    Finding,
    Severity,
    content,
    finding,
    guarded,
    refused,
    worst_first,
)
from safepoint.audit.folder import (
    around,
    check_append_only,
    check_location,
    check_ownership,
    check_places,
    key_file,
    location,
)
from safepoint.audit.formats import FORMATS
from safepoint.audit.ledger import (
    approvers_apart,
    check_anchor,
    check_journal,
    check_keys,
    check_operators,
)
from safepoint.audit.models import check_torch
from safepoint.audit.network import check_network, may_see_rules
from safepoint.audit.postgres import check_privileges, tenant_of, unseen_tenants
from safepoint.audit.reading import mixed, read
from safepoint.audit.report import Failure, Report
from safepoint.audit.runs import Runs, holds
from safepoint.audit.sqlite import check_database, foreign
from safepoint.core.anchor import Anchor
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    MissingPackage,
    Unavailable,
    shell,
)
from safepoint.core.keys import Keyring
from safepoint.core.ledger import Ledger
from safepoint.core.names import check_name
from safepoint.core.storage import is_thread
from safepoint.settings import (
    SEVERITIES,
    Settings,
    Store,
    add_options,
    database_in,
    in_default_places,
    is_database,
    read_for_audit,
)
from safepoint.settings import read as read_settings
from safepoint.shared.terminal import add, key_of, keyring_of, progress
from safepoint.stores.database import BESIDE
from safepoint.stores.disk import absolute, location_refusals

_NEEDS: Final = {
    "postgres": ("postgres_anchor", "postgres_journal", "postgres_answers", "postgres_admin"),
    "store": ("key", "revoked", "anchor", "tenant", "approver", "operator", "app", "answers"),
    "approver": ("people", "revoked_approver"),
    "answers": ("answers_anchor",),
    "journal_key": ("journal",),
    "journal": ("journal_key", "journal_anchor", "journal_name"),
}
_DEFAULTS: Final = {each.name: each.default for each in fields(Store)}
_T = TypeVar("_T")


def commands(sub: Any) -> None:
    """Add `safepoint audit`."""
    parser = add(
        sub,
        "audit",
        "check stores, state, models and code",
        _audit,
        description="Check stores, state of other frameworks, models and code: each path is found"
        " out by its content. Without any, what safepoint.toml names. Nothing is changed.",
        epilog="exit status: 0 nothing to do, 1 findings from --fail-on up, 2 it could not look",
    )
    path = "a folder or a file: a store, a database, models, code, or all of these"
    parser.add_argument("path", metavar="PATH", nargs="*", help=path)
    what = "a store of the settings, or of the default places; with --key, the name of PATH"
    parser.add_argument("--store", metavar="NAME", help=what)
    what = "the settings (for [audit], safepoint.toml here or above)"
    parser.add_argument("--config", metavar="FILE", help=what)
    what = "from which severity on a finding fails the audit (warning)"
    parser.add_argument("--fail-on", choices=SEVERITIES, help=what)
    parser.add_argument("--format", choices=FORMATS, default="text", help="how to say it (text)")
    add_options(parser)


class Place:
    """A store, by its parts. What more than one check needs of it is read once.

    Attributes:
        store: its parts.
        closed: what keeps its parts from being opened. It keeps no other from being looked at.
        keys: the keys that sealed the records, None if none was given, or one is refused.
        anchor: its anchor, None if there is none, or it is refused.
        gate: who may approve, None if nobody was named, or a key of theirs is refused.
        is_without_gate: whether one is.
        database: the file of an SQLite storage, by how it begins, or None.
        location: any other path that was given, or None.
        folder: that path, if it is a folder, or None.
        foreign: what others keep in the database, or None.
        disk: the storage on disk, or None.
        name: what to call the store, for a person.
        where: its path, or its name.
        unverified: why its records are not verified, although there are keys.
    """

    def __init__(self, store: Store, stack: ExitStack) -> None:
        self.store, self._stack = store, stack
        self.keys, self.closed = _keys(store.key, store.revoked)
        self.anchor, closed = _anchor(store.anchor, lambda: store.anchor_of(stack))
        self.gate, refusals = None, list[Finding]()
        if store.approver:
            file = _absolute(store.approver[0].partition("=")[2])
            self.gate, refusals = _opened("SP19", file, store.gate_of)
        self.closed += [*closed, *refusals]
        self.is_without_gate = bool(refusals)
        for part, name in (("store", store.store), ("journal", store.journal_name)):
            if name is not None:
                check_name(part, name)
        path = store.storage and database_in(store.storage)
        self.database = path if path is not None and is_database(path) else None
        self.location = path if self.database is None else None
        is_folder = path is not None and os.path.isdir(path)  # noqa: PTH112
        self.folder = path if is_folder else None
        self.foreign = foreign(self.database) if self.database else None
        self.disk = self.folder or (None if self.foreign else self.database)
        self.where = "" if path is None else absolute(path)
        self.name = shell(self.where)
        if store.postgres is not None:
            from safepoint.stores.postgres.connection import parsed, place

            self.name = self.where = place(parsed(store.postgres))
        self.unverified: list[Finding] = []

    def __str__(self) -> str:
        if self.store.postgres is not None:
            return f"{self.name} in PostgreSQL"
        if self.foreign:
            return f"{self.name} ({self.foreign.name})"
        kind = "journal" if self.is_journal else "store"
        return f"{self.name} (a {kind} in {'SQLite' if self.database else 'files'})"

    @cached_property
    def is_journal(self) -> bool:
        """Whether it was found, and is a journal."""
        with suppress(CheckpointError):  # which another check says
            return bool(self.disk) and self.store.store is None and is_journal(self._storage)
        return False

    @property
    def home(self) -> str | None:
        """The folder that the storage is in, if it is on disk."""
        return str(Path(absolute(self.database)).parent) if self.database else self.folder

    @cached_property
    def is_empty(self) -> bool:
        """Whether there is a store, as far as it may be read, and no record in it."""
        if (self.disk or self.ledger) is None:
            return False
        try:
            storage = self._storage.tenant(self._tenant) if self._tenant else self._storage
            inside = Path(self.folder).iterdir() if self.folder else ()
            links = (each for each in inside if each.is_symlink() and is_thread(each.name))
            return not (storage.threads() or storage.tenants() or any(links))
        except (CheckpointError, OSError):
            return False  # another check says why

    @property
    def is_sealed(self) -> bool:
        """Whether there are records that a key could verify, as far as can be told without it."""
        there = self.disk if self.store.postgres is None else self.served
        return there is not None and all(each.id != "SP02.unsealed" for each in self.contents)

    @cached_property
    def ledger(self) -> Ledger | None:
        """The store, opened with its keys; None if there are none, or it could not be opened."""
        store = self.store
        there = self.disk or self.foreign or store.postgres
        if there is None or not (store.key or store.revoked):
            return None
        self.unverified = [finding("SP02.not-verified", self.where, place=self.name)]
        if self.foreign or self.keys is None:
            return None
        try:
            anchor = self.anchor
            if store.postgres_anchor is not None:
                anchor = store.anchor_of(self._stack)
            options: Any = {"anchor": anchor, "tenant": self._tenant}
            ledger = Ledger(self._storage, store=store.store or "", keys=self.keys, **options)
        except ConfigurationError as refusal:
            self.unverified.insert(0, refused("SP15", refusal, self.where))
            return None
        except Unavailable:
            if store.postgres is not None:
                raise
            return None  # another check has said why
        self.unverified = []
        return ledger

    @cached_property
    def contents(self) -> list[Finding]:
        """What its files hold."""
        if self.database is None:
            return [] if self.folder is None else check_contents(self.folder, self.keys)
        # SQLite loses its locks if somebody else in the process opens its files.
        ours = {os.path.realpath(absolute(self.database) + suffix) for suffix in BESIDE}
        return keys_inside(self.home or "", self.keys, without=ours)

    @cached_property
    def _storage(self) -> Any:
        return self.store.storage_of(self._stack)

    @cached_property
    def _tenant(self) -> str:
        """The tenant that was named, or that the login of a database serves."""
        return self.store.tenant or (self.served or "").replace("*", "")

    @cached_property
    def served(self) -> str | None:
        """Whom the login of a database serves; `*` is every tenant. None if it has no store."""
        return None if self.store.postgres is None else tenant_of(self.store.postgres)

    def answers(self) -> Iterator[Finding]:
        """Look at where the answers are kept, who may put some, and what operators signed."""
        store = self.store
        if store.answers is not None:
            path = database_in(store.answers)
            yield from check_database(path) if is_database(path) else check_location(path)
        answers, closed = _opened(
            "SP19",
            _absolute(store.answers) if store.answers else self.where,
            lambda: store.answers_of(self._stack),
            _anchor_modes(store.answers_anchor) if store.answers_anchor else (),
        )
        yield from closed
        gate = None if closed or self.is_without_gate else store.gate_of(answers)
        if self.ledger is not None and gate is not None:
            yield from check_operators(self.ledger, gate)
            yield from holds(self.ledger, gate) if gate.operators.keys else ()


def _opened(
    rule: str, where: str, opens: Callable[[], _T], modes: Iterable[Finding] = ()
) -> tuple[_T | None, list[Finding]]:
    """Open a part of a store. If it is refused, return that, after the modes that may be why."""
    try:
        return opens(), []
    except (ConfigurationError, MissingPackage):
        raise  # which is not about what is there
    except CheckpointError as refusal:
        return None, [*guarded("SP04", where, modes), refused(rule, refusal, where)]


def _keys(
    paths: tuple[str, ...], revoked: tuple[str, ...] = ()
) -> tuple[Keyring | None, list[Finding]]:
    """Load keys, if there are any, or return what is wrong with each."""
    closed: list[Finding] = []
    files = [_absolute(each) for each in (*paths, *(each.partition("=")[0] for each in revoked))]
    for file in files:
        closed += _opened("SP22", file, partial(key_of, file), _key_modes(file))[1]
    if closed or not files:
        return None, closed
    return _opened("SP22", files[-1], lambda: keyring_of(paths, revoked))


def _key_modes(path: str) -> Iterator[Finding]:
    data, size = content(path, 128) or (b"", 0)
    yield from key_file("keys", File(path, data, size))
    folder = str(Path(path).parent)
    yield from (refused("SP22", each, folder) for each in location_refusals(folder))


def _anchor(
    path: str | None, opens: Callable[[], Anchor | None]
) -> tuple[Anchor | None, list[Finding]]:
    """Open an anchor on disk, if there is one, or return what is wrong with it."""
    if path is None:
        return None, []
    return _opened("SP15", _absolute(database_in(path)), opens, _anchor_modes(path))


def _anchor_modes(path: str) -> Iterator[Finding]:
    file = _absolute(database_in(path))
    return around(file, path) if is_database(file) else location(file, named=path)


def _absolute(path: str) -> str:
    """Return a path as it is looked at; as it is, if there is nothing to look at."""
    with suppress(CheckpointError):
        return absolute(path)
    return os.path.abspath(path)  # noqa: PTH100


def _owners(path: str) -> Iterable[Finding]:
    # That no worker ever owned a thread is how it is for whoever runs one worker.
    return [each for each in check_ownership(path) if each.severity != "note"]


def _database(place: Place) -> Iterable[Finding]:
    if place.foreign:
        return place.foreign.findings
    return [] if place.database is None else check_database(place.database)


def _privileges(place: Place) -> Iterator[Finding]:
    store = place.store
    if store.postgres is not None:
        apart = {"anchor": store.postgres_anchor, "journal": store.postgres_journal}
        yield from check_privileges(store.postgres, **apart)
        if place.served is not None:
            yield from unseen_tenants(place.where, place.served)


def _network(place: Place) -> Iterator[Finding]:
    store = place.store
    if store.postgres is not None:
        yield from check_network(store.postgres, admin=store.postgres_admin)
        if store.postgres_admin is None and not may_see_rules(store.postgres):
            yield finding("SP06.rules-unseen", place.where)
    for other in (store.postgres_anchor, store.postgres_journal, store.postgres_answers):
        yield from () if other is None else check_network(other)


def _records(place: Place) -> Iterator[Finding]:
    ledger, gate = place.ledger, place.gate
    yield from place.unverified
    if place.is_empty:
        yield finding("SP02.empty", place.where)
    elif not place.store.key and not place.store.revoked and place.is_sealed:
        which = "SP20.no-key" if place.is_journal else "SP02.no-key"
        yield finding(which, place.where, place=place.name, options=_options(place))
    if ledger is None:
        return
    runs = Runs(gate, place.store.app)
    if gate is not None:
        yield from approvers_apart(ledger, gate.people)
    yield from read(ledger, lambda each: [*each.findings("SP10"), *runs.look(each)])
    yield from runs.without_tools(ledger.store) if gate is not None else ()


def _options(place: Place) -> str:
    """Return which options give the key: for a store of the default places, its name."""
    where = Path(place.where)
    for name in (where.parent.name, where.parent.parent.name):
        with suppress(CheckpointError):
            store = in_default_places(name)
            kept = filter(None, (store.storage, store.journal, store.answers))
            if os.path.realpath(where) in map(os.path.realpath, kept):
                return f"--store {name}"
    return "--journal and --journal-key" if place.is_journal else "--store and --key"


def _journal(place: Place) -> Iterator[Finding]:
    store = place.store
    if store.journal is None:
        return
    with ExitStack() as stack:
        keys, closed = _keys(store.journal_key)
        anchor, also = _anchor(store.journal_anchor, lambda: store.journal_anchor_of(stack))
        yield from (*closed, *also)
        if keys is not None and not also:
            yield from check_journal(store.journal, keys, name=store.journal_name, anchor=anchor)
        else:
            yield finding("SP02.not-verified", store.journal, place=shell(store.journal))
    held = Path(store.key[0]).parent if store.key else None
    heads, ends = _folder(store.anchor), _folder(store.journal_anchor)
    yield from check_places(
        place.home, keys=held, anchor=heads, journal=_folder(store.journal), journal_anchor=ends
    )


def _compared(place: Place) -> Iterable[Finding]:
    is_refused = place.anchor is None and place.store.anchor is not None
    return [] if place.ledger is None or is_refused else check_anchor(place.ledger)


def _folder(path: str | None) -> str | None:
    """Return the folder of an anchor or a journal, which may be a file in it."""
    return str(Path(absolute(path)).parent) if path and is_database(path) else path


Known = Store | Failure
Look = Callable[[Any], Iterable[Finding]]


def _on(part: str, check: Look) -> Look:
    """Return how to make a check on a part of a place, if it has that part."""
    return lambda place: [] if getattr(place, part) is None else check(getattr(place, part))


CHECKS: Final[dict[str, Look]] = {
    "parts": lambda place: place.closed,
    "location": _on("location", check_location),
    "contents": lambda place: place.contents,
    "append-only": _on("folder", check_append_only),
    "database": _database,
    "privileges": _privileges,
    "network": _network,
    "keys": _on("ledger", lambda ledger: check_keys(ledger.keys, ledger=ledger)),
    "records": _records,
    "tenants": _on("ledger", mixed),
    "anchor": _compared,
    "answers": Place.answers,
    "owners": _on("disk", _owners),
    "journal": _journal,
}
"""Each check of a store by a name of its own."""

FOUND: Final[dict[str, Look]] = {
    "files": lambda found: found.findings,
    "torch": lambda found: check_torch() if found.has_torch else [],
    "loads": check_code,
    "safety-test": check_tested,
}
"""Each check of what is found at a path, and is no store."""


def _audit(options: argparse.Namespace) -> int:
    """Look, and say what was found in the format that was asked for."""
    settings = read_for_audit(options.config)
    accepted = entries(settings)
    fail_on = cast("Severity", options.fail_on or settings.fail_on)
    report = look(*_named(options, settings))
    complete = not options.path and not options.store and not report.failures
    alone = len(report.stores) < 2 and len(settings.stores) < 2
    told = {"complete": complete, "alone": alone}
    found = accept(report.findings, accepted, settings.folder, datetime.now(UTC).date(), **told)
    report = replace(report, findings=tuple(worst_first(found)), settings=settings.file)
    status = report.status(fail_on)
    if options.format == "text" and not report.looked and not found:
        print(*(each.why for each in report.failures), sep="\n", file=sys.stderr)
        return status  # there is nothing to report on but what was asked for
    for line in FORMATS[options.format](report, status=status, fail_on=fail_on):
        print(line)
    return status


def look(paths: Iterable[str], stores: Iterable[Known] = ()) -> Report:
    """Audit paths, each found out by its content, and stores by their parts."""
    with progress("files and records"):
        return _looked(paths, stores)


def _looked(paths: Iterable[str], stores: Iterable[Known]) -> Report:
    audit, named = _Audit(), set[str]()
    for store in stores:
        if isinstance(store, Failure):
            audit.failures[store.why] = store
            continue
        named |= {os.path.realpath(database_in(store.storage))} if store.storage else set()
        audit.store(store)
    for path in paths:
        with audit.trying("files", path):
            found = Found(path)
            audit.make(FOUND, found, path, is_something=bool(+found.counts))
            for each in found.stores:
                if os.path.realpath(each) not in named:  # which was looked at with its keys
                    audit.store(Store(storage=each))
    failed = tuple(audit.failures.values())
    findings = worst_first(audit.found)
    if len(audit.stores) > 1:  # each may have a thread of the same name
        findings = [
            replace(each, what=f"{shell(each.store)}: {each.what}") if each.store else each
            for each in findings
        ]
    return Report(tuple(audit.looked), tuple(findings), failed, stores=tuple(audit.stores))


class _Audit:
    """Makes checks. One that fails keeps no other from being made.

    Attributes:
        looked: what was looked at.
        found: the findings. Two rules may speak of one thing in a store in the same words, or two
            stores of one path: the first is enough.
        failures: each by its words.
        stores: the place of each store.
    """

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.found: list[Finding] = []
        self._said: set[tuple[str, str]] = set()
        self.failures: dict[str, Failure] = {}
        self.stores: list[str] = []

    def store(self, store: Store) -> None:
        """Make each check of a store."""
        named = store.storage or store.store or ""
        with self.trying("parts", named), ExitStack() as stack:
            place = Place(store, stack)
            self.stores.append(place.where)
            self.make(CHECKS, place, place.where, store=place.where)

    def make(
        self,
        checks: dict[str, Look],
        at: object,
        where: str,
        *,
        store: str = "",
        is_something: bool = True,
    ) -> None:
        """Make each check of a table. What only fails, and finds nothing, was not looked at."""
        failed, found = len(self.failures), False
        for name, check in checks.items():
            with self.trying(name, where):
                for each in check(at):
                    found, is_path = True, Path(each.where).is_absolute()
                    said = {(store, each.what), (each.where if is_path else store, each.what)}
                    if said.isdisjoint(self._said):
                        self.found.append(each if is_path else replace(each, store=store))
                    self._said |= said
        if is_something and (found or len(self.failures) == failed):
            self.looked.append(str(at))

    @contextmanager
    def trying(self, check: str, where: str) -> Iterator[None]:
        """Keep what ends a check."""
        try:
            yield
        except CheckpointError as refusal:
            why = str(refusal)
            self.failures.setdefault(why, Failure(check, where, why))
        except Exception as error:  # noqa: BLE001  whoever wrote the store may have meant it to
            why = f"The check {check} failed: {type(error).__name__}. Report it."
            self.failures.setdefault(why, Failure(check, where, why))


def _named(options: argparse.Namespace, settings: Settings) -> tuple[list[str], list[Known]]:
    """Return what to look at: what the options name, or else what the settings do."""
    paths = options.path
    told = Store.of(vars(options))
    given = {name for name in _DEFAULTS if getattr(options, name, None) not in (None, [])}
    if any(each.startswith(("postgresql://", "postgres://")) for each in paths):
        options.refuse("a connection string is no PATH: give --postgres")
    if given == {"store"}:
        return paths, [read_settings(options.config).store(told.store or "")]
    if given:
        return [], [_told(options, settings, told, given)]
    if not paths:
        paths, names = settings.paths, settings.stores
        if not paths and not names:
            options.refuse(
                "name a PATH or --store NAME, or write safepoint.toml with [audit] and"
                ' paths = ["src"] in it'
            )
        return paths, [_known(settings, name) for name in names]
    return paths, []


def _known(settings: Settings, name: str) -> Known:
    """Return a store of the settings, or why it is none. That keeps no other from being looked at.

    In CI, for example, it may be elsewhere.
    """
    try:
        return settings.store(name)
    except CheckpointError as refusal:
        return Failure("settings", name, f"Store {name}: {refusal}")


def _told(options: argparse.Namespace, settings: Settings, told: Store, given: set[str]) -> Store:
    """Return the store that the options name, or change. Those that do not go together end it."""
    paths, place = options.path, bool(options.path) or told.postgres is not None
    if len(paths) > 1:
        options.refuse("give one PATH with the options of a store")
    if paths and told.postgres is not None:
        options.refuse("give PATH or --postgres, and run it again for the other one")
    if not place and told.store is None:
        first = min(given).replace("_", "-")
        options.refuse(f"--{first} needs PATH, --postgres or --store")
    known = told.store is not None and (not place or told.store in settings.stores)
    base = read_settings(options.config).store(told.store or "") if known else Store()
    store = replace(base, **{name: getattr(told, name) for name in given})
    if place:
        store = replace(store, storage=paths[0] if paths else None, postgres=told.postgres)
    has = {name for name, value in _DEFAULTS.items() if getattr(store, name) != value}
    if {"anchor", "postgres_anchor"} <= has:
        options.refuse("give --anchor or --postgres-anchor")
    if "store" in has and not has & {"key", "revoked"}:
        options.refuse("--store needs --key")
    for other, names in _NEEDS.items():
        for name in sorted(has.intersection(names)) if other not in has else ():
            options.refuse(f"--{name} needs --{other}".replace("_", "-"))
    return store
