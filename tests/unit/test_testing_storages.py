"""The suite for storages can fail: each claim is kept by a sound storage, and broken by another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import safepoint.testing
from safepoint.errors import ConfigurationError, StorageFull
from safepoint.storage import InMemoryCheckpointStorage
from safepoint.testing import Claim, Report, StorageSuite, _suite, check_storage
from safepoint.testing.storages import claims
from tests.unit.broken_storages import BROKEN, Overwrites, RaisesAKeyError, Sound
from tests.unit.commands import storage_suite as main

ORDER = "a_place_out_of_order_is_refused"


@pytest.fixture(autouse=True)
def _a_world_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """And little patience with a storage that never lets go."""
    monkeypatch.setattr(Sound, "worlds", {})
    monkeypatch.setattr(_suite, "PATIENCE", 1.0)


def suite_of(storage: Callable[[Path], Any]) -> type[StorageSuite]:
    class Suite(StorageSuite):
        def open(self, folder: Path) -> Any:
            return storage(folder)

    return Suite


def outcomes(report: Report) -> dict[str, str]:
    return {claim.name: claim.outcome for claim in report.claims}


def test_a_sound_storage_keeps_every_claim() -> None:
    """All but the one that a storage may leave to the ledger."""
    found = outcomes(check_storage(Sound))
    assert found.pop(ORDER) == "not offered"
    assert set(found.values()) == {"passed"}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_storage_is_caught(name: str) -> None:
    storage, expected = BROKEN[name]
    suite = suite_of(storage)
    tried = [suite._tried(claim) for claim in expected]
    assert [(each.name, each.outcome) for each in tried] == [(each, "failed") for each in expected]
    for each in tried:
        assert each.message.isascii()
        assert each.message.isprintable()
        assert "Barrier" not in each.message


def test_each_claim_has_a_storage_that_breaks_it() -> None:
    assert {claim for _, expected in BROKEN.values() for claim in expected} == set(claims())


def test_each_claim_says_what_it_claims() -> None:
    """In one sentence, which a report carries."""
    for claim in check_storage(Sound).claims:
        assert claim.sentence.endswith("."), claim.name
        assert "\n" not in claim.sentence


def test_a_failed_claim_says_what_should_have_happened() -> None:
    assert str(suite_of(Overwrites)._tried("a_second_record_at_a_place_is_refused")) == (
        "failed       a_second_record_at_a_place_is_refused: A second record at a place must be"
        " refused with Conflict, and was accepted."
    )
    assert str(suite_of(RaisesAKeyError)._tried("what_is_not_there_is_not_found")) == (
        "failed       what_is_not_there_is_not_found: A read of what is not there must be refused"
        " with NotFound, and KeyError came."
    )
    storage, _ = BROKEN["CountsFromZero"]
    assert str(suite_of(storage)._tried("the_head_is_the_highest_sequence")) == (
        "failed       the_head_is_the_highest_sequence: The head must be the highest sequence."
        " Wanted 1, found 0."
    )
    storage, _ = BROKEN["SaysItOnTwoLines"]
    assert suite_of(storage)._tried("a_second_record_at_a_place_is_refused").message == (
        "A refusal must say on one line what happened and what to do:"
        r" 'It is taken.\nBy somebody. Look again.'."
    )


def test_an_error_of_another_kind_fails_the_claim_on_one_line() -> None:
    class Raises(Sound):
        def head(self, thread: str) -> int:
            raise OSError("the disk\nis \xe4 way")

    found = suite_of(Raises)._tried("the_head_is_the_highest_sequence")
    assert (found.outcome, found.message) == ("failed", r"OSError came: the disk is \xe4 way")


def test_what_is_not_offered_is_never_passed() -> None:
    """Of a storage with four methods, in one process and one thread."""

    class Four:
        def __init__(self) -> None:
            inner = InMemoryCheckpointStorage()
            self.read, self.head, self.threads = inner.read, inner.head, inner.threads
            self.inner = inner

        def append(self, thread: str, sequence: int, record: bytes) -> None:
            self.inner.append(thread, sequence, record)

    report = check_storage(lambda _: Four(), shared=False, threadsafe=False, guarded=False)
    assert [claim.name for claim in report.that("passed")] == [
        "methods_come_in_whole_sets",
        "a_record_comes_back_byte_for_byte",
        "a_second_record_at_a_place_is_refused",
        "a_refused_record_leaves_nothing",
        "a_refusal_shows_no_record",
        "threads_do_not_mix",
        "the_head_is_the_highest_sequence",
        "each_thread_is_listed_once",
        "what_is_not_there_is_not_found",
        "a_buffer_is_copied",
        "a_ledger_saves_and_verifies",
    ]
    assert report.failed == ()
    reasons = {claim.message for claim in report.that("not offered")}
    assert reasons == {
        "It keeps a record at any free place: the ledger sees to the order.",
        "It leaves such arguments to the ledger: guarded = False.",
        "It lives in one process: shared = False.",
        "One thread of one process uses it: nobody can race.",
        "One thread uses an opening: threadsafe = False.",
        "It has no base and no prune.",
        "It has no scan.",
        "It has no acquire and no renew and no release and no lease.",
    }


def test_a_storage_that_never_answers_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_suite, "PATIENCE", 0.2)
    stopped = Event()

    class Hangs(Sound):
        def append(self, *args: Any, **options: Any) -> None:
            stopped.wait(30)

    found = suite_of(Hangs)._tried("one_of_two_racers_gets_a_place")
    stopped.set()
    assert found.message.startswith("Racers must come to an end within")


def test_a_report_prints_as_a_table() -> None:
    report = Report(
        (
            Claim("one", "One.", "passed"),
            Claim("two", "Two.", "failed", "It broke."),
            Claim("three", "Three.", "not offered", "It has no scan."),
        )
    )
    assert str(report) == (
        "passed       one\n"
        "failed       two: It broke.\n"
        "not offered  three: It has no scan.\n"
        "3 claims: 1 passed, 1 failed, 1 not offered"
    )
    assert report.exit_code == 1
    assert Report(report.claims[::2]).exit_code == 0


def closed(_: Path) -> Any:
    raise ValueError("not\ntoday")


def full(_: Path) -> Any:
    raise StorageFull("The disk is full.", "Make room.")


@pytest.mark.parametrize(
    ("opening", "told"),
    [
        (
            lambda _: object(),
            (
                "object is no storage: it has no append, no read, no head, no threads."
                " Write a class with the methods append, read, head, threads."
            ),
        ),
        (
            closed,
            (
                "The storage could not be opened: it raised ValueError."
                " Write a function that takes a folder and returns a storage."
            ),
        ),
        (
            None,
            "None cannot be called. Write a function that takes a folder and returns a storage.",
        ),
    ],
)
def test_what_is_no_storage_is_refused(opening: Any, told: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        check_storage(opening)
    assert str(refusal.value) == told


def test_a_suite_without_an_open_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="could not be opened: it raised NotImplementedError"
    ):
        StorageSuite.check()


HERE = "tests.unit.test_testing_storages"


class Suited(StorageSuite):
    def open(self, folder: Path) -> Sound:
        return Sound(folder)


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    for argument in ("tests.unit.broken_storages:Sound", f"{HERE}:Suited"):
        assert main([argument]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "passed       methods_come_in_whole_sets"
        assert lines[-1] == "65 claims: 64 passed, 0 failed, 1 not offered"


def test_the_command_takes_what_is_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--one-process", "--one-thread", "--unguarded"]
    assert main(["tests.unit.broken_storages:Sound", *options]) == 0
    said = capsys.readouterr().out
    for reason in ("shared = False", "threadsafe = False", "guarded = False"):
        assert reason in said


def test_the_command_fails_with_a_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tests.unit.broken_storages:Overwrites"]) == 1
    assert (
        "\nfailed       a_second_record_at_a_place_is_refused: A second" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("app", "'app' is not MODULE:NAME. Write app.storage:open_storage"),
        (":x", "':x' is not MODULE:NAME. Write app.storage:open_storage"),
        (
            "no_such_module:x",
            (
                "'no_such_module:x' cannot be imported: it raised ModuleNotFoundError."
                " Name what python -c 'import MODULE' finds."
            ),
        ),
        (
            f"{HERE}:nothing",
            (
                "'tests.unit.test_testing_storages:nothing' cannot be imported: it raised"
                " AttributeError. Name what python -c 'import MODULE' finds."
            ),
        ),
        (
            f"{HERE}:HERE",
            (
                "'tests.unit.test_testing_storages' cannot be called. Write a function that takes a"
                " folder and returns a storage."
            ),
        ),
        (
            f"{HERE}:closed",
            (
                "The storage could not be opened: it raised ValueError."
                " Write a function that takes a folder and returns a storage."
            ),
        ),
    ],
)
def test_the_command_refuses_bad_input_on_one_line(
    argument: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{told}\n")


PYTEST = """
from safepoint.testing import StorageSuite
from tests.unit.broken_storages import LosesARacer, Sound

class TestSound(StorageSuite):
    def open(self, folder):
        return Sound(folder)

class TestBroken(StorageSuite):
    def open(self, folder):
        return LosesARacer(folder)
"""


def test_pytest_collects_the_claims_of_a_subclass_alone(tmp_path: Path) -> None:
    """One test each; what is not offered is a skip; the suite itself is not collected."""
    file = tmp_path / "test_mine.py"
    file.write_text(PYTEST)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path),
         "-c", "/dev/null", "--tb=line", str(file)],
        cwd=root, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert "2 skipped" in last
    assert "StorageSuite::" not in done.stdout
    assert "TestBroken::test_one_of_two_racers_gets_a_place" in done.stdout
    assert "TestSound::" not in "".join(
        line for line in done.stdout.splitlines(keepends=True) if line.startswith("FAILED")
    )


def test_the_names_that_are_offered() -> None:
    assert sorted(safepoint.testing.__all__) == [
        "Claim",
        "NotOffered",
        "Report",
        "StorageSuite",
        "check_storage",
    ]
    assert not any(name.startswith("Test") for name in safepoint.testing.__all__)
