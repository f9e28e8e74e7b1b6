"""safepoint audit: runs what applies, one line per finding, and changes nothing."""

from __future__ import annotations

import json
import re
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


def rules(lines: list[str]) -> list[str]:
    begins = [line.partition(":")[0] for line in lines if line.startswith("SP")]
    return [re.sub(r"\.\S+", "", each) for each in begins]


# --- options


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("", "name a PATH or --store NAME, or write safepoint.toml with [audit] and paths ="),
        (
            "postgresql://x",
            "a connection string is not a PATH: name a store of it in safepoint.toml",
        ),
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
    code, lines, err = out(deployed.arguments(**parts))
    assert (code, lines, len(err)) == (2, [], 1)


@pytest.mark.parametrize(
    ("part", "value", "which"),
    [
        ("key", ["none"], "SP22.unsafe"),
        ("anchor", "none", "SP15.unavailable"),
        ("anchor", "KEYS", "SP15.unavailable"),
        ("approvers", "none", "SP19.unavailable"),
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
    others = {"SP15 note", "SP10 warning"} - ({"SP10 warning"} if name == "contents" else set())
    assert others - ({"SP15 note"} if name == "records" else set()) <= {*rules(lines)}
