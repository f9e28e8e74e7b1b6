-- The store: a record comes in if whoever brings it owns its thread.

alter table safepoint.records add column fence bigint, add check (scope = '');

create domain safepoint.token as bigint check (value between 0 and 999999999999999999);

-- One row for each thread: where it begins, and who may write it.
create table safepoint.threads (
  tenant  safepoint.tenant not null default '',
  thread  safepoint.name not null,
  first   safepoint.sequence not null default 1,
  base    safepoint.record,
  token   safepoint.token not null default 0,
  owner   safepoint.name,
  login   name not null,
  expires timestamptz,
  primary key (tenant, thread),
  check ((owner is null) = (expires is null))
) with (fillfactor = 50);

-- What an operator took out of a thread because it does not verify. It stays as it was.
create table safepoint.discarded (
  like safepoint.records including storage,
  discarded_by name not null,
  discarded_at timestamptz not null
);
create index discarded_place on safepoint.discarded (tenant, thread, sequence);

-- Who took which thread, broke its lease, pruned it, discarded of it. `number` is the token, or the
-- first or last record that stayed, and `removed` how many did not.
create table safepoint.actions (
  tenant  text collate "C" not null,
  thread  text collate "C" not null,
  action  text collate "C" not null,
  number  bigint not null,
  removed bigint not null,
  owner   text collate "C",
  login   name not null default session_user,
  done    timestamptz not null default clock_timestamp()
);

-- Tell whether a record begins its thread, if whoever brings it owns that. A thread that the server
-- has never seen may begin anywhere, as a copy of a pruned one does. Until the record is kept, the
-- lock on the row lets no lease change hands.
create function safepoint.begins(new safepoint.records) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  held safepoint.threads;
begin
  select * into held from safepoint.threads t
    where t.tenant = new.tenant and t.thread = new.thread for share;
  if not found and new.fence is null then
    insert into safepoint.threads (tenant, thread, login, first)
      values (new.tenant, new.thread, session_user, new.sequence) on conflict do nothing;
    select * into held from safepoint.threads t
      where t.tenant = new.tenant and t.thread = new.thread for share;
  end if;
  if new.fence is distinct from (case when held.owner is not null then held.token end) then
    raise exception 'thread % is owned by % with token %, and this record carries token %',
      new.thread, coalesce(held.owner, 'nobody'), held.token, coalesce(new.fence::text, 'none')
      using errcode = 'SP001';
  elsif held.login <> session_user then
    raise exception 'thread % belongs to login %, and % has not acquired it',
      new.thread, held.login, session_user using errcode = 'SP002';
  elsif new.sequence < held.first then
    raise exception 'thread % begins at % by now', new.thread, held.first using errcode = 'SP003';
  end if;
  return new.sequence = held.first;
end $$;

-- A lease that ends in more than a day was made by nobody who follows the rules, and counts for
-- nothing.
create function safepoint.is_live(a_expires timestamptz) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  return clock_timestamp() < a_expires and a_expires <= clock_timestamp() + interval '25 hours';
end $$;

create function safepoint.until(a_seconds double precision) returns timestamptz
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if a_seconds between 0.001 and 86400 then
    return clock_timestamp() + make_interval(secs => a_seconds);
  end if;
  raise exception 'a lease lasts from 0.001 to 86400 seconds' using errcode = '22023';
end $$;

