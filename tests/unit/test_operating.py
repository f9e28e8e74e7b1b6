"""What an operator types about a store: each command ends as it says, and changes what it says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint import Approver, Ledger, SigningKey, VerifyingKey, open_ledger
from safepoint.core.errors import SealBroken
from safepoint.places import default_places, key_files, open_answers, open_journal
from safepoint.stores import disk
from tests.harness.crash import CHANGING, killed
from tests.house import rewrite
from tests.unit.commands import said
from tests.unit.storage_helpers import tree

DANA = Approver("dana", SigningKey.generate())
PLACES = ("XDG_STATE_HOME", "XDG_DATA_HOME", "STATE_DIRECTORY")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and a folder to stand in."""
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "work").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def worker() -> Ledger:
    """A worker as it starts."""
    return open_ledger("invoices", journal=open_journal("invoices"))


def begun() -> Ledger:
    assert said("init", "invoices")[0] == 0
    ledger = worker()
    for number in range(1, 4):
        ledger.save("order-7", {"secret": number}, app="invoice@1", label=f"step-{number}")
    ledger.tenant("acme").save("order-8", {"secret": 8})
    return ledger


def close(ledger: Any) -> None:
    ledger.storage.close()
    ledger.anchor.close()


def storage() -> Path:
    return Path(str(default_places("invoices").storage))


def edited(thread: str, sequence: int) -> None:
    text = "CAST(replace(CAST(record AS TEXT), 'secret', 'Secret') AS BLOB)"
    where = f"thread = '{thread}' AND sequence = {sequence}"
    rewrite(storage(), f"UPDATE checkpoints SET record = {text} WHERE {where}")  # noqa: S608


# --- each command, on each kind of store


def unused() -> None:
    assert said("init", "invoices")[0] == 0


def good() -> None:
    close(begun())


def tampered() -> None:
    good()
    edited("order-7", 3)


def cut() -> None:
    good()
    rewrite(storage(), "DELETE FROM checkpoints WHERE sequence > 2")


def lost_anchor() -> None:
    good()
    Path(str(default_places("invoices").anchor)).unlink()


def journal_cut() -> None:
    good()
    removed = "DELETE FROM checkpoints WHERE thread = 'order-7' AND sequence = 3"
    rewrite(Path(str(default_places("invoices").journal)), removed)


def nothing() -> None:
    pass


CASES: list[tuple[Callable[[], None], str, int, str]] = [
    (nothing, "verify invoices", 2, "There is no store invoices: no settings name it"),
    (unused, "verify invoices", 2, "Store invoices has no thread, so nothing was verified."),
    (unused, "history invoices order-7", 2, "There is no checkpoint of order-7 in store invoices."),
    (unused, "journal invoices", 0, "No entry."),
    (good, "init invoices", 0, "Store invoices already exists. Nothing was changed:"),
    (good, "verify invoices", 0, "2 threads verified, with 4 records.\nJournal: 4 entries.\n"),
    (good, "verify invoices order-7", 0, "1 thread verified, with 3 records.\n"),
    (good, "history invoices order-7", 0, "#1 20"),
    (good, "history invoices order-7 3", 0, "order-7 #3 of store invoices\n  seal     verified"),
    (good, "journal invoices order-7", 0, "1 20"),
    (good, "keys invoices", 0, "records  "),
    (tampered, "verify invoices", 1, "order-7: SealBroken: The state of order-7 #3 is not the one"),
    (tampered, "history invoices order-7", 1, "SealBroken: The state of order-7 #3 is not the one"),
    (cut, "verify invoices", 1, "order-7: RolledBack: order-7 ends at #2, and the anchor has seen"),
    (lost_anchor, "verify invoices", 2, "/"),
    (lost_anchor, "init invoices", 2, "Store invoices was created with its storage and has lost"),
    (journal_cut, "verify invoices", 1, "2 threads verified, with 4 records.\nJournal: SealBr"),
    (journal_cut, "journal invoices", 1, "SealBroken: The journal does not verify."),
]


@pytest.mark.parametrize(
    ("made", "command", "status", "first"), CASES, ids=[f"{c[0].__name__}: {c[1]}" for c in CASES]
)
def test_a_command_ends_as_it_says(
    made: Callable[[], None], command: str, status: int, first: str, home: Path
) -> None:
    made()
    before = tree(home)
    ended, out, err = said(*command.split())
    assert (ended, (out or err)[: len(first)]) == (status, first)
    assert err.count("\n") <= 1
    if "--yes" not in command:  # which writes down what is refused
        assert tree(home) == before
    if status == 1:
        assert "secret" not in out + err


def test_what_a_program_reads_has_one_schema_for_each_command() -> None:
    begun().save("odd", {"text": "\x7f"})

    def read(command: str) -> list[Any]:
        return [*map(json.loads, said(*command.split(), "--format", "json")[1].splitlines())]

    listed = {each["thread"]: each for each in read("history invoices")}
    assert [*listed] == ["odd", "order-7", "@acme/order-8"]
    names = {"thread", "sequence", "created", "kind", "app", "label", "tools", "previous"}
    assert listed["odd"].keys() == {*names, "digest", "key"}
    assert read("history invoices odd 1") == [{**listed["odd"], "state": {"text": "\x7f"}}]
    records = read("history invoices order-7")
    entries = read("journal invoices order-7")
    names = {"number", "at", "what", "outcome", "actor", "store", "tenant", "thread", "sequence"}
    assert entries[0].keys() == {*names, "digest", "detail"}
    assert [each["digest"] for each in entries] == [each["digest"] for each in records]
    assert read("verify invoices") == [{"threads": 3, "records": 5, "alarms": []}]
    edited("order-7", 3)
    assert [each.get("error") for each in read("history invoices")] == [None, "SealBroken", None]
    (found,) = read("verify invoices")
    (alarm,) = found["alarms"]
    assert (found["threads"], alarm["thread"], alarm["error"]) == (2, "order-7", "SealBroken")


