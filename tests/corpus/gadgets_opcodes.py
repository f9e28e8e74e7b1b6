"""The same two or three callables, reached through every opcode that can reach them."""

from __future__ import annotations

import pickle
from typing import Any, Final

from tests.corpus.assembler import Build, Call, Keep, Kept, Name, New, Raw, Steps, call, name
from tests.corpus.gadget import Gadget, Place
from tests.corpus.sources import (
    BUILD_ARTICLE,
    FICKLING,
    MODELAUDIT,
    NULLIFAI,
    PEP_307,
    PICKLE_DOCS,
    PICKLESCAN_ISSUE_22,
    PICKLESCAN_TESTS,
    PYSHV,
    SOUR_PICKLES,
    advisory,
)

FAMILY: Final = "opcodes"
_MAKE: Final = call("os:mkdir", Place.PATH)
_ADD_EXTENSION: Final = "copyreg:add_extension"
_STATE: Final = {"amount": 42, "step": "pay"}


def _gadget(title: str, source: str, what: Any, protocol: int = 4, **more: bool) -> Gadget:
    return Gadget(title, FAMILY, source, what, protocol, **more)


def _extension(number: int, opcode: bytes) -> Steps:
    """Register a code, which the next opcode turns into the callable."""
    register = call(_ADD_EXTENSION, "os", "mkdir", number)
    return Steps((register, Call(Raw(opcode), (Place.PATH,))))


