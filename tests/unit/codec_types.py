"""Types and values for the tests of the codec, and an oracle that shares no code with it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, auto
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Generic, Self, TypeVar
from uuid import UUID

import pydantic

from safepoint.core.codec import Codec
from safepoint.core.errors import CheckpointError

T = TypeVar("T")


class Colour(Enum):
    RED = 1
    ROUGE = 1  # noqa: PIE796
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Rights(Flag):
    READ = auto()
    WRITE = auto()


class Bits(IntFlag):
    ONE = 1


@dataclass
class Invoice:
    number: int
    customer: str
    due: date | None = None
    lines: Any = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: Any
    y: int = 0


@dataclass
class Nothing:
    pass


@dataclass
class Positive:
    amount: int

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(f"TOPSECRET {self.amount}")


@dataclass
class Doubler:
    amount: int

    def __post_init__(self) -> None:
        self.amount *= 2


@dataclass
class Appender:
    names: list[str]

    def __post_init__(self) -> None:
        self.names.append("more")


@dataclass
class Elsewhere:
    amount: int

    def __init__(self, value: int) -> None:
        self.amount = value


@dataclass
class ByPosition:
    """Its constructor takes no names, by which it would be restored."""

    amount: int

    def __init__(self, amount: int, /) -> None:
        self.amount = amount


@dataclass
class ByName:
    """It is made by names alone, in whatever order."""

    b: int
    a: int

    def __new__(cls, **_: int) -> Self:
        return object.__new__(cls)


@dataclass
class Counted:
    inner: Any
    built = 0

    def __post_init__(self) -> None:
        type(self).built += 1


@dataclass
class Squared:
    side: int

    @cached_property
    def area(self) -> int:
        return self.side**2


@dataclass
class Box(Generic[T]):
    content: T


class Note(pydantic.BaseModel):
    title: str
    count: int = 0
    ratio: float = 1.0
    due: datetime | None = None
    colour: Colour | None = None
    where: Path | None = None
    tags: set[str] = set()
    pair: tuple[int, ...] = ()
    extra: dict[str, Any] = {}
    child: Note | None = None
    invoice: Invoice | None = None


class Swapped(pydantic.BaseModel):
    """Each alias is the name of the other field."""

    a: int = pydantic.Field(alias="b")
    b: int = pydantic.Field(alias="a")


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    first: int = pydantic.Field(validation_alias=pydantic.AliasPath("names", 0))
    second: int = pydantic.Field(validation_alias=pydantic.AliasChoices("zwei", "deux"))


class Shouting(pydantic.BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def louder(cls, text: str) -> str:
        return text + "!"


class Limited(pydantic.BaseModel):
    scores: dict[str, int]
    size: int = pydantic.Field(default=1, le=10)


TYPES = [
    *(Colour, Level, Rights, Bits),
    *(Invoice, Point, Nothing, Positive, Doubler, Appender, Elsewhere, Counted, Squared, Box),
    *(ByPosition, ByName),
    *(Note, Swapped, Aliased, Shouting, Limited),
]
CODEC = Codec(TYPES)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, at every level. It shares no code with the codec."""
    if type(left) is not type(right):
        return False
    if isinstance(left, OrderedDict):
        return same([*left.items()], [*right.items()])
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            any(same(key, other) and same(left[key], right[other]) for other in right)
            for key in left
        )
    if isinstance(left, set | frozenset):
        return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if hasattr(left, "__dataclass_fields__"):
        return all(same(getattr(left, n), getattr(right, n)) for n in left.__dataclass_fields__)
    if isinstance(left, pydantic.BaseModel):
        return same(dict(left), dict(right))
    return bool(left == right and repr(left) == repr(right))


def with_area(square: Squared) -> Squared:
    """Let a cached property be kept among the attributes, where it does not stop a save."""
    assert square.area == 9
    return square


