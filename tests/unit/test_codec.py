"""The codec: what it keeps, and which types it takes."""

from __future__ import annotations

import decimal
import subprocess
import sys
import threading
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import pydantic
import pytest

from safepoint.codec import Codec
from safepoint.errors import CodecError
from safepoint.names import Limits
from tests.unit.codec_types import (
    CODEC,
    VALUES,
    Box,
    Colour,
    Invoice,
    Nothing,
    Point,
    Squared,
    same,
)


@pytest.mark.parametrize(("value", "text"), VALUES, ids=lambda v: ascii(v)[:40])
def test_a_value_has_one_text_and_comes_back_equal_and_of_its_type(
    value: Any, text: str | None
) -> None:
    data = CODEC.encode(value)
    if text is not None:
        assert data.decode("ascii") == text
    assert same(CODEC.decode(data), value)


def test_same_can_tell_what_the_codec_must_keep_apart() -> None:
    """The oracle of these tests is itself able to fail."""
    assert not same(1, True)
    assert not same(0.0, -0.0)
    assert not same([1], (1,))
    assert not same({1}, {1.0})
    assert not same({1: 2}, {True: 2})
    assert not same(Decimal("1.0"), Decimal("1.00"))
    assert not same(Invoice(1, "a"), Invoice(1, "b"))
    assert not same(Box([1]), Box((1,)))


def test_a_very_large_int_is_kept_beyond_what_python_prints() -> None:
    value = 7 ** (2**20)
    assert CODEC.decode(CODEC.encode([value, -value])) == [value, -value]


def test_equal_states_have_equal_bytes_whatever_their_order() -> None:
    assert CODEC.encode({"a": 1, "b": {2, 1}}) == CODEC.encode({"b": {1, 2}, "a": 1})
    assert CODEC.encode({1: 1, 2: 2}) == CODEC.encode({2: 2, 1: 1})


def test_decimals_are_written_alike_under_every_decimal_context() -> None:
    with decimal.localcontext() as context:
        context.capitals = 0
        context.prec = 1
        data = CODEC.encode(Decimal("1.25E+50"))
        assert CODEC.decode(data) == Decimal("1.25E+50")
    assert data == b'{"$decimal":"1.25E+50"}'
    assert CODEC.decode(data) == Decimal("1.25E+50")


def test_a_mapping_chooses_the_tags() -> None:
    codec = Codec({"billing.Invoice": Invoice, "_p": Point})
    assert codec.encode(Point(x=1)) == b'{"$_p":{"x":1,"y":0}}'
    assert codec.decode(codec.encode(Invoice(1, "a"))) == Invoice(1, "a")
    assert codec.types == {"billing.Invoice": Invoice, "_p": Point}


def test_a_cached_property_does_not_stop_a_save() -> None:
    value = Squared(3)
    assert value.area == 9
    assert CODEC.encode(value) == b'{"$Squared":{"side":3}}'


def test_a_codec_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        CODEC.limits = Limits()  # type: ignore[misc]
    with pytest.raises(AttributeError):
        CODEC.anything = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        CODEC.types["x"] = int  # type: ignore[index]


