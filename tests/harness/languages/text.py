"""Text: the output of the block before it, or a drawing that is compared with what is there."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import re

from tests.harness.blocks import TAB, Block
from tests.harness.languages.output import check_dots, difference
from tests.harness.page import Failure, Page

_DRAWING = re.compile(r"^[\s│├└─|`+-]*")


def run_text(page: Page, block: Block) -> str:
    """Compare with what the block before printed. Three dots may stand for less than half of it."""
    got, page.output = page.output.expandtabs(TAB), ""
    if not got:
        raise Failure("nothing before it printed this; remove it, or print it")
    if not doctest.OutputChecker().check_output(f"{block.text}\n", got, doctest.ELLIPSIS):
        raise Failure(difference("is not what the block above printed", block.text, got))
    check_dots(block.text, got)
    return ""


def check_paths(page: Page, block: Block) -> str:
    """Check a map of files: each name exists, below the last name that was less indented."""
    folders: list[tuple[int, str]] = []
    for line in block.text.split("\n"):
        indent = len(_DRAWING.match(line)[0])  # type: ignore[index]
        names = re.split(r" {2,}|\t", line[indent:])[0].split()
        while folders and folders[-1][0] >= indent:
            folders.pop()
        base = page.root.joinpath(*(name for _, name in folders))
        for name in names:
            if not (base / name).exists():
                raise Failure(f"{name} is not there; correct the map")
        if names and names[-1].endswith("/"):
            folders.append((indent, names[-1]))
    return ""


def check_record(page: Page, block: Block) -> str:
    """Check a record: it is one of the published vectors, and one that opens."""
    file = page.root / "docs" / "vectors" / "records.json"
    vectors = json.loads(file.read_text(encoding="ascii"))["vectors"]
    if f"{block.text}\n" not in [v["record"] for v in vectors if "opens" in v]:
        raise Failure("is no record that opens; make it again: python -m tests.vectors")
    return ""


def check_subclasses(_: Page, block: Block) -> str:
    """Check a drawn tree of classes: who is below whom, and that none is left out."""
    module = importlib.import_module(block.attributes["data-module"])
    above: list[tuple[int, type]] = []
    drawn: set[type] = set()
    for line in filter(str.strip, block.text.split("\n")):
        indent = len(_DRAWING.match(line)[0])  # type: ignore[index]
        name = line[indent:].split()[0]
        found = getattr(module, name, None)
        if not inspect.isclass(found):
            raise Failure(f"{module.__name__} has no class {name}; correct the tree")
        while above and above[-1][0] >= indent:
            above.pop()
        if above and above[-1][1] not in found.__bases__:
            raise Failure(f"{name} is not below {above[-1][1].__name__}; correct the tree")
        above.append((indent, found))
        drawn.add(found)
    missing = {
        kind.__name__
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind not in drawn and set(kind.__mro__) & drawn
    }
    if missing:
        raise Failure(f"the tree leaves out {', '.join(sorted(missing))}; add it")
    return ""
