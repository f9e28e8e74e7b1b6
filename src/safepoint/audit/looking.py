"""The audit: a path is found out by its content, a store is read once, every check is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from safepoint.audit.contents import File, check_contents, keys_inside
from safepoint.audit.discover import Found, check_code, check_tested, is_journal
from safepoint.audit.finding import (
    Finding,
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
from safepoint.audit.ledger import (
    approvers_apart,
    check_anchor,
    check_journal,
    check_keys,
    check_operators,
)
from safepoint.audit.models import check_torch
from safepoint.audit.postgres import check_postgres, tenant_of
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
    Unsafe,
    shell,
)
from safepoint.core.keys import Keyring
from safepoint.core.ledger import Ledger
from safepoint.core.names import check_name
from safepoint.core.storage import is_thread
from safepoint.resume.gate import Gate
from safepoint.settings import Store, database_in, is_database
from safepoint.shared.terminal import key_of, keyring_of, progress
from safepoint.stores.database import BESIDE
from safepoint.stores.disk import absolute, location_refusals

_T = TypeVar("_T")


class Opened(NamedTuple):
    """A store that somebody has opened.

    Attributes:
        ledger: the store, with its keys and its anchor.
        gate: who may approve and hold, and how many it takes; None if nobody is named.
        apps: what runs today.
        is_anchored: whether its anchor could be opened, if it has one.
    """

    ledger: Ledger | None
    gate: Gate | None = None
    apps: tuple[str, ...] = ()
    is_anchored: bool = True


class Place:
    """A store, by its parts. What more than one check needs of it is read once.

    Attributes:
        store: its parts.
        closed: what keeps its parts from being opened. It keeps no other from being looked at.
        keys: the keys that sealed the records, None if none was given, or one is refused.
        anchor: its anchor, None if there is none, or it is refused.
        gate: who may approve and hold; None if nobody was named, or what they signed is refused.
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
        self.store, self._stack, self.apps = store, stack, store.app
        self.closed: list[Finding] = []
        self.keys = self._ring(store.key, store.revoked)
        self.anchor = self._heads(store.anchor, lambda: store.anchor_of(stack))
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
        self.gate = self._gate()

    def __str__(self) -> str:
        if self.store.postgres is not None:
            return f"{self.name} in PostgreSQL"
        if self.foreign:
            return f"{self.name} ({self.foreign.name})"
        kind = "journal" if self.is_journal else "store"
        return f"{self.name} (a {kind} in {'SQLite' if self.database else 'files'})"

    def _try(
        self, rule: str, where: str, opens: Callable[[], _T], modes: Iterable[Finding] = ()
    ) -> _T | None:
        """Open a part. If it is refused, keep that, after the modes that may be why."""
        try:
            return opens()
        except (ConfigurationError, MissingPackage):
            raise  # which is not about what is there
        except CheckpointError as refusal:
            self.closed += [*guarded("SP04", where, modes), refused(rule, refusal, where)]
            return None

    def _ring(self, paths: tuple[str, ...], revoked: tuple[str, ...] = ()) -> Keyring | None:
        """Load keys, if there are any and all of them can be."""
        files = [_absolute(each) for each in (*paths, *(e.partition("=")[0] for e in revoked))]
        keys = [self._try("SP22", file, partial(key_of, file), _modes_of(file)) for file in files]
        if None in keys or not keys:
            return None
        return self._try("SP22", files[-1], lambda: keyring_of(paths, revoked))

    def _heads(self, path: str | None, opens: Callable[[], Anchor | None]) -> Anchor | None:
        """Open an anchor on disk, if there is one."""
        if path is None:
            return None
        return self._try("SP15", _absolute(database_in(path)), opens, _anchor_modes(path))

    @property
    def is_anchored(self) -> bool:
        """Whether its anchor could be opened, if it has one on disk."""
        return self.anchor is not None or self.store.anchor is None

    def _gate(self) -> Gate | None:
        """Return who may approve and hold, if they and what they signed can be read."""
        store = self.store
        answers = self._try(
            "SP19",
            _absolute(store.answers) if store.answers else self.where,
            lambda: store.answers_of(self._stack),
            _anchor_modes(store.answers_anchor) if store.answers_anchor else (),
        )
        if answers is None and (store.answers or store.postgres_answers):
            return None
        file = (*store.approver, *store.operator, "")[0].partition("=")[2]
        return self._try("SP19", _absolute(file), lambda: store.gate_of(answers))

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
        there = self.disk if self.store.postgres is None else self._served
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
        except (Unavailable, Unsafe):
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
        return self.store.tenant or (self._served or "").replace("*", "")

    @cached_property
    def _served(self) -> str | None:
        """Whom the login of a database serves; `*` is every tenant. None if it has no store."""
        return None if self.store.postgres is None else tenant_of(self.store.postgres)

    def database_findings(self) -> Iterable[Finding]:
        """Look at the file of an SQLite storage, or say what others keep in it."""
        if self.foreign:
            return self.foreign.findings
        return [] if self.database is None else check_database(self.database)

    def server(self) -> list[Finding]:
        """Look at the logins and the schemas of a store in PostgreSQL."""
        store = self.store
        parts = {
            "store": store.postgres,
            "anchor": store.postgres_anchor,
            "journal": store.postgres_journal,
            "answers": store.postgres_answers,
        }
        given = {part: dsn for part, dsn in parts.items() if dsn is not None}
        return [] if store.postgres is None else check_postgres(given)

    def verified(self) -> Iterator[Finding]:
        """Say whether there is anything to verify, and what keeps from it."""
        is_unverified = self.ledger is None
        yield from self.unverified
        if self.is_empty:
            yield finding("SP02.empty", self.where)
        elif is_unverified and not (self.store.key or self.store.revoked) and self.is_sealed:
            which = "SP20.no-key" if self.is_journal else "SP02.no-key"
            yield finding(which, self.where, place=self.name)

    def answers(self) -> Iterator[Finding]:
        """Look at where the answers are kept."""
        if self.store.answers is not None:
            path = database_in(self.store.answers)
            yield from check_database(path) if is_database(path) else check_location(path)

    def journal(self) -> Iterator[Finding]:
        """Verify the journal, and look at how the parts lie to each other."""
        store = self.store
        if store.journal is None:
            return
        with ExitStack() as stack:
            before = len(self.closed)
            keys = self._ring(store.journal_key)
            anchor = self._heads(store.journal_anchor, lambda: store.journal_anchor_of(stack))
            if keys is not None and len(self.closed) == before:
                name = store.journal_name
                yield from check_journal(store.journal, keys, name=name, anchor=anchor)
            else:
                yield finding("SP02.not-verified", store.journal, place=shell(store.journal))
        held = Path(store.key[0]).parent if store.key else None
        heads, ends = _folder(store.anchor), _folder(store.journal_anchor)
        yield from check_places(
            self.home, keys=held, anchor=heads, journal=_folder(store.journal), journal_anchor=ends
        )


