"""SP11: size, depth and count are bounded before anything is parsed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from safepoint import InMemoryCheckpointStorage, LimitExceeded
from tests.attacks.helpers import THREAD, Shop
from tests.house import opened, refused

MIB: Final = 1024 * 1024

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


def test_oversized_record_is_refused_without_reading_it(tmp_path: Path) -> None:
    """A sparse file of 8 GiB, which nobody could hold."""
    shop = Shop(tmp_path)
    shop.fill([{"amount": 42}])
    os.truncate(shop.file(1), 8 * 1024 * MIB)
    said = refused(LimitExceeded, lambda: shop.ledger().latest(THREAD))
    assert "has 8589934592 bytes or more, and the limit is 16781312." in said
    prepare = (
        "keys = Keyring(SigningKey.generate())\n"
        "ledger = Ledger(FileCheckpointStorage('state'), store='invoices', keys=keys)"
    )
    outcome, growth = grown(tmp_path, "ledger.latest('order-7')", prepare)
    assert outcome == "LimitExceeded"
    assert growth < 16


def test_oversized_record_of_any_storage_is_refused_before_its_first_line_is_read() -> None:
    """A storage of somebody else's may hand over anything."""

    class Endless(InMemoryCheckpointStorage):
        def read(self, thread: str, sequence: int) -> bytes:
            return b"safepoint/1 " * 2 * MIB

        newest: Any = None  # so that `read` is asked

    ledger = opened(Endless())
    ledger.storage.append(THREAD, 1, b"x")
    with pytest.raises(LimitExceeded, match="order-7 #1 is 25165824 bytes, over the limit of"):
        ledger.latest(THREAD)


HOSTILE: Final = {
    "many lists": "b'\\xdd' + (16 * MIB - 5).to_bytes(4) + b'\\x90' * (16 * MIB - 5)",
    "many dicts": "b'\\xdd' + (16 * MIB - 5).to_bytes(4) + b'\\x80' * (16 * MIB - 5)",
    "many texts": "b'\\xdd' + (16 * MIB - 5).to_bytes(4) + b'\\xa0' * (16 * MIB - 5)",
    "lists of 15": "(b'\\x9f' + b'\\x80' * 14) * MIB",
    "deep": "b'\\x91' * (16 * MIB)",
    "claims": "b'\\xdd\\xff\\xff\\xff\\xff' * (3 * MIB)",
    "a path": "b'\\xc9' + (10 * MIB).to_bytes(4) + b'\\x07' + b'a/' * (5 * MIB)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_many_values_do_not_fill_the_memory(name: str, tmp_path: Path) -> None:
    """16 MiB of input cost about twice that. Parsed, the lists alone would take 400."""
    outcome, growth = grown(tmp_path, "Codec().decode(data)", f"data = {HOSTILE[name]}")
    assert outcome in ("LimitExceeded", "DecodeError")
    assert growth < 64
