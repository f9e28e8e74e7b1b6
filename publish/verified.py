"""The page "How this site is verified", from the evidence and from the HTML that was built."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import Final

from publish.evidence import Evidence, counted
from publish.project import Page, Project
from safepoint.rules import LEGS, Rule
from tests.harness.callouts import shown
from tests.harness.evidence import OUTCOMES, Result

_CENSUS: Final = "(The census of this build stands here.)"
_NAMED: Final = 50  # failures on a page; the evidence has them all
_TOLD: Final[tuple[Result, ...]] = ("passed", "failed", "skipped")
_NAMES: Final = {"defence": "example"}
"""The words for legs that have another name in the rules."""


def line(project: Project) -> str:
    """Return one sentence for the home page."""
    found = project.evidence
    if alarm := _alarm(found):
        return f"{alarm}\n\n    [How this site is verified](verified.md)."
    if found.state == "current" and found.run:
        said = (
            f"The tests ran {found.counts['ran']} blocks of code and output, on these pages and in "
            f"the repository, on {found.run.started:%Y-%m-%d}, with Python {found.run.python}."
        )
    elif found.entries:
        said = "Some examples changed after the last test run. Each block shows its status."
    else:
        said = "This copy was built without a run of its blocks."
    return f"{said} [How this site is verified](verified.md)."


def _alarm(found: Evidence) -> str:
    """Return a red callout that names what failed, if the run failed or was not whole."""
    if found.state not in ("failed", "partial"):
        return ""
    failures = found.failures
    named = [f"    - `{name}`" for name in failures[:_NAMED]]
    if len(failures) > _NAMED:
        named.append(f"    - and {len(failures) - _NAMED} more")
    title = "The tests failed" if found.state == "failed" else "Not all tests ran"
    return "\n".join([f'!!! failure "{title}"', "", f"    {found.said}", "", *named])


def of_page(page: Page, counts: Counter[str], project: Project) -> str:
    """Return a few words on a page's blocks, in red if one, or a test that it names, failed."""
    failed = project.evidence.failed_on(f"docs/{page.src}", page.tests)
    said = _of_blocks(page, counts, project)
    if failed or counts["failed"]:
        tests = f" Failed: {', '.join(failed)}." if failed else ""
        return f'<strong class="failed">{escape(f"{said}.{tests}")}</strong>'
    return said


def _of_blocks(page: Page, counts: Counter[str], project: Project) -> str:
    found = project.evidence
    if not counts.total():
        return "No blocks to run"
    if not found.entries:
        return "Built without evidence"
    late = "; the page has changed since" if found.is_late(f"docs/{page.src}") else ""
    return f"Blocks: {counted(counts)}{late}"


def evidence(project: Project) -> str:
    """Return what the evidence is worth."""
    return _alarm(project.evidence) or f"**{project.evidence.said}**"


def versions(project: Project) -> str:
    """Return when the blocks began to run, from which commit, and on what."""
    found = project.evidence
    if not (found.entries and found.run):
        return "This build knows of no run."
    deep, totals = found.run.deep, found.totals
    told = [f"{totals[name]:,} {name}" for name in _TOLD]
    told += [f"{deep:,} long ones left for `make deep`"] if deep else []
    rows = [
        "| what | which |",
        "|:---|:---|",
        f"| began | {found.run.started:%Y-%m-%d %H:%M} UTC |",
        f"| commit of the run | `{found.run.commit or 'none'}` |",
        f"| commit of this site | `{project.commit or 'none'}` |",
        f"| tests, blocks among them | {totals.total():,}: {', '.join(told)} |",
        f"| exit status | `{found.status}` |",
        f"| system | {found.run.system} |",
    ]
    return "\n".join(
        rows + [f"| {name} | `{version}` |" for name, version in found.versions.items()]
    )


def census(project: Project) -> str:
    """Return what the evidence holds by language, and where the build counts what it shows."""
    found = project.evidence
    languages: dict[str, Counter[str]] = {}
    for entry in found.entries:
        if entry.block:
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
    said = f"This build shows {counts.total()} blocks"
    if project.evidence.entries:
        said += f": {counted(counts)}.{_sum(counts, project.evidence)}"
    else:
        said += ", and has evidence of none."
    return text.replace(_CENSUS, said)


