"""SP11: size, depth and count are bounded before anything is parsed."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, Final

import pytest

from safepoint import (
    CheckpointError,
    Codec,
    FileCheckpointStorage,
    Keyring,
    Ledger,
    LimitExceeded,
    Limits,
    SealBroken,
    SigningKey,
)
from safepoint.errors import DecodeError, RecordMalformed

MIB: Final = 1024 * 1024
DEEP: Final = b"[" * 100_000 + b"]" * 100_000

# By how much a process of its own grew at most, in MiB, while it did one thing. Where there is no
# /proc, the high-water mark has the preparation and the parent in it, and tells less.
GROWTH: Final = """
import contextlib, pathlib, re, resource, sys
from safepoint import CheckpointError, Codec, FileCheckpointStorage, Keyring, Ledger, SigningKey

def held():
    with contextlib.suppress(OSError):
        status = pathlib.Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\\s*([0-9]+)", status)[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1024 * 1024 if sys.platform == "darwin" else 1024)

MIB = 1024 * 1024
{prepare}
with contextlib.suppress(OSError):
    pathlib.Path("/proc/self/clear_refs").write_text("5")
before = held()
try:
    {act}
except CheckpointError as refusal:
    print(type(refusal).__name__, end=" ")
else:
    print("accepted", end=" ")
print(held() - before)
"""


def grown(folder: Path, act: str, prepare: str = "") -> tuple[str, float]:
    """Return what came of it, and by how many MiB the process grew."""
    code = GROWTH.format(act=act, prepare=prepare)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    outcome, growth = done.stdout.split()
    return outcome, float(growth)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    storage = FileCheckpointStorage(tmp_path / "state")
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    ledger.save("order-7", {"amount": 42})
    return ledger


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "state/order-7/0000000001.checkpoint"


def test_deep_nesting_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(LimitExceeded) as refusal:
        Codec().decode(DEEP)
    assert str(refusal.value) == (
        "The encoded state is nested deeper than 64 levels. Restore an earlier checkpoint, or "
        "raise Limits.depth if you expect this nesting."
    )


def test_deep_nesting_that_nobody_sealed_is_not_even_measured(ledger: Ledger, record: Path) -> None:
    record.write_bytes(DEEP)
    with pytest.raises(RecordMalformed, match="order-7 #1 is not a sealed record"):
        ledger.latest("order-7")


def test_deep_nesting_below_a_genuine_header_is_not_parsed(ledger: Ledger, record: Path) -> None:
    line_1, line_2, _ = record.read_bytes().split(b"\n", 2)
    record.write_bytes(b"\n".join([line_1, line_2, DEEP, b""]))
    with pytest.raises(SealBroken, match="The state of order-7 #1 is not the one that was sealed"):
        ledger.latest("order-7")


def test_deep_nesting_that_a_writer_sealed_is_refused_by_the_reader(tmp_path: Path) -> None:
    """A writer with higher limits does not raise the reader's."""
    keys = Keyring(SigningKey.generate())
    storage = FileCheckpointStorage(tmp_path / "state")
    state: list[Any] = []
    for _ in range(100):
        state = [state]
    generous = Codec(limits=Limits(depth=200))
    Ledger(storage, store="invoices", keys=keys, codec=generous).save("order-7", state)
    with pytest.raises(LimitExceeded, match="nested deeper than 64 levels"):
        Ledger(storage, store="invoices", keys=keys).latest("order-7")


def test_oversized_record_is_refused_without_reading_it(
    ledger: Ledger, record: Path, tmp_path: Path
) -> None:
    """A sparse file of 8 GiB, which nobody could hold."""
    os.truncate(record, 8 * 1024 * MIB)
    with pytest.raises(LimitExceeded) as refusal:
        ledger.latest("order-7")
    assert "has 8589934592 bytes or more, and the limit is 16781312." in refusal.value.what
    prepare = (
        "keys = Keyring(SigningKey.generate())\n"
        "ledger = Ledger(FileCheckpointStorage('state'), store='invoices', keys=keys)"
    )
    outcome, growth = grown(tmp_path, "ledger.latest('order-7')", prepare)
    assert outcome == "LimitExceeded"
    assert growth < 16


