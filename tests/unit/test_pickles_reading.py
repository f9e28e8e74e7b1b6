"""read_pickle against pickle: equal values of equal types, or a refusal, whatever the bytes."""

from __future__ import annotations

import pickle
import pickletools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safepoint.codec import Codec
from safepoint.errors import CheckpointError, LimitExceeded, PickleRefused
from safepoint.pickles._arguments import TABLE
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.reading import read_pickle
from tests.unit.codec_types import CODEC, VALUES, Colour, Invoice, Note, Point, Rights, same
from tests.unit.test_codec_properties import STATES

TYPES = list(CODEC.types.values())
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
SMALL = PickleLimits(nodes=2000, depth=30, text_bytes=100_000, opcodes=5000, memo=500)


def read_or_refused(data: bytes, limits: PickleLimits = SMALL) -> Any:
    """Return what is read, or the error. There are two errors, and they carry nothing along."""
    try:
        return read_pickle(data, types=TYPES, limits=limits)
    except (PickleRefused, LimitExceeded) as refusal:
        error = refusal
    assert error.__context__ is None
    assert error.__cause__ is None
    assert "\n" not in str(error)
    assert str(error).isascii()
    assert len(str(error)) < 400
    return error


def holds_only_plain_values(value: Any) -> bool:
    """No name, no node and nothing half-built is in a result: a codec knows all of it, or JSON
    has no word for it (a time zone, a number that is not finite, fold)."""
    known = {*TYPES, *map(type, (None, True, 1, 1.0, "", b""))}
    todo = [value]
    while todo:
        each = todo.pop()
        if type(each) in (list, tuple, set, frozenset):
            todo += each
        elif type(each) is dict:
            todo += [*each, *each.values()]
        elif type(each) not in known:
            module = type(each).__module__.partition(".")[0]
            if module not in ("datetime", "decimal", "uuid", "pathlib"):
                return False
    return True


@given(STATES, st.sampled_from(PROTOCOLS))
def test_what_a_codec_holds_is_read_as_pickle_reads_it(state: Any, protocol: int) -> None:
    """Equal, and of equal types, at every level and in every protocol. Nothing is refused."""
    data = pickle.dumps(state, protocol)
    assert same(read_pickle(data, types=TYPES), pickle.loads(data))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_value_of_the_codec_is_read_or_refused_with_a_reason(protocol: int) -> None:
    refused = {}
    for value, _ in VALUES:
        data = pickle.dumps([value], protocol)
        found = read_or_refused(data)
        if isinstance(found, CheckpointError):
            refused[repr(value)] = found.what
        else:
            assert same(found, pickle.loads(data))
            assert CODEC.encode(found) == CODEC.encode([value])
    # It notes its type in an attribute that is no field.
    assert list(refused) == ["Box(content=3)"]
    assert "is not on the list of what may be built" in refused["Box(content=3)"]


@given(STATES, st.sampled_from(PROTOCOLS))
def test_an_optimized_pickle_is_read_the_same(state: Any, protocol: int) -> None:
    data = pickletools.optimize(pickle.dumps(state, protocol))
    assert same(read_pickle(data, types=TYPES), pickle.loads(data))


@given(STATES, st.sampled_from(PROTOCOLS))
def test_the_pickler_written_in_python_is_read_the_same(state: Any, protocol: int) -> None:
    data = pickle._dumps(state, protocol)  # type: ignore[attr-defined]
    assert same(read_pickle(data, types=TYPES), state)


@given(st.lists(STATES, max_size=3), st.sampled_from(PROTOCOLS))
def test_what_is_shared_stays_shared(states: list[Any], protocol: int) -> None:
    first, second = read_pickle(pickle.dumps((states, states), protocol), types=TYPES)
    assert first is second
    assert same(first, states)


def test_a_long_list_of_long_texts_is_framed_and_read() -> None:
    """The pickler ends a frame for what is larger than 64 KiB, and begins another."""
    state = ["x" * 70_000, b"y" * 70_000, *range(50_000), "é" * 300]
    for protocol in PROTOCOLS:
        assert read_pickle(pickle.dumps(state, protocol)) == state


