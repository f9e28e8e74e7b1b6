"""safepoint audit: runs what applies, one line per finding, and changes nothing."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Actor,
    Approver,
    Approvers,
    Ask,
    Codec,
    FileAnchor,
    FileCheckpointStorage,
    FileJournal,
    Gate,
    InMemoryJournal,
    Keyring,
    Ledger,
    SigningKey,
    Workflow,
)
from safepoint.audit import check_anchor, check_keys, check_records
from safepoint.cli import keyring_of
from safepoint.errors import ConfigurationError, UnsafeLocation
from safepoint.journal import Event
from safepoint.places import default_locations, open_ledger
from safepoint.record import Place, seal
from safepoint.storage.file import StoredFolder
from safepoint.workflow import Call
from tests.unit.commands import audit as main


@dataclass
class Invoice:
    amount: int


@pytest.fixture(autouse=True)
def _no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, which is a finding of its own."""
    monkeypatch.setattr("safepoint.audit.location.temp_folders", list)


class Deployed:
    """A store in files, with its key and its anchor."""

    def __init__(self, root: Path) -> None:
        self.state, self.key, self.apart = root / "state", root / "keys/key", root / "anchor"
        key = SigningKey.from_file(self.key, create=True, algorithm="ed25519")
        self.ledger = Ledger(
            FileCheckpointStorage(self.state),
            store="invoices",
            keys=Keyring(key),
            codec=Codec([Invoice]),
            anchor=FileAnchor(self.apart, create=True),
        )
        for amount in range(3):
            self.ledger.save("order-7", Invoice(amount))

    @property
    def sealed(self) -> list[str]:
        return [str(self.state), "--store", "invoices", "--key", str(self.key)]

    @property
    def anchored(self) -> list[str]:
        return [*self.sealed, "--anchor", str(self.apart)]

    def record(self, sequence: int) -> Path:
        return self.state / f"order-7/{sequence:010d}.checkpoint"


@pytest.fixture
def deployed(tmp_path: Path) -> Deployed:
    return Deployed(tmp_path)


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(arguments: list[str]) -> tuple[int, list[str], list[str]]:
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return run


def rules(lines: list[str]) -> list[str]:
    return [" ".join(line.split()[:2]) for line in lines]


def test_the_command_says_what_it_did_not_check(deployed: Deployed, out: Any) -> None:
    """It verifies without decoding: types that it does not know are no finding."""
    state = deployed.state
    assert out([str(state)]) == (
        0,
        [f"No findings: {state} (records not verified: give --key and --store)"],
        [],
    )
    assert out(deployed.sealed) == (
        0,
        [f"No findings: {state} (a rollback would not show: give --anchor)"],
        [],
    )


def test_with_an_anchor_it_knows_where_that_lies(deployed: Deployed, out: Any) -> None:
    code, lines, err = out(deployed.anchored)
    assert (code, rules(lines), err) == (0, ["SP15 note:"] * 2, [])