OPCODES: Final[tuple[Gadget, ...]] = (
    *(
        _gadget(f"reduce, protocol {n}", PICKLE_DOCS, call("os:system", Place.COMMAND), n)
        for n in range(6)
    ),
    _gadget("GLOBAL in protocol 4", PICKLE_DOCS, Raw(b"\x80\x04cos\nmkdir\nVMARKER\n\x85R.")),
    _gadget("INST", PICKLESCAN_TESTS, Raw(b"(VMARKER\nios\nmkdir\n.")),
    _gadget(
        "INST, built-in",
        PICKLESCAN_TESTS,
        Raw(b"(V__import__('os').mkdir('MARKER')\ni__builtin__\nexec\n."),
    ),
    _gadget("OBJ", advisory("GHSA-hgrh-qx5j-jfwx"), Raw(b"(cos\nmkdir\nVMARKER\no.")),
    _gadget(
        "OBJ and POP", advisory("GHSA-mxhj-88fx-4pcv"), Raw(b"\x80\x04(cos\nmkdir\nVMARKER\no0N.")
    ),
    _gadget(
        "NEWOBJ",
        MODELAUDIT,
        New(name("builtins:tuple"), (New(name("builtins:map"), (name("os:mkdir"), [Place.PATH])),)),
    ),
    _gadget(
        "NEWOBJ_EX",
        MODELAUDIT,
        New(
            name("builtins:tuple"),
            (New(name("builtins:map"), (name("os:mkdir"), [Place.PATH]), {}),),
            {},
        ),
    ),
    _gadget(
        "BUILD sets __setstate__",
        BUILD_ARTICLE,
        Build(
            Build(call("argparse:Namespace"), {"__setstate__": name("os:mkdir")}),
            Place.PATH,
        ),
    ),
    _gadget(
        "BUILD sets __setstate__ of an exception",
        BUILD_ARTICLE,
        Build(
            Build(call("builtins:Exception"), {"__setstate__": name("os:system")}),
            Place.COMMAND,
        ),
        2,
    ),
    _gadget("BUILD after the call", advisory("GHSA-mhc9-48gj-9gp3"), Build(_MAKE, {})),
    *(
        _gadget(f"EXT{size}", PEP_307, _extension(number, opcode))
        for size, number, opcode in (
            (1, 201, b"\x82\xc9"),
            (2, 0x1234, b"\x83\x34\x12"),
            (4, 0x123456, b"\x84\x56\x34\x12\x00"),
        )
    ),
    _gadget(
        "the second pickle of two",
        PICKLESCAN_TESTS,
        Raw(pickle.dumps(["a", "b"]) + b"cos\nmkdir\n(VMARKER\ntR."),
        several=True,
    ),
    _gadget(
        "the fourth pickle of four",
        PICKLESCAN_TESTS,
        Raw(pickle.dumps(_STATE) * 3 + b"cos\nmkdir\n(VMARKER\ntR."),
        several=True,
    ),
    _gadget(
        "names out of the memo",
        PICKLESCAN_ISSUE_22,
        Raw(b"Vos\np2\n0Vmkdir\np3\n0Vtorch\np0\n0VLongStorage\np1\n0g2\ng3\n\x93(VMARKER\ntR."),
    ),
    _gadget(
        "names as byte strings",
        advisory("GHSA-9gvj-pp9x-gcfr"),
        Raw(b"S'os'\nS'mkdir'\n\x93S'MARKER'\n\x85R."),
    ),
    _gadget(
        "names as short byte strings",
        advisory("GHSA-9gvj-pp9x-gcfr"),
        Raw(b"U\x02osU\x05mkdir\x93VMARKER\n\x85R."),
    ),
    _gadget(
        "names as long texts",
        SOUR_PICKLES,
        Raw(b"\x80\x04\x8d\x02\0\0\0\0\0\0\0os\x8d\x05\0\0\0\0\0\0\0mkdir\x93VMARKER\n\x85R."),
    ),
    _gadget(
        "the callable kept, then called",
        SOUR_PICKLES,
        Steps((Keep(1, name("os:mkdir")), Call(Kept(1), (Place.PATH,)))),
        0,
    ),
    _gadget("DUP", SOUR_PICKLES, Raw(b"VMARKER\n\x8520cos\nmkdir\n(VMARKER\ntR2.")),
    _gadget("in a list", SOUR_PICKLES, [1, 2, _MAKE, 3]),
    _gadget("in a dict", SOUR_PICKLES, {"amount": 42, "due": _MAKE}),
    _gadget("as a key", SOUR_PICKLES, {_MAKE: "step"}),
    _gadget("in nested tuples", SOUR_PICKLES, (1, (2, (3, (4, _MAKE))))),
    _gadget("in a set", SOUR_PICKLES, Raw(b"\x80\x04\x8f(cos\nmkdir\n(VMARKER\ntR\x90.")),
    _gadget("in a frozenset", SOUR_PICKLES, Raw(b"\x80\x04(cos\nmkdir\n(VMARKER\ntR\x91.")),
    _gadget("dropped before a harmless state", PICKLE_DOCS, Steps((_MAKE, _STATE))),
    _gadget("dropped before a harmless state, protocol 2", PICKLE_DOCS, Steps((_MAKE, _STATE)), 2),
    _gadget(
        "dropped with its mark",
        SOUR_PICKLES,
        Raw(b"\x80\x04(cos\nmkdir\n(VMARKER\ntR1K\x2a."),
    ),
    _gadget("breaks after the payload", NULLIFAI, Raw(b"\x80\x04cos\nmkdir\n(VMARKER\ntR0X.")),
    _gadget("ends after the payload", NULLIFAI, Raw(b"\x80\x04cos\nmkdir\n(VMARKER\ntR")),
    _gadget("an unknown opcode after the payload", NULLIFAI, Raw(b"cos\nmkdir\n(VMARKER\ntR\xff.")),
    _gadget("bytes after the end", PICKLESCAN_TESTS, Raw(b"cos\nmkdir\n(VMARKER\ntR.\n\n\t\t")),
    _gadget(
        "a second PROTO", SOUR_PICKLES, Raw(b"\x80\x02K\x010\x80\x04cos\nmkdir\nVMARKER\n\x85R.")
    ),
    _gadget("the path as bytes", PICKLE_DOCS, call("os:mkdir", Place.PATH_BYTES)),
    _gadget("the path as bytes, protocol 2", PICKLE_DOCS, call("os:mkdir", Place.PATH_BYTES), 2),
    _gadget("a dotted name through another module", MODELAUDIT, call("site:os.mkdir", Place.PATH)),
    _gadget("a hidden name of a module", FICKLING, call("shutil:os.mkdir", Place.PATH)),
    _gadget(
        "a module put in place of sys",
        PYSHV,
        Steps(
            (
                Keep(1, Name("sys", "modules")),
                Raw(b"g1\nVsys\ng1\ns"),
                Keep(2, Call(Name("sys", "get"), ("os",))),
                Raw(b"g1\nVsys\ng2\ns"),
                Call(Name("sys", "mkdir"), (Place.PATH,)),
            )
        ),
        0,
    ),
)