def test_threads_share_one_codec() -> None:
    states = [[Invoice(n, f"customer {n}"), {n: (n,)}] for n in range(8)]
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(50):
            wrong.extend([n] * (CODEC.decode(CODEC.encode(states[n])) != states[n]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@dataclass
class Derived:
    a: int
    b: int = field(init=False, default=0)


@dataclass
class WithInitVar:
    a: int
    b: InitVar[int] = 0


@pydantic.dataclasses.dataclass
class PydanticInitVar:
    a: int
    b: InitVar[int] = 0


@dataclass
class OfDict(dict[str, int]):
    a: int


@dataclass
class OfException(Exception):
    a: int


class Slotted:
    __slots__ = ("hidden",)


@dataclass
class OfSlotted(Slotted):
    a: int


class SecretlySlotted:
    __slots__ = ("__hidden",)


@dataclass
class OfSecretlySlotted(SecretlySlotted):
    a: int


class Private(pydantic.BaseModel):
    a: int
    _b: int = pydantic.PrivateAttr(default=1)


class Extra(pydantic.BaseModel, extra="allow"):
    a: int


class Root(pydantic.RootModel[int]):
    pass


class OldModel:
    """What a model of pydantic before 2.11 looks like from outside."""

    model_fields: dict[str, Any] = {}  # noqa: RUF012
    model_config: dict[str, Any] = {}  # noqa: RUF012

    @classmethod
    def model_validate(cls, obj: Any, *, strict: bool | None = None) -> OldModel:
        raise NotImplementedError(obj, strict)


class Plain:
    pass


ITSELF = "Write Codec([Invoice]), with the class itself."
TAG = (
    "Use letters, digits, '_' and '.', and begin with a letter or '_': Codec({'Invoice': Invoice})."
)
FREE = "Give the type another one: Codec({'billing.Invoice': Invoice})."


CANNOT: list[tuple[type, str, str]] = [
    (Derived, "it has a field with init=False, which cannot be given back", "Compute it in a prop"),
    (WithInitVar, "it has an InitVar, which is not kept and so cannot be given back", "Make it a"),
    (PydanticInitVar, "it has an InitVar, which is not kept and so cannot be given back", "Make"),
    (OfDict, "it extends dict, whose content is not a field", "Make that content a field."),
    (OfException, "it extends Exception, whose content is not a field", "Make that content a"),
    (OfSlotted, "it has a slot that is not a field", "Make it a field."),
    (OfSecretlySlotted, "it has a slot that is not a field", "Make it a field."),
    (Private, "it has private attributes, which would be lost", "Make them fields, or compute"),
    (Extra, 'it has extra="allow", and what is not a field would be lost', "Declare a field for"),
    (Root, "it is a RootModel", "Use a model with a field."),
    (OldModel, "its model_validate has no by_name", "Use pydantic 2.11 or newer."),
    (Plain, "it is not a dataclass, an Enum or a pydantic model", "Make it a dataclass, or"),
    (int, "it is not a dataclass, an Enum or a pydantic model", "Make it a dataclass, or convert"),
]
GIVEN = "Codec takes types, and was given a value of the type "
LIST = "Codec takes a list of types."


@pytest.mark.parametrize(
    ("types", "what", "do"),
    [
        *(
            ([cls], f"{cls.__module__}.{cls.__name__} cannot be registered: {why}.", do)
            for cls, why, do in CANNOT
        ),
        ([Nothing()], f"{GIVEN}{Nothing.__module__}.Nothing.", ITSELF),
        ([list[int]], f"{GIVEN}types.GenericAlias.", ITSELF),
        ("ab", f"{GIVEN}builtins.str.", ITSELF),
        *((odd, LIST, "Write Codec([Invoice]).") for odd in (Invoice, Colour, None)),
        *(({tag: Invoice}, f"The tag '{tag}' is taken.", FREE) for tag in ("datetime", "dict")),
        ([Invoice, Invoice], "The tag 'Invoice' is taken.", FREE),
        (
            {"a": Invoice, "b": Invoice},
            f"{Invoice.__module__}.Invoice is registered twice.",
            "Give it one tag.",
        ),
        *(
            ({tag: Invoice}, f"{tag!a} cannot be a tag.", TAG)
            for tag in ("", "a b", "1a", "é", "a\n", "$a", ".a", 5)
        ),
    ],
    ids=lambda v: ascii(v)[:40],
)
def test_refused_at_registration(types: Any, what: str, do: str) -> None:
    with pytest.raises(CodecError) as caught:
        Codec(types)
    assert caught.value.what == what
    assert caught.value.do.startswith(do)
    assert type(caught.value) is CodecError


def test_the_codec_does_not_import_pydantic() -> None:
    program = "import sys; from safepoint.codec import Codec; assert 'pydantic' not in sys.modules"
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)


class Meeting(pydantic.BaseModel):
    at: datetime


@pytest.mark.parametrize("at", ["2026-11-15T12:00:00Z", "2026-11-15T12:00:00+05:30"])
def test_a_time_that_pydantic_parsed_is_kept_as_the_same_moment_and_offset(at: str) -> None:
    """pydantic gives such a time a tzinfo class of its own, which is a fixed offset."""
    meeting = Meeting.model_validate_json(f'{{"at":"{at}"}}')
    codec = Codec([Meeting])
    again = codec.decode(codec.encode(meeting))
    assert again == meeting
    assert again.at.utcoffset() == meeting.at.utcoffset()
