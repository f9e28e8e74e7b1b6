"""safepoint audit: runs what applies, one line per finding, and changes nothing."""

from __future__ import annotations

import json
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