def _modes_of(path: str) -> Iterator[Finding]:
    data, size = content(path, 128) or (b"", 0)
    yield from key_file("keys", File(path, data, size))
    folder = str(Path(path).parent)
    yield from (refused("SP22", each, folder) for each in location_refusals(folder))


def _anchor_modes(path: str) -> Iterator[Finding]:
    file = _absolute(database_in(path))
    return around(file, path) if is_database(file) else location(file, named=path)


def _absolute(path: str) -> str:
    """Return a path as it is looked at; as it is, if there is nothing to look at."""
    with suppress(CheckpointError):
        return absolute(path)
    return os.path.abspath(path)  # noqa: PTH100


def _folder(path: str | None) -> str | None:
    """Return the folder of an anchor or a journal, which may be a file in it."""
    return str(Path(absolute(path)).parent) if path and is_database(path) else path


def _owners(path: str) -> Iterable[Finding]:
    # That no worker ever owned a thread is how it is for whoever runs one worker.
    return [each for each in check_ownership(path) if each.severity != "note"]


def _records(at: Opened) -> Iterator[Finding]:
    """Verify each record, and look at how each run came to go on."""
    if at.ledger is None:
        return
    runs = Runs(at.gate, at.apps)
    yield from read(at.ledger, lambda each: [*each.findings("SP10"), *runs.look(each)])
    if at.gate is not None:
        yield from approvers_apart(at.ledger, at.gate.approvers)
        yield from runs.without_tools(at.ledger.store)
        yield from check_operators(at.ledger, at.gate)
        yield from holds(at.ledger, at.gate)


def _on(part: str, check: Callable[[Any], Iterable[Finding]]) -> Look:
    """Return how to make a check on a part of a place, if it has that part."""
    return lambda place: [] if getattr(place, part) is None else check(getattr(place, part))


