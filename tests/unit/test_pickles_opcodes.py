"""The instructions of a pickle: read as CPython reads them, within bounds, and never run."""

from __future__ import annotations

import pickle
import pickletools
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint.errors import LimitExceeded, PickleRefused
from safepoint.pickles._arguments import TABLE
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.opcodes import named, read_opcodes
from tests.unit.test_codec_properties import STATES

INTACT = "Restore an intact copy, or write the state again."
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def names(data: bytes) -> list[str]:
    return [op.name for op in read_opcodes(data)]


def arguments(data: bytes) -> list[Any]:
    return [op.argument for op in read_opcodes(data)]


def test_there_is_each_instruction_of_the_standard_library_and_no_other() -> None:
    theirs = {(ord(op.code), op.name, op.proto) for op in pickletools.opcodes}
    assert {(code, name, protocol) for code, (name, protocol, _) in TABLE.items()} == theirs


@given(STATES, st.sampled_from(PROTOCOLS))
def test_instructions_are_those_that_the_standard_library_reads(state: Any, protocol: int) -> None:
    data = pickle.dumps(state, protocol)
    ours = [(op.name, op.argument, op.position) for op in read_opcodes(data)]
    theirs = []
    for op, argument, position in pickletools.genops(data):
        pair = op.name in ("GLOBAL", "INST")
        theirs.append((op.name, tuple(str(argument).split(" ")) if pair else argument, position))
    assert repr(ours) == repr(theirs)


def test_each_instruction_ends_where_the_next_begins() -> None:
    data = pickle.dumps({"a": [1, 2.5, b"x"] * 3}, 5) + b"more"
    ops = list(read_opcodes(data))
    assert [op.end for op in ops[:-1]] == [op.position for op in ops[1:]]
    assert ops[-1].name == "STOP"
    assert data[ops[-1].end :] == b"more"


def test_a_pickle_is_read_from_where_it_starts() -> None:
    assert [op.position for op in read_opcodes(b"xxK\x01.", start=2)] == [2, 4]


def test_all_of_what_attacks_use_is_read() -> None:
    data = b"\x80\x05(ios\nsystem\n(co\nx\noPid\nNQ\x82\x01\x83\x01\x00\x84\x01\x00\x00\x00021b."
    assert names(data) == [
        *("PROTO", "MARK", "INST", "MARK", "GLOBAL", "OBJ", "PERSID", "NONE", "BINPERSID"),
        *("EXT1", "EXT2", "EXT4", "POP", "DUP", "POP_MARK", "BUILD", "STOP"),
    ]


SIZED = {
    "SHORT_BINSTRING": b"U\xff",
    "BINSTRING": b"T\xff\xff\xff\x7f",
    "SHORT_BINBYTES": b"C\xff",
    "BINBYTES": b"B\xff\xff\xff\xff",
    "BINBYTES8": b"\x8e" + struct.pack("<Q", 2**40),
    "BINBYTES8, huge": b"\x8e" + b"\xff" * 8,
    "BYTEARRAY8": b"\x96" + struct.pack("<Q", 2**40),
    "SHORT_BINUNICODE": b"\x8c\xff",
    "BINUNICODE": b"X\xff\xff\xff\xff",
    "BINUNICODE8": b"\x8d" + b"\xff" * 8,
    "LONG1": b"\x8a\xff",
    "LONG4": b"\x8b\xff\xff\xff\x7f",
}


@pytest.mark.parametrize("data", SIZED.values(), ids=SIZED)
def test_a_size_beyond_the_data_is_refused_before_memory_is_taken(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PickleRefused) as refusal:
            names(data + b"abc")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert str(refusal.value) == f"The pickle is cut short. {INTACT}"


@pytest.mark.parametrize("code", sorted(TABLE), ids=lambda code: TABLE[code][0])
def test_data_that_ends_within_or_behind_an_instruction_is_cut_short(code: int) -> None:
    if TABLE[code][0] == "STOP":
        return
    with pytest.raises(PickleRefused, match="cut short"):
        names(bytes([code]))


@pytest.mark.parametrize("data", [b"", b"N", b"I1", b"cos\nsystem", b"S'a'", b"Vabc"])
def test_a_pickle_without_an_end_is_cut_short(data: bytes) -> None:
    with pytest.raises(PickleRefused, match="cut short"):
        names(data)


@pytest.mark.parametrize("data", [b"T\xff\xff\xff\xff.", b"\x8b\xff\xff\xff\xff."])
def test_a_negative_size_is_refused(data: bytes) -> None:
    with pytest.raises(PickleRefused, match=r"a malformed (BINSTRING|LONG4) at byte 0"):
        names(data)


def test_a_byte_that_is_no_instruction_is_named() -> None:
    with pytest.raises(PickleRefused) as refusal:
        names(b"N\xff.")
    assert str(refusal.value) == f"There is no instruction 0xff in a pickle, as at byte 1. {INTACT}"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"I-12\n.", -12),
        (b"I00\n.", False),
        (b"I01\n.", True),
        (b"I0\n.", 0),
        (b"L12L\n.", 12),
        (b"L12\n.", 12),
        (b"F-1e+16\n.", -1e16),
        (b"F1.\n.", 1.0),
        (b"Finf\n.", float("inf")),
        (b"S'a\\n\\x41\\\\\\''\n.", "a\nA\\'"),
        (b'S"it\'s"\n.', "it's"),
        (b"Va\\u20ac\\U0001d11e\xe9\n.", "a€𝄞é"),
        (b"V\\ud800\n.", "\ud800"),
        (b"U\x01\xe9.", "\udce9"),
        (b"\x8a\x00.", 0),
        (b"\x8a\x02\xff\x00.", 255),
        (b"\x8a\x01\xff.", -1),
        (b"G?\xf0\x00\x00\x00\x00\x00\x00.", 1.0),
        (b"J\xff\xff\xff\xff.", -1),
        (b"p7\n.", 7),
        (b"co.s\nsys tem\n.", ("o.s", "sys tem")),
    ],
)
def test_arguments_have_their_values(data: bytes, value: Any) -> None:
    argument = arguments(data)[0]
    assert (type(argument), argument) == (type(value), value)


