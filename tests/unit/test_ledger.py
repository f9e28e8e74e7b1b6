"""The ledger: what it promises to an application."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from typing import Any

import pytest

from safepoint import (
    CheckpointError,
    Conflict,
    FileAnchor,
    FileCheckpointStorage,
    InMemoryAnchor,
    Keyring,
    Ledger,
    LimitExceeded,
    NotFound,
    RolledBack,
    SealBroken,
    SealError,
    SigningKey,
)
from safepoint.errors import (
    AnchorUnavailable,
    ConfigurationError,
    DecodeError,
    EncodeError,
    Forked,
    InvalidId,
    KeyRefused,
    StorageUnavailable,
    WrongPlace,
)
from safepoint.names import Head
from safepoint.record import Place, seal
from tests.unit.tampered import KEY, KEYS, STORE, THREAD, USES, Memory, Writable, fill, opened

GENERATED = SigningKey.generate()


def test_what_was_saved_is_loaded(storage: Writable, anchor: InMemoryAnchor | None) -> None:
    ledger, before = opened(storage, anchor), datetime.now(UTC)
    tools = f"sha256:{'a' * 64}"
    saved = [ledger.save(THREAD, {"n": n}, app="invoice", tools=tools) for n in range(1, 5)]
    ledger.save("order-6", "another thread")
    again = opened(storage, anchor)
    assert list(again.history(THREAD)) == saved
    assert again.latest(THREAD) == again.load(THREAD, 4) == saved[-1]
    assert again.load(THREAD, 2) == again.load(THREAD, 2, linked=True) == saved[1]
    assert [each.sequence for each in saved] == [1, 2, 3, 4]
    assert [each.previous for each in saved] == [None, *(each.digest for each in saved[:-1])]
    assert (saved[0].app, saved[0].tools, saved[0].state) == ("invoice", tools, {"n": 1})
    assert before <= saved[0].created <= datetime.now(UTC)
    assert again.verify(THREAD) == 4
    assert again.threads() == ["order-6", THREAD]


def test_changing_a_loaded_state_changes_nothing_stored() -> None:
    ledger, state = opened(Memory()), {"items": [1]}
    ledger.save(THREAD, state)
    state["items"].append(2)
    ledger.latest(THREAD).state["items"].append(3)
    assert ledger.latest(THREAD).state == {"items": [1]}


def test_a_save_that_builds_on_an_old_checkpoint_is_refused(storage: Writable) -> None:
    ledger = opened(storage)
    ledger.save(THREAD, 1, after=0)
    ledger.save(THREAD, 2, after=1)
    for after in (0, 1, 3, 10**5000):
        with pytest.raises(Conflict, match="order-7 is at #2, and this save builds on #"):
            ledger.save(THREAD, 3, after=after)
    assert ledger.latest(THREAD).state == 2


def test_two_ledgers_on_one_storage_follow_each_other(storage: Writable) -> None:
    """Neither trusts what it remembers of a head that the other has moved."""
    one, two = opened(storage), opened(storage)
    for n in range(6):
        (one if n % 2 else two).save(THREAD, n)
    assert [each.state for each in opened(storage).history(THREAD)] == [0, 1, 2, 3, 4, 5]


def test_many_threads_do_not_grow_the_memory_of_heads() -> None:
    ledger = opened(Memory())
    for n in range(1100):
        ledger.save(f"t-{n}", n)
    ledger.save("t-0", "again")
    assert len(ledger._view._seen) <= 1024
    assert [each.state for each in ledger.history("t-0")] == [0, "again"]


def test_a_broken_newest_checkpoint_is_neither_passed_over_nor_built_on(storage: Writable) -> None:
    fill(opened(storage), 2)
    storage.put(THREAD, 2, storage.read(THREAD, 2).replace(b'{"n":2}', b'{"n":9}'))
    for use in ("latest", "save", "delete"):
        with pytest.raises(SealBroken):
            USES[use](opened(storage))
    assert storage.head(THREAD) == 2


def test_history_refuses_a_replaced_middle_even_by_a_holder_of_the_key(storage: Writable) -> None:
    ledger = opened(storage)
    fill(ledger, 3)
    previous = ledger.load(THREAD, 1).digest
    place, now = Place(STORE, THREAD, 2), datetime.now(UTC)
    storage.put(THREAD, 2, seal(b'{"n":9}', place, KEY, created=now, previous=previous)[0])
    for use in (USES["history"], lambda ledger: ledger.load(THREAD, 2, linked=True)):
        with pytest.raises(SealError, match=r"order-7 #[23] "):
            use(opened(storage))
    assert opened(storage).load(THREAD, 2).state == {"n": 9}  # by its own seal


def test_what_changes_while_the_process_runs_is_refused(storage: Writable) -> None:
    """The ledger remembers what it wrote: neither an older end nor another one takes its place."""
    ledger, other = opened(storage), Memory()
    fill(ledger, 3)
    fill(opened(other), 3)
    genuine = storage.read(THREAD, 3)
    storage.put(THREAD, 3, other.read(THREAD, 3))
    with pytest.raises(Forked, match="#3 is not the record that this process has seen there"):
        ledger.latest(THREAD)
    storage.put(THREAD, 3, genuine)
    assert ledger.latest(THREAD).state == {"n": 3}
    storage.remove(THREAD, 3)
    for use in ("latest", "save", "load"):
        with pytest.raises(RolledBack, match="ends at #2, and this process has seen #3"):
            USES[use](ledger)
    assert opened(storage).latest(THREAD).state == {"n": 2}


def test_a_genuine_record_with_an_unregistered_type_is_refused() -> None:
    storage, place = Memory(), Place(STORE, THREAD, 1)
    payload = b'{"$Invoice":{"amount":42}}'
    storage.append(THREAD, 1, seal(payload, place, KEY, created=datetime.now(UTC))[0])
    with pytest.raises(DecodeError):
        opened(storage).latest(THREAD)


def test_state_that_cannot_be_restored_is_not_saved() -> None:
    ledger = opened(Memory())
    with pytest.raises(EncodeError):
        ledger.save(THREAD, object())
    assert ledger.threads() == []


class Untouchable:
    """A storage that nobody may ask."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(name)


