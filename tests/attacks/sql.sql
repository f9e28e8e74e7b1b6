-- What somebody tries who has a worker's login, and nothing else: no key, and no other login.
--
-- A line `-- # id rule` begins an attack, with words after it that say what is special; the lines
-- after it are its story. Tries are parted by an empty line, and each statement ends with its line.
-- `put` adds a record: thread, sequence, record, fence. `edit` writes over the records of `theirs`.

-- Attacks on what is stored: records, heads, the anchor, and what was written down.

-- # update-record SP13
-- A record of the past is written over, in each of the ways that SQL has for it.

edit;

insert into safepoint.records (thread, sequence, record)
  values ('theirs', 2, 'x')
  on conflict (tenant, thread, sequence) do update set record = excluded.record;

merge into safepoint.records c using (values ('theirs')) v (thread) on c.thread = v.thread
  when matched then update set record = 'x';

select * from safepoint.records for update;
edit;


-- # delete-record SP13
-- A record of the past is deleted.

delete from safepoint.records where thread = 'theirs' and sequence = 2;

with gone as (delete from safepoint.records returning *) select count(*) from gone;


-- # roll-back SP15
-- The newest record is deleted, and all that knows of it is set back, the anchor as well.

delete from safepoint.records where thread = 'theirs' and
  sequence = (select max(sequence) from safepoint.records where thread = 'theirs');
update safepoint_anchor.heads set sequence = sequence - 1, digest = %(digest)s
  where thread = 'theirs';

select safepoint.discard('', 'theirs', 1);


-- # truncate SP13
-- All records are gone with one word.

truncate safepoint.records;

truncate safepoint.threads cascade;


-- # drop-table SP05
-- The tables are dropped, or have other names.

alter table safepoint.records rename to archive;

alter table safepoint.records drop column record;

drop table safepoint.records;

drop schema safepoint cascade;

drop owned by current_user cascade;


-- # phantom-head SP13
-- A thread is said to begin after its records, so the next save has no place.

create temp table bait (tenant text default '', thread text,
  sequence bigint, record bytea, login name, written timestamptz, fence bigint);
create trigger keep before insert on bait for each row execute function safepoint.keep();
insert into bait (thread, sequence, fence)
  values ('mine', %(next)s, %(token)s);

update safepoint.threads set first = 1000 where thread = 'theirs';

insert into safepoint.threads (thread, first)
  values ('new', 1000);


-- # far-ahead SP13
-- A record is put where none belongs: far ahead, below, at no number at all.

put ('mine', 1000000000, %(mine)s, %(token)s);

put ('mine', 1, %(mine)s, %(token)s);

put ('mine', 0, %(mine)s, %(token)s);

put ('mine', -1, %(mine)s, %(token)s);

put ('mine', 10000000000, %(mine)s, %(token)s);

put ('mine', 9223372036854775807, %(mine)s, %(token)s);

put ('mine', null, %(mine)s, %(token)s);

put ('mine', %(next)s + 1, %(mine)s, %(token)s);

put ('mine', %(next)s, %(mine)s, null);

put ('mine', %(next)s, %(mine)s, %(token)s + 1);

put ('mine', %(next)s, %(mine)s, -1);

put ('mine', %(next)s, null, %(token)s);


-- # false-witness SP20
-- A record says that another login wrote it, in another year.

update safepoint.records set login = 'postgres', written = '1999-12-31';

insert into safepoint.records (thread, sequence, record, fence, login, written)
  values ('mine', %(next)s, %(mine)s, %(token)s, 'worker_2', '1999-12-31');

insert into safepoint.records
  values ('', 'mine', %(next)s, %(mine)s, %(token)s, 'worker_2', '1999-12-31');


-- # move-anchor SP15
-- The anchor is set back, or forgets that it has seen a thread.

update safepoint_anchor.heads set sequence = sequence - 1, digest = %(digest)s
  where thread = 'theirs';

insert into safepoint_anchor.heads
  values ('', 'orders', 'theirs', 1, %(digest)s)
  on conflict (tenant, store, thread) do update set sequence = 1;

