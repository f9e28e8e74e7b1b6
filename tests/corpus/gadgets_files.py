"""Pickles that write a file. A file in the right place is code, or a key, or a job for cron."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.corpus.assembler import Call, Steps, call
from tests.corpus.gadget import Gadget, Place
from tests.corpus.sources import (
    FICKLING,
    FICKLING_ML,
    MODELAUDIT,
    MODELAUDIT_PULL_1059,
    MODELSCAN,
    PICKLESCAN,
    PICKLESCAN_TESTS,
    advisory,
)

FAMILY: Final = "file writes"
_HERE: Final = str(Path(__file__))
_PATH: Final = call("pathlib:PosixPath", Place.PATH)


def _gadget(title: str, source: str, what: Any, protocol: int = 4) -> Gadget:
    return Gadget(title, FAMILY, source, what, protocol)


FILES: Final[tuple[Gadget, ...]] = (
    _gadget("open", PICKLESCAN, call("builtins:open", Place.PATH, "w")),
    _gadget("open, protocol 1", MODELSCAN, call("__builtin__:open", Place.PATH, "w"), 1),
    _gadget("io.open", FICKLING_ML, call("io:open", Place.PATH, "w")),
    _gadget("_io.FileIO", PICKLESCAN, call("_io:FileIO", Place.PATH, "w")),
    _gadget("codecs.open", MODELAUDIT, call("codecs:open", Place.PATH, "w")),
    _gadget("bz2.open", MODELAUDIT_PULL_1059, call("bz2:open", Place.PATH, "wb")),
    _gadget("argparse.FileType", MODELAUDIT, Call(call("argparse:FileType", "w"), (Place.PATH,))),
    _gadget("Path.write_text", MODELAUDIT, call("pathlib:Path.write_text", _PATH, "x")),
    _gadget("Path.write_bytes", MODELAUDIT, call("pathlib:Path.write_bytes", _PATH, b"x")),
    _gadget("Path.open", MODELAUDIT, call("pathlib:Path.open", _PATH, "w")),
    _gadget("logging.FileHandler", PICKLESCAN, call("logging:FileHandler", Place.PATH)),
    *(
        _gadget(
            f"logging.handlers.{kind}", MODELAUDIT, call(f"logging.handlers:{kind}", Place.PATH)
        )
        for kind in ("RotatingFileHandler", "TimedRotatingFileHandler", "WatchedFileHandler")
    ),
    _gadget("shutil.copyfile", PICKLESCAN, call("shutil:copyfile", _HERE, Place.PATH)),
    _gadget("shutil.copy", MODELSCAN, call("shutil:copy", _HERE, Place.PATH), 2),
    _gadget("os.makedirs", MODELSCAN, call("os:makedirs", Place.PATH)),
    _gadget("os.symlink", PICKLESCAN, call("os:symlink", _HERE, Place.PATH)),
    _gadget("os.mkfifo", PICKLESCAN, call("os:mkfifo", Place.PATH), 0),
    _gadget("os.open", MODELSCAN, call("os:open", Place.PATH, 0o101)),
    _gadget(
        "distutils.file_util.write_file",
        advisory("GHSA-m273-6v24-x4m4"),
        call("distutils.file_util:write_file", Place.PATH, ["x"]),
    ),
    _gadget("distutils.dir_util.mkpath", FICKLING, call("distutils.dir_util:mkpath", Place.PATH)),
    _gadget("tempfile.mkdtemp", FICKLING, call("tempfile:mkdtemp", None, None, Place.FOLDER)),
    _gadget("tempfile.mkstemp", FICKLING, call("tempfile:mkstemp", None, None, Place.FOLDER)),
    _gadget("sqlite3.connect", FICKLING, call("sqlite3:connect", Place.PATH)),
    _gadget("zipfile.ZipFile", FICKLING, call("zipfile:ZipFile", Place.PATH, "w")),
    _gadget("tarfile.open", FICKLING, call("tarfile:open", Place.PATH, "w")),
    _gadget("shelve.open", FICKLING, call("shelve:open", Place.PATH)),
    _gadget("py_compile.compile", FICKLING, call("py_compile:compile", _HERE, Place.PATH)),
    _gadget(
        "urllib.request.urlretrieve",
        PICKLESCAN,
        call("urllib.request:urlretrieve", Place.FILE_URL, Place.PATH),
    ),
    _gadget("venv.create", PICKLESCAN_TESTS, call("venv:create", Place.PATH, False, False, True)),
    _gadget(
        "dropped before a harmless state, file",
        PICKLESCAN,
        Steps((call("builtins:open", Place.PATH, "w"), {"amount": 42})),
    ),
)
