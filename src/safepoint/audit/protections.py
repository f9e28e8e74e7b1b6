"""Are the functions and triggers that hold a schema together still those that migrate made?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, NamedTuple

from safepoint.audit.databases import SCHEMAS, Database, shown
from safepoint.audit.finding import Finding

RULES: Final = {"store": "SP13", "anchor": "SP15", "journal": "SP20"}
_FUNCTION: Final = re.compile(
    r"create function (?P<name>[a-z_.]+)\(.*?language plpgsql(?P<definer> security definer)?"
    r" set search_path = (?P<path>[a-z_, ]+) as \$\$(?P<body>.*?)\$\$",
    re.DOTALL,
)
_TRIGGER: Final = re.compile(
    r"create trigger (?P<name>\w+) before (?P<events>[a-z ]+?) on (?P<table>[a-z_.]+)\s+"
    r"for each (?P<each>row|statement) execute function (?P<function>[a-z_.]+)\(\)\s*;?",
    re.IGNORECASE,
)
_FUNCTIONS: Final = (
    "select n.nspname || '.' || p.proname, p.oid::regprocedure::text, p.prosecdef,"
    " coalesce(p.proconfig, '{}')::text[], p.prosrc"
    " from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = %s order by 2"
)
_TRIGGERS: Final = (
    "select n.nspname || '.' || c.relname, quote_ident(t.tgname), t.tgenabled::text,"
    " pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid"
    " join pg_namespace n on n.oid = c.relnamespace"
    " where n.nspname = %s and not t.tgisinternal order by 1, 2"
)
_REWRITES: Final = (
    "select n.nspname || '.' || c.relname, quote_ident(r.rulename) from pg_rewrite r"
    " join pg_class c on c.oid = r.ev_class join pg_namespace n on n.oid = c.relnamespace"
    " where n.nspname = %s and c.relkind in ('r', 'p') order by 1, 2"
)
_FIRES: Final = ("O", "A")
_BACK: Final = (
    "Verify what is there, and find out who did it. How migrate makes it, this prints: python -m"
    " safepoint.postgres sql"
)


class _Function(NamedTuple):
    definer: bool
    path: str
    body: str


class _Trigger(NamedTuple):
    events: frozenset[str]
    each: str
    function: str


def changed(database: Database, part: str) -> Iterator[Finding]:
    """Compare a part of the schema with the SQL that migrate runs.

    Yields:
        An error for each function and each trigger that is missing or changed, that is turned
        off, or that migrate did not make.
    """
    text = files("safepoint.postgres").joinpath(f"{part}.sql").read_text(encoding="utf-8")
    text = text.replace("{{", "{").replace("}}", "}")
    yield from _functions(database, part, text)
    yield from _triggers(database, part, text)
    for table, name in database.rows(_REWRITES, (SCHEMAS[part],)):
        yield _found(
            part,
            table,
            f"A rule of the server, {shown(name)}, rewrites what is sent to {shown(table)}.",
            f"migrate made none. Find out who did; then: drop rule {shown(name)} on {shown(table)}",
        )


def _functions(database: Database, part: str, text: str) -> Iterator[Finding]:
    wanted = {
        each["name"]: _Function(each["definer"] is not None, each["path"], each["body"])
        for each in _FUNCTION.finditer(text)
    }
    for name, signature, definer, settings, body in database.rows(_FUNCTIONS, (SCHEMAS[part],)):
        made = wanted.pop(name, None)
        if made is None:
            yield _found(
                part,
                name,
                f"Function {shown(signature)} was not made by migrate.",
                f"Find out who made it; then: drop function {shown(signature)}",
            )
            continue
        if made.definer and not definer:
            yield _found(
                part,
                name,
                f"Function {shown(signature)} is no longer SECURITY DEFINER, so it does what its"
                " caller may, and no more.",
                f"Run: alter function {shown(signature)} security definer",
            )
        if settings != [f"search_path={made.path}"]:
            yield _found(
                part,
                name,
                f"Function {shown(signature)} has lost its search_path, so a caller can put objects"
                " of their own in the way of what it names.",
                f"Run: alter function {shown(signature)} set search_path = {made.path}",
            )
        if body != made.body:
            yield _found(
                part,
                name,
                f"The body of {shown(signature)} is not the one that migrate made.",
                _BACK,
            )
    for name in wanted:
        yield _found(part, name, f"Function {name} is missing.", _BACK)


def _triggers(database: Database, part: str, text: str) -> Iterator[Finding]:
    wanted = {(each["table"], each["name"]): _trigger(each) for each in _TRIGGER.finditer(text)}
    for table, name, enabled, definition in database.rows(_TRIGGERS, (SCHEMAS[part],)):
        made, match = wanted.pop((table, name), None), _TRIGGER.fullmatch(definition)
        if made is None:
            yield _found(
                part,
                table,
                f"Trigger {shown(name)} on {shown(table)} was not made by migrate.",
                "It can change or swallow what is written. Find out who made it; then: drop trigger"
                f" {shown(name)} on {shown(table)}",
            )
        elif match is None or _trigger(match) != made:
            yield _found(
                part, table, f"Trigger {name} on {table} is not the one that migrate made.", _BACK
            )
        elif enabled not in _FIRES:
            yield _found(
                part,
                table,
                f"Trigger {name} on {table} is turned off, so the server no longer refuses what it"
                " is there to refuse.",
                "Verify what is there, and find out who did it; then: alter table"
                f" {table} enable trigger {name}",
            )
    for table, name in wanted:
        yield _found(part, table, f"Trigger {name} on {table} is missing.", _BACK)


def _trigger(match: re.Match[str]) -> _Trigger:
    return _Trigger(
        frozenset(match["events"].lower().split(" or ")), match["each"].lower(), match["function"]
    )


def _found(part: str, where: str, what: str, do: str) -> Finding:
    return Finding(RULES[part], "error", what, do, where)
