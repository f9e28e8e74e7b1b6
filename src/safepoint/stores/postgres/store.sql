-- The store: sealed records, appended by the worker that owns their thread, and never changed.

grant usage on schema safepoint to {writer}, {reader}, {approver}, {operator}, {auditor};

-- What a column may hold. A domain is looked at when its own column is written, and a check of a
-- table at every change of a row.
create domain safepoint.sequence as bigint check (value between 1 and 9999999999);
create domain safepoint.token as bigint check (value between 0 and 999999999999999999);
create domain safepoint.record as bytea check (octet_length(value) <= 268435456);  -- 256 MiB
create domain safepoint.label as text collate "C" check (
  value = '' or octet_length(value) <= 128 and value ~ '^[A-Za-z0-9._@/+:-]+$'
);

-- One row for each thread: how far it is, where it begins, and who may write it.
create table safepoint.threads (
  tenant  safepoint.tenant not null default '',
  thread  safepoint.name not null,
  head    bigint not null default 0,  -- 0, or the sequence of a record
  first   safepoint.sequence not null default 1,
  base    safepoint.record,
  token   safepoint.token not null default 0,
  owner   safepoint.name,
  login   name not null,
  expires timestamptz,
  primary key (tenant, thread),
  check ((owner is null) = (expires is null))
) with (fillfactor = 50);  -- a row changes with each record of its thread, in the same page

create table safepoint.checkpoints (
  tenant   text collate "C" not null default '',  -- of one of the threads: see keep
  thread   text collate "C" not null,
  sequence safepoint.sequence not null,
  record   safepoint.record not null,
  fence    bigint,
  login    name not null,
  written  timestamptz not null,
  label    safepoint.label not null default '',
  primary key (tenant, thread, sequence)
);
alter table safepoint.checkpoints alter column record set storage external;
-- A label only says where to look. What has none is not in it, and costs nothing.
create index checkpoints_label on safepoint.checkpoints (tenant, thread, label, sequence)
  where label <> '';

-- What an operator took out of a thread because it does not verify. It stays as it was.
create table safepoint.discarded (
  tenant   text collate "C" not null,
  thread   text collate "C" not null,
  sequence bigint not null,
  record   bytea not null,
  fence    bigint,
  login    name not null,
  written  timestamptz not null,
  label    text collate "C" not null,
  discarded_by name not null,
  discarded_at timestamptz not null
);
alter table safepoint.discarded alter column record set storage external;
create index discarded_place on safepoint.discarded (tenant, thread, sequence);

-- Who took which thread, and who pruned it. Without an owner: an operator broke the lease.
create table safepoint.takings (
  tenant text collate "C" not null,
  thread text collate "C" not null,
  token  bigint not null,
  owner  text collate "C",
  login  name not null,
  taken  timestamptz not null
);
create unique index takings_once on safepoint.takings (tenant, thread, token, (owner is null));
create table safepoint.prunings (
  tenant  text collate "C" not null,
  thread  text collate "C" not null,
  first   bigint not null,
  removed bigint not null,
  login   name not null,
  pruned  timestamptz not null
);

-- A login meets the rows of its own tenant alone, and so do the functions that it calls.
alter table safepoint.threads enable row level security, force row level security;
create policy tenant on safepoint.threads
  using ((select safepoint.whose()) = any (array[tenant, '*']));
alter table safepoint.checkpoints enable row level security, force row level security;
create policy tenant on safepoint.checkpoints
  using ((select safepoint.whose()) = any (array[tenant, '*']));
alter table safepoint.discarded enable row level security, force row level security;
create policy tenant on safepoint.discarded
  using ((select safepoint.whose()) = any (array[tenant, '*']));
alter table safepoint.takings enable row level security, force row level security;
create policy tenant on safepoint.takings
  using ((select safepoint.whose()) = any (array[tenant, '*']));
alter table safepoint.prunings enable row level security, force row level security;
create policy tenant on safepoint.prunings
  using ((select safepoint.whose()) = any (array[tenant, '*']));

