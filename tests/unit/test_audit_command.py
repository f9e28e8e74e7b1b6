"""safepoint audit: runs what applies, one line per finding, and changes nothing."""

from __future__ import annotations

import io
import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from safepoint.audit.looking import CHECKS
from safepoint.command.cli import main
from tests.zoo.build import Deployed


@pytest.fixture(autouse=True)
def _no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, which is a finding of its own."""
    monkeypatch.setattr("safepoint.audit.folder.temp_folders", list)


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


def rules(lines: list[str]) -> set[str]:
    return {line[:4] for line in lines}


# --- options


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("", "name a PATH or --store NAME, or write safepoint.toml with [audit] and paths ="),
        (
            "postgresql://x",
            "a connection string is not a PATH: name a store of it in safepoint.toml",
        ),
    ],
)
def test_wrong_options_are_one_line(out: Any, arguments: str, line: str) -> None:
    code, lines, [said] = out(arguments.split())
    assert (code, lines) == (2, [])
    assert said.startswith(f"safepoint audit: {line}")
    assert said.endswith(". Try: safepoint audit --help")


@pytest.mark.parametrize("parts", [{"key": ["a\0b"]}, {"people": 0}, {"name": ""}])
def test_a_wrong_value_is_one_line_and_no_traceback(
    deployed: Deployed, out: Any, parts: dict[str, object]
) -> None:
    code, lines, err = out(deployed.arguments(**parts))
    assert (code, lines, len(err)) == (2, [], 1)


@pytest.mark.parametrize(
    ("part", "value", "which"),
    [
        ("anchor", "none", "SP15.unavailable"),
        ("approvers", "KEYS", "SP19.unsafe"),
    ],
)
def test_a_part_that_is_refused_hides_nothing_else(
    deployed: Deployed, out: Any, part: str, value: Any, which: str
) -> None:
    deployed.record(2).chmod(0o644)
    keys = deployed.root / "keys"
    (keys / "dana.pub").write_text("no key")
    given = json.loads(json.dumps(value).replace("KEYS", str(keys)))
    code, lines, err = out(deployed.arguments(**{part: given}))
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


@pytest.mark.parametrize("name", ["places", "contents", "records"])
def test_a_check_that_fails_is_said_and_the_others_are_made(
    deployed: Deployed, out: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whoever writes a record that one of them stumbles upon must not silence them all."""

    def fails(_: object) -> Any:
        raise OverflowError

    (deployed.storage / "deep.json").write_bytes(b"[" * 500)
    whole = out(deployed.arguments())[1]
    monkeypatch.setitem(CHECKS, name, fails)
    code, lines, err = out(deployed.arguments())
    failed = f"was not checked ({name}): It failed with OverflowError. Report it."
    assert (code, err) == (2, [])
    assert {*lines[:-1]} - {*whole} == {f"audit.failed error: {deployed.storage} {failed}"}
    assert {"SP15", "SP10"} - {{"contents": "SP10", "records": "SP15"}.get(name)} <= rules(lines)


def test_how_far_it_is_stands_on_a_terminal_alone_and_is_gone_at_the_end(
    tmp_path: Path, out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (tmp_path / f"{number}.json").write_text("{}")
    clock = count(0, 10)
    monkeypatch.setattr("safepoint.shared.terminal.time.monotonic", lambda: next(clock))
    for shows in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda shows=shows: shows)
        monkeypatch.setattr(sys, "__stderr__", stream)
        assert out([str(tmp_path)])[2] == []
        lines = [each for each in stream.getvalue().split("\r") if each]
        last = "Looked at 5 files and records"
        assert lines[-2:] == ([last, " " * len(last)] if shows else [])
