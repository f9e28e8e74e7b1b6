"""Formats: what an audit says, for people and for programs.

Those for programs are complete. Text cuts long rows, and says how many more there are. In each of
them stands what somebody accepted, with the reason.
"""

from __future__ import annotations

import json as _json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from safepoint.audit.finding import (
    WORST_FIRST,
    Finding,
    Severity,
    listed,
)
from safepoint.audit.report import Report
from safepoint.audit.sarif import github_line, log, readable, tool
from safepoint.core.errors import shell
from safepoint.shared.terminal import counted

_SHOWN: Final = 20


def text(report: Report, *, status: int, fail_on: Severity) -> Iterator[str]:
    """Yield a line per finding, the worst first, what is accepted, and one line about all of it."""
    yield from _rows(each for each in report.findings if each.accepted is None)
    for each in report.findings:
        if each.accepted is not None:
            yield f"{each} Accepted: {each.accepted}"
    yield from _settings(report)
    yield _summary(report, status=status, fail_on=fail_on)


def _settings(report: Report) -> Iterator[str]:
    if report.settings is not None:
        yield f"Settings: {shell(str(report.settings))}"


def _rows(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield a line each. A long row is cut, but none of errors or of what was not seen."""
    rows: dict[tuple[str, str, bool], list[str]] = {}
    for each in findings:
        rows.setdefault((each.rule, each.severity, each.seen), []).append(str(each))
    for (rule, severity, seen), row in rows.items():
        shown = _SHOWN if seen and severity != "error" else len(row)
        yield from row[:shown]
        if len(row) > shown:
            yield (
                f"{rule} {severity}: There are {len(row) - shown} more findings like these."
                " Mend those above, and run the audit again. Or list them all: --format json"
            )


def _summary(report: Report, *, status: int, fail_on: Severity) -> str:
    """Return what was looked at, how much was found, and how to learn more."""
    open_ones = [each for each in report.findings if each.accepted is None]
    count = Counter(each.severity for each in open_ones)
    parts = [counted(count[each], each) for each in WORST_FIRST if count[each]]
    parts = parts or (["no findings"] if report.looked else [])
    unseen = sum(not each.seen for each in open_ones)
    accepted = len(report.findings) - len(open_ones)
    parts += [f"{unseen} of them about what was not seen"] if unseen else []
    parts += [f"{accepted} accepted"] if accepted else []
    looked = f"Looked at {listed([*report.looked])}" if report.looked else "Nothing was looked at"
    passed = status == 0 and bool(open_ones)
    enough = f" None of them fails it (--fail-on {fail_on})." if passed else ""
    worst = [*open_ones, *report.findings][:1]
    learn = "".join(f" Learn more: safepoint explain {each.id}" for each in worst)
    return f"{': '.join(filter(None, (looked, ', '.join(parts))))}.{enough}{learn}"


def json(report: Report, *, status: int, fail_on: Severity) -> Iterator[str]:
    """Yield one object with all of it."""
    names = ("id", "rule", "severity", "what", "do", "where", "store", "seen")
    yield _json.dumps(
        {
            "format": 1,
            "tool": tool(),
            "status": status,
            "fail_on": fail_on,
            "settings": report.settings and readable(str(report.settings)),
            "looked_at": [readable(each) for each in report.looked],
            "findings": [
                {
                    **{name: _plain(getattr(each, name)) for name in names},
                    "accepted": each.accepted
                    and {"reason": each.accepted.reason, "until": str(each.accepted.until)},
                }
                for each in report.findings
            ],
        },
        indent=1,
    )


def _plain(value: Any) -> Any:
    return readable(value) if isinstance(value, str) else value


def sarif(report: Report, *, status: int, fail_on: Severity) -> Iterator[str]:  # noqa: ARG001
    """Yield a log of SARIF 2.1.0."""
    yield log(report, status)


def github(report: Report, *, status: int, fail_on: Severity) -> Iterator[str]:
    """Yield a line for each annotation of GitHub Actions, and one about all of it."""
    for each in report.findings:
        yield github_line(each)
    yield from _settings(report)
    yield _summary(report, status=status, fail_on=fail_on)


FORMATS: Final[dict[str, Callable[..., Iterator[str]]]] = {
    "text": text,
    "json": json,
    "sarif": sarif,
    "github": github,
}
"""Each format by its name: a function of a report, its exit status, and what it fails on."""
