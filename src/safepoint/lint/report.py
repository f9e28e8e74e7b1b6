"""Report: what was looked at, what was found, and how that is shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from safepoint.errors import shell
from safepoint.lint.files import Walk, is_code, read
from safepoint.lint.finding import Finding
from safepoint.lint.source import LARGEST, check_source, check_text, unseen

_SHOWN: Final = 5


@dataclass
class Report:
    """The outcome of a run.

    Attributes:
        findings: what was found, in the order of the files.
        code: how many Python files and notebooks were looked at.
        text: how many other files.
        left_out: the folders that were not entered.
        failures: why a path that was named gives no answer at all, and what to do.
    """

    findings: list[Finding] = field(default_factory=list)
    code: int = 0
    text: int = 0
    left_out: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if all is clean, 1 if there are findings, 2 if something was not looked at."""
        if self.failures or any(finding.id == "SL90" for finding in self.findings):
            return 2
        return int(bool(self.findings))

    @property
    def summary(self) -> str:
        """How much was looked at, as one line."""
        count = len(self.findings)
        found = f"{count} finding{'s' * (count != 1)}" if count else "No findings"
        code = f"{self.code} Python file{'s' * (self.code != 1)}"
        text = f" and {self.text} other file{'s' * (self.text != 1)}" if self.text else ""
        shown = ", ".join(shell(path) for path in self.left_out[:_SHOWN])
        more = len(self.left_out) - _SHOWN
        rest = f" and {more} more" if more > 0 else ""
        left = f" Left out: {shown}{rest}." if self.left_out else ""
        return f"{found} in {code}{text}.{left}"


def check_paths(paths: Iterable[str]) -> Report:
    r"""Look at files and at the folders below them. Nothing is imported, and nothing runs.

    A folder has to hold at least one Python file: a scan of nothing is no clean bill.

    ```python
    from pathlib import Path

    from safepoint.lint import check_paths

    Path("train.py").write_text('import pickle\npickle.load(open("state.pkl", "rb"))\n')
    report = check_paths(["train.py"])
    print(report.summary)
    #> 1 finding in 1 Python file.
    print(report.exit_code, report.findings[0].rule)
    #> 1 SP03
    ```
    """
    report = Report()
    for path in paths:
        walk = Walk()
        before = (report.code, report.text)
        for file in walk.files(path):
            _check(file, report)
        report.left_out += walk.left_out
        report.findings += [unseen(each, why) for each, why in walk.failed]
        _check_counts(path, before, report)
    return report


def _check(file: str, report: Report) -> None:
    try:
        data, size = read(file, LARGEST)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no file can have this name"
        report.findings.append(unseen(file, why))
        return
    code = is_code(file)
    report.code += code
    report.text += not code
    if size > LARGEST:
        report.findings.append(unseen(file, f"it has {size} bytes"))
    else:
        report.findings += check_source(data, file) if code else check_text(data, file)


def _check_counts(path: str, before: tuple[int, int], report: Report) -> None:
    try:
        there, folder = Path(path).exists(), Path(path).is_dir()
    except (OSError, ValueError):
        there, folder = False, False
    if not there:
        report.findings = [each for each in report.findings if each.path != path]
        what = f"{shell(path)} is not there."
        report.failures.append((what, "Name a file or a folder to look at."))
    elif folder and report.code == before[0]:
        what = f"There is no Python file in {shell(path)}, so nothing is known about it."
        report.failures.append((what, "Name the folder that has the code."))


def as_text(report: Report) -> Iterator[str]:
    """Yield a line for each finding, and how much was looked at."""
    yield from map(str, report.findings)
    yield report.summary


def as_json(report: Report) -> Iterator[str]:
    """Yield one JSON object."""
    findings = [
        {
            "path": each.path,
            "cell": each.cell or None,
            "line": each.line,
            "column": each.column,
            "id": each.id,
            "rule": each.rule,
            "what": each.what,
            "fix": each.fix,
        }
        for each in report.findings
    ]
    counts = {"python_files": report.code, "other_files": report.text}
    rest = {"left_out": report.left_out, "failures": [" ".join(each) for each in report.failures]}
    yield json.dumps({**counts, **rest, "findings": findings}, indent=2)


def as_github(report: Report) -> Iterator[str]:
    """Yield an annotation for each finding, as GitHub Actions shows them in a pull request."""
    for each in report.findings:
        place = f"file={_escaped(each.path)},line={each.line},col={each.column}"
        cell = f"cell {each.cell}: " if each.cell else ""
        text = f"{cell}{each.what} {each.fix}".replace("%", "%25")
        yield f"::error {place},title={each.id} ({each.rule})::{text}"
    yield report.summary


def _escaped(path: str) -> str:
    text = path if path.isprintable() else ascii(path)[1:-1]
    for character, code in (("%", "%25"), (":", "%3A"), (",", "%2C")):
        text = text.replace(character, code)
    return text
