-- The records of a part: each directly after its predecessor in the thread, and never changed.

create domain {schema}.record as bytea check (octet_length(value) <= {largest});
revoke all on type {schema}.record from public;

create table {schema}.records (
  tenant   {schema}.tenant not null default '',
  thread   {schema}.name not null,
  sequence {schema}.sequence not null,
  record   {schema}.record not null,
  fence    bigint,  -- in the store, the token of the lease under which it was saved
  login    name not null,
  written  timestamptz not null,
  primary key (tenant, thread, sequence)
);
alter table {schema}.records alter column record set storage external;

create function {schema}.keep() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  new.login := session_user;
  new.written := clock_timestamp();
  if {begins} then
    return new;
  end if;
  perform from {schema}.records r
    where r.tenant = new.tenant and r.thread = new.thread
      and r.sequence = new.sequence - 1;
  if found then
    return new;
  end if;
  raise exception 'thread % has no record %, so % does not follow',
    new.thread, new.sequence - 1, new.sequence using errcode = 'SP004';
end $$;
create trigger keep before insert on {schema}.records
  for each row execute function {schema}.keep();

grant select on {schema}.records to {readers};
grant insert (tenant, thread, sequence, record, fence) on {schema}.records to {writers};
