"""Targets and media: the built-in ones work unharmed, and yours takes three methods."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint import Keyring, RolledBack, SigningKey
from safepoint.attacks import ATTACKS, RESIDUE, TARGETS, Disk, Medium, Memory, Miss, Outcome, Target
from safepoint.attacks.kit import runs, works
from safepoint.attacks.outcome import FORTUNE, HONEST, WANTED, step
from safepoint.attacks.rungs import GatedTarget, SignedChainTarget
from safepoint.attacks.rungs.home_made import Numbered, Refused
from safepoint.errors import UnknownKey

WITH_KEYS = ["mac", "mac-place", "signed-chain", "anchored", "gated"]
Make = Callable[[str], Target]


@pytest.fixture(params=["disk", "memory"])
def medium(request: pytest.FixtureRequest, tmp_path: Path) -> Medium:
    if request.param == "memory":
        return Memory()
    (tmp_path / "store").mkdir(mode=0o700)
    return Disk(tmp_path / "store")


@pytest.fixture
def make(medium: Medium, tmp_path: Path) -> Make:
    return lambda name: TARGETS[name](tmp_path, medium)


each_target = pytest.mark.parametrize("name", TARGETS)


@each_target
def test_a_built_in_target_works_unharmed(name: str, make: Make) -> None:
    target = make(name)
    assert works(target)
    assert target.title


@each_target
def test_a_built_in_target_keeps_every_record_in_the_medium(name: str, make: Make) -> None:
    target = make(name)
    for number in (1, 2, 3):
        target.save("victim", step(number))
    target.save("other", HONEST)
    records = target.records("victim")
    assert records == [target.place("victim", number) for number in (1, 2, 3)]
    assert set(records) < set(target.medium.names())
    assert target.history("victim") == [step(1), step(2), step(3)]
    assert target.oldest("victim") == step(1)
    assert [target.load("victim", number) for number in (1, 2, 3)] == target.history("victim")


@each_target
def test_a_built_in_target_can_go_back_and_delete(name: str, make: Make) -> None:
    target = make(name)
    for number in (1, 2, 3):
        target.save("victim", step(number))
    target.go_back("victim", 2)
    assert target.latest("victim") == step(2)
    target.save("victim", step(4))
    assert target.history("victim") == [step(1), step(2), step(4)]
    target.delete("victim")
    with pytest.raises(Exception):  # noqa: B017  each store says it in its own way
        target.latest("victim")


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "mac-place"])
def test_a_pruned_thread_still_works(name: str, make: Make) -> None:
    """But where the numbers must begin at 1: that store cannot forget."""
    target = make(name)
    for number in (1, 2, 3):
        target.save("victim", step(number))
    target.prune("victim", 2)
    target.relink("victim")  # the chain without a key breaks, and anybody can mend it
    assert target.history("victim") == [step(2), step(3)]


@each_target
def test_a_twin_is_another_place_with_the_same_key(name: str, make: Make) -> None:
    target = make(name)
    target.save("victim", HONEST)
    twin = target.twin(target.medium.beside())
    assert twin.medium.names() == []
    for record in target.records("victim"):
        twin.medium.write(record, target.medium.read(record))
    assert twin.latest("victim") == HONEST
    assert target.twin(target.medium.beside(), "other-store").store == "other-store"
    assert target.store == "victim-store"


@each_target
def test_what_is_smuggled_in_is_as_good_as_saved(name: str, make: Make) -> None:
    """Or a refusal would say something about the key, and nothing about the decoder."""
    target = make(name)
    target.save("victim", HONEST)
    target.smuggle("victim", b'{"amount":42,"payee":"mally"}')
    assert target.latest("victim") == WANTED
    assert target.history("victim")[-1] == WANTED


@pytest.mark.parametrize("name", ["signed-chain", "anchored"])
def test_a_cut_with_a_forged_base_lacks_the_key_alone(
    name: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sealed by a key that the victim trusts, the same base is believed."""
    target = make(name)
    assert isinstance(target, SignedChainTarget)
    for number in (1, 2, 3):
        target.save("victim", step(number))
    own = SigningKey.generate()
    monkeypatch.setattr(SigningKey, "generate", lambda: own)
    target.cut("victim", 2)
    with pytest.raises(UnknownKey, match="base #2"):
        target.history("victim")
    target.keys = Keyring(target.keys.signing, verify=[own])
    assert target.history("victim") == [step(2), step(3)]