@pytest.mark.parametrize("thread", ["", "..", "A", "a/b", "a\nb", None, 7])
def test_a_bad_name_reaches_no_storage(thread: Any) -> None:
    ledger = Ledger(Memory(), store=STORE, keys=KEYS)
    ledger._view.storage = Untouchable()  # type: ignore[assignment]
    for act in (
        lambda: ledger.save(thread, 1),
        lambda: ledger.load(thread, 1),
        lambda: ledger.latest(thread),
        lambda: list(ledger.history(thread)),
        lambda: ledger.verify(thread),
        lambda: ledger.prune(thread, keep=1),
        lambda: ledger.delete(thread),
        lambda: ledger.copy_to(opened(Memory()), threads=[thread]),
    ):
        with pytest.raises(InvalidId):
            act()


def test_a_huge_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Memory()
    monkeypatch.setattr(storage, "head", lambda _: 1)
    monkeypatch.setattr(storage, "read", lambda *_: b"x" * (17 * 1024 * 1024))
    with pytest.raises(LimitExceeded):
        opened(storage).latest(THREAD)


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
        except SealError:
            shown += traceback.format_exc()
    assert shown.count("Traceback") == len(planted)
    assert "canary" not in shown


# A storage or an anchor of somebody's own


class Sly(bytes):
    """Bytes that hash as what they are, and may slice as something else."""


ODD_BASES = [(), (1,), (1, b"", 2), ("1", b""), (1, "text"), (True, b""), (1.0, b""), 7, "base"]


@pytest.mark.parametrize(
    ("method", "answer", "use", "told"),
    [
        ("append", KeyError(), "save", "keep order-7: it raised KeyError"),
        ("append", KeyError(), "delete", "keep order-7: it raised KeyError"),
        ("read", ConnectionResetError(), "latest", "read order-7 #3: it raised ConnectionReset"),
        ("read", "text", "latest", "read order-7 #3: it raised TypeError"),
        ("read", Sly(b"x"), "load", "read order-7 #3: it raised TypeError"),
        ("head", None, "latest", "find the latest of order-7"),
        ("head", -1, "latest", "find the latest of order-7"),
        ("head", True, "save", "find the latest of order-7"),
        ("scan", [], "verify", "read order-7: it raised"),
        ("scan", ["text"] * 3, "history", "read order-7: it raised TypeError"),
        ("scan", [Sly(b"x")] * 3, "history", "read order-7: it raised TypeError"),
        ("scan", RuntimeError(), "copy", "read order-7: it raised RuntimeError"),
        ("prune", ZeroDivisionError(), "prune", "prune order-7: it raised ZeroDivisionError"),
        *(("base", odd, "verify", "read the base of order-7") for odd in ODD_BASES),
    ],
)
def test_a_storage_that_fails_is_one_error_of_the_tree(
    monkeypatch: pytest.MonkeyPatch, method: str, answer: Any, use: str, told: str
) -> None:
    storage = Memory()
    fill(opened(storage), 3)
    ledger = opened(storage)
    monkeypatch.setattr(storage, method, answering(answer))
    with pytest.raises(StorageUnavailable, match=f"^The storage could not {told}"):
        USES[use](ledger)


