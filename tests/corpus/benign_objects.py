"""Objects: classes of an application, and those of libraries, written as their picklers do."""

from __future__ import annotations

import functools
import math
import operator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final

from tests.corpus.assembler import described
from tests.corpus.benign_types import (
    Address,
    Estimator,
    Invoice,
    Level,
    Line,
    Pair,
    Point,
    Refused,
    Session,
    Slotted,
    Status,
)
from tests.corpus.benign_values import Value

_DUE = datetime(2026, 12, 1, tzinfo=UTC)

OBJECTS: Final[tuple[Value, ...]] = (
    ("enums", lambda: [Status.OPEN, Level.HIGH], True),
    ("a dataclass", lambda: Line("book", 3), True),
    ("a frozen dataclass", lambda: Address("Main Street", "Bern"), True),
    (
        "dataclasses in a dataclass",
        lambda: Invoice(
            7, Status.PAID, Decimal("19.90"), _DUE, [Line("a", 1)], Address("Main Street", "Bern")
        ),
        True,
    ),
    ("a dataclass that nobody registered", lambda: Slotted(1, 2), False),
    ("named tuples", lambda: [Point(1, 2), Pair("a", "b")], False),
    ("an object", lambda: Session("anna"), False),
    ("an object with a state of its own", Estimator, False),
    ("exceptions", lambda: [ValueError("no"), KeyError("k"), Refused("late")], False),
    ("an OSError", lambda: OSError(2, "No such file", "a.txt"), False),
    ("a partial", lambda: functools.partial(int, base=2), False),
    ("functions", lambda: [math.sqrt, len, operator.add], False),
    ("a class", lambda: {"cls": datetime, "kind": Line}, False),
)


FOREIGN: Final = tuple(
    (line.partition(" | ")[0], described(line.partition(" | ")[2]))
    for line in Path(__file__).with_name("foreign.txt").read_text("utf-8").splitlines()
)
"""Objects of libraries, as calls of the assembler that write what their picklers do."""
