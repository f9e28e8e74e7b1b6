-- What each part begins with: its schema, its version, and the names that there can be.

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