def test_nothing_to_say_at_all_is_said_too(
    deployed: Deployed, out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safepoint.audit.anchor.SUPPORTED", False)
    assert out(deployed.anchored) == (0, [f"No findings: {deployed.state}"], [])


def test_every_check_runs(deployed: Deployed, out: Any) -> None:
    """One thing of each kind, each once, although two rules may speak of it."""
    state = deployed.state
    (state / "stray").write_bytes(pickle.dumps([1]))
    (state / "deep.json").write_bytes(b"[" * 500)
    (state / "key").write_bytes(b"safepoint-key/1 hmac-sha256 x")
    deployed.record(1).chmod(0o606)
    deployed.record(3).unlink()
    code, lines, err = out(deployed.anchored)
    assert (code, err) == (1, [])
    assert rules(lines) == [
        "SP04 error:",  # key is not a folder
        "SP04 error:",  # stray is not a folder
        "SP04 error:",  # others can write a record
        "SP11 error:",  # deep.json
        "SP08 error:",  # key
        "SP15 error:",  # the newest is gone
        "SP03 warning:",  # stray
        "SP10 warning:",  # deep.json, key, stray
        "SP10 warning:",
        "SP10 warning:",
        "SP13 warning:",  # deep.json, key, stray; the record was said
        "SP13 warning:",
        "SP13 warning:",
        "SP15 note:",
        "SP15 note:",
    ]
    assert len(set(lines)) == len(lines)


def test_an_edit_is_found(deployed: Deployed, out: Any) -> None:
    record = deployed.record(2)
    record.write_bytes(record.read_bytes().replace(b":1}", b":9}"))
    code, lines, _ = out(deployed.sealed)
    assert code == 1
    assert any(
        line.startswith("SP12 error: The state of order-7 #2 is not the one that was sealed.")
        for line in lines
    )


def test_a_rollback_is_found_with_the_anchor_alone(deployed: Deployed, out: Any) -> None:
    deployed.record(3).unlink()
    assert out(deployed.sealed)[0] == 0
    code, lines, _ = out(deployed.anchored)
    assert code == 1
    assert lines[0].startswith(
        "SP15 error: order-7 ends at #2, and the anchor has seen #3. Checkpoints were cut off"
    )


def test_several_keys_the_newest_first(deployed: Deployed, out: Any, tmp_path: Path) -> None:
    """The first one signs, older ones verify; without the older one its records are unknown."""
    newer = SigningKey.from_file(tmp_path / "keys/newer", create=True)
    keys = deployed.ledger.keys.rotated(newer)
    Ledger(FileCheckpointStorage(deployed.state), store="invoices", keys=keys).save("order-8", 1)
    arguments = [str(deployed.state), "--store", "invoices", "--key", str(tmp_path / "keys/newer")]
    code, lines, _ = out([*arguments, "--key", str(deployed.key)])
    assert (code, rules(lines)) == (0, ["SP08 note:"])
    assert ", which is retired." in lines[0]
    code, lines, _ = out(arguments)
    assert (code, rules(lines)) == (1, ["SP02 error:"])


def test_the_ring_is_ordered_from_the_oldest_to_the_newest(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"keys/{n}") for n in range(3)]
    newest_first = [SigningKey.from_file(path, create=True).id for path in paths]
    assert [key.id for key in keyring_of(paths)] == newest_first[::-1]
    assert keyring_of(paths).signing.id == newest_first[0]


def test_a_public_key_is_enough(deployed: Deployed, out: Any, tmp_path: Path) -> None:
    public = tmp_path / "public.key"
    deployed.ledger.keys.signing.public.to_file(public)
    arguments = [str(deployed.state), "--store", "invoices", "--key", str(public)]
    assert out(arguments)[0] == 0
    older = SigningKey.from_file(tmp_path / "keys/older", create=True)
    assert older.id in out([*arguments, "--key", str(tmp_path / "keys/older")])[1][0]


