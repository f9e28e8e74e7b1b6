"""Line 3: canonical JSON, and what is close to it."""

from __future__ import annotations

from typing import Final

from tests.vectors.material import Vector

_LIMITS: Final = {"state_bytes": 1000, "depth": 2, "items": 100}
_CANONICAL: Final = {
    "null": "null",
    "numbers": "[0,-1,9223372036854775807,1.0,-0.0,1e+16,1e-05,0.0001,123456789012345.6]",
    "text": r'"a\"b\\c/\n\r\t\b\f\u0000\u007f\u00e9\u20ac\ud83d\ude00"',
    "keys": r'{"":0,"A":1,"a":2,"a b":3,"b":4,"\u00e9":5,"\uffff":6,"\ud83d\ude00":7}',
    "nested": '[[],{},[[{"a":[true,false,null]}]]]',
    "date": '{"$date":"2026-01-31"}',
    "datetime": '{"$datetime":"2026-01-31T09:30:00+00:00"}',
    "time": '{"$time":"09:30:00.000001"}',
    "timedelta": '{"$timedelta":[-1,86399,0]}',
    "decimal": '{"$decimal":"12.50"}',
    "uuid": '{"$uuid":"0b5e4a86-2f53-4f0e-9e0f-0d8d3f6f1a11"}',
    "bytes": '{"$bytes":"aGk="}',
    "int": '[{"$int":"0x8000000000000000"},{"$int":"-0x8000000000000001"}]',
    "tuple": '{"$tuple":[1,2]}',
    "set": '[{"$set":[1,10,2]},{"$frozenset":[]}]',
    "dict": '{"$dict":[["$a",1],[1,2]]}',
    "odict": '{"$odict":[["b",1],["a",2],[1,{"$odict":[]}]]}',
    "path": '[{"$path":"a/b"},{"$posixpath":"/a"},{"$windowspath":"c:\\\\a"}]',
}
_REFUSED: Final = {
    "empty": "",
    "not-json": "{'a':1}",
    "spaces": "[1, 2]",
    "line-end": "[1,2]\n",
    "not-ascii": '"\xe9"',
    "key-twice": '{"amount":42,"amount":5000000}',
    "keys-not-sorted": '{"b":1,"a":2}',
    "not-a-number": "NaN",
    "infinite": "1e400",
    "long-number": "1" * 25,
    "int-beyond-64-bits": "9223372036854775808",
    "int-for-nothing": '{"$int":"0x1"}',
    "exponent": "1E5",
    "zeros": "1.00",
    "escape-for-nothing": r'"\u0061"',
    "escape-upper-case": r'"\u00E9"',
    "half-a-character": r'"\ud800"',
    "unknown-tag": '{"$pickle":"gASVAA=="}',
    "set-twice": '{"$set":[1,1]}',
    "set-not-sorted": '{"$set":[2,1]}',
    "odict-key-twice": '{"$odict":[["a",1],["a",2]]}',
    "dict-for-nothing": '{"$dict":[["a",1]]}',
    "tag-among-others": '{"$date":"2026-01-31","b":2}',
    "malformed-date": '{"$date":"31.01.2026"}',
}
_OVER: Final = {
    "too-deep": "[[[]]]",
    "too-many": f"[{'0,' * 100}0]",
    "too-long": f'"{"x" * 1000}"',
}


def vectors() -> list[Vector]:
    """Return states that decode, that are refused, and that are over the limits they name."""
    return [
        *({"name": name, "state": state, "decodes": True} for name, state in _CANONICAL.items()),
        *(
            {"name": name, "state": state, "refused": "DecodeError"}
            for name, state in _REFUSED.items()
        ),
        *(
            {"name": name, "limits": _LIMITS, "state": state, "refused": "LimitExceeded"}
            for name, state in _OVER.items()
        ),
    ]
