"""The codec: what it refuses on save and on load, and in which words."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from safepoint.codec import Codec
from safepoint.errors import DecodeError, EncodeError
from tests.unit.codec_types import (
    CODEC,
    Appender,
    Colour,
    Counted,
    Doubler,
    Elsewhere,
    Invoice,
    Level,
    Limited,
    Note,
    Nothing,
    Positive,
    Rights,
    Shouting,
    assert_carries_nothing,
)

HERE = "Restore a checkpoint that this codec wrote."

REGISTER = "Register the type that is stored under that name, as Codec([Invoice]) does for Invoice."


class Text(str):
    __slots__ = ()


Pair = namedtuple("Pair", "a b")  # noqa: PYI024


def unknown(name: str, at: str = "state") -> str:
    return f"{at} is of the type {name}, which this codec does not know."


def half(at: str) -> str:
    return f"{at} holds a lone surrogate, which is half a character."


def attribute(name: str, of: str = "Invoice") -> str:
    return f"state.{name} is an attribute but not a field of {of}, so it would be lost."


def rebuilt(why: str) -> str:
    return f"The state could not be restored. {why}"


def with_attribute(value: Any, name: str) -> Any:
    value.__dict__[name] = "TOPSECRET"
    return value


def with_an_attribute_for_a_field() -> Any:
    value = with_attribute(Invoice(1, "a"), "note")
    del value.due
    assert value.due is None, "the default of the class shines through"
    return value


def shown(value: object) -> str:
    return value[:50] if isinstance(value, str) else type(value).__name__


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
REFUSED_ON_SAVE: dict[str, list[tuple[Any, str]]] = {
    "Convert it first: dict(value) is kept, a subclass of dict is not.": [
        (OrderedDict(a=1), unknown("collections.OrderedDict")),
        (defaultdict(int), unknown("collections.defaultdict")),
    ],
    "Convert it first: tuple(value) is kept, a subclass of tuple is not.": [
        (Pair(1, 2), unknown(f"{__name__}.Pair"))
    ],
    "Convert it first: str(value) is kept, a subclass of str is not.": [
        (Text("TOPSECRET"), unknown(f"{__name__}.Text")),
        ({Text("TOPSECRET"): 1}, unknown(f"{__name__}.Text", "state.keys()[…]")),
    ],
    "Convert it first to a type that the codec knows, such as dict, list, str or bytes.": [
        (object(), unknown("builtins.object")),
        (bytearray(b"TOPSECRET"), unknown("builtins.bytearray")),
        (int, unknown("builtins.type")),
        *((value, unknown("builtins.complex", at)) for value, at in ODD),
    ],
    "Save None, or a word of your own, in place of NaN and infinity.": [
        (float("nan"), "state is a float that is not finite."),
        ([float("-inf")], "state[0] is a float that is not finite."),
        (Decimal("sNaN"), "state is a Decimal that is not finite."),
        (Decimal("-Infinity"), "state is a Decimal that is not finite."),
    ],
    "Replace it before you save, for example with text.encode(errors='replace').decode().": [
        (["a\ud800"], half("state[0]")),
        ({"\udfff": 1}, half("state[…]")),
        ({1: 1, "\udfff": 1}, half("state.keys()[…]")),
        (Path("\udcff"), half("state")),
    ],
    "Save the moment and not the rules: convert with .astimezone(timezone.utc).": [
        (
            datetime(2026, 1, 31, tzinfo=BERLIN),
            "state has a time zone of the type zoneinfo.ZoneInfo, whose rules cannot be saved.",
        )
    ],
    "Save the moment without it: convert with .astimezone(timezone.utc).": [
        (
            [time(1, tzinfo=timezone(timedelta(hours=1), "TOPSECRET"))],
            "state[0] has a time zone with a name of its own, which would be lost.",
        ),
        (
            datetime(2026, 1, 31, tzinfo=MICROSECOND),
            "state has a UTC offset with a fraction of a second.",
        ),
    ],
    "Save an unambiguous time: convert with .astimezone(timezone.utc).": [
        (datetime(2026, 10, 25, fold=1), "state has fold=1, which ISO 8601 cannot say.")  # noqa: DTZ001
    ],
    "Set each field before you save.": [
        (without_a_field(), "state is of the type Invoice and has a field that cannot be read.")
    ],
    "Make it a field, a property or a functools.cached_property.": [
        (with_attribute(Invoice(1, "a"), "note"), attribute("note")),
        (with_an_attribute_for_a_field(), attribute("note")),
        (with_attribute(Nothing(), "TOPSECRET name"), attribute("…", "Nothing")),
    ],
    "Let the class accept, unchanged, the fields of its own instances.": [
        (negative(), rebuilt("Positive refuses its saved fields.")),
        ([Doubler(1)], rebuilt("Doubler changes its field amount when it is rebuilt.")),
        (Appender([]), rebuilt("A registered type changes when it is rebuilt.")),
        (Elsewhere(1), rebuilt("Elsewhere refuses its saved fields.")),
        (
            {"a": [Invoice(1, "x", None, Shouting(text="TOPSECRET"))]},
            rebuilt("Shouting changes its field text when it is rebuilt."),
        ),
        (
            Limited.model_construct(scores={"TOPSECRET": "x"}, size=11),
            rebuilt("Limited refuses its saved fields: scores, size."),
        ),
        (
            Note.model_construct(title="x", ratio=1),
            rebuilt("Note changes its field ratio when it is rebuilt."),
        ),
    ],
}


@pytest.mark.parametrize(
    ("value", "what", "do"),
    [(*case, do) for do, cases in REFUSED_ON_SAVE.items() for case in cases],
    ids=shown,
)
def test_refused_on_save(value: Any, what: str, do: str) -> None:
    """Where, which type and what to do: and nothing of the value, not even on the exception."""
    with pytest.raises(EncodeError) as caught:
        CODEC.encode(value)
    assert (caught.value.what, caught.value.do) == (what, do)
    assert_carries_nothing(caught.value)


@pytest.mark.parametrize("value", [Level.LOW, Invoice(1, "a"), Note(title="a"), Rights.READ])
def test_what_could_be_registered_is_refused_with_the_line_to_write(value: Any) -> None:
    name = type(value).__name__
    with pytest.raises(EncodeError) as caught:
        Codec().encode([value])
    assert caught.value.what == unknown(f"{type(value).__module__}.{name}", "state[0]")
    assert caught.value.do == f"Register it: Codec([{name}])."


def test_a_subclass_of_a_registered_type_is_refused() -> None:
    @dataclass
    class Child(Invoice):
        pass

    with pytest.raises(EncodeError, match=r"Child, which this codec does not know"):
        CODEC.encode(Child(1, "a"))


def test_a_windows_path_that_reads_back_as_another_is_refused() -> None:
    """Newer Pythons write it in a way that can be read back; then it is kept."""
    path = PureWindowsPath("./c:x")
    if PureWindowsPath(str(path)) == path:
        assert CODEC.decode(CODEC.encode(path)) == path
        return
    with pytest.raises(EncodeError) as caught:
        CODEC.encode(path)
    assert str(caught.value) == (
        "state is a path that its own text does not give back. Save it as a str."
    )


def test_a_member_or_a_flag_that_its_class_would_not_give_back_is_refused() -> None:
    member, flag = object.__new__(Colour), object.__new__(Rights)
    member._name_, flag._value_ = "RED", 64
    with pytest.raises(EncodeError, match=r"^state\[0\] is of the type Colour and not one of its"):
        CODEC.encode([member])
    with pytest.raises(
        EncodeError, match=r"not be restored\. The encoded state holds a malformed R"
    ):
        CODEC.encode([flag])


def test_pydantic_extras_of_one_call_are_refused() -> None:
    """pydantic 2.12 lets a call allow what the model does not."""
    note = Note(title="a")
    object.__setattr__(note, "__pydantic_extra__", {"more": "TOPSECRET"})
    with pytest.raises(EncodeError, match=r"state\.more is an attribute but not a field of Note"):
        CODEC.encode(note)


def test_saving_rebuilds_each_record_once_however_deep_they_nest() -> None:
    value: Any = 0
    for _ in range(30):
        value = Counted(value)
    Counted.built = 0
    CODEC.encode(value)
    assert Counted.built == 30


def test_a_state_that_changes_while_it_is_read_is_refused() -> None:
    state: dict[int, Any] = {}

    @dataclass
    class Meddler:
        x: int = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "x":
                state[len(state)] = None
            return object.__getattribute__(self, name)

    state[0] = Meddler()
    with pytest.raises(EncodeError) as caught:
        Codec([Meddler]).encode(state)
    assert str(caught.value) == (
        "The state could not be read: it raised RuntimeError. "
        "Save a state that nothing else changes meanwhile."
    )
    assert_carries_nothing(caught.value)


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
{"$Nothing":{"$dict":[]}}"""