-- Each of the three changes its row in one statement, and locks no row of which it is not sure: who
-- leaves the transaction open blocks nobody else's thread. What is null matches no row, or breaks
-- the rule that an owner and an end come together.
create function safepoint.acquire(
  a_tenant text, a_thread text, a_owner text, a_seconds double precision,
  out token bigint, out expires timestamptz
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into safepoint.threads as t (tenant, thread, login, token, owner, expires)
    values (a_tenant, a_thread, session_user, 1, a_owner, safepoint.until(a_seconds))
    on conflict (tenant, thread) do update
      set login = excluded.login, token = t.token + 1, owner = excluded.owner,
          expires = excluded.expires
      where t.owner is null or not safepoint.is_live(t.expires)
        or (t.owner, t.login) = (excluded.owner, excluded.login)
    returning t.token, t.expires into acquire.token, acquire.expires;
  if not found then
    perform safepoint.refuse_owned(a_tenant, a_thread);
  end if;
  insert into safepoint.actions values (a_tenant, a_thread, 'acquire', token, 0, a_owner);
end $$;

create function safepoint.refuse_owned(a_tenant text, a_thread text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  held safepoint.threads;
begin
  select * into held from safepoint.threads t where t.tenant = a_tenant and t.thread = a_thread;
  raise exception 'thread % is owned by % (login %) until %',
    a_thread, held.owner, held.login, held.expires using errcode = 'SP001';
end $$;

create function safepoint.renew(
  a_tenant text, a_thread text, a_owner text, a_token bigint, a_seconds double precision,
  out expires timestamptz
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update safepoint.threads t set expires = safepoint.until(a_seconds)
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
  perform from safepoint.threads t  -- to release once more is no harm
    where t.tenant = a_tenant and t.thread = a_thread and t.owner is null and t.token = a_token;
  if not found then
    raise exception '% does not own thread % with token %', a_owner, a_thread, a_token
      using errcode = 'SP001';
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
    insert into safepoint.actions values (a_tenant, a_thread, 'break', broken, 0);
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
  if held.owner is not null and held.login <> session_user and safepoint.is_live(held.expires) then
    perform safepoint.refuse_owned(a_tenant, a_thread);
  end if;
  perform from safepoint.records r
    where r.tenant = a_tenant and r.thread = a_thread and r.sequence = a_last;
  -- One that was never pruned may lose all that it has: then it is as new.
  if not found and (held.thread is null or held.base is not null or a_last is distinct from 0) then
    raise exception 'thread % has no record %', a_thread, a_last using errcode = 'SP005';
  end if;
  with gone as (
    delete from safepoint.records r
      where r.tenant = a_tenant and r.thread = a_thread and r.sequence > a_last returning r.*)
  insert into safepoint.discarded select gone.*, session_user, clock_timestamp() from gone;
  get diagnostics moved = row_count;
  insert into safepoint.actions values (a_tenant, a_thread, 'discard', a_last, moved);
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
  if a_first < held.first then
    return 0;
  end if;
  perform from safepoint.records r
    where r.tenant = a_tenant and r.thread = a_thread and r.sequence = a_first;
  if not found then
    raise exception 'thread % has no record %', a_thread, a_first using errcode = 'SP005';
  end if;
  update safepoint.threads t set first = a_first, base = a_base
    where t.tenant = a_tenant and t.thread = a_thread;
  delete from safepoint.records r
    where r.tenant = a_tenant and r.thread = a_thread and r.sequence < a_first;
  get diagnostics gone = row_count;
  insert into safepoint.actions values (a_tenant, a_thread, 'prune', a_first, gone);
  return gone;
end $$;

-- And of a thread that was erased, so that one record is left, what an operator took out before.
create function safepoint.purge(a_tenant text, a_thread text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  gone bigint;
begin
  delete from safepoint.discarded d using safepoint.threads t
    where d.tenant = a_tenant and d.thread = a_thread and t.tenant = a_tenant
      and t.thread = a_thread and t.base is not null
      and not exists (select from safepoint.records r where r.tenant = a_tenant
                      and r.thread = a_thread and r.sequence > t.first);
  get diagnostics gone = row_count;
  perform from safepoint.discarded d where d.tenant = a_tenant and d.thread = a_thread;
  if found then
    raise exception 'discarded is append-only until thread % is erased', a_thread
      using errcode = 'SP006';
  end if;
  if gone > 0 then
    insert into safepoint.actions values (a_tenant, a_thread, 'purge', 0, gone);
  end if;
  return gone;
end $$;

grant select on safepoint.threads to {readers};
grant insert (fence) on safepoint.records to {writers};
grant select on safepoint.discarded, safepoint.actions to {auditor}, {operator};
grant execute on function
    safepoint.acquire(text, text, text, double precision),
    safepoint.renew(text, text, text, bigint, double precision),
    safepoint.release(text, text, text, bigint)
  to {writers};
grant execute on function
    safepoint.break_lease(text, text),
    safepoint.discard(text, text, bigint),
    safepoint.prune(text, text, bigint, bytea),
    safepoint.purge(text, text)
  to {operator};
