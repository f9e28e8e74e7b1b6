"""Blocks that are compared with what is there: output, data, maps, trees, commands."""

from __future__ import annotations

import configparser
import doctest
import importlib
import inspect
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness.blocks import TAB, Block
from tests.harness.page import Failure, Page


def difference(headline: str, expected: str, got: str) -> str:
    """Say that output differs, with both sides."""
    return f"{headline}\n--- the page\n{expected}\n+++ the run\n{got}"


def check_dots(expected: str, got: str) -> None:
    """Refuse three dots that stand for more than half of the output.

    Raises:
        Failure: the page shows too little of it.
    """
    literal = len("".join(expected.replace("...", "").split()))
    if 2 * literal < len("".join(got.split())):
        raise Failure("... stands for more than half of the output; show more of it")


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


def run_json(_: Page, block: Block) -> str:
    """Parse JSON; duplicate keys, NaN and infinities are refused."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        _refuse_twice([key for key, _ in items])
        return dict(items)

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def parse(text: str) -> Any:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)

    return _parsed("JSON", parse, block)


def run_toml(_: Page, block: Block) -> str:
    """Parse TOML."""
    return _parsed("TOML", tomllib.loads, block)


def run_ini(_: Page, block: Block) -> str:
    """Parse an INI file."""
    return _parsed("INI", configparser.RawConfigParser(strict=True).read_string, block)


def _refuse_twice(keys: list[Any]) -> None:
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"the key {key!r} stands twice")


def _parsed(name: str, parse: Callable[[str], object], block: Block) -> str:
    try:
        parse(block.text)
    except (ValueError, configparser.Error) as error:
        raise Failure(f"not {name}: {error}") from None
    return ""


_COMMENT = re.compile(r"(?:^|\s)#[^'\"]*$")
_MORE_THAN_A_COMMAND = re.compile(r"\$\(|[;&|<>`]")


def check_make(page: Page, block: Block) -> str:
    """Check that each `make` target exists, and the syntax of `git`, `cd` and `pip` lines.

    One simple command per line: what stands behind a `&&` would not be looked at.
    """
    for line in block.text.split("\n"):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        more = _MORE_THAN_A_COMMAND.search(_COMMENT.sub("", line))
        if more:
            raise Failure(f"{more[0]} in {line}; write one simple command per line")
        if words[0] == "make":
            _check_target(page.root, words)
        elif words[0] in {"git", "cd", "pip"}:
            _check_syntax(line)
        else:
            raise Failure(f"{words[0]} can run here; move it to a block of its own")
    return ""


def _check_target(root: Path, words: list[str]) -> None:
    makefile = root / "Makefile"
    if not makefile.is_file():
        raise Failure("there is no Makefile; add it")
    rules = re.findall(r"^([\w .-]+):(?!=)", makefile.read_text(encoding="utf-8"), re.MULTILINE)
    defined = {name for rule in rules for name in rule.split()}
    for target in (word for word in words[1:] if "=" not in word):
        if target not in defined:
            raise Failure(f"the Makefile has no target {target}; correct the command")
    dry = subprocess.run(
        ["make", "-n", *words[1:]], cwd=root, capture_output=True, text=True, check=False
    )
    if dry.returncode:
        raise Failure(f"{shlex.join(words)} would fail\n{dry.stderr}")


def _check_syntax(line: str) -> None:
    result = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False)
    if result.returncode:
        raise Failure(f"the shell cannot read: {line}\n{result.stderr}")
