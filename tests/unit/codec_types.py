"""Types and values for the tests of the codec, and an oracle that shares no code with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, auto
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

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
class ByName:
    """It is made by names alone, in whatever order."""

    b: int
    a: int

    def __new__(cls, **_: int) -> Self:
        return object.__new__(cls)


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
    *(Colour, Level, Rights),
    *(Invoice, Point, Nothing, Positive, Appender, Elsewhere, Squared, Box, ByName),
    *(Note, Swapped, Aliased, Shouting, Limited),
]
CODEC = Codec(TYPES)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, at every level. It shares no code with the codec."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return same([*left.items()], [*right.items()])
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


VALUES: list[Any] = [  # what the strategies of test_codec.py seldom make
    None,
    -0.0,
    '"\\/\n\x00\x7f',
    {"$date": "2026-01-31"},
    {1: "one", "1": 2},
    {None: 1, True: 2, 2.5: 3},
    {(1, "a"): {"$x": 0}},
    (1, (2,), [3]),
    datetime.max,  # noqa: DTZ901
    datetime(2026, 1, 31, tzinfo=timezone(-timedelta(hours=3, minutes=30))),
    datetime(2026, 1, 31, tzinfo=timezone(-timedelta(seconds=1))),
    timedelta.max,
    Decimal("0E-999999"),
    Path("/srv/../x"),
    Colour.ROUGE,
    Invoice(7, "ACME", None, [Point(x=1)]),
    Nothing(),
    with_area(Squared(3)),
    {Point(x=(1,)): {Point(x=2)}},
    ByName(b=1, a=2),
    Box[int](3),
    Swapped(b=1, a=2),
    Aliased.model_validate({"names": [1], "zwei": 2}),
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
    "x" * 300,
    ["x"] * 40,
    {str(n): n for n in range(40)},
]


def assert_carries_nothing(error: CheckpointError) -> None:
    """One line, no secret in it, and no other exception behind it that could hold one."""
    assert error.__context__ is None
    assert error.__cause__ is None
    assert "TOPSECRET" not in repr(error)
    assert "\n" not in str(error)
