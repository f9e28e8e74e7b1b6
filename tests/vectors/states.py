"""The state: canonical MessagePack, and what is close to it."""

from __future__ import annotations

from typing import Final

from tests.vectors.material import Vector


def _extension(code: int, body: bytes) -> bytes:
    """Return an extension type in its shortest form."""
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(len(body))
    head = bytes([fixed]) if fixed else b"\xc7" + bytes([len(body)])
    return head + bytes([code]) + body


def _nested(levels: int) -> bytes:
    """Return tuples inside one another."""
    body = b"\x90"
    for _ in range(levels):
        body = b"\x91" + _extension(9, body)
    return body


_LIMITS: Final = {"state_bytes": 1000, "depth": 2, "items": 100}
_CANONICAL: Final = {
    "nil": b"\xc0",
    "booleans": b"\x92\xc2\xc3",
    "numbers": b"\x9a\x00\x7f\xcc\x80\xcd\x01\x00\xce\x00\x01\x00\x00"
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xe0\xd0\xdf\xd1\xff\x7f\xd2\xff\xff\x7f\xff",
    "least-number": b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
    "floats": b"\x92\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\xcb\x80\x00\x00\x00\x00\x00\x00\x00",
    "text": b"\xad" + 'a"\n\0é€𝄞'.encode(),
    "long-text": b"\xd9\x20" + b"x" * 32,
    "longer-text": b"\xda\x01\x00" + b"x" * 256,
    "bytes": b"\xc4\x02\x00\xff",
    "keys": b"\x83\xa1b\x01\xa1a\x02\xa0\x03",
    "nested": b"\x93\x90\x80\x91\x91\x81\xa1a\x91\xc0",
    "long-array": b"\xdc\x00\x10" + b"\x00" * 16,
    "int": _extension(1, b"0x10000000000000000"),
    "negative-int": _extension(1, b"-0x8000000000000001"),
    "decimal": _extension(2, b"12.50"),
    "uuid": _extension(3, b"0b5e4a86-2f53-4f0e-9e0f-0d8d3f6f1a11"),
    "datetime": _extension(4, b"2026-01-31T09:30:00+00:00"),
    "date": _extension(5, b"2026-01-31"),
    "time": _extension(6, b"09:30:00.000001"),
    "path": _extension(7, b"a/b"),
    "timedelta": _extension(8, b"-1,86399,0"),
    "tuple": _extension(9, b"\x92\x01\x02"),
    "set": _extension(10, b"\x93\x01\x02\xa1a"),
    "frozenset": _extension(11, b"\x90"),
    "dict": _extension(12, b"\x94\x01\xa3one\xa11\xc0"),
    "tuples-in-tuples": _nested(2),
}
_REFUSED: Final = {
    "empty": b"",
    "json": b'{"a":1}',
    "reserved": b"\xc1",
    "cut": b"\x92\x01",
    "cut-text": b"\xa5alic",
    "more": b"\x01\x01",
    "line-end": b"\x90\n",
    "key-twice": b"\x82\xa6amount\x2a\xa6amount\x2b",
    "key-number": b"\x81\x01\x02",
    "not-a-number": b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    "infinite": b"\x91\xcb\xff\xf0\x00\x00\x00\x00\x00\x00",
    "float-of-32-bits": b"\xca\x3f\x80\x00\x00",
    "long-number": b"\xcc\x01",
    "long-number-16": b"\xcd\x00\xff",
    "long-number-64": b"\xcf\x00\x00\x00\x00\x00\x00\x00\x01",
    "signed-number": b"\xd0\x01",
    "long-negative": b"\xd1\xff\xff",
    "long-negative-64": b"\xd3\xff\xff\xff\xff\xff\xff\xff\xff",
    "long-str": b"\xd9\x01a",
    "long-bytes": b"\xc5\x00\x01a",
    "long-map": b"\xde\x00\x01\xa1a\x01",
    "wide-array": b"\xdd\x00\x00\x00\x01\x01",
    "long-extension": b"\xc7\x01\x07a",
    "half-a-character": b"\xa3\xed\xa0\x80",
    "not-utf-8": b"\xa1\xff",
    "extension-not-utf-8": _extension(7, b"\xff"),
    "unknown-code": _extension(13, b"a"),
    "timestamp": b"\xd6\xff\x00\x00\x00\x00",
    "unknown-tag": _extension(0, b"\x06pickle\xc0"),
    "no-tag": _extension(0, b"\x00"),
    "extension-more": _extension(9, b"\x90\x90"),
    "extension-cut": _extension(9, b"\x91"),
    "int-for-nothing": _extension(1, b"0x1"),
    "int-upper-case": _extension(1, b"0X10000000000000000"),
    "set-twice": _extension(10, b"\x92\x01\x01"),
    "set-not-sorted": _extension(10, b"\x92\x02\x01"),
    "dict-key-twice": _extension(12, b"\x94\x01\xc0\x01\xc0"),
    "dict-for-nothing": _extension(12, b"\x92\xa1a\x01"),
    "dict-odd": _extension(12, b"\x91\x01"),
    "malformed-date": _extension(5, b"31.01.2026"),
    "infinite-decimal": _extension(2, b"Infinity"),
}
_OVER: Final = {
    "too-deep": b"\x91\x91\x90",
    "too-deep-in-tuples": _nested(3),
    "too-many": b"\xdc\x00\x65" + b"\x00" * 101,
    "too-many-claimed": b"\xdd\xff\xff\xff\xff",
    "too-long": b"\xda\x03\xe8" + b"x" * 1000,
}


def vectors() -> list[Vector]:
    """Return states that decode, that are refused, and that are over the limits they name."""
    return [
        *(_vector(name, state, decodes=True) for name, state in _CANONICAL.items()),
        *(_vector(name, state, refused="DecodeError") for name, state in _REFUSED.items()),
        *(
            _vector(name, state, limits=_LIMITS, refused="LimitExceeded")
            for name, state in _OVER.items()
        ),
    ]


def _vector(name: str, state: bytes, **more: object) -> Vector:
    return {"name": name, **more, "state": state.decode("latin-1")}