-- A record comes in if whoever brings it owns the thread, and it is the next one. A thread that the
-- server has never seen may begin anywhere, as a copy of a pruned one does.
create function safepoint.keep() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  held safepoint.threads;
begin
  new.login := session_user;
  new.written := clock_timestamp();
  -- The condition is looked at again under the row's lock, so no lease changes hands in between.
  update safepoint.threads set head = new.sequence
    where tenant = new.tenant and thread = new.thread and login = session_user
      and (head = new.sequence - 1 and head > 0 or head = 0 and new.sequence = first)
      and new.sequence >= first
      and new.fence is not distinct from case when owner is not null then token end;
  if found then
    return new;
  end if;
  insert into safepoint.threads (tenant, thread, login, head)
    select new.tenant, new.thread, session_user, new.sequence where new.fence is null
    on conflict do nothing;
  if found then
    return new;
  end if;
  select * into held from safepoint.threads where tenant = new.tenant and thread = new.thread;
  if not found or new.fence is distinct from (case when held.owner is not null
                                                  then held.token end) then
    raise exception 'thread % is owned by % with token %, and this record carries token %',
      new.thread, coalesce(held.owner, 'nobody'), held.token, coalesce(new.fence::text, 'none')
      using errcode = 'SP001';
  elsif held.login <> session_user then
    raise exception 'thread % belongs to login %, and % has not acquired it',
      new.thread, held.login, session_user using errcode = 'SP002';
  elsif new.sequence <= held.head or new.sequence < held.first then
    raise exception 'thread % is at % already', new.thread, held.head using errcode = 'SP003';
  end if;
  raise exception 'thread % is at %, and % does not follow', new.thread, held.head, new.sequence
    using errcode = 'SP004';
end $$;
create trigger keep before insert on safepoint.checkpoints
  for each row execute function safepoint.keep();

-- Nothing is changed or removed, by anybody, but what lies before the beginning of its thread, and
-- what was discarded: the same row is kept there, until no more than one record is left of a thread.
create function safepoint.refuse() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if tg_table_name = 'checkpoints' and tg_op = 'DELETE' then
    perform from safepoint.threads
      where tenant = old.tenant and thread = old.thread and old.sequence < first;
    if found then
      return old;
    end if;
    perform from safepoint.discarded d
      where d.tenant = old.tenant and d.thread = old.thread and d.sequence = old.sequence
        and (d.record, d.fence, d.login, d.written, d.label)
          is not distinct from (old.record, old.fence, old.login, old.written, old.label);
    if found then
      return old;
    end if;
  elsif tg_table_name = 'discarded' and tg_op = 'DELETE' then
    perform from safepoint.threads
      where tenant = old.tenant and thread = old.thread and base is not null and first = head;
    if found then
      return old;
    end if;
  end if;
  raise exception '% is append-only: % is refused', tg_table_name, lower(tg_op)
    using errcode = 'SP006';
end $$;
create trigger refuse_change before update or delete on safepoint.checkpoints
  for each row execute function safepoint.refuse();
create trigger refuse_truncate before truncate on safepoint.checkpoints
  for each statement execute function safepoint.refuse();
create trigger refuse_change before update or delete on safepoint.discarded
  for each row execute function safepoint.refuse();
create trigger refuse_truncate before truncate on safepoint.discarded
  for each statement execute function safepoint.refuse();
create trigger refuse_change before update or delete or truncate on safepoint.takings
  for each statement execute function safepoint.refuse();
create trigger refuse_change before update or delete or truncate on safepoint.prunings
  for each statement execute function safepoint.refuse();

-- Not even the owner's own functions let a thread go back, unless what it loses was discarded.
create function safepoint.advance() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'UPDATE' and (new.tenant, new.thread) = (old.tenant, old.thread)
     and new.first >= old.first and new.token >= old.token then
    if new.head >= old.head then
      return new;
    end if;
    perform from safepoint.discarded d
      where d.tenant = old.tenant and d.thread = old.thread and d.sequence = old.head
      and not exists (select from safepoint.checkpoints c
                      where c.tenant = old.tenant and c.thread = old.thread
                        and c.sequence > new.head);
    if found then
      return new;
    end if;
  end if;
  raise exception 'thread % would go back', old.thread using errcode = 'SP006';
