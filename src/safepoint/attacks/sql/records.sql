-- Attacks on what is stored: records, heads, the anchor, and what was written down.

-- # update-record SP13
-- A record of the past is written over, in each of the ways that SQL has for it.

update safepoint.checkpoints set record = 'x' where thread = 'theirs';

insert into safepoint.checkpoints (thread, sequence, record)
  values ('theirs', 2, 'x')
  on conflict (thread, sequence) do update set record = excluded.record;

merge into safepoint.checkpoints c using (values ('theirs')) v (thread) on c.thread = v.thread
  when matched then update set record = 'x';

select * from safepoint.checkpoints for update;
update safepoint.checkpoints set record = 'x' where thread = 'theirs';


-- # delete-record SP13
-- A record of the past is deleted.

delete from safepoint.checkpoints where thread = 'theirs' and sequence = 2;

with gone as (delete from safepoint.checkpoints returning *) select count(*) from gone;


-- # roll-back SP15
-- The newest record is deleted, and all that knows of it is set back, the anchor as well.

delete from safepoint.checkpoints where thread = 'theirs' and
  sequence = (select max(sequence) from safepoint.checkpoints where thread = 'theirs');
update safepoint_anchor.heads set sequence = sequence - 1, digest = %(digest)s
  where thread = 'theirs';

update safepoint.threads set head = head - 1 where thread = 'theirs';

select safepoint.discard('theirs', 1);


-- # truncate SP13
-- All records are gone with one word.

truncate safepoint.checkpoints;

truncate safepoint.threads cascade;


-- # drop-table SP05
-- The tables are dropped, or have other names.

alter table safepoint.checkpoints rename to archive;

alter table safepoint.checkpoints drop column record;

drop table safepoint.checkpoints;

drop schema safepoint cascade;

drop owned by current_user cascade;


-- # phantom-head SP13
-- A thread is said to be further than its records, so the next save has no place.

create temp table bait (thread text, sequence bigint, fence bigint, login name, written
  timestamptz);
create trigger keep before insert on bait for each row execute function safepoint.keep();
insert into bait (thread, sequence, fence)
  values ('mine', %(next)s, %(token)s);

update safepoint.threads set head = 1000 where thread = 'theirs';

insert into safepoint.threads (thread, head)
  values ('new', 1000);


-- # far-ahead SP13
-- A record is put where none belongs: far ahead, below, at no number at all.

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', 1000000000, %(mine)s, %(token)s);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', 1, %(mine)s, %(token)s);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', 0, %(mine)s, %(token)s);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', -1, %(mine)s, %(token)s);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', 10000000000, %(mine)s, %(token)s);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', 9223372036854775807, %(mine)s, %(token)s);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', null, %(mine)s, %(token)s);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', %(next)s + 1, %(mine)s, %(token)s);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', %(next)s, %(mine)s, null);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', %(next)s, %(mine)s, %(token)s + 1);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', %(next)s, %(mine)s, -1);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', %(next)s, null, %(token)s);


-- # false-witness SP20
-- A record says that another login wrote it, in another year.

update safepoint.checkpoints set login = 'postgres', written = '1999-12-31';

insert into safepoint.checkpoints (thread, sequence, record, fence, login, written)
  values ('mine', %(next)s, %(mine)s, %(token)s, 'worker_2', '1999-12-31');

insert into safepoint.checkpoints
  values ('mine', %(next)s, %(mine)s, %(token)s, 'worker_2', '1999-12-31');


-- # move-anchor SP15
-- The anchor is set back, or forgets that it has seen a thread.

update safepoint_anchor.heads set sequence = sequence - 1, digest = %(digest)s
  where thread = 'theirs';

insert into safepoint_anchor.heads
  values ('orders', 'theirs', 1, %(digest)s)
  on conflict (store, thread) do update set sequence = 1;

delete from safepoint_anchor.heads;

truncate safepoint_anchor.heads;

select safepoint_anchor.rewind('orders', 'theirs', 1, %(digest)s);

drop table safepoint_anchor.heads;


-- # empty-log SP20
-- Who took which thread, who pruned, discarded or set back what, is gone or reads otherwise.

update safepoint.takings set owner = 'alice', login = 'alice';

delete from safepoint.takings;

delete from safepoint.prunings;

delete from safepoint.discarded;

update safepoint.discarded set login = 'alice', record = 'x';

truncate safepoint.discarded;

delete from safepoint_anchor.rewinds;

delete from safepoint_journal.records;

truncate safepoint_journal.records;

truncate safepoint.takings, safepoint.prunings;

insert into safepoint.takings (thread, token, owner)
  values ('mine', 9, 'alice');


-- # edit-journal SP20
-- An entry of the journal reads otherwise, is gone, or was never written by who may.

update safepoint_journal.records set record = 'x' where sequence = 1;

delete from safepoint_journal.records where sequence = 1;

insert into safepoint_journal.records (journal, sequence, record)
  values ('journal', 2, 'x');

insert into safepoint_journal.records (journal, sequence, record)
  values ('journal', 1, 'x')
  on conflict (journal, sequence) do update set record = excluded.record;

drop table safepoint_journal.records;


-- # prune SP13
-- The beginning of a thread is removed, and said to have been pruned.

select safepoint.prune('theirs', 2, 'x');

select safepoint.prune('theirs', 2, null);

update safepoint.threads set first = 2, base = 'x' where thread = 'theirs';
delete from safepoint.checkpoints where thread = 'theirs' and sequence < 2;


-- # forge-own SP12 spoils
-- A forged record is added to the login's own thread, with the right token.

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', %(next)s, %(mine)s, %(token)s);


-- # replay-into-own SP12 spoils
-- The genuine record of another thread is copied to the end of the login's own.

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('mine', %(next)s, (select record from safepoint.checkpoints where thread = 'theirs' order by sequence desc limit 1), %(token)s);
