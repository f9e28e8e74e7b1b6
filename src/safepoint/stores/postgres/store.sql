-- The store: a login can append a record only to a thread that it owns.

create domain safepoint.token as bigint check (value between 0 and 999999999999999999);
create domain safepoint.seconds as double precision check (value between 0.001 and 86400);
revoke all on type safepoint.token, safepoint.seconds from public;

-- One row per thread: where it begins, and who may write it.
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

-- Records that an operator took out of a thread because they do not verify, unchanged.
create table safepoint.discarded (
  like safepoint.records including storage,
  discarded_by name not null,
  discarded_at timestamptz not null
);

-- Who acquired, pruned, discarded or purged which thread. `number` is the token, or the first or
-- last record that stayed (0 for a purge), and `removed` the number of removed records.
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

-- Tell whether a record is the first of its thread, if its writer owns the thread. The lock on the
-- row prevents a change of the lease until the record is stored.
create function safepoint.begins(new safepoint.records) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  held safepoint.threads;
begin
  select * into held from safepoint.threads t
    where t.tenant = new.tenant and t.thread = new.thread for share;
  if not found and new.fence is null then
    insert into safepoint.threads (tenant, thread, login)
      values (new.tenant, new.thread, session_user) returning * into held;
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

-- `acquire` and `renew` change their row in one statement and lock only a row that they may change:
-- a login that leaves its transaction open cannot block another login's thread. A lease that ends
-- in more than 25 hours cannot be genuine and does not count.
create function safepoint.acquire(
  a_tenant text, a_thread text, a_owner text, a_seconds safepoint.seconds,
  out token bigint, out expires timestamptz
) language plpgsql strict security definer set search_path = pg_catalog, pg_temp as $$
declare
  held safepoint.threads;
begin
  insert into safepoint.threads as t (tenant, thread, login, token, owner, expires)
    values (a_tenant, a_thread, session_user, 1, a_owner,
            clock_timestamp() + make_interval(secs => a_seconds))
    on conflict (tenant, thread) do update
      set login = excluded.login, token = t.token + 1, owner = excluded.owner,
          expires = excluded.expires
      where t.owner is null or (t.owner, t.login) = (excluded.owner, excluded.login)
        or not t.expires between clock_timestamp() and clock_timestamp() + interval '25 hours'
    returning t.token, t.expires into acquire.token, acquire.expires;
  if not found then
    select * into held from safepoint.threads t where t.tenant = a_tenant and t.thread = a_thread;
    raise exception 'thread % is owned by % (login %) until %',
      a_thread, held.owner, held.login, held.expires using errcode = 'SP001';
  end if;
  insert into safepoint.actions values (a_tenant, a_thread, 'acquire', token, 0, a_owner);
end $$;

-- Without seconds the lease is released. Releasing it twice does nothing.
create function safepoint.renew(
  a_tenant text, a_thread text, a_owner text, a_token bigint, a_seconds safepoint.seconds,
  out expires timestamptz
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update safepoint.threads t
    set owner = case when a_seconds is not null then a_owner end,
        expires = clock_timestamp() + make_interval(secs => a_seconds)
    where t.tenant = a_tenant and t.thread = a_thread and t.token = a_token
      and coalesce(t.owner, case when a_seconds is null then a_owner end) = a_owner
      and t.login = session_user
    returning t.expires into renew.expires;
  if not found then
    raise exception '% does not own thread % with token %', a_owner, a_thread, a_token
      using errcode = 'SP001';
  end if;
end $$;

-- Ends the lease of a thread, so that its owner must acquire it again. Moves the records after
-- `last`, which do not verify, to `discarded`.
create function safepoint.discard(a_tenant text, a_thread text, a_last bigint) returns bigint
language plpgsql strict security definer set search_path = pg_catalog, pg_temp as $$
declare
  pruned boolean;
  moved bigint;
begin
  update safepoint.threads t
    set owner = null, expires = null,
        login = case when t.owner is null then t.login else current_user end
    where t.tenant = a_tenant and t.thread = a_thread returning t.base is not null into pruned;
  perform from safepoint.records r
    where r.tenant = a_tenant and r.thread = a_thread and r.sequence = a_last;
  -- One that was never pruned may lose all that it has: then it is as new.
  if not found and (a_last <> 0 or pruned is distinct from false) then
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

-- Removes the records before `first` for good and stores a base in their place. A thread without
-- records will begin there, as the copy of a pruned one does.
create function safepoint.prune(
  a_tenant text, a_thread text, a_first bigint, a_base bytea
) returns bigint
language plpgsql strict security definer set search_path = pg_catalog, pg_temp as $$
declare
  held safepoint.threads;
  gone bigint;
begin
  select * into held from safepoint.threads t
    where t.tenant = a_tenant and t.thread = a_thread for update;
  if a_first < held.first then
    return 0;
  end if;
  perform from safepoint.records r where r.tenant = a_tenant and r.thread = a_thread
    having count(*) > 0 and not bool_or(r.sequence = a_first);
  if found then
    raise exception 'thread % has no record %', a_thread, a_first using errcode = 'SP005';
  end if;
  insert into safepoint.threads (tenant, thread, login, first, base)
    values (a_tenant, a_thread, session_user, a_first, a_base)
    on conflict (tenant, thread) do update set first = excluded.first, base = excluded.base;
  delete from safepoint.records r
    where r.tenant = a_tenant and r.thread = a_thread and r.sequence < a_first;
  get diagnostics gone = row_count;
  insert into safepoint.actions values (a_tenant, a_thread, 'prune', a_first, gone);
  return gone;
end $$;

-- Removes the discarded records of an erased thread, which has one record left.
create function safepoint.purge(a_tenant text, a_thread text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  gone bigint;
begin
  perform from safepoint.records r join safepoint.threads t using (tenant, thread)
    where tenant = a_tenant and thread = a_thread and (t.base is null or r.sequence > t.first);
  if found then
    raise exception 'discarded is append-only until thread % is erased', a_thread
      using errcode = 'SP006';
  end if;
  delete from safepoint.discarded d where d.tenant = a_tenant and d.thread = a_thread;
  get diagnostics gone = row_count;
  insert into safepoint.actions select a_tenant, a_thread, 'purge', 0, gone where gone > 0;
  return gone;
end $$;

grant select on safepoint.threads to {readers};
grant select on safepoint.discarded, safepoint.actions to {auditor}, {operator};
grant execute on function safepoint.acquire, safepoint.renew to {writers};
grant execute on function safepoint.discard, safepoint.prune, safepoint.purge to {operator};
