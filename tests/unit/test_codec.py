"""The codec: what it keeps, what it refuses, and where it ends before anything is parsed.

Every value has one line; the vectors hold the bytes, and the fuzzer what nobody thought of.
"""

from __future__ import annotations

import decimal
import json
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from ormsgpack import Ext, Fragment, packb

from safepoint.core.codec import (
    Codec,
    Converter,
    Tagged,
    check_shape,
    inspect_state,
    read_json,
    write_json,
)
from safepoint.core.errors import ConfigurationError, DecodeError, EncodeError, LimitExceeded
from safepoint.core.names import DEFAULT_LIMITS, Limits
from tests.unit.codec_types import (
    CODEC,
    TYPES,
    VALUES,
    Appender,
    Box,
    Colour,
    Elsewhere,
    Invoice,
    Level,
    Limited,
    Note,
    Point,
    Positive,
    Rights,
    Shouting,
    assert_carries_nothing,
    same,
)

# --- what it keeps


@pytest.mark.parametrize("value", VALUES, ids=lambda v: ascii(v)[:40])
def test_a_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    """Alone, and inside a class of the caller's. The vectors hold the bytes."""
    data = CODEC.encode(value)
    assert same(CODEC.decode(data), value)
    assert same(CODEC.decode(CODEC.encode([Box(value)] * 20))[19], Box(value))


def test_numbers_are_written_alike_whatever_the_process_says_of_them() -> None:
    """Under every decimal context, and beyond the digits that Python prints."""
    value = 7 ** (2**20)
    assert CODEC.decode(CODEC.encode([value, -value])) == [value, -value]
    with decimal.localcontext() as context:
        context.capitals = 0
        context.prec = 1
        data = CODEC.encode(Decimal("1.25E+50"))
        assert CODEC.decode(data) == Decimal("1.25E+50")
    assert data == b"\xd7\x021.25E+50"
    assert CODEC.decode(data) == Decimal("1.25E+50")


class Meeting(pydantic.BaseModel):
    at: datetime


@pytest.mark.parametrize("at", ["2026-11-15T12:00:00Z", "2026-11-15T12:00:00+05:30"])
def test_a_time_that_pydantic_parsed_is_kept_as_the_same_moment_and_offset(at: str) -> None:
    """pydantic gives such a time a tzinfo class of its own, which is a fixed offset."""
    meeting = Meeting.model_validate_json(f'{{"at":"{at}"}}')
    codec = Codec([Meeting])
    again = codec.decode(codec.encode(meeting))
    assert again == meeting
    assert again.at.utcoffset() == meeting.at.utcoffset()


# --- which types it takes


@dataclass
class Derived:
    a: int
    b: int = field(init=False, default=0)


def of(base: type) -> type:
    """Make a dataclass that extends another class."""
    return make_dataclass(f"Of{base.__name__}", [("a", int)], bases=(base,))


class Extra(pydantic.BaseModel, extra="allow"):
    a: int


NO_FIELDS = "is not a dataclass, Enum or pydantic model, or extends a built-in type."
CANNOT: list[tuple[Any, str]] = [
    *(([of(base)], f"'Of{base.__name__}' {NO_FIELDS}") for base in (dict, Exception)),
    ({"x": int}, NO_FIELDS),
    ({"x": Invoice(1, "a")}, NO_FIELDS),
    *(
        ({tag: Invoice}, f"codec_types.Invoice cannot have the tag {tag!a}, or is known already.")
        for tag in ("", "a\n", "$a", "datetime")
    ),
    ([Invoice, type("Invoice", (Invoice,), {})], "cannot have the tag 'Invoice', or is known"),
    ({"a": Note, "b": Note}, "codec_types.Note cannot have the tag 'b', or is known already."),
]


