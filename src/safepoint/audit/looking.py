"""The audit: a path is found out by its content, a store is read once, every check is made."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from safepoint.audit.contents import Contents
from safepoint.audit.discover import Found
from safepoint.audit.finding import (
    FAILED,
    Finding,
    Report,
    finding,
    of_tenant,
    refused,
    worst_first,
)
from safepoint.audit.folder import check_database, check_ownership, check_places
from safepoint.audit.ledger import (
    approvers_apart,
    check_anchor,
    check_journal,
    check_keys,
    check_operators,
    check_secrets,
)
from safepoint.audit.models import check_torch, loads, safety_test
from safepoint.audit.postgres import check_postgres, tenant_of
from safepoint.audit.reading import all_threads, walk
from safepoint.audit.runs import Runs, holds
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
from safepoint.places import PLACES, Store, is_database, open_anchor
from safepoint.resume.gate import Gate
from safepoint.shared.terminal import key_of, keyring_of, progress
from safepoint.stores.disk import absolute

_T = TypeVar("_T")


class AuditedStore:
    """A store, by its parts. What more than one check needs of it is read once.

    Attributes:
        store: its parts.
        closed: what keeps its parts from being opened. It keeps no other from being looked at.
        keys: the keys that sealed the records, None if none was given, or one is refused.
        anchor: its anchor, None if there is none, or it is refused.
        gate: who may approve and hold; None if nobody was named, or what they signed is refused.
        path: its storage on disk, None if it is in PostgreSQL.
        database: that, if it is a file of SQLite, or None.
        where: its path, or its database and login.
        shown: the same, for a sentence.
    """

    def __init__(self, store: Store, stack: ExitStack) -> None:
        self.store, self._stack = store, stack
        if store.store is not None:
            check_name("store", store.store)
        self.closed: list[Finding] = []
        self.keys = self._ring(store.key)
        self._servers = store.databases
        elsewhere: Any = dict.fromkeys(self._servers)
        self._on_disk = on_disk = replace(store, **elsewhere)
        self.anchor = self._try("SP15", on_disk.anchor, lambda: open_anchor(on_disk.anchor, stack))
        self.path = absolute(on_disk.storage) if on_disk.storage else None
        if self.path is not None and not os.path.lexists(self.path):
            shown = shell(self.path)
            raise Unavailable(f"{shown} does not exist.", f"Run: mkdir -m 700 {shown}")
        self.database = self.path if self.path and is_database(self.path) else None
        is_server = "storage" in self._servers
        self.where = self._place("storage") if is_server else self.path or ""
        self.shown = self.where if is_server else shell(self.where)
        self.gate = self._gate()

    def __str__(self) -> str:
        if "storage" in self._servers:
            return f"{self.shown} in PostgreSQL"
        return f"{self.shown} (a store in {'SQLite' if self.database else 'files'})"

    def _place(self, part: str) -> str:
        """Return the database and the login of a part in PostgreSQL."""
        from safepoint.stores.postgres.connection import parsed, place

        return place(parsed(self._servers[part]))

    def _try(self, rule: str, path: str | None, opens: Callable[[], _T]) -> _T | None:
        """Open a part. If it is refused, keep that."""
        try:
            return opens()
        except (ConfigurationError, MissingPackage):
            raise  # which is not about what is there
        except CheckpointError as refusal:
            where = self.where if path is None else _absolute(path)
            self.closed.append(refused(rule, refusal, where))
            return None

    def _ring(self, paths: tuple[str, ...]) -> Keyring | None:
        """Load keys, if there are any and all of them can be."""
        keys = [self._try("SP22", file, partial(key_of, file)) for file in paths]
        if None in keys or not keys:
            return None
        return self._try("SP22", paths[-1], lambda: keyring_of(paths))

    @property
    def is_anchored(self) -> bool:
        """Whether its anchor could be opened, if it has one on disk."""
        return self.anchor is not None or self.store.anchor is None

    def _gate(self) -> Gate | None:
        """Return who may approve and hold, if they and what they signed can be read."""
        store = self.store
        where = self._on_disk.answers
        answers = self._try("SP19", where, lambda: store.answers_of(self._stack))
        if answers is None and store.answers:
            return None
        folder = store.approvers or store.operators
        return self._try("SP19", folder, lambda: store.gate_of(answers))

    def _is_empty(self) -> bool:
        """Tell whether there is a store, as far as it may be read and no record in it."""
        if self.ledger is None and "storage" in self._servers:
            return False
        try:
            storage = self._storage.tenant(self._tenant) if self._tenant else self._storage
            return not (storage.threads() or storage.tenants())
        except (CheckpointError, OSError):
            return False  # another check says why

    def _is_sealed(self) -> bool:
        """Tell whether there are records that a key could verify, as far as one sees without."""
        if "storage" in self._servers:
            return self._served is not None
        return self.database is not None or self.contents.is_sealed

    @cached_property
    def ledger(self) -> Ledger | None:
        """The store, opened with its keys; None if there are none, or it could not be opened."""
        store = self.store
        if self.keys is None:
            return None
        try:
            anchor = self.anchor or open_anchor(self._servers.get("anchor"), self._stack)
            options: Any = {"anchor": anchor, "tenant": self._tenant}
            return Ledger(self._storage, store=store.store or "", keys=self.keys, **options)
        except ConfigurationError as refusal:
            self.closed.append(refused("SP15", refusal, self.where))
        except (Unavailable, Unsafe):
            if "storage" in self._servers:
                raise
        return None  # another check says why

    @cached_property
    def contents(self) -> Contents:
        """What the files of its folder hold."""
        return Contents(self.where)

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
        return tenant_of(self._servers["storage"]) if "storage" in self._servers else None

    def places(self) -> Iterator[Finding]:
        """Look at where the parts lie."""
        store = self._on_disk
        named = {each.replace("_", "'s "): getattr(store, each) for each in PLACES}
        keys = (*store.key, *store.journal_key)
        parts = {part: path for part, path in named.items() if path}
        return check_places(parts, map(_absolute, keys))

    def records(self) -> Iterable[Finding]:
        """Look at the bytes of its records, or at the file of SQLite that has them."""
        if self.database:
            return check_database(self.database)
        is_folder = self.path is not None and os.path.isdir(self.path)  # noqa: PTH112
        return self.contents.findings if is_folder else []

    def server(self) -> list[Finding]:
        """Look at the logins and the schemas of a store in PostgreSQL."""
        parts = ("storage", "anchor", "journal", "answers")
        given = {each: self._servers[each] for each in parts if each in self._servers}
        return (
            check_postgres({"store": given.pop("storage"), **given}) if "storage" in given else []
        )

    def verified(self) -> Iterator[Finding]:
        """Say whether there is anything to verify, and what keeps from it."""
        if self.ledger is None and self.store.key:
            yield finding("SP02.not-verified", self.where, place=self.shown)
        elif self._is_empty():
            yield finding("SP02.empty", self.where)
        elif self.ledger is None and self._is_sealed():
            yield finding("SP02.no-key", self.where, place=self.shown)

    def journal(self) -> Iterator[Finding]:
        """Verify the journal."""
        store, on_disk, before = self.store, self._on_disk, len(self.closed)
        if store.journal is None:
            return
        where = on_disk.journal or self._place("journal")
        shown = shell(where) if on_disk.journal else where
        keys, opens = self._ring(store.journal_key), partial(open_anchor, store.journal_anchor)
        anchor = self._try("SP15", on_disk.journal_anchor, lambda: opens(self._stack))
        if keys is not None and len(self.closed) == before:
            journal: Any = partial(store.journal_of, self._stack, write=False)
            yield from check_journal(where, shown, journal, anchor)
        else:
            unseen = "not-verified" if store.journal_key else "no-key"
            yield finding(f"SP02.{unseen}", where, place=shown)

    def owners(self) -> Iterator[Finding]:
        """Look at who owns the threads of a storage on disk."""
        with suppress(CheckpointError, OSError):  # which another check says
            yield from check_ownership(self._storage) if self.path else ()


def _absolute(path: str) -> str:
    """Return a path as it is looked at; as it is, if there is nothing to look at."""
    with suppress(CheckpointError):
        return absolute(path)
    return os.path.abspath(path)  # noqa: PTH100


def _verified(
    ledger: Ledger | None, gate: Gate | None, *, is_anchored: bool = True
) -> Iterator[Finding]:
    """Verify each record of a store once, and look at how each run came to continue."""
    yield from check_secrets([] if ledger is None else ledger.keys, gate)
    if ledger is None:
        return
    runs, heads, keys = Runs(gate), dict[tuple[Ledger, str], int](), Counter[str]()
    threads, found = all_threads(ledger)
    yield from found
    for scope, name in threads:
        thread = walk(scope, name)
        yield from of_tenant(scope.tenant_name, [*thread.findings(), *runs.look(thread)])
        keys += thread.keys
        heads |= {(scope, name): thread.head} if thread.head and not thread.refusal else {}
    yield from check_keys(ledger, keys)
    yield from check_anchor(ledger, heads) if is_anchored else ()
    if gate is not None:
        yield from approvers_apart(ledger, gate.approvers)
        yield from check_operators(ledger, gate)
        yield from holds(ledger, gate)


Auditor = Callable[[Any], Iterable[Finding]]
CHECKS: Final[dict[str, Auditor]] = {
    "places": AuditedStore.places,
    "contents": AuditedStore.records,
    "postgres": AuditedStore.server,
    "records": lambda at: _verified(at.ledger, at.gate, is_anchored=at.is_anchored),
    "verified": AuditedStore.verified,
    "owners": AuditedStore.owners,
    "journal": AuditedStore.journal,
    "parts": lambda place: place.closed,
}
"""Each check of a store by its parts."""
FOUND: Final[dict[str, Auditor]] = {
    "files": lambda found: found.findings,
    "torch": lambda found: check_torch() if found.has_torch else [],
    "loads": lambda found: loads(found.code),
}
"""Each check of what is found at a path, and is no store."""
CODE: Final = {name: FOUND[name] for name in ("files", "loads")}
"""Those of code alone."""


def audit(
    target: str | os.PathLike[str] | Store | Ledger, *, rule: str = "", gate: Gate | None = None
) -> list[Finding]:
    r"""Look at something that is deployed and say what is wrong with it. Nothing is changed.

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

    Returns:
        The findings, the worst first. `safepoint explain ID` says what each of them is. A check
        that could not be made is `audit.failed`, whatever the rule.
    """
    made = _Audit()
    if isinstance(target, Ledger):
        made.make({"records": lambda ledger: _verified(ledger, gate)}, target, target.store)
    elif isinstance(target, Store):
        made.store(target)
    else:
        made.path(os.fspath(target), set())
        made.tests()
    return [each for each in worst_first(made.found) if each.rule in (rule or each.rule, "audit")]


def look(
    paths: Iterable[str],
    stores: Mapping[str, Callable[[], Store]] = MappingProxyType({}),
    *,
    is_code: bool = False,
) -> Report:
    """Audit paths, each found out by its content or only for code, and stores by their parts.

    Args:
        paths: the paths.
        stores: of each store, by its name, what returns its parts, or refuses to.
        is_code: whether only code is looked at.
    """
    made, named = _Audit(), set[str]()
    with progress("files and records"):
        for name, parts_of in stores.items():
            with made.trying("settings", name):  # in CI, for example, a store may be elsewhere
                store = parts_of()
                named |= {os.path.realpath(store.storage)} if store.storage else set()
                made.store(store)
        for path in paths:
            made.path(path, named, is_code=is_code)
        made.tests()
    findings = worst_first(made.found)
    if made.stores > 1:  # each may have a thread of the same name
        findings = [
            replace(each, what=f"{shell(each.store)}: {each.what}") if each.store else each
            for each in findings
        ]
    return Report(tuple(made.looked), tuple(findings))


class _Audit:
    """Makes checks. One that fails keeps no other from being made.

    Attributes:
        looked: what was looked at.
        found: the findings. Two rules may speak of one thing in a store in the same words, or two
            stores of one path: the first is enough.
        stores: how many stores there were.
    """

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.found: list[Finding] = []
        self._said: set[tuple[str, str]] = set()
        self._met: list[Found] = []
        self.stores = 0

    def path(self, path: str, named: set[str], *, is_code: bool = False) -> None:
        """Look at a path, and at the stores in it that were not named besides."""
        with self.trying("files", path):
            found = Found(path, is_code=is_code)
            self.make(CODE if is_code else FOUND, found, path)
            self._met += [] if is_code else [found]
            for each in found.stores:
                if os.path.realpath(each) not in named:  # which was looked at with its keys
                    self.store(Store(storage=each))

    def tests(self) -> None:
        """Look for the test of the loads once: in all paths, and in the projects around them."""
        for first in self._met[:1]:
            with self.trying("safety-test", first.path):
                code = [file for each in self._met for file in each.code]
                tests = {file for each in self._met for file in each.tests()}
                for each in safety_test(first.path, code, tests):
                    self._add(each, "")

    def store(self, store: Store) -> None:
        """Make each check of a store."""
        with self.trying("parts", store.store or store.storage or ""), ExitStack() as stack:
            place = AuditedStore(store, stack)
            self.stores += 1
            self.make(CHECKS, place, place.where, place.shown)

    def make(self, checks: dict[str, Auditor], at: object, where: str, shown: str = "") -> None:
        """Make each check of a table. What only fails, and finds nothing, was not looked at."""
        before = len(self.found)
        for name, check in checks.items():
            with self.trying(name, where, shown):
                for each in check(at):
                    self._add(each, where if shown else "")
        if {each.id for each in self.found[before:]} != {FAILED}:
            self.looked.append(str(at))

    def _add(self, each: Finding, store: str) -> None:
        is_path = Path(each.where).is_absolute()
        said = {(store, each.what), (each.where if is_path else store, each.what)}
        if said.isdisjoint(self._said):
            self.found.append(each if is_path else replace(each, store=store))
        self._said |= said

    @contextmanager
    def trying(self, check: str, where: str, shown: str = "") -> Iterator[None]:
        """Keep what ends a check."""
        try:
            yield
        except CheckpointError as refusal:
            why, do = refusal.what, refusal.do
        except Exception as error:  # noqa: BLE001  whoever wrote the store may have meant it to
            why, do = f"It failed with {type(error).__name__}.", "Report it."
        else:
            return
        if ("", why) not in self._said:  # one thing may end several checks
            self._said.add(("", why))
            said = {"place": shown or shell(where), "check": check, "why": why, "do": do}
            self.found.append(finding(FAILED, where, **said))