delete from safepoint_anchor.heads;

truncate safepoint_anchor.heads;

select safepoint_anchor.rewind('', 'orders', 'theirs', 1, %(digest)s);

drop table safepoint_anchor.heads;


-- # empty-log SP20
-- Who took which thread, who pruned, discarded or set back what, is gone or reads otherwise.

update safepoint.actions set owner = 'alice', login = 'alice';

delete from safepoint.actions;

delete from safepoint.discarded;

update safepoint.discarded set login = 'alice', record = 'x';

truncate safepoint.discarded;

select safepoint.purge('', 'mended');

delete from safepoint_anchor.rewinds;

delete from safepoint_journal.records;

truncate safepoint_journal.records;

truncate safepoint.actions;

insert into safepoint.actions (tenant, thread, action, number, removed, owner)
  values ('', 'mine', 'acquire', 9, 0, 'alice');


-- # edit-journal SP20
-- An entry of the journal reads otherwise, is gone, or was never written by who may.

update safepoint_journal.records set record = 'x' where sequence = 1;

delete from safepoint_journal.records where sequence = 1;

insert into safepoint_journal.records (thread, sequence, record)
  values ('mended', 2, 'x');

insert into safepoint_journal.records (thread, sequence, record)
  values ('mended', 1, 'x')
  on conflict (tenant, thread, sequence) do update set record = excluded.record;

drop table safepoint_journal.records;


-- # prune SP13
-- The beginning of a thread is removed, and said to have been pruned.

select safepoint.prune('', 'theirs', 2, 'x');

select safepoint.prune('', 'theirs', 2, null);

update safepoint.threads set first = 2, base = 'x' where thread = 'theirs';
delete from safepoint.records where thread = 'theirs' and sequence < 2;


-- # forge-own SP12 spoils
-- A forged record is added to the login's own thread, with the right token.

put ('mine', %(next)s, %(mine)s, %(token)s);


-- # replay-into-own SP12 spoils
-- The genuine record of another thread is copied to the end of the login's own.

put ('mine', %(next)s, (select record from safepoint.records
  where thread = 'theirs' order by sequence desc limit 1), %(token)s);

-- Attacks on whose thread it is: the other worker's, or nobody's.

-- # other-thread SP07
-- A record is added to a thread that the other worker owns, with its token or a guess.

put ('theirs', %(their_next)s, %(theirs)s, null);

put ('theirs', %(their_next)s, %(theirs)s, %(their_token)s);

put ('theirs', %(their_next)s, %(theirs)s, %(their_token)s + 1);

put ('theirs', %(their_next)s, %(theirs)s, 0);

copy safepoint.records (thread, sequence, record) from stdin;

merge into safepoint.records c using (values (1)) v on false
  when not matched then insert (thread, sequence, record, fence)
  values ('theirs', %(their_next)s, %(theirs)s, %(their_token)s);

insert into safepoint.records (thread, sequence, record)
  values ('free', %(free_next)s, %(free)s);


-- # steal-lease SP07
-- The lease of a worker that is alive is taken, renewed or released by somebody else.

select * from safepoint.acquire('', 'theirs', 'mallory', 60);

select * from safepoint.acquire('', 'theirs', 'worker-of-theirs', 60);

select * from safepoint.acquire('', 'theirs', 'mallory', 1e308);

select * from safepoint.acquire('', 'theirs', 'mallory', -1);

select * from safepoint.acquire('', 'theirs', 'mallory', 'NaN');

select * from safepoint.acquire('', 'theirs', 'mallory', 'infinity');

select * from safepoint.acquire('', 'theirs', 'mallory', null);

select * from safepoint.acquire('', 'theirs', null, 60);

select * from safepoint.acquire('', null, 'mallory', 60);

select safepoint.renew('', 'theirs', 'worker-of-theirs', %(their_token)s, 86400);

select safepoint.renew('', 'theirs', null, %(their_token)s, 86400);

select safepoint.renew('', 'theirs', 'worker-of-theirs', %(their_token)s, null);

select safepoint.renew('', 'theirs', null, %(their_token)s, null);

