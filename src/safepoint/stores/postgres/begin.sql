-- The beginning of each part: its schema, the valid names, and which tenant's threads a login sees.
-- Everything belongs to {owner}, a role that cannot log in.

create schema {schema} authorization {owner};

set local role {owner};

-- The length is checked separately: a pattern that counts to 64 costs more than the rest of a row.
create domain {schema}.name as text collate "C" check (
  octet_length(value) <= 64 and value ~ '^[a-z0-9][a-z0-9_-]*$'
  and value !~ '^(con|prn|aux|nul|(com|lpt)[0-9])$'  -- devices on Windows
);
create domain {schema}.tenant as text collate "C" check (
  value = '' or value::{schema}.name is not null
);
create domain {schema}.sequence as bigint check (value between 1 and 9999999999);
revoke all on type {schema}.name, {schema}.tenant, {schema}.sequence from public;

-- The tenant that a login serves, or '*' for all; without a row, it serves the threads without a
-- tenant. The login is the session_user, which no setting and no role changes. Each login reads its
-- own row directly, because that takes a policy a third of the time of a function.
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
