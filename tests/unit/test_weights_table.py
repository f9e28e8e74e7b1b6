"""The table of a safetensors file: strict where the package is lenient, and never looser."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safepoint.errors import LimitExceeded, ModelError, ModelMalformed
from safepoint.weights.dtypes import CODES
from safepoint.weights.limits import ModelLimits
from safepoint.weights.table import Entry, Table, read_table

QUICK = settings(
    max_examples=200,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
AGAIN = "Nothing was loaded. Save the model again with safetensors or save_checkpoint."

OUT = "looks like a way out of a folder: it holds '..' or a backslash, or begins with '/'"


def built(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """Put a file together from a header, whatever it is."""
    text = header.encode() if isinstance(header, str) else header
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(
    dtype: Any = "U8", shape: Any = (1,), offsets: Any = (0, 1), **more: Any
) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def of(tensors: Mapping[str, Any], data: bytes = b"x") -> bytes:
    return built(json.dumps(tensors), data)


def read(file: bytes, limits: ModelLimits | None = None) -> Table:
    return read_table(file, len(file), limits or ModelLimits())


def theirs(file: bytes) -> list[tuple[str, Any]] | None:
    """Return what the safetensors package reads, or None if it refuses."""
    safetensors = pytest.importorskip("safetensors")
    try:
        return list(safetensors.deserialize(file))
    except safetensors.SafetensorError:
        return None


ONE = entry()
TWICE = '{"a":%(e)s,"a":%(e)s}' % {"e": json.dumps(ONE)}  # noqa: UP031

# By name: what safetensors 0.8 loads and this does not, and why.
GAPS = {
    "a name that occurs twice": (built(TWICE, b"x"), "has 'a' twice in its header"),
    "metadata that occur twice": (
        built('{"__metadata__":{"k":"1","k":"2"}}'),
        "has 'k' twice in its header",
    ),
    "metadata that are null": (
        of({"__metadata__": None}, b""),
        "has metadata that are not texts",
    ),
    "a name that leaves the folder": (
        of({"../a": ONE}),
        f"has a tensor '../a', whose name {OUT}",
    ),
    "an absolute name": (
        of({"/a": ONE}),
        f"has a tensor '/a', whose name {OUT}",
    ),
    "a name with a backslash": (
        of({"a\\b": ONE}),
        rf"has a tensor 'a\\b', whose name {OUT}",
    ),
    "an empty name": (of({"": ONE}), "has a tensor '', whose name is empty"),
    "a name with a line break": (
        of({"a\nb": ONE}),
        r"has a tensor 'a\nb', whose name holds a character that cannot be shown",
    ),
    "a name that is written backwards": (
        of({"a\u202eb": ONE}),
        r"has a tensor 'a\u202eb', whose name holds a character that cannot be shown",
    ),
    "a name of 513 characters": (
        of({"a" * 513: ONE}),
        f"has a tensor '{'a' * 56}..., whose name is longer than 512 characters",
    ),
    "a key that nobody reads": (
        of({"a": entry(note="hi")}),
        "says of 'a' something else than dtype, shape and data_offsets",
    ),
    "a line break after the JSON": (
        built(json.dumps({"a": ONE}) + "\n", b"x"),
        "has something else after the JSON of its header",
    ),
    "a space before the JSON": (
        built(" " + json.dumps({"a": ONE}), b"x"),
        "has a header that is not JSON",
    ),
    "elements of half a byte": (
        of({"a": entry("F4", [2])}),
        "gives 'a' the dtype 'F4', which is not one of those that are loaded",
    ),
}

# What neither loads.
BROKEN = {
    "no header": (b"\0\0\0", "ends before its header"),
    "nothing after the length": (built("", length=9), "ends before its header does"),
    "a cut header": (built('{"a":', length=50), "ends before its header does"),
    "no JSON": (built("hello"), "has a header that is not JSON"),
    "an empty header": (built(""), "has a header that is not JSON"),
    "a list": (built("[]"), "has a header that is not JSON"),
    "not UTF-8": (built(b'{"\xff":1}'), "has a header that is not JSON"),
    "a mark of byte order": (built(b"\xef\xbb\xbf{}"), "has a header that is not JSON"),
    "a raw control character": (built('{"a\tb":{}}'), "has a header that is not JSON"),
    "two objects": (built("{}{}"), "has something else after the JSON of its header"),
    "nesting": (built('{"a":' + "[" * 9999), "has a header that is nested too deep"),
    "a number of 5,000 digits": (
        built('{"a":{"dtype":"U8","shape":[%s]}}' % ("9" * 5000)),
        "has a header that is not JSON",
    ),
    "an entry alone": (of(ONE), "has a header that is one entry and not a table"),
    "a field twice": (
        built('{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "has 'dtype' twice in its header",
    ),
    "NaN": (built('{"a":NaN}'), "has the number 'NaN' in its header, which is not an integer"),
    "a fraction": (
        of({"a": entry(shape=[1.0])}),
        "has the number '1.0' in its header, which is not an integer",
    ),
    "an exponent": (
        built('{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}', b"x"),
        "has the number '1e0' in its header, which is not an integer",
    ),
    "minus zero": (
        built('{"a":{"dtype":"U8","shape":[1],"data_offsets":[-0,1]}}', b"x"),
        "has the number '-0' in its header, which is not an integer",
    ),
    "a truth value as size": (
        of({"a": entry(shape=[True])}),
        "gives 'a' a shape that is not a list of sizes",
    ),
    "a negative size": (
        of({"a": entry(shape=[-1], offsets=[1, 0])}),
        "gives 'a' a shape that is not a list of sizes",
    ),
    "a text as shape": (
        of({"a": entry(shape="1")}),
        "gives 'a' a shape that is not a list of sizes",
    ),
    "an entry in a shape": (
        of({"a": entry(shape=[ONE])}),
        "gives 'a' a shape that is not a list of sizes",
    ),
    "three offsets": (
        of({"a": entry(offsets=[0, 1, 1])}),
        "gives 'a' data_offsets that are not two places",
    ),
    "offsets that are truth values": (
        of({"a": entry(offsets=[False, True])}),
        "gives 'a' data_offsets that are not two places",
    ),
    "negative offsets": (
        of({"a": entry(offsets=[-1, 0])}),
        "gives 'a' data_offsets that are not two places",
    ),
    "offsets the wrong way round": (
        of({"a": entry(offsets=[1, 0])}),
        "gives 'a' another number of bytes than its shape needs",
    ),
    "a shape too large for its bytes": (
        of({"a": entry(shape=[2])}),
        "gives 'a' another number of bytes than its shape needs",
    ),
    "no offsets": (
        of({"a": {"dtype": "U8", "shape": [1]}}),
        "says of 'a' something else than dtype, shape and data_offsets",
    ),
    "a number in place of an entry": (
        of({"a": 1}),
        "says of 'a' something else than dtype, shape and data_offsets",
    ),
    "an entry one level too deep": (
        of({"a": {"b": ONE}}),
        "says of 'a' something else than dtype, shape and data_offsets",
    ),
    "an unknown type": (
        of({"a": entry("u8")}),
        "gives 'a' the dtype 'u8', which is not one of those that are loaded",
    ),
    "a list as type": (
        of({"a": entry(["U8"])}),
        "gives 'a' the dtype ['U8'], which is not one of those that are loaded",
    ),
    "metadata that are numbers": (
        of({"__metadata__": {"k": 1}}, b""),
        "has metadata that are not texts",
    ),
    "an entry as metadata": (of({"__metadata__": ONE}), "has metadata that are not texts"),
    "metadata twice": (
        built('{"__metadata__":{},"__metadata__":{}}'),
        "has '__metadata__' twice in its header",
    ),
    "half a character in a name": (
        of({"\ud800": ONE}),
        r"has a tensor '\ud800', whose name holds a character that cannot be shown",
    ),
    "half a character in the metadata": (
        of({"__metadata__": {"k": "\ud800"}}, b""),
        "has metadata with half a character in it",
    ),
    "half a character in a key of the metadata": (
        of({"__metadata__": {"\ud800": "v"}}, b""),
        "has metadata with half a character in it",
    ),
    "a hole": (
        of({"a": ONE, "b": entry(offsets=[2, 3])}, b"xyz"),
        "has a tensor 'b' that begins after a hole",
    ),
    "a hole before the first": (
        of({"a": entry(offsets=[1, 2])}, b"xy"),
        "has a tensor 'a' that begins after a hole",
    ),
    "an overlap": (
        of({"a": entry(shape=[2], offsets=[0, 2]), "b": entry(offsets=[1, 2])}, b"xy"),
        "has a tensor 'b' that overlaps another tensor",
    ),
    "two tensors on the same bytes": (
        of({"a": ONE, "b": ONE}),
        "has a tensor 'b' that overlaps another tensor",
    ),
    "an empty tensor inside another": (
        of({"a": entry(shape=[2], offsets=[0, 2]), "b": entry(shape=[0], offsets=[1, 1])}, b"xy"),
        "has a tensor 'b' that overlaps another tensor",
    ),
    "a missing end": (of({"a": ONE}, b""), "ends before its last tensor does"),
    "bytes after the end": (of({"a": ONE}, b"xyz"), "has 2 bytes after its last tensor"),
    "bytes after no tensor": (of({}, b"xyz"), "has 3 bytes after its last tensor"),
}


@pytest.mark.parametrize("case", GAPS)
def test_what_safetensors_accepts_and_this_refuses(case: str) -> None:
    file, why = GAPS[case]
    with pytest.raises(ModelMalformed) as refused:
        read(file)
    assert str(refused.value) == f"The safetensors file {why}. {AGAIN}"
    assert theirs(file) is not None  # once they refuse it, too, it is no gap any more


@pytest.mark.parametrize("case", BROKEN)
def test_what_safetensors_refuses_is_refused(case: str) -> None:
    file, why = BROKEN[case]
    with pytest.raises(ModelMalformed) as refused:
        read(file)
    assert str(refused.value) == f"The safetensors file {why}. {AGAIN}"
    assert theirs(file) is None


def test_a_table_says_what_where() -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "b": entry("F32", [2, 3], [0, 24]),
        "scalar": entry("I64", [], [24, 32]),
        "empty": entry("BF16", [0, 7], [32, 32]),
    }
    file = of(header, bytes(32))
    start = len(file) - 32
    assert read(file) == Table(
        {
            "b": Entry("float32", (2, 3), start, start + 24),
            "scalar": Entry("int64", (), start + 24, start + 32),
            "empty": Entry("bfloat16", (0, 7), start + 32, start + 32),
        },
        {},
    )


def test_a_file_without_tensors_is_one() -> None:
    assert read(built("{}")) == Table({}, {})


def test_the_order_of_the_bytes_need_not_be_that_of_the_names() -> None:
    file = of({"b": entry(offsets=[1, 2]), "a": ONE}, b"xy")
    assert list(read(file).tensors) == ["b", "a"]
    assert theirs(file) is not None


def test_spaces_after_the_json_are_padding() -> None:
    assert list(read(built(json.dumps({"a": ONE}) + "   ", b"x")).tensors) == ["a"]


def test_metadata_are_told_and_not_interpreted() -> None:
    told = {"format": "pt", "license": "mit", "run": "os.system('id')\n"}
    assert read(of({"__metadata__": told}, b"")).metadata == {
        "license": "mit",
        "run": "os.system('id')\n",
    }
    assert read(of({"__metadata__": {"format": "tf"}}, b"")).metadata == {"format": "tf"}


@pytest.mark.parametrize("name", ["a b", "ümlaut", "a/b.c-0", "層.0", "a" * 512, "[0]{x}", "a /b"])
def test_a_name_may_be_any_text_that_can_be_shown(name: str) -> None:
    assert list(read(of({name: ONE})).tensors) == [name]


@pytest.mark.parametrize("code", CODES)
def test_each_type_has_the_size_that_safetensors_says(code: str) -> None:
    name, width = CODES[code]
    file = of({"a": entry(code, [3], [0, 3 * width])}, bytes(3 * width))
    assert read(file).tensors["a"].dtype == name
    assert theirs(file) is not None


@pytest.mark.parametrize(
    ("file", "limits", "message"),
    [
        (
            built("{}", length=2**63),
            ModelLimits(),
            (
                "The header of the safetensors file takes 9223372036854775808 bytes, and the"
                " limit is 33554432. If it is meant to be that large, raise"
                " ModelLimits.header_bytes."
            ),
        ),
        (
            of({name: entry(shape=[0], offsets=[0, 0]) for name in "abcd"}, b""),
            ModelLimits(tensors=3),
            (
                "The header of the safetensors file describes more than 3 tensors. If it is"
                " meant to be that large, raise ModelLimits.tensors."
            ),
        ),
        (
            of({name: 0 for name in "abcd"}, b""),  # noqa: C420
            ModelLimits(tensors=3),
            (
                "The safetensors file holds 4 tensors, and the limit is 3. If it is meant to be"
                " that large, raise ModelLimits.tensors."
            ),
        ),
        (
            of({"a": entry(shape=[0, 2**40], offsets=[0, 0])}, b""),
            ModelLimits(),
            (
                "The tensor 'a' has more than 17179869184 elements. If it is meant to be that"
                " large, raise ModelLimits.elements."
            ),
        ),
        (
            of({"a": entry(shape=[10**4000, 0], offsets=[0, 0])}, b""),
            ModelLimits(),
            (
                "The tensor 'a' has more than 17179869184 elements. If it is meant to be that"
                " large, raise ModelLimits.elements."
            ),
        ),
        (
            of({"a": entry(shape=[1] * 65)}),
            ModelLimits(),
            "The tensor 'a' has 65 dimensions, and the limit is 64. Save it again with fewer.",
        ),
        (
            of({"__metadata__": {str(number): "" for number in range(1001)}}, b""),
            ModelLimits(),
            (
                "The safetensors file has 1001 metadata, and the limit is 1000. Save it again"
                " without them."
            ),
        ),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_built(
    file: bytes, limits: ModelLimits, message: str
) -> None:
    with pytest.raises(LimitExceeded) as refused:
        read(file, limits)
    assert str(refused.value) == message


def test_as_many_tensors_as_allowed_are_read() -> None:
    """The limit counts tensors, whatever brackets, colons and commas are in their names."""
    names = ['[{":,"}]\\' + str(number) for number in range(3)]
    header = {name.replace("\\", "|"): entry(shape=[0], offsets=[0, 0]) for name in names}
    assert len(read(of(header, b""), ModelLimits(tensors=3)).tensors) == 3


def test_brackets_in_texts_are_none_however_long_and_quoted_they_are() -> None:
    told = {"a": "\\", "b": '"[[[[', "c": "[{" * 100_000 + "\\", "d": ",[" * 40_000, "e": '\\"'}
    file = of({"__metadata__": told, "t": ONE})
    assert read(file, ModelLimits(tensors=1)).metadata == told


@pytest.mark.parametrize(
    "header",
    [
        "{" + ",".join(f'"{number:x}":[]' for number in range(300_000)) + "}",
        '{"a":[' + "[]," * 700_000 + "[]]}",
        '{"a":[' + ("1000," * 400_000) + "0]}",
        "{" + ",".join(f'"{number:x}":0' for number in range(300_000)) + "}",
        '{"a":[' + '"",' * 700_000 + '""]}',
    ],
    ids=["lists by name", "lists", "numbers", "names", "texts"],
)
def test_a_header_of_many_small_things_is_refused_before_it_is_parsed(header: str) -> None:
    """Two MB of text would become fifty MB of objects."""
    file = built(header)
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded, match="describes more than 10000 tensors"):
            read(file, ModelLimits(tensors=10_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(file)


def test_many_names_of_which_the_last_is_double_are_refused_at_once() -> None:
    """Looking for the double one takes one pass over 100,000 names, not one for each."""
    names = [f'"{number}":0' for number in range(99_000)]
    with pytest.raises(ModelMalformed, match="has '98999' twice"):
        read(built("{" + ",".join([*names, names[-1]]) + "}"))


# --- what nobody thought of ---

CODE = st.sampled_from(sorted(CODES))
SHAPE = st.lists(st.integers(0, 4), max_size=4)
NAME = st.text(
    st.characters(categories=["L", "N", "P", "S"], exclude_characters="\\/."), min_size=1
).filter(lambda name: name.isprintable() and name != "__metadata__")


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, tuple[str, list[int]]], bytes]:
    tensors = draw(st.dictionaries(NAME, st.tuples(CODE, SHAPE), max_size=6))
    header: dict[str, Any] = {}
    position = 0
    for name, (code, shape) in tensors.items():
        size = CODES[code][1]
        for each in shape:
            size *= each
        header[name] = entry(code, shape, [position, position + size])
        position += size
    shuffled = dict(draw(st.permutations(list(header.items()))))
    if draw(st.booleans()):
        shuffled["__metadata__"] = draw(st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
    ascii_only = draw(st.booleans())
    text = json.dumps(shuffled, ensure_ascii=ascii_only) + " " * draw(st.integers(0, 8))
    return tensors, built(text, draw(st.binary(min_size=position, max_size=position)))


@QUICK
@given(tables())
def test_any_valid_file_is_read_as_safetensors_reads_it(
    case: tuple[dict[str, tuple[str, list[int]]], bytes],
) -> None:
    tensors, file = case
    table = read(file)
    expected = theirs(file)
    assert expected is not None
    assert {name: (CODES[code][0], tuple(shape)) for name, (code, shape) in tensors.items()} == {
        name: (each.dtype, each.shape) for name, each in table.tensors.items()
    }
    assert {name: (each["shape"], bytes(each["data"])) for name, each in expected} == {
        name: (list(each.shape), file[each.begin : each.end])
        for name, each in table.tensors.items()
    }


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["U8", "F32", "__metadata__"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "a", "../b"]), inner
        )
    ),
    max_leaves=10,
)


@QUICK
@given(JSON, st.binary(max_size=8))
def test_any_json_is_read_or_refused_and_never_more_than_safetensors(
    value: Any, data: bytes
) -> None:
    file = built(json.dumps(value), data)
    try:
        read(file)
    except (ModelError, LimitExceeded):
        pass
    else:
        assert theirs(file) is not None


@settings(QUICK, max_examples=500)
@given(tables(), st.data())
def test_a_changed_byte_is_read_or_refused_and_never_more_than_safetensors(
    case: tuple[dict[str, tuple[str, list[int]]], bytes], data: st.DataObject
) -> None:
    file = bytearray(case[1])
    header = 8 + int.from_bytes(file[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, header - 1))
        change = data.draw(st.sampled_from(["byte", "cut", "insert", "copy"]))
        if change == "byte":
            file[position] = data.draw(
                st.sampled_from(list(b'"{}[]:,-0129eE. \\\n\0\xff')) | st.integers(0, 255)
            )
        elif change == "cut":
            del file[position : position + data.draw(st.integers(1, 9))]
        elif change == "insert":
            file[position:position] = data.draw(st.binary(min_size=1, max_size=4))
        else:
            file[position:position] = file[position : position + data.draw(st.integers(1, 60))]
        header = min(header, len(file))
        if not header:
            break
    if len(file) >= 8 and data.draw(st.booleans()):
        # Otherwise most changes are caught by the length alone.
        end = file.rfind(b"}") + 1
        file[:8] = max(0, end - 8).to_bytes(8, "little")
    try:
        read(bytes(file))
    except (ModelError, LimitExceeded):
        pass
    else:
        assert theirs(bytes(file)) is not None


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_a_file_without_tensors(data: bytes) -> None:
    with suppress(ModelError, LimitExceeded):
        assert read(data).tensors == {}


def test_a_head_that_is_shorter_than_the_file_is_enough() -> None:
    """A caller that has read the header alone knows the rest from the size."""
    file = of({"a": entry(shape=[100], offsets=[0, 100])}, bytes(100))
    assert read_table(file[:-100], len(file)) == read(file)
    with pytest.raises(ModelMalformed, match="ends before its header does"):
        read_table(file[:20], len(file))
