"""Files of any bytes: looked at, read and loaded as data, or refused with an error of ours."""

from __future__ import annotations

import io
import pickle
import tempfile
import zipfile
from pathlib import Path

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


@given(FILES)
def test_a_model_is_planned_or_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        path.write_bytes(data)
        try:
            with open_model(path, ModelLimits()) as model:
                plan = named_tensors(read_model(model.file, model.members)[0], TensorSpec)
        except CheckpointError:
            return
        path.chmod(0o600)
        loaded = load_tensors(path)
        told = {k: TensorSpec(dtype_name(t.dtype), tuple(t.shape)) for k, t in loaded.items()}
        assert told == plan, "what is planned is what is loaded"
