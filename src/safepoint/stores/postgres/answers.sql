-- The answers: signed, in a chain of each approver's own, and never changed. Workers read them.

grant usage on schema safepoint_answers
  to {approver}, {writer}, {reader}, {operator}, {auditor};

create domain safepoint_answers.sequence as bigint check (value between 1 and 9999999999);
create domain safepoint_answers.record as bytea check (octet_length(value) <= 131072);
revoke all on type safepoint_answers.sequence, safepoint_answers.record from public;

create table safepoint_answers.records (
  tenant   safepoint_answers.tenant not null default '',
  chain    safepoint_answers.name not null,
  sequence safepoint_answers.sequence not null,
  record   safepoint_answers.record not null,
  login    name not null,
  written  timestamptz not null,
  primary key (tenant, chain, sequence)
);

-- A login meets the rows of its own tenant alone, and so do the functions that it calls.
alter table safepoint_answers.records enable row level security, force row level security;
create policy tenant on safepoint_answers.records
  using ((select safepoint_answers.whose()) = any (array[tenant, '*']));

create function safepoint_answers.keep() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'INSERT' then
    new.login := session_user;
    new.written := clock_timestamp();
    perform from safepoint_answers.records r
      where r.tenant = new.tenant and r.chain = new.chain and r.sequence = new.sequence - 1;
    if found or new.sequence = 1 then
      return new;
    end if;
    raise exception 'chain % of the answers has no record %, so % does not follow',
      new.chain, new.sequence - 1, new.sequence using errcode = 'SP004';
  end if;
  raise exception '% is append-only: % is refused', tg_table_name, lower(tg_op)
    using errcode = 'SP006';
end $$;
create trigger keep before insert or update or delete on safepoint_answers.records
  for each row execute function safepoint_answers.keep();
create trigger keep_all before truncate on safepoint_answers.records
  for each statement execute function safepoint_answers.keep();

grant execute on function safepoint_answers.whose()
  to {approver}, {writer}, {reader}, {operator}, {auditor};
grant select on safepoint_answers.version, safepoint_answers.records
  to {approver}, {writer}, {reader}, {operator}, {auditor};
grant insert (tenant, chain, sequence, record) on safepoint_answers.records to {approver};