def test_how_far_the_anchor_may_lag_can_be_said(deployed: Deployed, out: Any) -> None:
    bare = Ledger(
        FileCheckpointStorage(deployed.state), store="invoices", keys=deployed.ledger.keys
    )
    for n in range(3):
        bare.save("order-7", n)
    code, lines, _ = out(deployed.anchored)
    assert (code, lines[0].split(":")[0]) == (1, "SP15 warning")
    assert out([*deployed.anchored, "--anchor-every", "3"])[0] == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--key", "x"], "--key and --store belong together"),
        (["--store", "x"], "--key and --store belong together"),
        (["--revoked", "x"], "--revoked needs --store"),
        (["--anchor", "x"], "--anchor needs --key and --store"),
        (["--anchor-every", "0"], "--anchor-every must be 1 or more"),
        (["--anchor-every", "x"], "argument --anchor-every: invalid int value: 'x'"),
        (["--key"], "argument --key: expected one argument"),
    ],
)
def test_wrong_options_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    assert main([str(tmp_path), *arguments]) == 2
    assert capsys.readouterr().err == (f"safepoint audit: {line}. Try: safepoint audit --help\n")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--key", "none"),
        ("--key", "."),
        ("--key", ""),
        ("--key", "a\0b"),
        ("--key", "\ud800"),
        ("--store", "Invoices"),
        ("--store", ""),
        ("--anchor", "none"),
        ("--anchor", ""),
        ("--anchor", "a\0b"),
        ("--anchor", "keys"),
    ],
)
def test_a_wrong_value_is_one_line_and_no_traceback(
    deployed: Deployed,
    out: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    value: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = deployed.anchored
    arguments[arguments.index(option) + 1] = value
    code, lines, err = out(arguments)
    assert (code, lines, len(err)) == (2, [], 1)


def test_a_folder_that_others_can_write_is_said_and_its_records_are_not_verified(
    deployed: Deployed, out: Any
) -> None:
    deployed.state.chmod(0o777)
    code, lines, err = out(deployed.anchored)
    assert (code, err) == (1, [])
    assert lines[0].startswith(f"SP04 error: {deployed.state} can be written by others")
    assert lines[-1] == (
        f"SP02 warning: The records in {deployed.state} were not verified. Mend the errors above,"
        " and run the audit again."
    )


def edit(deployed: Deployed) -> str:
    record = deployed.record(2)
    record.write_bytes(record.read_bytes().replace(b":1}", b":9}"))
    return "SP12 error: The state of order-7 #2 is not the one that was sealed."


def test_a_thread_that_others_can_write_does_not_keep_the_others_from_being_verified(
    deployed: Deployed, out: Any
) -> None:
    said = edit(deployed)
    (deployed.state / "a").mkdir()
    (deployed.state / "a").chmod(0o777)
    code, lines, err = out(deployed.anchored)
    assert (code, err) == (1, [])
    assert lines[0].startswith(f"SP04 error: {deployed.state}/a can be written by others")
    assert any(line.startswith(said) for line in lines)


def test_a_closed_thread_does_not_keep_the_others_from_being_verified(
    deployed: Deployed, out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a user who is not root: the folder opens for nobody, and is one warning."""
    said = edit(deployed)
    closed = deployed.state / "a"
    closed.mkdir(mode=0)
    names: dict[str, Any] = {"scandir": os.scandir, "listdir": os.listdir, "open": os.open}

    def refusing(name: str) -> Any:
        def refuse(path: Any = ".", *rest: Any, **options: Any) -> Any:
            if path in ("a", str(closed), closed):
                raise PermissionError(13, "Permission denied", str(path))
            return names[name](path, *rest, **options)

        return refuse

    for name in names:
        monkeypatch.setattr(os, name, refusing(name))
    code, lines, err = out(deployed.anchored)
    assert (code, err) == (1, [])
    assert any(
        f"SP04 warning: {closed} could not be looked at as a whole" in line for line in lines
    )
    assert any(line.startswith("SP13 error: This process may not read from ") for line in lines)
    assert any(line.startswith(said) for line in lines)


def test_folders_without_end_are_a_warning(deployed: Deployed, out: Any) -> None:
    """And what lies beside them is still found."""
    deployed.record(2).unlink()
    here = os.open(deployed.state / "order-7", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", 0o700, dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    try:
        code, lines, err = out(deployed.anchored)
        assert (code, err) == (1, [])
        deep = [line for line in lines if "(it lies 65 folders deep)" in line]
        assert (len(deep), rules(deep)) == (1, ["SP03 warning:"])
        assert any("has checkpoint 3 but not 2" in line for line in lines)
    finally:
        subprocess.run(["rm", "-rf", deployed.state / "order-7/d"], check=True)


def test_a_folder_in_which_nothing_is_sealed_is_told_so(tmp_path: Path, out: Any) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "empty.json").touch()
    assert out([str(state)])[1][0].startswith("SP13 note: ")
    (state / "order-7.json").write_text('{"amount": 42}')
    code, lines, err = out([str(state)])
    assert (code, err) == (0, [])
    assert lines[0] == (
        f"SP02 note: Nothing in {state} is sealed, so an edit of what is there would not show. If"
        " these are checkpoints, read them once as data and seal them, with safepoint.migrate."
    )
    (state / "record").write_bytes(b"safepoint/1 x")
    assert not any("sealed, so" in line for line in out([str(state)])[1])


class Stolen(Deployed):
    """A key that a thief has, a copy of the anchor from before, and a new key."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.before, self.new = root / "before", root / "keys/new"
        shutil.copytree(self.apart, self.before)
        SigningKey.from_file(self.new, create=True)
        self.options = [str(self.state), "--store", "invoices", "--key", str(self.new)]

    def rob(self) -> None:
        thief = Ledger(FileCheckpointStorage(self.state), store="invoices", keys=self.ledger.keys)
        thief.save("order-7", {"payee": "mally"})


def test_what_a_thief_sealed_shows(tmp_path: Path, out: Any) -> None:
    stolen = Stolen(tmp_path)
    trusting = [*stolen.options, "--key", str(stolen.key)]
    point = f"{stolen.key}={stolen.before}"
    revoking = [*stolen.options, "--anchor", str(stolen.apart), "--revoked", point]
    code, lines, _ = out(revoking)
    told = [line for line in lines if line.startswith("SP08")]
    assert (code, rules(told)) == (1, ["SP08 warning:"])  # which says to seal them anew
    stolen.rob()
    assert out(trusting)[0] == 0
    code, lines, err = out(revoking)
    told = [line for line in lines if line.startswith("SP08")]
    assert (code, err, rules(told)) == (1, [], ["SP08 error:", "SP08 warning:"])
    assert told[0].startswith("SP08 error: order-7 #4 is sealed by key ")
    assert "does not count after #3" in told[0]


def test_without_a_copy_of_the_anchor_nothing_that_the_key_sealed_counts(
    tmp_path: Path, out: Any
) -> None:
    stolen = Stolen(tmp_path)
    alone = [str(stolen.state), "--store", "invoices", "--revoked", str(stolen.key)]
    for options in (alone, [*stolen.options, "--revoked", str(stolen.key)]):
        code, lines, _ = out(options)
        assert code == 1
        assert lines[0].startswith("SP08 error: order-7 #1 is sealed by key ")


def test_the_point_up_to_which_a_key_counts_is_no_anchor_that_moves(
    tmp_path: Path, out: Any
) -> None:
    stolen = Stolen(tmp_path)
    revoked = ["--anchor", str(stolen.apart), "--revoked", f"{stolen.key}={stolen.apart}"]
    code, lines, _ = out([*stolen.options, *revoked])
    assert code == 1
    assert "is revoked until the anchor that this ledger moves" in lines[-2]


@pytest.mark.parametrize("named", ["none", "{key}=none", "{key}=", "{new}", "=", ""])
def test_a_wrong_revoked_key_is_one_line(tmp_path: Path, out: Any, named: str) -> None:
    stolen = Stolen(tmp_path)
    value = named.format(key=stolen.key, new=stolen.new)
    code, lines, err = out([*stolen.options, "--revoked", value])
    assert (code, lines, len(err)) == (2, [], 1)


def test_a_file_in_place_of_the_folder_is_said(deployed: Deployed, out: Any) -> None:
    deployed.state.rename(deployed.state.with_name("moved"))
    deployed.state.touch()
    code, lines, err = out(deployed.anchored)
    assert (code, err) == (1, [])
    assert lines[0].startswith(f"SP04 error: {deployed.state} is not a folder.")


def test_a_key_in_the_storage_folder_is_said(deployed: Deployed, out: Any) -> None:
    shutil.move(deployed.key, deployed.state / "a-key")
    deployed.key = deployed.state / "a-key"
    code, lines, err = out(deployed.anchored)
    assert (code, err) == (1, [])
    said = f"SP08 error: The key {deployed.key} is inside the storage folder."
    assert [line.startswith(said) for line in lines].count(True) == 1
    assert lines[-1].startswith("SP02 warning: The records in ")


def test_an_anchor_in_the_storage_folder_is_said(deployed: Deployed, out: Any) -> None:
    shutil.move(deployed.apart, deployed.state / "anchor")
    deployed.apart = deployed.state / "anchor"
    code, lines, err = out(deployed.anchored)
    assert (code, err) == (1, [])
    told = f"SP15 error: The anchor {deployed.apart} is in one place with the storage"
    assert any(line.startswith(told) for line in lines)
    assert any(line.startswith("SP02 warning: The records in ") for line in lines)


def test_what_stops_it_half_way_comes_after_what_it_found(
    deployed: Deployed, out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise ConnectionError

    deployed.state.chmod(0o750)
    monkeypatch.setattr(StoredFolder, "threads", gone)
    code, lines, err = out(deployed.sealed)
    assert (code, rules(lines)) == (2, ["SP01 warning:", "SP07 warning:"])
    assert err == [
        (
            "The storage could not list the threads: it raised ConnectionError. See the error it"
            " came from, and make the storage raise errors of safepoint.errors."
        )
    ]


@pytest.mark.parametrize(
    ("check", "name"),
    [
        ("check_location", "the location"),
        ("check_contents", "what the files hold"),
        ("check_keys", "keys"),
        ("read", "records"),
        ("check_ownership", "owners"),
    ],
)
def test_a_check_that_fails_is_said_and_the_others_are_made(
    deployed: Deployed, out: Any, monkeypatch: pytest.MonkeyPatch, check: str, name: str
) -> None:
    """Whoever writes a record that one of them stumbles upon must not silence them all."""

    def fails(*_: Any, **__: Any) -> None:
        raise OverflowError

    (deployed.state / "deep.json").write_bytes(b"[" * 500)
    (deployed.key.parent / "key2").write_bytes(b"")
    whole = out(deployed.anchored)[1]
    monkeypatch.setattr(f"safepoint.audit.stores.{check}", fails)
    code, lines, err = out(deployed.anchored)
    assert (code, err) == (2, [f"The check of {name} failed: OverflowError. Report it."])
    assert set(lines) <= set(whole)
    assert "SP15 note:" in rules(lines)


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
            timeout=20,
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_long_chain_shows_a_bar_on_a_terminal_alone(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("safepoint.cli.time.monotonic", itertools.count().__next__)
    assert main(deployed.sealed) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(deployed.sealed) == 0
    assert "3 of 3" in capsys.readouterr().err


def listing(root: Path) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for path in [root, *sorted(root.rglob("*"))]:
        info, content = path.lstat(), path.read_bytes() if path.is_file() else b""
        found.append((path, info.st_mode, info.st_ino, info.st_nlink, content))
        found.append((path, info.st_mtime_ns, info.st_ctime_ns))
    return found


def test_nothing_on_disk_changes(deployed: Deployed, tmp_path: Path, out: Any) -> None:
    """Not even what a crash left: a storage of one's own would remove that."""
    temp = next(deployed.state.glob("*/*.checkpoint")).with_name(".next")
    temp.write_bytes(b"safepoint/1 half")
    temp.chmod(0o600)
    os.utime(temp, (0, 0))
    (deployed.state / "empty").mkdir(mode=0o700)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    before = listing(tmp_path)
    missing = [deployed.state / "none", tmp_path / "none"]
    assert out(deployed.anchored)[0] == 0
    assert out([*deployed.sealed, "--anchor", str(tmp_path / "none")])[0] == 2
    assert out([*deployed.sealed, "--anchor", str(tmp_path / "elsewhere")])[0] == 2
    for path in missing:
        assert out([str(path), *deployed.anchored[1:]])[0] == 2
    ledger = Ledger(
        StoredFolder(deployed.state),
        store="invoices",
        keys=deployed.ledger.keys,
        anchor=FileAnchor(deployed.apart),
    )
    check_records(ledger)
    check_anchor(ledger)
    check_keys(ledger.keys, deployed.state, ledger=ledger)
    assert listing(tmp_path) == before


def test_the_storage_of_the_audit_reads_and_refuses_to_write(deployed: Deployed) -> None:
    storage = StoredFolder(deployed.state)
    assert storage.head("order-7") == 3
    assert storage.read("order-7", 1) == deployed.record(1).read_bytes()
    with pytest.raises(ConfigurationError, match=r"This only looks, and changes nothing\."):
        storage.append("order-7", 4, b"x")
    with pytest.raises(ConfigurationError, match=r"This only looks, and changes nothing\."):
        storage.prune("order-7", 2, b"x")
    assert FileCheckpointStorage(deployed.state).head("order-7") == 3


def test_the_storage_of_the_audit_refuses_what_any_file_storage_refuses(
    deployed: Deployed,
) -> None:
    storage = StoredFolder(deployed.state)
    replaced = deployed.state.with_name("other")
    deployed.state.rename(replaced)
    deployed.state.mkdir(mode=0o700)
    with pytest.raises(UnsafeLocation, match="is not the folder that this storage was opened on"):
        storage.head("order-7")
    deployed.state.chmod(0o777)
    with pytest.raises(UnsafeLocation, match="can be written by others"):
        StoredFolder(deployed.state)


def test_a_journal_is_verified_with_its_key_and_its_anchor(deployed: Deployed, out: Any) -> None:
    apart = deployed.key.parent
    keys = Keyring(SigningKey.from_file(apart / "journal.key", create=True))
    ends = FileAnchor(apart.parent / "journal-anchor", create=True)
    journal = FileJournal(apart.parent / "journal", keys=keys, anchor=ends, create=True)
    for sequence in (1, 2):
        event = Event("save", "intended", Actor("ana", "login"), "invoices", "order-7", sequence)
        journal.record(event)
    options = ["--journal", str(journal.path), "--journal-key", str(apart / "journal.key")]
    code, lines, err = out([*deployed.sealed, *options, "--journal-anchor", str(ends.path)])
    assert (code, err, [line for line in lines if "SP20" in line]) == (0, [], [])
    code, lines, err = out([*deployed.sealed, *options])
    assert code == 1
    assert any(line.startswith("SP20 warning: The journal ") for line in lines)
    code, lines, err = out([*deployed.sealed, *options, "--journal-name", "other"])
    assert any(line.startswith("SP20 error: ") for line in lines)
    file = apart.parent / "journal/journal/0000000001.checkpoint"
    file.write_bytes(file.read_bytes().replace(b"ana", b"bob", 1))
    code, lines, err = out([*deployed.sealed, *options, "--journal-anchor", str(ends.path)])
    assert code == 1
    assert any(line.startswith("SP20 error: ") for line in lines)


@pytest.fixture
def paying(deployed: Deployed) -> Callable[[str, SigningKey], None]:
    """Let dana, by the key that is given, approve a run that asks."""

    def ask(state: dict[str, Any]) -> Ask:
        return Ask("pay", {"amount": 42})

    def pay(state: dict[str, Any], call: Call) -> dict[str, Any]:
        return {"paid": 42}

    def after(state: dict[str, Any]) -> None:
        pass

    ledger = Ledger(
        FileCheckpointStorage(deployed.state),
        store="invoices",
        keys=Keyring(SigningKey.from_file(deployed.key)),
        anchor=FileAnchor(deployed.apart),
        journal=InMemoryJournal(),
    )

    def run(thread: str, key: SigningKey) -> None:
        gate = Gate(approvers=Approvers({"dana": key.public}))
        workflow = Workflow("pay", [ask, pay, after], gate=gate)
        question = workflow.start(ledger, thread=thread).question
        assert question is not None
        workflow.resume(ledger, thread, approvals=[Approver("dana", key).approve(question)])

    return run


def public(deployed: Deployed, name: str, key: SigningKey) -> str:
    """Return what to write for an approver."""
    file = deployed.key.parent / f"{name}-{key.id}"
    key.public.to_file(file)
    return f"{name}={file}"


def test_an_approval_that_nobody_signed_is_found(deployed: Deployed, out: Any, paying: Any) -> None:
    dana, stranger = SigningKey.generate("ed25519"), SigningKey.generate("ed25519")
    for thread, key in (("order-8", dana), ("order-9", stranger)):
        paying(thread, key)
    code, lines, _ = out([*deployed.anchored, "--approver", public(deployed, "dana", dana)])
    assert code == 1
    assert {line[:11] for line in lines if "order-9" in line} == {"SP19 error:"}
    assert not [line for line in lines if "order-8" in line and "error" in line]


def test_what_needed_more_people_is_found(deployed: Deployed, out: Any, paying: Any) -> None:
    dana, erin = SigningKey.generate("ed25519"), SigningKey.generate("ed25519")
    paying("order-8", dana)
    people = [public(deployed, "dana", dana), public(deployed, "erin", erin)]
    options = [*deployed.anchored, "--approver", people[0], "--approver", people[1]]
    assert not [line for line in out(options)[1] if "order-8" in line]
    code, lines, _ = out([*options, "--people", "2"])
    (line,) = [line for line in lines if "order-8" in line]
    assert code == 1
    assert line.startswith("SP19 warning: order-8 #3 was resumed from #2. ")
    assert "It needed 2 to approve it, and 1 did." in line
    code, _, err = out([*options, "--people", "3"])
    assert (code, len(err)) == (2, 1)
    assert err[0].startswith("The number of approvers is 2, and the policy wants 3 for asked.")


def test_what_a_revoked_key_approved_is_a_warning(
    deployed: Deployed, out: Any, paying: Any
) -> None:
    old, new = SigningKey.generate("ed25519"), SigningKey.generate("ed25519")
    paying("order-8", old)
    options = [*deployed.anchored, "--approver", public(deployed, "dana", new)]
    assert any(line.startswith("SP19 error: order-8 #3 ") for line in out(options)[1])
    code, lines, _ = out([*options, "--revoked-approver", public(deployed, "dana", old)])
    (line,) = [line for line in lines if "order-8" in line]
    assert code == 1
    assert line.startswith(
        f"SP19 warning: order-8 #3 goes on from an approval by key {old.id} of dana, which was"
        " revoked."
    )
    code, _, err = out([*options, "--revoked-approver", "dana"])
    assert (code, err) == (
        2,
        ["'dana' does not say whose key it is. Write --revoked-approver dana=dana.key"],
    )


def test_a_record_of_the_first_day_there_is_does_not_end_the_audit(
    deployed: Deployed, out: Any, paying: Any
) -> None:
    """The thief of the writer's key dates a record so that a subtraction fails."""
    dana = SigningKey.generate("ed25519")
    paying("order-8", dana)
    ledger = deployed.ledger
    told = ledger.load("order-8", 3)
    for sequence in (4, 5, 3):
        (deployed.state / f"order-8/{sequence:010d}.checkpoint").unlink(missing_ok=True)
    record, _ = seal(
        ledger.codec.encode(told.state),
        Place("invoices", "order-8", 3),
        ledger.keys.signing,
        created=datetime(1, 1, 1, tzinfo=UTC),
        previous=told.previous,
        app=told.app,
    )
    FileCheckpointStorage(deployed.state).append("order-8", 3, record)
    code, lines, err = out([*deployed.sealed, "--approver", public(deployed, "dana", dana)])
    assert (code, err) == (1, [])
    (line,) = [line for line in lines if line.startswith("SP19")]
    assert line.startswith("SP19 warning: order-8 #3 goes on from an approval outside of its time.")
    assert "and it is only 0001-01-01T00:00:00.000000Z" in line


def test_a_thread_of_another_version_is_told(deployed: Deployed, out: Any) -> None:
    deployed.ledger.save("order-8", {}, app="invoice@1")
    assert "SP17 note:" not in rules(out([*deployed.anchored, "--app", "invoice@1"])[1])
    code, lines, _ = out([*deployed.anchored, "--app", "invoice@2"])
    assert code == 0
    assert "SP17 note:" in rules(lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--approver", "dana=x"], "--approver and --app need --key and --store"),
        (["--journal", "x"], "--journal and --journal-key belong together"),
        (["--journal-anchor", "x"], "--journal-anchor needs --journal"),
        (["--journal-name", "x"], "--journal-name needs --journal"),
        (["--people", "2"], "--people and --revoked-approver need --approver"),
        (["--revoked-approver", "a=b"], "--people and --revoked-approver need --approver"),
    ],
)
def test_options_that_belong_together(
    deployed: Deployed, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main([str(deployed.state), *options]) == 2
    assert message in capsys.readouterr().err


def test_nobody_is_not_enough_people(
    deployed: Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*deployed.sealed, "--approver", "dana=x", "--people", "0"]) == 2
    assert "--people must be 1 or more" in capsys.readouterr().err


def test_the_journal_of_default_locations_has_the_name_of_its_store(
    tmp_path: Path, out: Any
) -> None:
    places = default_locations("invoices", service=False, environ={"HOME": str(tmp_path)})
    open_ledger("invoices", places=places).save("order-7", {})
    journal_key = SigningKey.from_file(places.journal_key, create=True)
    journal = FileJournal(
        places.journal,
        keys=Keyring(journal_key),
        name="invoices",
        anchor=FileAnchor(places.journal_anchor, create=True),
        create=True,
    )
    open_ledger("invoices", places=places, journal=journal).save("order-7", {})
    options = [
        str(places.storage_file),
        *("--journal", str(places.journal)),
        *("--journal-key", str(places.journal_key)),
        *("--journal-anchor", str(places.journal_anchor)),
    ]
    assert "SP20 error:" in rules(out(options)[1])
    assert "SP20 error:" not in rules(out([*options, "--journal-name", "invoices"])[1])
    code, _, err = out([*options, "--journal-name", "../x"])
    assert (code, len(err)) == (2, 1)


def test_an_approver_without_a_file_is_told(deployed: Deployed, out: Any) -> None:
    code, _, err = out([*deployed.sealed, "--approver", "dana"])
    assert (code, err) == (
        2,
        ["'dana' does not say whose key it is. Write --approver dana=dana.key"],
    )
