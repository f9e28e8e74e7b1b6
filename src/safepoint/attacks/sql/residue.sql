-- What a worker's login can still do, on any server. It runs as well, so that nobody is surprised.
-- What helps is elsewhere: a login for each worker, limits on connections and disk, and rotation.

-- # read-everything SP05 answer residue
-- The states of all threads are read: who may verify a thread may read it.

select record from safepoint.checkpoints where thread = 'theirs';


-- # hold-own SP07 residue spoils
-- The login's own thread is released, and taken for a day under a name of the attacker's.

select safepoint.release(thread, owner, token) from safepoint.threads where thread = 'mine';
select * from safepoint.acquire('mine', 'mallory', 86400);

update safepoint.threads set owner = 'mallory', token = token + 1 where thread = 'mine'
  and owner <> 'mallory';


-- # squat SP07 residue
-- A thread that does not exist yet is taken for a day, before its worker begins it.

select * from safepoint.acquire('order-8', 'mallory', 86400);

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
