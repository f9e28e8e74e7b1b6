"""safepoint.lint: which loads it finds, under which names, and what it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from safepoint.lint import IDS, check_source
from safepoint.rules import RULES
from tests.integrations.linter_cases import SAFE, UNSAFE, Case


def ids(code: str) -> list[str]:
    return [finding.id for finding in check_source(code, "train.py")]


def whats(code: str) -> list[str]:
    return [finding.what for finding in check_source(code, "train.py")]


def test_every_id_has_a_rule_and_a_fix() -> None:
    assert list(IDS) == sorted(IDS)
    for each in IDS.values():
        assert each.rule in RULES
        assert each.rule in ("SP03", "SP23", "SP24", "SP26")
        assert re.fullmatch(r"[A-Z].*(\.|REASON)", each.fix)
        assert "\n" not in each.fix


@pytest.mark.parametrize("case", UNSAFE, ids=lambda case: case.name)
def test_each_way_to_write_an_unsafe_load_is_found(case: Case) -> None:
    assert set(ids(case.code)) == set(case.ours.split())


@pytest.mark.parametrize("name", SAFE)
def test_safe_lines_are_left_alone(name: str) -> None:
    assert ids(SAFE[name]) == []


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("", ["SL01"]),
        (", weights_only=True", []),
        (", 'cpu', weights_only=True", []),
        (", weights_only=False", ["SL02"]),
        (", weights_only=None", ["SL01"]),
        (", weights_only=safe", ["SL01"]),
        (", weights_only=not safe", ["SL01"]),
        (", weights_only='True'", ["SL01"]),
        (", weights_only=1", ["SL01"]),
        (", weights_only=0", ["SL01"]),
        (", **options", ["SL01"]),
        (", weights_only=True, **options", []),
        (", **{'weights_only': True}", []),
        (", **{'weights_only': False}", ["SL02"]),
        (", **{'weights_only': True, **options}", ["SL01"]),
        (", **{'weights_only': True, name: False}", ["SL01"]),
        (", **{**options, 'weights_only': True}", []),
        (", **{**{'weights_only': False}, 'weights_only': True}", []),
        (", **{'weights_only': True, **{'weights_only': False}}", ["SL02"]),
        (", **{'weights_only': True, **{'map_location': 'cpu'}}", []),
        (", **{name: True}", ["SL01"]),
        (", pickle_module=pickle", ["SL03"]),
        (", pickle_module=None", ["SL01"]),
        (", None, pickle", ["SL03"]),
        (", None, None", ["SL01"]),
        (", pickle_module=pickle, weights_only=True", []),
        (", pickle_module=pickle, weights_only=False", ["SL02"]),
        (", pickle_module=pickle, weights_only=None", ["SL03"]),
        (", *rest", ["SL01"]),
        (", *rest, pickle", ["SL01"]),
        (", *rest, weights_only=True", []),
    ],
)
def test_what_the_arguments_of_torch_load_say(flags: str, found: list[str]) -> None:
    assert ids(f"import torch\ntorch.load(path{flags})\n") == found


@pytest.mark.parametrize(
    "code",
    [
        "import torch as th\nth.load(p)",
        "import torch.serialization\ntorch.load(p)",
        "import torch.serialization as ts\nts.load(p)",
        "from torch import serialization\nserialization.load(p)",
        "from torch.serialization import load as read\nread(p)",
        "from torch import *\nload(p)",
        "from .compat import torch\ntorch.load(p)",
        "from common import *\ntorch.load(p)",
        "import importlib\nth = importlib.import_module('torch')\nth.load(p)",
        "import importlib\nth = importlib.import_module(name='torch')\nth.load(p)",
        "import importlib\nimportlib.import_module('.serialization', 'torch').load(p)",
        "from importlib import import_module as im\nim('to' + 'rch').load(p)",
        "NAME = 'torch'\n__import__(NAME).load(p)",
        "__import__('torch.serialization').load(p)",
        "__import__('torch.serialization', fromlist=['load']).load(p)",
        "import sys\nsys.modules['torch'].load(p)",
        "from sys import modules\nmodules['torch'].load(p)",
        "import os\nos.sys.modules['torch'].load(p)",
        "from common import *\nsys.modules['torch'].load(p)",
        "sys.modules['torch'].load(p)",
        "import sys\nsys.modules.get('torch').load(p)",
        "import sys\nsys.modules.get('torch', None).load(p)",
        "import sys, torch\nsys.modules.get(name, torch).load(p)",
        "import sys\nsys.modules.pop('torch').load(p)",
        "import sys\nsys.modules.setdefault('torch', x).load(p)",
        "import sys\nsys.modules.__getitem__('torch').load(p)",
        "import torch\nvars(torch).get('load')(p)",
        "import pytest\nth = pytest.importorskip('torch', minversion='2.6')\nth.load(p)",
        "from pytest import importorskip\nth = importorskip('torch')\nth.load(p)",
        "import torch\nvars(torch)['load'](p)",
        "import torch\ntorch.__dict__['load'](p)",
        "import torch\ngetattr(torch, 'lo' + 'ad')(p)",
        "import torch\ngetattr(torch, 'load', None)(p)",
        "import torch\nNAME = 'load'\ngetattr(torch, NAME)(p)",
        "import torch\ntorch.load.__call__(p)",
        "import torch\nload = getattr(torch, 'load')\nload(p)",
        "import torch\na = b = torch.load\nb(p)",
        "import torch\na, b = torch.save, torch.load\nb(p)",
        "import torch\n(load := torch.load)(p)",
        "import torch\nload: object = torch.load\nload(p)",
        "import torch\nread = torch.load if True else open\nread(p)",
        "import torch\nread = None or torch.load\nread(p)",
        "try:\n    import torch\nexcept ImportError:\n    torch = None\ntorch.load(p)",
        "torch = lazy('torch')\ntorch.load(p)",
        "def test_it(torch):\n    torch.load(p)",
        "class A:\n    def f(self):\n        self.torch.load(p)",
        "def f():\n    import torch\n    def g():\n        return torch.load(p)",
        "class A:\n    import torch\n    state = torch.load(p)",
        "f = lambda path: __import__('torch').load(path)",
        "import torch\nstates = [torch.load(each) for each in p]",
        "import torch\nasync def f():\n    async with a as b:\n        return torch.load(p)",
        "import torch\nmatch p:\n    case [x, *_]:\n        torch.load(x)",
        "import torch\ndef f():\n    global load\n    load = torch.load\nload(p)",
        (
            "import torch\ndef f():\n    load = None\n    def g():\n        nonlocal load\n"
            "        load = torch.load\n    load(p)"
        ),
        "import torch\nx = y\ny = x\nx = torch.load\ny(p)",
        "import torch\ndef f(p, load=torch.load):\n    return load(p)",
        "import torch\ndef f(p, *, load=torch.load):\n    return load(p)",
        "import torch\n@wrap(torch.load(p))\ndef f(): pass",
        "import torch\nx = 1 + torch.load(p) + 2",
        "import torch\nif a:\n    pass\nelif torch.load(p):\n    pass\nelse:\n    pass",
        "import torch\nwith open(torch.load(p)) as f:\n    pass",
        "import torch\nif a:\n    pass\nelse:\n    torch.load(p)",
        "import torch\nprint(x)\nx = y\ny = x\nx = torch.load\ny(p)",
        "import torch\n[load := torch.load for _ in p]\nload(p)",
        "from torch import load\ndef f(load):\n    def g():\n        global load\n        load(p)",
        "__import__('torch.nn').load(p)",
        "import torch\ngetattr(x, 'y', torch.load)(p)",
    ],
)
def test_torch_load_is_known_by_any_name(code: str) -> None:
    found = check_source(code)
    assert {finding.id for finding in found} == {"SL01"}
    assert any(
        "torch.load without" in finding.what or "serialization.load without" in finding.what
        for finding in found
    )


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ndef load(p): return p\nload(p)",
        "import torch\ndef f(load):\n    return load(p)",
        "from torch import load\ndef f(load):\n    return load(p)",
        "from torch import load\ndef f():\n    for load in p:\n        load(p)",
        "from torch import load\ndef f():\n    with open(p) as load:\n        load(p)",
        "from torch import load\n[load(p) for load in p]",
        "from torch import load\ndef f():\n  try: g()\n  except E as load: load(p)",
        "from torch import load\nclass A:\n    def load(self): pass\n    x = load(1)",
        "class A:\n    from torch import load\ndef f():\n    load(p)",
        "class A:\n    from torch import load\n    def f(self):\n        load(p)",
        "from torch import load\ndef f():\n    match p:\n        case [load]:\n            load(p)",
        "class torch:\n    pass\ntorch.load(p)",
        "import torch\nmodel.load(p)\nself.load(p)\nself.model.load(p)",
        "from safetensors import torch\ntorch.load(data)",
        "import safetensors.torch\nsafetensors.torch.load(data)",
        "import torch_utils\ntorch_utils.load(p)",
        "import torch\ntorch.load.__doc__\nprint(torch.load.__name__)",
        "import torch\nassert torch.load is f",
        "import torch\ntorch.load",
        "import inspect, torch\ninspect.signature(torch.load)",
        "import torch\ncallable(torch.load)\nhasattr(torch, 'load')",
        "import torch\ngetattr(torch.load, '__code__', None)",
        "import torch\nfrom unittest import mock\nmock.patch('x.load', wraps=torch.load)",
        "import torch\ndef f(x: torch.load) -> torch.load:\n    y: torch.load = x",
        "import pickle\ndef f(x: pickle.Unpickler): return isinstance(x, pickle.Unpickler)",
        "import pickle\npickle.loads(pickle.dumps(x))",
        "from pickle import dumps, loads\nloads(dumps(x), encoding='x')",
        "from . import marshal\nmarshal.loads(x)",
        "import yaml, json, tomllib\nyaml.safe_load(f)\njson.load(f)\ntomllib.load(f)",
        "import numpy as np\nnp.load(p, None, False)\nnp.load(p, allow_pickle=None)",
        "import numpy as np\nload = np.load\nmap(np.load, p)",
        "from safepoint.models import load_checkpoint\nload_checkpoint(p, safe=True)",
        "from mine import load_checkpoint\nload_checkpoint(p, safe=False)",
        "import torch\nload = torch.load\nload(p, weights_only=True)",
        "import torch\ndef f():\n    load = torch.load\n    return load.__doc__",
    ],
)
def test_what_only_looks_like_it_is_left_alone(code: str) -> None:
    assert ids(code) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import torch\nmap(torch.load, p)", ["SL01"]),
        ("import torch\nmap(getattr(torch, 'load'), p)", ["SL01"]),
        ("import torch\npool.submit(torch.load, p)", ["SL01"]),
        ("import torch\nreaders = {'pt': torch.load}", ["SL01"]),
        ("import torch\ndef f():\n    return torch.load", ["SL01"]),
        ("import torch\nself.load = torch.load", ["SL01"]),
        ("import torch\nclass A:\n    load = torch.load", ["SL01"]),
        ("import torch\nload = torch.load", ["SL01"]),
        ("import torch\nload = torch.load\nload2 = load", ["SL01"]),
        ("import torch\ndef f(load=torch.load): pass", ["SL01"]),
        ("import torch\nmap(torch.jit.load, p)", ["SL07"]),
        ("import torch\nf = [torch.serialization.add_safe_globals]", ["SL05"]),
        ("import pickle\ncodec = (pickle.dumps, pickle.loads)", ["SL08"]),
        ("from functools import partial\nimport pickle\npartial(pickle.loads, x)()", ["SL08"]),
        ("from functools import partial\nimport torch\npartial(torch.load)(p)", ["SL01"]),
        ("from functools import partial\nimport torch\nload = partial(torch.load)", ["SL01"]),
        (
            (
                "from functools import partial\nimport torch\n"
                "load = partial(torch.load, weights_only=True)\nload(p, weights_only=False)"
            ),
            ["SL02"],
        ),
        (
            (
                "from functools import partial\nimport torch\n"
                "load = partial(torch.load, weights_only=True)\nload(p, **options)"
            ),
            ["SL01"],
        ),
        (
            (
                "from functools import partial\nimport torch\n"
                "a = partial(torch.load, weights_only=True)\nb = partial(a, weights_only=False)"
            ),
            ["SL02"],
        ),
    ],
)
def test_a_loader_that_is_handed_on_is_told(code: str, found: list[str]) -> None:
    assert ids(code) == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from safepoint.models import load_checkpoint as lc\nlc(p, safe=False)", ["SL02"]),
        ("from safepoint.models import load_checkpoint as lc\nlc(p, safe=False, keys=k)", []),
        (
            "from safepoint.models import load_checkpoint as lc\nlc(p, safe=False, keys=None)",
            ["SL02"],
        ),
        ("import safepoint.models as w\nw.load_checkpoint(p, safe=flag)", ["SL01"]),
        ("import safepoint.models as w\nw.load_checkpoint(p, **options)", ["SL01"]),
        ("import safepoint.models as w\nw.load_checkpoint(p, safe=True, **options)", []),
        ("import safepoint.models as w\nw.load_checkpoint(p, keys=k, **options)", []),
        ("import safepoint.models as w\nw.load_checkpoint(*places)", []),
        ("from torch.hub import load_state_dict_from_url as l\nl(u, weights_only=True)", []),
        ("from torch.hub import load_state_dict_from_url as l\nl(u, weights_only=False)", ["SL02"]),
        ("from torch.utils.model_zoo import load_url\nload_url(u)", ["SL01"]),
        ("import torch\ntorch.export.load(p)", ["SL07"]),
        ("import torch\ntorch.hub.list('a/b')\ntorch.hub.help('a/b', 'c')", ["SL07", "SL07"]),
        ("import torch\nwith torch.serialization.safe_globals([A]):\n    pass", ["SL05"]),
        ("import torch\ntorch._weights_only_unpickler._add_safe_globals([A])", ["SL05"]),
        ("import torch._weights_only_unpickler as w\nwith w._safe_globals([A]): pass", ["SL05"]),
        (
            "import torch.serialization as s\ns._weights_only_unpickler._add_safe_globals([A])",
            ["SL05"],
        ),
        ("import torch\ntorch.storage._load_from_bytes(b)", ["SL07"]),
        ("import numpy\nnumpy.load(p, allow_pickle=flag)", ["SL10"]),
        ("import numpy as np\nnp.load(p, None, True)", ["SL10"]),
        ("import numpy as np\nnp.load(p, **options)", ["SL10"]),
        ("import numpy as np\nnp.load(p, allow_pickle=False, **options)", []),
        ("import numpy as np\nnp.load(p, **{'allow_pickle': False, **options})", ["SL10"]),
        ("import numpy as np\nnp.load(*places)", ["SL10"]),
        ("import numpy as np\nnp.load(p, *places)", ["SL10"]),
        ("import numpy as np\nnp.load(*places, allow_pickle=False)", []),
        ("import numpy as np\nnp.load(p, None, False, *places)", []),
        ("from functools import partial\nimport numpy\npartial(numpy.load, **x)(p)", ["SL10"]),
        ("from numpy.lib.npyio import NpzFile\nNpzFile(f, allow_pickle=True)", ["SL10"]),
        ("from numpy.lib.format import read_array\nread_array(f, True)", ["SL10"]),
        ("import jax.numpy as jnp\njnp.load(p, allow_pickle=True)", ["SL10"]),
        ("import cPickle\ncPickle.load(f)", ["SL08"]),
        ("from six.moves import cPickle as pickle\npickle.load(f)", ["SL08"]),
        ("from ray import cloudpickle\ncloudpickle.loads(d)", ["SL08"]),
        ("import torch\ntorch.serialization.pickle.loads(d)", ["SL08"]),
        ("import pickle\npickle._loads(d)\npickle._Unpickler(f)", ["SL08", "SL08"]),
        ("import dill\ndill.load_session('a')", ["SL08"]),
        ("import jsonpickle\njsonpickle.decode(s)", ["SL08"]),
        ("import shelve\nshelve.DbfilenameShelf(p)", ["SL08"]),
        ("from multiprocessing.reduction import ForkingPickler as F\nF.loads(d)", ["SL08"]),
        ("import dill\nclass Mine(dill.Unpickler): pass", ["SL09"]),
        ("from pickle import Unpickler\nclass Mine(Base, Unpickler): pass", ["SL09"]),
        ("import pickle\nMine = type('Mine', (pickle.Unpickler,), {})", ["SL08"]),
        ("import torch\ntorch.load = f", ["SL11"]),
        ("import torch\nsetattr(torch, 'load', f)", ["SL11"]),
        ("import torch.serialization as s\ns.load = f", ["SL11"]),
        ("import torch\ntorch.__dict__['load'] = f", ["SL11"]),
        ("import torch\nvars(torch)['load'] = f", ["SL11"]),
        ("import pickle\npickle.loads(pickle.dumps(x) + y)", ["SL08"]),
        ("import pickle, json\npickle.loads(json.dumps(x))", ["SL08"]),
        ("import pickle, dill\npickle.loads(dill.dumps(x))", ["SL08"]),
    ],
)
def test_the_other_loaders(code: str, found: list[str]) -> None:
    assert ids(code) == found


MOCK = "import torch\nfrom unittest import mock\n"


@pytest.mark.parametrize(
    "code",
    [
        "mock.patch('torch.load', other)",
        "mock.patch('torch.serialization.load', other)",
        "mock.patch('torch.load', new=other)",
        "mock.patch('torch.load', side_effect=other)",
        "mock.patch('torch.load', new_callable=other)",
        "mock.patch('torch.load', wraps=other)",
        "mock.patch('torch.load', **options)",
        "mock.patch('torch.load', *options)",
        "mock.patch(target='torch.load', new=other)",
        "mock.patch('torch.load', make())",
        "mock.patch('torch.load', mock.Mock(side_effect=other))",
        "mock.patch('torch.load', mock.Mock(**options))",
        "fake = mock.Mock(side_effect=other)\nmock.patch('torch.load', fake)",
        "mock.patch('torch.load', eval)",
        "mock.patch('lib.torch.load', other)",
        "mock.patch.object(torch, 'load', other)",
        "mock.patch.object(torch, attribute='load', new=other)",
        "mock.patch.multiple('torch', load=other)",
        "mock.patch.multiple(torch, load=other)",
        "from unittest.mock import patch\npatch('torch.load', other)",
        "from unittest.mock import patch as p\n@p('torch.load', other)\ndef f(): pass",
        "def test_it(mocker): mocker.patch('torch.load', other)",
        "def test_it(monkeypatch): monkeypatch.setattr('torch.load', other)",
        "def test_it(monkeypatch): monkeypatch.setattr(torch, 'load', other)",
        "def test_it(monkeypatch): monkeypatch.setattr(torch, name='load', value=other)",
        "def test_it(monkeypatch, fake): monkeypatch.setattr('torch.load', fake)",
    ],
)
def test_a_patch_with_what_nobody_sees_is_told(code: str) -> None:
    (finding,) = check_source(f"{MOCK}from lib import make, other\n{code}\n")
    assert finding.id == "SL11"
    assert finding.what in (
        "torch.load is patched with what cannot be seen in this file.",
        "torch.serialization.load is patched with what cannot be seen in this file.",
        "lib.torch.load is patched with what cannot be seen in this file.",
    )


@pytest.mark.parametrize(
    "code",
    [
        "mock.patch('torch.load')",
        "mock.patch('torch.load', return_value={'weight': 1})",
        "mock.patch('torch.load', side_effect=OSError('gone'))",
        "mock.patch('torch.load', side_effect=[{}, OSError])",
        "mock.patch('torch.load', autospec=True)",
        "mock.patch('torch.load', wraps=torch.load)",
        "mock.patch('torch.load', None)",
        "mock.patch('torch.load', print)",
        "mock.patch('torch.load', mock.Mock(return_value=state))",
        "mock.patch('torch.load', lambda path, **options: {})",
        "mock.patch.object(torch, 'load')",
        "mock.patch.object(torch, 'save', other)",
        "mock.patch('lib.load', other)",
        "fake = mock.MagicMock()\nmock.patch('torch.load', fake)",
        "def fake(path): return {}\nmock.patch('torch.load', fake)",
        "def fake(path): return {}\nmock.patch('torch.load', new=mock.Mock(side_effect=fake))",
        "class Fake: pass\nmock.patch('torch.load', Fake())",
        "@mock.patch('torch.load')\ndef test_it(load): pass",
        "def test_it(monkeypatch): monkeypatch.setattr('torch.load', lambda path: {})",
        (
            "def test_it(monkeypatch):\n    def fake(path): return {}\n"
            "    monkeypatch.setattr(torch, 'load', fake)"
        ),
        "def test_it(monkeypatch): monkeypatch.setattr(torch, 'save', other)",
        "loop = a\na = loop\nmock.patch('lib.load', loop)",
    ],
)
def test_a_stand_in_that_the_file_shows_is_no_finding(code: str) -> None:
    assert ids(f"{MOCK}from lib import other\n{code}\n") == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("mock.patch('torch.load', partial(torch.load, weights_only=False))", ["SL02", "SL11"]),
        ("mock.patch('torch.load', lambda p, **_: load(p, weights_only=False))", ["SL02"]),
        ("def fake(p, **o): return load(p, **o)\nmock.patch('torch.load', fake)", ["SL01"]),
        ("mock.patch('torch.load', pickle.load)", ["SL08", "SL11"]),
        ("mock.patch.object(torch, 'load', pickle.load)", ["SL08", "SL11"]),
        ("mock.patch('torch.load', side_effect=pickle.load)", ["SL08", "SL11"]),
        ("mock.patch('lib.load', pickle.load)", ["SL08"]),
        ("a = b\nb = a\nmock.patch('torch.load', a)", ["SL11"]),
    ],
)
def test_a_stand_in_that_loads_is_told_where_it_does(code: str, found: list[str]) -> None:
    head = f"{MOCK}import pickle\nfrom functools import partial\nload = torch.load\n"
    assert sorted(set(ids(f"{head}load(p, weights_only=True)\n{code}\n"))) == found


@pytest.mark.parametrize("handler", ["except Exception", "except (TypeError, E)", "except"])
@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("torch.load(p, weights_only=True)", "torch.load(p, weights_only=False)", ["SL04"]),
        ("torch.load(p, weights_only=True)", "torch.load(p)", ["SL04"]),
        ("torch.load(p, weights_only=True)", "torch.load(p, pickle_module=x)", ["SL04"]),
        ("torch.load(p, weights_only=True)", "torch.load(p, weights_only=True)", []),
        ("load_checkpoint(p)", "load_checkpoint(p, safe=False)", ["SL04"]),
        ("f(p)", "torch.load(p, weights_only=False)", ["SL02"]),
        ("torch.load(p, weights_only=True)", "pickle.load(p)", ["SL08"]),
    ],
)
def test_a_fallback_is_a_finding_of_its_own(
    handler: str, first: str, second: str, found: list[str]
) -> None:
    head = "import pickle, torch\nfrom safepoint.models import load_checkpoint\n"
    assert ids(f"{head}try:\n    a = {first}\n{handler}:\n    a = {second}\n") == found
    if handler == "except Exception":
        assert ids(f"{head}try:\n    a = {first}\nexcept* E:\n    a = {second}\n") == found


def test_after_the_handlers_it_is_no_fallback() -> None:
    code = (
        "import torch\ntry:\n    torch.load(p, weights_only=True)\nexcept E:\n    pass\n"
        "else:\n    torch.load(p, weights_only=False)\ntorch.load(p, weights_only=False)\n"
    )
    assert ids(code) == ["SL02", "SL02"]


@pytest.mark.parametrize(
    "code",
    [
        "os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = '1'",
        "os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = value",
        "NAME = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'\nos.environ[NAME] = 'YES'",
        "os.environ.setdefault('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', 'true')",
        "os.putenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', 'y')",
        "monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '1')",
        "monkeypatch.setitem(os.environ, 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '1')",
        "os.environ.update(TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD='1')",
        "os.environ.update({'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD': '1'})",
        "run(env={**os.environ, 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD': '1'})",
    ],
)
def test_the_environment_variable_is_found_where_it_is_set(code: str) -> None:
    assert ids(code) == ["SL06"]


@pytest.mark.parametrize(
    "code",
    [
        "os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = '0'",
        "os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = ''",
        "os.environ['TORCH_FORCE_WEIGHTS_ONLY_LOAD'] = '1'",
        "os.environ.get('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '0')",
        "os.environ.pop('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', None)",
        "del os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD']",
        "monkeypatch.delenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD')",
        "if 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD' in os.environ: raise E",
    ],
)
def test_the_environment_variable_may_be_read_and_removed(code: str) -> None:
    assert ids(code) == []


def test_a_finding_says_where_what_and_what_to_write() -> None:
    code = "import torch\n\nif x:\n    é = torch.load(\n        p,\n    )\n"
    (finding,) = check_source(code, "a b.py")
    assert str(finding) == (
        "'a b.py':4:9: SL01 torch.load without weights_only depends on the version and on an"
        " environment variable. Write weights_only=True as a literal, or use"
        " safepoint.models.load_checkpoint."
    )
    assert (finding.rule, finding.last) == ("SP23", 6)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (
            "torch.load(p, weights_only=None)",
            (
                "torch.load with weights_only=None depends on the version and on an environment"
                " variable."
            ),
        ),
        (
            "torch.load(p, weights_only=x)",
            (
                "torch.load with a weights_only that is not a literal True: nobody sees which load"
                " that is."
            ),
        ),
        ("torch.load(p, **x)", "torch.load with ** arguments: nobody sees which load that is."),
        (
            "torch.load(p, weights_only=False)",
            "torch.load with weights_only=False runs what the file says.",
        ),
        (
            "torch.load(p, pickle_module=x)",
            "torch.load with pickle_module is a load without restriction.",
        ),
        ("map(torch.load, p)", "torch.load is handed on, and nobody sees how it is called."),
        ("torch.jit.load(p)", "torch.jit.load can run what the file says."),
        (
            "torch.hub.load_state_dict_from_url(u)",
            "torch.hub.load_state_dict_from_url without weights_only runs what the file says.",
        ),
        (
            "torch.serialization.add_safe_globals([A])",
            "torch.serialization.add_safe_globals lets loads build more than tensors.",
        ),
        ("torch.load = f", "torch.load is another function for the whole process."),
        ("pickle.loads(d)", "pickle.loads runs what the bytes say."),
        ("class A(pickle.Unpickler): pass", "A is a pickle.Unpickler of its own."),
        (
            "np.load(p, allow_pickle=True)",
            "numpy.load with allow_pickle=True runs what the file says.",
        ),
        ("np.load(p, **x)", "numpy.load with arguments that nobody sees here may unpickle."),
        (
            "np.load(p, allow_pickle=x)",
            "numpy.load with an allow_pickle that is not a literal may unpickle.",
        ),
        (
            "try:\n    torch.load(p, weights_only=True)\nexcept E:\n    torch.load(p)",
            "torch.load without restriction, where a load before it has failed.",
        ),
        (
            "os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = '1'",
            (
                "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD lets every load without a flag run what the file"
                " says."
            ),
        ),
    ],
)
def test_the_sentences(code: str, what: str) -> None:
    assert whats(f"import torch, pickle, os\nimport numpy as np\n{code}\n") == [what]


def test_a_call_that_may_be_one_of_two_loaders_is_both() -> None:
    code = "import torch, pickle\nload = torch.load if x else pickle.load\nload(p)\n"
    assert sorted(whats(code)[-2:]) == [
        "pickle.load runs what the bytes say.",
        "torch.load without weights_only depends on the version and on an environment variable.",
    ]


@pytest.mark.parametrize(
    ("code", "what", "place"),
    [
        ("def f(:\n", "it is not Python (invalid syntax)", (1, 7)),
        ("print 'a'\n", "it is not Python (Missing parentheses", (1, 1)),
        ("x = 1\n\0y = 2\n", "it is not Python (source code", (1, 1)),
        ("# coding: nonsense\n", "it is not Python (", (1, 1)),
        ("-" * 20_000 + "1\n", "it is nested too deeply", (1, 1)),
        ("x = " + "[" * 150 + "]" * 150 + "\n" + "(" * 300, "it is not Python (too many", (2, 201)),
        ("x" + ".a" * 3_000 + "\n", "it is nested too deeply", (1, 1)),
    ],
    ids=["syntax", "python-2", "null", "encoding", "minus", "brackets", "attributes"],
)
def test_what_cannot_be_looked_at_is_a_finding(
    code: str, what: str, place: tuple[int, int]
) -> None:
    (finding,) = check_source(code, "x.py")
    assert finding.id == "SL90"
    assert finding.what.startswith(f"This was not looked at: {what}")
    assert (finding.line, finding.column) == place


def test_aliases_without_end_are_a_finding() -> None:
    chain = "".join(f"a{n} = a{n + 1}\n" for n in range(200))
    (finding,) = check_source(f"import torch\n{chain}a200 = torch.load\na0(p)\n")
    assert finding.what == "This was not looked at: it has too many names for the same thing."
    wide = "".join(f"import m{n} as a\n" for n in range(100))
    assert ids(f"{wide}a.load(p)\n") == ["SL90"]


def test_long_sums_and_ladders_are_looked_at() -> None:
    many = " + ".join(["x"] * 900)
    ladder = "if a:\n    pass\n" + "elif a:\n    pass\n" * 90 + "elif torch.load(p):\n    pass\n"
    assert ids(f"import torch\ny = torch.load(p) + {many}\n{ladder}") == ["SL01", "SL01"]


def test_looking_at_a_file_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    assert ids(f"import os\nos.mkdir({str(marker)!r})\n__import__('torch').load(1)\n") == ["SL01"]
    assert not marker.exists()


def test_other_encodings_are_read() -> None:
    code = "# coding: latin-1\nimport torch\né = torch.load(p)\n".encode("latin-1")
    (finding,) = check_source(code)
    assert (finding.line, finding.id) == (3, "SL01")
    assert [each.id for each in check_source("\ufeffimport torch\ntorch.load(p)\n")] == ["SL01"]


def test_a_name_in_other_letters_is_the_same_name() -> None:
    """Python takes full-width letters for the plain ones."""
    assert ids("import \uff54\uff4f\uff52\uff43\uff48\ntorch.load(p)\n") == ["SL01"]
