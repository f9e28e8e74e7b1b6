"""Find the loads that can run what a file says, before anyone runs them: `safepoint lint PATH`.

It closes what Bandit and Ruff leave open about PyTorch and pickle, and is no replacement for them.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import re
import stat
import sys
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

from safepoint.core.errors import quoted, shell
from safepoint.models.lint.loads import ON, VARIABLE, VARIABLE_WHAT, loads_in
from safepoint.models.lint.names import DATA, Tangled
from safepoint.shared.sarif import Annotation, Described, github_line, log
from safepoint.shared.terminal import counted

__all__ = [
    "IDS",
    "Finding",
    "Id",
    "Report",
    "Walk",
    "check_paths",
    "check_source",
    "is_code",
]

_LARGEST: Final = 8 * 1024 * 1024
_SHOWN: Final = 5
_NOT_PARSED: Final = (SyntaxError, ValueError, RecursionError, MemoryError)


class Id(NamedTuple):
    """One kind of finding.

    Attributes:
        rule: the rule that it breaks, for example "SP23".
        title: what it looks for, as a few words.
        fix: what to do, as one or two sentences.
    """

    rule: str
    title: str
    fix: str


IDS: Final = {name: Id(**each) for name, each in DATA["ids"].items()}
"""What is looked for."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One load that a reviewer should not miss, or one file that was not looked at.

    Attributes:
        path: the file, as it was named.
        cell: the cell of a notebook, from 1, and 0 elsewhere.
        line: the line, from 1.
        column: the column, from 1, in characters.
        id: the kind of finding, for example "SL01".
        what: what stands there, as one sentence on one line.
        last: the last line of what was found.
    """

    path: str
    cell: int
    line: int
    column: int
    id: str
    what: str
    last: int = 0

    @property
    def rule(self) -> str:
        """The rule that it breaks, for example "SP23"."""
        return IDS[self.id].rule

    @property
    def fix(self) -> str:
        """What to do about it."""
        return IDS[self.id].fix

    @property
    def place(self) -> str:
        """Where it is, as most editors understand it."""
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{shell(self.path)}:{cell}{self.line}:{self.column}"

    def __str__(self) -> str:
        return f"{self.place}: {self.id} {self.what} {self.fix}"


def _unseen(path: str, why: str, line: int = 1, column: int = 1, cell: int = 0) -> Finding:
    what = f"This was not looked at: {why}."
    return Finding(path, cell, max(line, 1), max(column, 1), "SL90", what)


# --- one file -----------------------------------------------------------------------------------


def check_source(data: bytes | str, path: str = "<text>") -> list[Finding]:
    r"""Look at the Python code of one file.

    ```python
    from safepoint.models.lint import check_source

    code = 'import torch as th\nth.load("model.pt", weights_only=False)\n'
    for finding in check_source(code, "train.py"):
        print(finding.place, finding.id, finding.rule)
        #> train.py:2:1 SL02 SP24
    ```

    Returns:
        What was found, from top to bottom. A file that cannot be parsed is a finding of its own.
    """
    data = _encoded(data)
    check = _check_notebook if PurePath(path).suffix == ".ipynb" else _check_python
    return sorted(check(data, path))


def _encoded(text: bytes | str) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _parse(data: bytes | str) -> ast.Module:
    """Parse a file in its own encoding. Nothing in it runs, and nothing warns of its style."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(_encoded(data))


def _check_python(data: bytes, path: str) -> Iterator[Finding]:
    try:
        findings = [*_visit(_parse(data), data, path)]
    except SyntaxError as error:
        why = ascii(error.msg)[1:-1][:80]  # it may quote the file
        yield _unseen(path, f"it is not Python ({why})", error.lineno or 1, error.offset or 1)
    except (ValueError, RecursionError, MemoryError, Tangled) as error:
        why = "too tangled" if isinstance(error, Tangled) else type(error).__name__
        yield _unseen(path, f"it is no Python that can be followed ({why})")
    else:
        yield from _allowed(findings, _comments(data), path)


def _visit(tree: ast.Module, data: bytes, path: str) -> Iterator[Finding]:
    lines = data.splitlines()
    for node, kind, what in loads_in(tree):
        line: int = getattr(node, "lineno", 1)
        offset: int = getattr(node, "col_offset", 0)
        before = lines[line - 1][:offset] if line <= len(lines) else b""
        last: int = getattr(node, "end_lineno", None) or line
        if isinstance(node, ast.ClassDef):
            last = node.body[0].lineno  # what stands further down is about something else
        yield Finding(path, 0, line, len(before.decode("utf-8", "replace")) + 1, kind, what, last)


