"""The ledger: what it promises to an application, who may write, and what it writes down."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Actor,
    CheckpointError,
    Conflict,
    FileCheckpointStorage,
    InMemoryAnchor,
    Keyring,
    Ledger,
    NotFound,
    NotOwner,
    RolledBack,
    SealBroken,
    SigningKey,
    SQLiteAnchor,
    SQLiteJournal,
)
from safepoint.core.errors import ConfigurationError, EncodeError, InvalidId, Unavailable, Unsafe
from safepoint.core.journal import Journal
from tests.house import KEY, KEYS, STORE, THREAD, USES, House, Memory, Plain, fill, opened
from tests.unit.desk import FullDisk

GENERATED = SigningKey.generate()
State = dict[str, Any]


def test_what_was_saved_is_loaded(storage: Memory, anchor: InMemoryAnchor | None) -> None:
    ledger, before = opened(storage, anchor), datetime.now(UTC)
    tools = f"sha256:{'a' * 64}"
    saved = [ledger.save(THREAD, {"n": n}, app="invoice", tools=tools) for n in range(1, 5)]
    ledger.save("order-6", "another thread")
    again = opened(storage, anchor)
    assert list(again.history(THREAD)) == saved
    assert again.latest(THREAD) == again.load(THREAD, 4) == saved[-1]
    assert again.load(THREAD, 2) == saved[1]
    assert [each.sequence for each in saved] == [1, 2, 3, 4]
    assert [each.previous for each in saved] == [None, *(each.digest for each in saved[:-1])]
    assert (saved[0].app, saved[0].tools, saved[0].state) == ("invoice", tools, {"n": 1})
    assert before <= saved[0].created <= datetime.now(UTC)
    assert again.verify(THREAD) == 4
    assert again.threads() == ["order-6", THREAD]
    again.latest(THREAD).state["n"] = 9
    assert again.latest(THREAD).state == {"n": 4}


def test_a_save_that_builds_on_an_old_checkpoint_is_refused(storage: Memory) -> None:
    """And two ledgers on one storage follow each other, whatever they remember."""
    ledger = opened(storage)
    ledger.save(THREAD, 1, after=0)
    opened(storage).save(THREAD, 2, after=1)
    for after in (0, 1, 3, 10**5000):
        with pytest.raises(Conflict, match="order-7 is at #2, and this save builds on #"):
            ledger.save(THREAD, 3, after=after)
    ledger.save(THREAD, 3)
    assert [each.state for each in ledger.history(THREAD)] == [1, 2, 3]


def test_what_changes_while_the_process_runs_is_refused(storage: Memory) -> None:
    """The ledger remembers what it wrote: neither an older end nor another one takes its place."""
    ledger, other = opened(storage), Memory()
    fill(ledger, 3)
    fill(opened(other), 3)
    genuine = storage.read(THREAD, 3)
    storage.put(THREAD, 3, other.read(THREAD, 3))
    with pytest.raises(RolledBack, match="#3 is not the record that this process has seen there"):
        ledger.latest(THREAD)
    storage.put(THREAD, 3, genuine.replace(b"\x81\xa1n\x03", b"\x81\xa1n\x09"))
    for use in ("latest", "save", "delete"):
        with pytest.raises(
            SealBroken, match="not the one that was sealed"
        ):  # neither passed over nor built on
            USES[use](opened(storage))
    storage.put(THREAD, 3, genuine)
    assert ledger.latest(THREAD).state == {"n": 3}
    storage.remove(THREAD, 3)
    for use in ("latest", "save", "load"):
        with pytest.raises(RolledBack, match="ends at #2, and this process has seen #3"):
            USES[use](ledger)


def test_no_refusal_shows_state_or_key() -> None:
    """A canary in the state and in the key appears in no message, repr or traceback."""
    storage = Memory()
    keys = Keyring(SigningKey(b"canary-canary-canary-canary-1234"))
    saved = opened(storage, keys=keys).save(THREAD, {"secret": "canary"})
    genuine = storage.read(THREAD, 1)
    shown = f"{saved!r} {opened(storage, keys=keys)!r}"
    planted = [b"", b"canary", genuine[:-3], genuine.replace(b"canary", b"canarY"), genuine + b"x"]
    for record in planted:
        storage.put(THREAD, 1, record)
        try:
            opened(storage, keys=keys).latest(THREAD)
        except SealBroken:
            shown += traceback.format_exc()
    assert shown.count("Traceback") == len(planted)
    assert "canary" not in shown


# ---------------------------------------------------------------- what a caller got wrong


@pytest.mark.parametrize("thread", ["..", None])
def test_a_bad_name_reaches_no_storage(thread: Any) -> None:
    ledger = opened(Memory())
    ledger._view.storage = object()  # type: ignore[assignment]  # nobody may ask it
    for act in (
        lambda: ledger.save(thread, 1),
        lambda: ledger.load(thread, 1),
        lambda: ledger.latest(thread),
        lambda: list(ledger.history(thread)),
        lambda: ledger.verify(thread),
        lambda: ledger.prune(thread, keep=1),
        lambda: ledger.delete(thread),
        lambda: ledger.erase(thread),
        lambda: ledger.copy_to(opened(Memory()), threads=[thread]),
    ):
        with pytest.raises(InvalidId):
            act()


FIXED: Any = type("Fixed", (InMemoryAnchor,), {"rewind": None})


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda: opened(Memory()).latest(THREAD), NotFound),
        (lambda: opened(Memory()).accept_loss(THREAD), ConfigurationError),
        (lambda: opened(Memory(), FIXED()).accept_loss(THREAD), ConfigurationError),
        *((lambda s=s: opened(Memory(), store=s), InvalidId) for s in ("safepoint-x", "journal")),
        (lambda: opened(Memory(), worker="The Worker"), InvalidId),
        (lambda: opened(Four(), worker="one"), ConfigurationError),
        *(
            (lambda k=k: opened(Memory()).prune(THREAD, keep=k), ConfigurationError)
            for k in (0, True)
        ),
        *((lambda n=n: opened(Memory()).load(THREAD, n), InvalidId) for n in (0, True, 10**10)),
    ],
)
def test_what_is_wrong_from_the_start_is_refused(use: Any, error: type[CheckpointError]) -> None:
    with pytest.raises(error) as refusal:
        use()
    assert type(refusal.value) is error


@pytest.mark.parametrize("how", ["made there", "written there", "trusted there"])
def test_a_key_inside_the_storage_folder_is_refused(tmp_path: Path, how: str) -> None:
    storage, file = FileCheckpointStorage(tmp_path / "store"), tmp_path / "store" / "signing.key"
    if how == "written there":
        key = GENERATED
        key.to_file(file)
    else:
        key = SigningKey.from_file(file, create=True)
    keys = Keyring(KEY, verify=[key]) if how == "trusted there" else Keyring(key)
    for use in (opened, Journal):
        with pytest.raises(Unsafe, match="is inside the storage folder"):
            use(storage, keys=keys)
    beside = SigningKey.from_file(tmp_path / "store-keys" / "signing.key", create=True)
    opened(storage, keys=Keyring(beside))


@pytest.mark.parametrize(("store", "inside"), [("a", "a/b"), ("a/b", "a"), ("a", "a")])
def test_an_anchor_or_a_journal_in_one_place_with_the_storage_is_refused(
    tmp_path: Path, store: str, inside: str
) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    with pytest.raises(Unsafe, match="The ledger and the journal both have"):
        opened(Memory(), journal=Journal(Memory(), keys=KEYS))
    keys, storage = Keyring(GENERATED), FileCheckpointStorage(tmp_path / store)
    anchor = SQLiteAnchor(tmp_path / inside / "heads.db", create=True)
    journal = SQLiteJournal(tmp_path / inside / "journal.db", keys=keys, create=True)
    for act in (
        lambda: opened(storage, anchor),
        lambda: opened(storage, journal=journal),
        lambda: opened(storage, journal=Journal(Memory(), keys=keys, anchor=anchor)),
        lambda: Journal(storage, keys=keys, anchor=anchor),
        lambda: Journal(storage, keys=keys).anchored_in(anchor, STORE),
    ):
        with pytest.raises(ConfigurationError, match="is in the same place as the storage"):
            act()


# ---------------------------------------------------------------- a storage of somebody's own


class Sly(bytes):
    """Bytes that hash as what they are, and may slice as something else."""


def answering(answer: Any) -> Any:
    def answered(*_: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return iter(answer) if isinstance(answer, list) else answer

    return answered


@pytest.mark.parametrize(
    ("method", "answer", "use", "told"),
    [
        ("append", KeyError(), "save", "keep order-7 #4: it raised KeyError"),
        ("append", KeyError(), "delete", "keep order-7 #4: it raised KeyError"),
        ("read", ConnectionResetError(), "latest", "read order-7: it raised ConnectionReset"),
        ("read", Sly(b"x"), "load", "read order-7: it raised TypeError"),
        ("head", None, "latest", "find the latest of order-7"),
        ("head", -1, "latest", "find the latest of order-7"),
        ("head", True, "save", "find the latest of order-7"),
        ("scan", [], "verify", "read order-7: it raised"),
        ("scan", [Sly(b"x")] * 3, "history", "read order-7: it raised TypeError"),
        ("scan", RuntimeError(), "copy", "read order-7: it raised RuntimeError"),
        ("prune", ZeroDivisionError(), "prune", "prune order-7: it raised ZeroDivisionError"),
        ("threads", RuntimeError(), "threads", "list the threads"),
        *(
            ("base", odd, "verify", "read the base of order-7")
            for odd in [(1,), (1, b"", 2), ("1", b""), (1, "text"), (True, b""), 7]
        ),
    ],
)
def test_a_storage_that_fails_is_one_error_of_the_tree(
    monkeypatch: pytest.MonkeyPatch, method: str, answer: Any, use: str, told: str
) -> None:
    storage = Plain() if method in ("read", "head") else Memory()
    fill(opened(storage), 3)
    ledger = opened(storage)
    monkeypatch.setattr(storage, method, answering(answer))
    with pytest.raises(Unavailable, match=f"^The storage could not {told}"):
        {**USES, "threads": Ledger.threads}[use](ledger)


class Four:
    """A storage of somebody's own, with the four methods and no more."""

    def __init__(self) -> None:
        inner = Memory()
        self.append, self.read = inner.append, inner.read
        self.head, self.threads = inner.head, inner.threads


