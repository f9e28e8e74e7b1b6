"""Catalogue: what the audit can find, for people: `safepoint explain` and the site show it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from safepoint.audit.finding import CATALOGUE
from safepoint.models.lint import IDS
from safepoint.rules import RULES
from safepoint.shared.explanations import EXPLANATIONS
from safepoint.shared.terminal import unknown

_BLANK: Final = re.compile(r"\{(?P<path>[\w.]+)[^}]*\}")
_WORDS: Final = {"at": "PATH", "by": "", "quoted": "NAME", "to": "SERVER", "where": "PLACE"}
"""What stands for a blank, where its name in capitals does not say it."""
_WHOLE: Final = {"severity": "as found", "do": "What it says."}
"""What stands for a text that is one blank."""
_REFUSALS: Final = {re.sub(r"\B(?=[A-Z])", "-", name).lower(): name for name in EXPLANATIONS}


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of finding.

    Attributes:
        id: under a rule, such as "SP04.mode"; under `any`, if more than one rule has it.
        severity: "error", "warning" or "note"; "as found" if that depends on what was.
        looks: what is looked at.
        says: what the audit says, with words in capitals for what varies.
        do: what to do, the same way.
        seen: False if it says that something was not looked at.
        refusal: the name of the error whose words it has, or None.
    """

    id: str
    severity: str
    looks: str
    says: str
    do: str
    seen: bool
    refusal: str | None

    @property
    def rule(self) -> str:
        """The id of the rule; "any" or "audit" if it has none of its own."""
        return self.id.partition(".")[0]

    @property
    def address(self) -> str:
        """Where the site shows it, from its root."""
        return f"command/checks/#{self.id}".lower()


def _check(which: str) -> Check:
    entry, name = CATALOGUE[which], which.partition(".")[2]
    said = {key: _readable(key, entry[key]) for key in ("severity", "looks", "what", "do")}
    refusal = None
    if "example" in entry:
        said |= dict(zip(("what", "do"), entry["example"], strict=True))
    elif (entry["what"], entry["do"]) == ("{what}", "{do}"):
        explained = EXPLANATIONS[_REFUSALS.get(name, "Unsafe")]
        refusal = explained.name
        first = explained.first if name in _REFUSALS else "What it says, with the command."
        said |= {"what": " ".join(explained.says.split()), "do": first}
    elif name.upper() in IDS:
        said |= {"what": f"PLACE has {name.upper()}: what is there.", "do": IDS[name.upper()].fix}
    severity, looks, says, do = said.values()
    return Check(which, severity, looks, says, do, entry.get("seen", True), refusal)


def _readable(key: str, text: str) -> str:
    """Return a text with words in its blanks."""
    if _BLANK.fullmatch(text):
        return _WHOLE.get(key, text)
    return _BLANK.sub(lambda blank: _word(blank["path"].rpartition(".")[2]), text)


def _word(name: str) -> str:
    return _WORDS.get(name, name.upper().replace("_", "-"))


CHECKS: Final[Mapping[str, Check]] = MappingProxyType({name: _check(name) for name in CATALOGUE})
"""Each kind of finding by its id."""

_FOLDED: Final = {name.lower(): name for name in CHECKS}


def check_of(which: str) -> Check:
    """Return the kind of a finding by its id, in capitals or not.

    Raises:
        NotFound: there is no such kind.
    """
    rule, _, name = which.lower().partition(".")
    shared = rule.upper() in RULES and _FOLDED.get(f"any.{name}")
    if found := _FOLDED.get(which.lower()) or shared:
        return CHECKS[found]
    raise unknown("finding", which, CHECKS, "Copy the id from what safepoint audit said.")
