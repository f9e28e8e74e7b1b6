"""Plain data and the standard library's values, as states hold them."""

from __future__ import annotations

import ipaddress
import re
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

Value = tuple[str, Callable[[], Any], bool]
"""A name, what makes the value, and whether moving in keeps it."""

PLAIN: Final[tuple[Value, ...]] = (
    ("a state", lambda: {"amount": 42, "step": "pay", "done": False, "note": None}, True),
    ("numbers", lambda: [0, -1, 255, 65536, 2**31, 2**70, 1.5, -0.0, 1e300], True),
    ("texts", lambda: ["", "Zürich", "日本", "a\nb\t\\", "x" * 300], True),
    ("nested", lambda: {"a": [{"b": (1, (2, 3))}, {"c": [[]]}], "d": {}}, True),
    ("a shared list", lambda: [[1, 2]] * 3, True),
    ("bytes", lambda: {"raw": b"\x00\xff" * 40, "empty": b""}, True),
)

_WHEN = datetime(2026, 11, 15, 10, 30, 0, 123456)  # noqa: DTZ001  a naive one, as many are

STANDARD: Final[tuple[Value, ...]] = (
    ("a naive datetime", lambda: {"due": _WHEN}, True),
    ("a datetime in UTC", lambda: {"due": _WHEN.replace(tzinfo=UTC)}, True),
    ("a datetime with an offset", lambda: _WHEN.replace(tzinfo=timezone(timedelta(hours=2))), True),
    ("a datetime in a zone", lambda: _WHEN.replace(tzinfo=ZoneInfo("Europe/Zurich")), False),
    ("dates", lambda: [date(2026, 1, 1), date(2026, 12, 31)], True),
    ("a time", lambda: time(9, 30), True),
    ("durations", lambda: [timedelta(1), timedelta(seconds=1.5)], True),
    ("decimals", lambda: {"total": Decimal("19.90"), "tax": Decimal("-0.1")}, True),
    ("a fraction", lambda: Fraction(1, 3), False),
    ("a complex number", lambda: [1 + 2j], False),
    ("UUIDs", lambda: [UUID(int=1), UUID(int=2**127)], True),
    ("a path", lambda: PurePosixPath("runs/order-7/state"), True),
    ("a range", lambda: range(0, 10, 2), False),
    ("a pattern", lambda: re.compile(r"order-(\d+)"), False),
    ("an address", lambda: ipaddress.ip_address("192.0.2.7"), False),
    ("a namespace", lambda: SimpleNamespace(lr=0.1, epochs=3), False),
)

COLLECTIONS: Final[tuple[Value, ...]] = (
    ("an OrderedDict", lambda: OrderedDict(a=1, b=[2]), True),
    ("a defaultdict of lists", lambda: defaultdict(list, a=[1]), True),
    ("a defaultdict of ints", lambda: defaultdict(int, a=1), True),
    ("a Counter", lambda: Counter("banana"), False),
    ("a deque", lambda: deque([1, 2, 3], maxlen=8), False),
    ("a ChainMap", lambda: ChainMap({"a": 1}, {"b": 2}), False),
    ("a set", lambda: {"tags": {"a", "b"}}, True),
    ("a frozenset", lambda: frozenset({1, 2}), True),
    ("a bytearray", lambda: bytearray(b"abc"), False),
    ("keys that are tuples", lambda: {("a", 1): "x", ("b", 2): "y"}, True),
)

MESSAGES: Final[tuple[Value, ...]] = (
    (
        "a conversation",
        lambda: {
            "messages": [
                {"role": "user", "content": "Pay order 7."},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "name": "pay"}]},
                {"role": "tool", "tool_call_id": "c1", "content": '{"ok": true}'},
            ],
            "usage": {"input": 812, "output": 64},
        },
        True,
    ),
    (
        "a workflow's state",
        lambda: {
            "iteration": 3,
            "pending": {"approve": [{"amount": Decimal(42), "at": _WHEN.replace(tzinfo=UTC)}]},
            "thread": UUID(int=7),
            "tools": frozenset({"pay", "refund"}),
        },
        True,
    ),
    (
        "channels and versions",
        lambda: {
            "channel_values": {"messages": ["a", "b"], "__start__": {"q": 1}},
            "channel_versions": {"messages": "00002.0.5", "__start__": 2},
            "versions_seen": defaultdict(dict, {"node": {"messages": "00002.0.5"}}),
        },
        True,
    ),
    ("vectors", lambda: {"doc-1": [0.1] * 64, "doc-2": [0.2] * 64}, True),
)
