"""The attacks, read from the files in which they stand as SQL.

A line `-- # id rule` begins one, with words after it that say what is special. The lines after it
are its story. Tries are parted by an empty line, and each statement ends with a line that ends in
a semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, cast

from safepoint.attacks.sql.kit import SqlAttack, Try, Wants

FILES: Final = ("records", "ownership", "rights", "residue")
_HEADING: Final = re.compile(r"^-- # ", re.MULTILINE)
_WANTS: Final = ("answer", "block")


def attacks() -> Iterator[SqlAttack]:
    """Yield every attack, in the order of the files."""
    for name in FILES:
        text = files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
        yield from map(_attack, _HEADING.split(text)[1:])


def _attack(text: str) -> SqlAttack:
    heading, *lines = text.splitlines()
    name, rule, *special = heading.split()
    story = " ".join(line.removeprefix("-- ") for line in lines if line.startswith("--"))
    body = "\n".join(line for line in lines if not line.startswith("--"))
    return SqlAttack(
        name,
        rule,
        story,
        tuple(_try(block) for block in re.split(r"\n\s*\n", body.strip())),
        wants=cast("Wants", next((word for word in special if word in _WANTS), "change")),
        residue="residue" in special,
        spoils="spoils" in special,
    )


def _try(block: str) -> Try:
    return tuple(each.strip() for each in f"{block}\n".split(";\n") if each.strip())
