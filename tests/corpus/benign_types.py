"""Classes of an application, as people pickle them."""

from __future__ import annotations

import enum
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple


def by_value(member: enum.Enum, proto: object) -> tuple[Any, ...]:
    """Pickle an enum as Python does from 3.11.4, on older ones too."""
    return type(member), (member.value,)


class Status(enum.Enum):
    """An enum."""

    OPEN = "open"
    PAID = "paid"
    __reduce_ex__ = by_value


class Level(enum.IntEnum):
    """An enum of numbers."""

    LOW = 1
    HIGH = 2
    __reduce_ex__ = by_value


@dataclass
class Line:
    """A dataclass."""

    name: str
    amount: int


@dataclass(frozen=True)
class Address:
    """A frozen dataclass."""

    street: str
    city: str


@dataclass
class Invoice:
    """A dataclass that holds others."""

    number: int
    status: Status
    total: Decimal
    due: datetime
    lines: list[Line] = field(default_factory=list)
    address: Address | None = None


@dataclass(slots=True)
class Slotted:
    """A dataclass without a dict."""

    x: int
    y: int


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


Pair = namedtuple("Pair", "left right")  # noqa: PYI024  as much code has it


class Session:
    """A class like any other."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.turns: list[str] = ["hello"]


class Estimator:
    """A class that gives and takes its state."""

    def __init__(self) -> None:
        self.coefficients = [0.5, 1.5]

    def __getstate__(self) -> dict[str, Any]:
        return {"coefficients": self.coefficients, "version": "1.7.2"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.coefficients = state["coefficients"]


class Refused(Exception):
    """An exception of the application."""


REGISTERED = (Status, Level, Line, Address, Invoice)
"""The types that moving in registers."""
