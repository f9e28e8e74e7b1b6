"""The page "How this site is verified", from the evidence and from the HTML that was built."""

from __future__ import annotations

from collections import Counter
from typing import Final

from publish.marks import Count
from publish.project import Page, Project
from publish.zensical import DIFFERENCES
from safepoint.rules import LEGS
from tests.harness.evidence import Outcome

_CENSUS: Final = "<!-- census of this build -->"


def line(project: Project) -> str:
    """Return one sentence for the home page."""
    found = project.evidence
    if found.state != "current" or found.started is None:
        return f"{found.said} [How this site is verified](verified.md)."
    ran = found.counts["ran"]
    return (
        f"{ran} blocks of code on these pages and in the package ran on "
        f"{found.started:%Y-%m-%d}, on the versions that each one names. "
        "[How this site is verified](verified.md)."
    )


def of_page(page: Page, project: Project) -> str:
    """Return a few words on the blocks of one page."""
    found = project.evidence
    if not found.entries:
        return "Built without evidence"
    entries = found.of(f"docs/{page.src}")
    if not entries:
        return "No blocks to run"
    ran = sum(entry.outcome == "ran" for entry in entries)
    blocks = "block" if len(entries) == 1 else "blocks"
    late = ", before later changes" if found.changed else ""
    return f"{ran} of {len(entries)} {blocks} ran{late}"


def evidence(project: Project) -> str:
    """Return when, on what, and from which commit."""
    found = project.evidence
    lines = [f"**{found.said}**"]
    if found.state in ("stale", "other commit"):
        lines.append("Changed since: " + ", ".join(f"`{name}`" for name in found.changed) + ".")
    if not found.entries:
        return "\n\n".join(lines)
    rows = ["| what | which |", "|:---|:---|"]
    if found.started:
        rows.append(f"| began | {found.started:%Y-%m-%d %H:%M} UTC |")
    rows.append(f"| commit of the run | `{found.commit or 'none, or several'}` |")
    rows.append(f"| commit of this site | `{project.commit or 'none'}` |")
    systems = ", ".join(sorted({run.system for run in found.runs.values()}))
    rows.append(f"| system | {systems} |")
    rows += [f"| {name} | {version} |" for name, version in found.versions.items()]
    return "\n\n".join([*lines, "\n".join(rows)])


def census(project: Project) -> str:
    """Return what the evidence holds by language, and where the build counts what it shows."""
    found = project.evidence
    languages: dict[str, Counter[str]] = {}
    for entry in found.entries:
        if entry.number:
            languages.setdefault(entry.language, Counter())[entry.outcome] += 1
    if not languages:
        return _CENSUS
    outcomes: tuple[Outcome, ...] = ("ran", "checked", "skipped", "failed")
    rows = ["| language | ran | checked only | skipped | failed |", "|:---|---:|---:|---:|---:|"]
    for language, counts in sorted(languages.items()):
        rows.append(f"| {language} | " + " | ".join(str(counts[o]) for o in outcomes) + " |")
    totals = " | ".join(str(found.counts[outcome]) for outcome in outcomes)
    rows.append(f"| **all** | {totals} |")
    return "\n".join([_CENSUS, "", *rows])


def with_census(html: str, count: Count, project: Project) -> str:
    """Put the count of this build where the page leaves room for it."""
    if project.evidence.entries:
        said = f"<strong>This build: {count}.</strong>"
    else:
        said = f"<strong>This build shows {count.total} blocks, and has evidence of none.</strong>"
    return html.replace(_CENSUS, f"<p>{said}</p>")


def matrix(project: Project) -> str:
    """Return each rule with what it stands on."""
    rows = ["| rule | " + " | ".join(LEGS) + " |", "|:---|" + ":---|" * len(LEGS)]
    for rule in project.rules.values():
        cells = []
        for leg in LEGS:
            names = [name.rpartition("/")[2] for name in rule.legs[leg]]
            cells.append("<br>".join(f"`{name}`" for name in names) or "planned")
        rows.append(f"| [{rule.id}](rules.md#{rule.id.lower()}) | " + " | ".join(cells) + " |")
    return "\n".join(["", *rows])


def differences(project: Project) -> str:  # noqa: ARG001  every fill is given the project
    """Return what is not the same with the other generator."""
    return "\n".join(f"- {difference}" for difference in DIFFERENCES)
