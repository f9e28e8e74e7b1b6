"""`python -m safepoint.pickles`: one line for each thing to know, and an exit code to build on."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from safepoint import Codec, FileAnchor, FileCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint.pickles.__main__ import main

ACTS = b"cos\nsystem\n(S'id'\ntR."
HOSTILE = "Nothing was run. Treat it as hostile: do not load it, and ask who wrote it."
NOT_PLAIN = (
    "Not plain data: The pickle wants os.system, which is not on the list of what may be built."
)
SUSPICIOUS = (
    "`from os import system` is suspicious and indicative of an overtly malicious pickle file"
)
YOURS = (
    "If that is a dataclass, an Enum or a pydantic model of yours, pass it as a type. Anything else"
    " is not migrated: look what it does with safepoint.pickles decompile."
)
VOUCH = (
    "These files carry no seal, so whoever could write them decides what they say. Look at them"
    " first, with --dry-run. If you vouch for them, add --allow-unsigned-migration"
)
NAME = "Name a class that python -c 'import MODULE' finds."
FOLDER = "Name a folder of files that this user can read. Links are not followed."
Printed = pytest.CaptureFixture[str]


@dataclass
class Invoice:
    number: int


class Payload:
    """Leaves a folder where a pickle of it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(printed: Printed) -> tuple[list[str], list[str]]:
    out, err = printed.readouterr()
    return out.splitlines(), err.splitlines()


# inspect


def test_inspect_says_what_a_file_is_and_what_it_wants(here: Path, capsys: Printed) -> None:
    (here / "model.pt").write_bytes(ACTS)
    (here / "state").write_bytes(pickle.dumps([1, 2]))
    assert main(["inspect", "model.pt", "state"]) == 1
    assert lines(capsys) == (
        [
            "model.pt is a pickle (21 bytes).",
            f"  6 instructions of protocol 0, asks for os.system, makes calls. {NOT_PLAIN}",
            "state is a pickle (20 bytes).",
            "  9 instructions of protocol 4. Plain data.",
        ],
        [],
    )


def test_inspect_is_fine_with_plain_data(here: Path, capsys: Printed) -> None:
    (here / "state").write_bytes(pickle.dumps({"a": 1}))
    (here / "note.json").write_text("{}")
    assert main(["inspect", "state", "note.json"]) == 0
    assert lines(capsys)[0][-1] == "note.json is JSON (2 bytes)."


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "  There is nothing in it."),
        (b"hello", "  It is of no format that is known here."),
        (b"\x1f\x8b\x08" + bytes(9), "  It is compressed data (gzip), which is not entered."),
    ],
    ids=["empty", "text", "compressed"],
)
def test_nothing_seen_is_not_fine(here: Path, capsys: Printed, data: bytes, line: str) -> None:
    """A scanner that finds nothing to scan must not say that all is well."""
    (here / "x").write_bytes(data)
    assert main(["inspect", "x"]) == 1
    assert lines(capsys)[0][-1] == line


# decompile, trace, check


def test_decompile_prints_code(here: Path, capsys: Printed) -> None:
    (here / "a.pkl").write_bytes(ACTS)
    (here / "b.pkl").write_bytes(pickle.dumps(1))
    assert main(["decompile", "a.pkl", "b.pkl"]) == 0
    assert lines(capsys)[0] == [
        "# a.pkl",
        "from os import system",
        "_var0 = system('id')",
        "result = _var0",
        "# b.pkl",
        "result = 1",
    ]


def test_trace_prints_steps(here: Path, capsys: Printed) -> None:
    (here / "a.pkl").write_bytes(b"N.")
    assert main(["trace", "a.pkl"]) == 0
    assert lines(capsys)[0] == [
        "NONE",
        "\tPushed None",
        "STOP",
        "\tresult = None",
        "\tPopped None",
    ]


def test_check_prints_the_verdict(here: Path, capsys: Printed) -> None:
    (here / "a.pkl").write_bytes(ACTS)
    (here / "b.pkl").write_bytes(pickle.dumps([1]))
    assert main(["check", "b.pkl"]) == 0
    assert main(["check", "b.pkl", "a.pkl"]) == 1
    out, _ = lines(capsys)
    assert out[:4] == [
        "b.pkl: LIKELY_SAFE",
        "b.pkl: LIKELY_SAFE",
        "a.pkl: LIKELY_OVERTLY_MALICIOUS",
        f"  {SUSPICIOUS}",
    ]


