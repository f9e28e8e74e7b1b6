"""Finding: one thing that a check saw, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of one rule.

    Attributes:
        rule: the id of the rule, for example "SP04".
        severity: "error" if it is unsafe, "warning" if it may be, "note" if you should know.
        what: what was found, as one sentence on one line.
        do: what to do, with the command to run where there is one.
        where: the path that it is about, as it is.
    """

    rule: str
    severity: Literal["error", "warning", "note"]
    what: str
    do: str
    where: str

    def __str__(self) -> str:
        return f"{self.rule} {self.severity}: {self.what} {self.do}"
