-- What each part begins with: its schema, its version, the names that there can be, and whose
-- threads a login sees.

create schema {schema} authorization {owner};

set local role {owner};

create table {schema}.version (
  number integer primary key
);
insert into {schema}.version values (1);

-- A length is looked at apart: a pattern that counts to 64 costs more than the rest of a row.
create domain {schema}.name as text collate "C" check (
  octet_length(value) <= 64 and value ~ '^[a-z0-9][a-z0-9_-]*$'
  and value !~ '^(con|prn|aux|nul|(com|lpt)[0-9])$'  -- devices on Windows
);
create domain {schema}.tenant as text collate "C" check (
  value = '' or octet_length(value) <= 64 and value ~ '^[a-z0-9][a-z0-9_-]*$'
  and value !~ '^(con|prn|aux|nul|(com|lpt)[0-9])$'
);
revoke all on type {schema}.name, {schema}.tenant from public;

-- The tenant that a login serves, or '*' for every one. Nobody but the owner reads or writes this.
create table {schema}.logins (
  login  name primary key,
  tenant text collate "C" not null
);

-- Whose threads the login sees that this session began with: no setting and no role changes that,
-- and a function that runs as the owner has the same. Without a line above: those of no tenant.
create function {schema}.whose() returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce((select l.tenant from {schema}.logins l where l.login = session_user), '');
end $$;
