"""A schema: names, types and shapes, compared before anything is built."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safepoint.errors import ConfigurationError, ModelMismatch
from safepoint.weights.dtypes import KNOWN
from safepoint.weights.schema import Schema, TensorSpec
from safepoint.weights.table import Entry

FILE = "Load the file that belongs to this model."
SCHEMA = Schema(
    {"weight": TensorSpec("float32", (None, 3)), "steps": TensorSpec("int64", ())},
)
GOOD = {"weight": TensorSpec("float32", (8, 3)), "steps": TensorSpec("int64", ())}


def test_tensors_that_fit_pass() -> None:
    SCHEMA.check(GOOD)
    SCHEMA.check({**GOOD, "weight": Entry("float32", (0, 3), 0, 0)})


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        ({"weight": GOOD["weight"]}, "The tensor 'steps' is missing."),
        (
            {**GOOD, "weight": TensorSpec("float16", (8, 3))},
            "The tensor 'weight' is float16 (8, 3), and the schema says float32 (None, 3).",
        ),
        (
            {**GOOD, "weight": TensorSpec("float32", (8, 4))},
            "The tensor 'weight' is float32 (8, 4), and the schema says float32 (None, 3).",
        ),
        (
            {**GOOD, "weight": TensorSpec("float32", (3,))},
            "The tensor 'weight' is float32 (3,), and the schema says float32 (None, 3).",
        ),
        (
            {**GOOD, "steps": TensorSpec("int64", (1,))},
            "The tensor 'steps' is int64 (1,), and the schema says int64 ().",
        ),
        ({**GOOD, "steps": 7}, "'steps' is int, not a tensor."),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(tensors: Any, what: str) -> None:
    with pytest.raises(ModelMismatch) as refused:
        SCHEMA.check(tensors)
    assert str(refused.value) == f"{what} {FILE}"


def test_a_tensor_too_many_is_named_unless_extra_ones_may_be_there() -> None:
    more = {**GOOD, "back\ndoor": TensorSpec("uint8", (1,))}
    with pytest.raises(ModelMismatch) as refused:
        SCHEMA.check(more)
    assert str(refused.value) == (
        r"The tensor 'back\ndoor' is not in the schema. Load the file that belongs to this model,"
        " or write Schema(…, extra=True)."
    )
    Schema(SCHEMA, extra=True).check(more)


def test_extra_ones_do_not_make_up_for_missing_ones() -> None:
    with pytest.raises(ModelMismatch, match="'steps' is missing"):
        Schema(SCHEMA, extra=True).check({"weight": GOOD["weight"], "other": GOOD["steps"]})


def test_the_schema_of_a_model_is_that_of_its_tensors() -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    state = torch.nn.Linear(3, 2).state_dict()
    schema = Schema.of(state)
    assert dict(schema) == {
        "weight": TensorSpec("float32", (2, 3)),
        "bias": TensorSpec("float32", (2,)),
    }
    schema.check(state)
    with pytest.raises(ModelMismatch) as refused:
        schema.check(torch.nn.Linear(3, 2, dtype=torch.bfloat16).state_dict())
    assert refused.value.what == (
        "The tensor 'weight' is bfloat16 (2, 3), and the schema says float32 (2, 3)."
    )


def test_a_type_of_pytorch_is_understood() -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    assert TensorSpec(torch.float32, torch.Size([2])) == TensorSpec("float32", (2,))
    assert {str(getattr(torch, name)) for name in KNOWN} == {f"torch.{name}" for name in KNOWN}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TensorSpec("flaot32", ()),
            "'flaot32' is not a type of elements. Write dtype=\"float32\".",
        ),
        (
            lambda: TensorSpec("float32", (True,)),
            "A shape is made of sizes, and None for any size. Write shape=(None, 768).",
        ),
        (
            lambda: TensorSpec("float32", (-1,)),
            "A shape is made of sizes, and None for any size. Write shape=(None, 768).",
        ),
        (
            lambda: TensorSpec("float32", 3),  # type: ignore[arg-type]
            "A shape is made of sizes, and None for any size. Write shape=(None, 768).",
        ),
        (
            lambda: Schema({"a": "float32"}),  # type: ignore[dict-item]
            (
                'A schema takes a TensorSpec for each name. Write Schema({"weight":'
                ' TensorSpec("float32", (None, 768))}).'
            ),
        ),
        (
            lambda: Schema([]),  # type: ignore[arg-type]
            (
                'A schema takes a TensorSpec for each name. Write Schema({"weight":'
                ' TensorSpec("float32", (None, 768))}).'
            ),
        ),
        (
            lambda: Schema.of({"epoch": 3}),  # type: ignore[dict-item]
            (
                "'epoch' is int, not a tensor. Give Schema.of a flat dict of tensors, such as"
                " model.state_dict()."
            ),
        ),
    ],
)
def test_what_is_no_schema_is_told(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert str(refused.value) == message


def test_the_text_of_a_schema_can_be_kept_and_read() -> None:
    assert SCHEMA.to_json() == (
        '{\n "extra": false,\n "tensors": {\n  "steps": {\n   "dtype": "int64",\n   "shape": []\n'
        '  },\n  "weight": {\n   "dtype": "float32",\n   "shape": [\n    null,\n    3\n   ]\n  }\n'
        " }\n}"
    )
    assert Schema.from_json(SCHEMA.to_json()) == SCHEMA
    assert Schema.from_json(Schema({}, extra=True).to_json()).extra is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        b"{}",
        "[" * 100_000,
        '{"extra":0,"tensors":{}}',
        '{"extra":false,"tensors":{},"more":1}',
        '{"extra":false,"extra":true,"tensors":{}}',
        '{"extra":false,"tensors":{"a":{"dtype":"int8","shape":[],"x":1}}}',
        '{"extra":false,"tensors":{"a":{"dtype":"int8"}}}',
        '{"extra":false,"tensors":{"a":[]}}',
    ],
)
def test_a_text_that_is_no_schema_is_refused(text: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Schema.from_json(text)
    assert str(refused.value) == (
        "This text is not a schema. Write one with Schema.of(model.state_dict()).to_json()."
    )


SPECS = st.builds(
    TensorSpec,
    st.sampled_from(sorted(KNOWN)),
    st.lists(st.none() | st.integers(0, 9), max_size=4).map(tuple),
)


@settings(max_examples=100, deadline=None, database=None)
@given(st.dictionaries(st.text(max_size=6), SPECS, max_size=5), st.booleans())
def test_any_schema_survives_its_text(specs: dict[str, TensorSpec], extra: bool) -> None:
    again = Schema.from_json(Schema(specs, extra=extra).to_json())
    assert (dict(again), again.extra) == (specs, extra)


@settings(max_examples=200, deadline=None, database=None)
@given(SPECS, st.sampled_from(sorted(KNOWN)), st.lists(st.integers(0, 9), max_size=4))
def test_a_spec_allows_what_it_says_and_nothing_else(
    spec: TensorSpec, dtype: str, shape: list[int]
) -> None:
    fits = (
        dtype == spec.dtype
        and len(shape) == len(spec.shape)
        and all(want in (None, size) for want, size in zip(spec.shape, shape, strict=True))
    )
    assert spec.allows(Entry(dtype, tuple(shape), 0, 0)) is fits
    filled = tuple(3 if size is None else size for size in spec.shape)
    assert spec.allows(Entry(spec.dtype, filled, 0, 0))


@settings(max_examples=100, deadline=None, database=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["extra", "tensors", "dtype", "shape"]), inner)
        ),
    )
)
def test_any_json_is_a_schema_or_refused(value: Any) -> None:
    try:
        schema = Schema.from_json(json.dumps(value))
    except ConfigurationError:
        return
    assert json.loads(schema.to_json()) == value
