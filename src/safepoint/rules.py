"""The rules, read from `rules.toml`, the only place where the guidance is written."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, Literal

Level = Literal["danger", "warning", "info"]
LEGS: Final = ("attack", "defence", "test", "check")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the guidance, with its four legs.

    Attributes:
        id: for example `SP01`. Its meaning never changes.
        theme: the group in which the rules page lists it.
        title: the rule as one line.
        severity: how serious it is to ignore it.
        source: where the rule comes from, as text to show.
        callout: the text that every page shows unchanged.
        page: the page that teaches it, or None while it is planned.
        legs: the names that support the rule today, for attack, defence, test and check.
        cwe: the weaknesses that it addresses, by their CWE number.
    """

    id: str
    theme: str
    title: str
    severity: Level
    source: str
    callout: str
    page: str | None
    legs: Mapping[str, tuple[str, ...]]
    cwe: Sequence[int] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """The legs that are still planned."""
        return tuple(leg for leg in LEGS if not self.legs[leg])


def package_toml(name: str) -> dict[str, Any]:
    """Return the content of a TOML file of this package.

    Raises:
        ValueError: it is not TOML; the message names the file and the line.
    """
    text = resources.files("safepoint").joinpath(name).read_text(encoding="utf-8")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"src/safepoint/{name}: {error}; fix it") from None


def _read() -> Iterator[Rule]:
    data = package_toml("rules.toml")
    for entry in data["rule"]:
        legs = entry.pop("legs", {})
        entry["callout"] = entry["callout"].strip()
        entry["source"] = data["source"][entry["source"]]
        legs["test"] = _cases(legs.get("test", ()), legs.get("attack", ()))
        legs = MappingProxyType({leg: tuple(legs.get(leg, ())) for leg in LEGS})
        yield Rule(**{"page": None, **entry}, legs=legs)


def _cases(tests: Iterable[str], attacks: Iterable[str]) -> Iterator[str]:
    """Yield each test; expand `[attack` to a case for each attack that no other test names."""
    rest = [attack for attack in attacks if not any(f"[{attack}" in test for test in tests)]
    for test in tests:
        cases = [test.replace("[attack", f"[{attack}") for attack in rest]
        yield from cases if "[attack" in test else [test]


RULES: Final[Mapping[str, Rule]] = MappingProxyType({rule.id: rule for rule in _read()})
"""Every rule by its id, in order."""
