"""The gadgets: what each calls, where that was published, and the pickle that does it.

They stand in gadgets.txt, one in a line: its name, its source, the pickle's protocol, and what it
does, as calls of the assembler.
"""

from __future__ import annotations

import marshal
import shlex
from collections.abc import Callable, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.corpus import sources
from tests.corpus.assembler import Raw, call, described, pickled


class Place(Enum):
    """What a payload needs to know, filled in when the marker's path is known."""

    PATH = auto()
    PATH_BYTES = auto()
    FOLDER = auto()
    EXPRESSION = auto()
    EXPRESSION_BYTES = auto()
    COMMAND = auto()
    COMMAND_BYTES = auto()
    CODE = auto()  # marshalled
    PICKLE = auto()
    YAML = auto()
    FILE_URL = auto()
    HERE = auto()  # a file that can be read
    CODE_PARTS = auto()  # as `types.CodeType` takes them


class Gadget(NamedTuple):
    """A pickle that executes.

    Attributes:
        name: what it is called in the output of a test.
        family: its class: opcodes, built-ins, processes …
        source: where its callable was published.
        what: the pickle, described; places are filled in.
        protocol: the pickle's protocol.
        several: whether it only runs in a reader that goes on after the first pickle.
    """

    name: str
    family: str
    source: str
    what: Any
    protocol: int = 4
    several: bool = False

    def pickle(self, marker: Path) -> bytes:
        """Return the pickle. What it does is to leave something in the marker's folder."""
        filled = fill(self.what, marker)
        return filled.code if isinstance(filled, Raw) else pickled(filled, self.protocol)


def fill(value: Any, marker: Path) -> Any:
    """Return the description with its places filled in."""
    match value:
        case Place():
            return _FILLED[value](marker)
        case Raw():
            return Raw(value.code.replace(b"MARKER", str(marker).encode()))
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*(fill(item, marker) for item in value))
        case tuple():
            return tuple(fill(item, marker) for item in value)
        case list():
            return [fill(item, marker) for item in value]
        case dict():
            return {fill(k, marker): fill(v, marker) for k, v in value.items()}
        case _:
            return value


def expression(marker: Path) -> str:
    """Return Python that makes the marker, as one expression."""
    return f"__import__('os').mkdir({str(marker)!r})"


def _command(marker: Path) -> str:
    return f"mkdir {shlex.quote(str(marker))}"


def _code(marker: Path) -> bytes:
    return marshal.dumps(compile(expression(marker), "gadget", "exec"))


def _code_parts(marker: Path) -> tuple[Any, ...]:
    code = compile(expression(marker), "gadget", "exec")
    names = (
        "argcount posonlyargcount kwonlyargcount nlocals stacksize flags code consts names varnames"
        " filename name qualname firstlineno linetable exceptiontable"
    )
    return tuple(getattr(code, f"co_{each}") for each in names.split())


_FILLED: dict[Place, Callable[[Path], Any]] = {
    Place.PATH: str,
    Place.PATH_BYTES: lambda marker: str(marker).encode(),
    Place.FOLDER: lambda marker: str(marker.parent),
    Place.EXPRESSION: expression,
    Place.EXPRESSION_BYTES: lambda marker: expression(marker).encode(),
    Place.COMMAND: _command,
    Place.COMMAND_BYTES: lambda marker: _command(marker).encode(),
    Place.CODE: _code,
    Place.PICKLE: lambda marker: pickled(call("os:mkdir", str(marker))),
    Place.YAML: lambda marker: f'!!python/object/apply:os.mkdir ["{marker}"]',
    Place.FILE_URL: lambda marker: Path(__file__).as_uri(),
    Place.HERE: lambda marker: str(Path(__file__)),
    Place.CODE_PARTS: _code_parts,
}


def _read() -> Iterator[Gadget]:
    """Read gadgets.txt. A comment names the family of what follows."""
    family = ""
    for line in (Path(__file__).parent / "gadgets.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            family = line[2:]
        elif line:
            title, source, how, what = line.split(" | ", maxsplit=3)
            protocol, _, several = how.partition(" ")
            where = vars(sources).get(source) or sources.advisory(source)
            told = described(what, **Place.__members__)
            yield Gadget(title, family, where, told, int(protocol), bool(several))


GADGETS: Final = tuple(_read())
