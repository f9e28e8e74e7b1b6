"""Files of any bytes: looked at, read and loaded as data, or refused with an error of ours."""

from __future__ import annotations

import io
import pickle
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from safepoint.core.errors import CheckpointError
from safepoint.models import TensorSpec, Verdict, inspect, load_tensors, read_pickle
from safepoint.models.limits import ModelLimits
from safepoint.models.loading import open_model
from safepoint.models.opcodes import scan
from safepoint.models.reader import named_tensors, read_model
from safepoint.models.tensors import dtype_name
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
    found = scan(io.BytesIO(data))
    assert found.stopped, "what the strict reader builds, the lenient one follows to its end"


class Anything:
    """Takes what a pickle gives to what it asked for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    append = extend = add = __call__ = __setstate__ = __init__

    def __setitem__(self, *_: Any) -> None:
        pass


class Lenient(pickle._Unpickler):
    """The most lenient one that people use: joblib and dill build on it."""

    asked: list[tuple[str, str]]

    def find_class(self, module: str, name: str) -> Any:
        self.asked.append((module, name))
        return Anything

    def persistent_load(self, _: object) -> Any:
        return Anything()


@given(FILES, st.sampled_from(["ASCII", "latin-1", "bytes"]))
@example(b"cos\nsystem\n.", "ASCII")
@example(b"ios\nsystem\n.", "ASCII")
@example(b"F1_0\n0cos\nsystem\n.", "ASCII")
@example(b"p99999999999\n.", "ASCII")
@example(b"Np99999999999\n0g99999999999\n0cos\nsystem\n.", "ASCII")
@example(b"cos\n\n.", "ASCII")
@example(b"cos\nsystem", "ASCII")
@example(b"cos", "ASCII")
@example(b"\x80\4\x95\2\0\0\0\0\0\0\0N0\x8c\2os\x8c\6system\x93.", "ASCII")
def test_no_name_that_an_unpickler_gets_to_is_missed(data: bytes, encoding: str) -> None:
    reader = Lenient(io.BytesIO(data), encoding=encoding)
    reader.asked = []
    with suppress(Exception):
        reader.load()
    found = scan(io.BytesIO(data))
    missed = {*reader.asked} - {*found.asked}
    # Where a file ends in the middle of a line, pickle in Python alone asks for nothing, by name.
    assert not missed or found.unclear or (found.broken and not any(name for _, name in missed))


@given(FILES)
def test_a_model_is_planned_or_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        path.write_bytes(data)
        try:
            with open_model(path, ModelLimits()) as model:
                plan = named_tensors(read_model(model.file, model.members).state, TensorSpec)
        except CheckpointError:
            return
        path.chmod(0o600)
        loaded = load_tensors(path)
        told = {k: TensorSpec(dtype_name(t.dtype), tuple(t.shape)) for k, t in loaded.items()}
        assert told == plan, "what is planned is what is loaded"
