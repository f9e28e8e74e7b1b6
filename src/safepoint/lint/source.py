"""One file: parsed and looked at, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from safepoint.lint.allow import allows_in_code, allows_in_text, apply
from safepoint.lint.environment import NAME, WHAT, mentions
from safepoint.lint.finding import Finding
from safepoint.lint.names import Tangled
from safepoint.lint.notebook import Notebook, read_notebook
from safepoint.lint.parsing import parse
from safepoint.lint.visitor import Visitor

LARGEST: Final = 8 * 1024 * 1024


def check_source(data: bytes | str, path: str = "<text>") -> list[Finding]:
    r"""Look at the Python code of one file.

    ```python
    from safepoint.lint import check_source

    code = 'import torch as th\nth.load("model.pt", weights_only=False)\n'
    for finding in check_source(code, "train.py"):
        print(finding.place, finding.id, finding.rule)
        #> train.py:2:1 SL02 SP24
    ```

    Returns:
        What was found, from top to bottom. A file that cannot be parsed is a finding of its own.
    """
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if PurePath(path).suffix == ".ipynb":
        return sorted(_check_notebook(data, path))
    return sorted(_check_python(data, path))


def check_text(data: bytes, path: str) -> list[Finding]:
    """Look for the environment variable in a file that is not Python: a workflow, a Dockerfile."""
    if NAME.encode() not in data.replace(b"\0", b""):  # UTF-16 is mostly that
        return []
    lines = data.replace(b"\0", b"").decode("utf-8", "replace").splitlines()
    findings = [Finding(path, 0, *place, "SL06", WHAT) for place in mentions(lines)]
    return sorted(apply(findings, allows_in_text(lines), path))


def unseen(path: str, why: str, line: int = 1, column: int = 1, cell: int = 0) -> Finding:
    """Return the finding that says why a file was not looked at."""
    return Finding(
        path, cell, max(line, 1), max(column, 1), "SL90", f"This was not looked at: {why}."
    )


def _check_python(data: bytes, path: str) -> Iterator[Finding]:
    try:
        tree = parse(data)
        findings = sorted(_visit(tree, data, path))
    except SyntaxError as error:
        why = ascii(error.msg)[1:-1][:80]  # it may quote the file
        yield unseen(path, f"it is not Python ({why})", error.lineno or 1, error.offset or 1)
    except ValueError as error:
        yield unseen(path, f"it is not Python ({error})")
    except (RecursionError, MemoryError):
        yield unseen(path, "it is nested too deeply")
    except Tangled:
        yield unseen(path, "it has too many names for the same thing")
    else:
        yield from apply(findings, allows_in_code(data), path)


def _visit(tree: ast.Module, data: bytes, path: str) -> Iterator[Finding]:
    lines = data.splitlines()
    for node, kind, what in Visitor(tree, walrus=b":=" in data).found():
        line: int = getattr(node, "lineno", 1)
        offset: int = getattr(node, "col_offset", 0)
        before = lines[line - 1][:offset] if line <= len(lines) else b""
        column = len(before.decode("utf-8", "replace")) + 1
        last: int = getattr(node, "end_lineno", None) or line
        if isinstance(node, ast.ClassDef):
            last = node.body[0].lineno  # what stands further down is about something else
        yield Finding(path, 0, line, column, kind, what, last)


def _check_notebook(data: bytes, path: str) -> Iterator[Finding]:
    try:
        notebook = read_notebook(data)
    except ValueError as error:
        yield unseen(path, f"it is not a notebook ({error})")
        return
    yield from _check_cells(notebook, path)


def _check_cells(notebook: Notebook, path: str) -> Iterator[Finding]:
    good = []
    for cell in notebook.cells:
        try:
            parse(cell.code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            yield unseen(path, "it is not Python", line, 1, cell.number)
        else:
            good.append(cell)
        for line, column in mentions(cell.magic):
            yield Finding(path, cell.number, line, column, "SL06", WHAT)
    joined = notebook.joined(good)
    for finding in _check_python(joined.code.encode("utf-8", "surrogatepass"), path):
        yield joined.located(finding)
