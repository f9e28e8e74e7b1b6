"""Ways to write a load, for the linters. They stand in linter_cases.txt, one in a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Case:
    """One way to write a load.

    Attributes:
        name: the name of its file.
        bandit: the test of Bandit that finds it, or none.
        ruff: the rule of Ruff that finds it, or none.
        ours: the ids of `safepoint lint` that find it.
        shown: how the page shows it.
        code: the file.
    """

    name: str
    bandit: str
    ruff: str
    ours: str
    shown: str
    code: str


_LINES: Final = [
    line.replace("\\n", "\n").split("\t")
    for line in Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines()
    if not line.startswith("# ")
]
UNSAFE: Final = tuple(Case(*line) for line in _LINES if len(line) == 6)
SAFE: Final = {line[0]: line[1] for line in _LINES if len(line) == 2}
