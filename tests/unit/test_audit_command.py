"""safepoint audit: runs what applies, one line per finding, and changes nothing."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Actor,
    Approver,
    Approvers,
    Ask,
    Codec,
    FileCheckpointStorage,
    Gate,
    InMemoryJournal,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
    SQLiteJournal,
    Workflow,
)
from safepoint.audit.looking import CHECKS
from safepoint.command.cli import main
from safepoint.core.errors import ConfigurationError
from safepoint.core.journal import Event
from safepoint.resume.workflow import Call
from safepoint.shared.terminal import keyring_of
from tests.unit.commands import named


@dataclass
class Invoice:
    amount: int


@pytest.fixture(autouse=True)
def _no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, which is a finding of its own."""
    monkeypatch.setattr("safepoint.audit.folder.temp_folders", list)


class Deployed:
    """A store in files, with its key and its anchor."""

    def __init__(self, root: Path) -> None:
        self.state, self.key, self.apart = root / "state", root / "keys/key", root / "anchor"
        key = SigningKey.from_file(self.key, create=True)
        self.ledger = Ledger(
            FileCheckpointStorage(self.state),
            store="invoices",
            keys=Keyring(key),
            codec=Codec([Invoice]),
            anchor=SQLiteAnchor(self.apart / "heads.db", create=True),
        )
        for amount in range(3):
            self.ledger.save("order-7", Invoice(amount))

    def sealed(self, **parts: object) -> list[str]:
        """Return what names the store, with these parts as well."""
        root = self.state.parent
        given: dict[str, Any] = {"storage": self.state, "key": [self.key], **parts}
        return named(root.with_name(f"{root.name}.toml"), **given)

    def anchored(self, **parts: object) -> list[str]:
        return self.sealed(**{"anchor": self.apart, **parts})

    def record(self, sequence: int) -> Path:
        return self.state / f"order-7/{sequence:010d}.checkpoint"

    def edit(self) -> None:
        record = self.record(2)
        record.write_bytes(record.read_bytes().replace(b"amount\1", b"amount\x09"))


@pytest.fixture
def deployed(tmp_path: Path) -> Deployed:
    return Deployed(tmp_path)


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(arguments: list[str]) -> tuple[int, list[str], list[str]]:
        code = main(["audit", *arguments])
        printed = capsys.readouterr()
        found = printed.out.splitlines()
        lines = [line for line in found if not line.startswith("Settings: ")]
        return code, lines, printed.err.splitlines()

    return run


def ids(lines: list[str]) -> list[str]:
    return [line.partition(" ")[0] for line in lines if line.startswith("SP")]


def rules(lines: list[str]) -> list[str]:
    begins = [line.partition(":")[0] for line in lines if line.startswith("SP")]
    return [re.sub(r"\.\S+", "", each) for each in begins]


def test_how_bad_is_bad_can_be_said(deployed: Deployed, out: Any) -> None:
    """It verifies without decoding: types that it does not know are no finding."""
    assert out([*deployed.sealed(), "--fail-on", "error"])[0] == 0
    assert out([str(deployed.state), "--fail-on", "error"])[0] == 2  # nobody saw the records
    assert out([*deployed.anchored(), "--fail-on", "note"])[0] == 1


def test_every_check_runs_and_the_worst_comes_first(deployed: Deployed, out: Any) -> None:
    """One thing of each kind, each once, although two rules may speak of it."""
    state = deployed.state
    (state / "stray").write_bytes(pickle.dumps([1]))
    (state / "deep.json").write_bytes(b"[" * 500)
    (state / "key").write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\n")
    deployed.record(1).chmod(0o606)
    deployed.record(3).unlink()
    code, lines, err = out(deployed.anchored())
    assert (code, err) == (1, [])
    assert rules(lines) == [
        *["SP04 error"] * 3,  # key and stray are no folders; others can write a record
        "SP08 error",  # key
        "SP15 error",  # the newest is gone
        *["SP10 warning"] * 2,
        *["SP03 warning"] * 2,  # stray, and what may be JSON
        *["SP15 note"] * 2,
    ]
    assert len(set(lines)) == len(lines)
    for number in range(30):
        (state / f"t{number}").write_bytes(b"[" * 500)
    lines = out(deployed.sealed())[1]
    assert rules(lines).count("SP04 error") == 33  # no error is cut
    assert "SP10 warning: There are 12 more findings like these." in " ".join(lines)


