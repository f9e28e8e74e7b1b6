"""The codec: what it keeps, what it refuses, and where it ends before anything is parsed.

Every value has one line; the vectors hold the bytes, and the fuzzer what nobody thought of.
"""

from __future__ import annotations

import decimal
import json
import re
import tracemalloc
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from itertools import product
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safepoint.core.codec import Codec, Converter
from safepoint.core.errors import CodecError, DecodeError, EncodeError, LimitExceeded
from safepoint.core.names import DEFAULT_LIMITS, Limits
from tests.unit.codec_types import (
    CODEC,
    TYPES,
    VALUES,
    Appender,
    Box,
    ByPosition,
    Colour,
    Counted,
    Doubler,
    Elsewhere,
    Invoice,
    Level,
    Limited,
    Note,
    Nothing,
    Point,
    Positive,
    Rights,
    Shouting,
    Swapped,
    assert_carries_nothing,
    same,
)

# --- what it keeps


@pytest.mark.parametrize(("value", "text"), VALUES, ids=lambda v: ascii(v)[:40])
def test_a_value_has_one_text_and_comes_back_equal_and_of_its_type(
    value: Any, text: str | None
) -> None:
    """Alone and among many of its kind, which are written another way."""
    data = CODEC.encode(value)
    if text is not None:
        assert data.decode("ascii") == text
    assert same(CODEC.decode(data), value)
    many = CODEC.encode([Box(value) for _ in range(20)])
    assert many == b"[%b]" % b",".join([b'{"$Box":{"content":%b}}' % data] * 20)
    assert same(CODEC.decode(many)[19], Box(value))


def test_numbers_are_written_alike_whatever_the_process_says_of_them() -> None:
    """Under every decimal context, and beyond the digits that Python prints."""
    value = 7 ** (2**20)
    assert CODEC.decode(CODEC.encode([value, -value])) == [value, -value]
    with decimal.localcontext() as context:
        context.capitals = 0
        context.prec = 1
        data = CODEC.encode(Decimal("1.25E+50"))
        assert CODEC.decode(data) == Decimal("1.25E+50")
    assert data == b'{"$decimal":"1.25E+50"}'
    assert CODEC.decode(data) == Decimal("1.25E+50")


def test_a_mapping_chooses_the_tags() -> None:
    codec = Codec({"billing.Invoice": Invoice, "_p": Point})
    assert codec.encode(Point(x=1)) == b'{"$_p":{"x":1,"y":0}}'
    data = codec.encode(Invoice(1, "a"))
    assert data.startswith(b'{"$billing.Invoice":{')
    assert codec.decode(data) == Invoice(1, "a")


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


Slotted = type("Slotted", (), {"__slots__": ("hidden",)})
Secretly = type("Secretly", (), {"__slots__": "__hidden"})


class Private(pydantic.BaseModel):
    a: int
    _b: int = pydantic.PrivateAttr(default=1)


class Extra(pydantic.BaseModel, extra="allow"):
    a: int


class Root(pydantic.RootModel[int]):
    pass


CANNOT: list[tuple[Any, str]] = [
    *(
        ([of(base)], f"it extends {base.__name__}, whose content is not a field")
        for base in (dict, Exception, Slotted, Secretly)
    ),
    ([Codec], "it is not a dataclass, an Enum or a pydantic model"),
    ({"Int": int}, "it is not a dataclass, an Enum or a pydantic model"),
    *(({tag: Invoice}, "cannot be a tag") for tag in ("", "a b", "é", "a\n", "$a", ".a", 5)),
    *(({tag: Invoice}, "is taken") for tag in ("datetime", "dict")),
    ([Invoice, Invoice], "The tag 'Invoice' is taken"),
    ({"a": Note, "b": Note}, "is registered twice"),
    ([5], "5 is not a class"),
    ({"x": []}, "[] is not a class"),
]


@pytest.mark.parametrize(("types", "what"), CANNOT, ids=lambda v: ascii(v)[:40])
def test_refused_at_registration(types: Any, what: str) -> None:
    with pytest.raises(CodecError) as caught:
        Codec(types)
    assert what in caught.value.what


# --- what it refuses to save


class Text(str):
    __slots__ = ()


@dataclass
class Child(Invoice):
    pass


Pair = namedtuple("Pair", "a b")  # noqa: PYI024


