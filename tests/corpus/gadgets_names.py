"""Built-ins, and the standard library's many ways to look a name up or to call what it is given."""

from __future__ import annotations

from typing import Any, Final

from tests.corpus.assembler import Call, Keep, Kept, Steps, call, name
from tests.corpus.gadget import Gadget, Place
from tests.corpus.sources import (
    FICKLING,
    LOGGING_DOCS,
    MODELAUDIT,
    MODELSCAN,
    PICKLESCAN,
    PICKLESCAN_ISSUE_66,
    PICKLESCAN_TESTS,
    SOUR_PICKLES,
    advisory,
)

_OS: Final = call("builtins:__import__", "os")
_MKDIR: Final = name("os:mkdir")
_PATHS: Final = [Place.PATH]
_MAP: Final = call("builtins:map", _MKDIR, _PATHS)


def _builtin(title: str, source: str, what: Any, protocol: int = 4) -> Gadget:
    return Gadget(title, "built-ins", source, what, protocol)


def _indirect(title: str, source: str, what: Any, protocol: int = 4) -> Gadget:
    return Gadget(title, "other stdlib", source, what, protocol)


BUILTINS: Final[tuple[Gadget, ...]] = (
    *(
        _builtin(f"eval, protocol {n}", PICKLESCAN, call(f"{module}:eval", Place.EXPRESSION), n)
        for n, module in ((0, "__builtin__"), (2, "__builtin__"), (4, "builtins"))
    ),
    *(
        _builtin(f"exec, protocol {n}", PICKLESCAN, call(f"{module}:exec", Place.EXPRESSION), n)
        for n, module in ((1, "__builtin__"), (3, "builtins"), (5, "builtins"))
    ),
    _builtin(
        "compile, then eval",
        SOUR_PICKLES,
        call("builtins:eval", call("builtins:compile", Place.EXPRESSION, "x", "eval")),
    ),
    _builtin(
        "compile, then exec",
        PICKLESCAN,
        call("builtins:exec", call("builtins:compile", Place.EXPRESSION, "x", "exec")),
    ),
    _builtin(
        "globals, compile, eval",
        SOUR_PICKLES,
        Steps(
            (
                Keep(1, call("__builtin__:globals")),
                Keep(2, call("__builtin__:compile", Place.EXPRESSION, "", "exec")),
                call("__builtin__:eval", Kept(2), Kept(1)),
            )
        ),
        0,
    ),
    _builtin(
        "__import__ and getattr",
        advisory("GHSA-h4rm-mm56-xf63"),
        Call(call("builtins:getattr", _OS, "mkdir"), (Place.PATH,)),
    ),
    _builtin(
        "__import__ and getattr, protocol 0",
        MODELSCAN,
        Call(
            call("__builtin__:getattr", call("__builtin__:__import__", "os"), "mkdir"),
            (Place.PATH,),
        ),
        0,
    ),
    _builtin(
        "getattr of a type",
        PICKLESCAN,
        Call(
            Call(call("builtins:getattr", call("builtins:vars", _OS), "get"), ("mkdir",)),
            (Place.PATH,),
        ),
    ),
    _builtin("map and list", MODELAUDIT, call("builtins:list", _MAP)),
    _builtin("map and next", MODELAUDIT, call("builtins:next", _MAP)),
    _builtin("map and sorted", MODELAUDIT, call("builtins:sorted", _MAP)),
    _builtin(
        "map of eval",
        MODELAUDIT,
        call("builtins:list", call("builtins:map", name("builtins:eval"), [Place.EXPRESSION])),
    ),
    _builtin(
        "filter and list",
        MODELAUDIT,
        call("builtins:list", call("builtins:filter", _MKDIR, _PATHS)),
    ),
    _builtin(
        "filter of exec and tuple",
        MODELAUDIT,
        call("builtins:tuple", call("builtins:filter", name("builtins:exec"), [Place.EXPRESSION])),
        2,
    ),
)