def _sum(counts: Counter[str], found: Evidence) -> str:
    """Say how many blocks of the evidence no page shows."""
    here = counts.total() - counts["never"]
    elsewhere = found.counts.total() - here
    if elsewhere <= 0:
        return ""
    return (
        f" The evidence is of {found.counts.total()} blocks: {here} on these pages, {elsewhere} "
        "elsewhere, in the README, in CONTRIBUTING and in docstrings that no page shows."
    )


def matrix(project: Project) -> str:
    """Return how many rules are whole, and each of them with what it stands on."""
    rules, found = project.rules.values(), project.evidence
    whole = sum(not rule.missing for rule in rules)
    head = f"{whole} of {len(rules)} rules stand on all four"
    if found.proofs:
        parts = []
        for leg in LEGS:
            ends = [_end(leg, name, found) for name in {n for r in rules for n in r.legs[leg]}]
            ends = [end for end in ends if end]
            word = _NAMES.get(leg, leg)
            parts.append(f"{ends.count('passed')} of {len(ends)} {word}s")
        late = " (files have changed since)" if found.changed else ""
        head += f". Passed in that run{late}: {', '.join(parts[:-1])} and {parts[-1]}."
    else:
        head += ": named, not run."
    return "\n\n".join([head, *(_stands(rule, found) for rule in rules)])


def _stands(rule: Rule, found: Evidence) -> str:
    """Return one rule, folded up: how many of its legs passed, and behind it their names."""
    ends = Counter(_end(leg, name, found) for leg in LEGS for name in rule.legs[leg])
    del ends[""]
    if found.proofs:
        said = [f"{ends['passed']} of {ends.total()} passed"]
        said += [f"{ends[end]} {end}" for end in ("failed", "skipped", "not run") if ends[end]]
    else:
        said = ["named, not run"]
    said += [f"{_NAMES.get(leg, leg)} planned" for leg in rule.missing]
    if not ends:
        said = ["planned"]
    lines = [f"- rule: [{rule.id}](rules.md#{rule.id.lower()})"]
    lines += [_leg(leg, rule.legs[leg], found) for leg in LEGS if rule.legs[leg]]
    body = "\n".join(f"    {line}" for line in lines)
    return f'??? legs "{rule.id} {rule.title}: {", ".join(said)}"\n\n{body}'


def _leg(leg: str, names: tuple[str, ...], found: Evidence) -> str:
    """Return what a leg names, with a word on each that did not pass."""
    links: list[str] = []
    for name in names:
        end = _end(leg, name, found)
        whose = "" if leg == "test" or end == "not run" else "its tests "
        said = f" ({whose}{end})" if found.proofs and end not in ("", "passed") else ""
        test, _, case = name.partition("::test_")[2].partition("[")
        sentence = test.replace("_", " ") + (f": `{case[:-1]}`" if case else "")
        links.append((sentence if leg == "test" else shown(leg, name)) + said)
    if leg == "test":
        return f"- test: {'; '.join(_by_file(names, links))}"
    return f"- {_NAMES.get(leg, leg)}: {', '.join(links)}"


def _by_file(names: tuple[str, ...], sentences: list[str]) -> list[str]:
    """Name each file once, before the first of its tests, and a test before the first case."""
    shown, last, before = list[str](), "", ""
    for name, sentence in zip(names, sentences, strict=True):
        file, test = name.partition("::")[0], name.partition("[")[0]
        if test == before:
            shown[-1] += f", {sentence.partition(': ')[2]}"
        else:
            shown.append(sentence if file == last else f"`{file}`: {sentence}")
        last, before = file, test
    return shown


def _end(leg: str, name: str, found: Evidence) -> str:
    """Return how the tests of a leg ended, or "" for a file that does not run by itself."""
    if leg == "defence" and not name.endswith(".py"):
        return ""
    return found.held(leg, name) or "not run"