Look = Callable[[Any], Iterable[Finding]]
OPENED: Final[dict[str, Look]] = {
    "keys": _on("ledger", lambda ledger: check_keys(ledger.keys, ledger=ledger)),
    "records": _records,
    "tenants": _on("ledger", mixed),
    "anchor": lambda at: check_anchor(at.ledger) if at.ledger and at.is_anchored else [],
}
"""Each check of a store that is open, by a name of its own."""
CHECKS: Final[dict[str, Look]] = {
    "location": _on("location", check_location),
    "contents": lambda place: place.contents,
    "append-only": _on("folder", check_append_only),
    "database": Place.database_findings,
    "postgres": Place.server,
    **OPENED,
    "verified": Place.verified,
    "answers": Place.answers,
    "owners": _on("disk", _owners),
    "journal": Place.journal,
    "parts": lambda place: place.closed,
}
"""Each check of a store by its parts."""
FOUND: Final[dict[str, Look]] = {
    "files": lambda found: found.findings,
    "torch": lambda found: check_torch() if found.has_torch else [],
    "loads": check_code,
    "safety-test": check_tested,
}
"""Each check of what is found at a path, and is no store."""
CODE: Final = {name: FOUND[name] for name in ("files", "loads")}
"""Those of code alone."""


def audit(
    target: str | os.PathLike[str] | Store | Ledger,
    *,
    rule: str = "",
    gate: Gate | None = None,
    apps: tuple[str, ...] = (),
) -> list[Finding]:
    r"""Look at something that is deployed, and say what is wrong with it. Nothing is changed.

    ```python
    from pathlib import Path

    from safepoint.audit import audit

    Path("state").mkdir(mode=0o700)
    Path("state/order-7").write_bytes(b"\x80\x04K*.")
    for finding in audit("state", rule="SP25"):
        print(finding.id, finding.severity)
        #> SP25.pickle warning
    Path("state/order-7").unlink()
    print(audit("state", rule="SP25"))
    #> []
    ```

    Args:
        target: a path, which is found out by its content: a store, a database, state of others,
            models, code; or a store by its parts, as `safepoint.settings` reads it; or an open one.
        rule: what is found under one rule, such as "SP12"; under each if it is empty.
        gate: of an open store, who may approve, and how many it takes. Without it, approvals are
            counted and not verified.
        apps: of an open store, what runs today: "invoice@2".

    Returns:
        The findings, the worst first. `safepoint explain ID` says what each of them is.

    Raises:
        CheckpointError: a check could not be made.
    """
    made = _Audit(raises=True)
    if isinstance(target, Ledger):
        made.make(OPENED, Opened(target, gate, apps), target.store)
    elif isinstance(target, Store):
        made.store(target)
    else:
        made.path(os.fspath(target), set())
    return [each for each in worst_first(made.found) if rule in ("", each.rule)]


def look(
    paths: Iterable[str], stores: Iterable[Store | Failure] = (), *, is_code: bool = False
) -> Report:
    """Audit paths, each found out by its content or only for code, and stores by their parts."""
    made, named = _Audit(), set[str]()
    with progress("files and records"):
        for store in stores:
            if isinstance(store, Failure):
                made.failures[store.why] = store
                continue
            named |= {os.path.realpath(database_in(store.storage))} if store.storage else set()
            made.store(store)
        for path in paths:
            made.path(path, named, is_code=is_code)
    findings = worst_first(made.found)
    if len(made.stores) > 1:  # each may have a thread of the same name
        findings = [
            replace(each, what=f"{shell(each.store)}: {each.what}") if each.store else each
            for each in findings
        ]
    failed = tuple(made.failures.values())
    return Report(tuple(made.looked), tuple(findings), failed, stores=tuple(made.stores))


class _Audit:
    """Makes checks. One that fails keeps no other from being made, unless it should raise.

    Attributes:
        looked: what was looked at.
        found: the findings. Two rules may speak of one thing in a store in the same words, or two
            stores of one path: the first is enough.
        failures: each by its words.
        stores: the place of each store.
    """

    def __init__(self, *, raises: bool = False) -> None:
        self._raises = raises
        self.looked: list[str] = []
        self.found: list[Finding] = []
        self._said: set[tuple[str, str]] = set()
        self.failures: dict[str, Failure] = {}
        self.stores: list[str] = []

    def path(self, path: str, named: set[str], *, is_code: bool = False) -> None:
        """Look at a path, and at the stores in it that were not named besides."""
        with self.trying("files", path):
            found = Found(path, is_code=is_code)
            self.make(CODE if is_code else FOUND, found, path, is_something=bool(+found.counts))
            for each in found.stores:
                if os.path.realpath(each) not in named:  # which was looked at with its keys
                    self.store(Store(storage=each))

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
            if self._raises:
                raise
            why = str(refusal)
            self.failures.setdefault(why, Failure(check, where, why))
        except Exception as error:  # whoever wrote the store may have meant it to
            if self._raises:
                raise
            why = f"The check {check} failed: {type(error).__name__}. Report it."
            self.failures.setdefault(why, Failure(check, where, why))