# Bytes that nobody pickled


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_refused_or_plain(data: bytes) -> None:
    assert isinstance(found := read_or_refused(data), CheckpointError) or (
        holds_only_plain_values(found)
    )


def instruction(name: str, read: Any) -> st.SearchStrategy[bytes]:
    """Return a strategy for one instruction with an argument that mostly fits it."""
    code = bytes([next(code for code, entry in TABLE.items() if entry[0] == name)])
    small = st.integers(0, 5)
    words = st.sampled_from(WORDS)
    if read is None:
        return st.just(code)
    if name in ("GLOBAL", "INST"):
        pairs = st.sampled_from(NAMES) | st.tuples(words, words)
        return pairs.map(lambda pair: code + f"{pair[0]}\n{pair[1]}\n".encode())
    if name in ("INT", "LONG", "GET", "PUT"):
        return small.map(lambda number: code + b"%d\n" % number)
    if name == "FLOAT":
        return st.just(code + b"1.5\n")
    if name == "STRING":
        return words.map(lambda word: code + f"'{word}'\n".encode())
    if name in ("UNICODE", "PERSID"):
        return words.map(lambda word: code + f"{word}\n".encode())
    width = WIDTHS.get(name)
    if width is None:  # a size and so many bytes
        width = {"SHORT": 1, "BINUN": 4, "BINBY": 4, "BINST": 4, "LONG1": 1, "LONG4": 4}.get(
            name[:5], 8
        )
        width = 8 if name.endswith("8") else width
        return words.map(lambda word: code + len(word).to_bytes(width, "little") + word.encode())
    return small.map(lambda number: code + number.to_bytes(width, "little"))


