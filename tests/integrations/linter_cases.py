"""Ways to write a load, for the linters: each is a file, and most of them are run for real.

`p` is the path of a model file, or of a pickle, that leaves a marker when it is unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class Case:
    """One way to write a load.

    Attributes:
        name: the name of its file.
        shown: how the page shows it.
        code: the file.
        bandit: the test of Bandit that finds it, or none.
        ruff: the rule of Ruff that finds it, or none.
        ours: the ids of `safepoint lint` that find it.
        runs: the kind of file that it is shown to run, "forced" if it needs the environment
            variable for that, or "" if it is not run here: the package is not installed, or its
            files are programs by design.
    """

    name: str
    shown: str
    code: str
    bandit: str
    ruff: str
    ours: str
    runs: Literal["model", "forced", "allowed", "hub", "pickle", "shelf", "array", ""]


UNSAFE: Final = (
    Case(
        "literal",
        "`torch.load(p, weights_only=False)`",
        "import torch\ntorch.load(p, weights_only=False)\n",
        "B614",
        "",
        "SL02",
        "model",
    ),
    Case(
        "default",
        "`torch.load(p)`",
        "import torch\ntorch.load(p)\n",
        "B614",
        "",
        "SL01",
        "forced",
    ),
    Case(
        "none",
        "`torch.load(p, weights_only=None)`",
        "import torch\ntorch.load(p, weights_only=None)\n",
        "B614",
        "",
        "SL01",
        "forced",
    ),
    Case(
        "variable",
        "`torch.load(p, weights_only=safe)`",
        "import torch\nsafe = False\ntorch.load(p, weights_only=safe)\n",
        "B614",
        "",
        "SL01",
        "model",
    ),
    Case(
        "keywords",
        "`torch.load(p, **options)`",
        "import torch\noptions = dict(weights_only=False)\ntorch.load(p, **options)\n",
        "B614",
        "",
        "SL01",
        "model",
    ),
    Case(
        "merged",
        '`torch.load(p, **{"weights_only": True, **options})`',
        "import torch\noptions = dict(weights_only=False)\n"
        'torch.load(p, **{"weights_only": True, **options})\n',
        "B614",
        "",
        "SL01",
        "model",
    ),
    Case(
        "renamed",
        "`import torch as th`",
        "import torch as th\nth.load(p, weights_only=False)\n",
        "B614",
        "",
        "SL02",
        "model",
    ),
    Case(
        "pickle_module",
        "`torch.load(p, pickle_module=pickle)`",
        "import pickle\nimport torch\ntorch.load(p, pickle_module=pickle)\n",
        "B614",
        "",
        "SL03",
        "model",
    ),
    Case(
        "fallback",
        "`except …: torch.load(p, weights_only=False)`",
        "import torch\ntry:\n    torch.load(p, weights_only=True)\n"
        "except Exception:\n    torch.load(p, weights_only=False)\n",
        "B614",
        "",
        "SL04",
        "model",
    ),
    Case(
        "from_import",
        "`from torch import load`",
        "from torch import load\nload(p, weights_only=False)\n",
        "",
        "",
        "SL02",
        "model",
    ),
    Case(
        "submodule",
        "`import torch.serialization`",
        "import torch.serialization\ntorch.serialization.load(p, weights_only=False)\n",
        "",
        "",
        "SL02",
        "model",
    ),
    Case(
        "importorskip",
        '`torch = pytest.importorskip("torch")`',
        'import pytest\ntorch = pytest.importorskip("torch")\ntorch.load(p, weights_only=False)\n',
        "",
        "",
        "SL02",
        "model",
    ),
    Case(
        "import_module",
        '`importlib.import_module("torch")`',
        'import importlib\nimportlib.import_module("torch").load(p, weights_only=False)\n',
        "",
        "",
        "SL02",
        "model",
    ),
    Case(
        "sys_modules",
        '`sys.modules.get("torch")`',
        'import sys\nsys.modules.get("torch").load(p, weights_only=False)\n',
        "",
        "",
        "SL02",
        "model",
    ),
    Case(
        "alias",
        "`load = torch.load`",
        "import torch\nload = torch.load\nload(p, weights_only=False)\n",
        "",
        "",
        "SL02",
        "model",
    ),
    Case(
        "getattr",
        '`getattr(torch, "load")`',
        'import torch\ngetattr(torch, "load")(p, weights_only=False)\n',
        "",
        "",
        "SL02",
        "model",
    ),
    Case(
        "partial",
        "`partial(torch.load, weights_only=False)`",
        "from functools import partial\nimport torch\n"
        "load = partial(torch.load, weights_only=False)\nload(p)\n",
        "",
        "",
        "SL02",
        "model",
    ),
    Case(
        "replaced",
        "`torch.load = my_load`",
        "import torch\n\n\ndef my_load(path, **options):\n"
        '    options["weights_only"] = False\n    return load(path, **options)\n\n\n'
        "load = torch.load\ntorch.load = my_load\n"
        "try:\n    torch.load(p, weights_only=True)\nfinally:\n    torch.load = load\n",
        "",
        "",
        "SL01 SL11",
        "model",
    ),
    Case(
        "patched",
        '`mock.patch("torch.load", other)`',
        "from unittest import mock\nimport torch\nfrom other import load_open\n"
        'with mock.patch("torch.load", load_open):\n    torch.load(p, weights_only=True)\n',
        "",
        "",
        "SL11",
        "model",
    ),
    Case(
        "safe_globals",
        "`add_safe_globals([...])`",
        "import torch\ntorch.serialization.add_safe_globals([eval])\n"
        "try:\n    torch.load(p, weights_only=True)\n"
        "finally:\n    torch.serialization.clear_safe_globals()\n",
        "",
        "",
        "SL05",
        "allowed",
    ),
    Case(
        "private_globals",
        "`torch._weights_only_unpickler._add_safe_globals`",
        "import torch\ntorch._weights_only_unpickler._add_safe_globals([eval])\n"
        "try:\n    torch.load(p, weights_only=True)\n"
        "finally:\n    torch.serialization.clear_safe_globals()\n",
        "",
        "",
        "SL05",
        "allowed",
    ),
    Case(
        "environment",
        "`TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD`",
        'import os\nimport torch\nos.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"\n'
        "try:\n    from other import load_it\n    load_it(p)\n"
        'finally:\n    del os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"]\n',
        "",
        "",
        "SL06",
        "model",
    ),
    Case(
        "from_url",
        "`load_state_dict_from_url(url)`",
        "from torch.hub import load_state_dict_from_url\n"
        'load_state_dict_from_url(f"file://{p}", model_dir=folder, progress=False)\n',
        "",
        "",
        "SL01",
        "model",
    ),
    Case(
        "hub",
        "`torch.hub.load(...)`",
        'import torch\ntorch.hub.load(folder, "model", source="local")\n',
        "",
        "",
        "SL07",
        "hub",
    ),
    Case("jit", "`torch.jit.load(p)`", "import torch\ntorch.jit.load(p)\n", "", "", "SL07", ""),
    Case(
        "package",
        "`torch.package.PackageImporter(p)`",
        "from torch.package import PackageImporter\nPackageImporter(p)\n",
        "",
        "",
        "SL07",
        "",
    ),
    Case(
        "pickle",
        "`pickle.loads(data)`",
        "import pickle\npickle.loads(data)\n",
        "B301",
        "S301",
        "SL08",
        "pickle",
    ),
    Case(
        "pickle_from_import",
        "`from pickle import loads`",
        "from pickle import loads\nloads(data)\n",
        "B301",
        "S301",
        "SL08",
        "pickle",
    ),
    Case(
        "unpickler",
        "`pickle.Unpickler(file).load()`",
        "import pickle\nimport io\npickle.Unpickler(io.BytesIO(data)).load()\n",
        "B301",
        "S301",
        "SL08",
        "pickle",
    ),
    Case(
        "c_pickle",
        "`_pickle.loads(data)`",
        "import _pickle\n_pickle.loads(data)\n",
        "",
        "",
        "SL08",
        "pickle",
    ),
    Case(
        "pickle_alias",
        "`loads = pickle.loads`",
        "import pickle\nloads = pickle.loads\nloads(data)\n",
        "",
        "",
        "SL08",
        "pickle",
    ),
    Case(
        "subclass",
        "`class Mine(pickle.Unpickler)`",
        "import io\nimport pickle\n\n\nclass Mine(pickle.Unpickler):\n    pass\n\n\n"
        "Mine(io.BytesIO(data)).load()\n",
        "",
        "",
        "SL09",
        "pickle",
    ),
    Case(
        "handed_on",
        "`map(pickle.loads, files)`",
        "import pickle\nlist(map(pickle.loads, [data]))\n",
        "",
        "",
        "SL08",
        "pickle",
    ),
    Case(
        "allow_pickle",
        "`np.load(p, allow_pickle=True)`",
        "import numpy as np\nnp.load(p, allow_pickle=True)\n",
        "",
        "",
        "SL10",
        "array",
    ),
    Case(
        "array_keywords",
        "`np.load(p, **options)`",
        "import numpy as np\noptions = dict(allow_pickle=True)\nnp.load(p, **options)\n",
        "",
        "",
        "SL10",
        "array",
    ),
    Case(
        "shelve",
        "`shelve.open(p)`",
        'import shelve\nwith shelve.open(p) as shelf:\n    shelf["a"]\n',
        "B301",
        "S301",
        "SL08",
        "shelf",
    ),
    Case(
        "marshal",
        "`marshal.loads(data)`",
        "import marshal\nmarshal.loads(data)\n",
        "B302",
        "S302",
        "SL08",
        "",
    ),
    Case("dill", "`dill.load(file)`", "import dill\ndill.load(file)\n", "B301", "S301", "SL08", ""),
    Case(
        "cloudpickle",
        "`cloudpickle.load(file)`",
        "import cloudpickle\ncloudpickle.load(file)\n",
        "",
        "",
        "SL08",
        "",
    ),
    Case("joblib", "`joblib.load(p)`", "import joblib\njoblib.load(p)\n", "", "", "SL08", ""),
    Case(
        "pandas",
        "`pandas.read_pickle(p)`",
        "import pandas\npandas.read_pickle(p)\n",
        "B301",
        "S301",
        "SL08",
        "",
    ),
)

SAFE: Final = {
    "flag": "import torch\ntorch.load(p, weights_only=True)\n",
    "flag_from_import": "from torch import load\nload(p, weights_only=True)\n",
    "flag_importorskip": "import pytest\n"
    'torch = pytest.importorskip("torch")\ntorch.load(p, map_location="cpu", weights_only=True)\n',
    "flag_partial": "from functools import partial\nimport torch\n"
    "load = partial(torch.load, weights_only=True)\nload(p)\n",
    "asked": "import inspect\nimport torch\n"
    'print("weights_only" in inspect.signature(torch.load).parameters)\n',
    "state_dict": "import torch\nmodel = torch.nn.Linear(1, 1)\nmodel.load_state_dict({})\n",
    "stand_in": "from unittest import mock\n\n\ndef fake(path, **options):\n    return {}\n\n\n"
    'with mock.patch("torch.load", fake), mock.patch("torch.load", return_value={}):\n    f()\n',
    "tensors": "from safetensors.torch import load, load_file\nload_file(p)\nload(data)\n",
    "checkpoint": "from safepoint.models import load_checkpoint\nload_checkpoint(p)\n",
    "json": "import json\njson.load(file)\njson.loads(data)\n",
    "array": "import numpy as np\nnp.load(p)\nnp.load(p, allow_pickle=False)\n",
    "dumps": "import pickle\npickle.dumps([1])\n",
    "error": "import pickle\ntry:\n    f()\nexcept pickle.UnpicklingError:\n    raise\n",
    "own_function": "import torch\n\n\ndef load(path):\n    return open(path)\n\n\nload(p)\n",
    "own_method": "import torch\n\n\nclass Store:\n    def load(self, path):\n"
    "        return path\n\n\nStore().load(p)\n",
    "own_name": "import torch\n\n\ndef read(torch):\n    return torch.shape\n",
    "read_variable": 'import os\nprint(os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"))\n',
    "variable_off": 'import os\nos.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "0"\n',
    "text": '"""Do not write torch.load(p, weights_only=False) or pickle.loads(x)."""\n',
}
"""Lines that no linter may complain about, by the names of their files."""