def test_four_methods_are_enough_to_save_verify_and_copy() -> None:
    source, target = opened(Four()), opened(Four())
    fill(source, 3)
    assert source.copy_to(target) == source.verify(THREAD) == target.verify(THREAD) == 3
    source.owners.keep(THREAD)  # it knows no owners
    for use in (USES["prune"], USES["erase"], lambda ledger: ledger.own(THREAD, "worker-1")):
        with pytest.raises(ConfigurationError, match="is no"):
            use(source)
    pruned = Memory()
    fill(opened(pruned), 3)
    opened(pruned).prune(THREAD, keep=1)
    with pytest.raises(ConfigurationError, match="is not a RetentionStorage"):
        opened(pruned).copy_to(opened(Four()))


# ---------------------------------------------------------------- one worker owns a thread


def owner_of(ledger: Any) -> Any:
    return (lease := ledger.storage.lease(THREAD)) and lease.owner


def test_only_the_owner_writes(house: House) -> None:
    owner, other = house.ledger(), house.ledger()
    with owner.own(THREAD, "worker-1", seconds=60) as owned:
        owner.save(THREAD, {})
        with pytest.raises(NotOwner):
            other.save(THREAD, {})
        with pytest.raises(ConfigurationError):
            owner.own(THREAD, "worker-1")
        assert owner_of(owner) == "worker-1"
        with pytest.raises(NotOwner, match="is held by worker 'worker-1'"):
            other.owners.keep(THREAD)
        before = owned.lease.expires
        owner.owners.keep(THREAD)
        assert (owned.lease.token, owned.lease.expires > before) == (1, True)
    assert other.save(THREAD, {}).sequence == 2  # free again
    owner.owners.keep(THREAD)