WIDTHS = {"BININT": 4, "BININT1": 1, "BININT2": 2, "BINFLOAT": 8, "BINGET": 1, "LONG_BINGET": 4}
WIDTHS |= {"BINPUT": 1, "LONG_BINPUT": 4, "PROTO": 1, "FRAME": 8, "EXT1": 1, "EXT2": 2, "EXT4": 4}
WORDS = ["", "a", "int", "is_safe", "latin1", "amount", "1.5", "RED", "__dict__", "a" * 10]
NAMES = [
    *(("datetime", name) for name in ("datetime", "date", "time", "timedelta", "timezone")),
    *(("builtins", name) for name in ("set", "frozenset", "list", "bytes", "getattr", "object")),
    *(("collections", name) for name in ("OrderedDict", "defaultdict")),
    *(("uuid", "UUID"), ("decimal", "Decimal"), ("_codecs", "encode")),
    *(("pathlib", "PurePosixPath"), ("copyreg", "_reconstructor"), ("os", "system")),
    *((cls.__module__, cls.__qualname__) for cls in (Colour, Invoice, Point, Note, Rights)),
]
ALL = {name: instruction(name, read) for name, _, read in TABLE.values() if name != "STOP"}
OFTEN = [
    *("MARK", "TUPLE", "LIST", "DICT", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"),
    *("GLOBAL", "REDUCE", "NEWOBJ", "BUILD", "APPEND", "SETITEM", "SETITEMS", "APPENDS"),
    *("ADDITEMS", "FROZENSET", "MEMOIZE", "BINGET", "BINUNICODE", "BININT1", "SHORT_BINBYTES"),
    *("TUPLE1", "TUPLE2", "NONE", "LONG1", "STACK_GLOBAL"),
]
SEQUENCES = st.lists(
    st.sampled_from(OFTEN).flatmap(ALL.__getitem__)
    | st.sampled_from(sorted(ALL)).flatmap(ALL.__getitem__),
    max_size=25,
).map(b"".join)


@given(SEQUENCES, st.sampled_from([b"", b"\x80\x02", b"\x80\x04", b"\x80\x05"]))
def test_arbitrary_instructions_are_refused_or_plain(sequence: bytes, start: bytes) -> None:
    for data in (start + sequence + b".", start + b"(" + sequence + b"l."):
        assert isinstance(found := read_or_refused(data), CheckpointError) or (
            holds_only_plain_values(found)
        )


def test_arbitrary_instructions_reach_results_and_refusals() -> None:
    """The test above says nothing if all it makes is refused."""
    seen = set()

    @settings(max_examples=200, derandomize=True, database=None)
    @given(SEQUENCES)
    def look(sequence: bytes) -> None:
        seen.add(type(read_or_refused(b"\x80\x04(" + sequence + b"l.")))

    look()
    assert {list, PickleRefused} <= seen


@given(STATES, st.sampled_from(PROTOCOLS), st.data())
def test_a_damaged_pickle_is_refused_or_plain(
    state: Any, protocol: int, draw: st.DataObject
) -> None:
    """One to three edits: a bit flipped, something put in, something cut out or doubled."""
    data = bytearray(pickle.dumps(state, protocol))
    for _ in range(draw.draw(st.integers(1, 3))):
        start = draw.draw(st.integers(0, len(data)))
        end = min(len(data), start + draw.draw(st.integers(0, 8)))
        match draw.draw(st.sampled_from(["flip", "insert", "delete", "double"])):
            case "flip" if start < len(data):
                data[start] ^= 1 << draw.draw(st.integers(0, 7))
            case "insert":
                data[start:start] = draw.draw(st.binary(max_size=3) | SEQUENCES)
            case "delete":
                del data[start:end]
            case _:
                data[start:start] = data[start:end]
    assert isinstance(found := read_or_refused(bytes(data)), CheckpointError) or (
        holds_only_plain_values(found)
    )


@given(STATES, st.sampled_from(PROTOCOLS))
def test_a_pickle_that_was_cut_or_added_to_is_refused(state: Any, protocol: int) -> None:
    data = pickle.dumps(state, protocol)
    for length in {1, len(data) // 2, len(data) - 1}:
        assert isinstance(read_or_refused(data[:length]), PickleRefused | LimitExceeded)
    assert isinstance(read_or_refused(data + b"."), PickleRefused)


@given(SEQUENCES)
def test_what_is_read_is_what_pickle_would_have_made(sequence: bytes) -> None:
    """Where both accept: no pickle means one thing here and another there.

    Only harmless names are in these pickles, so pickle may run them.
    """
    data = b"\x80\x04(" + sequence.replace(b"os\nsystem", b"uuid\nUUID") + b"l."
    found = read_or_refused(data)
    if isinstance(found, CheckpointError):
        return
    theirs = pickle.loads(data)
    plain = pickle.loads(pickle.dumps(theirs))
    assert same(found, as_dicts(plain))


def as_dicts(value: Any) -> Any:
    """Turn each OrderedDict and defaultdict into a dict, at every level."""
    if isinstance(value, dict):
        return {as_dicts(key): as_dicts(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(as_dicts, value))
    return value


def test_what_is_read_can_be_sealed() -> None:
    """The way of a migration: read once as data, and saved by the codec from then on."""
    state = {"order": Invoice(7, "ACME", None, [Point(x=1)]), "colour": Colour.RED}
    codec = Codec([Invoice, Point, Colour])
    found = read_pickle(pickle.dumps(state, 2), types=[Invoice, Point, Colour])
    assert codec.decode(codec.encode(found)) == state


def test_only_migration_and_plans_use_the_machine() -> None:
    """No path that loads a checkpoint reads a pickle."""
    from tests.unit.test_repository import MODULES, imports, name_of, part

    users = {
        part(name_of(path))
        for path in MODULES
        if {"safepoint.pickles.machine", "safepoint.pickles.reading"} & set(imports(path))
    }
    assert users <= {"pickles", "weights", "attacks", "audit"}
    weights = {
        name_of(path)
        for path in MODULES
        if part(name_of(path)) == "weights"
        and {"safepoint.pickles.machine", "safepoint.pickles.reading"} & set(imports(path))
    }
    assert weights <= {"safepoint.weights.plan", "safepoint.weights.names", *RECITES}


RECITES = {"safepoint.weights.reciting"}
"""The part of the plan that follows the pickle of a model."""
