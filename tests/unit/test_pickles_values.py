"""What may stand behind a name: each function takes what a pickler writes, and nothing else."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import dataclasses
import pickle
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pydantic
import pytest

from safepoint.errors import CodecError, ConfigurationError, LimitExceeded, PickleRefused
from safepoint.pickles.machine import run
from safepoint.pickles.reading import read_pickle
from safepoint.pickles.values import PLAIN, for_types
from tests.unit.codec_types import (
    Aliased,
    Appender,
    Bits,
    Box,
    Colour,
    Counted,
    Doubler,
    Elsewhere,
    Invoice,
    Level,
    Note,
    Nothing,
    Point,
    Positive,
    Rights,
    Shouting,
    Squared,
    Swapped,
    same,
)

INTACT = "Restore an intact copy, or write the state again."
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
HERE = "tests.unit.codec_types"


@dataclass(slots=True)
class Slotted:
    x: int
    y: Any = None


class Loud(str, Enum):  # noqa: UP042  as older code has it
    A = "a"


class Outer:
    @dataclass
    class Inner:
        x: int


@dataclass
class Guarded:
    """Says what it was asked."""

    path: str

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("the pickle reached __setstate__")

    def __reduce__(self) -> Any:
        raise AssertionError("the pickle reached __reduce__")


class Private(pydantic.BaseModel):
    shown: int = 1


def plain(data: bytes) -> Any:
    return run(data, functions=PLAIN)


def refusal(data: bytes, types: Any = ()) -> str:
    with pytest.raises(PickleRefused) as refused:
        read_pickle(data, types=types)
    assert refused.value.__context__ is None
    assert "TOPSECRET" not in str(refused.value)
    return str(refused.value)


def call(name: str, arguments: bytes) -> bytes:
    """Return a pickle that calls a name with what these instructions push."""
    module, _, name = name.rpartition(".")
    return b"\x80\x04c" + f"{module}\n{name}\n".encode() + b"(" + arguments + b"tR."


# Plain data


@each_protocol
@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 31, 9, 30, 5, 6, tzinfo=UTC),
        datetime(2026, 1, 31, fold=1),  # noqa: DTZ001
        datetime.max,  # noqa: DTZ901
        datetime(2026, 1, 31, tzinfo=timezone(timedelta(hours=-3), "BRT")),
        date.min,
        time(23, 59, 59, 999_999, tzinfo=timezone(timedelta(seconds=1))),
        time(1, fold=1),
        timedelta.min,
        timedelta.max,
        timezone.utc,  # noqa: UP017
        Decimal("-12.50"),
        Decimal("1E+5"),
        Decimal("Infinity"),
        uuid.UUID(int=2**128 - 1),
        uuid.UUID(int=5, is_safe=uuid.SafeUUID.unsafe),
        b"",
        b"\x00\xff",
        set(),
        {1, "a", (2, frozenset({3}))},
        frozenset({1, None}),
        Path("/srv/../x"),
        Path(),
        PurePosixPath("//a/é"),
        PureWindowsPath("c:/a"),
        float("inf"),
        2**2038,
        -(2**2039),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_plain_data_is_what_pickle_makes_of_it(value: Any, protocol: int) -> None:
    data = pickle.dumps([value, {"x": value}], protocol)
    assert same(plain(data), pickle.loads(data))


def test_the_fold_of_a_time_is_kept() -> None:
    value = datetime(2026, 1, 31, fold=1)  # noqa: DTZ001
    assert plain(pickle.dumps([value, time(1, fold=1)])) == [value, time(1, fold=1)]
    assert plain(pickle.dumps(value)).fold == 1
    assert plain(pickle.dumps(time(1, fold=1))).fold == 1


def test_whether_a_uuid_was_made_safely_is_kept() -> None:
    value = uuid.UUID(int=5, is_safe=uuid.SafeUUID.unsafe)
    assert plain(pickle.dumps(value)).is_safe is uuid.SafeUUID.unsafe
    assert plain(pickle.dumps(uuid.UUID(int=5))).is_safe is uuid.SafeUUID.unknown


@each_protocol
def test_dicts_of_other_types_become_dicts(protocol: int) -> None:
    states = [OrderedDict(b=1, a=2), defaultdict(list, {"a": [1]}), defaultdict(None, {1: 2})]
    factories = (set, frozenset, list, dict, int, float, bool, str, bytes, tuple)
    states += [defaultdict(factory) for factory in factories]
    found = plain(pickle.dumps(states, protocol))
    assert found == [{"b": 1, "a": 2}, {"a": [1]}, {1: 2}, *({} for _ in factories)]
    assert {type(each) for each in found} == {dict}
    assert list(found[0]) == ["b", "a"]


OLD = b"ccopy_reg\n_reconstructor\n("

MALFORMED = {
    "a datetime of text": call("datetime.datetime", b"X\x01\x00\x00\x00a"),
    "a datetime of nine bytes": call("datetime.datetime", b"C\x09" + b"\1" * 9),
    "a month of 13": call("datetime.datetime", b"C\x0a\x07\xe4\x0d\x01" + b"\0" * 6),
    "an hour of 24": call("datetime.datetime", b"C\x0a\x07\xe4\x01\x01\x18" + b"\0" * 5),
    "a second of 255": call("datetime.datetime", b"C\x0a\x07\xe4\x01\x01\0\0\xff" + b"\0" * 3),
    "too many microseconds": call("datetime.datetime", b"C\x0a\x07\xe4\x01\x01\0\0\0\xff\xff\xff"),
    "a datetime by its parts": call("datetime.datetime", b"M\xe4\x07K\x01K\x01"),
    "a zone that is none": call("datetime.datetime", b"C\x0a\x07\xe4\x01\x01" + b"\0" * 6 + b"K\1"),
    "a date with too much": call("datetime.date", b"C\x04\x07\xe4\x01\x01N"),
    "a day of 31 in February": call("datetime.date", b"C\x04\x07\xe4\x02\x1f"),
    "a time of 24:00": call("datetime.time", b"C\x06\x18" + b"\0" * 5),
    "a timedelta of text": call("datetime.timedelta", b"C\x01aK\1K\1"),
    "a timedelta of true": call("datetime.timedelta", b"\x88K\1K\1"),
    "a timedelta beyond its range": call("datetime.timedelta", b"J\xff\xff\xff\x7fK\1K\1"),
    "a timezone of a number": call("datetime.timezone", b"K\1"),
    "a Decimal of a number": call("decimal.Decimal", b"K\1"),
    "a Decimal with an underscore": call("decimal.Decimal", b"U\x031_0"),
    "a Decimal with space": call("decimal.Decimal", b"U\x02 1"),
    "a Decimal of 5000 digits": call("decimal.Decimal", b"X\x88\x13\0\0" + b"1" * 5000),
    "a Decimal of words": call("decimal.Decimal", b"U\x01x"),
    "bytes by another encoding": call("_codecs.encode", b"U\x01aU\x03hex"),
    "bytes by rot13": call("_codecs.encode", b"U\x01aU\x05rot13"),
    "bytes that do not fit": call("_codecs.encode", b"X\x03\0\0\0\xe2\x82\xacU\x06latin1"),
    "bytes of bytes": call("_codecs.encode", b"C\x01aU\x06latin1"),
    "bytes with errors=": call("_codecs.encode", b"U\x01aU\x06latin1U\x06ignore"),
    "bytes of a size": call("builtins.bytes", b"J\xff\xff\xff\x7f"),
    "a list that is called": call("builtins.list", b"U\x01a"),
    "an int that is called": call("builtins.int", b"U\x01a"),
    "an object that is called": call("builtins.object", b""),
    "a path of a number": call("pathlib.PurePosixPath", b"K\1"),
    "a path of a list": call("pathlib.PurePosixPath", b"]"),
    "an OrderedDict of pairs": call("collections.OrderedDict", b"]"),
    "a defaultdict of a value": call("collections.defaultdict", b"K\1"),
    "a defaultdict of a call": call("collections.defaultdict", b"cdatetime\ndate\n"),
    "a UUID without a number": b"\x80\x02cuuid\nUUID\n)\x81.",
    "a UUID of text": b"\x80\x02cuuid\nUUID\n)\x81}U\x03intU\x01as" + b"b.",
    "a UUID of 2**128": b"\x80\x02cuuid\nUUID\n)\x81}U\x03int\x8a\x11" + b"\0" * 16 + b"\1sb.",
    "a UUID with more": b"\x80\x02cuuid\nUUID\n)\x81}(U\x03intK\1U\x03hexU\x01aub.",
    "a UUID of a list": b"\x80\x02cuuid\nUUID\n)\x81]b.",
    "a UUID of its text": call("uuid.UUID", b"U\x01a"),
    "an odd is_safe": b"\x80\x02cuuid\nUUID\n)\x81}(U\x03intK\1U\x07is_safeK\x07ub.",
    "another base": OLD + b"cuuid\nUUID\nc__builtin__\nlist\nNtR(S'int'\nI5\ndb.",
    "another class": OLD + b"cdatetime\ndate\nc__builtin__\nobject\nNtR.",
    "a state of the base": OLD + b"cuuid\nUUID\nc__builtin__\nobject\n(ltR(S'int'\nI5\ndb.",
    "a class that is text": OLD + b"S'UUID'\nc__builtin__\nobject\nNtR.",
    "a path of a path": call("pathlib.PurePosixPath", b"cpathlib\nPurePosixPath\n(U\x01atR"),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_no_pickler_writes_is_refused(data: bytes) -> None:
    assert refusal(data).startswith("The pickle gives ")
    assert "what it does not take" in refusal(data)


REASONS = [
    (1 + 2j, "builtins.complex", "Save [value.real, value.imag] in place of a complex number."),
    (bytearray(b"x"), "builtins.bytearray", "Save bytes(value) in place of a bytearray."),
    (
        range(3),
        "builtins.range",
        "Save list(value), or its start, stop and step, in place of a range.",
    ),
    (Counter(a=1), "collections.Counter", "Save dict(value) in place of a Counter."),
    (deque([1]), "collections.deque", "Save list(value) in place of a deque."),
    (
        np.float64(1),
        "numpy._core.multiarray.scalar",
        "Save value.item() or value.tolist() in place of a value of NumPy.",
    ),
    (
        np.arange(3),
        "numpy._core.multiarray._reconstruct",
        "Save value.item() or value.tolist() in place of a value of NumPy.",
    ),
    (
        ZoneInfo("UTC"),
        "builtins.getattr",
        (
            "Save plain data in its place. A zoneinfo.ZoneInfo asks for it: convert times with"
            " .astimezone(timezone.utc). So does an Enum of some Pythons: pass its type."
        ),
    ),
    (
        pydantic.TypeAdapter(datetime).validate_python("2026-01-31T00:00:00Z"),
        "pydantic_core._pydantic_core.TzInfo",
        "Convert times with .astimezone(timezone.utc) before you save them.",
    ),
]


@pytest.mark.parametrize(("value", "name", "do"), REASONS, ids=[name for _, name, _ in REASONS])
def test_what_a_codec_cannot_hold_is_refused_with_a_reason(value: Any, name: str, do: str) -> None:
    assert refusal(pickle.dumps(value, 4)) == (
        f"The pickle wants {name}, which is not on the list of what may be built. {do}"
    )


def test_paths_of_another_system_are_refused() -> None:
    assert refusal(call("pathlib.WindowsPath", b"U\x01a")) == (
        "The pickle wants pathlib.WindowsPath, which is not on the list of what may be built."
        " It is a path of the other operating system. Read the pickle there, or save str(path)."
    )


def test_paths_of_python_3_13_are_read() -> None:
    assert plain(call("pathlib._local.PosixPath", b"U\x01a")) == Path("a")


def test_the_list_is_closed() -> None:
    """A change of this list is a decision."""
    with pytest.raises(TypeError):
        PLAIN["os", "system"] = print  # type: ignore[index]
    modules = {module for module, _ in PLAIN}
    assert modules == {
        *("datetime", "decimal", "uuid", "_codecs", "collections", "builtins", "__builtin__"),
        *("copyreg", "copy_reg", "pathlib", "pathlib._local"),
        # With a reason to refuse, and nothing else:
        *("zoneinfo", "numpy", "numpy.core.multiarray", "numpy._core.multiarray"),
        *("numpy.core.numeric", "numpy._core.numeric", "pydantic_core._pydantic_core"),
    }


# Registered types

TYPES = [Colour, Level, Rights, Bits, Invoice, Point, Nothing, Positive, Elsewhere, Counted]
TYPES += [Note, Swapped, Aliased, Squared, Slotted, Loud, Private, Box, Outer.Inner]


@each_protocol
@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Colour.BLUE,
        Level.LOW,
        Loud.A,
        Rights.READ | Rights.WRITE,
        Rights(0),
        Bits(2**64),
        Invoice(7, "ACME", date(2026, 1, 31), [Point(x=1)]),
        Point(x=(1, 2), y=3),
        Slotted(1, [2]),
        Nothing(),
        Positive(3),
        Box(3),
        Note(title="x", colour=Colour.BLUE, tags={"a"}, child=Note(title="y"), extra={"a": [1]}),
        Swapped(b=1, a=2),
        Aliased.model_validate({"names": [1], "zwei": 2}),
        {Point(x=1): Colour.RED, Colour.BLUE: 2},
    ],
    ids=repr,
)
def test_registered_types_are_what_pickle_makes_of_them(value: Any, protocol: int) -> None:
    if type(value) is Slotted and protocol < 2:
        return  # which pickle cannot do
    data = pickle.dumps([value, value], protocol)
    assert same(read_pickle(data, types=TYPES), pickle.loads(data))


@each_protocol
def test_a_type_that_is_not_registered_is_refused_by_its_name(protocol: int) -> None:
    assert f"wants {HERE}.Invoice" in refusal(pickle.dumps(Invoice(1, "x"), protocol))
    assert f"wants {HERE}.Colour" in refusal(pickle.dumps(Colour.RED, protocol), [Invoice])


def test_a_constructor_runs_and_may_refuse() -> None:
    """pickle would set the attribute past it."""
    value = Positive(1)
    value.amount = -1
    data = pickle.dumps(value)
    assert pickle.loads(data).amount == -1
    assert refusal(data, [Positive]) == (
        "Positive refuses its saved fields."
        " Restore with the version of the class that wrote it, or let it accept this value."
    )
    note = Note.model_construct(title=5)
    assert refusal(pickle.dumps(note), [Note]).startswith("Note refuses its saved fields: title.")


@pytest.mark.parametrize("value", [Doubler(2), Appender(["a"]), Shouting(text="a")], ids=repr)
def test_a_class_that_changes_its_fields_is_refused(value: Any) -> None:
    cls = type(value)
    (field,) = vars(value)
    assert refusal(pickle.dumps(value), [cls]) == (
        f"{cls.__name__} changes its field {field} when it is rebuilt."
        " Let the class accept, unchanged, the fields of its own instances."
    )


def test_a_class_whose_constructor_takes_other_names_is_refused() -> None:
    assert "Elsewhere refuses its saved fields" in refusal(pickle.dumps(Elsewhere(1)), [Elsewhere])


def state_of(cls: str, state: bytes) -> bytes:
    return b"\x80\x04c" + f"{HERE}\n{cls}\n".encode() + b")\x81" + state + b"b."


FIELDS = "The saved fields of {} are not the fields that the class has now."


@pytest.mark.parametrize(
    ("cls", "state", "told"),
    [
        ("Invoice", b"}U\x06numberK\1s", FIELDS),
        ("Positive", b"}(U\x06amountK\1U\x01xK\2u", FIELDS),
        ("Positive", b"}(U\x06amountK\1U\x09__class__K\2u", FIELDS),
        ("Positive", b"}(U\x06amountK\1U\x0d__post_init__Nu", FIELDS),
        ("Positive", b"}", FIELDS),
        ("Positive", b"}U\x06amountK\1sU\x01a\x86", None),
        ("Positive", b"K\1", None),
        ("Positive", b"]K\1a(K\2K\3t", None),
        ("Positive", b"](K\1K\2e", None),
        ("Positive", b"}K\1K\2s", FIELDS),
        ("Positive", b"N}U\x06amountK\1s\x86", "accepted"),
        ("Positive", b"](K\1e", "accepted"),
        ("Swapped", b"}(U\x01aK\1U\x01bK\2u", None),
        ("Swapped", b"]", None),
        ("Swapped", b"}U\x08__dict__}(U\x01aK\1U\x01bK\2us", None),
    ],
)
def test_a_state_is_exactly_the_fields(cls: str, state: bytes, told: str | None) -> None:
    data = state_of(cls, state)
    if told == "accepted":
        assert read_pickle(data, types=[Positive]) == Positive(1)
    elif told is None and b"(K\2" not in state:
        assert "what it does not take" in refusal(data, [Positive, Swapped])
    elif told is None:
        assert refusal(data, [Positive, Swapped])
    else:
        assert refusal(data, [Positive, Invoice]).startswith(told.format(cls))


def model_state(extra: bytes, private: bytes, more: bytes = b"") -> bytes:
    fields = b"}(U\x01aK\1U\x01bK\2u"
    return state_of(
        "Swapped",
        b"}(U\x08__dict__"
        + fields
        + b"U\x12__pydantic_extra__"
        + extra
        + b"U\x17__pydantic_fields_set__\x8f(U\x01a\x90U\x14__pydantic_private__"
        + private
        + more
        + b"u",
    )


def test_a_model_holds_its_fields_and_nothing_else() -> None:
    assert read_pickle(model_state(b"N", b"N"), types=[Swapped]) == Swapped(b=1, a=2)
    for data in (
        model_state(b"}U\x01xK\1s", b"N"),
        model_state(b"N", b"}U\x01xK\1s"),
        model_state(b"N", b"N", b"U\x01xN"),
    ):
        assert "what it does not take" in refusal(data, [Swapped])


def test_a_type_is_not_called_with_arguments() -> None:
    for name in ("Invoice", "Positive", "Note"):
        data = call(f"{HERE}.{name}", b"K\1U\x01a")
        assert "what it does not take" in refusal(data, [Invoice, Positive, Note])


def test_no_method_of_a_registered_type_is_reached() -> None:
    data = b"\x80\x04c" + f"{__name__}\nGuarded\n".encode() + b")\x81}U\x04pathU\x01as" + b"b."
    assert read_pickle(data, types=[Guarded]) == Guarded("a")


def test_a_value_that_a_property_caches_is_left_out() -> None:
    square = Squared(3)
    assert square.area == 9
    assert vars(read_pickle(pickle.dumps(square), types=[Squared])) == {"side": 3}


@pytest.mark.parametrize(
    ("cls", "value"),
    [
        ("Colour", b"K\2"),
        ("Colour", b"\x88"),
        ("Colour", b"U\x03RED"),
        ("Colour", b"]"),
        ("Colour", b""),
        ("Colour", b"K\1K\1"),
        ("Level", b"\x88"),
        ("Rights", b"K\x08"),
        ("Rights", b"U\x04READ"),
        ("Rights", b"\x88"),
        ("Rights", b"N"),
    ],
)
def test_an_enum_has_its_members_and_no_other(cls: str, value: bytes) -> None:
    data = call(f"{HERE}.{cls}", value)
    assert "what it does not take" in refusal(data, [Colour, Level, Rights])


def test_some_pythons_pickle_a_member_by_its_name() -> None:
    """With getattr, which is a look into the list of members here."""

    def member(arguments: bytes) -> bytes:
        return call("builtins.getattr", arguments)

    colour = f"c{HERE}\nColour\n".encode()
    assert read_pickle(member(colour + b"U\x04BLUE"), types=[Colour]) is Colour.BLUE
    for arguments in (
        colour + b"U\x09__class__",
        colour + b"U\x04name",
        colour + b"K\1",
        b"U\x01aU\x06format",
        b"cdatetime\ndatetime\nU\x03now",
        f"c{HERE}\nPositive\n".encode() + b"U\x08__init__",
    ):
        told = refusal(member(arguments), [Colour, Positive])
        assert "gives builtins.getattr what it does not take" in told
    assert "wants os.system" in refusal(member(b"cos\nsystem\nU\x01x"), [Colour])
    assert "wants builtins.getattr" in refusal(member(b"U\x01aU\x06format"), [Positive])


def test_a_renamed_type_is_found_under_its_old_name() -> None:
    data = pickle.dumps(Positive(1)).replace(b"Positive", b"Negative")
    data = data.replace(HERE.encode(), b"old.billing.codec.type")
    assert "wants old.billing.codec.type.Negative" in refusal(data, [Positive])
    types = {"old.billing.codec.type.Negative": Positive}
    assert read_pickle(data, types=types) == Positive(1)
    assert f"wants {HERE}.Positive" in refusal(pickle.dumps(Positive(1)), types)


def test_a_type_may_have_two_names_and_two_types_one_short_name() -> None:
    other = dataclasses.make_dataclass("Positive", ["amount"])
    types = {f"{HERE}.Positive": Positive, "old.Positive": Positive, "older.Positive": other}
    for module, cls in ((HERE, Positive), ("old", Positive), ("older", other)):
        data = b"\x80\x04c" + f"{module}\nPositive\n".encode() + b")\x81}U\x06amountK\1sb."
        assert type(read_pickle(data, types=types)) is cls


def test_a_nested_type_is_found_wherever_its_module_ends() -> None:
    data = pickle.dumps(Outer.Inner(1), 4)
    assert read_pickle(data, types=[Outer.Inner]) == Outer.Inner(1)
    name = f"{__name__}.Outer.Inner"
    assert read_pickle(data, types={name: Outer.Inner}) == Outer.Inner(1)


@pytest.mark.parametrize("types", [Positive, "Positive", 5, None])
def test_types_are_a_list(types: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        for_types(types)
    assert str(refused.value).endswith(
        "which is no list of types."
        ' Write types=[Invoice], or types={"old.module.Invoice": Invoice}.'
    )


@pytest.mark.parametrize("name", ["Positive", "", ".Positive", "a..b", "a b.c", 5, "a.b\n"])
def test_a_name_has_a_module(name: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        for_types({name: Positive})
    assert str(refused.value).endswith(
        'is no name of a type. Write its module as well: types={"old.module.Invoice": Invoice}.'
    )


def test_what_a_codec_does_not_register_is_not_registered_here() -> None:
    for types in ([int], [object], [5], {"a.b": Path}):
        with pytest.raises(CodecError):
            for_types(types)  # type: ignore[arg-type]


def test_limits_are_limits() -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_pickle(b"N.", limits=5)  # type: ignore[arg-type]
    assert str(refused.value) == (
        "read_pickle takes limits, and was given int."
        " Write limits=PickleLimits(depth=...), or leave it out."
    )


def test_a_decimal_of_nothing_but_a_signal_is_no_key() -> None:
    data = b"\x80\x04(cdecimal\nDecimal\n(U\x04sNaNtRNd."
    assert refusal(data) == f"The pickle has a key that cannot be one. {INTACT}"


def test_uuids_that_share_a_hash_are_refused() -> None:
    """Attack: the hash of a UUID is that of its number."""
    shared = {uuid.UUID(int=n * (2**61 - 1) + 5) for n in range(1, 1500)}
    for protocol in (2, 4):
        with pytest.raises(LimitExceeded, match="share a hash"):
            read_pickle(pickle.dumps(shared, protocol))