# --- what cannot be undone


def test_a_new_key_does_not_sign_before_somebody_says_so(home: Path) -> None:
    rotate = ("keys", "invoices", "--rotate", "records")
    good()
    assert said(*rotate)[0] == 0
    before = tree(home)
    status, out, err = said(*rotate)
    assert (status, out, err.count("\n"), err[-7:]) == (2, "", 1, " --yes\n")
    assert tree(home) == before
    assert worker().verify("order-7") == 3


# --- init


@pytest.mark.parametrize("lost", ["journal_key", "answers_anchor"])
def test_what_was_lost_is_not_made_anew(lost: str, home: Path) -> None:
    good()
    open_answers("invoices").hold(DANA, "invoices", "order-7")
    places = default_places("invoices")
    if lost == "answers_anchor":
        Path(str(places.answers_anchor)).unlink()
        Path(str(places.operators)).rmdir()
    else:
        Path(places.journal_key[0]).unlink()
    before = tree(home)
    status, _, err = said("init", "invoices")
    assert (status, err.count("\n"), "was created with its" in err) == (2, 1, True)
    assert tree(home) == before


def test_a_store_of_settings_is_not_begun_elsewhere(home: Path) -> None:
    Path("safepoint.toml").write_text('[stores.invoices]\nstorage = "state"\nkey = ["k"]\n')
    for command in ("init invoices", "keys invoices --rotate records"):
        status, out, err = said(*command.split(), "--config", "safepoint.toml")
        assert (status, out) == (2, "")
        assert "names places of store invoices, and this command uses the default ones." in err
    assert tree(home) == []


# --- keys


@pytest.mark.parametrize("which", ["records", "journal"])
def test_a_rotation_takes_two_restarts_and_no_stop(which: str) -> None:
    """Whoever was restarted once reads what those sealed who were restarted twice."""
    rotate, is_journal = ["keys", "invoices", "--rotate", which], which == "journal"
    old = begun()
    assert said(*rotate)[0] == 0
    between = worker()
    assert said(*rotate, "--yes")[0] == 0
    new = worker()
    ring = [
        (each.journal or each).keys if is_journal else each.keys for each in (old, between, new)
    ]
    assert ring[0].signing.id == ring[1].signing.id != ring[2].signing.id
    assert {key.id for key in ring[1]} == {key.id for key in ring[2]}
    new.save("order-7", {"secret": 4})
    assert between.latest("order-7").state == {"secret": 4}
    if not is_journal:
        with pytest.raises(SealBroken, match="not on this keyring"):
            old.latest("order-7")
    assert said("verify", "invoices")[0] == 0
    lines = [line for line in said("keys", "invoices")[1].splitlines() if "verif" in line]
    assert [line.split()[0] for line in lines] == [which]


def test_only_the_key_that_was_looked_at_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile another ends this rotation and begins the next one."""
    rotate = ("keys", "invoices", "--rotate", "records")
    good()
    assert said(*rotate)[0] == 0
    opened = disk.opened

    def late(*given: Any) -> Any:
        monkeypatch.setattr(disk, "opened", opened)
        assert said(*rotate, "--yes")[0] == said(*rotate)[0] == 0
        return opened(*given)

    monkeypatch.setattr(disk, "opened", late)
    status, _, err = said(*rotate, "--yes")
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith("The keys of store invoices changed meanwhile. Nothing was done.")
    files = keys_of_records()
    assert (len(files), files[-1].name) == (3, "signing-next.key")


def keys_of_records() -> list[Path]:
    return [*map(Path, key_files(default_places("invoices").key[0]))]


def turn(folder: Path) -> None:
    os.environ["HOME"] = str(folder)
    assert said("keys", "invoices", "--rotate", "records", "--yes")[0] == 0


@pytest.mark.deep
def test_a_rotation_that_is_killed_anywhere_goes_on_at_the_next_call(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good()
    before = worker().keys.signing.id
    assert said("keys", "invoices", "--rotate", "records")[0] == 0
    (ground := tmp_path / "ground").mkdir(mode=0o700)
    for left in killed(turn, ground, prepared=home):
        monkeypatch.setenv("HOME", str(left.folder))
        if left.steps[-1] not in CHANGING and not left.whole:
            continue  # a statement of SQLite, about none of the keys
        assert worker().verify("order-7") == 3
        if keys_of_records()[-1].name == "signing-next.key":
            assert said("keys", "invoices", "--rotate", "records", "--yes")[0] == 0
        assert worker().keys.signing.id != before
        assert len(keys_of_records()) == 2


def test_a_key_is_made_once_and_its_public_half_is_another_file() -> None:
    Path("keys").mkdir(mode=0o700)
    assert said("new-key", "keys/a.key")[0] == 0
    assert VerifyingKey.from_file("keys/a.key.pub") == SigningKey.from_file("keys/a.key").public
    Path("keys/a.key.pub").rename("keys/b.key.pub")
    for file in ("keys/a.key", "keys/b.key", "no/a"):
        status, out, err = said("new-key", file)
        assert (status, out, err.count("\n")) == (2, "", 1)
    assert {each.name for each in Path("keys").iterdir()} == {"a.key", "b.key.pub"}
