"""The progress bar: in a terminal it shows where the work is, elsewhere nothing at all."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys

import pytest

from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint import progress as module
from safepoint.progress import Bar

ERASE = "\r\x1b[K"


class Screen(io.StringIO):
    """A terminal that keeps what was written, and counts how often it was flushed."""

    flushes = 0
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.flushes += 1
        super().flush()


class Clock:
    """A clock that moves when told to."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setenv("COLUMNS", "80")
    return clock


def test_it_shows_how_far_the_work_is(clock: Clock) -> None:
    screen = Screen()
    bar = Bar("order-7", screen)
    clock.now += 1
    bar(5_000, 20_000)
    assert screen.getvalue() == f"\rorder-7 {'█' * 8}{'·' * 22} 5,000 of 20,000"
    assert screen.flushes == 1


def test_each_line_goes_over_the_one_before(clock: Clock) -> None:
    screen = Screen()
    bar = Bar("order-7", screen)
    for done in (1, 2, 3):
        clock.now += 1
        bar(done, 3)
    assert "\n" not in screen.getvalue()
    assert re.findall(r"\r.*?(\d) of 3", screen.getvalue()) == ["1", "2", "3"]


def test_short_work_shows_nothing(clock: Clock) -> None:
    screen = Screen()
    with Bar("order-7", screen) as bar:
        for done in range(1, 50):
            clock.now += 0.01
            bar(done, 50)
    assert screen.getvalue() == ""


def test_it_draws_a_few_times_a_second_however_often_it_is_called(clock: Clock) -> None:
    screen = Screen()
    bar = Bar("order-7", screen)
    clock.now += 1
    for done in range(1, 10_001):
        clock.now += 0.0001
        bar(done, 10_000)
    assert 9 <= screen.flushes <= 11


def test_it_leaves_a_clean_line(clock: Clock) -> None:
    screen = Screen()
    with Bar("order-7", screen) as bar:
        clock.now += 1
        bar(1, 2)
    assert screen.getvalue().endswith(ERASE)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_it_leaves_a_clean_line_when_the_work_is_cut_off(
    clock: Clock, error: type[BaseException]
) -> None:
    screen = Screen()

    def work() -> None:
        with Bar("order-7", screen) as bar:
            clock.now += 1
            bar(1, 2)
            raise error

    with pytest.raises(error):
        work()
    assert screen.getvalue().endswith(ERASE)


def test_it_cleans_nothing_where_it_drew_nothing(clock: Clock) -> None:
    screen = Screen()
    with Bar("order-7", screen):
        clock.now += 1
    assert screen.getvalue() == ""


def test_where_there_is_no_terminal_it_writes_nothing(clock: Clock) -> None:
    log = io.StringIO()
    with Bar("order-7", log) as bar:
        for done in range(1, 11):
            clock.now += 1
            bar(done, 10)
    assert log.getvalue() == ""


def test_a_log_file_stays_free_of_it(clock: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    """Standard error is a file here, as in a service or in CI."""
    with Bar("order-7") as bar:
        clock.now += 1
        bar(1, 2)
    assert capfd.readouterr() == ("", "")


def test_a_process_without_standard_error_works_on(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with Bar("order-7") as bar:
        clock.now += 1
        bar(1, 2)


def test_standard_error_is_where_it_shows(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    bar = Bar("order-7")
    clock.now += 1
    bar(1, 2)
    assert "1 of 2" in screen.getvalue()


@pytest.mark.parametrize(
    ("done", "total", "filled"),
    [(0, 0, 30), (0, 10, 0), (10, 10, 30), (12, 10, 30)],
    ids=["nothing to do", "begun", "done", "it grew meanwhile"],
)
def test_odd_numbers_break_nothing(clock: Clock, done: int, total: int, filled: int) -> None:
    screen = Screen()
    bar = Bar("order-7", screen)
    clock.now += 1
    bar(done, total)
    assert screen.getvalue().count("█") == filled
    assert screen.getvalue().count("·") == 30 - filled


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", None, "no such encoding"])
def test_a_terminal_without_the_glyphs_gets_others(clock: Clock, encoding: str | None) -> None:
    screen = Screen()
    screen.encoding = encoding  # type: ignore[assignment]
    bar = Bar("order-7", screen)
    clock.now += 1
    bar(1, 2)
    assert screen.getvalue() == f"\rorder-7 {'#' * 15}{'.' * 15} 1 of 2"


@pytest.mark.parametrize("columns", ["40", "60", "80"])
def test_a_long_name_does_not_wrap(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """What wraps stays on the screen: the line break cannot be written over."""
    monkeypatch.setenv("COLUMNS", columns)
    screen = Screen()
    bar = Bar("x" * 64, screen)
    clock.now += 1
    bar(1, 2)
    assert len(screen.getvalue().removeprefix("\r")) < int(columns)


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(5, "hung up"), ValueError("closed")])
def test_a_terminal_that_goes_away_does_not_end_the_work(clock: Clock, error: Exception) -> None:
    class Gone(Screen):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            raise error

    screen = Gone()
    with Bar("order-7", screen) as bar:
        for done in (1, 2, 3):
            clock.now += 1
            bar(done, 3)
    assert screen.writes == 1


def read_terminal(descriptor: int) -> str:
    """Read what was written to the other end, which is closed by now."""
    parts = []
    with contextlib.suppress(OSError):  # Linux says so at the end, others return nothing
        while part := os.read(descriptor, 4096):
            parts.append(part)
    return b"".join(parts).decode()


def test_a_real_terminal_shows_a_thread_being_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", -1.0)
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    keys = Keyring(SigningKey.generate())
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
    for number in range(3):
        ledger.save("order-7", number)
    ours, theirs = os.openpty()
    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as terminal, Bar("order-7", terminal) as bar:
            assert ledger.verify("order-7", progress=bar) == 3
        shown = read_terminal(ours)
    finally:
        os.close(ours)
    assert re.findall(r"(\d) of 3", shown) == ["1", "2", "3"]
    assert shown.endswith(ERASE)