REFUSED_ON_LOAD: list[tuple[bytes, str]] = [
    *((data, JSON) for data in (b"", b" ", b"nul", b"[1", b"]", b"{", b'"', b"'a'", b"[1,]")),
    *((data, JSON) for data in (b'{"a"}', b'"\\x"', b'"\t"', b"[1]]", b"+1", b"01", b".5", b"\\")),
    *((line.encode(), FORM) for line in NOT_CANONICAL.splitlines()),
    (b'{"a":1,"a":1}', "The encoded state has a key twice in one object."),
    (b'{"$date":1,"$date":1}', "The encoded state has a key twice in one object."),
    *(
        (data, "The encoded state holds a number that is not finite.")
        for data in (b"NaN", b"[Infinity]", b'{"a":-Infinity}')
    ),
    (b"[1e999]", "state[0] is a float that is not finite."),
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
    *(
        (f'{{"${tag}":{inner}}}'.encode(), malformed(tag))
        for tag, inner in {
            "datetime": '"TOPSECRET"',
            "date": "5",
            "time": "[]",
            "timedelta": "[1e300,0,0]",
            "decimal": '"TOPSECRET"',
            "uuid": "5",
            "bytes": '"A"',
            "tuple": "5",
            "set": "[[]]",
            "frozenset": '[{"a":1}]',
            "path": "null",
            "posixpath": "5",
            "windowspath": "[]",
            "int": '"TOPSECRET"',
            "dict": "[[1]]",
            "Colour": '"TOPSECRET"',
            "Rights": "64",
        }.items()
    ),
    (b'{"$timedelta":[999999999999,0,0]}', malformed("timedelta")),
    (b'{"$bytes":"AP8=!"}', malformed("bytes")),
    (b'{"$timedelta":[1,2,3,4,5,6,7,8]}', malformed("timedelta")),
    (b'{"$decimal":"1E+9999999999999999999"}', malformed("decimal")),
    (b'{"$dict":[[[],1]]}', malformed("dict")),
    (b'{"$Colour":[]}', malformed("Colour")),
]


