"""Which modules a block imports, by what stands in it."""

from __future__ import annotations

import ast
import re
from typing import Final

from tests.harness.blocks import Block
from tests.harness.versions import PACKAGES

_PROGRAMS: Final = {distribution: module for module, distribution in PACKAGES.items()}
_PYTHON_M = re.compile(r"\bpython3? +-m +(\w+)")
_FIRST_WORD = re.compile(r"(?:^|[|;&(])[ \t]*([\w.-]+)", re.MULTILINE)


def imported_by(block: Block) -> set[str]:
    """Return the modules that a block imports or starts, by their first names, or as PACKAGES."""
    if "data-check" in block.attributes:
        return set()
    if block.language == "sql":
        return {"safepoint.testing.postgres"}
    if block.language == "python":
        return _imported(block.text)
    if block.language == "bash":
        programs = set(_FIRST_WORD.findall(block.text))
        started = {module for name, module in _PROGRAMS.items() if name in programs}
        return started | set(_PYTHON_M.findall(block.text))
    return set()


def _imported(code: str) -> set[str]:
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return set()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    known = {key for name in names for key in PACKAGES if f"{name}.".startswith(f"{key}.")}
    return known | {name.partition(".")[0] for name in names} - {""}