select safepoint.discard('', 'theirs', 0);

update safepoint.threads set owner = 'mallory', token = token + 1 where thread = 'theirs';


-- # take-free SP07
-- A thread whose lease has ended is taken, as it should be, and gets a forged record.

select * from safepoint.acquire('', 'free', 'mallory', 60);
put ('free', %(free_next)s, %(free)s, (select token from safepoint.threads where thread = 'free'));

put ('free', %(free_next)s, %(free)s, null);


-- # no-owner SP07
-- A thread is taken in the name of nobody, so that it has an end of a lease and no owner of it.

select * from safepoint.acquire('', 'free', null, 60);

select * from safepoint.acquire('', 'new', null, 60);

select * from safepoint.acquire('', 'mine', null, 60);

select safepoint.renew('', 'mine', null, %(token)s, null);

update safepoint.threads set owner = null where thread = 'mine';


-- # junk-thread SP12
-- A thread that nobody began appears, and begins in the middle.

put ('new', 9999999999, %(mine)s, null);

put ('newer', 1, %(mine)s, null);


-- # odd-name SP04
-- A thread gets a name that the package would never give it.

put ('../outside', 1, %(mine)s, null);

put (E'two\nlines', 1, %(mine)s, null);

put ('THEIRS', 1, %(mine)s, null);

put (repeat('x', 65), 1, %(mine)s, null);

put ('nul', 1, %(mine)s, null);

put (null, 1, %(mine)s, null);

select * from safepoint.acquire('', '../outside', 'mallory', 60);

select * from safepoint.acquire('', 'new', E'two\nlines', 60);

select * from safepoint.acquire('', 'new', 'con', 60);

-- Attacks on the rules themselves: triggers, functions, rights, roles, and the server below.

-- # disable-trigger SP05
-- The triggers that keep the past are switched off for a moment, and it is edited.

alter table safepoint.records disable trigger all;
edit;

alter table safepoint.records disable trigger user;
edit;

drop trigger if exists refuse_change on safepoint.records;
edit;

set session_replication_role = replica;
edit;

select set_config('session_replication_role', 'replica', false);
edit;


-- # replace-function SP05
-- The function that decides is replaced by one that lets everything through.

create or replace function safepoint.keep() returns trigger language plpgsql
  as 'begin return new; end';

create function pg_temp.keep() returns trigger language plpgsql as 'begin return new; end';
create trigger a_first before insert on safepoint.records for each row execute function
  pg_temp.keep();

create or replace function safepoint.acquire(a_thread text, a_owner text,
  a_seconds double precision, out token bigint, out expires timestamptz) language sql
  as 'select 1::bigint, now()';

alter function safepoint.keep() set search_path = pg_temp, public;

create rule r as on insert to safepoint.records do instead nothing;

create policy p on safepoint.records using (false);


-- # grant-more SP05
-- The login gives itself, or everybody, more rights than it has.

grant all on all tables in schema safepoint to public;

set role safepoint_owner;
edit;

set role safepoint_operator;
select safepoint.prune('', 'theirs', 2, 'x');

select set_config('role', 'safepoint_owner', false);
edit;

set session authorization postgres;
edit;

grant safepoint_owner to current_user;
edit;

set role safepoint_anchor_operator;
select safepoint_anchor.rewind('', 'orders', 'theirs', 1, %(digest)s);

grant safepoint_operator to current_user;

grant safepoint_anchor_operator to current_user;

alter role current_user superuser;

alter role current_user createrole;

create role mallory login;

grant update, delete on safepoint.records to current_user;
edit;

alter table safepoint.records owner to current_user;

reassign owned by safepoint_owner to current_user;

alter schema safepoint owner to current_user;


-- # shadow SP05
-- A table, a function or an operator of the attacker's has the name that a function of ours
-- looks for.

create temp table threads as select thread::text, first::bigint, token::bigint, owner::text,
  expires, session_user as login from safepoint.threads;
create temp table records as select thread::text, sequence::bigint, record::bytea
  from safepoint.records;
