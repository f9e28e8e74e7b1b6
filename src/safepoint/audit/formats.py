"""Formats: what an audit says, for people and for programs.

All of them are complete and say what somebody accepted, with the reason.
"""

from __future__ import annotations

import json as _json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from safepoint.audit.finding import WORST_FIRST, Report, Severity, listed
from safepoint.audit.sarif import github_line, log, readable, tool
from safepoint.core.errors import shell
from safepoint.shared.terminal import counted


def text(report: Report, _: Severity) -> Iterator[str]:
    """Yield a line per finding, the worst first, then what is accepted, then a summary."""
    for each in sorted(report.findings, key=lambda each: each.accepted is not None):
        yield f"{each} Accepted: {each.accepted}" if each.accepted else str(each)
    yield from _summary(report)


def _summary(report: Report) -> Iterator[str]:
    """Yield which settings counted, what was looked at, how much was found, and what to read."""
    if report.settings is not None:
        yield f"Settings: {shell(str(report.settings))}"
    open_ones = [each for each in report.findings if each.accepted is None]
    count = Counter(each.severity for each in open_ones)
    parts = [counted(count[each], each) for each in WORST_FIRST if count[each]]
    parts = parts or (["no findings"] if report.looked else [])
    unseen = sum(not each.seen for each in open_ones)
    accepted = len(report.findings) - len(open_ones)
    parts += [f"{unseen} of them about what was not seen"] if unseen else []
    parts += [f"{accepted} accepted"] if accepted else []
    looked = f"Looked at {listed([*report.looked])}" if report.looked else "Nothing was looked at"
    worst = [*open_ones, *report.findings][:1]
    learn = "".join(f" Learn more: safepoint explain {each.id}" for each in worst)
    yield f"{': '.join(filter(None, (looked, ', '.join(parts))))}.{learn}"


def json(report: Report, fail_on: Severity) -> Iterator[str]:
    """Yield one object with everything."""
    names = ("id", "rule", "severity", "what", "do", "where", "store", "seen")
    yield _json.dumps(
        {
            "format": 1,
            "tool": tool(),
            "status": report.status(fail_on),
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


def sarif(report: Report, fail_on: Severity) -> Iterator[str]:
    """Yield a log of SARIF 2.1.0."""
    yield log(report, report.status(fail_on))


def github(report: Report, _: Severity) -> Iterator[str]:
    """Yield a line for each annotation of GitHub Actions, and one about everything."""
    yield from map(github_line, report.findings)
    yield from _summary(report)


FORMATS: Final[dict[str, Callable[[Report, Severity], Iterator[str]]]] = {
    "text": text,
    "json": json,
    "sarif": sarif,
    "github": github,
}
"""Each format by its name: a function of a report, and of what it fails on."""