def test_a_former_owner_is_refused_and_its_step_does_not_run(house: House) -> None:
    old = house.ledger()
    owned = old.own(THREAD, "worker-1", seconds=60)
    run = house.workflow().begin(old, thread=THREAD)
    house.late = timedelta(hours=1)
    house.storage.acquire(THREAD, "worker-2", 9999)  # it took over
    with pytest.raises(NotOwner, match="If another worker has it, stop"):
        run.step()
    with pytest.raises(NotOwner):
        old.save(THREAD, {})
    assert (house.ran, house.ledger().latest(THREAD).sequence) == ([], 1)
    assert house.told() == [
        "own done",
        "save intended",
        "own refused",
        "save intended",
        "save refused",
    ]
    owned.release()
    owned.release()
    assert owner_of(house.ledger()) == "worker-2"


def test_where_a_lease_has_ended_no_step_runs_until_somebody_owns_the_thread(house: House) -> None:
    """The storage refuses the save of anybody but the last holder, so nobody else acts first."""
    other = house.ledger()
    run = house.workflow().begin(other, thread=THREAD)
    house.late = -timedelta(hours=1)
    house.storage.acquire(THREAD, "worker-1", 60)  # and it died
    house.late = timedelta(0)
    with pytest.raises(NotOwner, match="is held by worker 'worker-1'"):
        house.workflow().resume(other, thread=THREAD)
    with pytest.raises(NotOwner, match="is held by worker 'worker-1'"):
        run.step()
    assert house.ran == []
    with other.own(THREAD, "worker-2"):
        house.workflow().resume(other, thread=THREAD)
    assert house.ran == ["act"]


