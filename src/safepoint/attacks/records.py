"""Attacks by somebody who can write the store: its records edited, forged, moved, cut, put back."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, get_args

from safepoint.attacks.kit import Look, attacks, loads, overwrite, save_steps, saved, unnoticed
from safepoint.attacks.medium import Disk
from safepoint.attacks.outcome import HONEST, WANTED, Miss, step
from safepoint.attacks.target import Target, Trick, spellings
from safepoint.core.names import MAX_SEQUENCE

_DATE = re.compile(rb"20\d\d-\d\d-\d\dT")

bytes_of_a_record = attacks(
    "Attacks on the bytes of a record: no exploit needed, only write access."
)
forged = attacks("Attacks that write a record of their own.")
moved = attacks("Attacks that move genuine records to where they do not belong.")
past = attacks("Attacks on what came before: the newest record stays as it is.")
live = attacks(
    "Attacks while the store is in use: on what it keeps at hand, and between two of its reads."
)
asked = attacks(
    "Attacks by a client, who writes nothing: the application is asked for what is not theirs.",
    attacker="resumes",
)
rollback = attacks(
    "Attacks that show the victim an earlier or another truth. Each record in it is genuine."
)


@bytes_of_a_record("edit-state", "SP01")
def edit_state(target: Target) -> Iterator[Look]:
    """The payee alice in the store becomes mally, and the workflow pays her."""
    name = saved(target)
    target.medium.write(name, target.edit(target.medium.read(name), b"alice", b"mally"))
    yield loads(target, WANTED)


@bytes_of_a_record("edit-and-rehash", "SP12")
def edit_and_rehash(target: Target) -> Iterator[Look]:
    """The hashes are computed again after the edit: a checksum without a key stops nobody."""
    name = saved(target)
    overwrite(target, name, target.edit(target.medium.read(name), b"alice", b"mally"))
    yield loads(target, WANTED)


@bytes_of_a_record("flip-byte", "SP12")
def flip_byte(target: Target) -> Iterator[Look]:
    """One flipped bit, anywhere in the record, is loaded without a word."""
    name = saved(target)
    record = target.medium.read(name)
    for index in range(len(record)):
        flipped = bytearray(record)
        flipped[index] ^= 1
        target.medium.write(name, bytes(flipped))
        yield unnoticed(lambda: target.latest("victim"))


@bytes_of_a_record("other-bytes", "SP12")
def other_bytes(target: Target) -> Iterator[Look]:
    """The state is encoded again for the check, so bytes that nobody signed pass for signed."""
    name = saved(target)
    record = target.medium.read(name)
    usual, *others = spellings(HONEST)
    written = next((text for text in others if text in record), usual)
    again = json.dumps(HONEST, indent=1).encode()
    if target.format == "msgpack":  # the head of a map with a longer count
        again = b"\xde\0" + bytes([written[0] & 15]) + written[1:]
    overwrite(target, name, target.edit(record, written, again))
    yield unnoticed(lambda: target.latest("victim"))


@bytes_of_a_record("trailing-bytes", "SP12")
def trailing_bytes(target: Target) -> Iterator[Look]:
    """Bytes after the end of a record are ignored, so nobody vouches for the whole file."""
    name = saved(target)
    overwrite(target, name, target.medium.read(name) + b" \n \n")
    yield unnoticed(lambda: target.latest("victim"))


@bytes_of_a_record("torn-record", "SP13")
def torn_record(target: Target) -> Iterator[Look]:
    """Half of the newest record is missing: the worker dies, or continues from an older one."""
    name = save_steps(target, 2)[-1]
    record = target.medium.read(name)
    target.medium.write(name, record[: len(record) // 2])
    yield unnoticed(lambda: target.latest("victim"))


@forged("plant-record", "SP02")
def plant_record(target: Target) -> Iterator[Look]:
    """A checkpoint that the application never wrote is loaded as if it had."""
    return _plant(target, "best")


@forged("key-substitution", "SP12")
def key_substitution(target: Target) -> Iterator[Look]:
    """The record names the key to check it with, and names one that the attacker has."""
    return _plant(target, "own-key")


@forged("algorithm-downgrade", "SP12")
def algorithm_downgrade(target: Target) -> Iterator[Look]:
    """The record says that its signature algorithm is 'none', and the store believes it."""
    return _plant(target, "no-algorithm")


@forged("strip-signature", "SP12")
def strip_signature(target: Target) -> Iterator[Look]:
    """A record without a signature is taken for an old one, from before there were any."""
    return _plant(target, "unsigned")


def _plant(target: Target, trick: Trick) -> Iterator[Look]:
    name = saved(target)
    forged = target.forge(target.medium.read(name), target.encoded(WANTED), trick)
    overwrite(target, name, forged)
    yield loads(target, WANTED)


@moved("swap-threads", "SP02")
def swap_threads(target: Target) -> Iterator[Look]:
    """One customer's genuine checkpoint is resumed as another customer's."""
    name = saved(target)
    target.save("attacker", WANTED)
    overwrite(target, name, target.medium.read(target.records("attacker")[-1]))
    yield loads(target, WANTED)


@moved("swap-stores", "SP12")
def swap_stores(target: Target) -> Iterator[Look]:
    """A checkpoint of the test system, sealed by the same key, is resumed in production."""
    name = saved(target)
    other = target.twin(target.medium.beside(), "other-store")
    other.save("victim", WANTED)
    overwrite(target, name, other.medium.read(other.records("victim")[-1]))
    yield loads(target, WANTED)


@moved("swap-tenants", "SP30")
def swap_tenants(target: Target) -> Iterator[Look]:
    """A record of one tenant, sealed by the same key, is copied into the row of another."""
    victim, other = target.tenant("acme"), target.tenant("globex")
    name = saved(victim)
    other.save("victim", WANTED)
    overwrite(victim, name, target.medium.read(other.records("victim")[-1]))
    yield loads(victim, WANTED)


@moved("replay-old-on-top", "SP12")
def replay_old_on_top(target: Target) -> Iterator[Look]:
    """The genuine record of an earlier step is copied over the newest, and paid again."""
    first, last = save_steps(target, 2)
    overwrite(target, last, target.medium.read(first))
    yield loads(target, step(1))


@moved("fast-forward", "SP13")
def fast_forward(target: Target) -> Iterator[Look]:
    """An old record is copied far ahead: it becomes the newest, or hides what is saved later."""

    def look(thread: str) -> bool:
        if target.latest(thread) == step(1):
            return True
        target.save(thread, step(3))
        return bool(target.latest(thread) != step(3))

    for number in (3, 4, 1_000, MAX_SEQUENCE):
        thread = f"victim-{number}"
        old = target.medium.read(save_steps(target, 2, thread)[0])
        overwrite(target, target.place(thread, number), old, thread)
        yield partial(look, thread)


@moved("point-elsewhere", "SP12")
def point_elsewhere(target: Target) -> Iterator[Look]:
    """An index says which record is the approved one, and points at a draft."""

    def finds(label: str) -> bool:
        return bool(target.find("victim", label) == WANTED)

    target.file("victim", "final", HONEST)
    target.file("victim", "draft", WANTED)
    target.medium.tap = lambda _, record: record  # where to look says the adversary
    for label in ("final", "approved"):
        target.point("victim", label, 2)
        yield partial(finds, label)
    target.medium.tap = None


@moved("backdate-clock", "SP13")
def backdate_clock(target: Target) -> Iterator[Look]:
    """The newest record is dated 1970, so a store that sorts by date resumes the one before."""
    name = save_steps(target, 2)[-1]
    overwrite(target, name, _DATE.sub(b"1970-01-01T", target.medium.read(name)))
    if isinstance(target.medium, Disk):
        os.utime(target.path / name, (0, 0))
    yield loads(target, step(1))


# On the past. An operator went back to an older step and on from there, so there are two records
# of one number, each of them genuine and in its place. Only a link can say which belongs there.
# The victim is a careful one, who looks at the whole history.


@past("reorder", "SP14")
def reorder(target: Target) -> Iterator[Look]:
    """First approved, then asked: two steps of the past have changed places."""
    return _put_back(target, 1, [step(3), step(2)], [step(2), step(3), step(4)])


@past("delete-middle", "SP14")
def delete_middle(target: Target) -> Iterator[Look]:
    """The step that set a limit is gone; a record of an abandoned attempt takes its number."""
    return _put_back(target, 1, [step(2)], [{**step(2), "limit": 10}, step(3), step(4)])


@past("splice-branches", "SP14")
def splice_branches(target: Target) -> Iterator[Look]:
    """After a restart from an older step, a record of the abandoned try is put back in."""
    return _put_back(target, 2, [WANTED], [step(3), step(4)])


def _put_back(
    target: Target, since: int, abandoned: list[dict[str, Any]], kept: list[dict[str, Any]]
) -> Iterator[Look]:
    """Let the victim try twice after a step and put the first try back over the second."""
    save_steps(target, since)
    for state in abandoned:
        target.save("victim", state)
    old = [target.medium.read(name) for name in target.records("victim")[since:]]
    target.go_back("victim", since)
    for state in kept:
        target.save("victim", state)
    names = target.records("victim")[since:]
    if (len(old), len(names)) != (len(abandoned), len(kept)):
        raise Miss
    for name, record in zip(names, old, strict=False):
        target.medium.write(name, record)
    target.relink("victim")
    yield unnoticed(lambda: target.history("victim"))


@past("cut-oldest", "SP14")
def cut_oldest(target: Target) -> Iterator[Look]:
    """The first steps are gone, and what an abandoned try was pruned to vouches for that."""
    save_steps(target, 3)
    backup = target.medium.copy()
    target.prune("victim", 1)
    added = set(target.medium.names()) - set(backup.names())
    base = {name: target.medium.read(name) for name in added}
    target.medium.restore(backup)
    target.go_back("victim", 1)
    for number in (22, 33, 4):
        target.save("victim", step(number))
    names = target.records("victim")
    for name in names[:2]:
        target.medium.delete(name)
    for name, content in base.items():
        target.medium.write(name, content)
    if not base:  # the numbers must begin at 1, as if there had never been more
        for free, name in zip(names[:2], names[2:], strict=True):
            target.medium.rename(name, free)
    target.relink("victim")
    yield unnoticed(lambda: target.history("victim"))


@past("forged-base", "SP13")
def forged_base(target: Target) -> Iterator[Look]:
    """The first steps are gone, and a note without the key says that they were pruned."""
    for trick in get_args(Trick):
        thread = f"victim-{trick}"
        save_steps(target, 3, thread)
        with suppress(Miss):
            target.cut(thread, 2, trick)
            yield unnoticed(partial(target.history, thread))


@live("aliasing", "SP13")
def aliasing(target: Target) -> Iterator[Look]:
    """The store keeps a reference to the object, so its caller can still change the past."""

    def look() -> bool:
        state = dict(HONEST)
        target.save("victim", state)
        state.update(WANTED)
        loaded = target.latest("victim")
        if loaded != WANTED:
            loaded.update(WANTED)
        return bool(target.latest("victim") == WANTED)

    saved(target)
    yield look


@live("time-of-check", "SP02")
def time_of_check(target: Target) -> Iterator[Look]:
    """A store that reads twice checks the genuine record, and then uses another one."""
    name = saved(target)
    other = target.edit(target.medium.read(name), b"alice", b"mally")
    reads: list[str] = []

    def serve(asked: str, record: bytes) -> bytes:
        if asked != name:
            return record
        reads.append(asked)
        return other if len(reads) > genuine else record

    target.medium.tap = serve
    genuine = 1_000
    target.latest("victim")
    # The other record is there from the second read on, from the third, and so on. A store that
    # reads once leaves no gap to step into.
    for genuine in range(1, len(reads)):  # noqa: B007  serve looks at it
        reads.clear()
        yield loads(target, WANTED)
    target.medium.tap = None


@rollback("restore-snapshot", "SP15")
def restore_snapshot(target: Target) -> Iterator[Look]:
    """Last night's copy of the store is put back, and today's payments are made again."""
    target.save("victim", step(1))
    snapshot = target.medium.copy()
    target.save("victim", step(2))
    target.medium.restore(snapshot)
    yield loads(target, step(1))


@rollback("cut-newest", "SP15")
def cut_newest(target: Target) -> Iterator[Look]:
    """The newest record is deleted, and the step that it recorded runs again."""
    target.medium.delete(save_steps(target, 3)[-1])
    yield loads(target, step(2))


@rollback("cut-all-but-first", "SP15")
def cut_all_but_first(target: Target) -> Iterator[Look]:
    """All records but the first are deleted, and the workflow starts almost from the beginning."""
    for name in save_steps(target, 4)[1:]:
        target.medium.delete(name)
    yield loads(target, step(1))


@rollback("delete-thread", "SP15")
def delete_thread(target: Target) -> Iterator[Look]:
    """A thread vanishes, and an order that was paid is begun again as a new one."""

    def begin_again() -> bool:
        target.save("victim", step(1))
        return bool(target.latest("victim") == step(1))

    for name in save_steps(target, 2):
        target.medium.delete(name)
    yield begin_again


@rollback("undelete-thread", "SP15")
def undelete_thread(target: Target) -> Iterator[Look]:
    """A thread that was deleted on purpose comes back out of an old copy, and runs."""
    target.save("victim", step(1))
    snapshot = target.medium.copy()
    target.delete("victim")
    target.medium.restore(snapshot)
    yield loads(target, step(1))


@rollback("undelete-by-number", "SP13")
def undelete_by_number(target: Target) -> Iterator[Look]:
    """A thread's old records are put back next to its tombstone, and one is loaded by number."""
    save_steps(target, 2)
    before = {name: target.medium.read(name) for name in target.medium.names()}
    target.delete("victim")
    added = set(target.medium.names()) - set(before) - set(target.records("victim"))
    for name in added:
        target.medium.delete(name)
    for name, record in before.items():
        target.medium.write(name, record)
    yield lambda: bool(target.oldest("victim") == step(1))
    yield lambda: bool(target.load("victim", 1) == step(1))


@rollback("freeze", "SP15")
def freeze(target: Target) -> Iterator[Look]:
    """A replica is frozen, so its readers keep seeing yesterday's newest record."""
    target.save("victim", step(1))
    replica = target.medium.copy()
    target.save("victim", step(2))
    yield lambda: bool(target.on(replica).latest("victim") == step(1))


@asked("guess-thread", "SP30")
def guess_thread(target: Target) -> Iterator[Look]:
    """A client names the thread of another customer, and the application resumes it."""
    target.client("alice").save("victim", HONEST)
    yield loads(target.client("mally"), HONEST)


@rollback("fork", "SP15", attacker="key")
def fork(target: Target) -> Iterator[Look]:
    """A copy of the store is continued elsewhere under the same key, then takes its place."""
    save_steps(target, 2)
    other = target.twin(target.medium.copy())
    target.save("victim", step(3))
    other.save("victim", step(33))
    other.save("victim", WANTED)
    target.medium.restore(other.medium)
    yield loads(target, WANTED)