set search_path = pg_temp, safepoint, pg_catalog;
put ('theirs', %(their_next)s, %(theirs)s, %(their_token)s);

create function pg_temp.clock_timestamp() returns timestamptz language sql
  as $$ select 'infinity'::timestamptz $$;
set search_path = pg_temp, pg_catalog;
select * from safepoint.acquire('', 'theirs', 'mallory', 60);

create function pg_temp.same(text, text) returns boolean language sql as 'select true';
create operator pg_temp.= (leftarg = text, rightarg = text, function = pg_temp.same);
set search_path = pg_temp, pg_catalog;
put ('theirs', %(their_next)s, %(theirs)s, %(their_token)s);

create temp table in_the_way (x safepoint.name);

create schema evil;

create function public.f() returns int language sql as 'select 1';

create cast (text as name) without function as implicit;


-- # lock-table SP05 block
-- The attacker locks the table, goes home, and nobody can save.

begin;
lock table safepoint.records in access exclusive mode;

begin;
lock table safepoint.records in exclusive mode;

begin;
lock table safepoint.records in share row exclusive mode;

begin;
lock table safepoint.records in share mode;

begin;
lock table safepoint.records in share update exclusive mode;

begin;
lock table safepoint.records in row exclusive mode;

begin;
lock table safepoint.records in row share mode;

begin;
select * from safepoint.threads for update;

begin;
select * from safepoint.threads for key share;


-- # kill-others SP05 answer
-- The sessions of the other worker are ended, again and again.

select pg_terminate_backend(pid) from unnest(%(others)s::int[]) pid;

select pg_cancel_backend(pid) from unnest(%(others)s::int[]) pid;


-- # run-program SP05 answer
-- The server runs a program, or reads and writes a file.

copy (select 1) to program 'true';

copy pg_temp.x from program 'true';

copy (select 1) to '/nowhere/marker';

select pg_read_file('postgresql.conf');

select pg_ls_dir('.');

select lo_import('/etc/hostname');

select lo_export(1, '/nowhere/marker');

load 'libpq';

create function f() returns int language c as 'libc', 'getpid';

alter system set fsync = off;


-- # read-passwords SP08 answer
-- The hashes of everybody's passwords are read, to be guessed at home.

select rolname, rolpassword from pg_authid;

select usename, passwd from pg_shadow;


-- # prepare-transaction SP05
-- A transaction is prepared and never ends, and its locks outlive the session.

begin;
select * from safepoint.acquire('', 'new', 'mallory', 60);
prepare transaction 'forgotten';

begin;
lock table safepoint.records;
prepare transaction 'forgotten';

-- What a worker's login can still do, on any server. It runs as well, so that nobody is surprised.
-- What helps is elsewhere: a login for each worker, limits on connections and disk, and rotation.

-- # read-everything SP05 answer residue
-- The states of all threads are read: who may verify a thread may read it.

select record from safepoint.records where thread = 'theirs';


-- # hold-own SP07 residue spoils
-- The login's own thread is released, and taken for a day under a name of the attacker's.

select safepoint.renew('', thread, owner, token, null) from safepoint.threads where thread = 'mine';
select * from safepoint.acquire('', 'mine', 'mallory', 86400);

update safepoint.threads set owner = 'mallory', token = token + 1 where thread = 'mine'
  and owner <> 'mallory';


-- # squat SP07 residue
-- A thread that does not exist yet is taken for a day, before its worker begins it.

select * from safepoint.acquire('', 'order-8', 'mallory', 86400);

insert into safepoint.threads (thread, token, owner, expires)
  values ('order-8', 1, 'mallory', now() + interval '1 day');


-- # own-password SP08 residue spoils
-- The login gives itself another password, and the honest worker is locked out.

alter role current_user password 'of-mally';


-- # own-settings SP08 residue spoils
-- The login is told to be read-only from now on, and the honest worker is, too.

alter role current_user set default_transaction_read_only = on;


-- # large-object SP11 residue
-- The disk is filled with what is in no table of ours.

select lo_from_bytea(0, decode(repeat('00', 100000), 'hex'));