def test_a_twin_does_not_have_the_anchor(make: Make) -> None:
    """A thief who could move the anchor would prove that it detects less than it does."""
    target = make("anchored")
    target.save("victim", step(1))
    target.twin(target.medium).save("victim", step(2))
    target.medium.delete(target.records("victim")[-1])
    assert target.latest("victim") == step(1)


def test_a_replica_does_have_the_anchor(make: Make) -> None:
    target = make("anchored")
    target.save("victim", step(1))
    replica = target.on(target.medium.copy())
    target.save("victim", step(2))
    with pytest.raises(RolledBack):
        replica.latest("victim")


@pytest.mark.parametrize("name", WITH_KEYS)
def test_after_a_rotation_old_and_new_records_load(name: str, make: Make) -> None:
    target = make(name)
    target.save("victim", step(1))
    target.rotate()
    assert target.latest("victim") == step(1)
    target.save("victim", step(2))
    assert target.history("victim") == [step(1), step(2)]


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in WITH_KEYS])
def test_a_store_without_a_signing_key_has_none_to_rotate(name: str, make: Make) -> None:
    with pytest.raises(Miss):
        make(name).rotate()


@pytest.mark.parametrize("name", [n for n, kind in TARGETS.items() if issubclass(kind, Numbered)])
def test_a_home_made_rung_refuses_junk_with_its_own_error(name: str, make: Make) -> None:
    target = make(name)
    target.save("victim", HONEST)
    for junk in (b"", b"\x00" * 64, b"null", b'{"state": 7', bytes(range(256))):
        target.medium.write(target.records("victim")[-1], junk)
        with pytest.raises(Refused):
            target.latest("victim")


@pytest.mark.parametrize(
    "junk",
    [
        {"state": 7, "mac": "00"},
        {"state": 7, "mac": 5, "key": "2025", "algorithm": "sha256"},
        {"state": 7, "mac": "00", "key": "unheard-of", "algorithm": "sha256"},
        {"state": 7, "mac": "00", "key": "2025", "algorithm": "unheard-of"},
        {"state": 7, "mac": "00", "key": [], "algorithm": "sha256"},
    ],
)
def test_the_mac_rung_refuses_what_it_cannot_check(junk: dict[str, Any], make: Make) -> None:
    target = make("mac")
    target.save("victim", HONEST)
    target.medium.write(target.records("victim")[-1], json.dumps(junk).encode())
    with pytest.raises(Refused):
        target.latest("victim")


def test_the_edit_of_an_encrypted_record_changes_only_what_it_should(make: Make) -> None:
    target = make("encrypted")
    target.save("victim", HONEST)
    (name,) = target.records("victim")
    record = target.medium.read(name)
    assert b"alice" not in record
    target.medium.write(name, target.edit(record, b"alice", b"mally"))
    assert target.latest("victim") == WANTED
    with pytest.raises(Miss):
        target.edit(record, b"alice", b"al")


def test_a_medium_is_read_written_and_put_back(medium: Medium) -> None:
    medium.write("a", b"1")
    medium.write("deep/er/b", b"2")
    snapshot = medium.copy()
    medium.write("a", b"changed")
    medium.rename("deep/er/b", "deep/er/c")
    assert medium.names() == ["a", "deep/er/c"]
    assert snapshot.names() == ["a", "deep/er/b"]
    medium.write("new", b"3")
    medium.restore(snapshot)
    assert {name: medium.read(name) for name in medium.names()} == {"a": b"1", "deep/er/b": b"2"}
    medium.delete("a")
    assert medium.names() == ["deep/er/b"]
    assert medium.beside().names() == []