def with_attribute(value: Any, name: str) -> Any:
    value.__dict__[name] = "TOPSECRET"
    return value


def with_extra(note: Note) -> Note:
    """pydantic 2.12 lets a call allow what the model does not."""
    object.__setattr__(note, "__pydantic_extra__", {"more": "TOPSECRET"})
    return note


def stranger(cls: type, **values: object) -> Any:
    """Make what the class itself would not give back."""
    made: Any = object.__new__(cls)
    for name, value in values.items():
        setattr(made, name, value)
    return made


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
    ({"sk_TOPSECRET_4eC39Hq": 1j}, "state[…]"),
    ({1: 0, "TOPSECRET7": 1j}, "state[…]"),
    ({"": 1j}, "state[…]"),
    ({"caf\u00e9": 1j}, "state[…]"),
    ({5555555: 1j}, "state[…]"),
    ({(1, 1j): 1}, "state.keys()[…][1]"),
    ([{1j}], "state[0][…]"),
    (Invoice(1, "a", None, [1j]), "state.lines[0]"),
    (Note(title="a", extra={"k": 1j}), "state.extra['k']"),
]
BERLIN, MICROSECOND = ZoneInfo("Europe/Berlin"), timezone(-timedelta(microseconds=1))
HALF, LOST = "holds a lone surrogate", "is an attribute but not a field of"
RESTORED = "could not be restored."
ODD_TYPES = Codec([*TYPES, Derived, Private, Extra, Root])
REFUSED_ON_SAVE: list[tuple[Any, str]] = [
    (Derived(1), f"{RESTORED} Derived refuses its saved fields."),
    (Private(a=1), f"state._b {LOST} Private"),
    (Extra.model_validate({"a": 1, "more": "TOPSECRET"}), f"state.more {LOST} Extra"),
    (Root(5), f"{RESTORED} Root refuses its saved fields"),
    *((value, f"{at} is of the type builtins.complex, which") for value, at in ODD),
    (Counter("a"), "Counter, which this codec does not know. Convert it first: dict(value)"),
    (Child(1, "a"), "Child, which this codec does not know. Register it: Codec([Child])."),
    (Pair(1, 2), "Pair, which this codec does not know. Convert it first: tuple(value)"),
    ({Text("TOPSECRET"): 1}, "state.keys()[…] is of the type tests.unit.test_codec.Text"),
    (bytearray(b"TOPSECRET"), "Convert it first to a type that the codec knows"),
    (type("Stamp", (datetime,), {})(2026, 1, 31), "Convert it first to a type that the codec"),
    (int, "is of the type builtins.type, which"),
    (float("nan"), "state is a float that is not finite."),
    ([float("-inf")], "state[0] is a float that is not finite."),
    (Decimal("sNaN"), "state is a Decimal that is not finite."),
    (["a\ud800"], f"state[0] {HALF}"),
    ([*[Invoice(1, "a")] * 9, Invoice(1, "a\ud800")], f"state[9].customer {HALF}"),
    ([*[Invoice(1, "a")] * 9, Invoice(1, "a", 1j)], "state[9].due is of the type builtins.comp"),  # type: ignore[arg-type]
    ({"\udfff": 1}, f"state[…] {HALF}"),
    ({1: 1, "\udfff": 1}, f"state.keys()[…] {HALF}"),
    (Path("\udcff"), f"state {HALF}"),
    (datetime(2026, 1, 31, tzinfo=BERLIN), "zone of the type zoneinfo.ZoneInfo, whose rules"),
    ([time(1, tzinfo=timezone(timedelta(hours=1), "TOPSECRET"))], "state[0] has a time zone of"),
    (datetime(2026, 1, 31, tzinfo=MICROSECOND), "has a time zone of the type datetime.timezone"),
    (datetime(2026, 10, 25, fold=1), "state has fold=1"),  # noqa: DTZ001
    (without_a_field(), "is of the type Invoice and has a field that cannot be read."),
    (with_attribute(Invoice(1, "a"), "note"), f"state.note {LOST} Invoice"),
    (with_attribute(Nothing(), "TOPSECRET name"), f"state.… {LOST} Nothing"),
    (with_extra(Note(title="a")), f"state.more {LOST} Note"),
    (stranger(Colour, _name_="RED"), "is of the type Colour and not one of its members"),
    (stranger(Rights, _value_=64), f"{RESTORED} The encoded state holds a malformed Rights."),
    (Path("a/" * 17_000), "is a path that its own text does not give back"),
    (negative(), f"{RESTORED} Positive refuses its saved fields."),
    ([Doubler(1)], f"{RESTORED} Doubler changes when it is rebuilt."),
    (Appender([]), f"{RESTORED} Appender changes when it is rebuilt."),
    (Elsewhere(1), f"{RESTORED} Elsewhere refuses its saved fields."),
    (ByPosition(1), f"{RESTORED} ByPosition refuses its saved fields."),
    ([Invoice(1, "x", None, Shouting(text="TOPSECRET"))], "Shouting changes when it is rebuilt."),
    (
        Limited.model_construct(scores={"TOPSECRET": "x"}, size=11),
        "Limited refuses its saved fields.",
    ),
    (Note.model_construct(title="x", ratio=1), "Note changes when it is rebuilt."),
]


