-- Attacks on the rules themselves: triggers, functions, rights, roles, and the server below.

-- # disable-trigger SP05
-- The triggers that keep the past are switched off for a moment, and it is edited.

alter table safepoint.checkpoints disable trigger all;
update safepoint.checkpoints set record = 'x' where thread = 'theirs';

alter table safepoint.checkpoints disable trigger user;
update safepoint.checkpoints set record = 'x' where thread = 'theirs';

drop trigger if exists refuse_change on safepoint.checkpoints;
update safepoint.checkpoints set record = 'x' where thread = 'theirs';

set session_replication_role = replica;
update safepoint.checkpoints set record = 'x' where thread = 'theirs';

select set_config('session_replication_role', 'replica', false);
update safepoint.checkpoints set record = 'x' where thread = 'theirs';


-- # replace-function SP05
-- The function that decides is replaced by one that lets everything through.

create or replace function safepoint.keep() returns trigger language plpgsql
  as 'begin return new; end';

create function pg_temp.keep() returns trigger language plpgsql as 'begin return new; end';
create trigger a_first before insert on safepoint.checkpoints for each row execute function
  pg_temp.keep();

create or replace function safepoint.acquire(a_thread text, a_owner text,
  a_seconds double precision, out token bigint, out expires timestamptz) language sql
  as 'select 1::bigint, now()';

alter function safepoint.keep() set search_path = pg_temp, public;

create rule r as on insert to safepoint.checkpoints do instead nothing;

create policy p on safepoint.checkpoints using (false);


-- # grant-more SP05
-- The login gives itself, or everybody, more rights than it has.

grant all on all tables in schema safepoint to public;

set role safepoint_owner;
update safepoint.checkpoints set record = 'x' where thread = 'theirs';

set role safepoint_operator;
select safepoint.prune('theirs', 2, 'x');

select set_config('role', 'safepoint_owner', false);
update safepoint.checkpoints set record = 'x' where thread = 'theirs';

set session authorization postgres;
update safepoint.checkpoints set record = 'x' where thread = 'theirs';

grant safepoint_owner to current_user;
update safepoint.checkpoints set record = 'x' where thread = 'theirs';

set role safepoint_anchor_operator;
select safepoint_anchor.rewind('orders', 'theirs', 1, %(digest)s);

grant safepoint_operator to current_user;

grant safepoint_anchor_operator to current_user;

alter role current_user superuser;

alter role current_user createrole;

create role mallory login;

grant update, delete on safepoint.checkpoints to current_user;
update safepoint.checkpoints set record = 'x' where thread = 'theirs';

alter table safepoint.checkpoints owner to current_user;

reassign owned by safepoint_owner to current_user;

alter schema safepoint owner to current_user;


-- # shadow SP05
-- A table, a function or an operator of the attacker's has the name that a function of ours
-- looks for.

create temp table threads as select thread::text, head, first::bigint, token::bigint, owner::text,
  expires, session_user as login from safepoint.threads;
create temp table checkpoints as select thread, sequence::bigint, record::bytea
  from safepoint.checkpoints;
set search_path = pg_temp, safepoint, pg_catalog;
insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('theirs', %(their_next)s, %(theirs)s, %(their_token)s);

create function pg_temp.clock_timestamp() returns timestamptz language sql
  as $$ select 'infinity'::timestamptz $$;
set search_path = pg_temp, pg_catalog;
select * from safepoint.acquire('theirs', 'mallory', 60);

create function pg_temp.same(text, text) returns boolean language sql as 'select true';
create operator pg_temp.= (leftarg = text, rightarg = text, function = pg_temp.same);
set search_path = pg_temp, pg_catalog;
insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('theirs', %(their_next)s, %(theirs)s, %(their_token)s);

create temp table in_the_way (x safepoint.name);

create schema evil;

create function public.f() returns int language sql as 'select 1';

create cast (text as name) without function as implicit;


-- # lock-table SP05 block
-- The attacker locks the table, goes home, and nobody can save.

begin;
lock table safepoint.checkpoints in access exclusive mode;

begin;
lock table safepoint.checkpoints in exclusive mode;

begin;
lock table safepoint.checkpoints in share row exclusive mode;

begin;
lock table safepoint.checkpoints in share mode;

begin;
lock table safepoint.checkpoints in share update exclusive mode;

begin;
lock table safepoint.checkpoints in row exclusive mode;

begin;
lock table safepoint.checkpoints in row share mode;

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
select * from safepoint.acquire('new', 'mallory', 60);
prepare transaction 'forgotten';

begin;
lock table safepoint.checkpoints;
prepare transaction 'forgotten';