def test_a_tap_changes_what_is_read_and_not_what_is_there(medium: Medium) -> None:
    medium.write("a", b"1")
    medium.tap = lambda name, data: name.encode() + data
    assert medium.read("a") == b"a1"
    medium.tap = None
    assert medium.read("a") == b"1"


def test_what_the_adversary_writes_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Or a store would refuse the mode, and seem to have detected the attack."""
    disk = Disk(tmp_path / "store")
    disk.write("thread/record", b"x")
    modes = {path.name: path.stat().st_mode & 0o777 for path in disk.folder.rglob("*")}
    assert modes == {"thread": 0o700, "record": 0o600}


def test_a_disk_lists_links_and_follows_them(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "store")
    disk.folder.mkdir()
    (tmp_path / "elsewhere").write_bytes(b"x")
    disk.path("link").symlink_to(tmp_path / "elsewhere")
    assert disk.names() == ["link"]
    disk.write("link", b"y")
    assert (tmp_path / "elsewhere").read_bytes() == b"y"


class PlainJson(Target):
    """A store of somebody else's, as the documentation shows it."""

    name = "plain-json"
    refusals = (ValueError,)

    def save(self, thread: str, state: dict[str, Any]) -> None:
        number = len(self.records(thread)) + 1
        (self.path / f"{thread}.{number:04}.json").write_text(json.dumps(state))

    def latest(self, thread: str) -> Any:
        return json.loads((self.path / self.records(thread)[-1]).read_text())

    def records(self, thread: str) -> list[str]:
        return sorted(file.name for file in self.path.glob(f"{thread}.*.json"))


@pytest.mark.parametrize("attack", [*ATTACKS, *RESIDUE])
def test_three_methods_aim_every_attack_at_a_store_of_your_own(attack: str, tmp_path: Path) -> None:
    """Whatever it misses, it misses for a reason that the target can mend."""
    missing = {
        "place": {"plant-temp", "fast-forward"},
        "rotate": {"retired-key", "thief-prunes"},
        "a signature": {"strip-signature", "algorithm-downgrade", "key-substitution"},
        "a date": {"backdate-clock"},
        "reads through the medium": {"time-of-check"},
        "memory": {"aliasing"},
        "load": {"undelete-by-number", "old-checkpoint"},
        "history": {"unprune-thread"},
        "decoders": {"row-chooses-decoder"},
    }
    refused = {
        "torn-record",
        "pickle-payload",
        "pickle-right-type",
        "unknown-type",
        "secret-in-error",
    }
    outcome = (ATTACKS | RESIDUE)[attack].run(PlainJson(tmp_path))
    if attack in refused:
        assert outcome is Outcome.DETECTED
    elif any(attack in attacks for attacks in missing.values()):
        assert outcome is Outcome.NOT_APPLICABLE
    else:
        assert outcome.succeeded


def went_on(target: Target, thread: str, yes: bytes = b"", **options: Any) -> Any:
    """What a worker did, or None where it was refused."""
    try:
        return target.resume(thread, yes, **options)
    except target.refusals:
        return None


@each_target
def test_a_run_that_was_interrupted_goes_on_once(name: str, make: Make) -> None:
    target = make(name)
    assert runs(target)
    target.begin("victim", HONEST)
    assert target.resume("victim") == HONEST
    assert went_on(target, "victim") is None