@pytest.mark.parametrize(
    "data",
    [
        *(b"I\n.", b"I 1\n.", b"I1 \n.", b"I1_0\n.", b"I+1\n.", b"I0x1\n.", b"I1.0\n.", b"I--1\n."),
        *(b"I\xd9\xa1\n.", b"I1L\n.", b"L\n.", b"LL\n.", b"L1LL\n.", b"L1l\n.", b"I1\r\n."),
        # C's unpickler reads an octal 8, and False, from the first two.
        *(b"I010\n.", b"I-0\n.", b"I000\n.", b"I-01\n.", b"L010L\n.", b"L-0L\n.", b"L00\n."),
        *(b"p01\n.", b"g00\n."),
        *(b"F\n.", b"F1_0\n.", b"F 1\n.", b"F0x1p3\n.", b"Finfinity\n.", b"F1e\n.", b"F.\n."),
        *(b"Sa\n.", b"S\n.", b"S'\n.", b"S'a\"\n.", b"S'a\n.", b"S'\\q'\n.", b"S'\\'\n."),
        *(b"S'\\x4'\n.", b"S'\\157'\n.", b"S''''\\\n."),
        *(b"V\\u12\n.", b"V\\U00110000\n.", b"X\x01\x00\x00\x00\xff.", b"\x8c\x01\xc3."),
        *(b"p-1\n.", b"g-1\n.", b"px\n.", b"g\n.", b"c\xff\nx\n.", b"co\n\xff\n."),
    ],
)
def test_text_that_no_pickler_writes_is_refused(data: bytes) -> None:
    with pytest.raises(PickleRefused, match=r"holds a malformed [A-Za-z_0-9 ]+ at byte \d+"):
        names(data)


def test_a_decimal_integer_is_capped_before_it_is_parsed() -> None:
    with pytest.raises(LimitExceeded) as refusal:
        names(b"L" + b"9" * 10_000_000 + b"L\n.")
    assert str(refusal.value) == (
        "The pickle holds an integer of more than 2048 bits."
        " Write large numbers as text or bytes, or raise PickleLimits.integer_bits."
    )


@pytest.mark.parametrize("value", [2**2048 - 1, 1 - 2**2048])
def test_the_largest_integer_is_read_and_one_bit_more_is_not(value: int) -> None:
    assert arguments(b"L%dL\n." % value)[0] == value
    with pytest.raises(LimitExceeded):
        names(b"L%dL\n." % (value * 2))
    with pytest.raises(LimitExceeded):
        names(b"\x8b" + struct.pack("<i", 257) + b"\1" * 257 + b".")


def test_more_digits_than_python_parses_are_refused_whatever_the_limit() -> None:
    with pytest.raises(PickleRefused, match="malformed LONG at byte 0"):
        list(read_opcodes(b"L" + b"9" * 5000 + b"L\n.", PickleLimits(integer_bits=10**6)))


def test_instructions_are_counted() -> None:
    assert len(list(read_opcodes(b"NN.", PickleLimits(opcodes=3)))) == 3
    with pytest.raises(LimitExceeded) as refusal:
        list(read_opcodes(b"NNN.", PickleLimits(opcodes=3)))
    assert str(refusal.value) == (
        "The pickle has more than 3 instructions."
        " Split what it holds, or raise PickleLimits.opcodes."
    )


def test_bytes_are_counted_from_where_the_pickle_starts() -> None:
    assert len(list(read_opcodes(b"xxxNN.", PickleLimits(data_bytes=3), 3))) == 3
    with pytest.raises(LimitExceeded) as refusal:
        list(read_opcodes(b"NNN.", PickleLimits(data_bytes=3)))
    assert str(refusal.value) == (
        "The pickle is larger than 3 bytes. Split what it holds, or raise PickleLimits.data_bytes."
    )


@given(st.binary(max_size=60) | st.lists(st.sampled_from(sorted(TABLE)), max_size=30).map(bytes))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    end, problem = 0, None
    try:
        for op in read_opcodes(data):
            assert op.position == end
            end = op.end
    except (PickleRefused, LimitExceeded) as refusal:
        problem = refusal
    if problem is None:
        assert data[end - 1 : end] == b"."
    else:
        assert problem.__context__ is None
        assert "\n" not in str(problem)


@pytest.mark.parametrize(
    ("module", "name", "shown"),
    [
        ("os", "system", "os.system"),
        ("a.b", "C.d", "a.b.C.d"),
        ("", "x", "'.x'"),
        ("os", "sys\ntem", "'os.sys\\ntem'"),
        ("ó", "x", "'\\xf3.x'"),
        ("a" * 99, "b", "'" + "a" * 56 + "..."),
        ("a.", ".b", "'a...b'"),
    ],
)
def test_a_name_is_shown_as_it_is_or_quoted(module: str, name: str, shown: str) -> None:
    assert named(module, name) == shown
