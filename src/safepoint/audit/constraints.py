"""Are the constraints and unique indexes that a schema relies on still those that migrate made?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from safepoint.audit.databases import SCHEMAS, Database, shown

_NAMES: Final = (
    "CHECK (((VALUE ~ '^[a-z0-9][a-z0-9_-]{0,63}$'::text)"
    " AND (VALUE !~ '^(con|prn|aux|nul|(com|lpt)[0-9])$'::text)))"
)
_BETWEEN: Final = "CHECK ((({0} >= {1}) AND ({0} <= '{2}'::bigint)))"
# As the server writes them, which is not as they are written for it.
_CONSTRAINTS: Final[dict[tuple[str, str, str], str]] = {
    ("table", "safepoint.version", "version_pkey"): "PRIMARY KEY (number)",
    ("table", "safepoint.threads", "threads_pkey"): "PRIMARY KEY (thread)",
    ("table", "safepoint.threads", "threads_check"): (
        "CHECK (((owner IS NULL) = (expires IS NULL)))"
    ),
    ("table", "safepoint.checkpoints", "checkpoints_pkey"): "PRIMARY KEY (thread, sequence)",
    ("domain", "safepoint.name", "name_check"): _NAMES,
    ("domain", "safepoint.record", "record_check"): "CHECK ((octet_length(VALUE) <= 268435456))",
    ("domain", "safepoint.sequence", "sequence_check"): _BETWEEN.format("VALUE", 1, 9999999999),
    ("domain", "safepoint.token", "token_check"): _BETWEEN.format("VALUE", 0, 999999999999999999),
    ("table", "safepoint_anchor.version", "version_pkey"): "PRIMARY KEY (number)",
    ("table", "safepoint_anchor.heads", "heads_pkey"): "PRIMARY KEY (store, thread)",
    ("table", "safepoint_anchor.heads", "heads_sequence_check"): (
        _BETWEEN.format("sequence", 1, 9999999999)
    ),
    ("table", "safepoint_anchor.heads", "heads_digest_check"): (
        "CHECK ((digest ~ '^sha256:[0-9a-f]{64}$'::text))"
    ),
    ("domain", "safepoint_anchor.name", "name_check"): _NAMES,
    ("table", "safepoint_journal.version", "version_pkey"): "PRIMARY KEY (number)",
    ("table", "safepoint_journal.records", "records_pkey"): "PRIMARY KEY (journal, sequence)",
    ("table", "safepoint_journal.records", "records_sequence_check"): (
        _BETWEEN.format("sequence", 1, 9999999999)
    ),
    ("table", "safepoint_journal.records", "records_record_check"): (
        "CHECK ((octet_length(record) <= 65536))"
    ),
    ("domain", "safepoint_journal.name", "name_check"): _NAMES,
}
_INDEXES: Final = {
    "safepoint.takings_once": (
        "CREATE UNIQUE INDEX takings_once ON safepoint.takings USING btree"
        " (thread, token, ((owner IS NULL)))"
    ),
}
# From PostgreSQL 18 on NOT NULL is one of them, which each column tells as well.
_HELD: Final = (
    "select case when contypid = 0 then 'table' else 'domain' end,"
    " case when contypid = 0 then conrelid::regclass::text else format_type(contypid, null) end,"
    " quote_ident(conname), pg_get_constraintdef(k.oid) from pg_constraint k"
    " where connamespace = to_regnamespace(%s) and contype not in ('n', 't') order by 1, 2, 3"
)
_DOMAINS: Final = (
    "select format_type(oid, null), typdefault, typnotnull from pg_type"
    " where typnamespace = to_regnamespace(%s) and typtype = 'd' order by 1"
)
# One that nobody made unique, of columns as they are, changes nothing but how fast it is.
_UNIQUE: Final = (
    "select i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid),"
    " i.indisvalid and i.indisready and i.indislive"
    " from pg_index i join pg_class c on c.oid = i.indrelid"
    " where c.relnamespace = to_regnamespace(%s) and c.relkind = 'r' and (i.indisunique"
    " or i.indexprs is not null or i.indpred is not null) and not exists"
    " (select from pg_constraint k where k.conindid = i.indexrelid) order by 1"
)


class Wrong(NamedTuple):
    """What is not as migrate made it.

    Attributes:
        where: the name of the table, the domain or the index.
        what: what is wrong with it.
        do: what mends it.
    """

    where: str
    what: str
    do: str


def held(database: Database, part: str) -> Iterator[Wrong]:
    """Yield each constraint and index that is missing, changed, or not of migrate's making."""
    yield from _constraints(database, part)
    yield from _domains(database, part)
    yield from _indexes(database, part)


def _constraints(database: Database, part: str) -> Iterator[Wrong]:
    wanted = {
        key: text for key, text in _CONSTRAINTS.items() if key[1].partition(".")[0] == SCHEMAS[part]
    }
    for kind, on, name, text in database.rows(_HELD, (SCHEMAS[part],)):
        made = wanted.pop((kind, on, name), None)
        drop = f"alter {kind} {shown(on)} drop constraint {shown(name)}"
        if made is None:
            yield Wrong(
                on,
                f"Constraint {shown(name)} on {kind} {shown(on)} was not made by migrate.",
                f"It can refuse what is right. Find out who made it; then: {drop}",
            )
        elif text != made:
            yield Wrong(
                on,
                f"Constraint {name} on {kind} {on} is not the one that migrate made.",
                "Verify what is there, and find out who did it; then, as its owner:"
                f" {drop}; alter {kind} {on} add constraint {name} {made}",
            )
    for (kind, on, name), made in wanted.items():
        yield Wrong(
            on,
            f"Constraint {name} on {kind} {on} is missing, so the server takes what it is there to"
            " refuse.",
            "Verify what is there, and find out who did it; then, as its owner:"
            f" alter {kind} {on} add constraint {name} {made}",
        )


def _domains(database: Database, part: str) -> Iterator[Wrong]:
    for name, default, not_null in database.rows(_DOMAINS, (SCHEMAS[part],)):
        for wrong, drop in ((default is not None, "default"), (not_null, "not null")):
            if wrong:
                yield Wrong(
                    name,
                    f"Domain {shown(name)} has a {drop.upper()} that migrate did not give it.",
                    f"Find out who did; then: alter domain {shown(name)} drop {drop}",
                )


def _indexes(database: Database, part: str) -> Iterator[Wrong]:
    wanted = {n: text for n, text in _INDEXES.items() if n.partition(".")[0] == SCHEMAS[part]}
    for name, text, is_whole in database.rows(_UNIQUE, (SCHEMAS[part],)):
        made = wanted.pop(name, None)
        if made is None:
            yield Wrong(
                name,
                f"Index {shown(name)} was not made by migrate.",
                "It can refuse what is right, and run what is not ours. Find out who made it; then:"
                f" drop index {shown(name)}",
            )
        elif text != made or not is_whole:
            yield Wrong(
                name,
                f"Index {name} is not the one that migrate made.",
                f"Find out who changed it; then, as its owner: drop index {name}; {made}",
            )
    for name, made in wanted.items():
        yield Wrong(
            name,
            f"Index {name} is missing, so the server takes twice what may be there once.",
            f"Find out who dropped it; then, as its owner: {made}",
        )
