-- The anchor: how far each thread had come, under a credential that no writer of the store has. Who
-- sets it back is not who discards records: no single login takes back both.

grant usage on schema safepoint_anchor
  to {anchor}, {approver}, {anchor_operator}, {operator}, {auditor};

create domain safepoint_anchor.sequence as bigint check (value between 1 and 9999999999);
create domain safepoint_anchor.digest as text collate "C" check (
  octet_length(value) = 71 and value ~ '^sha256:[0-9a-f]*$'
);
revoke all on type safepoint_anchor.sequence, safepoint_anchor.digest from public;

create table safepoint_anchor.heads (
  tenant   safepoint_anchor.tenant not null default '',
  store    safepoint_anchor.name not null,
  thread   safepoint_anchor.name not null,
  sequence safepoint_anchor.sequence not null,
  digest   safepoint_anchor.digest not null,
  seen     timestamptz not null default clock_timestamp(),  -- a login keeps it, and chooses none
  primary key (tenant, store, thread)
) with (fillfactor = 50);

-- What an operator set back, by name, after a loss that they accepted.
create table safepoint_anchor.rewinds (
  tenant   text collate "C" not null,
  store    text collate "C" not null,
  thread   text collate "C" not null,
  from_sequence bigint,
  from_digest   text,
  to_sequence   bigint,
  to_digest     text,
  login    name not null,
  rewound  timestamptz not null
);

-- A login meets the rows of its own tenant alone, and so do the functions that it calls.
alter table safepoint_anchor.heads enable row level security, force row level security;
create policy tenant on safepoint_anchor.heads
  using ((select safepoint_anchor.whose()) = any (array[tenant, '*']));
alter table safepoint_anchor.rewinds enable row level security, force row level security;
create policy tenant on safepoint_anchor.rewinds
  using ((select safepoint_anchor.whose()) = any (array[tenant, '*']));
-- The heads of the answers are moved by those who answer, and by no worker.
create policy of_workers on safepoint_anchor.heads as restrictive to {anchor}
  using (true) with check (store <> 'answers');
create policy of_approvers on safepoint_anchor.heads as restrictive to {approver}
  using (true) with check (store = 'answers');

-- A head moves up. Only `rewind`, which runs as the owner of the table, sets one back.
create function safepoint_anchor.advance() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'UPDATE' then
    new.seen := case new.seen when '-infinity' then old.seen else clock_timestamp() end;
    if (new.tenant, new.store, new.thread) = (old.tenant, old.store, old.thread)
       and new.sequence > old.sequence then
      return new;
    end if;
  end if;
  perform from pg_class where oid = tg_relid and pg_get_userbyid(relowner) = current_user;
  if found and tg_op <> 'TRUNCATE' then
    return case when tg_op = 'DELETE' then old else new end;
  end if;
  raise exception 'a head of the anchor never goes back' using errcode = 'SP007';
end $$;
create trigger advance before update or delete on safepoint_anchor.heads
  for each row execute function safepoint_anchor.advance();
create trigger advance_all before truncate on safepoint_anchor.heads
  for each statement execute function safepoint_anchor.advance();

create function safepoint_anchor.keep() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception '% is append-only: % is refused', tg_table_name, lower(tg_op)
    using errcode = 'SP006';
end $$;
create trigger refuse_change before update or delete or truncate on safepoint_anchor.rewinds
  for each statement execute function safepoint_anchor.keep();

create function safepoint_anchor.rewind(
  a_tenant text, a_store text, a_thread text, a_sequence bigint, a_digest text
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  known safepoint_anchor.heads;
begin
  select * into known from safepoint_anchor.heads h
    where h.tenant = a_tenant and h.store = a_store and h.thread = a_thread for update;
  insert into safepoint_anchor.rewinds values (a_tenant, a_store, a_thread, known.sequence,
    known.digest, a_sequence, a_digest, session_user, clock_timestamp());
  if a_sequence is null then
    delete from safepoint_anchor.heads h
      where h.tenant = a_tenant and h.store = a_store and h.thread = a_thread;
  else
    insert into safepoint_anchor.heads values (a_tenant, a_store, a_thread, a_sequence, a_digest)
      on conflict (tenant, store, thread) do update
      set sequence = excluded.sequence, digest = excluded.digest
      where (heads.sequence, heads.digest) <> (excluded.sequence, excluded.digest);
  end if;
end $$;

grant execute on function safepoint_anchor.whose()
  to {anchor}, {approver}, {anchor_operator}, {operator}, {auditor};
grant select on safepoint_anchor.version, safepoint_anchor.heads
  to {anchor}, {approver}, {anchor_operator}, {operator}, {auditor};
grant select on safepoint_anchor.rewinds to {anchor_operator}, {auditor};
grant insert (tenant, store, thread, sequence, digest), update (sequence, digest, seen)
  on safepoint_anchor.heads to {anchor}, {approver};
grant execute on function safepoint_anchor.rewind(text, text, text, bigint, text)
  to {anchor_operator};
