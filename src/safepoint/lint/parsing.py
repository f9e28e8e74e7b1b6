"""Parsing: a file's own encoding, and no warnings about its style."""

from __future__ import annotations

import ast
import warnings


def parse(data: bytes | str) -> ast.Module:
    """Parse a file. Nothing in it runs.

    Raises:
        SyntaxError: it is not Python, or not of this version.
        ValueError: it has a null byte.
        RecursionError: it is nested too deeply.
        MemoryError: the same.
    """
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(data)


def is_python(text: str) -> bool:
    """Tell whether a text can be parsed."""
    try:
        parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
