"""The functions that build objects from a file, by their full names."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Loader(StrEnum):
    """What a function does, as far as it matters here."""

    TORCH = "reads weights_only"
    TORCH_OPEN = "reads weights_only, and is not restricted by default"
    TORCH_CODE = "has no restricted form"
    ALLOW = "widens the allow-list of weights_only"
    CHECKPOINT = "reads safe"
    NUMPY = "reads allow_pickle"
    PICKLE = "unpickles"
    UNPICKLER = "is a class that unpickles"


TAKES_FLAG: Final = frozenset({Loader.TORCH, Loader.TORCH_OPEN})

_TORCH: Final = {
    "load": Loader.TORCH,
    "serialization.load": Loader.TORCH,
    "hub.load_state_dict_from_url": Loader.TORCH_OPEN,
    "utils.model_zoo.load_url": Loader.TORCH_OPEN,
    "hub.load": Loader.TORCH_CODE,
    "hub.list": Loader.TORCH_CODE,
    "hub.help": Loader.TORCH_CODE,
    "jit.load": Loader.TORCH_CODE,
    "export.load": Loader.TORCH_CODE,
    "package.PackageImporter": Loader.TORCH_CODE,
    "storage._load_from_bytes": Loader.TORCH_CODE,
    "serialization.add_safe_globals": Loader.ALLOW,
    "serialization.safe_globals": Loader.ALLOW,
    "_weights_only_unpickler._add_safe_globals": Loader.ALLOW,
    "_weights_only_unpickler._safe_globals": Loader.ALLOW,
    "serialization._weights_only_unpickler._add_safe_globals": Loader.ALLOW,
    "serialization._weights_only_unpickler._safe_globals": Loader.ALLOW,
}
_EXACT: Final = {
    "safepoint.load_checkpoint": Loader.CHECKPOINT,
    "safepoint.models.load_checkpoint": Loader.CHECKPOINT,
    "safepoint.models.loading.load_checkpoint": Loader.CHECKPOINT,
    "numpy.load": Loader.NUMPY,
    "cupy.load": Loader.NUMPY,
    "jax.numpy.load": Loader.NUMPY,
    "numpy.lib.npyio.load": Loader.NUMPY,
    "numpy.lib.npyio.NpzFile": Loader.NUMPY,
    "numpy.lib.format.read_array": Loader.NUMPY,
    "pandas.read_pickle": Loader.PICKLE,
    "pandas.io.pickle.read_pickle": Loader.PICKLE,
    "marshal.load": Loader.PICKLE,
    "marshal.loads": Loader.PICKLE,
    "shelve.open": Loader.PICKLE,
    "shelve.Shelf": Loader.PICKLE,
    "shelve.BsdDbShelf": Loader.PICKLE,
    "shelve.DbfilenameShelf": Loader.PICKLE,
    "joblib.numpy_pickle.load": Loader.PICKLE,
    "jsonpickle.unpickler.decode": Loader.PICKLE,
    "jsonpickle.unpickler.Unpickler": Loader.UNPICKLER,
    "multiprocessing.reduction.ForkingPickler.loads": Loader.PICKLE,
}
_LOADS: Final = {"load": Loader.PICKLE, "loads": Loader.PICKLE, "Unpickler": Loader.UNPICKLER}
_CPYTHON: Final = _LOADS | {
    "_load": Loader.PICKLE,
    "_loads": Loader.PICKLE,
    "_Unpickler": Loader.UNPICKLER,
}
_SESSION: Final = dict.fromkeys(("load_session", "load_module"), Loader.PICKLE)
# Projects hand these modules on (`from .compat import pickle`), so where they come from is not
# looked at.
_ANYWHERE: Final[dict[str, dict[str, Loader]]] = {
    "pickle": _CPYTHON,
    "_pickle": _CPYTHON,
    "cPickle": _CPYTHON,
    "pickle5": _CPYTHON,
    "dill": {**_LOADS, **_SESSION, "load_module_asdict": Loader.PICKLE},
    "cloudpickle": _LOADS,
    "joblib": {"load": Loader.PICKLE},
    "jsonpickle": {"decode": Loader.PICKLE, "loads": Loader.PICKLE},
}
# safetensors.torch.load reads safetensors.
_OTHER_TORCH: Final = frozenset({"safetensors"})


def loader_of(name: str) -> Loader | None:
    """Say what a function does, by its full name, or None if it is none of these."""
    found = _EXACT.get(name)
    if found is not None:
        return found
    parts = name.split(".")
    if "torch" in parts and parts[0] not in _OTHER_TORCH:
        found = _TORCH.get(".".join(parts[parts.index("torch") + 1 :]))
    if found is None and len(parts) > 1 and parts[-2] in _ANYWHERE:
        found = _ANYWHERE[parts[-2]].get(parts[-1])
    return found