@pytest.mark.parametrize(
    ("value", "said"), REFUSED_ON_SAVE, ids=lambda v: v[:50] if type(v) is str else ""
)
def test_refused_on_save(value: Any, said: str) -> None:
    """Where, which type and what to do: and nothing of the value, not even on the exception."""
    with pytest.raises(EncodeError) as caught:
        ODD_TYPES.encode(value)
    assert said in str(caught.value)
    assert_carries_nothing(caught.value)


def test_saving_rebuilds_each_record_once_however_deep_they_nest() -> None:
    value: Any = 0
    for _ in range(30):
        value = Counted(value)
    Counted.built = 0
    CODEC.encode(value)
    assert Counted.built == 30


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
SHRINKING = Converter("deque", deque, list, lambda of: deque(of if 1 in of else of[1:]), None)
LINK = Converter("Link", Link, lambda link: link.to, Link, lambda a, b: not a.label and not b.label)
FOREIGN = Codec([Invoice], converters=[DEQUE, PATTERN, LINK])


def test_a_converter_teaches_a_type_wherever_it_is() -> None:
    state = {"a": deque([1, deque(), (re.compile("x+", re.I),)]), re.compile("k"): Invoice(1, "b")}
    data = FOREIGN.encode(state)
    assert b'{"$deque":[1,{"$deque":[]},{"$tuple":[{"$re.Pattern":{"$tuple":["x+",34]}}]}]}' in data
    assert FOREIGN.decode(data) == state
    inside = FOREIGN.decode(FOREIGN.encode([Invoice(1, "b", None, [Link(deque([2]))])]))
    assert inside[0].lines[0].to == deque([2])


