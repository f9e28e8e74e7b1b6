-- What each part begins with: its schema, the names that there can be, and whose threads a login
-- sees. All of it belongs to {owner}, as whom nobody logs in.

create schema {schema} authorization {owner};

set local role {owner};

-- A length is looked at apart: a pattern that counts to 64 costs more than the rest of a row.
create domain {schema}.name as text collate "C" check (
  octet_length(value) <= 64 and value ~ '^[a-z0-9][a-z0-9_-]*$'
  and value !~ '^(con|prn|aux|nul|(com|lpt)[0-9])$'  -- devices on Windows
);
create domain {schema}.tenant as text collate "C" check (
  value = '' or value::{schema}.name is not null
);
create domain {schema}.sequence as bigint check (value between 1 and 9999999999);
revoke all on type {schema}.name, {schema}.tenant, {schema}.sequence from public;

-- The tenant that a login serves, or '*' for every one; without a line, the threads of no tenant.
-- It goes by the login that a session began with, which no setting and no role changes. Each login
-- reads its own line, because a policy asks for it in a third of the time that a function takes.
create table {schema}.logins (login name primary key, serves text collate "C" not null);
alter table {schema}.logins enable row level security;
create policy own on {schema}.logins for select using (login = session_user);
grant usage on schema {schema} to {readers};
grant select on {schema}.logins to {readers};

create function {schema}.refuse() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception '%', coalesce(tg_argv[0],
    format('%s is append-only: %s is refused', tg_table_name, lower(tg_op)))
    using errcode = 'SP006';
end $$;
