"""Pickles that start a process, or make a call to the operating system."""

from __future__ import annotations

from typing import Any, Final

from tests.corpus.assembler import Call, call
from tests.corpus.gadget import Gadget, Place
from tests.corpus.sources import (
    FICKLING,
    MODELSCAN,
    PICKLE_DOCS,
    PICKLESCAN,
    PICKLESCAN_TESTS,
    advisory,
)

FAMILY: Final = "processes"
_ARGV: Final = ["mkdir", Place.PATH]
_BIN: Final = "/bin/mkdir"


def _gadget(title: str, source: str, what: Any, protocol: int = 4) -> Gadget:
    return Gadget(title, FAMILY, source, what, protocol)


PROCESSES: Final[tuple[Gadget, ...]] = (
    _gadget("posix.system", PICKLE_DOCS, call("posix:system", Place.COMMAND)),
    _gadget("posix.mkdir", PICKLESCAN, call("posix:mkdir", Place.PATH), 2),
    _gadget("os.popen", PICKLESCAN, call("os:popen", Place.COMMAND)),
    _gadget("os.spawnvp", PICKLESCAN, call("os:spawnvp", 0, "mkdir", _ARGV)),
    _gadget("os.spawnlp", PICKLESCAN, call("os:spawnlp", 0, "mkdir", "mkdir", Place.PATH), 2),
    _gadget("os.posix_spawn", PICKLESCAN, call("os:posix_spawn", _BIN, _ARGV, {})),
    _gadget("os.posix_spawnp", MODELSCAN, call("os:posix_spawnp", "mkdir", _ARGV, {})),
    _gadget("os.execvp", PICKLESCAN, call("os:execvp", "mkdir", _ARGV)),
    _gadget("os.execlp", MODELSCAN, call("os:execlp", "mkdir", "mkdir", Place.PATH), 1),
    _gadget("os.execv", PICKLESCAN, call("os:execv", _BIN, _ARGV)),
    _gadget("subprocess.run", PICKLESCAN, call("subprocess:run", _ARGV)),
    _gadget("subprocess.call", MODELSCAN, call("subprocess:call", _ARGV), 2),
    _gadget("subprocess.check_call", PICKLESCAN, call("subprocess:check_call", _ARGV)),
    _gadget("subprocess.check_output", PICKLESCAN, call("subprocess:check_output", _ARGV), 0),
    _gadget("subprocess.Popen", PICKLESCAN, call("subprocess:Popen", _ARGV)),
    _gadget("subprocess.getoutput", MODELSCAN, call("subprocess:getoutput", Place.COMMAND)),
    _gadget(
        "subprocess.getstatusoutput",
        PICKLESCAN,
        call("subprocess:getstatusoutput", Place.COMMAND),
        3,
    ),
    _gadget("pty.spawn", advisory("GHSA-hgrh-qx5j-jfwx"), call("pty:spawn", _ARGV)),
    _gadget(
        "multiprocessing.util.spawnv_passfds",
        advisory("GHSA-q5qq-mvfm-j35x"),
        call(
            "multiprocessing.util:spawnv_passfds", _BIN.encode(), [b"mkdir", Place.PATH_BYTES], ()
        ),
    ),
    _gadget(
        "asyncio's subprocess transport",
        advisory("GHSA-q77w-mwjj-7mqx"),
        call(
            "asyncio.unix_events:_UnixSubprocessTransport._start",
            call("argparse:Namespace"),
            Place.COMMAND,
            True,
            None,
            None,
            None,
            0,
        ),
    ),
    _gadget(
        "imaplib.IMAP4_stream",
        advisory("GHSA-g38g-8gr9-h9xp"),
        call("imaplib:IMAP4_stream", Place.COMMAND),
    ),
    _gadget(
        "uuid._get_command_stdout",
        advisory("GHSA-g38g-8gr9-h9xp"),
        call("uuid:_get_command_stdout", "mkdir", Place.PATH),
    ),
    _gadget(
        "_osx_support._read_output",
        advisory("GHSA-g38g-8gr9-h9xp"),
        call("_osx_support:_read_output", Place.COMMAND),
    ),
    _gadget("pydoc.pipepager", PICKLESCAN_TESTS, call("pydoc:pipepager", "", Place.COMMAND)),
    _gadget("pydoc.tempfilepager", PICKLESCAN, call("pydoc:tempfilepager", "", Place.COMMAND)),
    _gadget(
        "ctypes.CDLL",
        advisory("GHSA-5hvc-6wx8-mvv4"),
        Call(
            call("builtins:getattr", call("ctypes:CDLL", None), "mkdir"), (Place.PATH_BYTES, 0o700)
        ),
    ),
    _gadget(
        "ctypes.CDLL and system",
        FICKLING,
        Call(call("builtins:getattr", call("ctypes:CDLL", None), "system"), (Place.COMMAND_BYTES,)),
    ),
)