@pytest.mark.parametrize(
    ("converter", "value", "said"),
    [
        (Converter("deque", deque, list, list), deque(), "holds a malformed deque."),
        (Converter("deque", deque, list, iter), deque(), "holds a malformed deque."),
        (Converter("deque", deque, len, lambda n: deque()), deque("a"), "deque changes when it is"),
        (Converter("deque", deque, iter, deque), deque(), "iterator, which"),
        (Converter("deque", deque, dict, deque), deque("a"), "deque, whose converter raised Value"),
        (Converter("deque", deque, list, deque, lambda a, b: 1 / 0), deque(), "deque changes when"),
        (SHRINKING, deque("a"), "deque changes"),
        (SHRINKING, deque([1, deque("a")]), "deque changes"),
        (LINK, Link(1, "TOPSECRET"), "Link changes when it is rebuilt."),
        (LINK, Link("\ud800"), "state[0] holds a lone surrogate"),
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
        ("set", deque, "The tag 'set' is taken"),
        ("a b", deque, "cannot be a tag"),
        ("Link", 5, "5 is not a class"),
        ("mine", dict, "builtins.dict is registered twice"),
        ("mine", Invoice, "is registered twice"),
    ]:
        with pytest.raises(CodecError) as caught:
            Codec([Invoice], converters=[Converter(tag, cls, list, list)])  # type: ignore[arg-type]
        assert said in caught.value.what
    with pytest.raises(EncodeError, match="which this codec does not know"):
        FOREIGN.encode(type("Deque", (deque,), {})())
    endless = Codec(converters=[Converter("Link", Link, lambda link: link, Link)])
    with pytest.raises(LimitExceeded, match="contains itself"):
        endless.encode(Link(1))


# --- what it refuses to load


FORM = "The encoded state is not in canonical form."
JSON = "The encoded state is not JSON."


def malformed(tag: str) -> str:
    return f"The encoded state holds a malformed {tag}."


# One text to a line, which Python's own parser would take.
NOT_CANONICAL = r""" 1
{"a" :1}
-0
"\u0041"
"\/"
-9223372036854775809
{"a":1,"a":1}
{"$date":"2026-01-31","$date":"2026-01-31"}
{"$a":1,"$b":2}
{"$dict":[]}
{"$dict":[[2,0],[1,0]]}
{"$dict":[[1,0],[1,0]]}
{"$dict":[[1,0],[true,0]]}
{"$dict":{"ab":1}}
{"$int":"0x7fffffffffffffff"}
{"$int":"0X8000000000000000"}
{"$int":"8000000000000000"}
{"$int":{"$bytes":"ODAwMDAwMDAwMDAwMDAwMA=="}}
{"$tuple":"ab"}
{"$tuple":{"$tuple":[]}}
{"$set":[1,true]}
{"$frozenset":{"$set":[]}}
{"$decimal":"1_0"}
{"$decimal":" 1"}
{"$decimal":"1e5"}
{"$decimal":1}
{"$decimal":"\u0661"}
{"$datetime":"2026-01-31"}
{"$datetime":"2026-01-31T00:00:00Z"}
{"$datetime":"2026-W05-6"}
{"$date":"20260131"}
{"$time":"09:30"}
{"$timedelta":[0,86400,0]}
{"$timedelta":[true,0,0]}
{"$timedelta":[0.5,0,0]}
{"$timedelta":[]}
{"$uuid":"{00000000-0000-0000-0000-000000000000}"}
{"$uuid":"urn:uuid:00000000-0000-0000-0000-000000000000"}
{"$bytes":"AP9="}
{"$path":"a//b"}
{"$Colour":"ROUGE"}
{"$Rights":true}
{"$Nothing":{"$dict":[]}}
{"$odict":[["a",0],["a",0]]}
{"$odict":[[1,0],[true,0]]}
{"$odict":{"ab":1}}"""

SPELLED = ("datetime", "decimal", "int", "Colour")
NO_NUMBERS = ("date", "time", "uuid", "tuple", "posixpath")
REFUSED_ON_LOAD: list[tuple[bytes, str]] = [
    *((data, JSON) for data in (b"", b" ", b"nul", b"[1", b"]", b"{", b'"', b"'a'", b"[1,]")),
    *((data, JSON) for data in (b'{"a"}', b'"\\x"', b'"\t"', b"[1]]", b"+1", b"01", b".5", b"\\")),
    *((line.encode(), FORM) for line in NOT_CANONICAL.splitlines()),
    *((data, "is a float that is not finite.") for data in (b"NaN", b"[-Infinity]", b"[1e999]")),
    (b'{"$decimal":"NaN"}', "state is a Decimal that is not finite."),
    (b'"\\ud800"', "state holds a lone surrogate, which is half a character."),
    (b'{"\\udc00":1}', "state[…] holds a lone surrogate, which is half a character."),
    *(
        (data, "The encoded state holds a byte that is not ASCII.")
        for data in (b"\xef\xbb\xbf1", '"é"'.encode(), b"\x80", '"é"'.encode("utf-16"))
    ),
    *(
        (data, "The encoded state holds a token that is longer than any this codec writes.")
        for data in (b"1" * 25, b"1" * 5000, b"0." + b"1" * 5000, b"[" + b" " * 30 + b"]")
    ),
    *((f'{{"${tag}":"TOPSECRET"}}'.encode(), malformed(tag)) for tag in SPELLED),
    *((f'{{"${tag}":5}}'.encode(), malformed(tag)) for tag in NO_NUMBERS),
    (b'{"$set":[[]]}', malformed("set")),
    (b'{"$frozenset":[{"a":1}]}', malformed("frozenset")),
    (b'{"$path":null}', malformed("path")),
    (b'{"$windowspath":[]}', malformed("windowspath")),
    (b'{"$timedelta":[1e300,0,0]}', malformed("timedelta")),
    (b'{"$bytes":"A"}', malformed("bytes")),
    (b'{"$dict":[[1]]}', malformed("dict")),
    (b'{"$Rights":64}', malformed("Rights")),
    (b'{"$timedelta":[999999999999,0,0]}', malformed("timedelta")),
    (b'{"$bytes":"AP8=!"}', malformed("bytes")),
    (b'{"$timedelta":[1,2,3,4,5,6,7,8]}', malformed("timedelta")),
    (b'{"$decimal":"1E+9999999999999999999"}', malformed("decimal")),
    (b'{"$dict":[[[],1]]}', malformed("dict")),
    (b'{"$Colour":[]}', malformed("Colour")),
    (b'{"$path":"%s"}' % (b"a/" * 17_000 + b"a"), malformed("path")),
    (b'{"$Positive":{"amount":-42}}', "Positive refuses its saved fields."),
    (b'{"$Limited":{"scores":{"TOPSECRET":"x"},"size":11}}', "Limited refuses its saved fields."),
    *(
        (b'{"$Positive":%s}' % inner, "The saved fields of Positive are not the fields that the")
        for inner in (b"{}", b'{"TOPSECRET":1}', b'{"amount":1,"x":2}', b"[]", b'"amount"')
    ),
    (b'{"$nobody.knows":1}', "holds the tag 'nobody.knows', which this codec does not know."),
    (b'{"$":1}', "The encoded state holds the tag '', which this codec does not know."),
    (b'{"$a\\n\\u202e%s":1}' % (b"x" * 99), "the tag 'a\\n\\u202exxx"),
]


@pytest.mark.parametrize(("data", "what"), REFUSED_ON_LOAD, ids=lambda v: ascii(v)[:50])
def test_refused_on_load(data: bytes, what: str) -> None:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(data)
    assert what in caught.value.what
    assert_carries_nothing(caught.value)


@pytest.mark.parametrize(
    "error", [RecursionError, MemoryError, KeyError, OverflowError, AssertionError, DecodeError]
)
def test_whatever_a_class_raises_while_it_is_rebuilt_is_one_error(
    error: Callable[..., Exception],
) -> None:
    @dataclass
    class Angry:
        def __post_init__(self) -> None:
            raise error("TOPSECRET", "TOPSECRET")

    with pytest.raises(DecodeError) as caught:
        Codec([Angry]).decode(b'{"$Angry":{}}')
    assert caught.value.what == "Angry refuses its saved fields."
    assert_carries_nothing(caught.value)


# --- limits

MIB = 1024 * 1024
NESTINGS: dict[str, Callable[[Any], Any]] = {
    "list": lambda inner: [inner],
    "dict": lambda inner: {"k": inner},
    "pairs": lambda inner: {1: inner},
    "odict": lambda inner: OrderedDict(k=inner),
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
    with pytest.raises(LimitExceeded, match="nested deeper than 64 levels"):
        CODEC.decode(deeper)


def count(plain_json: Any) -> int:
    """The number of values in a JSON document below its root: the oracle for `items`."""
    inner = plain_json.values() if isinstance(plain_json, dict) else plain_json
    if not isinstance(plain_json, dict | list):
        return 0
    return sum(1 + count(value) for value in inner)


@pytest.mark.parametrize("value", [value for value, _ in VALUES], ids=lambda v: ascii(v)[:40])
def test_size_and_items_are_counted_alike_on_save_and_on_load(value: Any) -> None:
    """What is just within the limit can be saved and loaded; one less, and neither."""
    data = CODEC.encode([value])
    items = count(json.loads(data))
    enough = Codec(TYPES, limits=Limits(items=items))
    assert enough.encode([value]) == data
    assert same(enough.decode(data), [value])
    short = Codec(TYPES, limits=Limits(items=items - 1))
    with pytest.raises(LimitExceeded, match=f"The state holds more than {items - 1} values"):
        short.encode([value])
    with pytest.raises(LimitExceeded, match=f"encoded state holds more than {items - 1} val"):
        short.decode(data)
    enough = Codec(TYPES, limits=Limits(state_bytes=len(data)))
    assert same(enough.decode(enough.encode([value])), [value])
    short = Codec(TYPES, limits=Limits(state_bytes=len(data) - 1))
    with pytest.raises(LimitExceeded, match=f"takes more than {len(data) - 1} bytes"):
        short.encode([value])
    with pytest.raises(LimitExceeded, match=f"the limit is {len(data) - 1}"):
        short.decode(data)


def test_limits_beyond_the_stack_of_the_process_end_in_one_error() -> None:
    codec = Codec(limits=Limits(depth=10**6))
    value: Any = []
    for _ in range(100_000):
        value = [value]
    for attempt in (lambda: codec.encode(value), lambda: codec.decode(b"[" * 99999 + b"]" * 99999)):
        with pytest.raises(LimitExceeded, match="nested too deep, or is too large") as caught:
            attempt()
        assert_carries_nothing(caught.value)
    while value:
        value = value.pop()


def tenfold() -> Any:
    value: Any = []
    for _ in range(60):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    "make",
    [
        tenfold,
        lambda: ["x" * MIB] * 400,
        lambda: ["é" * MIB] * 400,
        lambda: [b"x" * MIB] * 400,
        lambda: [1 << (8 * MIB)] * 400,
        lambda: [{"x" * MIB: 1}] * 400,
    ],
    ids=["lists", "str", "unicode", "bytes", "int", "keys"],
)
def test_a_small_state_that_would_write_hundreds_of_megabytes_is_refused_early(
    make: Callable[[], Any],
) -> None:
    codec = Codec(limits=Limits(items=5_000))
    state = make()
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded):
            codec.encode(state)
        assert tracemalloc.get_traced_memory()[1] < 100 * MIB
    finally:
        tracemalloc.stop()