VALUES: list[tuple[Any, str | None]] = [
    (None, "null"),
    (True, "true"),
    (False, "false"),
    (0, "0"),
    (-1, "-1"),
    (2**63 - 1, "9223372036854775807"),
    (-(2**63), "-9223372036854775808"),
    (2**63, '{"$int":"0x8000000000000000"}'),
    (-(2**63) - 1, '{"$int":"-0x8000000000000001"}'),
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (1.0, "1.0"),
    (1e16, "1e+16"),
    (5e-324, "5e-324"),
    (-2.2250738585072014e-308, "-2.2250738585072014e-308"),
    (0.00012345678901234567, "0.00012345678901234567"),
    ("", '""'),
    ('"\\/\n\x00\x7f', '"\\"\\\\/\\n\\u0000\\u007f"'),
    ("é€𝄞", '"\\u00e9\\u20ac\\ud834\\udd1e"'),
    ("$datetime", '"$datetime"'),
    ([], "[]"),
    ([1, [2, []]], "[1,[2,[]]]"),
    ({}, "{}"),
    ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
    ({"": 1, "é": 2}, '{"":1,"\\u00e9":2}'),
    ({"$date": "2026-01-31"}, '{"$dict":[["$date","2026-01-31"]]}'),
    ({"$": 1, "a": 2}, '{"$dict":[["$",1],["a",2]]}'),
    ({"a$": 1}, '{"a$":1}'),
    ({1: "one", "1": 2}, '{"$dict":[["1",2],[1,"one"]]}'),
    ({None: 1, True: 2, 2.5: 3}, '{"$dict":[[2.5,3],[null,1],[true,2]]}'),
    ({(1, "a"): {"$x": 0}}, '{"$dict":[[{"$tuple":[1,"a"]},{"$dict":[["$x",0]]}]]}'),
    (OrderedDict(), '{"$odict":[]}'),
    (OrderedDict(b=1, a=[]), '{"$odict":[["b",1],["a",[]]]}'),
    (OrderedDict({(1,): OrderedDict()}), '{"$odict":[[{"$tuple":[1]},{"$odict":[]}]]}'),
    ((), '{"$tuple":[]}'),
    ((1, (2,), [3]), '{"$tuple":[1,{"$tuple":[2]},[3]]}'),
    (set(), '{"$set":[]}'),
    ({10, 9, "a"}, '{"$set":["a",10,9]}'),
    (frozenset({1, frozenset()}), '{"$frozenset":[1,{"$frozenset":[]}]}'),
    ({(1, frozenset({2}))}, '{"$set":[{"$tuple":[1,{"$frozenset":[2]}]}]}'),
    (datetime(1, 1, 1), '{"$datetime":"0001-01-01T00:00:00"}'),  # noqa: DTZ001
    (datetime.max, '{"$datetime":"9999-12-31T23:59:59.999999"}'),  # noqa: DTZ901
    (datetime(2026, 1, 31, 9, 30, tzinfo=UTC), '{"$datetime":"2026-01-31T09:30:00+00:00"}'),
    (
        datetime(2026, 1, 31, tzinfo=timezone(-timedelta(hours=3, minutes=30))),
        '{"$datetime":"2026-01-31T00:00:00-03:30"}',
    ),
    (
        datetime(2026, 1, 31, tzinfo=timezone(-timedelta(seconds=1))),
        '{"$datetime":"2026-01-31T00:00:00-00:00:01"}',
    ),
    (date(2026, 1, 31), '{"$date":"2026-01-31"}'),
    (time(9, 30, 0, 5), '{"$time":"09:30:00.000005"}'),
    (time(9, 30, tzinfo=UTC), '{"$time":"09:30:00+00:00"}'),
    (timedelta.min, '{"$timedelta":[-999999999,0,0]}'),
    (timedelta.max, '{"$timedelta":[999999999,86399,999999]}'),
    (Decimal("12.50"), '{"$decimal":"12.50"}'),
    (Decimal("-0"), '{"$decimal":"-0"}'),
    (Decimal("1E+5"), '{"$decimal":"1E+5"}'),
    (Decimal("0E-999999"), '{"$decimal":"0E-999999"}'),
    (UUID(int=0), '{"$uuid":"00000000-0000-0000-0000-000000000000"}'),
    (b"", '{"$bytes":""}'),
    (b"\x00\xff", '{"$bytes":"AP8="}'),
    (Path("/srv/../x"), '{"$path":"/srv/../x"}'),
    (Path(), '{"$path":"."}'),
    (PurePosixPath("//a/é"), '{"$posixpath":"//a/\\u00e9"}'),
    (PureWindowsPath("c:/a"), '{"$windowspath":"c:\\\\a"}'),
    (Colour.RED, '{"$Colour":"RED"}'),
    (Colour.ROUGE, '{"$Colour":"RED"}'),
    (Level.LOW, '{"$Level":"LOW"}'),
    (Rights.READ | Rights.WRITE, '{"$Rights":3}'),
    (Rights(0), '{"$Rights":0}'),
    (Bits(2**64), '{"$Bits":{"$int":"0x10000000000000000"}}'),
    (
        Invoice(7, "ACME", None, [Point(x=1)]),
        '{"$Invoice":{"customer":"ACME","due":null,"lines":[{"$Point":{"x":1,"y":0}}],"number":7}}',
    ),
    (Nothing(), '{"$Nothing":{}}'),
    (with_area(Squared(3)), '{"$Squared":{"side":3}}'),
    ({Point(x=(1,)): {Point(x=2)}}, None),
    (ByName(b=1, a=2), '{"$ByName":{"a":2,"b":1}}'),
    (Box[int](3), '{"$Box":{"content":3}}'),
    (Swapped(b=1, a=2), '{"$Swapped":{"a":1,"b":2}}'),
    (Aliased.model_validate({"names": [1], "zwei": 2}), '{"$Aliased":{"first":1,"second":2}}'),
    (
        Note(
            title="x",
            due=datetime(2026, 1, 31, tzinfo=UTC),
            colour=Colour.BLUE,
            where=Path("a"),
            tags={"b", "a"},
            pair=(1, 2),
            extra={"$k": {1: Decimal(1)}},
            child=Note(title="y"),
            invoice=Invoice(1, "z"),
        ),
        None,
    ),
]


def assert_carries_nothing(error: CheckpointError) -> None:
    """One line, no secret in it, and no other exception behind it that could hold one."""
    assert error.__context__ is None
    assert error.__cause__ is None
    assert "TOPSECRET" not in repr(error)
    assert "\n" not in str(error)
