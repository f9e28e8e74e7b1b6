"""Code objects, and the standard library's many ways to run a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.corpus.assembler import Call, Name, call, name
from tests.corpus.gadget import Gadget, Place, expression
from tests.corpus.sources import (
    FICKLING,
    MODELAUDIT,
    PICKLESCAN,
    PICKLESCAN_PULL_74,
    PICKLESCAN_TESTS,
    advisory,
)

FAMILY: Final = "code objects"
_CODE: Final = call("marshal:loads", Place.CODE)
_TEXT: Final = Place.EXPRESSION


def _gadget(title: str, source: str, what: Any, protocol: int = 4) -> Gadget:
    return Gadget(title, FAMILY, source, what, protocol)


class CodeType(Gadget):
    """Build the code object out of its parts, as `types.CodeType` takes them."""

    def pickle(self, marker: Path) -> bytes:
        """Return the pickle."""
        code = compile(expression(marker), "gadget", "exec")
        parts = (
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_nlocals,
            code.co_stacksize,
            code.co_flags,
            code.co_code,
            code.co_consts,
            code.co_names,
            code.co_varnames,
            code.co_filename,
            code.co_name,
            code.co_qualname,
            code.co_firstlineno,
            code.co_linetable,
            code.co_exceptiontable,
        )
        return self._replace(what=_run(Call(Name("types", "CodeType"), parts))).plain(marker)

    def plain(self, marker: Path) -> bytes:
        """Return the pickle of what is described."""
        return super().pickle(marker)


def _run(code: Any) -> Call:
    """Make a function of the code, and call it."""
    return Call(call("types:FunctionType", code, {}))


CODE_OBJECTS: Final[tuple[Gadget, ...]] = (
    _gadget("marshal and FunctionType", advisory("GHSA-565g-hwwr-4pp3"), _run(_CODE)),
    _gadget(
        "marshal and FunctionType, protocol 2", advisory("GHSA-565g-hwwr-4pp3"), _run(_CODE), 2
    ),
    _gadget("marshal and exec", PICKLESCAN_PULL_74, call("builtins:exec", _CODE)),
    _gadget("marshal and eval", FICKLING, call("builtins:eval", _CODE)),
    CodeType("CodeType and FunctionType", FAMILY, PICKLESCAN, None),
    CodeType("CodeType and FunctionType, protocol 3", FAMILY, MODELAUDIT, None, 3),
    _gadget(
        "code.InteractiveInterpreter.runsource",
        advisory("GHSA-q5qq-mvfm-j35x"),
        Call(call("builtins:getattr", call("code:InteractiveInterpreter"), "runsource"), (_TEXT,)),
    ),
    _gadget(
        "code.InteractiveInterpreter.runcode",
        advisory("GHSA-cj3c-v495-4xqh"),
        call("code:InteractiveInterpreter.runcode", call("code:InteractiveInterpreter"), _TEXT),
    ),
    _gadget("codeop", FICKLING, call("builtins:eval", call("codeop:compile_command", _TEXT))),
    _gadget("codeop and FunctionType", FICKLING, _run(call("codeop:compile_command", _TEXT))),
    _gadget("runpy._run_code", PICKLESCAN_TESTS, call("runpy:_run_code", _TEXT, {})),
    _gadget("runpy._run_module_code", PICKLESCAN, call("runpy:_run_module_code", _TEXT, None, "x")),
    _gadget("timeit.timeit", advisory("GHSA-v7x6-rv5q-mhwc"), call("timeit:timeit", "", _TEXT)),
    _gadget(
        "timeit.repeat",
        PICKLESCAN,
        call("timeit:repeat", "0", _TEXT, name("time:perf_counter"), 1, 1),
    ),
    _gadget("cProfile.run", advisory("GHSA-49gj-c84q-6qm9"), call("cProfile:run", _TEXT)),
    _gadget(
        "cProfile.runctx", advisory("GHSA-9w88-8rmg-7g2p"), call("cProfile:runctx", _TEXT, {}, {})
    ),
    _gadget("profile.run", advisory("GHSA-7wx9-6375-f5wh"), call("profile:run", _TEXT)),
    _gadget(
        "profile.Profile.run",
        advisory("GHSA-x696-vm39-cp64"),
        call("profile:Profile.run", call("profile:Profile"), _TEXT),
    ),
    _gadget(
        "profile.Profile.runctx",
        advisory("GHSA-6vqj-c2q5-j97w"),
        call("profile:Profile.runctx", call("profile:Profile"), _TEXT, {}, {}),
    ),
    _gadget(
        "trace.Trace.run",
        advisory("GHSA-5qwp-399c-mjwf"),
        call("trace:Trace.run", call("trace:Trace"), _TEXT),
    ),
    _gadget(
        "trace.Trace.runctx",
        advisory("GHSA-g344-hcph-8vgg"),
        call("trace:Trace.runctx", call("trace:Trace"), _TEXT, {}, {}),
    ),
    _gadget("bdb.Bdb.run", PICKLESCAN_TESTS, call("bdb:Bdb.run", call("bdb:Bdb"), _TEXT)),
    _gadget(
        "doctest.debug_script",
        advisory("GHSA-fqq6-7vqf-w3fg"),
        call("doctest:debug_script", _TEXT, True),
    ),
    _gadget(
        "typing._eval_type",
        MODELAUDIT,
        call("typing:_eval_type", call("typing:ForwardRef", _TEXT), {}, {}),
    ),
)
