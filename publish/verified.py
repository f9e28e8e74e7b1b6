"""The page "How this site is verified", from the evidence and from the HTML that was built."""

from __future__ import annotations

from collections import Counter
from typing import Final

from publish.marks import counted
from publish.project import Page, Project
from safepoint.rules import LEGS
from tests.harness.evidence import OUTCOMES

ZENSICAL: Final = "0.0.73"
DIFFERENCES: Final = (
    f"CI builds with version {ZENSICAL}, and fails if a page shows other blocks.",
    "Search is Zensical's own: it loads an index of the whole site with the first page.",
    "Its search writes styles into the page, so the policy allows inline styles there.",
    "The pages weigh more, and the spacing of the menu is its own.",
    "Warnings do not stop its build. What MkDocs would warn of stops ours before.",
)
"""What is not the same with Zensical, as sentences."""
_CENSUS: Final = "(The census of this build stands here.)"


def line(project: Project) -> str:
    """Return one sentence for the home page."""
    found = project.evidence
    if found.state == "current" and found.started is not None:
        said = (
            f"{found.counts['ran']} blocks of code on these pages and in the package ran on "
            f"{found.started:%Y-%m-%d}, on the versions that each one names."
        )
    elif found.entries:
        said = "Not everything here is as it was when it was last run. Each block says how it is."
    else:
        said = "This copy was built without a run of its blocks."
    return f"{said} [How this site is verified](verified.md)."


def of_page(page: Page, counts: Counter[str], project: Project) -> str:
    """Return a few words on the blocks that one page shows."""
    found = project.evidence
    if not counts.total():
        return "No blocks to run"
    if not found.entries:
        return "Built without evidence"
    words = dict[str, str](OUTCOMES.items()) | {"never": "not run"}
    parts = [f"{counts[outcome]} {word}" for outcome, word in words.items() if counts[outcome]]
    late = ", before later changes" if found.is_late(f"docs/{page.src}") else ""
    return f"Blocks: {', '.join(parts)}{late}"


def evidence(project: Project) -> str:
    """Return what the evidence is worth."""
    found = project.evidence
    lines = [f"**{found.said}**"]
    if found.changed:
        lines.append("Changed since: " + ", ".join(f"`{name}`" for name in found.changed) + ".")
    return "\n\n".join(lines)


def versions(project: Project) -> str:
    """Return when the blocks began to run, from which commit, and on what."""
    found = project.evidence
    if not found.entries:
        return "This build knows of no run."
    rows = ["| what | which |", "|:---|:---|"]
    if found.started:
        rows.append(f"| began | {found.started:%Y-%m-%d %H:%M} UTC |")
    rows.append(f"| commit of the run | `{found.commit or 'none, or several'}` |")
    rows.append(f"| commit of this site | `{project.commit or 'none'}` |")
    systems = ", ".join(sorted({run.system for run in found.runs.values()}))
    rows.append(f"| system | {systems} |")
    rows += [f"| {name} | `{version}` |" for name, version in found.versions.items()]
    return "\n".join(rows)


def census(project: Project) -> str:
    """Return what the evidence holds by language, and where the build counts what it shows."""
    found = project.evidence
    languages: dict[str, Counter[str]] = {}
    for entry in found.entries:
        if entry.number:
            languages.setdefault(entry.language, Counter())[entry.outcome] += 1
    if not languages:
        return _CENSUS
    rows = [f"| language | {' | '.join(OUTCOMES.values())} |", "|:---|" + "---:|" * len(OUTCOMES)]
    for language, counts in sorted(languages.items()):
        rows.append(f"| {language} | " + " | ".join(str(counts[o]) for o in OUTCOMES) + " |")
    totals = " | ".join(str(found.counts[outcome]) for outcome in OUTCOMES)
    rows.append(f"| **all** | {totals} |")
    return "\n".join([_CENSUS, "", *rows])


def with_census(text: str, counts: Counter[str], project: Project) -> str:
    """Put the count of this build where the page, or its twin, leaves room for it."""
    if project.evidence.entries:
        said = f"This build: {counted(counts)}."
    else:
        said = f"This build shows {counts.total()} blocks, and has evidence of none."
    return text.replace(_CENSUS, said)


def matrix(project: Project) -> str:
    """Return how many rules are whole, and each of them with what it stands on."""
    rules = project.rules.values()
    whole = sum(not rule.missing for rule in rules)
    names = {"defence": "example"}
    heads = [names.get(leg, leg) for leg in LEGS]
    rows = ["| rule | " + " | ".join(heads) + " |", "|:---|" + ":---|" * len(LEGS)]
    for rule in rules:
        cells = [f"[{rule.id}](rules.md#{rule.id.lower()}) {rule.title}"]
        for leg in LEGS:
            shown = [name.rpartition("/")[2] for name in rule.legs[leg]]
            cells.append("<br>".join(f"`{name}`" for name in shown) or "planned")
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join([f"{whole} of {len(rules)} rules stand on all four.", "", *rows])


def differences(project: Project) -> str:  # noqa: ARG001  every fill is given the project
    """Return what is not the same with the other generator."""
    return "\n".join(f"- {difference}" for difference in DIFFERENCES)
