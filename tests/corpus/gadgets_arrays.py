"""What NumPy and PyTorch bring along: names that look at home in a model file."""

from __future__ import annotations

from typing import Any, Final

from tests.corpus.assembler import Build, Call, Steps, call, name
from tests.corpus.gadget import Gadget, Place
from tests.corpus.sources import (
    FICKLING_ML,
    FICKLING_NOTE,
    MODELAUDIT,
    NUMPY_DOCS,
    PICKLESCAN,
    PICKLESCAN_TESTS,
    advisory,
)

_MKDIR: Final = name("os:mkdir")
_CALL: Final = call("os:mkdir", Place.PATH)
_F2PY: Final = "numpy.f2py.crackfortran"
_TESTING: Final = "numpy.testing._private.utils"
_TEXT: Final = Place.EXPRESSION


def _numpy(title: str, source: str, what: Any, protocol: int = 4) -> Gadget:
    return Gadget(title, "numpy", source, what, protocol)


def _torch(title: str, source: str, what: Any, protocol: int = 4) -> Gadget:
    return Gadget(title, "torch", source, what, protocol)


def _object_array(element: Any) -> Build:
    """Describe an array of objects, as NumPy pickles one."""
    empty = call("numpy._core.multiarray:_reconstruct", name("numpy:ndarray"), (0,), b"b")
    kind = Build(call("numpy:dtype", "O8", False, True), (3, "|", None, None, None, -1, -1, 63))
    return Build(empty, (1, (1,), kind, False, [element]))


NUMPY: Final[tuple[Gadget, ...]] = (
    _numpy("runstring", PICKLESCAN, call(f"{_TESTING}:runstring", _TEXT, {})),
    _numpy("runstring, protocol 2", PICKLESCAN_TESTS, call(f"{_TESTING}:runstring", _TEXT, {}), 2),
    _numpy("measure", PICKLESCAN, call(f"{_TESTING}:measure", _TEXT)),
    _numpy(
        "assert_raises",
        PICKLESCAN,
        call(f"{_TESTING}:assert_raises", name("builtins:OSError"), _MKDIR, Place.PATH),
    ),
    _numpy("getlincoef", advisory("GHSA-r8g5-cgf2-4m4m"), call(f"{_F2PY}:getlincoef", _TEXT, {})),
    _numpy("_eval_length", PICKLESCAN, call(f"{_F2PY}:_eval_length", _TEXT, {})),
    _numpy("param_eval", PICKLESCAN, call(f"{_F2PY}:param_eval", _TEXT, {}, {})),
    _numpy("myeval", PICKLESCAN, call(f"{_F2PY}:myeval", _TEXT, {}, {}), 3),
    _numpy("savetxt", MODELAUDIT, call("numpy:savetxt", Place.PATH, [1, 2])),
    _numpy("an array of objects", NUMPY_DOCS, _object_array(_CALL)),
    _numpy("an array of objects, protocol 2", NUMPY_DOCS, _object_array(_CALL), 2),
    _numpy(
        "an array of objects with a built-in",
        NUMPY_DOCS,
        _object_array(call("builtins:eval", _TEXT)),
    ),
)

TORCH: Final[tuple[Gadget, ...]] = (
    _torch(
        "guards expression",
        advisory("GHSA-f4x7-rfwp-v3xw"),
        call(
            "torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_guards_expression",
            {},
            _TEXT,
            [],
        ),
    ),
    _torch(
        "collect_env.run",
        advisory("GHSA-f745-w6jp-hpxx"),
        call("torch.utils.collect_env:run", Place.COMMAND),
    ),
    _torch(
        "collect_env.run_and_read_all",
        advisory("GHSA-jhph-76pp-mggw"),
        call(
            "torch.utils.collect_env:run_and_read_all",
            name("torch.utils.collect_env:run"),
            Place.COMMAND,
        ),
    ),
    _torch(
        "a decoder of datapipes",
        advisory("GHSA-h3qp-7fh3-f8h4"),
        call("torch.utils.data.datapipes.utils.decoder:basichandlers", "pickle", Place.PICKLE),
    ),
    _torch(
        "execWrapper",
        advisory("GHSA-vr7h-p6mm-wpmh"),
        call("torch.jit.unsupported_tensor_ops:execWrapper", _TEXT, {}, {}),
    ),
    _torch(
        "load_config",
        advisory("GHSA-vv6j-3g6g-2pvj"),
        call("torch.utils._config_module:ConfigModule.load_config", {}, Place.PICKLE),
    ),
    _torch("_load_from_bytes", FICKLING_ML, call("torch.storage:_load_from_bytes", Place.PICKLE)),
    _torch(
        "_load_from_bytes, protocol 2",
        FICKLING_ML,
        call("torch.storage:_load_from_bytes", Place.PICKLE),
        2,
    ),
    _torch(
        "torch.load through a partial",
        PICKLESCAN_TESTS,
        Call(
            Build(
                call("functools:partial", name("torch.serialization:load")),
                (
                    name("torch.serialization:load"),
                    (call("_io:BytesIO", Place.PICKLE),),
                    {"weights_only": False},
                    None,
                ),
            )
        ),
    ),
    _torch(
        "_rebuild_from_type_v2",
        FICKLING_NOTE,
        call(
            "torch._tensor:_rebuild_from_type_v2",
            _MKDIR,
            name("builtins:object"),
            (Place.PATH,),
            {},
        ),
        2,
    ),
    _torch(
        "a state dict with one odd value",
        PICKLESCAN,
        Steps((call("collections:OrderedDict"), call("posix:system", Place.COMMAND))),
        2,
    ),
)