def test_what_a_thief_does_to_a_tenants_records_in_a_database_shows(
    tmp_path: Path, out: Any
) -> None:
    """Of two tenants, each is told of, also where nobody but tenants has a record."""
    path, apart, key = tmp_path / "state/db", tmp_path / "anchor/db", tmp_path / "keys/key"
    keys = Keyring(SigningKey.from_file(key, create=True))
    with SQLiteCheckpointStorage(path) as storage, SQLiteAnchor(apart, create=True) as anchor:
        ledger = Ledger(storage, store="invoices", keys=keys, anchor=anchor)
        for name in ("acme", "globex"):
            for amount in range(3):
                ledger.tenant(name).save("order-7", {"amount": amount})
    parts: dict[str, Any] = {"storage": path, "key": [key]}
    assert ids(out(named(tmp_path / "told.toml", **parts))[1]) == ["SP15.no-anchor"]
    with closing(sqlite3.connect(path, isolation_level=None)) as thief:
        triggers = thief.execute("select name, sql from sqlite_schema where type = 'trigger'")
        rules = triggers.fetchall()
        for rule, _ in rules:
            thief.execute(f"drop trigger {rule}")
        thief.execute(
            "update checkpoints set record = cast(replace(cast(record as text), 'amount',"
            " 'Amount') as blob) where sequence = 2"
        )
        thief.execute("delete from checkpoints where sequence = 3 and tenant = 'acme'")
        for _, sql in rules:
            thief.execute(sql)
    code, lines, _ = out(named(tmp_path / "told.toml", anchor=apart, **parts))
    told = [line.partition(", ")[0].partition(" is not")[0] for line in lines if "Tenant" in line]
    assert (code, told) == (
        1,
        [
            "SP15.rolled-back error: Tenant acme: order-7 ends at #2",
            "SP12.seal-broken error: Tenant globex: The state of order-7 #2",
        ],
    )


def test_the_folder_of_a_database_does_for_its_file(deployed: Deployed, out: Any) -> None:
    """Looked at as a folder of records, it seemed to have lost them all."""
    root = deployed.state.parent
    file, heads = root / "db/checkpoints.db", root / "heads/heads.db"
    keys, anchor = keyring_of([str(deployed.key)]), SQLiteAnchor(heads, create=True)
    with SQLiteCheckpointStorage(file) as storage:
        Ledger(storage, store="invoices", keys=keys, anchor=anchor).save("order-7", 1)
    anchor.close()
    told = out(deployed.sealed(storage=file, anchor=heads))
    assert (told[0], {*rules(told[1])}, told[2]) == (0, {"SP15 note"}, [])
    assert out(deployed.sealed(storage=file.parent, anchor=heads.parent)) == told
    # A file that was put beside records does not choose how they are read.
    shutil.copy(file, deployed.state)
    deployed.edit()
    assert "SP12 error" in rules(out(deployed.sealed())[1])


# --- keys


def test_several_keys_the_newest_first(deployed: Deployed, out: Any, tmp_path: Path) -> None:
    """The first one signs, older ones verify, and a public one is enough."""
    newer, public = tmp_path / "keys/newer", tmp_path / "public.key"
    keys = deployed.ledger.keys.rotated(SigningKey.from_file(newer, create=True))
    Ledger(FileCheckpointStorage(deployed.state), store="invoices", keys=keys).save("order-8", 1)
    deployed.ledger.keys.signing.public.to_file(public)
    for older in (deployed.key, public):
        code, lines, _ = out(deployed.sealed(key=[newer, older]))
        assert (code, ids(lines)) == (1, ["SP15.no-anchor", "SP08.retired-in-use"])
    assert ids(out(deployed.sealed(key=[newer]))[1]) == ["SP02.seal-broken", "SP15.no-anchor"]
    assert keyring_of([str(newer), str(deployed.key)]).signing.id == keys.signing.id