def test_oversized_record_of_any_storage_is_refused_before_its_first_line_is_read() -> None:
    """A storage of somebody else's may hand over anything."""

    class Endless:
        def append(self, thread: str, sequence: int, record: bytes) -> None: ...

        def read(self, thread: str, sequence: int) -> bytes:
            return b"safepoint/1 " * 2 * MIB

        def head(self, thread: str) -> int:
            return 1

        def threads(self) -> list[str]:
            return ["order-7"]

    ledger = Ledger(Endless(), store="invoices", keys=Keyring(SigningKey.generate()))
    with pytest.raises(LimitExceeded, match="order-7 #1 is 25165824 bytes, over the limit of"):
        ledger.latest("order-7")


def test_line_without_an_end_is_not_searched_for_ever(ledger: Ledger, record: Path) -> None:
    line_1 = record.read_bytes().split(b"\n")[0]
    record.write_bytes(line_1 + b"\n" + b"x" * 15 * MIB)
    with pytest.raises(RecordMalformed, match="is cut short: its second line does not end"):
        ledger.latest("order-7")


HOSTILE: Final = {
    "many lists": "b'[' + b'[],' * (5 * MIB) + b'0]'",
    "many objects": "b'[' + b'{},' * (5 * MIB) + b'0]'",
    "many strings": "b'[' + b'\"\",' * (5 * MIB) + b'0]'",
    "deep": "b'[' * (8 * MIB) + b']' * (8 * MIB)",
    "quotes": "b'\"' * (16 * MIB)",
    "digits": "b'1' * (16 * MIB)",
    "a path": "b'{\"$path\":\"' + b'a/' * (5 * MIB) + b'a\"}'",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_many_values_do_not_fill_the_memory(name: str, tmp_path: Path) -> None:
    """16 MiB of input cost about twice that. Parsed, the lists alone would take 400."""
    outcome, growth = grown(tmp_path, "Codec().decode(data)", f"data = {HOSTILE[name]}")
    assert outcome in ("LimitExceeded", "DecodeError")
    assert growth < 64


def test_the_heaviest_state_within_the_limits_is_as_heavy_as_the_page_says(tmp_path: Path) -> None:
    prepare = "data = b'[' + b','.join([b'{\"a\":{}}'] * 499_999) + b']'"
    outcome, growth = grown(tmp_path, "Codec().decode(data)", prepare)
    assert outcome == "accepted"
    assert 100 < growth < 250


def test_lower_limits_hold_on_save_and_on_load(tmp_path: Path) -> None:
    limits = Limits(state_bytes=100, depth=2, items=10)
    keys = Keyring(SigningKey.generate())
    small = Ledger(
        FileCheckpointStorage(tmp_path / "state", limits=limits),
        store="invoices",
        keys=keys,
        codec=Codec(limits=limits),
    )
    roomy = Ledger(FileCheckpointStorage(tmp_path / "state"), store="invoices", keys=keys)
    states: list[tuple[Any, str]] = [
        ("x" * 99, "takes more than 100 bytes"),
        ([0] * 11, "holds more than 10 values"),
        ([[[]]], "nested deeper than 2 levels"),
    ]
    for number, (state, message) in enumerate(states):
        with pytest.raises(LimitExceeded, match=message):
            small.save("order-7", state)
        roomy.save(f"order-{number}", state)
        with pytest.raises(LimitExceeded):
            small.latest(f"order-{number}")
    assert small.threads() == ["order-0", "order-1", "order-2"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"amount":42,"amount":5000000}', "has a key twice in one object"),
        (b'{"a":{"amount":42,"amount":42}}', "has a key twice in one object"),
        (b'{"amount":42,"\\u0061mount":1}', "has a key twice in one object"),
        (b"NaN", "holds a number that is not finite"),
        (b"[Infinity]", "holds a number that is not finite"),
        (b"[-Infinity]", "holds a number that is not finite"),
        (b"1e400", "is a float that is not finite"),
        (b"1" * 5000, "a token that is longer than any"),
    ],
)
def test_duplicate_keys_and_numbers_that_are_none_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        Codec().decode(data)


def test_a_bomb_inflates_a_thousandfold_and_a_record_is_never_inflated(
    ledger: Ledger, record: Path
) -> None:
    """zlib reaches 1028:1. A ledger has nothing that inflates, so it is bytes like any others."""
    bomb = zlib.compress(bytes(16 * MIB), 9)
    assert 1000 * len(bomb) < 16 * MIB
    for content in (bomb, record.read_bytes() + bomb, zlib.compress(record.read_bytes())):
        record.write_bytes(content)
        with pytest.raises(CheckpointError):
            ledger.latest("order-7")
