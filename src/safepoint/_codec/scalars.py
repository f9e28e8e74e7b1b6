"""Scalars: how each becomes text, and how it is revived.

A writer takes a value of exactly one type and returns canonical JSON. A reviver takes what stands
behind a tag. It may raise anything and it may be lenient, because the codec encodes what it
decoded once more and compares the bytes.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from math import isfinite
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Final
from uuid import UUID

from safepoint._codec.writer import Refusal, Revive, Write, Writer, type_name

_INT64: Final = 2**63


def _none(_: Writer, __: None) -> str:
    return "null"


def _bool(_: Writer, value: bool) -> str:
    return "true" if value else "false"


def _int(writer: Writer, value: int) -> str:
    if -_INT64 <= value < _INT64:
        return int.__repr__(value)
    writer.items -= 1
    return writer.spend(f'{{"$int":"{value:#x}"}}')


def _float(_: Writer, value: float) -> str:
    if not isfinite(value):
        raise Refusal(
            "is a float that is not finite.",
            "Save None, or a word of your own, in place of NaN and infinity.",
        )
    return float.__repr__(value)


def _moment(tag: str) -> Write:
    def write_moment(writer: Writer, value: datetime | time) -> str:
        zone = value.tzinfo
        if zone is not None and zone is not UTC:
            _check_zone(zone)
        if value.fold:
            raise Refusal(
                "has fold=1, which ISO 8601 cannot say.",
                "Save an unambiguous time: convert with .astimezone(timezone.utc).",
            )
        writer.items -= 1
        return f'{{"${tag}":"{value.isoformat()}"}}'

    return write_moment


def _check_zone(zone: tzinfo) -> None:
    """Refuse a time zone whose rules or whose name would be lost."""
    core = sys.modules.get("pydantic_core")
    if core is not None and type(zone) is core.TzInfo:
        return  # a fixed offset, which is what pydantic gives to each time that it parses
    if type(zone) is not timezone:
        raise Refusal(
            f"has a time zone of the type {type_name(type(zone))}, whose rules cannot be saved.",
            "Save the moment and not the rules: convert with .astimezone(timezone.utc).",
        )
    offset = zone.utcoffset(None)
    if offset.microseconds:  # which fromisoformat reads as UTC if it is all there is
        raise Refusal(
            "has a UTC offset with a fraction of a second.",
            "Save the moment without it: convert with .astimezone(timezone.utc).",
        )
    if zone.tzname(None) != timezone(offset).tzname(None):
        raise Refusal(
            "has a time zone with a name of its own, which would be lost.",
            "Save the moment without it: convert with .astimezone(timezone.utc).",
        )


def _date(writer: Writer, value: date) -> str:
    writer.items -= 1
    return f'{{"$date":"{value.isoformat()}"}}'


def _timedelta(writer: Writer, value: timedelta) -> str:
    writer.items -= 4
    return f'{{"$timedelta":[{value.days},{value.seconds},{value.microseconds}]}}'


def _decimal(writer: Writer, value: Decimal) -> str:
    if not value.is_finite():
        raise Refusal(
            "is a Decimal that is not finite.",
            "Save None, or a word of your own, in place of NaN and infinity.",
        )
    writer.items -= 1
    # A decimal context can ask for 1e+5; the bytes must not depend on it.
    return writer.spend(f'{{"$decimal":"{str(value).upper()}"}}')


def _uuid(writer: Writer, value: UUID) -> str:
    writer.items -= 1
    return f'{{"$uuid":"{value}"}}'


def _bytes(writer: Writer, value: bytes) -> str:
    writer.items -= 1
    return writer.spend(f'{{"$bytes":"{b64encode(value).decode()}"}}')


def _path(tag: str) -> Write:
    def write_path(writer: Writer, value: PurePath) -> str:
        text = str(value)
        # A Windows path of one file called "c:x" reads back as x on drive c.
        if type(value)(text) != value:
            raise Refusal("is a path that its own text does not give back.", "Save it as a str.")
        writer.items -= 1
        return f'{{"${tag}":{writer.string(text)}}}'

    return write_path


SCALAR_WRITERS: Final[dict[type, Write]] = {
    type(None): _none,
    bool: _bool,
    int: _int,
    float: _float,
    str: Writer.string,
    datetime: _moment("datetime"),
    date: _date,
    time: _moment("time"),
    timedelta: _timedelta,
    Decimal: _decimal,
    UUID: _uuid,
    bytes: _bytes,
    type(Path()): _path("path"),
    PurePosixPath: _path("posixpath"),
    PureWindowsPath: _path("windowspath"),
}

SCALAR_REVIVERS: Final[dict[str, Revive]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": lambda text: b64decode(text, validate=True),
    "path": Path,
    "posixpath": PurePosixPath,
    "windowspath": PureWindowsPath,
    "int": lambda text: int(text, 16),
}