@pytest.mark.parametrize(("data", "what"), REFUSED_ON_LOAD, ids=lambda v: ascii(v)[:50])
def test_refused_on_load(data: bytes, what: str) -> None:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(data)
    assert (caught.value.what, caught.value.do) == (what, HERE)
    assert_carries_nothing(caught.value)


OLDER = "Restore with the version of the class that wrote it"


@pytest.mark.parametrize(
    ("data", "what", "do"),
    [
        (
            b'{"$Positive":{"amount":-42}}',
            "Positive refuses its saved fields.",
            f"{OLDER}, or let it accept this value.",
        ),
        (
            b'{"$Limited":{"scores":{"TOPSECRET":"x"},"size":11}}',
            "Limited refuses its saved fields: scores, size.",
            f"{OLDER}, or let it accept this value.",
        ),
        (
            b'{"$Limited":{"scores":{},"size":true}}',
            "Limited refuses its saved fields: size.",
            f"{OLDER}, or let it accept this value.",
        ),
        *(
            (
                b'{"$Positive":%s}' % inner,
                "The saved fields of Positive are not the fields that the class has now.",
                f"{OLDER}.",
            )
            for inner in (
                b"{}",
                b'{"TOPSECRET":1}',
                b'{"amount":1,"x":2}',
                b"[]",
                b'"amount"',
                b'{"$dict":[["amount",1],[1,1]]}',
                b'{"$Positive":{"amount":1}}',
            )
        ),
        (
            b'{"$nobody.knows":1}',
            "The encoded state holds the tag 'nobody.knows', which this codec does not know.",
            REGISTER,
        ),
        (
            b'{"$":1}',
            "The encoded state holds the tag '', which this codec does not know.",
            REGISTER,
        ),
    ],
    ids=lambda v: ascii(v)[:50],
)
def test_registered_and_unknown_types_refused_on_load(data: bytes, what: str, do: str) -> None:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(data)
    assert (caught.value.what, caught.value.do) == (what, do)
    assert_carries_nothing(caught.value)


def test_an_unknown_tag_is_shown_in_ascii_and_cut_short() -> None:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(b'{"$a\\n\\u202e%s":1}' % (b"x" * 99))
    assert caught.value.what == (
        f"The encoded state holds the tag 'a\\n\\u202e{'x' * 47}..., "
        "which this codec does not know."
    )


@pytest.mark.parametrize("data", [None, "1", bytearray(b"1"), memoryview(b"1"), 1])
def test_only_bytes_are_decoded(data: Any) -> None:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(data)
    assert str(caught.value) == "The encoded state is not bytes. Give decode what encode gave."


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


def test_no_module_is_imported_for_a_tag(tmp_path: Path) -> None:
    """In a fresh interpreter, with a module on the path that would tell."""
    module = (
        "import pathlib; pathlib.Path(__file__).with_name('imported').touch()\nclass Boom: pass"
    )
    (tmp_path / "sentinel_module.py").write_text(module)
    program = """
import sys
from safepoint.codec import Codec
from safepoint.errors import DecodeError
before = set(sys.modules)
for tag in ("sentinel_module", "sentinel_module.Boom", "sentinel_module:Boom", "Boom"):
    for inner in ("{}", "[]", '"sentinel_module"', '{"__module__":"sentinel_module"}'):
        try:
            Codec().decode(('{"$%s":%s}' % (tag, inner)).encode())
        except DecodeError:
            continue
        raise SystemExit("accepted")
new = set(sys.modules) - before
assert not new, new
if "import" in sys.argv:
    import sentinel_module
"""
    command = [sys.executable, "-c", program]
    path = [str(tmp_path), *filter(None, sys.path)]
    environment = {"PYTHONPATH": ":".join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, env=environment, check=True, timeout=60)
    assert not (tmp_path / "imported").exists()
    subprocess.run([*command, "import"], env=environment, check=True, timeout=60)
    assert (tmp_path / "imported").exists(), "the sentinel cannot tell"