@each_target
def test_a_run_that_asks_acts_after_a_yes_alone(name: str, make: Make) -> None:
    """With nobody attacking, every rung does as it is told."""
    target = make(name)
    for thread in ("yes", "no", "silence"):
        target.ask(thread, FORTUNE)
        assert went_on(target, thread) is None
    target.deny("no")
    assert went_on(target, "yes", target.approve("yes")) == FORTUNE
    assert went_on(target, "no") is None
    assert went_on(target, "silence") is None
    for thread, said in (("yes", "dana"), ("no", "erin")):
        lines = target.journalled(thread)
        assert [line for line in lines if said in line]
        assert all(line.isprintable() for line in lines)
    assert not [line for line in target.journalled("silence") if "dana" in line]


@each_target
def test_a_run_asks_again_on_its_way(name: str, make: Make) -> None:
    target = make(name)
    target.ask("victim", HONEST)
    assert target.resume("victim", target.approve("victim")) == HONEST
    target.ask("victim", FORTUNE)
    assert target.resume("victim", target.approve("victim")) == FORTUNE


@each_target
def test_what_another_worker_does_meanwhile_is_done_in_between(name: str, make: Make) -> None:
    target = make(name)
    target.begin("victim", HONEST)
    target.begin("other", FORTUNE)
    seen: list[Any] = []
    done = target.resume("victim", meanwhile=lambda: seen.append(target.resume("other")))
    assert (done, seen) == (HONEST, [FORTUNE])


@each_target
def test_whoever_owns_a_thread_can_save(name: str, make: Make) -> None:
    target = make(name)
    worker = target.own("victim", "worker-1")
    worker.save("victim", step(1))
    worker.save("victim", step(2))
    assert target.own("victim", "worker-2").latest("victim") == target.latest("victim") == step(2)


@each_target
def test_by_default_it_is_the_same_application(name: str, make: Make) -> None:
    target = make(name)
    target.by_default().save("victim", HONEST)
    assert target.latest("victim") == HONEST
    thief = target.by_default(target.medium.copy())
    assert thief.medium is not target.medium


def test_the_folders_of_the_top_and_of_its_thief_are_apart(make: Make) -> None:
    """The thief of the records has neither the key, nor the anchor, nor the journal."""
    target = make("gated")
    assert isinstance(target, GatedTarget)
    thief = target.by_default(target.medium.copy())
    assert thief.keys.signing.id != target.keys.signing.id
    assert thief.anchor is not target.anchor
    assert thief.written is None


def test_a_counterfeit_yes_on_the_top_lacks_the_key_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made with a key that counts, the same statement is believed."""
    target = make("gated")
    assert isinstance(target, GatedTarget)
    target.ask("victim", FORTUNE)
    monkeypatch.setattr(SigningKey, "generate", lambda _="": target.people["dana"])
    assert target.resume("victim", target.counterfeit("victim", FORTUNE)) == FORTUNE


def test_a_self_made_yes_on_the_top_lacks_the_key_alone(make: Make) -> None:
    """In the record, too: signed by dana, what the worker writes there is believed."""
    target = make("gated")
    assert isinstance(target, GatedTarget)
    for thread, way in (("victim-1", 0), ("victim-2", 1)):
        target.ask(thread, FORTUNE)
        keys, target.keys = target.keys, Keyring(target.people["dana"], verify=[*target.keys])
        said = target.self_approve(thread, FORTUNE)
        yes = next(said)
        target.keys = keys
        for _ in range(way):
            yes = next(said)
        assert target.resume(thread, yes) == FORTUNE


def test_a_journal_that_is_lost_cannot_be_written(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    disk.lose()
    with pytest.raises(OSError):
        disk.write("a", b"1")
    other = Disk(tmp_path / "other")
    other.write("a", b"1")
    other.lose()
    with pytest.raises(OSError):
        other.write("a", b"2")
    assert other.names() == []


def test_the_default_journal_fails_without_a_word(tmp_path: Path) -> None:
    """Which is the flaw that the attack is about."""
    target = PlainJson(tmp_path)
    target.begin("victim", HONEST)
    target.journal.lose()
    assert target.resume("victim") == HONEST
    assert target.journalled("victim") == []
