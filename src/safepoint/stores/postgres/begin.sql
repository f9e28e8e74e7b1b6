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
  value = '' or octet_length(value) <= 64 and value ~ '^[a-z0-9][a-z0-9_-]*$'
  and value !~ '^(con|prn|aux|nul|(com|lpt)[0-9])$'
);
create domain {schema}.sequence as bigint check (value between 1 and 9999999999);

-- The tenant that a login serves, or '*' for every one. Nobody but the owner reads or writes this.
create table {schema}.logins (
  login  name primary key,
  serves text collate "C" not null
);

-- Whose threads the login sees that this session began with: no setting and no role changes that,
-- and a function that runs as the owner has the same. Without a line above: those of no tenant.
create function {schema}.whose() returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce((select l.serves from {schema}.logins l where l.login = session_user), '');
end $$;
grant usage on schema {schema} to {readers};
grant execute on function {schema}.whose() to {readers};

create function {schema}.refuse() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception '%', coalesce(tg_argv[0],
    format('%s is append-only: %s is refused', tg_table_name, lower(tg_op)))
    using errcode = 'SP006';
end $$;
