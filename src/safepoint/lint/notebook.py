"""Notebooks: their code cells as one module, since a name of one cell reaches the next."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from safepoint.lint.finding import Finding
from safepoint.lint.parsing import is_python

# A line that goes on with an operator, such as `% 3` or `!= 3`, is none.
_MAGIC: Final = re.compile(r"\s*(?:%{1,2}[A-Za-z_]|!(?!=)|\?).*|.*\?\s*")


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell.

    Attributes:
        number: its place in the notebook, from 1.
        code: what of it is Python. A line that is not is a `pass`.
        magic: the other lines, where they stand, for the shell and for IPython.
    """

    number: int
    code: str
    magic: list[str]


@dataclass(frozen=True, slots=True)
class Joined:
    """Several cells as one text."""

    code: str
    starts: list[tuple[int, Cell]]

    def located(self, finding: Finding) -> Finding:
        """Return a finding with its cell, and the line in that."""
        before, cell = next(each for each in reversed(self.starts) if each[0] < finding.line)
        return replace(
            finding,
            cell=cell.number,
            line=finding.line - before,
            last=finding.last - before,
        )


@dataclass(frozen=True, slots=True)
class Notebook:
    """The code cells of a notebook."""

    cells: list[Cell]

    @staticmethod
    def joined(cells: list[Cell]) -> Joined:
        """Return some cells as one text."""
        starts, lines = [], 0
        for cell in cells:
            starts.append((lines, cell))
            lines += cell.code.count("\n") + 1
        return Joined("\n".join(cell.code for cell in cells), starts)


def read_notebook(data: bytes) -> Notebook:
    """Read the code cells.

    Raises:
        ValueError: it is not a notebook of a known form.
    """
    try:
        content = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise ValueError("no list of cells")  # noqa: TRY004  all of it is one kind of error
    found = [_cell(number, cell) for number, cell in enumerate(cells, 1)]
    return Notebook([cell for cell in found if cell is not None])


def _cell(number: int, cell: Any) -> Cell | None:
    if not isinstance(cell, dict):
        raise ValueError("a cell of an unknown form")  # noqa: TRY004
    if cell.get("cell_type") != "code":
        return None
    source = cell.get("source", "")
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    lines = text.split("\n")
    if text.lstrip().startswith("%%"):
        python = text.lstrip().startswith(("%%time", "%%capture", "%%prun"))
        kept = ["pass", *lines[1:]] if python else ["pass" for _ in lines]
        return Cell(number, "\n".join(kept), [""] * len(lines) if python else lines)
    if is_python(text):
        return Cell(number, text, [])
    kept, magic = [], []
    for line in lines:
        is_magic = _MAGIC.fullmatch(line) is not None
        indent = line[: len(line) - len(line.lstrip())]
        kept.append(f"{indent}pass" if is_magic else line)
        magic.append(line if is_magic else "")
    return Cell(number, "\n".join(kept), magic)