end $$;
create trigger advance before update or delete on safepoint.threads
  for each row execute function safepoint.advance();
create trigger refuse_truncate before truncate on safepoint.threads
  for each statement execute function safepoint.refuse();

-- A lease that ends in more than a day was made by nobody who follows the rules, and counts for
-- nothing.
create function safepoint.is_live(a_expires timestamptz) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  return clock_timestamp() < a_expires and a_expires <= clock_timestamp() + interval '25 hours';
end $$;

-- Each of the three changes its row in one statement, and locks no row of which it is not sure: who
-- leaves the transaction open blocks nobody else's thread. What is null matches no row, or breaks
-- the rule that an owner and an end come together.
create function safepoint.acquire(
  a_tenant text, a_thread text, a_owner text, a_seconds double precision,
  out token bigint, out expires timestamptz
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  held safepoint.threads;
begin
  if not a_seconds between 0.001 and 86400 then
    raise exception 'a lease lasts from 0.001 to 86400 seconds' using errcode = '22023';
  end if;
  insert into safepoint.threads as t (tenant, thread, login, token, owner, expires)
    values (a_tenant, a_thread, session_user, 1, a_owner,
            clock_timestamp() + make_interval(secs => a_seconds))
    on conflict (tenant, thread) do update
      set login = excluded.login, token = t.token + 1, owner = excluded.owner,
          expires = excluded.expires
      where t.owner is null or not safepoint.is_live(t.expires)
        or (t.owner, t.login) = (excluded.owner, excluded.login)
    returning t.token, t.expires into acquire.token, acquire.expires;
  if not found then
    select * into held from safepoint.threads t where t.tenant = a_tenant and t.thread = a_thread;
    raise exception 'thread % is owned by % (login %) until %',
      a_thread, held.owner, held.login, held.expires using errcode = 'SP001';
  end if;
  insert into safepoint.takings
    values (a_tenant, a_thread, token, a_owner, session_user, clock_timestamp());
end $$;

create function safepoint.renew(
  a_tenant text, a_thread text, a_owner text, a_token bigint, a_seconds double precision,
  out expires timestamptz
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not a_seconds between 0.001 and 86400 then
    raise exception 'a lease lasts from 0.001 to 86400 seconds' using errcode = '22023';
  end if;
  update safepoint.threads t
    set expires = clock_timestamp() + make_interval(secs => a_seconds)
    where t.tenant = a_tenant and t.thread = a_thread and t.owner = a_owner and t.token = a_token
      and t.login = session_user
    returning t.expires into renew.expires;
  if not found then
    raise exception '% does not own thread % with token %', a_owner, a_thread, a_token
      using errcode = 'SP001';
  end if;
end $$;

create function safepoint.release(
  a_tenant text, a_thread text, a_owner text, a_token bigint
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update safepoint.threads t set owner = null, expires = null
    where t.tenant = a_tenant and t.thread = a_thread and t.owner = a_owner and t.token = a_token
      and t.login = session_user;
  if not found then  -- once more is no harm
    perform from safepoint.threads t
      where t.tenant = a_tenant and t.thread = a_thread and t.owner is null and t.token = a_token;
    if not found then
      raise exception '% does not own thread % with token %', a_owner, a_thread, a_token
        using errcode = 'SP001';
    end if;
  end if;
end $$;

-- Ends a lease that somebody holds who should not. Whoever wrote the thread last has to acquire it
-- from then on, like everybody else.
create function safepoint.break_lease(a_tenant text, a_thread text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  broken bigint;
begin
  update safepoint.threads t set owner = null, expires = null, login = current_user
    where t.tenant = a_tenant and t.thread = a_thread and t.owner is not null
    returning t.token into broken;
  if found then
    insert into safepoint.takings
      values (a_tenant, a_thread, broken, null, session_user, clock_timestamp());
    return true;
  end if;
  perform from safepoint.threads t where t.tenant = a_tenant and t.thread = a_thread;
  if not found then
    raise exception 'there is no thread %', a_thread using errcode = 'SP005';
  end if;
  return false;
end $$;

-- Takes what comes after `last` out of a thread, because it does not verify, and keeps it apart.
create function safepoint.discard(a_tenant text, a_thread text, a_last bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  held safepoint.threads;
  moved bigint;
begin
  select * into held from safepoint.threads t
    where t.tenant = a_tenant and t.thread = a_thread for update;
  if found and held.owner is not null and held.login <> session_user
     and safepoint.is_live(held.expires) then
    raise exception 'thread % is owned by % (login %) until %',
      a_thread, held.owner, held.login, held.expires using errcode = 'SP001';
  end if;
  perform from safepoint.checkpoints c
    where c.tenant = a_tenant and c.thread = a_thread and c.sequence = a_last;
  -- One that was never pruned may lose all that it has: then it is as new.
  if not found and (held.thread is null or held.base is not null or a_last is distinct from 0) then
    raise exception 'thread % has no record %', a_thread, a_last using errcode = 'SP005';
  end if;
  insert into safepoint.discarded
    select c.tenant, c.thread, c.sequence, c.record, c.fence, c.login, c.written, c.label,
           session_user, clock_timestamp()
    from safepoint.checkpoints c
    where c.tenant = a_tenant and c.thread = a_thread and c.sequence > a_last;
  get diagnostics moved = row_count;
  delete from safepoint.checkpoints c
    where c.tenant = a_tenant and c.thread = a_thread and c.sequence > a_last;
  update safepoint.threads t set head = a_last
    where t.tenant = a_tenant and t.thread = a_thread and t.head > a_last;
  return moved;
end $$;

-- The way in which records go for good: what is before `first`, once a base stands in for it.
create function safepoint.prune(
  a_tenant text, a_thread text, a_first bigint, a_base bytea
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  held safepoint.threads;
  gone bigint;
begin
  if a_base is null then
    raise exception 'a base is bytes, and this is null' using errcode = '22004';
  end if;
  select * into held from safepoint.threads t
    where t.tenant = a_tenant and t.thread = a_thread for update;
  if found and a_first < held.first then
    return 0;
  end if;
  perform from safepoint.checkpoints c
    where c.tenant = a_tenant and c.thread = a_thread and c.sequence = a_first;
  if not found then
    raise exception 'thread % has no record %', a_thread, a_first using errcode = 'SP005';
  end if;
  update safepoint.threads t set first = a_first, base = a_base
    where t.tenant = a_tenant and t.thread = a_thread;
  delete from safepoint.checkpoints c
    where c.tenant = a_tenant and c.thread = a_thread and c.sequence < a_first;
  get diagnostics gone = row_count;
  insert into safepoint.prunings
    values (a_tenant, a_thread, a_first, gone, session_user, clock_timestamp());
  return gone;
end $$;

-- And of a thread that was erased, what an operator had taken out of it before.
create function safepoint.purge(a_tenant text, a_thread text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  gone bigint;
begin
  delete from safepoint.discarded d where d.tenant = a_tenant and d.thread = a_thread;
  get diagnostics gone = row_count;
  insert into safepoint.prunings
    select t.tenant, t.thread, t.first, gone, session_user, clock_timestamp()
    from safepoint.threads t where t.tenant = a_tenant and t.thread = a_thread and gone > 0;
  return gone;
end $$;

revoke all on type safepoint.sequence, safepoint.token, safepoint.record, safepoint.label
  from public;
grant execute on function safepoint.whose()
  to {writer}, {reader}, {approver}, {operator}, {auditor};
grant select on safepoint.version, safepoint.threads, safepoint.checkpoints
  to {writer}, {reader}, {approver}, {operator}, {auditor};
grant insert (tenant, thread, sequence, record, fence, label) on safepoint.checkpoints
  to {writer}, {operator};
grant select on safepoint.takings, safepoint.prunings, safepoint.discarded
  to {auditor}, {operator};
grant execute on function
    safepoint.acquire(text, text, text, double precision),
    safepoint.renew(text, text, text, bigint, double precision),
    safepoint.release(text, text, text, bigint)
  to {writer}, {operator};
grant execute on function
    safepoint.break_lease(text, text),
    safepoint.discard(text, text, bigint),
    safepoint.prune(text, text, bigint, bytea),
    safepoint.purge(text, text)
  to {operator};
