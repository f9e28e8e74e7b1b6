"""What is compared with this repository, and not run: commands, maps of files, trees, a record."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from typing import Final

from tests.harness.pages import Block, Place, Wrong

_DRAWING: Final = re.compile(r"^[\s│├└─|`+-]*")
_INSTALLING: Final = ("make", "git", "cd", "pip", ".", "python3 -m venv")


def _drawn(block: Block) -> Iterator[tuple[int, list[str]]]:
    """Yield for each line of a drawing how far it is indented, and its names."""
    for line in filter(str.strip, block.text.split("\n")):
        indent = len(_DRAWING.match(line)[0])  # type: ignore[index]
        yield indent, re.split(r" {2,}|\t", line[indent:])[0].split()


def check_make(place: Place, block: Block) -> str:
    """Check that each `make` target exists, and that other lines install something.

    One simple command per line, which may be continued: what stands behind a `&&` would not be
    looked at.
    """
    rules = re.findall(r"^([\w .-]+):(?!=)", (place.root / "Makefile").read_text(), re.MULTILINE)
    targets = {name for rule in rules for name in rule.split()}
    for line in block.text.replace("\\\n", "").split("\n"):
        words = shlex.split(line, comments=True)
        if more := re.search(r"[;&|<>`()]", re.sub(r"(?:^|\s)#[^'\"]*$", "", line)):
            raise Wrong(f"{more[0]} in {line}; write one simple command per line")
        if words and not " ".join([*words, ""]).startswith(tuple(f"{w} " for w in _INSTALLING)):
            raise Wrong(f"{words[0]} can run here; move it to a block of its own")
        for target in words[1:] if words[:1] == ["make"] else ():
            if "=" not in target and target not in targets:
                raise Wrong(f"the Makefile has no target {target}; correct the command")
    return ""


def check_paths(place: Place, block: Block) -> str:
    """Check a map of files: each name exists, below the last name that was less indented."""
    above: list[tuple[int, str]] = []
    for indent, names in _drawn(block):
        above = [each for each in above if each[0] < indent]
        for name in names:
            if not place.root.joinpath(*(folder for _, folder in above), name).exists():
                raise Wrong(f"{name} is not there; correct the map")
        above += [(indent, names[-1])] if names[-1].endswith("/") else []
    return ""


def check_record(place: Place, block: Block) -> str:
    """Check a record: it is one of the published vectors, and one that opens."""
    file = place.root / "docs" / "vectors" / "records.json"
    vectors = json.loads(file.read_text(encoding="ascii"))["vectors"]
    opens = [v["record"].encode("latin-1") for v in vectors if "opens" in v]
    if block.text not in [record.decode("ascii", "backslashreplace") for record in opens]:
        raise Wrong("is no record that opens; make it again: python -m tests.vectors")
    return ""


def check_subclasses(_: Place, block: Block) -> str:
    """Check a drawn tree of classes: who is below whom, and that none is left out."""
    module = importlib.import_module(block.attributes["data-module"])
    above: list[tuple[int, type]] = []
    seen: set[type] = set()
    for indent, names in _drawn(block):
        name = names[0]
        found = getattr(module, name, None)
        if not inspect.isclass(found):
            raise Wrong(f"{module.__name__} has no class {name}; correct the tree")
        above = [each for each in above if each[0] < indent]
        if above and above[-1][1] not in found.__bases__:
            raise Wrong(f"{name} is not below {above[-1][1].__name__}; correct the tree")
        above.append((indent, found))
        seen.add(found)
    kinds = [kind for kind in vars(module).values() if inspect.isclass(kind)]
    left = [k.__name__ for k in kinds if k not in seen and set(k.__mro__) & seen]
    if left:
        raise Wrong(f"the tree leaves out {', '.join(sorted(left))}; add it")
    return ""
