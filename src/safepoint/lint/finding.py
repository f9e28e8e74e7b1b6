"""Finding: one place in a file, and what to write there instead."""

from __future__ import annotations

from dataclasses import dataclass

from safepoint.errors import shell
from safepoint.lint.ids import IDS


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One load that a reviewer should not miss, or one file that was not looked at.

    Attributes:
        path: the file, as it was named.
        cell: the cell of a notebook, from 1, and 0 elsewhere.
        line: the line, from 1.
        column: the column, from 1, in characters.
        id: the kind of finding, for example "SL01".
        what: what stands there, as one sentence on one line.
        last: the last line of what was found.
    """

    path: str
    cell: int
    line: int
    column: int
    id: str
    what: str
    last: int = 0

    @property
    def rule(self) -> str:
        """The rule that it breaks, for example "SP23"."""
        return IDS[self.id].rule

    @property
    def fix(self) -> str:
        """What to do about it."""
        return IDS[self.id].fix

    @property
    def place(self) -> str:
        """Where it is, as most editors understand it."""
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{shell(self.path)}:{cell}{self.line}:{self.column}"

    def __str__(self) -> str:
        return f"{self.place}: {self.id} {self.what} {self.fix}"