@pytest.mark.parametrize(("types", "what"), CANNOT, ids=lambda v: ascii(v)[:40])
def test_refused_at_registration(types: Any, what: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Codec(types)
    assert what in caught.value.what


# --- what it refuses to save


class Text(str):
    __slots__ = ()


class Power(StrEnum):
    SEND = "send"


@dataclass
class Child(Invoice):
    pass


def with_extra(note: Note) -> Note:
    """pydantic 2.12 lets a call allow what the model does not."""
    object.__setattr__(note, "__pydantic_extra__", {"more": "TOPSECRET"})
    return note


def negative() -> Positive:
    value = Positive(1)
    value.amount = -42
    return value


def without_a_field() -> Invoice:
    value = Invoice(1, "a")
    del value.number
    return value


ODD: list[tuple[Any, str]] = [  # where a complex number is, and how that is said
    ({"items": [1, (2, 1j)]}, "state['items'][1][1]"),
    ({"a b": {"c": 1j}}, "state[…]['c']"),
    ({"x" * 25: 1j}, "state[…]"),
    ({"Xy_" * 8: 1j}, f"state['{'Xy_' * 8}']"),
    ({1: 0, "sk_TOPSECRET_4eC39Hq": 1j}, "state[…]"),
    ({(1, 1j): 1}, "state.keys()[…][1]"),
    ([{1j}], "state[0][0]"),
    (Note(title="a", extra={"k": 1j}), "state['extra']['k']"),
]
BERLIN, MICROSECOND = ZoneInfo("Europe/Berlin"), timezone(-timedelta(microseconds=1))
HALF = "cannot be written: it holds half a character, or reading it raised an error."
REBUILT = "is refused or changed when it is rebuilt."
MOMENT = "has fold=1, or a time zone that is more than an offset, which ISO 8601 cannot say."
ODD_TYPES = Codec([*TYPES, Derived, Extra])
REFUSED_ON_SAVE: list[tuple[Any, str]] = [
    (Derived(1), f"state {REBUILT}"),
    *((value, f"{at} is of the type builtins.complex, which") for value, at in ODD),
    (Child(1, "a"), "Child, which this codec does not know. Register it: types=[Child]."),
    ({Text("TOPSECRET"): 1}, "state.keys()[…] is of the type tests.unit.test_codec.Text"),
    (type("Stamp", (datetime,), {})(2026, 1, 31), "Save plain values in its place"),
    (float("nan"), "state is a float that is not finite."),
    ([float("-inf")], "state[0] is a float that is not finite."),
    (Decimal("sNaN"), "state is a Decimal that is not finite."),
    (["a\ud800"], f"state[0] {HALF}"),
    ([*[Invoice(1, "a")] * 9, Invoice(1, "a\ud800")], f"state[9]['customer'] {HALF}"),
    ([*[Invoice(1, "a")] * 9, Invoice(1, "a", 1j)], "state[9]['due'] is of the type builtins.c"),  # type: ignore[arg-type]
    ({1: 1, "\udfff": 1}, f"state.keys()[…] {HALF}"),
    (Path("\udcff"), f"state {HALF}"),
    (datetime(2026, 1, 31, tzinfo=BERLIN), f"state {MOMENT}"),
    ([time(1, tzinfo=BERLIN)], f"state[0] {MOMENT}"),
    (datetime(2026, 1, 31, tzinfo=MICROSECOND), f"state {MOMENT}"),
    (datetime(2026, 10, 25, fold=1), f"state {MOMENT}"),  # noqa: DTZ001
    (without_a_field(), f"state {HALF}"),
    (with_extra(Note(title="a")), f"state {REBUILT}"),
    (Rights.READ | Rights.WRITE, f"state {REBUILT}"),
    (Path("a/" * 17_000), f"state {HALF}"),
    (negative(), f"state {REBUILT}"),
    ({"a": [1, Appender([])]}, f"state['a'][1] {REBUILT}"),
    (Elsewhere(1), f"state {REBUILT}"),
    ([Invoice(1, "x", None, Shouting(text="TOPSECRET"))], f"state[0]['lines'] {REBUILT}"),
    (Limited.model_construct(scores={"TOPSECRET": "x"}, size=11), f"state {REBUILT}"),
]


@pytest.mark.parametrize(
    ("value", "said"), REFUSED_ON_SAVE, ids=lambda v: v[:50] if type(v) is str else ""
)
def test_refused_on_save(value: Any, said: str) -> None:
    """Where, which type and what to do: and nothing of the value, not even on the exception."""
    for _ in range(2):
        with pytest.raises(EncodeError) as caught:
            ODD_TYPES.encode(value)
        assert said in str(caught.value)
        assert_carries_nothing(caught.value)


def test_what_a_model_was_given_beyond_its_fields_is_kept_if_the_model_takes_it_back() -> None:
    more = Extra.model_validate({"a": 1, "more": [2]})
    assert ODD_TYPES.decode(ODD_TYPES.encode(more)) == more


# --- types that are not yours


class Link:
    """A foreign class: no dataclass, and no equality."""

    def __init__(self, to: Any, label: str = "") -> None:
        self.to, self.label = to, label


def pattern_of(parts: tuple[str, int]) -> re.Pattern[str]:
    return re.compile(*parts)


DEQUE = Converter("deque", deque, list, deque)
PATTERN = Converter(
    "re.Pattern", re.Pattern, lambda value: (value.pattern, value.flags), pattern_of
)
SHRINKING = Converter("deque", deque, list, lambda of: deque(of if 1 in of else of[1:]))
LINK = Converter("Link", Link, lambda link: link.to, Link)


def picky(_: Link) -> Any:
    raise EncodeError("is no link of mine.", "Use yours.")


FOREIGN = Codec([Invoice], converters=[DEQUE, PATTERN, LINK])


def test_a_converter_teaches_a_type_wherever_it_is() -> None:
    state = {"a": deque([1, deque(), (re.compile("x+", re.I),)]), re.compile("k"): Invoice(1, "b")}
    data = FOREIGN.encode(state)
    assert b"\x05deque\x90" in data
    assert FOREIGN.decode(data) == state
    inside = FOREIGN.decode(FOREIGN.encode([Invoice(1, "b", None, [Link(deque([2]))])]))
    assert inside[0].lines[0].to == deque([2])


@pytest.mark.parametrize(
    ("converter", "value", "said"),
    [
        (Converter("deque", deque, list, list), deque(), f"state[0] {REBUILT}"),
        (Converter("deque", deque, len, lambda n: deque()), deque("a"), f"state[0] {REBUILT}"),
        (Converter("deque", deque, iter, deque), deque(), "iterator, which"),
        (SHRINKING, deque("a"), f"state[0] {REBUILT}"),
        (SHRINKING, deque([1, deque("a")]), f"state[0][1] {REBUILT}"),
        (LINK, Link("\ud800"), f"state[0] {HALF}"),
        (Converter("Link", Link, picky, Link), Link(1), "state[0] is no link of mine."),
    ],
)
def test_what_a_converter_does_not_give_back_is_refused_on_save(
    converter: Converter, value: Any, said: str
) -> None:
    with pytest.raises(EncodeError) as caught:
        Codec(converters=[converter]).encode([value])
    assert said in caught.value.what
    assert_carries_nothing(caught.value)


def test_a_converter_is_for_one_type_that_has_no_tag_yet() -> None:
    for tag, cls, said in [
        ("set", deque, "collections.deque cannot have the tag 'set', or is known already."),
        ("mine", dict, "builtins.dict cannot have the tag 'mine', or is known already."),
        ("mine", Invoice, "cannot have the tag 'mine', or is known already."),
    ]:
        with pytest.raises(ConfigurationError) as caught:
            Codec([Invoice], converters=[Converter(tag, cls, list, list)])
        assert said in caught.value.what
    with pytest.raises(EncodeError, match="which this codec does not know"):
        FOREIGN.encode(type("Deque", (deque,), {})())
    endless = Codec(converters=[Converter("Link", Link, lambda link: link, Link)])
    with pytest.raises(LimitExceeded, match="contains itself"):
        endless.encode(Link(1))


# --- what it refuses to load


FORM = "The encoded state is not in canonical form."
NO_STATE = "The encoded state is not MessagePack, or a value is malformed."


def tagged(tag: str, content: Any) -> Ext:
    """A type of the caller's, as the format page says."""
    return Ext(0, b"%c%b%b" % (len(tag), tag.encode(), packb(content)))


BAD_FIELDS: list[Any] = [{"TOPSECRET": 1}, {"amount": 1, "x": 2}, []]
# The vectors hold the bytes that are close to canonical; here is what types have to say.
REFUSED_ON_LOAD: list[tuple[bytes, str]] = [
    *(
        (packb(Ext(code, body)), FORM)
        for code, body in [
            (1, b"0x7fffffffffffffff"),
            (2, b"1_0"),
            (3, b"{00000000-0000-0000-0000-000000000000}"),
            (4, b"2026-01-31T00:00:00Z"),
            (5, b"20260131"),
            (6, b"09:30"),
            (7, b"a//b"),
            (8, b"0,86400,0"),
            (9, packb("ab")),
            (10, packb([1, True])),
            (12, packb([1, 0, True, 0])),
        ]
    ),
    (packb(tagged("Colour", "ROUGE")), FORM),
    (packb(tagged("Invoice", {"number": 1, "customer": "", "due": None, "lines": []})), FORM),
    *((packb(Ext(code, b"TOPSECRET")), NO_STATE) for code in range(1, 7)),
    (packb(Ext(7, b"a/" * 17_000)), NO_STATE),
    (packb(Ext(8, b"999999999999")), NO_STATE),
    (packb(Ext(9, packb(5))), NO_STATE),
    (packb(Ext(10, packb([[]]))), NO_STATE),
    (packb(Ext(12, packb([[], 1]))), NO_STATE),
    (packb(tagged("Colour", [])), NO_STATE),
    (packb(tagged("Positive", {"amount": -42})), "Positive refuses its saved fields, or has o"),
    *(
        (packb(tagged("Positive", inner)), "Positive refuses its saved fields, or has others now.")
        for inner in BAD_FIELDS
    ),
    (packb(tagged("nobody.knows", 1)), "holds the tag 'nobody.knows', which is not reg"),
    (packb(Ext(0, b"")), "The encoded state holds the tag '', which is not registered."),
    (packb(Ext(99, b"a")), "The encoded state holds the tag 99, which is not registered."),
    (packb(tagged("a\n" + "x" * 99, 1)), "the tag 'a\\nxxx"),
]


@pytest.mark.parametrize(("data", "what"), REFUSED_ON_LOAD, ids=lambda v: ascii(v)[:50])
def test_refused_on_load(data: bytes, what: str) -> None:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(data)
    assert what in caught.value.what
    assert_carries_nothing(caught.value)


@pytest.mark.parametrize("error", [RecursionError, MemoryError, KeyError, DecodeError])
def test_whatever_a_class_raises_while_it_is_rebuilt_is_one_error(
    error: Callable[..., Exception],
) -> None:
    @dataclass
    class Angry:
        def __post_init__(self) -> None:
            raise error("TOPSECRET", "TOPSECRET")

    with pytest.raises(DecodeError) as caught:
        Codec([Angry]).decode(packb(tagged("Angry", {})))
    assert caught.value.what == "Angry refuses its saved fields, or has others now."
    assert_carries_nothing(caught.value)


# --- limits

MIB = 1024 * 1024
NESTINGS: dict[str, Callable[[Any], Any]] = {
    "list": lambda inner: [inner],
    "dict": lambda inner: {"k": inner},
    "pairs": lambda inner: {1: inner},
    "tuple": lambda inner: (inner,),
    "frozenset": lambda inner: frozenset([inner]),
    "dataclass": lambda inner: Point(x=inner),
}


@pytest.mark.parametrize("kind", NESTINGS)
def test_64_levels_are_kept_and_65_are_refused(kind: str) -> None:
    value: Any = timedelta(1)
    for _ in range(64):
        value = NESTINGS[kind](value)
    assert same(CODEC.decode(CODEC.encode(value)), value)
    with pytest.raises(LimitExceeded, match="deeper than 64 levels, or contains itself"):
        CODEC.encode(NESTINGS[kind](value))
    deeper = Codec(TYPES, limits=Limits(depth=65)).encode(NESTINGS[kind](value))
    with pytest.raises(LimitExceeded, match="deeper than 64 levels"):
        CODEC.decode(deeper)


def count(value: Any) -> int:
    """The items of arrays and the pairs of maps in plain data: the oracle for `items`."""
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 0
    return sum(1 + count(each) for each in inner)


@pytest.mark.parametrize(
    "value",
    [[], [0] * 40, {str(n): [n] for n in range(300)}, [[[]] * 9] * 9, "x" * 400, [{}, "é" * 400]],
    ids=lambda v: ascii(v)[:20],
)
def test_size_and_items_are_counted_alike_on_save_and_on_load(value: Any) -> None:
    """What is just within the limit can be saved and loaded; one less, and neither."""
    data = CODEC.encode([value])
    items = count([value])
    enough = Codec(TYPES, limits=Limits(items=items))
    assert enough.encode([value]) == data
    assert same(enough.decode(data), [value])
    short = Codec(TYPES, limits=Limits(items=items - 1))
    for act in (lambda: short.encode([value]), lambda: short.decode(data)):
        with pytest.raises(LimitExceeded, match=f"The state holds more than {items - 1} values"):
            act()
    enough = Codec(TYPES, limits=Limits(state_bytes=len(data)))
    assert same(enough.decode(enough.encode([value])), [value])
    tight = Codec(TYPES, limits=Limits(state_bytes=len(data) - 1))
    for act in (lambda: tight.encode([value]), lambda: tight.decode(data)):
        with pytest.raises(LimitExceeded, match=f"the limit is {len(data) - 1}"):
            act()


def tenfold() -> Any:
    value: Any = []
    for _ in range(60):
        value = [value] * 10
    return value


@pytest.mark.parametrize("key", ["a", 1])
def test_a_small_state_of_shared_parts_is_refused_before_it_is_written(key: Any) -> None:
    """Written, it would have 10^60 items."""
    with pytest.raises(LimitExceeded):
        Codec(limits=Limits(items=5_000)).encode({key: (tenfold(),)})


SIZE = DEFAULT_LIMITS.state_bytes


def array(items: list[bytes]) -> bytes:
    return b"\xdd" + len(items).to_bytes(4) + b"".join(items)


def ext(code: int, body: bytes) -> bytes:
    return b"\xc9" + len(body).to_bytes(4) + bytes([code]) + body


def nested(levels: int, lists: int) -> bytes:
    """Tuples inside one another, with lists between them."""
    body = b"\x90"
    for _ in range(levels):
        body = ext(9, b"\x91" * lists + body)
    return body


def test_what_is_large_is_not_nested_deep() -> None:
    """Each level of a tuple or class is a copy of what is in it: 60 of 16 MiB are 1 GiB."""
    large, deep = b"x" * (SIZE - 1000), b"\x91" + packb(b"x" * (SIZE - 1000))
    state: Any = (((large,),),)
    assert CODEC.decode(CODEC.encode(state)) == state
    for _ in range(57):
        state, deep = (state,), b"\x91" + ext(9, deep)
    for act in (lambda: CODEC.encode(state), lambda: CODEC.decode(deep)):
        with pytest.raises(LimitExceeded, match="nested deep"):
            act()


COLLIDING = [n * (2**61 - 1) for n in range(99, 300_000)]
HOSTILE: dict[str, Callable[[], bytes]] = {
    "empty dicts": lambda: b"\xdd" + (SIZE - 5).to_bytes(4) + b"\x80" * (SIZE - 5),
    "zeros": lambda: b"\xdd" + (SIZE - 5).to_bytes(4) + bytes(SIZE - 5),
    "claims": lambda: b"\xdd\xff\xff\xff\xff" * 1000,
    "open lists": lambda: b"\x91" * SIZE,
    "lists in tuples": lambda: nested(60, 900),
    "tuples in tuples": lambda: nested(5_000, 1),
    "an unknown code": lambda: ext(99, b"x" * MIB),
    "colliding ints": lambda: ext(10, array([ext(1, hex(n).encode()) for n in COLLIDING])),
    "colliding keys": lambda: ext(
        12,
        array(
            [
                each
                for n in range(99_999)
                for each in (ext(3, str(UUID(int=n * (2**61 - 1))).encode()), b"\xc0")
            ]
        ),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_16_mib_input_is_refused_in_linear_time(name: str) -> None:
    """The square of it would not end."""
    data = HOSTILE[name]()
    assert len(data) <= SIZE
    with pytest.raises((DecodeError, LimitExceeded)):
        CODEC.decode(data)


def test_shared_hashes_are_limited_alike_on_save_and_on_load() -> None:
    """What cannot be loaded in reasonable time is not saved either."""
    values = list(product((-1, -2), repeat=10))  # -1 and -2 share a hash, and so do all of these
    pairs = [(number, last) for number in range(1001) for last in (-1, -2)]
    for many in (values[:64], pairs):
        assert CODEC.decode(CODEC.encode(set(many))) == set(many)
    for state in (set(values[:65]), frozenset(values), dict.fromkeys(values)):
        with pytest.raises(LimitExceeded, match="share a hash"):
            CODEC.encode(state)


def test_a_decimal_that_shares_a_hash_is_refused_before_it_is_compared() -> None:
    """To compare one with an int takes the square of their length: 8 s for 250 kB."""
    number = 16**2000 + 5
    with localcontext(prec=3000):
        near = Decimal(10) ** 2000
        twin = near + (hash(number) - hash(near)) % (2**61 - 1)
    assert hash(twin) == hash(number)
    pieces = sorted([ext(2, f"{twin:f}".encode()), ext(1, hex(number).encode())])
    for items in (pieces, [ext(9, b"\x91" + piece) for piece in pieces]):
        with pytest.raises(LimitExceeded, match="share a hash"):
            CODEC.decode(ext(10, array(items)))
    with pytest.raises(LimitExceeded, match="share a hash"):
        CODEC.encode({(number, 1), (twin, 1)})
    with pytest.raises(LimitExceeded, match="share a hash"):
        Codec([Held]).encode({Held(n=number), Held(n=twin)})
    for values in ({number, number + 1, Decimal(7)}, {number, number + 2**61 - 1}):
        assert CODEC.decode(CODEC.encode(values)) == values


# --- what people read and sign


JSON_VALUES = [
    {"b": [1, -1.5, None, True, "é\n"], "a": {}},
    {"sum": Decimal("12.50"), "due": datetime(2026, 1, 31, tzinfo=UTC), "at": time(9, 30)},
    {"id": UUID(int=7), "$a": 1, "b": 2**70, "of": b"\xff"},
]


@pytest.mark.parametrize("value", JSON_VALUES, ids=ascii)
def test_json_has_one_spelling_and_comes_back_with_its_types(value: Any) -> None:
    data = write_json(value, 1000)
    assert same(read_json(data, 1000), {key: value[key] for key in sorted(value)})
    assert json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode() == data
    for other in (data + b"\n", b" " + data, data.replace(b":", b": ", 1), data[:-1]):
        with pytest.raises(DecodeError):
            read_json(other, 1000)
    with pytest.raises(LimitExceeded):
        read_json(data, len(data) - 1)
    with pytest.raises(LimitExceeded):
        write_json(value, len(data) - 1)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, (2,)]}, "state['a'][1] is of the type builtins.tuple, or holds what JSON"),
        ({"a": float("nan")}, "state['a'] is of the type builtins.float, or holds what"),
        ({"a": {1: 2}}, "state['a'] is of the type builtins.dict, or holds what JSON does"),
        ({"a": {"$b": 1}}, "state['a'] is of the type builtins.dict, or holds what JSON does"),
        ([Decimal("NaN")], "state[0] is of the type decimal.Decimal, or holds what JSON"),
        ([Level.LOW], "state[0] is of the type tests.unit.codec_types.Level, or holds what"),
        ({Power.SEND: 1}, "state.keys()[…] is of the type tests.unit.test_codec.Power, or"),
    ],
)
def test_what_json_does_not_keep_is_refused_with_its_place(value: Any, said: str) -> None:
    with pytest.raises(EncodeError) as caught:
        write_json(value, 1000)
    assert caught.value.what.startswith(said)
    assert_carries_nothing(caught.value)