# ---------------------------------------------------------------- claimed by whoever writes first


def test_the_first_write_claims_a_thread() -> None:
    late = [timedelta(0)]
    worker = partial(opened, Memory(clock=lambda: datetime.now(UTC) + late[0]), None)
    one, two = worker(worker="one"), worker(worker="two")
    one.save(THREAD, {})
    one.save(THREAD, {})
    for other in (two, worker(worker="three"), worker()):
        with pytest.raises(NotOwner, match="is owned by worker"):
            other.save(THREAD, {})
        with pytest.raises(NotOwner):
            other.owners.keep(THREAD)
    one.owners.release("order-8")
    one.owners.release(THREAD)
    assert two.save(THREAD, {}).sequence == 3
    assert owner_of(two) == "two"
    late[0] += timedelta(minutes=2)  # it is silent for too long, and another one writes
    assert one.delete(THREAD).sequence == 4
    for _ in range(2):  # what was overtaken does not go on, until somebody says so
        with pytest.raises(NotOwner, match="this lease of worker 'two' has token"):
            two.owners.keep(THREAD)
    two.owners.release()
    one.owners.release()
    assert owner_of(two) is None
    two.owners.keep(THREAD)  # a step acts before it writes
    assert owner_of(two) == "two"
    two.save("order-8", {})
    worker(worker="two").save("order-8", {})  # it was restarted, and its former self is fenced off
    with pytest.raises(NotOwner):
        two.rotated(KEYS).save("order-8", {})


def test_a_ledger_and_its_tenants_are_one_owner_and_any_other_ledger_is_another() -> None:
    """Two handles of one process take no thread from each other: neither by turns nor at once."""
    storage = Memory()
    ledger, other = (opened(storage, worker=f"w-{n}") for n in range(2))
    first, second = ledger.tenant("acme"), ledger.tenant("acme")
    for sequence, each in enumerate((first, second, first, second.rotated(KEYS)), 1):
        assert each.save(THREAD, {}).sequence == sequence
    assert ledger.tenant("acme").save(THREAD, {}).sequence == 5  # those before it may be gone
    ledger.save(THREAD, {})
    for handle in (other, other.tenant("acme")):
        with pytest.raises(NotOwner, match="is owned by worker"):
            handle.save(THREAD, {})
    ledger.owners.release()  # and not what is its tenant's
    assert other.save(THREAD, {}).sequence == 2
    assert owner_of(first) is not None
    second.owners.release(THREAD)
    assert other.tenant("acme").save(THREAD, {}).sequence == 6