def answering(answer: Any) -> Any:
    def answered(*_: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return iter(answer) if isinstance(answer, list) else answer

    return answered


@pytest.mark.parametrize("names", [[None], ["a", 7], 5, RuntimeError()])
def test_threads_that_are_no_names_are_refused(monkeypatch: pytest.MonkeyPatch, names: Any) -> None:
    storage, anchor = Memory(), InMemoryAnchor()
    monkeypatch.setattr(anchor, "threads", answering(names))
    with pytest.raises(AnchorUnavailable, match="could not list the threads"):
        opened(storage, anchor).threads()
    monkeypatch.setattr(storage, "threads", answering(names))
    with pytest.raises(StorageUnavailable, match="could not list the threads"):
        opened(storage).threads()


@pytest.mark.parametrize("first", [0, -1, 10**10])
def test_a_base_at_an_impossible_place_is_refused(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Memory()
    fill(opened(storage), 5)
    opened(storage).prune(THREAD, keep=3)
    base = storage.base(THREAD)
    assert base is not None
    monkeypatch.setattr(storage, "base", lambda _: (first, base[1]))
    with pytest.raises(WrongPlace):
        opened(storage).verify(THREAD)


def test_a_storage_whose_attributes_fail_stays_inside_the_tree() -> None:
    class Proxy(Memory):
        away = False

        def __getattribute__(self, name: str) -> Any:
            if name in ("base", "scan", "prune", "path") and Proxy.away:
                raise ConnectionError
            return super().__getattribute__(name)

    storage = Proxy()
    ledger = opened(storage)
    fill(ledger, 2)
    Proxy.away = True
    for use in ("verify", "prune", "delete"):
        with pytest.raises(CheckpointError):
            USES[use](ledger)
    opened(storage).latest(THREAD)


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
    assert source.owner(THREAD) is None
    for use, told in [
        (USES["prune"], "Four cannot remove records. Add the methods base, prune of"),
        (USES["delete"], "Four cannot remove records. Add the methods base, prune of"),
        (
            lambda ledger: ledger.own(THREAD, "worker-1"),
            "Four knows no owners. Add the methods acquire, renew, release, lease of",
        ),
    ]:
        with pytest.raises(ConfigurationError, match=told):
            use(source)
    assert source.verify(THREAD) == 3


# What is refused before anything is done, word for word: it is what people read


class Fixed:
    """An anchor with the three methods that are asked for, and no way back."""

    def read(self, store: str, thread: str) -> Head | None:
        return None

    def advance(self, store: str, thread: str, head: Head) -> None:
        pass

    def threads(self, store: str) -> list[str]:
        return []


def old_save() -> object:
    ledger = opened(Memory())
    fill(ledger, 2)
    return ledger.save(THREAD, 3, after=1)


def other_history() -> object:
    storage, other = Memory(), Memory()
    for each in (storage, other):
        fill(opened(each), 3)
    storage.put(THREAD, 2, other.read(THREAD, 2))
    storage.put(THREAD, 1, other.read(THREAD, 1))
    return list(opened(storage).history(THREAD))


def missing(keep: Any) -> str:
    return f"keep is {keep!r}, and must be a whole number from 1 up. Write keep=1, or more."


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (
            lambda: opened(Memory()).latest(THREAD),
            NotFound,
            (
                "There is no checkpoint of order-7 in store invoices. Start the workflow, or check"
                " the name of the thread and the storage's path."
            ),
        ),
        (
            old_save,
            Conflict,
            (
                "order-7 is at #2, and this save builds on #1. Nothing was overwritten. Load the"
                " latest, and decide again."
            ),
        ),
        (
            other_history,
            WrongPlace,
            (
                "order-7 #3 does not follow the #2 that is stored. One of the two was replaced."
                " Restore both from a copy that verifies."
            ),
        ),
        (
            lambda: opened(Memory()).anchor_now(THREAD),
            ConfigurationError,
            "This ledger has no anchor. Write Ledger(..., anchor=FileAnchor(path)).",
        ),
        (
            lambda: Ledger(Memory(), store=STORE, keys=KEYS, anchor=Fixed()).accept_loss(THREAD),
            ConfigurationError,
            "Fixed cannot be set back. Do it where the anchor is kept.",
        ),
        (
            lambda: Head(1, "sha256:0"),
            InvalidId,
            "'sha256:0' is not a digest. Digests are 'sha256:' and 64 hex digits.",
        ),
        (
            lambda: Ledger(Memory(), store="safepoint-models", keys=KEYS),
            InvalidId,
            (
                "'safepoint-models' begins with 'safepoint-', which is kept for this package."
                " Choose another store name."
            ),
        ),
        *(
            (lambda keep=keep: opened(Memory()).prune(THREAD, keep=keep), ConfigurationError, told)
            for keep, told in [(each, missing(each)) for each in (0, -1, True, 1.5, "3", None)]
        ),
    ],
)
def test_a_refusal_says_what_to_do(use: Any, error: type[CheckpointError], message: str) -> None:
    with pytest.raises(error) as refusal:
        use()
    assert str(refusal.value) == message


