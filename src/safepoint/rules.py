"""The rules, read from `rules.toml`: the one place where the guidance is written down."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, Literal

Severity = Literal["danger", "warning", "info"]
LEGS: Final = ("attack", "defence", "test", "check")


@dataclass(frozen=True, slots=True)
class Rule:
    """One piece of guidance, and the four legs that it stands on.

    Attributes:
        id: `SP01`, for example; it never changes its meaning.
        theme: the group in which the rules page lists it.
        title: the rule as one line.
        severity: how much ignoring it costs.
        source: where the rule comes from, as it should read.
        callout: the text that every page shows, word for word.
        page: the page that teaches it, or None while it is planned.
        legs: for attack, defence, test and check, what holds the rule up today.
    """

    id: str
    theme: str
    title: str
    severity: Severity
    source: str
    callout: str
    page: str | None
    legs: Mapping[str, tuple[str, ...]]

    @property
    def missing(self) -> tuple[str, ...]:
        """The legs that are still planned."""
        return tuple(leg for leg in LEGS if not self.legs[leg])


def package_toml(name: str) -> dict[str, Any]:
    """Return what a file of this package says.

    Raises:
        ValueError: it is no TOML; the message has the file, and the line.
    """
    text = resources.files("safepoint").joinpath(name).read_text(encoding="utf-8")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"src/safepoint/{name}: {error}; mend it") from None


def _read() -> Mapping[str, Rule]:
    data = package_toml("rules.toml")
    rules: dict[str, Rule] = {}
    for entry in data["rule"]:
        legs = entry.pop("legs", {})
        entry["callout"] = entry["callout"].strip()
        entry["source"] = data["source"][entry["source"]]
        legs["test"] = _cases(legs.get("test", ()), legs.get("attack", ()))
        held = MappingProxyType({leg: tuple(legs.get(leg, ())) for leg in LEGS})
        rules[entry["id"]] = Rule(**{"page": None, **entry}, legs=held)
    return MappingProxyType(rules)


def _cases(tests: Iterable[str], attacks: Iterable[str]) -> Iterator[str]:
    """Yield each test; of one with `[attack`, the case of each attack that no other test names."""
    rest = [attack for attack in attacks if not any(f"[{attack}" in test for test in tests)]
    for test in tests:
        cases = [test.replace("[attack", f"[{attack}") for attack in rest]
        yield from cases if "[attack" in test else [test]


RULES: Final = _read()
"""Every rule by its id, in order."""
