-- The anchor: the head of each thread, under a credential that no writer of the store has. Setting
-- a head back and discarding records need different roles: no single login can do both.

create domain safepoint_anchor.digest as text collate "C" check (
  octet_length(value) = 71 and value ~ '^sha256:[0-9a-f]*$'
);
revoke all on type safepoint_anchor.digest from public;

create table safepoint_anchor.heads (
  tenant   safepoint_anchor.tenant not null default '',
  store    safepoint_anchor.name not null,
  thread   safepoint_anchor.name not null,
  sequence safepoint_anchor.sequence not null,
  digest   safepoint_anchor.digest not null,
  primary key (tenant, store, thread)
) with (fillfactor = 50);  -- each record of a thread updates its row, in the same page

-- The heads that operators set back after accepting a loss, with their logins.
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

-- Approvers move the heads of the answers. Workers cannot.
create policy of_workers on safepoint_anchor.heads as restrictive to {anchor}
  using (true) with check (store <> 'answers');
create policy of_approvers on safepoint_anchor.heads as restrictive to {approver}
  using (true) with check (store = 'answers');

-- A head only moves forward. Only `rewind` sets one back, by replacing it.
create trigger advance before update on safepoint_anchor.heads
  for each row when (new.sequence <= old.sequence)
  execute function safepoint_anchor.refuse('a head of the anchor never goes back');

create function safepoint_anchor.rewind(
  a_tenant text, a_store text, a_thread text, a_sequence bigint, a_digest text
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  known safepoint_anchor.heads;
begin
  delete from safepoint_anchor.heads h
    where h.tenant = a_tenant and h.store = a_store and h.thread = a_thread
    returning * into known;
  insert into safepoint_anchor.rewinds values (a_tenant, a_store, a_thread, known.sequence,
    known.digest, a_sequence, a_digest, session_user, clock_timestamp());
  if a_sequence is not null then
    insert into safepoint_anchor.heads values (a_tenant, a_store, a_thread, a_sequence, a_digest);
  end if;
end $$;

grant select on safepoint_anchor.heads to {readers};
grant select on safepoint_anchor.rewinds to {anchor_operator}, {auditor};
grant insert (tenant, store, thread, sequence, digest), update (sequence, digest)
  on safepoint_anchor.heads to {writers};
grant execute on function safepoint_anchor.rewind to {anchor_operator};
