"""Callouts: one text per rule, written into the pages between markers.

Run `python -m tests.harness.callouts` to fill them in, with `--check` to see that they are.
A page says `<!-- rule SP01 -->` and `<!-- /rule -->`; what stands between comes from `rules.toml`.
Between `<!-- ladder -->` and `<!-- /ladder -->` stands what the attacks do, run at that moment;
between `<!-- zoo bad -->` and `<!-- /zoo bad -->` what the audit must find in each deployment.
"""

from __future__ import annotations

import os.path
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from safepoint.audit.catalogue import check_of
from safepoint.rules import LEGS, RULES, Level, Rule
from tests.harness import ladder
from tests.harness.blocks import ROOT
from tests.zoo import page as zoo

RULES_PAGE: Final = "docs/rules.md"
LABELS: Final[Mapping[Level, str]] = {"danger": "Danger", "warning": "Warning", "info": "Note"}

CONTENTS: Final[Mapping[str, Callable[[], str]]] = {**ladder.CONTENTS, **zoo.CONTENTS}
_WHOLE = "|".join(sorted(["rules index", *CONTENTS], key=len, reverse=True))
_REGION = re.compile(
    rf"^ *```.*?^ *```$|^(?P<indent> *)<!-- (?P<name>rule \S+|{_WHOLE}) -->\n"
    rf"(?P<old>.*?)^ *<!-- /(?P<end>rule|{_WHOLE}) -->",
    re.MULTILINE | re.DOTALL,
)
"""A block of code, which stays as it is, or what a pair of markers holds."""
_START = re.compile(rf"^ *<!-- (?:rule \S+|{_WHOLE}) -->$", re.MULTILINE)


class CalloutError(ValueError):
    """A marker that cannot be filled in."""


def callout_markdown(rule: Rule, page: str) -> str:
    """Return the callout of a rule as it stands on a page, with its link relative to the page.

    It leads to the page that teaches the rule, and on that page to the list of rules. The empty
    line below the <div> lets readers that know no `markdown` attribute format the rest, and the
    word below that tells everyone how much it matters, without any style sheet.
    """
    target = f"{RULES_PAGE}#{rule.id.lower()}"
    if rule.page and page != f"docs/{rule.page}":
        target = f"docs/{rule.page}"
    link = os.path.relpath(target, Path(page).parent).replace(os.sep, "/")
    return (
        f'<div class="rule rule--{rule.severity}" markdown>\n\n'
        f"{LABELS[rule.severity]}\n\n"
        f"**[{rule.id}]({link}) · {rule.title}**\n\n"
        f"{rule.callout}\n"
        "</div>"
    )


def index_markdown(rules: Mapping[str, Rule]) -> str:
    """Return a table of all rules, then each under its theme with what holds it up."""
    themes = dict.fromkeys(rule.theme for rule in rules.values())
    parts = [_table(rules)]
    for theme in themes:
        parts.append(f"## {theme}")
        parts += (_entry(rule) for rule in rules.values() if rule.theme == theme)
    return "\n\n".join(parts)


def _table(rules: Mapping[str, Rule]) -> str:
    lines = ["| rule | what it says | severity |", "|:---|:---|:---|"]
    for rule in rules.values():
        title = f"[{rule.title}]({rule.page})" if rule.page else rule.title
        severity = f"*{LABELS[rule.severity].lower()}*{{ .severity--{rule.severity} }}"
        missing = "" if not rule.missing else f", {_planned(rule)}"
        lines.append(f"| [{rule.id}](#{rule.id.lower()}) | {title} | {severity}{missing} |")
    return "\n".join(lines)


def _planned(rule: Rule) -> str:
    return "planned" if len(rule.missing) == len(LEGS) else f"{', '.join(rule.missing)} planned"


def _entry(rule: Rule) -> str:
    there = [
        f"- {leg.capitalize()}: {', '.join(dict.fromkeys(shown(leg, n) for n in rule.legs[leg]))}"
        for leg in LEGS
        if rule.legs[leg]
    ]
    if rule.page:
        there.insert(0, f"- Page: [{rule.title}]({rule.page})")
    if there and rule.missing:
        there.append(f"- Planned: {', '.join(rule.missing)}")
    return (
        f'<div class="fold" markdown>\n\n### {rule.id} · {rule.title} {{ #{rule.id.lower()} }}\n\n'
        f"{rule.callout} *{LABELS[rule.severity]}; from {rule.source}.*"
        + ("\n\n" + "\n".join(there) if there else "")
        + "\n\n</div>"
    )


def shown(leg: str, reference: str) -> str:
    """Return a reference by its last and telling part, as a link to where the site shows it.

    A test is named without its case.
    """
    name = re.split(r"::|:|/", reference)[-1].partition("[")[0]
    targets = {
        "attack": f"attacks.md#{name}",
        "defence": f"examples/{name}",
        "check": f"command/checks.md#{check_of(name).id.lower() if leg == 'check' else ''}",
    }
    return f"[`{name}`]({targets[leg]})" if leg in targets else f"`{name}`"


def filled(text: str, page: str, rules: Mapping[str, Rule]) -> str:
    """Return the page with every region filled in.

    Raises:
        CalloutError: an unknown rule, or a marker without its end.
    """

    def fill(found: re.Match[str]) -> str:
        name, indent = found["name"], found["indent"]
        if name is None:
            return found[0]
        if _START.search(found["old"]) or found["end"] != re.sub(r"^rule .*", "rule", name):
            raise CalloutError(f"{page}: the callout {name} has no end; add it")
        lines = [f"{indent}{line}" if line else "" for line in _content(name, page, rules)]
        start, end = f"{indent}<!-- {name} -->", f"{indent}<!-- /{found['end']} -->"
        return "\n".join([start, *lines, end])

    if _START.search(_REGION.sub("", text)):
        raise CalloutError(f"{page}: the last callout has no end; add it")
    return _REGION.sub(fill, text)


def _content(name: str, page: str, rules: Mapping[str, Rule]) -> list[str]:
    if name == "rules index":
        return index_markdown(rules).split("\n")
    if name in CONTENTS:
        return CONTENTS[name]().split("\n")
    if (rule := name.removeprefix("rule ")) not in rules:
        raise CalloutError(f"{page}: there is no rule {rule}; see rules.toml")
    return callout_markdown(rules[rule], page).split("\n")


def pages(root: Path) -> list[Path]:
    """Return the files that may hold callouts."""
    return [file for file in (root / "README.md",) if file.is_file()] + sorted(
        (root / "docs").rglob("*.md")
    )


def main(
    arguments: Sequence[str] | None = None, *, root: Path = ROOT, rules: Mapping[str, Rule] = RULES
) -> int:
    """Fill in, or check; return 1 if a page was not as it should be."""
    check = "--check" in (sys.argv[1:] if arguments is None else arguments)
    status = 0
    for file in pages(root):
        page = file.relative_to(root).as_posix()
        text = file.read_text(encoding="utf-8")
        try:
            wanted = filled(text, page, rules)
        except CalloutError as error:
            print(error)
            status = 1
            continue
        if wanted != text and check:
            print(f"{page}: what is filled in is out of date. Run make fix")
            status = 1
        elif wanted != text:
            file.write_text(wanted, encoding="utf-8")
            print(f"{page}: filled in")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
