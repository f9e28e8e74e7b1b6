"""Files of any bytes: looked at, read and loaded as data, or refused with an error of ours."""

from __future__ import annotations

import io
import pickle
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safepoint.core.errors import CheckpointError
from safepoint.models import Verdict, inspect, machine, opcodes, read_pickle
from safepoint.models.limits import ModelLimits, PickleLimits
from safepoint.models.loading import open_model
from safepoint.models.machine import run
from safepoint.models.opcodes import Scan, Window, scan
from safepoint.models.plain import PLAIN
from safepoint.models.reader import read_plan
from tests.unit.archive_helpers import NONE, archive, legacy, proto, storage, tensor

OLD = storage("0", 4, ("torch", "FloatStorage"), "cpu", NONE)


def _zip(method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        made.writestr("a/state.pkl", pickle.dumps({"a": 1}))
        made.writestr("b.npy", b"\x93NUMPY\1\0\2\0{}")
        made.writestr("c.npy", b"\x93NUMPY\1\0")
    return file.getvalue()


SEEDS = (
    archive(proto(tensor()), {"0": b"\0" * 16}),
    legacy(tensor(OLD)),
    _zip(zipfile.ZIP_DEFLATED),
    _zip(zipfile.ZIP_STORED),
    pickle.dumps({"a": [1, (2.5, b"x")], "b": {3}}, 4),
    pickle.dumps({"a": [1, (2.5, b"x")]}, 0),
    b"cos\nsystem\n(S'id'\ntR.",
    b'8\0\0\0\0\0\0\0{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}  x',
    b'{"__pickled__": "gAROLg==", "__type__": "x"}',
    b"",
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Return a file with some bytes changed, cut out or put in."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(data)


FILES = mutated() | st.binary(max_size=200)


@given(FILES)
@example(_zip(zipfile.ZIP_STORED))
def test_a_look_at_a_file_is_an_answer_or_our_error(data: bytes) -> None:
    told = inspect(data)
    assert told.what
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        assert inspect(file.name) == told
    if told.plain:
        unsafe = (Verdict.RUNS_CODE, Verdict.REFUSED, Verdict.NOT_LOOKED_INTO)
        assert told.verdict not in unsafe


@given(FILES)
def test_a_pickle_is_data_or_refused(data: bytes) -> None:
    try:
        read_pickle(data)
    except CheckpointError:
        return
    found = scan(data)
    assert found.stopped, "what the strict reader builds, the lenient one follows to its end"


PIECES = (
    *(b"\x80\x02", b"\x80\x04", b"\x95\x08" + bytes(7), b"\x8c\x02os", b"\x8c\x06system", b"\x94"),
    *(b"X\x01\0\0\0b", b"K\x01", b"M\1\1", b"J\xff\xff\xff\xff", b"q\0", b"r\1\0\0\0", b"h\0"),
    *(b"j\1\0\0\0", b"N", b"\x88", b"(", b"t", b"\x85", b"\x86", b"\x87", b")", b"]", b"}", b"e"),
    *(b"u", b"s", b"a", b"R", b"Q", b"\x93", b"cos\nsystem\n", b"0", b"\x8c\1\xff", b"."),
)


def _odd(test: Any) -> Any:
    """Begin with each of the ways in which an instruction may find nothing to take."""
    odd = (
        b"(e",
        b"N(e",
        b"\x94",
        b"q\0",
        b"h\0",
        b"t",
        b"N\x86",
        b"(\x85",
        b"Q",
        b"NR",
        b"cos\nsystem\n)R",
        b"NQ",
        b"Nq\0q\0",
    )
    for each in (*(each + b"." for each in odd), *(each + b"N." for each in odd)):
        for many in (1, 9):
            test = example(each, many)(test)
            test = example(b"\x80\x04\x95\x02" + bytes(7) + each, many)(test)
    return test


@_odd
@given(mutated() | st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join), st.integers(1, 9))
def test_the_quick_way_through_a_pickle_is_the_careful_one(data: bytes, most: int) -> None:
    """What is followed in a hurry ends as if each instruction had been looked at by itself."""
    functions = {**PLAIN, ("os", "system"): lambda *given: [*given]}

    def seen() -> list[object]:
        told: list[object] = []
        for limits in (PickleLimits(), PickleLimits(opcodes=most, memo=most)):
            for window in (data, Window(io.BytesIO(data))):
                found = scan(window, limits=limits)
                told.append((found._replace(broken=None), str(found.broken)))
            same: list[Scan] = []
            for persistent in (None, repr):
                options: Any = {"persistent": persistent, "limits": limits, "told": same}
                try:
                    told.append(run(data, functions=functions, **options))
                except CheckpointError as error:
                    told.append(str(error))
            for each in same:
                assert each.imports == found.imports
                assert each[1:-1] == found[1:-1], "one look tells what two do"
        return told

    quick = seen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opcodes, "_QUICK", [0] * 256)
        patch.setattr(machine, "_quick", lambda *_: [0] * 256)
        assert repr(seen()) == repr(quick)


@given(FILES)
def test_a_model_is_planned_or_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        path.write_bytes(data)
        try:
            with open_model(path, ModelLimits()) as model:
                read_plan(model.file, model.members)
        except CheckpointError:
            return
