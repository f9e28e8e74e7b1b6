"""How large each part of the house is, beside its ceiling: `make size`.

A code line is one that is neither blank nor only a comment or a docstring. The unit is the idea:
a ceiling falls when the code does, and a commit that raises one says why.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "src/safepoint"
_KERNEL: Final = [f"{PACKAGE}/core", f"{PACKAGE}/stores", f"{PACKAGE}/resume"]
_SHARED: Final = ["places", "settings", "rules", "aio", "__init__", "../pytest_safepoint"]
CEILINGS: Final = {
    "core": ([f"{PACKAGE}/core"], 2888),
    "stores": ([f"{PACKAGE}/stores"], 2262),
    "resume": ([f"{PACKAGE}/resume"], 1774),
    "core + stores + resume": (_KERNEL, 6924),
    "langgraph": ([f"{PACKAGE}/langgraph.py"], 959),
    "agent_framework": ([f"{PACKAGE}/agent_framework.py"], 350),
    "moving": ([f"{PACKAGE}/moving.py"], 750),
    "what all share": ([f"{PACKAGE}/{name}.py" for name in _SHARED], 765),
    "models": ([f"{PACKAGE}/models"], 3754),
    "audit": ([f"{PACKAGE}/audit"], 2486),
    "attacks": ([f"{PACKAGE}/attacks"], 2844),
    "console": ([f"{PACKAGE}/console"], 1694),
    "testing": ([f"{PACKAGE}/testing"], 828),
    "command": ([f"{PACKAGE}/command", f"{PACKAGE}/shared"], 1700),
    "all of src": (["src"], 23053),
    "tests": (["tests"], 31195),
    "publish": (["publish"], 1744),
    "benchmarks": (["benchmarks"], 1500),
}
_OPEN: Final = re.compile(r"[a-z]*(\"{3}|'{3})", re.I)


class Part(NamedTuple):
    """A part of the house, its code lines, how many there may be, and its files."""

    name: str
    lines: int
    ceiling: int
    files: int


@cache
def code_lines(path: Path) -> int:
    """Count the lines of a file that are code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        lines = (line.strip() for line in text.splitlines())
        return sum(1 for line in lines if line and not line.startswith("--"))
    written = text.splitlines()
    code = {n for n, line in enumerate(written, 1) if line.strip() and line.lstrip()[0] != "#"}
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                docstrings.update(_lines(node.body[0]))
        elif isinstance(node, ast.Constant | ast.JoinedStr) and _OPEN.match(
            written[node.lineno - 1], node.col_offset
        ):
            code.update(_lines(node))  # an empty line in a text is a part of it
    return len(code - docstrings)


def _lines(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or 0) + 1)


def _files(place: str) -> list[Path]:
    path = ROOT / place
    if path.is_file():
        return [path]
    kinds = ("*.py", "*.sql") if place.startswith("src") else ("*.py",)
    return [each for kind in kinds for each in path.rglob(kind) if each.is_file()]


def measure() -> Iterator[Part]:
    """Measure each part of the house."""
    for name, (places, ceiling) in CEILINGS.items():
        files = [path for place in places for path in _files(place)]
        yield Part(name, sum(map(code_lines, files)), ceiling, len(files))


if __name__ == "__main__":
    for part in measure():
        over = "  over its ceiling" if part.lines > part.ceiling else ""
        print(
            f"{part.lines:7,} of {part.ceiling:6,} lines, {part.files:3} files  {part.name}{over}"
        )
