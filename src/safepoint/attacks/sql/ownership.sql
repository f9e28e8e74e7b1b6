-- Attacks on whose thread it is: the other worker's, or nobody's.

-- # other-thread SP07
-- A record is added to a thread that the other worker owns, with its token or a guess.

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('theirs', %(their_next)s, %(theirs)s, null);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('theirs', %(their_next)s, %(theirs)s, %(their_token)s);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('theirs', %(their_next)s, %(theirs)s, %(their_token)s + 1);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('theirs', %(their_next)s, %(theirs)s, 0);

copy safepoint.checkpoints (thread, sequence, record) from stdin;

merge into safepoint.checkpoints c using (values (1)) v on false
  when not matched then insert (thread, sequence, record, fence)
  values ('theirs', %(their_next)s, %(theirs)s, %(their_token)s);

insert into safepoint.checkpoints (thread, sequence, record)
  values ('free', %(free_next)s, %(free)s);


-- # steal-lease SP07
-- The lease of a worker that is alive is taken, renewed or released by somebody else.

select * from safepoint.acquire('theirs', 'mallory', 60);

select * from safepoint.acquire('theirs', 'worker-of-theirs', 60);

select * from safepoint.acquire('theirs', 'mallory', 1e308);

select * from safepoint.acquire('theirs', 'mallory', -1);

select * from safepoint.acquire('theirs', 'mallory', 'NaN');

select * from safepoint.acquire('theirs', 'mallory', 'infinity');

select * from safepoint.acquire('theirs', 'mallory', null);

select * from safepoint.acquire('theirs', null, 60);

select * from safepoint.acquire(null, 'mallory', 60);

select safepoint.renew('theirs', 'worker-of-theirs', %(their_token)s, 86400);

select safepoint.renew('theirs', null, %(their_token)s, 86400);

select safepoint.release('theirs', 'worker-of-theirs', %(their_token)s);

select safepoint.release('theirs', null, %(their_token)s);

select safepoint.break_lease('theirs');

update safepoint.threads set owner = 'mallory', token = token + 1 where thread = 'theirs';


-- # take-free SP07
-- A thread whose lease has ended is taken, as it should be, and gets a forged record.

select * from safepoint.acquire('free', 'mallory', 60);
insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('free', %(free_next)s, %(free)s, (select token from safepoint.threads where thread = 'free'));

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('free', %(free_next)s, %(free)s, null);


-- # no-owner SP07
-- A thread is taken in the name of nobody, so that it has an end of a lease and no owner of it.

select * from safepoint.acquire('free', null, 60);

select * from safepoint.acquire('new', null, 60);

select * from safepoint.acquire('mine', null, 60);

select safepoint.release('mine', null, %(token)s);

update safepoint.threads set owner = null where thread = 'mine';


-- # junk-thread SP12
-- A thread that nobody began appears, and begins in the middle.

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('new', 9999999999, %(mine)s, null);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('newer', 1, %(mine)s, null);


-- # odd-name SP04
-- A thread gets a name that the package would never give it.

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('../outside', 1, %(mine)s, null);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values (E'two\nlines', 1, %(mine)s, null);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('THEIRS', 1, %(mine)s, null);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values (repeat('x', 65), 1, %(mine)s, null);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values ('nul', 1, %(mine)s, null);

insert into safepoint.checkpoints (thread, sequence, record, fence)
  values (null, 1, %(mine)s, null);

select * from safepoint.acquire('../outside', 'mallory', 60);

select * from safepoint.acquire('new', E'two\nlines', 60);

select * from safepoint.acquire('new', 'con', 60);
