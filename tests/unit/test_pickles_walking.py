"""Where an unpickler asks for a name, the walk says so: compared with Python's two unpicklers."""

from __future__ import annotations

import io
import pickle
import pickletools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits
from safepoint.pickles.walking import walk


class Asked(Exception):
    """A name was asked for."""


def asks_by(base: Any) -> Callable[[bytes], bool]:
    class Unpickler(base):  # type: ignore[misc]
        def find_class(self, module: str, _: str) -> object:
            if not all(word.isidentifier() for word in module.split(".")):
                raise ImportError
            raise Asked

    def asks(data: bytes) -> bool:
        try:
            Unpickler(io.BytesIO(data)).load()
        except Asked:
            return True
        except Exception:  # noqa: BLE001  random bytes fail in many ways
            return False
        return False

    return asks


PARTS = [
    *(bytes([ord(known.code)]) for known in pickletools.opcodes if known.arg is None),
    *(b"\x8c\x02os", b"U\x02os", b"X\x02\0\0\0os", b"Vos\n", b"S'os'\n", b"S'\\x6fs'\n"),
    *(b"V\\u006fs\n", b"T\x02\0\0\0os", b"\x8d\x02\0\0\0\0\0\0\0os", b"C\x02os", b"\x8c\0"),
    *(b"cos\nsystem\n", b"ios\nsystem\n", b"\x93", b"\x93", b"\x93", b"R", b"\x95" + bytes(8)),
    *(b"I1\n", b"I 1\n", b"I010\n", b"I0x1f\n", b"I-0\n", b"I1\0x\n", b"I\n", b"Ix\n", b"I01\n"),
    *(b"L1L\n", b"L 1\n", b"L0x1L\n", b"F1\n", b"F 1\n", b"F1\0y\n", b"Finfinity\n", b"F1_0\n"),
    *(b"p1\n", b"g1\n", b"p 1\n", b"g1\0\n", b"q\1", b"h\1", b"r\1\0\0\0", b"j\1\0\0\0"),
    *(b"K\1", b"M\1\2", b"J\1\2\3\4", b"G" + bytes(8), b"\x8a\1\1", b"\x8b\1\0\0\0\1"),
    *(b"B\1\0\0\0x", b"\x8e\1\0\0\0\0\0\0\0x", b"\x96\1\0\0\0\0\0\0\0x", b"\x80\4", b"\x80\6"),
    *(b"Nb", b")b", b"(e", b"(u", b"(\x90"),
    *(b"(0", b"N0", b"(1", b"2", b"\xff", b"Ppid\n", b"T\xff\xff\xff\xff", b"X\xff\0\0\0"),
]


def random_pickles(seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)  # noqa: S311  chance, not secrets
    for _ in range(2_000):
        yield b"".join(chance.choice(PARTS) for _ in range(chance.randrange(1, 14)))
    for _ in range(2_000):
        yield (
            b"Vos\nVsystem\n"
            + b"".join(chance.choice(PARTS) for _ in range(chance.randrange(4)))
            + b"\x93."
        )


@pytest.mark.parametrize("base", [pickle.Unpickler, pickle._Unpickler], ids=["C", "Python"])
def test_no_unpickler_asks_for_a_name_that_the_walk_does_not_reach(base: Any) -> None:
    asks, found = asks_by(base), 0
    for data in random_pickles(7):
        if asks(data):
            found += 1
            assert walk(data, DEFAULT_PICKLE_LIMITS).asks, data
    assert found > 300


def test_the_walk_ends_where_unpicklers_do() -> None:
    for protocol in range(6):
        data = pickle.dumps({"a": [1, (2.5, b"x"), {3}], "b": "é" * 300}, protocol)
        walked = walk(data, DEFAULT_PICKLE_LIMITS)
        if protocol > 3 or not walked.asks:  # the older ones ask for set
            assert (walked.stopped, walked.end, walked.over) == (True, len(data), False)
        assert walked.asks == (protocol < 4)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\0", b"0", b"R", b"a.", b"NR", b"Nt", b"h\1", b"g1\n", b"NNR.", b"\x80\6cos\nx\n"),
        *(b"cats are nice,\nand so are dogs\n", b"I am\ncats\nare\n", b"c\xff\nx\n", b"cos\n"),
        *(b"X\xff\xff\xff\x7fcos\nsystem\n", b"Sos\n0cos\nx\n", b"\x93", b"K\1K\1\x93"),
    ],
)
def test_what_leads_nowhere_asks_for_nothing(data: bytes) -> None:
    assert not walk(data, DEFAULT_PICKLE_LIMITS, several=True).asks


@pytest.mark.parametrize("size", [0, 100, 4_090, 4_096, 65_530, 65_536, 70_000, 200_000])
@pytest.mark.parametrize("first", [b"V%s\n", b"S'%s'\n", b"N0V%s\n", b"c1%s\nx\n", b"L%dL\n"])
def test_a_line_is_passed_however_long_it_is(first: bytes, size: int) -> None:
    line = first % (b"x" * size) if b"%s" in first else first % 7
    assert walk(line + b"0cos\nsystem\n", DEFAULT_PICKLE_LIMITS).asks
    assert not walk(line + b"0", DEFAULT_PICKLE_LIMITS).asks


def test_what_goes_on_for_too_long_is_told() -> None:
    limits = PickleLimits(data_bytes=100, opcodes=50)
    assert walk(b"N0" * 100, limits).over
    assert walk(b"V" + b"x" * 200_000 + b"\n.", limits).over
    assert walk(b"N0" * 20, limits, most=30).over
    assert not walk(b"P" + b"x" * 2_000_000 + b"\n.", DEFAULT_PICKLE_LIMITS).over
    assert not walk(b"N0" * 20, limits).over


def test_many_short_lines_are_read_once() -> None:
    class Counting(io.BytesIO):
        total = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.total += len(data)
            return data

    file = Counting(b"I1\n0" * 100_000)
    assert walk(file, DEFAULT_PICKLE_LIMITS).cut
    assert file.total < 2 * 400_000