def test_an_anchor_that_lags_behind_is_a_warning(deployed: Deployed, out: Any) -> None:
    storage = FileCheckpointStorage(deployed.state)
    Ledger(storage, store="invoices", keys=deployed.ledger.keys).save("order-7", 3)
    code, lines, _ = out(deployed.anchored())
    assert (code, rules(lines)[0]) == (1, "SP15 warning")


def test_what_a_thief_sealed_shows(deployed: Deployed, tmp_path: Path, out: Any) -> None:
    """With a copy of the anchor from before; without one, nothing that the key sealed counts."""
    before, new = tmp_path / "before", tmp_path / "keys/new"
    shutil.copytree(deployed.apart, before)
    SigningKey.from_file(new, create=True)

    def revoking(until: Path) -> list[str]:
        return deployed.anchored(key=[new], revoked=[f"{deployed.key}={until}/heads.db"])

    told = [line for line in out(revoking(before))[1] if line.startswith("SP08")]
    assert rules(told) == ["SP08 warning"]  # which says to seal them anew
    thief = Ledger(
        FileCheckpointStorage(deployed.state), store="invoices", keys=deployed.ledger.keys
    )
    thief.save("order-7", {"payee": "mally"})
    assert ids(out(deployed.sealed(key=[new, deployed.key]))[1])[0] == "SP15.no-anchor"
    told = [line for line in out(revoking(before))[1] if line.startswith("SP08")]
    assert rules(told) == ["SP08 error", "SP08 warning"]
    assert "does not count after #3" in told[0]
    alone = deployed.sealed(key=None, revoked=[deployed.key])
    assert out(alone)[1][0].startswith("SP08.seal-broken error: order-7 #4 is sealed by")
    code, lines, _ = out(revoking(deployed.apart))
    assert (code, rules(lines)[0]) == (1, "SP15 error")
    assert "is revoked until the anchor that this ledger moves" in lines[0]


# --- options


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("", "name a PATH or --store NAME, or write safepoint.toml with [audit] and paths ="),
        ("postgresql://x", "a connection string is no PATH: name a store of it in safepoint.toml"),
        ("x --models", "unrecognized arguments: --models"),
        ("x --fail-on all", "argument --fail-on: invalid choice: 'all' (choose from"),
    ],
)
def test_wrong_options_are_one_line(out: Any, arguments: str, line: str) -> None:
    code, lines, [said] = out(arguments.split())
    assert (code, lines) == (2, [])
    assert said.startswith(f"safepoint audit: {line}")
    assert said.endswith(". Try: safepoint audit --help")


@pytest.mark.parametrize(
    "parts",
    [
        *({"key": ["a\0b"]}, {"key": ["\ud800"]}, {"approvers": "a\0b"}, {"people": 0}),
        *({"name": "Invoices"}, {"name": ""}),
    ],
)
def test_a_wrong_value_is_one_line_and_no_traceback(
    deployed: Deployed, out: Any, parts: dict[str, object]
) -> None:
    code, lines, err = out(deployed.anchored(**parts))
    assert (code, lines, len(err)) == (2, [], 1)


@pytest.mark.parametrize(
    ("part", "value", "which"),
    [
        ("key", ["none"], "SP22.unsafe"),
        ("key", ["."], "SP22.unsafe"),
        ("key", [""], "SP22.unsafe"),
        ("anchor", "none", "SP15.unavailable"),
        ("anchor", "", "SP15.unavailable"),
        ("anchor", "KEYS", "SP15.unavailable"),
        ("revoked", ["none"], "SP22.unsafe"),
        ("revoked", ["KEYS/key=none"], "SP22.unavailable"),
        ("revoked", ["="], "SP22.unsafe"),
        ("approvers", "none", "SP19.unavailable"),
        ("approvers", "KEYS", "SP19.unsafe"),
    ],
)
def test_a_part_that_is_refused_hides_nothing_else(
    deployed: Deployed, out: Any, part: str, value: Any, which: str
) -> None:
    deployed.record(2).chmod(0o644)
    keys = deployed.key.parent
    (keys / "dana.pub").write_text("no key")
    given = json.loads(json.dumps(value).replace("KEYS", str(keys)))
    code, lines, err = out(deployed.anchored(**{part: given}))
    assert (code, err) == (1, [])
    assert {which, "SP04.mode"} <= {line.split()[0] for line in lines}