_VALUE: Final = re.compile(r"""=["']?([^\s"';)]*)""")
_MENTION: Final = re.compile(rf"(?<![A-Za-z0-9_]){VARIABLE}(?![A-Za-z0-9_])")
_COMMENT: Final = re.compile(r"^\s*#")
_UNSET: Final = re.compile(r"(?:\bunset\s[^;&|]*|\benv\s+(?:-\w+\s+\S+\s+)*-u\s*|\$\{?)$")


def _settings(lines: list[str], path: str, cell: int) -> Iterator[Finding]:
    """Yield each line for the shell or for IPython that may set the variable."""
    for number, line in enumerate(lines, 1):
        for found in [] if _COMMENT.match(line) else _MENTION.finditer(line):
            if _UNSET.search(line, 0, found.start()) or " #" in line[: found.start()]:
                continue
            value = _VALUE.match(line, found.end())
            if value is None or "$" in value[1] or value[1].lower() in ON:
                yield Finding(path, cell, number, found.start() + 1, "SL06", VARIABLE_WHAT)


# --- notebooks: their code cells as one module, since a name of one cell reaches the next -------

# A line that goes on with an operator, such as `% 3` or `!= 3`, is none.
_PYTHON: Final = ("%%time", "%%capture", "%%prun")
_MAGIC: Final = re.compile(r"\s*(?:%{1,2}[A-Za-z_]|!(?!=)|\?).*|.*\?\s*")


def _check_notebook(data: bytes, path: str) -> Iterator[Finding]:
    try:
        cells = _code_cells(data)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        yield _unseen(path, f"it is not a notebook ({why})")
        return
    whole: list[str] = []
    places: list[tuple[int, int]] = []  # of each line: its cell, and the lines before that
    for number, text in cells:
        code, magic = _python_of(text)
        yield from _settings(magic, path, number)
        try:
            _parse(code)
        except _NOT_PARSED as error:
            line = getattr(error, "lineno", None) or 1
            yield _unseen(path, "it is not Python", line, 1, number)
            continue
        places += [(number, len(whole))] * (code.count("\n") + 1)
        whole += code.split("\n")
    for found in _check_python(_encoded("\n".join(whole)), path):
        number, before = places[min(found.line, len(places)) - 1]
        yield replace(found, cell=number, line=found.line - before, last=found.last - before)


def _code_cells(data: bytes) -> list[tuple[int, str]]:
    content = json.loads(data)
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise ValueError("no list of cells")  # noqa: TRY004  all of it is one kind of error
    found = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict):
            raise ValueError("a cell of an unknown form")  # noqa: TRY004
        if cell.get("cell_type") == "code":
            source = cell.get("source", "")
            found.append((number, "".join(map(str, source if source else ""))))
    return found


def _python_of(text: str) -> tuple[str, list[str]]:
    """Return what of a cell is Python, and the lines for the shell and for IPython."""
    lines, begins = text.split("\n"), text.lstrip()
    odd = [_MAGIC.fullmatch(line) is not None for line in lines]
    if begins.startswith("%%"):
        odd = [not begins.startswith(_PYTHON) or number == 0 for number, _ in enumerate(lines)]
    else:
        with contextlib.suppress(*_NOT_PARSED):
            _parse(text)
            return text, []
    pairs = [*zip(lines, odd, strict=True)]
    code = [f"{line[: -len(line.lstrip())]}pass" if o else line for line, o in pairs]
    return "\n".join(code), [line * o for line, o in pairs]


# --- allowed on purpose, with `safepoint: allow SL02 made by our own nightly job` ---------------
# It stands on a line of what was found, or on a line of its own above it, and gives a reason. Each
# id in it is for one finding.

_MARK: Final = re.compile(
    r"#\s*safepoint\s*:\s*allow\b\s*([a-z]+\d+(?:\s*,\s*[a-z]+\d+)*)?[\s:,-]*(.*)", re.IGNORECASE
)
_Comment = tuple[str, int, int, str]  # its text, its line and column, and the whole line


def _comments(data: bytes) -> list[_Comment]:
    if b"allow" not in data.lower():
        return []
    found: list[_Comment] = []
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # the parser has the last word
        for each in tokenize.tokenize(io.BytesIO(data).readline):
            if each.type == tokenize.COMMENT:
                found += [(each.string, *each.start, each.line)]
    return found


