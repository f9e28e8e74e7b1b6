"""What tells one database from another: rows, rules, rights and roles, as a superuser sees them."""

from __future__ import annotations

from typing import Final

_HASH: Final = "select md5(coalesce(string_agg(x::text, '|' order by x::text), '')) from {} x"
_TABLES: Final = (
    "safepoint.checkpoints",
    "safepoint.threads",
    "safepoint.discarded",
    "safepoint.takings",
    "safepoint.prunings",
    "safepoint_anchor.heads",
    "safepoint_anchor.rewinds",
    "safepoint_journal.records",
    "pg_catalog.pg_auth_members",
    "pg_catalog.pg_authid",
    "pg_catalog.pg_db_role_setting",
    "pg_catalog.pg_default_acl",
    "pg_catalog.pg_largeobject_metadata",
)
_RULES: Final = """
select n.oid, n.nspname, n.nspowner, n.nspacl from ours n;
select c.oid, c.relname, c.relowner, c.relacl, c.relhasrules, c.relrowsecurity
  from pg_class c join ours n on n.oid = c.relnamespace where c.relkind <> 'i';
select a.attrelid, a.attname, a.atttypid, a.attacl
  from pg_attribute a join pg_class c on c.oid = a.attrelid join ours n on n.oid = c.relnamespace;
select p.oid, p.proname, p.proowner, p.proacl, p.prosrc, p.proconfig
  from pg_proc p join ours n on n.oid = p.pronamespace;
select t.tgrelid, t.tgname, t.tgenabled, t.tgfoid
  from pg_trigger t join pg_class c on c.oid = t.tgrelid join ours n on n.oid = c.relnamespace;
select o.oid, o.oprname, o.oprcode from pg_operator o join ours n on n.oid = o.oprnamespace;
select p.polrelid, p.polname from pg_policy p
"""
_OURS: Final = "with ours as (select * from pg_namespace where nspname !~ '^(pg_|information_)') "

FINGERPRINT: Final = (
    *(_HASH.format(table) for table in _TABLES),
    *(_OURS + _HASH.format(f"({rule})") for rule in _RULES.split(";")),
)
"""Queries of one value each. They leave out what belongs to a session and ends with it."""