@pytest.mark.parametrize(
    "path", ["", "a\0b", "\ud800", "no\nsuch", "x\udcff", "x" * 300, "x/" * 5000, "/dev/null/x"]
)
def test_odd_paths_give_one_line_and_no_traceback(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    code, lines, err = out([path])
    assert (code, lines, len(err), err[0].isascii()) == (2, [], 1, True)
    odd = tmp_path / "a\nb\udcff"
    odd.mkdir(mode=0o700)
    assert out([str(odd)])[1][0].startswith(f"SP02.empty note: $'{tmp_path}/a\\x0ab\\xff' holds no")


# --- what goes wrong on the way


def test_what_stops_it_half_way_comes_after_what_it_found(
    deployed: Deployed, out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise ConnectionError

    deployed.state.chmod(0o750)
    monkeypatch.setattr(FileCheckpointStorage, "threads", gone)
    code, lines, err = out(deployed.sealed())
    assert (code, err) == (2, [])
    assert rules(lines) == ["SP01 warning", "SP15 warning", "SP07 warning"]
    begins = f"audit.failed error: {deployed.state} was not checked (records): The storage could"
    assert lines[0].startswith(begins)
    assert ": 1 error, 3 warnings, 2 of them about what was not seen." in lines[4]


@pytest.mark.parametrize("name", ["places", "contents", "records"])
def test_a_check_that_fails_is_said_and_the_others_are_made(
    deployed: Deployed, out: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whoever writes a record that one of them stumbles upon must not silence them all."""

    def fails(_: object) -> Any:
        raise OverflowError

    (deployed.state / "deep.json").write_bytes(b"[" * 500)
    whole = out(deployed.anchored())[1]
    monkeypatch.setitem(CHECKS, name, fails)
    code, lines, err = out(deployed.anchored())
    failed = f"was not checked ({name}): It failed with OverflowError. Report it."
    assert (code, err) == (2, [])
    assert {*lines[:-1]} - {*whole} == {f"audit.failed error: {deployed.state} {failed}"}
    assert "SP15 note" in rules(lines)


def test_a_reader_that_has_seen_enough_is_no_error(deployed: Deployed) -> None:
    """As `| head -1` is: there is no traceback."""
    (deployed.state / "x").touch()
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "safepoint", "audit", str(deployed.state)],
            check=False,
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=600,
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_nothing_on_disk_changes(deployed: Deployed, tmp_path: Path, out: Any) -> None:
    """Not even what a crash left: a storage of one's own would remove that."""

    def listing() -> list[tuple[Any, ...]]:
        found = [(path, path.lstat()) for path in sorted(tmp_path.rglob("*"))]
        return [(p, s.st_mode, s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for p, s in found]

    temp = deployed.record(1).with_name(".next")
    temp.write_bytes(b"safepoint/1 half")
    temp.chmod(0o600)
    os.utime(temp, (0, 0))
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    anchor: Any = deployed.ledger.anchor
    anchor.close()
    before = listing()
    assert out(deployed.anchored())[0] == 0
    for name in ("none", "elsewhere"):
        code, lines, _ = out(deployed.sealed(anchor=tmp_path / name))
        assert (code, "SP15.unavailable" in "".join(lines)) == (1, True)
    for path in (deployed.state / "none", tmp_path / "none"):
        assert out(deployed.anchored(storage=path))[0] == 2
    storage = FileCheckpointStorage(deployed.state, read_only=True)
    for write in (
        lambda: storage.append("order-7", 4, b"x"),
        lambda: storage.prune("order-7", 2, b"x"),
        lambda: storage.acquire("order-7", "worker-1", 60),
    ):
        with pytest.raises(ConfigurationError, match=r"This only looks, and changes nothing\."):
            write()
    assert listing() == before


# --- the journal, people, versions


def test_a_journal_is_verified_with_its_key_and_its_anchor(deployed: Deployed, out: Any) -> None:
    root, key = deployed.state.parent, deployed.key.parent / "journal.key"
    keys = Keyring(SigningKey.from_file(key, create=True))
    ends = SQLiteAnchor(root / "journal-anchor/heads.db", create=True)
    journal = SQLiteJournal(root / "journal/journal.db", keys=keys, anchor=ends, create=True)
    for sequence in (1, 2):
        event = Event("save", "intended", Actor("ana", "login"), "invoices", "order-7", sequence)
        journal.record(event)

    def said(**more: object) -> list[str]:
        given = {"journal": journal.path, "journal_key": [key], **more}
        lines = out(deployed.sealed(**given))[1]
        return [each for each in rules(lines) if each.startswith(("SP20", "SP22"))]

    anchored = {"journal_anchor": ends.path}
    assert said(**anchored) == []
    assert said() == ["SP20 warning"]
    journal.close()
    with closing(sqlite3.connect(root / "journal/journal.db")) as thief:
        thief.execute("DROP TRIGGER checkpoints_update")
    assert said(**anchored) == ["SP20 error"]
    shutil.move(root / "journal", deployed.state / "journal")
    moved = {"journal": deployed.state / "journal/journal.db"}
    assert {"SP20 error", "SP22 error"} <= set(said(**anchored, **moved))


@pytest.fixture
def paying(deployed: Deployed) -> Callable[[str, SigningKey], None]:
    """Let dana, by the key that is given, approve a run that asks."""

    def ask(state: dict[str, Any]) -> Ask:
        return Ask("pay", {"amount": 42})

    def pay(state: dict[str, Any], call: Call) -> dict[str, Any]:
        return {"paid": 42}

    ledger = Ledger(
        FileCheckpointStorage(deployed.state),
        store="invoices",
        keys=Keyring(SigningKey.from_file(deployed.key)),
        anchor=SQLiteAnchor(deployed.apart / "heads.db"),
        journal=InMemoryJournal(),
    )

    def run(thread: str, key: SigningKey) -> None:
        gate = Gate(approvers=Approvers({"dana": key.public}))
        workflow = Workflow("pay", [ask, pay], gate=gate)
        question = workflow.start(ledger, thread=thread).question
        assert question is not None
        workflow.resume(ledger, thread, approvals=[Approver("dana", key).approve(question)])

    return run


def test_approvals_are_verified_by_the_keys_of_people(
    deployed: Deployed, out: Any, paying: Any
) -> None:
    """A stranger's is a forgery, too few are a warning, and so is a key that was revoked since."""
    people = {name: SigningKey.generate() for name in ("dana", "erin", "stranger")}
    for name, key in people.items():
        for file in (f"{name}/dana.pub", f"two/{name}.pub", f"gone-{name}/revoked/dana.pub"):
            path = deployed.key.parent / file
            path.parent.mkdir(parents=True, exist_ok=True)
            key.public.to_file(path)
    paying("order-8", people["dana"])
    paying("order-9", people["stranger"])

    def listed(folder: str, people: int = 1) -> list[str]:
        return deployed.anchored(approvers=deployed.key.parent / folder, people=people)

    def said(thread: str, *options: Any) -> list[str]:
        lines = out(listed(*options))[1]
        about = [line for line in lines if f" {thread} #3" in line or f" {thread} #4" in line]
        return [f"{each}:" for each in rules(about)]

    assert said("order-8", "dana") == []
    assert "SP18 note" not in rules(out(deployed.anchored())[1])
    assert "SP18 note" in rules(out(listed("dana"))[1])
    assert set(said("order-9", "dana")) == {"SP19 error:"}
    assert said("order-8", "two", 2) == ["SP19 warning:"]
    people["erin"].public.to_file(deployed.key.parent / "gone-dana/dana.pub")
    assert said("order-8", "gone-dana") == ["SP19 warning:"]
    code, _, err = out(listed("two", 4))
    assert (code, "The number of approvers is 3" in err[0]) == (2, True)


def test_a_thread_of_another_version_is_told(deployed: Deployed, out: Any) -> None:
    deployed.ledger.save("order-8", {}, app="invoice@1")
    assert "SP17 note" not in rules(out(deployed.anchored(app=["invoice@1"]))[1])
    code, lines, _ = out(deployed.anchored(app=["invoice@2"]))
    assert (code, "SP17 note" in rules(lines)) == (0, True)
