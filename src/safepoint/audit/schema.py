"""Is a schema as migrate made it? Its fingerprint is compared with the one that our SQL gives."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Final

from safepoint.audit.databases import SCHEMAS, Database, shown
from safepoint.audit.finding import Finding

_RULES: Final = {"store": "SP13", "anchor": "SP15", "journal": "SP20"}
_RELATIONS: Final = {"r": "Table", "v": "View", "m": "Materialized view", "S": "Sequence"}
_ON: Final = ("constraint", "trigger", "rule", "policy")
# One that nobody made unique, of columns as they are, changes nothing but how fast it is.
_PLAIN: Final = re.compile(r"CREATE INDEX \S+ ON [\w.]+ USING btree \([\w, ]+\)")
_MORE: Final = """
select 'Table', inhrelid::regclass::text, 'inherits from ' || inhparent::regclass::text ||
  ': its rows are taken for those of the other, and no trigger of the other looks at them'
from pg_inherits join pg_class c on c.oid = inhrelid join pg_class p on p.oid = inhparent
where to_regnamespace(%(schema)s) in (c.relnamespace, p.relnamespace)
  and c.relkind in ('r', 'p', 'f')
union all select 'Domain', format_type(oid, null), 'has a default, or is not null, and migrate gave'
  ' it neither' from pg_type
where typnamespace = to_regnamespace(%(schema)s) and typtype = 'd'
  and (typdefault is not null or typnotnull)
union all select 'Table', oid::regclass::text, 'has row-level security forced upon it, so the'
  ' server can leave out rows without a word' from pg_class
where relnamespace = to_regnamespace(%(schema)s) and relforcerowsecurity
union all select 'Index', indexrelid::regclass::text, 'is not whole, so the server does not rely on'
  ' it' from pg_index i join pg_class c on c.oid = i.indrelid
where c.relnamespace = to_regnamespace(%(schema)s)
  and not (i.indisvalid and i.indisready and i.indislive)
order by 1, 2, 3
"""
_BACK: Final = (
    "Verify what is there, and find out who did it. How migrate makes it, this prints: safepoint"
    " postgres sql"
)
_DROP: Final = "Find out who made it, and drop it."


@cache
def fingerprint_made() -> dict[str, str]:
    """Return the fingerprint of what migrate makes; of the body of a function, the digest."""
    text = files("safepoint.audit").joinpath("schema.json").read_text(encoding="utf-8")
    made: dict[str, str] = json.loads(text)
    return made


def digested(fingerprint: dict[str, str]) -> dict[str, str]:
    """Return a fingerprint with a digest in the place of each body."""
    return {
        key: hashlib.sha256(text.encode()).hexdigest() if key.startswith("body ") else text
        for key, text in fingerprint.items()
    }


def altered(database: Database, part: str) -> Iterator[Finding]:
    """Compare a part of the schema with what migrate makes. Owners and grants are for others.

    Yields:
        An error for each function, trigger, table, column, constraint and index that is missing,
        changed, or not of migrate's making, and for each rule, policy and child of a table.
    """
    from safepoint.postgres.schema import fingerprint

    schema = SCHEMAS[part]
    found = _compared(digested(fingerprint(database.connection, parts=(part,))))
    made = _compared(
        {key: text for key, text in fingerprint_made().items() if _schema(key) == schema}
    )
    whole = {
        key.removeprefix("table ") for key in found.keys() ^ made.keys() if key.startswith("table ")
    }
    for key in sorted(found.keys() | made.keys()):
        if found.get(key) == made.get(key) or _relation(key) in whole:
            continue
        if key not in found:
            what, do = "is missing", _BACK
        elif key not in made:
            what, do = "was not made by migrate", _DROP
        else:
            what, do = "is not as migrate made it", _BACK
        named = _named(key, found.get(key) or made[key])
        yield Finding(_RULES[part], "error", f"{named} {what}.", do, key)
    for kind, name, what in database.rows(_MORE, {"schema": schema}):
        yield Finding(_RULES[part], "error", f"{kind} {shown(name)} {what}.", _BACK, name)


def _compared(fingerprint: dict[str, str]) -> dict[str, str]:
    return {
        key: text
        for key, text in fingerprint.items()
        if not text.startswith("owner ")
        and not key.startswith("grant ")
        and not (key.startswith("index ") and _PLAIN.fullmatch(text))
    }


def _schema(key: str) -> str:
    return key.split(" ")[1].partition(".")[0]


def _relation(key: str) -> str | None:
    """Return the table that a thing is a part of."""
    kind, _, name = key.partition(" ")
    if kind == "column":
        return name.rpartition(".")[0]
    return name.partition(" ")[0] if kind in _ON else None


def _named(key: str, text: str) -> str:
    kind, _, name = key.partition(" ")
    if kind == "column":
        table, _, column = name.rpartition(".")
        return f"Column {shown(column)} of table {shown(table)}"
    if kind in _ON:
        on, _, name = name.partition(" ")
        return f"{kind.capitalize()} {shown(name)} on {shown(on)}"
    if kind == "table":
        return f"{_RELATIONS.get(text[:1], 'Relation')} {shown(name)}"
    return f"{'Function' if kind == 'body' else kind.capitalize()} {shown(name)}"