SIZE = DEFAULT_LIMITS.state_bytes
HOSTILE: dict[str, Callable[[], bytes]] = {
    "empty lists": lambda: b"[" + b"[]," * (SIZE // 3 - 1) + b"0]",
    "empty strings": lambda: b"[" + b'"",' * (SIZE // 3 - 1) + b"0]",
    "zeros": lambda: b"[" + b"0," * (SIZE // 2 - 2) + b"0]",
    "objects": lambda: b"[" + b'{"":{}},' * (SIZE // 8 - 1) + b"0]",
    "open lists": lambda: b"[" * SIZE,
    "deep lists": lambda: b"[" * 999_999 + b"]" * 999_999,
    "quotes": lambda: b'"' * SIZE,
    "backslashes": lambda: b'"' + b"\\" * (SIZE - 1),
    "escaped quotes": lambda: b'"' + b'\\"' * (SIZE // 2 - 1),
    "bare escaped quotes": lambda: b'\\"' * (SIZE // 2),
    "open strings": lambda: b'"\\"[' * (SIZE // 4),
    "digits": lambda: b"1" * SIZE,
    "spaces": lambda: b" " * SIZE,
    "colliding ints": lambda: (
        b'{"$set":['
        + b",".join(b'{"$int":"%#x"}' % (n * (2**61 - 1)) for n in range(99, 300_000))
        + b"]}"
    ),
    "colliding keys": lambda: (
        b'{"$dict":['
        + b",".join(
            b'[{"$uuid":"%s"},0]' % str(UUID(int=n * (2**61 - 1))).encode() for n in range(99_999)
        )
        + b"]}"
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
    for many in (values[:64], pairs[:2000]):
        assert CODEC.decode(CODEC.encode(set(many))) == set(many)
    for state in (set(values[:65]), frozenset(values), dict.fromkeys(values), set(pairs)):
        with pytest.raises(LimitExceeded, match="share a hash"):
            CODEC.encode(state)


@dataclass(frozen=True, slots=True)
class SlottedNumber:
    number: int


def test_long_numbers_that_share_a_hash_are_refused_before_they_are_compared() -> None:
    """To compare an int with a Decimal takes the square of their length: 8 s for 250 kB."""
    number = 16**2000 + 5
    with localcontext(prec=3000):
        near = Decimal(10) ** 2000
        twin = near + (hash(number) - hash(near)) % (2**61 - 1)
    assert hash(twin) == hash(number)
    texts = sorted([f'{{"$decimal":"{twin:f}"}}', f'{{"$int":"{number:#x}"}}'])
    for inner in (
        f"[{','.join(texts)}]",
        "[" + ",".join(f'{{"$tuple":[{t}]}}' for t in texts) + "]",
    ):
        with pytest.raises(LimitExceeded, match="share a hash"):
            CODEC.decode(f'{{"$set":{inner}}}'.encode())
    with pytest.raises(LimitExceeded, match="share a hash"):
        CODEC.encode({(number, 1), (number + 2**61 - 1, 1)})
    with pytest.raises(LimitExceeded, match="share a hash"):
        Codec([SlottedNumber]).encode({SlottedNumber(number), SlottedNumber(number + 2**61 - 1)})
    assert CODEC.decode(CODEC.encode({number, number + 1, Decimal(7)})) == {number, number + 1, 7}
    for longest in (-(2**63), 2**63 - 1):  # of those that are not long
        values = {longest, hash(longest)}
        assert CODEC.decode(CODEC.encode(values)) == values


@pytest.mark.parametrize("filler", ["[,{", '"', "\\", '\\"', '[\\",', "é[", "]"])
def test_a_string_full_of_structure_is_one_value(filler: str) -> None:
    """Wherever the windows of the scan fall."""
    codec = Codec(limits=Limits(items=4, depth=1))
    for length in (1, 2, 1000, 64 * 1024 - 3, 64 * 1024 - 2, 64 * 1024 - 1, 200_001):
        state = [filler * length, "[", filler]
        assert codec.decode(codec.encode(state)) == state
        # Cut out without a trace, it would leave an empty list.
        with pytest.raises(LimitExceeded, match="The encoded state holds more than 0 values"):
            Codec(limits=Limits(items=0)).decode(codec.encode(state[:1]))


# --- values and bytes that nobody thought of

QUICK = settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

# UTC, fixed offsets to the second, and none.
ZONES = (
    st.none()
    | st.just(UTC)
    | st.integers(-86399, 86399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
)
TIMES = st.times(timezones=ZONES).map(lambda value: value.replace(fold=0))
DATETIMES = st.datetimes(timezones=ZONES).map(lambda value: value.replace(fold=0))
WORDS = st.text(max_size=12)
KEYS = WORDS | WORDS.map(lambda word: "$" + word) | st.sampled_from(["$dict", "$Invoice", "$"])
ON_WINDOWS = st.from_regex(r"([a-z]:)?[\\/]?[a-z]{0,3}([\\/][a-z.]{1,3}){0,3}", fullmatch=True)
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(2**62, 2**66)),
    *(st.integers(-(2**200), 2**200), st.floats(allow_nan=False, allow_infinity=False), KEYS),
    *(st.binary(max_size=12), st.decimals(allow_nan=False, allow_infinity=False), st.uuids()),
    *(st.dates(), TIMES, DATETIMES, st.timedeltas(), WORDS.map(Path), WORDS.map(PurePosixPath)),
    *(ON_WINDOWS.map(PureWindowsPath), st.integers(0, 3).map(Rights)),
    st.sampled_from([*Colour, *Level]),
)
HASHABLE = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(inner, max_size=3)
        | st.builds(Point, x=inner, y=st.integers())
    ),
    max_leaves=5,
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(WORDS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.sets(HASHABLE, max_size=4),
        st.builds(Invoice, number=inner, customer=WORDS, due=inner, lines=inner),
        st.builds(
            Note,
            title=WORDS,
            count=st.integers(),
            due=st.none() | DATETIMES,
            colour=st.none() | st.sampled_from(Colour),
            tags=st.sets(WORDS, max_size=2),
            pair=st.lists(st.integers(), max_size=2).map(tuple),
            extra=st.dictionaries(KEYS, inner, max_size=2),
            child=st.none() | WORDS.map(lambda word: Note(title=word)),
        ),
        st.builds(lambda a, b: Swapped(a=a, b=b), a=st.integers(), b=st.integers()),
    )


STATES = st.recursive(SCALARS, containers, max_leaves=12)


@QUICK
@given(STATES)
def test_every_state_comes_back_equal_and_of_the_same_types(state: Any) -> None:
    """And nothing is in the text that json would not write, sorted and without spaces."""
    data = CODEC.encode(state)
    assert json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode() == data
    assert same(CODEC.decode(data), state)


@QUICK
@given(st.dictionaries(HASHABLE, SCALARS, max_size=6), st.randoms(use_true_random=False))
def test_equal_dicts_have_equal_bytes_in_whatever_order(state: dict[Any, Any], random: Any) -> None:
    items = list(state.items())
    random.shuffle(items)
    assert CODEC.encode(dict(items)) == CODEC.encode(state)
    keys = list(state)
    random.shuffle(keys)
    assert CODEC.encode(set(keys)) == CODEC.encode(set(state))


TOKENS = [*'[]{}",:\\$0 \n', *("[]", "{}", '""', '\\"', "\\u", "\\ud800", "null", "true", "NaN")]
TOKENS += ["1e999", "-0", "99999999999999999999", '{"$dict":[[', '{"$tuple":', '{"$Point":{"x":']