# --- for people


WIDE = (1, -100, 1_000, -1_000, 100_000, -100_000, 2**40, -(2**40))  # a head of each length


def test_a_state_can_be_looked_at_without_its_types() -> None:
    data = CODEC.encode(
        {"of": Invoice(1, "a", None, [Colour.RED, {Point(x=1)}, {Point(x=2): 1}]), "at": WIDE}
    )
    assert inspect_state(data) == {
        "of": Tagged(
            "Invoice",
            {
                "customer": "a",
                "due": None,
                "lines": [
                    Tagged("Colour", "RED"),
                    Tagged("set", [Tagged("Point", {"x": 1, "y": 0})]),
                    Tagged("dict", [Tagged("Point", {"x": 2, "y": 0}), 1]),
                ],
                "number": 1,
            },
        ),
        "at": WIDE,
    }
    for cut in (data[:-1], b"\xa5a", ext(9, b"\x90\xc0")):
        with pytest.raises(DecodeError, match="is not MessagePack"):
            check_shape(cut, DEFAULT_LIMITS)


# --- what must be refused on save, and not on load


class Url:
    """A class whose converter makes one of two that differ."""

    def __init__(self, text: str) -> None:
        self.text = text


@dataclass(frozen=True, kw_only=True)
class Held:
    n: Any


@pytest.mark.parametrize(
    "value", [Ext(5, b"2020-01-01"), Fragment(b"\xc0"), memoryview(b"abc"), bytearray(b"abc")]
)
@pytest.mark.parametrize("inside", [lambda v: v, lambda v: {"a": [v]}, lambda v: Held(n=v)])
def test_what_the_library_would_write_unseen_is_refused(
    value: Any, inside: Callable[[Any], Any]
) -> None:
    with pytest.raises(EncodeError, match="which this codec does not know"):
        Codec([Held]).encode(inside(value))


@pytest.mark.parametrize("of", [lambda *them: {*them}, lambda *them: dict.fromkeys(them, 1)])
def test_a_set_whose_items_would_become_one_is_refused(of: Callable[..., Any]) -> None:
    made: dict[str, Url] = {}
    lower = Converter(
        "Url", Url, lambda url: url.text.lower(), lambda text: made.setdefault(text, Url(text))
    )
    codec = Codec(converters=[lower])
    codec.encode(of(Url("a"), Url("b")))
    with pytest.raises((EncodeError, LimitExceeded)):
        codec.encode(of(Url("A"), Url("a")))