def _allowed(findings: list[Finding], comments: list[_Comment], path: str) -> Iterator[Finding]:
    """Leave out what is allowed with a reason, and add each allow that does not count."""
    # Of two calls around an allow, the one that ends first is the inner one.
    left = sorted(findings, key=lambda each: (max(each.line, each.last), -each.line, each.column))
    for text, line, column, whole in comments:
        mark = _MARK.search(text)
        if mark is None:
            continue
        above = None if whole[:column].strip() else line + 1  # where it stands alone
        near = [
            each
            for each in left
            if each.line == above or each.line <= line <= max(each.line, each.last)
        ]
        ids = [name.strip().upper() for name in (mark[1] or "").split(",") if name.strip()]
        what, allowed = _read_allow(ids, mark[2], near)
        left = [each for each in left if each not in allowed]
        if what:
            yield Finding(path, 0, line, column + 1 + mark.start(), "SL91", what)
    yield from left


def _read_allow(ids: list[str], reason: str, near: list[Finding]) -> tuple[str, list[Finding]]:
    """Return why an allow does not count, and the findings that it allows: one for each id."""
    if not ids:
        return "It does not say what it allows.", []
    for name in ids:
        if name not in IDS or name in ("SL90", "SL91"):
            return f"{quoted(name)} is nothing that can be allowed.", []
    if len(reason.split()) < 2:
        return f"It allows {', '.join(ids)} without a reason.", []
    idle, allowed = [], []
    for name in ids:
        found = [each for each in near if each.id == name and each not in allowed]
        allowed += found[:1]
        idle += [] if found else [name]
    what = f"It allows {', '.join(idle)}, and there is no such finding left." if idle else ""
    return what, allowed


# --- folders ------------------------------------------------------------------------------------

_CODE: Final = frozenset({".py", ".pyw", ".ipynb"})
_HISTORY: Final = frozenset({".git", ".hg", ".svn"})
_OF_OTHERS: Final = frozenset({".tox", ".nox", ".eggs", "node_modules", "site-packages"})
_ENVIRONMENT: Final = ("pyvenv.cfg", "conda-meta")
# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
_OPEN: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Walk:
    """Walks folders, and remembers what it could not list or left out.

    Attributes:
        left_out: the folders that are not entered: installed packages, environments and links.
        failed: what could not be listed or read, with the reason.
    """

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self.failed: list[tuple[str, str]] = []

    def files(self, path: str) -> Iterator[str]:
        """Yield the files below a folder, sorted; or the file itself."""
        if not os.path.isdir(path):  # noqa: PTH112  that of Path may raise
            yield path
            return
        for folder, folders, files in os.walk(path, onerror=self._fail):
            # A link to itself is among the files: whoever opens it says so.
            yield from (str(Path(folder, name)) for name in sorted(files))
            inner = [str(Path(folder, name)) for name in sorted(folders) if name not in _HISTORY]
            self.left_out += [each for each in inner if not _is_own(each)]
            folders[:] = [PurePath(each).name for each in inner if _is_own(each)]

    def _fail(self, error: OSError) -> None:
        self.failed.append((error.filename, str(error.strerror)))


def _is_own(folder: str) -> bool:
    if PurePath(folder).name in _OF_OTHERS or Path(folder).is_symlink():
        return False
    return not any(os.path.lexists(Path(folder, name)) for name in _ENVIRONMENT)