@pytest.mark.parametrize("every", [0, -1, True, 1.0, "2", None])
def test_an_interval_is_a_whole_number(every: Any) -> None:
    with pytest.raises(ConfigurationError, match="anchor_every"):
        opened(Memory(), every=every)


@pytest.mark.parametrize("sequence", [0, -1, 1.0, "1", None, True, 10**10])
def test_a_bad_sequence_is_refused(sequence: Any) -> None:
    with pytest.raises(InvalidId, match="is not a sequence number"):
        opened(Memory()).load(THREAD, sequence)


@pytest.mark.parametrize("store", ["My Store", "safepoint-x", "safepoint-"])
def test_a_bad_store_name_is_refused(store: str) -> None:
    """Seals of models are records of a store that is kept: no record of a ledger passes for one."""
    with pytest.raises(InvalidId):
        Ledger(Memory(), store=store, keys=KEYS)
    Ledger(Memory(), store="safepoint", keys=KEYS)


# What lies in one place with the storage


@pytest.mark.parametrize("how", ["made there", "written there", "trusted there"])
def test_a_key_inside_the_storage_folder_is_refused(tmp_path: Any, how: str) -> None:
    storage, file = FileCheckpointStorage(tmp_path / "store"), tmp_path / "store" / "signing.key"
    if how == "written there":
        key = GENERATED
        key.to_file(file)
    else:
        key = SigningKey.from_file(file, create=True)
    keys = Keyring(KEY, verify=[key]) if how == "trusted there" else Keyring(key)
    with pytest.raises(KeyRefused, match="is inside the storage folder"):
        opened(storage, keys=keys)
    beside = SigningKey.from_file(tmp_path / "store-keys" / "signing.key", create=True)
    opened(storage, keys=Keyring(beside))


@pytest.mark.parametrize(("store", "anchor"), [("a", "a/b"), ("a/b", "a"), ("a", "a")])
@pytest.mark.parametrize("point", [False, True], ids=["anchor", "point of revocation"])
def test_an_anchor_in_one_place_with_the_storage_is_refused(
    tmp_path: Any, store: str, anchor: str, *, point: bool
) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    inside: Any = FileAnchor(tmp_path / anchor, create=True)
    storage = FileCheckpointStorage(tmp_path / store)
    keys = Keyring(GENERATED).revoking(KEY, until=inside) if point else KEYS
    with pytest.raises(ConfigurationError, match="in one place with the storage"):
        opened(storage, InMemoryAnchor() if point else inside, keys=keys)


def test_a_point_of_revocation_neither_moves_nor_stands_alone(tmp_path: Any) -> None:
    """A thief could otherwise rewrite what is before the point, or move the point."""
    anchor: Any = FileAnchor(tmp_path / "anchor", create=True)
    for until in (anchor, FileAnchor(tmp_path / "anchor")):
        keys = Keyring(GENERATED).revoking(KEY, until=until)
        with pytest.raises(ConfigurationError, match="is revoked until the anchor that this ledg"):
            opened(Memory(), anchor, keys=keys)
        with pytest.raises(
            ConfigurationError, match="revoked from a point on, and this ledger has"
        ):
            opened(Memory(), keys=keys)
    opened(Memory(), keys=Keyring(GENERATED).revoking(KEY, until=None))
