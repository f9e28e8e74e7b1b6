-- The journal: sealed records in chains, each after the one before it, and never changed.

grant usage on schema safepoint_journal to {journal}, {auditor};

create domain safepoint_journal.sequence as bigint check (value between 1 and 9999999999);
create domain safepoint_journal.record as bytea check (octet_length(value) <= 65536);
revoke all on type safepoint_journal.sequence, safepoint_journal.record from public;

create table safepoint_journal.records (
  tenant   safepoint_journal.tenant not null default '',
  journal  safepoint_journal.name not null,
  chain    safepoint_journal.name not null,
  sequence safepoint_journal.sequence not null,
  record   safepoint_journal.record not null,
  login    name not null,
  written  timestamptz not null,
  primary key (tenant, journal, chain, sequence)
);

-- A login meets the rows of its own tenant alone, and so do the functions that it calls.
alter table safepoint_journal.records enable row level security, force row level security;
create policy tenant on safepoint_journal.records
  using ((select safepoint_journal.whose()) = any (array[tenant, '*']));

create function safepoint_journal.keep() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'INSERT' then
    new.login := session_user;
    new.written := clock_timestamp();
    perform from safepoint_journal.records r
      where r.tenant = new.tenant and r.journal = new.journal and r.chain = new.chain
        and r.sequence = new.sequence - 1;
    if found or new.sequence = 1 then
      return new;
    end if;
    raise exception 'chain % of journal % has no record %, so % does not follow',
      new.chain, new.journal, new.sequence - 1, new.sequence using errcode = 'SP004';
  end if;
  raise exception '% is append-only: % is refused', tg_table_name, lower(tg_op)
    using errcode = 'SP006';
end $$;
create trigger keep before insert or update or delete on safepoint_journal.records
  for each row execute function safepoint_journal.keep();
create trigger keep_all before truncate on safepoint_journal.records
  for each statement execute function safepoint_journal.keep();

grant execute on function safepoint_journal.whose() to {journal}, {auditor};
grant select on safepoint_journal.version, safepoint_journal.records to {journal}, {auditor};
grant insert (tenant, journal, chain, sequence, record) on safepoint_journal.records to {journal};