def is_code(path: str) -> bool:
    """Tell whether a file is Python, by its name, or by its first line if that has no ending."""
    suffix = PurePath(path).suffix.lower()
    if suffix:
        return suffix in _CODE
    try:
        first = _read(path, 200)[0].split(b"\n", 1)[0]
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def _read(path: str, most: int) -> tuple[bytes, int]:
    """Return the first bytes of a regular file, and how many it has."""
    with os.fdopen(os.open(path, _OPEN), "rb") as opened:
        info = os.fstat(opened.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise OSError(0, "it is not a file")
        return opened.read(most), info.st_size


# --- the report ---------------------------------------------------------------------------------


@dataclass
class Report:
    """The outcome of a run.

    Attributes:
        findings: what was found, in the order of the files.
        code: how many Python files and notebooks were looked at.
        left_out: the folders that were not entered.
        failures: why a path that was named gives no answer at all, and what to do.
    """

    findings: list[Finding] = field(default_factory=list)
    code: int = 0
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
        found = counted(len(self.findings), "finding") if self.findings else "No findings"
        looked = self.findings or self.code
        shown = ", ".join(shell(path) for path in self.left_out[:_SHOWN])
        more = len(self.left_out) - _SHOWN
        rest = f" and {more} more" if more > 0 else ""
        left = f" Left out: {shown}{rest}." if self.left_out else ""
        where = counted(self.code, "Python file")
        return f"{found} in {where}.{left}" if looked else f"Nothing was looked at.{left}"


def check_paths(paths: Iterable[str]) -> Report:
    r"""Look at files and at the folders below them. Nothing is imported, and nothing runs.

    A folder has to hold at least one Python file: a scan of nothing is no clean bill. A file that
    is named is taken for Python, whatever its name is.

    ```python
    from pathlib import Path

    from safepoint.models.lint import check_paths

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
        if not os.path.exists(path):  # noqa: PTH110  that of Path may raise
            what = f"{shell(path)} is not there."
            report.failures.append((what, "Name a file or a folder to look at."))
            continue
        walk, before = Walk(), report.code
        for file in walk.files(path):
            if file == path or is_code(file):
                _check_file(file, report)
        report.left_out += walk.left_out
        report.findings += [_unseen(each, why) for each, why in walk.failed]
        if report.code == before and os.path.isdir(path):  # noqa: PTH112
            what = f"There is no Python file in {shell(path)}, so nothing is known about it."
            report.failures.append((what, "Name the folder that has the code."))
    return report


def _check_file(file: str, report: Report) -> None:
    try:
        data, size = _read(file, _LARGEST)
    except OSError as error:
        report.findings.append(_unseen(file, str(error.strerror)))
        return
    report.code += 1
    if size > _LARGEST:
        report.findings.append(_unseen(file, f"it has {size} bytes"))
    else:
        report.findings += check_source(data, file)


# --- the command --------------------------------------------------------------------------------


def commands(sub: Any) -> None:
    """Add `safepoint lint`."""
    parser = sub.add_parser(
        "lint",
        help="find loads in code that can run what a file says",
        description="Find loads that can run what a file says. Nothing is imported or run.",
        epilog="exit status: 0 clean, 1 findings, 2 something could not be looked at."
        " Allow one on its line: # safepoint: allow SL02 REASON",
    )
    parser.set_defaults(run=_lint)
    parser.add_argument("paths", metavar="PATH", nargs="*", help="a file, or a folder of code")
    formats = ("text", "json", "sarif", "github")
    parser.add_argument("--format", choices=formats, default="text", help="how to say it (text)")
    parser.add_argument("--list", action="store_true", help="say what is looked for, do no more")


def _lint(options: argparse.Namespace) -> int:
    if options.list:
        for name, each in IDS.items():
            print(f"{name} ({each.rule}) {each.title}")
        return 0
    if not options.paths:
        options.refuse("name a file or a folder")
    report = check_paths(options.paths)
    if options.format in _WHOLE:
        print(_WHOLE[options.format](report))
    else:
        for finding in report.findings:
            title, is_text = f"{finding.id} ({finding.rule})", options.format == "text"
            print(finding if is_text else github_line(_annotation(finding), title))
        print(report.summary)
    for failure in report.failures:
        print(*failure, file=sys.stderr)
    return report.exit_code


def _as_json(report: Report) -> str:
    names = ("path", "line", "column", "id", "rule", "what", "fix")
    findings = [
        {"cell": each.cell or None, **{name: getattr(each, name) for name in names}}
        for each in report.findings
    ]
    rest = {"left_out": report.left_out, "failures": [" ".join(each) for each in report.failures]}
    return json.dumps({"python_files": report.code, **rest, "findings": findings}, indent=2)


def _annotation(finding: Finding) -> Annotation:
    cell = f"cell {finding.cell}: " if finding.cell else ""
    text = f"{cell}{finding.what} {finding.fix}"
    return Annotation(finding.id, "error", text, finding.path, finding.line, finding.column)


def _as_sarif(report: Report) -> str:
    return log(
        # SARIF counts the lines of a notebook's file, and not those of a cell.
        (
            _annotation(each)._replace(line=0 if each.cell else each.line)
            for each in report.findings
        ),
        {name: Described(f"{each.title} ({each.rule})", each.fix) for name, each in IDS.items()},
        status=report.exit_code,
        failures=(" ".join(each) for each in report.failures),
    )


_WHOLE: Final = {"json": _as_json, "sarif": _as_sarif}