@pytest.mark.parametrize("command", ["inspect", "decompile", "trace", "check"])
def test_each_problem_is_one_line_and_the_other_files_are_looked_at(
    here: Path, capsys: Printed, command: str
) -> None:
    (here / "more.pkl").write_bytes(pickle.dumps(1) + b"PK")
    (here / "fine.pkl").write_bytes(pickle.dumps(1))
    (here / "folder").mkdir()
    assert main([command, "more.pkl", "fine.pkl"]) == 1
    out, err = lines(capsys)
    assert "fine.pkl" in "".join(out)
    assert len(err) == 1
    assert err[0].startswith("more.pkl: The file is a pickle, and ")
    assert main([command, "nothing", "folder", "fine.pkl", "more.pkl"]) == 2
    _, err = lines(capsys)
    assert err[:2] == [
        "There is no file nothing. Check the path.",
        "folder is a folder, a pipe or a device. Name a file.",
    ]
    assert len(err) == 3


def test_a_broken_pickle_is_a_line_with_what_ran_by_then(here: Path, capsys: Printed) -> None:
    (here / "a.pkl").write_bytes(ACTS[:-1])
    assert main(["decompile", "a.pkl"]) == 1
    assert lines(capsys)[1] == [
        f"a.pkl: The pickle is cut short. Before that, it asks for os.system. {HOSTILE}"
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["inspect"],
        ["explode", "x"],
        ["migrate", "old"],
        ["inspect", "x", "--dry-run"],
        ["migrate", "old", "--to", "s", "--store", "x", "--key", "k", "--report"],
    ],
)
def test_a_wrong_command_is_one_line(capsys: Printed, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    _, err = lines(capsys)
    assert len(err) == 1
    assert err[0].endswith("--help")


# migrate


@pytest.fixture
def key(here: Path) -> Path:
    SigningKey.from_file(here / "keys" / "signing.key", create=True)
    return here / "keys" / "signing.key"


def migrate(*more: str, folder: str = "old") -> int:
    where = ["--to", "state", "--store", "invoices", "--key", "keys/signing.key"]
    return main(["migrate", folder, *where, "--report", "moved.jsonl", *more])


def opened(here: Path, *types: type) -> Ledger:
    keys = Keyring(SigningKey.from_file(here / "keys" / "signing.key"))
    storage = FileCheckpointStorage(here / "state")
    return Ledger(storage, store="invoices", keys=keys, codec=Codec(types))


@pytest.fixture
def old(here: Path, key: Path) -> Path:
    folder = here / "old"
    folder.mkdir()
    (folder / "order-7.pkl").write_bytes(pickle.dumps({"amount": 42}))
    return folder


def test_a_dry_run_says_what_would_happen_and_makes_nothing(
    here: Path, old: Path, capsys: Printed
) -> None:
    (old / "order-8.pkl").write_bytes(ACTS)
    before = sorted(here.rglob("*"))
    assert migrate("--dry-run") == 1
    out, err = lines(capsys)
    assert out == [
        "order-7.pkl would be sealed as order-7 #1.",
        "2 files: 1 would be sealed, 0 sealed before, 1 refused. Nothing was written.",
    ]
    assert err == [f"old/order-8.pkl: It wants os.system (byte 0), which may not be built. {YOURS}"]
    assert sorted(here.rglob("*")) == before


def test_a_migration_seals_and_run_again_changes_nothing(
    here: Path, old: Path, capsys: Printed
) -> None:
    assert migrate("--allow-unsigned-migration", "--app", "old/1") == 0
    assert lines(capsys) == (["1 file: 1 sealed, 0 sealed before, 0 refused."], [])
    assert opened(here).latest("order-7").state == {"amount": 42}
    assert opened(here).latest("order-7").app == "old/1"
    before = {path: path.stat().st_mtime_ns for path in (here / "state").rglob("*")}
    assert migrate("--dry-run", "--app", "old/1") == 0
    assert lines(capsys)[0][0] == "order-7.pkl is there already as order-7 #1."
    assert {path: path.stat().st_mtime_ns for path in (here / "state").rglob("*")} == before
    assert migrate("--allow-unsigned-migration", "--app", "old/1") == 0
    assert lines(capsys)[0] == ["1 file: 0 sealed, 1 sealed before, 0 refused."]
    written = (here / "moved.jsonl").read_text().splitlines()
    assert [json.loads(line)["outcome"] for line in written] == [
        "begun",
        "sealed",
        "begun",
        "there already",
    ]


def test_without_your_word_nothing_happens(here: Path, old: Path, capsys: Printed) -> None:
    assert migrate() == 2
    assert lines(capsys) == (
        [],
        [VOUCH],
    )
    assert not (here / "state").exists()
    assert not (here / "moved.jsonl").exists()


def test_one_refused_file_is_exit_code_1_and_the_others_are_sealed(
    here: Path, old: Path, capsys: Printed
) -> None:
    (old / "a.pkl").write_bytes(ACTS)
    (old / "z.pkl").write_bytes(pickle.dumps(1))
    assert migrate("--allow-unsigned-migration") == 1
    assert lines(capsys)[0] == ["3 files: 2 sealed, 0 sealed before, 1 refused."]
    assert opened(here).threads() == ["order-7", "z"]


def test_a_type_of_yours_is_imported_by_name(here: Path, old: Path, capsys: Printed) -> None:
    (old / "order-8.pkl").write_bytes(pickle.dumps(Invoice(8)))
    assert migrate("--dry-run") == 1
    assert f"It wants {__name__}.Invoice (byte " in lines(capsys)[1][0]
    assert migrate("--allow-unsigned-migration", "--type", f"{__name__}:Invoice") == 0
    assert opened(here, Invoice).latest("order-8").state == Invoice(8)


@pytest.mark.parametrize(
    ("named", "line"),
    [
        ("Invoice", "'Invoice' does not name a type. Write --type app.models:Invoice"),
        (
            "nowhere:Invoice",
            f"'nowhere:Invoice' cannot be imported: it raised ModuleNotFoundError. {NAME}",
        ),
        ("os:getcwd", "'os:getcwd' is no class. Write --type app.models:Invoice"),
        (
            "os:nothing",
            f"'os:nothing' cannot be imported: it raised AttributeError. {NAME}",
        ),
        ("builtins:dict", None),
    ],
)
def test_a_type_that_is_none(
    here: Path, old: Path, capsys: Printed, named: str, line: str | None
) -> None:
    assert migrate("--dry-run", "--type", named) == 2
    (err,) = lines(capsys)[1]
    assert line is None or err == line
    assert not (here / "state").exists()


def test_an_anchor_is_moved_along(here: Path, old: Path) -> None:
    assert migrate("--dry-run", "--anchor", "anchor") == 2
    anchor = FileAnchor(here / "anchor", create=True)
    assert migrate("--allow-unsigned-migration", "--anchor", "anchor") == 0
    head = anchor.read("invoices", "order-7")
    assert head is not None
    assert head.sequence == 1


@pytest.mark.parametrize(
    ("more", "begins"),
    [
        (["--key", "nothing.key"], "There is no key file"),
        (["--store", "No Name"], "'No Name' is not a store name."),
        (["--to", "keys"], ""),
        (["--report", "old"], "The report old cannot be written (Is a directory)."),
    ],
)
def test_what_cannot_be_done_is_one_line(
    old: Path, capsys: Printed, more: list[str], begins: str
) -> None:
    assert migrate("--allow-unsigned-migration", *more) == 2
    out, err = lines(capsys)
    assert not out
    assert len(err) == 1


def test_a_folder_that_is_not_there(old: Path, capsys: Printed) -> None:
    assert migrate("--dry-run", folder="nowhere") == 2
    assert lines(capsys)[1] == [f"nowhere cannot be read (No such file or directory). {FOLDER}"]


# As a process


def started(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "safepoint.pickles", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **more)


def test_no_code_of_the_folder_runs(here: Path) -> None:
    """Not that of a pickle, and not that of a module beside it."""
    marker = here / "marker"
    (here / "x.pkl").write_bytes(pickle.dumps(Payload(marker)))
    for name in ("pickle", "fickling", "json", "argparse", "posix", "torch"):
        (here / f"{name}.py").write_text(f"import os; os.mkdir({str(marker)!r})")
    for command in ("inspect", "decompile", "trace", "check"):
        done = started(command, "x.pkl")
        assert "mkdir" in done.stdout, done
        assert not done.stderr
        assert done.returncode == (command in ("inspect", "check"))
    assert not marker.exists()


def test_whoever_has_read_enough_ends_it_without_a_traceback(here: Path) -> None:
    (here / "x.pkl").write_bytes(ACTS)
    command = [sys.executable, "-m", "safepoint.pickles", "inspect", *["x.pkl"] * 3000]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


INTERRUPTED = """
import os, signal, sys
from safepoint import Ledger
from safepoint.pickles.__main__ import main

save, calls = Ledger.save, []

def interrupted(*args, **kwargs):
    calls.append(args)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.SIGINT)
    return save(*args, **kwargs)

Ledger.save = interrupted
sys.exit(main(sys.argv[1:]))
"""


def test_an_interrupt_is_one_line(here: Path, old: Path) -> None:
    for number in range(10):
        (old / f"{number}.pkl").write_bytes(pickle.dumps(number))
    where = ["--to", "state", "--store", "invoices", "--key", "keys/signing.key"]
    command = [sys.executable, "-c", INTERRUPTED, "migrate", "old", *where]
    command += ["--report", "moved.jsonl", "--allow-unsigned-migration"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == (
        "It was interrupted. Run it again with the same report: it goes on from there.\n"
    )
    assert done.returncode == 2
    assert len(opened(here).threads()) == 3


def test_help_says_what_is_imported() -> None:
    done = started("migrate", "--help")
    text = " ".join(done.stdout.split())
    assert "its module is imported, and so runs" in text
    assert "start Python with -P, so that it takes no module from there" in text
    assert "exit status: 0 fine, 1 something to look at or refused, 2 it cannot be done" in text