INDIRECT: Final[tuple[Gadget, ...]] = (
    _indirect(
        "importlib.import_module",
        PICKLESCAN_ISSUE_66,
        Call(
            call("builtins:getattr", call("importlib:import_module", "os"), "mkdir"), (Place.PATH,)
        ),
    ),
    _indirect(
        "importlib.import_module, protocol 2",
        advisory("GHSA-q5qq-mvfm-j35x"),
        Call(
            call("__builtin__:getattr", call("importlib:import_module", "os"), "mkdir"),
            (Place.PATH,),
        ),
        2,
    ),
    _indirect(
        "pkgutil.resolve_name",
        advisory("GHSA-vvpj-8cmc-gx39"),
        Call(call("pkgutil:resolve_name", "os:mkdir"), (Place.PATH,)),
    ),
    _indirect(
        "pydoc.locate",
        advisory("GHSA-5hvc-6wx8-mvv4"),
        Call(call("pydoc:locate", "os.mkdir"), (Place.PATH,)),
    ),
    _indirect(
        "operator.attrgetter",
        PICKLESCAN,
        Call(Call(call("operator:attrgetter", "mkdir"), (_OS,)), (Place.PATH,)),
    ),
    _indirect(
        "_operator.attrgetter",
        PICKLESCAN,
        Call(Call(call("_operator:attrgetter", "mkdir"), (_OS,)), (Place.PATH,)),
    ),
    _indirect(
        "_operator.methodcaller",
        advisory("GHSA-955r-x9j8-7rhh"),
        Call(call("_operator:methodcaller", "mkdir", Place.PATH), (_OS,)),
    ),
    _indirect(
        "operator.itemgetter",
        PICKLESCAN,
        Call(
            Call(call("operator:itemgetter", "mkdir"), (call("builtins:vars", _OS),)), (Place.PATH,)
        ),
    ),
    _indirect("operator.call", MODELAUDIT, call("operator:call", _MKDIR, Place.PATH)),
    _indirect("functools.partial", PICKLESCAN, Call(call("functools:partial", _MKDIR, Place.PATH))),
    _indirect(
        "functools.reduce",
        FICKLING,
        Call(call("functools:reduce", name("builtins:getattr"), ["mkdir"], _OS), (Place.PATH,)),
    ),
    _indirect(
        "functools.lru_cache", MODELAUDIT, Call(call("functools:lru_cache", _MKDIR), (Place.PATH,))
    ),
    _indirect(
        "itertools.starmap",
        MODELAUDIT,
        call("builtins:list", call("itertools:starmap", _MKDIR, [(Place.PATH,)])),
    ),
    _indirect(
        "itertools.takewhile",
        MODELAUDIT,
        call("builtins:list", call("itertools:takewhile", _MKDIR, _PATHS)),
    ),
    _indirect(
        "itertools.filterfalse",
        MODELAUDIT,
        call("builtins:list", call("itertools:filterfalse", _MKDIR, _PATHS)),
    ),
    _indirect(
        "contextlib.ExitStack",
        MODELAUDIT,
        Steps(
            (
                Keep(1, call("contextlib:ExitStack")),
                call("contextlib:ExitStack.callback", Kept(1), _MKDIR, Place.PATH),
                call("contextlib:ExitStack.close", Kept(1)),
            )
        ),
    ),
    _indirect(
        "contextvars.Context.run",
        MODELAUDIT,
        call("contextvars:Context.run", call("contextvars:Context"), _MKDIR, Place.PATH),
    ),
    _indirect(
        "sched.scheduler",
        MODELAUDIT,
        Steps(
            (
                Keep(1, call("sched:scheduler")),
                call("sched:scheduler.enter", Kept(1), 0, 1, _MKDIR, (Place.PATH,)),
                call("sched:scheduler.run", Kept(1)),
            )
        ),
    ),
    _indirect(
        "a thread",
        FICKLING,
        call("threading:Thread.run", call("threading:Thread", None, _MKDIR, None, (Place.PATH,))),
    ),
    _indirect(
        "_thread.start_new_thread",
        FICKLING,
        call("_thread:start_new_thread", _MKDIR, (Place.PATH,)),
    ),
    _indirect("pickle in a pickle", PICKLESCAN, call("pickle:loads", Place.PICKLE)),
    _indirect("_pickle in a pickle", PICKLESCAN, call("_pickle:loads", Place.PICKLE)),
    _indirect(
        "pickle in a pickle, protocol 0", PICKLESCAN_TESTS, call("pickle:loads", Place.PICKLE), 0
    ),
    _indirect(
        "multiprocessing's pickle",
        FICKLING,
        call("multiprocessing.reduction:ForkingPickler.loads", Place.PICKLE),
    ),
    _indirect(
        "logging.config.dictConfig",
        LOGGING_DOCS,
        call(
            "logging.config:dictConfig",
            {"version": 1, "handlers": {"h": {"()": "os.mkdir", "path": Place.PATH}}},
        ),
    ),
    _indirect("yaml.unsafe_load", MODELAUDIT, call("yaml:unsafe_load", Place.YAML)),
)
