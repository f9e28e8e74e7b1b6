"""The zoo as it stands on its page: written from the data that the test runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tests.zoo.cases import BESIDE, BESIDE_DB, CASES

_LEFT_OUT: Final = {*BESIDE, *BESIDE_DB}


def table(statuses: Iterable[int], head: str) -> str:
    """Return a row for each deployment that ends with one of these statuses."""
    wanted = set(statuses)
    lines = [f"| name | {head} | what the audit says |", "|:---|:---|:---|"]
    for name, case in CASES.items():
        if case.status in wanted:
            ids = dict.fromkeys(
                each.partition(" ")[0] for each in case.found if each not in _LEFT_OUT
            )
            said = ", ".join(f"`{each}`" for each in ids) or "nothing"
            lines.append(f"| {name} | {case.what} | {said} |")
    return "\n".join(lines)


CONTENTS: Final = {
    "zoo bad": partial(table, [1], "what is wrong"),
    "zoo unseen": partial(table, [2], "what is wrong"),
    "zoo good": partial(table, [0], "what it is"),
}
