"""Find the blocks in the docstrings of a module, with the line numbers of the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.harness.blocks import ROOT, Problem, Scan, scan_page

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def scan_docstrings(source: str, path: str | Path, *, root: Path = ROOT) -> list[Scan]:
    """Return one scan per docstring that has blocks or problems, in the order of the file."""
    page = Path(path).as_posix()
    scans: list[Scan] = []
    count = 0
    for node in sorted(_docstrings(ast.parse(source)), key=lambda node: node.lineno):
        text = str(node.value)
        scan = scan_page(text, page, root=root, first_line=node.lineno)
        spans_lines = (node.end_lineno or node.lineno) - node.lineno
        if scan.blocks and text.count("\n") != spans_lines:
            message = 'escapes move the lines of this docstring; write r"""'
            scan = Scan(problems=[Problem(page, node.lineno, message)])
        scan.blocks = [
            replace(block, number=number) for number, block in enumerate(scan.blocks, count + 1)
        ]
        count += len(scan.blocks)
        if scan.blocks or scan.problems:
            scans.append(scan)
    return scans


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield docstrings, and the strings below an assignment that documentation tools read too."""
    for node in ast.walk(tree):
        if not isinstance(node, _DOCUMENTED):
            continue
        for index, statement in enumerate(node.body):
            documents = index == 0 or isinstance(node.body[index - 1], (ast.Assign, ast.AnnAssign))
            if documents and isinstance(statement, ast.Expr):
                value = statement.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value
