"""The environment variable that turns the safe default of torch.load off, in code and in text."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

NAME: Final = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
WHAT: Final = f"{NAME} lets every load without a flag run what the file says."

_ON: Final = {"1", "y", "yes", "true"}
_SETTERS: Final = {"__setitem__", "putenv", "setdefault", "setenv", "setitem"}
_MENTION: Final = re.compile(rf"(?<![A-Za-z0-9_]){NAME}(?![A-Za-z0-9_])")
# What follows the name: =1, : "yes", or a reference to something else.
_VALUE: Final = re.compile(r"""["']?\s*[=:]\s*["']?([^\s"',;)}\]]*)""")
_COMMENT: Final = re.compile(r"^\s*(?:#|//|;|--\s)")
_UNSET: Final = re.compile(r"(?:\bunset\s[^;&|]*|\benv\s+(?:-\w+\s+\S+\s+)*-u\s*|\$\{?)$")

Text = Callable[[ast.expr | None], str | None]


def set_by(node: ast.AST, text: Text) -> bool:
    """Tell whether a statement or an expression sets the variable.

    Args:
        node: any node of a file.
        text: returns the text that an expression is, if it is one.
    """
    return any(text(key) == NAME and _is_on(value, text) for key, value in _pairs(node))


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr | None, ast.expr | None]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Subscript):
                    yield target.slice, value
        case ast.Dict(keys=keys, values=values):
            yield from zip(keys, values, strict=True)
        case ast.Call(func=function, args=arguments, keywords=keywords):
            for keyword in keywords:
                yield ast.Constant(keyword.arg), keyword.value
            name = getattr(function, "attr", getattr(function, "id", ""))
            if name in _SETTERS:
                yield from pairwise(arguments)


def _is_on(value: ast.expr | None, text: Text) -> bool:
    found = text(value)
    return found is None or found.lower() in _ON


def mentions(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield each line and column, from 1, of a text that may set the variable."""
    for number, line in enumerate(lines, 1):
        if NAME not in line or _COMMENT.match(line):
            continue
        for found in _MENTION.finditer(line):
            if _UNSET.search(line, 0, found.start()) or " #" in line[: found.start()]:
                continue
            value = _VALUE.match(line, found.end())
            if value is None or "$" in value[1] or value[1].lower() in _ON:
                yield number, found.start() + 1