# ---------------------------------------------------------------- what is written down


def test_a_save_is_written_down_with_its_digest_before_it_happens(house: House) -> None:
    worker = Actor("worker-1", "its certificate")
    saved = house.ledger(actor=worker).save(THREAD, {"secret": "canary"})
    entry = house.last()
    assert (entry.what, entry.outcome, entry.sequence) == ("save", "intended", 1)
    assert (entry.digest, entry.actor) == (saved.digest, worker)
    with pytest.raises(EncodeError):
        house.ledger().save(THREAD, {"password": object(), "canary": 1})
    with pytest.raises(Conflict):
        house.ledger().save(THREAD, {}, after=0)
    assert house.last().detail == "Conflict: order-7 is at #1, and this save builds on #0."
    assert "canary" not in str(house.journal._view.storage._records)  # type: ignore[attr-defined]
    house.ledger().save(THREAD, {})
    assert house.last().actor == Actor.process()
    assert house.ledger(journal=None).log.actor is None
    lines = len(house.told())
    with pytest.raises(NotFound):  # what is not there is no news
        house.ledger().latest("order-9")
    assert len(house.told()) == lines


def test_without_a_journal_nothing_is_saved(house: House) -> None:
    with pytest.raises(Unavailable, match="There is no room"):
        house.ledger(journal=FullDisk(0)).save(THREAD, {})
    assert house.storage.head(THREAD) == 0


def test_each_failure_to_verify_is_written_down(house: House) -> None:
    fill(house.ledger(), 2)
    house.storage.remove(THREAD, 2)
    for use in ("latest", "load", "history", "verify", "prune", "delete", "erase"):
        before = len(house.told())
        with pytest.raises(RolledBack, match="the anchor has seen") as refusal:
            USES[use](house.ledger())
        with pytest.raises(RolledBack):  # it stands, also where none can be written
            USES[use](house.ledger(journal=FullDisk(0)))
        assert house.told()[before:] == ["verify refused"]
        assert house.last().detail == f"{type(refusal.value).__name__}: {refusal.value.what}"


ACTS: dict[str, Callable[[Ledger], object]] = {
    "prune": lambda ledger: ledger.prune(THREAD, keep=2),
    "accept-loss": lambda ledger: ledger.accept_loss(THREAD),
    "copy": lambda ledger: ledger.copy_to(House().ledger()),
    "own": lambda ledger: ledger.own("order-8", "worker-1").release(),
    "rotate": lambda ledger: ledger.rotated(Keyring(GENERATED, verify=KEY)),
    "delete": lambda ledger: ledger.delete(THREAD),
    "erase": lambda ledger: ledger.erase(THREAD),
}


def test_what_an_operator_does_is_written_down_or_does_not_happen(house: House) -> None:
    for _ in range(3):
        house.ledger().save(THREAD, {})
    before = dict(house.storage._records["", THREAD])
    for what, act in ACTS.items():
        with pytest.raises(
            ConfigurationError if what == "erase" else Unavailable,
            match=r"There is no room|is not deleted",
        ):
            act(house.ledger(journal=FullDisk(0)))
    assert (house.storage._records["", THREAD], house.storage.base(THREAD)) == (before, None)
    assert (house.storage.lease("order-8"), len(house.told())) == (None, 3)
    for what, act in ACTS.items():
        if what == "erase":  # of what is deleted by now
            with pytest.raises(Unavailable, match="There is no room"):
                act(house.ledger(journal=FullDisk(0)))
            assert len(house.storage._records["", THREAD]) == 3
        act(house.ledger())
        told = [line for line in house.told() if line.startswith(what)]
        # A tombstone is a record, and its digest is in the entry that was written before it.
        outcomes = {"own": ["done"], "delete": ["intended"]}.get(what, ["intended", "done"])
        assert told == [f"{what} {outcome}" for outcome in outcomes]
    (rotation,) = (each for each in house.journal.show(what="rotate") if each.outcome == "done")
    assert f" to Keyring(signing={GENERATED}, keys=[" in rotation.detail
    assert f"', '{GENERATED.id}'])" in rotation.detail
