"""The zoo as it stands on its page: written from the data that the test runs."""

from __future__ import annotations

from typing import Final

from tests.zoo.cases import CASES, Case


def tables() -> str:
    """Return a table for each kind of place, with a row for each deployment."""
    lines: list[str] = []
    for kind in dict.fromkeys(case.kind for case in CASES.values()):
        lines += ['<div class="fold" markdown>', "", f"### {kind}", ""]
        lines += ["| name | what it is | exit | what the audit says |", "|:---|:---|:---|:---|"]
        lines += [*_rows(kind), "", "</div>", ""]
    return "\n".join(lines[:-1])


def _rows(kind: str) -> list[str]:
    return [
        f"| {name} | {case.what} | {case.status} | {_said(case)} |"
        for name, case in CASES.items()
        if case.kind == kind
    ]


def _said(case: Case) -> str:
    """Return the ids of what is found, each once."""
    said = dict.fromkeys(
        f"`{each.split()[0]}`" + " (accepted)" * each.endswith(" accepted") for each in case.found
    )
    return ", ".join(said) or "nothing"


CONTENTS: Final = {"zoo": tables}
