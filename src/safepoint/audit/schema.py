"""Are the tables of a schema, and what they may hold, still as migrate made them?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, NamedTuple

from safepoint.audit.constraints import Wrong, held
from safepoint.audit.databases import SCHEMAS, Database, shown
from safepoint.audit.finding import Finding
from safepoint.audit.protections import RULES

_TABLE: Final = re.compile(r"^create table (?P<name>[a-z_.]+) \((?P<body>.*?)^\)", re.M | re.S)
_COLUMN: Final = re.compile(
    r'^  (?!check|primary)(?P<name>\w+) +(?P<type>[a-z_.]+(?: collate "C")?)(?P<rest>[^\n]*)', re.M
)
_SQL_TYPES: Final = {"timestamptz": "timestamp with time zone"}
_OBJECTS: Final = (
    "select case relkind when 'r' then 'table' when 'p' then 'table' when 'v' then 'view'"
    " when 'm' then 'materialized view' when 'S' then 'sequence' when 'f' then 'foreign table'"
    " else 'type' end, c.oid::regclass::text, relkind = 'r', relpersistence = 'p', relrowsecurity,"
    " relforcerowsecurity from pg_class c where relnamespace = to_regnamespace(%s)"
    " and relkind not in ('i', 'I', 't') order by 2"
)
_COLUMNS: Final = (
    "select a.attrelid::regclass::text, quote_ident(a.attname), format_type(a.atttypid,"
    " a.atttypmod) || coalesce((select ' collate ' || quote_ident(l.collname) from pg_collation l"
    " where l.oid = a.attcollation and l.oid <> t.typcollation), ''), a.attnotnull,"
    " pg_get_expr(d.adbin, d.adrelid) from pg_attribute a"
    " join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid"
    " left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum"
    " where c.relnamespace = to_regnamespace(%s) and c.relkind = 'r' and a.attnum > 0"
    " and not a.attisdropped order by 1, a.attnum"
)
_POLICIES: Final = (
    "select polrelid::regclass::text, quote_ident(polname) from pg_policy p join pg_class c"
    " on c.oid = polrelid where relnamespace = to_regnamespace(%s) order by 1, 2"
)
_CHILDREN: Final = (
    "select inhrelid::regclass::text, inhparent::regclass::text from pg_inherits"
    " join pg_class c on c.oid = inhrelid join pg_class p on p.oid = inhparent"
    " where to_regnamespace(%s) in (c.relnamespace, p.relnamespace)"
    " and c.relkind in ('r', 'p', 'f') order by 1, 2"
)
_LOST: Final = (
    "Restore the database from a backup, and find out who did it. How migrate makes it, this"
    " prints: safepoint postgres sql"
)


class _Column(NamedTuple):
    type: str
    not_null: bool
    default: str | None


def altered(database: Database, part: str) -> Iterator[Finding]:
    """Compare the tables and domains of a part with those that migrate makes.

    Yields:
        An error for each table, column, constraint and unique index that is missing, changed or
        not of migrate's making, and for each policy and child of a table.
    """
    text = files("safepoint.postgres").joinpath(f"{part}.sql").read_text(encoding="utf-8")
    tables = {each["name"]: _columns(each["body"]) for each in _TABLE.finditer(text)}
    for found in (
        _objects(database, part, set(tables)),
        _fields(database, part, tables),
        held(database, part),
        _rows(database, part),
    ):
        for where, what, do in found:
            yield Finding(RULES[part], "error", what, do, where)


def _objects(database: Database, part: str, wanted: set[str]) -> Iterator[Wrong]:
    for kind, name, plain, logged, secured, forced in database.rows(_OBJECTS, (SCHEMAS[part],)):
        is_ours = name in wanted and plain
        if not is_ours:
            yield Wrong(
                name,
                f"{kind.capitalize()} {shown(name)} was not made by migrate.",
                f"Find out who made it; then: drop {kind} {shown(name)}",
            )
            continue
        wanted.discard(name)
        if not logged:
            yield Wrong(
                name,
                f"Table {name} is unlogged: a crash of the server empties it.",
                f"Run, as its owner: alter table {name} set logged",
            )
        if secured or forced:
            off = {"disable row level security": secured, "no force row level security": forced}
            yield Wrong(
                name,
                f"Row-level security is on for table {name}, so the server can leave out rows"
                " without a word.",
                f"migrate turns it on for none. Run, as its owner: alter table {name}"
                f" {', '.join(each for each in off if off[each])}",
            )
    for name in sorted(wanted):
        yield Wrong(name, f"Table {name} is missing.", _LOST)


def _fields(
    database: Database, part: str, tables: dict[str, dict[str, _Column]]
) -> Iterator[Wrong]:
    seen: dict[str, set[str]] = {}
    for table, name, *column in database.rows(_COLUMNS, (SCHEMAS[part],)):
        made, is_now = tables.get(table, {}).get(name), _Column(*column)
        seen.setdefault(table, set()).add(name)
        if table in tables and made is None:
            yield Wrong(
                table,
                f"Column {shown(name)} of table {table} was not made by migrate.",
                f"Find out who made it; then: alter table {table} drop column {shown(name)}",
            )
        elif made is not None and made != is_now:
            yield Wrong(
                table,
                f"Column {name} of table {table} is not as migrate made it.",
                "Find out who changed it; then, as its owner: alter table"
                f" {table} {', '.join(_mended(name, is_now, made))}",
            )
    for table, names in seen.items():
        for name in tables.get(table, {}):
            if name not in names:
                yield Wrong(table, f"Column {name} of table {table} is missing.", _LOST)


def _mended(name: str, is_now: _Column, made: _Column) -> Iterator[str]:
    if is_now.type != made.type:
        yield f"alter column {name} type {made.type}"
    if is_now.not_null != made.not_null:
        yield f"alter column {name} {'set' if made.not_null else 'drop'} not null"
    if is_now.default != made.default:
        to = "drop default" if made.default is None else f"set default {made.default}"
        yield f"alter column {name} {to}"


def _rows(database: Database, part: str) -> Iterator[Wrong]:
    for table, name in database.rows(_POLICIES, (SCHEMAS[part],)):
        yield Wrong(
            table,
            f"Policy {shown(name)} decides which rows of {shown(table)} are shown to whom.",
            f"migrate made none. Find out who did; then: drop policy {shown(name)} on"
            f" {shown(table)}",
        )
    for child, parent in database.rows(_CHILDREN, (SCHEMAS[part],)):
        yield Wrong(
            parent,
            f"Table {shown(child)} inherits from {shown(parent)}: its rows are taken for those of"
            " the other, and no trigger of the other looks at them.",
            f"Find out who made it; then: alter table {shown(child)} no inherit {shown(parent)}",
        )


def _columns(body: str) -> dict[str, _Column]:
    """Return the columns of a table, as they are written between its parentheses."""
    columns = {}
    for each in _COLUMN.finditer(body):
        rest = each["rest"].partition("--")[0]
        default = re.search(r" default (\w+)", rest)
        columns[each["name"]] = _Column(
            _SQL_TYPES.get(each["type"], each["type"]),
            " not null" in rest or " primary key" in rest,
            default and default[1],
        )
    return columns
