"""Find the blocks of a page, line by line, as strictly as the site would need them."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from tests.harness.fences import BadFence, parse_info
from tests.harness.markup import CODE, INLINE_CODE, markup_problems

ROOT: Final = Path(__file__).resolve().parents[2]
TAB: Final = 4
"""How wide the site shows a tab."""

# What a program printed is shown as it is; what a person writes has spaces.
_MAY_HAVE_TABS: Final = frozenset({"text"})
_FENCE = re.compile(r"^(?P<indent>[ \t>]*)(?P<ticks>`{3,}|~{3,})(?P<info>.*)$")
_HINT = re.compile(r"^ *<!-- *block: *(?P<words>(?:(?!--).)*?) *--> *$")


class PageError(ValueError):
    """One or more places of a page that cannot be run as they are."""


@dataclass(frozen=True)
class Problem:
    """One such place."""

    page: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Block:
    """A fenced block, as the site renders it.

    Attributes:
        page: the path below the project's root.
        number: 1 for the first block of the page.
        line: the line of its opening fence.
        end: the line of its closing fence.
        text: what a reader sees: dedented, includes expanded.
        file: where its first line of text was written: the page, or a snippet.
        first: and on which line.
    """

    page: str
    number: int
    line: int
    end: int
    language: str
    classes: tuple[str, ...]
    attributes: Mapping[str, str]
    text: str
    indent: int
    file: Path
    first: int

    @property
    def digest(self) -> str:
        """The digest by which evidence and rendered HTML are compared."""
        return digest(self.text)


@dataclass
class Scan:
    """What a page holds: blocks that can run, and places that cannot."""

    blocks: list[Block] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def digest(text: str) -> str:
    """Return the SHA-256 of a block's text, blind to what HTML does not show."""
    lines = [line.rstrip() for line in text.strip("\n").split("\n")]
    return hashlib.sha256("\n".join(lines).strip("\n").encode()).hexdigest()


def find_blocks(text: str, path: str | Path, *, root: Path = ROOT) -> list[Block]:
    """Return the blocks of a page.

    Args:
        text: the Markdown.
        path: the page, below `root`.
        root: the project; includes come from its `snippets/`.

    Raises:
        PageError: with one line per place that must be corrected.
    """
    scan = scan_page(text, path, root=root)
    if scan.problems:
        raise PageError("\n".join(map(str, scan.problems)))
    return scan.blocks


def scan_page(text: str, path: str | Path, *, root: Path = ROOT, first_line: int = 1) -> Scan:
    """Return the blocks and the problems of a page, or of a docstring that starts further down."""
    scanner = _Scanner(text.splitlines(), Path(path).as_posix(), root, first_line)
    scanner.run()
    return scanner.scan


CUT = re.compile(r"^\s*;*-+8<-+(?=\s|$)")
_INCLUDE = re.compile(
    r"""^(?P<space>\ *)-+8<-+[ ]+
    (?P<q>["'])(?P<file>[^"':]+)(?::(?P<section>[A-Za-z][\w-]*))?(?P=q)$""",
    re.VERBOSE,
)
_MARK = re.compile(r"-+8<-+[ \t]+\[[ \t]*(?P<kind>start|end)[ \t]*:[ \t]*(?P<name>[\w-]+)[ \t]*\]")


class BadInclude(ValueError):
    """The include names nothing that can be shown."""


class Line(NamedTuple):
    """A line of a block, and where it was written."""

    text: str
    file: Path
    number: int


def expand(line: str, folders: tuple[Path, ...]) -> list[Line] | None:
    """Return the lines that an include stands for, or None if `line` is no include.

    Raises:
        BadInclude: a missing file or section, or a form that is not supported here.
    """
    if not CUT.match(line):
        return None
    found = _INCLUDE.match(line)
    if found is None:
        raise BadInclude('write an include as --8<-- "file.py" or --8<-- "file.py:section"')
    lines = _read(found["file"], folders)
    if found["section"]:
        lines = _section(lines, found["section"], found["file"])
    return [
        Line(found["space"] + text, file, number)
        for text, file, number in lines
        if not _MARK.search(text)
    ]


def _read(name: str, folders: tuple[Path, ...]) -> list[Line]:
    for folder in folders:
        file = folder / name
        if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
            text = file.read_text(encoding="utf-8")
            lines = [Line(line, file, n) for n, line in enumerate(text.splitlines(), 1)]
            for line in lines:
                if CUT.match(line.text):
                    raise BadInclude(f"{name}:{line.number} includes another file; inline it")
            return lines
    raise BadInclude(f"the include {name!r} does not exist; correct its name or add the file")


def _section(lines: list[Line], name: str, file: str) -> list[Line]:
    start = end = None
    for index, line in enumerate(lines):
        mark = _MARK.search(line.text)
        if mark and mark["name"] == name:
            if mark["kind"] == "start" and start is None:
                start = index
            elif mark["kind"] == "end" and start is not None:
                end = index
                break
    if start is None:
        raise BadInclude(f"{file} has no section {name!r}; add # --8<-- [start:{name}]")
    if end is None:
        raise BadInclude(f"the section {name!r} of {file} has no end; add # --8<-- [end:{name}]")
    return lines[start + 1 : end]


class _Scanner:
    def __init__(self, lines: list[str], page: str, root: Path, first_line: int) -> None:
        self.lines = lines
        self.page = page
        self.root = root
        self.offset = first_line
        self.scan = Scan()

    def problem(self, index: int, message: str) -> None:
        self.scan.problems.append(Problem(self.page, index + self.offset, message))

    def run(self) -> None:
        index = self._after_front_matter()
        hint: tuple[int, str] | None = None
        while index < len(self.lines):
            line = self.lines[index]
            words = _HINT.match(line)
            fence = _FENCE.match(line)
            if hint and not fence:
                self.problem(hint[0], "a block comment above no fence; put it right above one")
                hint = None
            if words:
                hint = (index, words["words"])
                index += 1
            elif fence:
                index = self._fence(index, fence, hint[1] if hint else "")
                hint = None
            else:
                self._prose(index)
                index += 1
        if hint:
            self.problem(hint[0], "a block comment above no fence; put it right above one")

    def _after_front_matter(self) -> int:
        if self.lines[:1] == ["---"] and "---" in self.lines[1:]:
            end = self.lines.index("---", 1) + 1
            for index in range(end):
                self._markup(index, self.lines[index])
            return end
        return 0

    def _prose(self, index: int) -> None:
        """Check a line outside of fences."""
        line = INLINE_CODE.sub(CODE, self.lines[index])
        if "```" in line:
            self.problem(index, "``` in the middle of a line; a fence starts its line")
        elif "`" in line:
            self.problem(index, "inline code that ends on another line; keep it on one")
        if line.lstrip().startswith(">>> "):
            self.problem(index, ">>> outside of a fence; write a ```python block")
        self._include_in_prose(index)
        self._markup(index, line)

    def _markup(self, index: int, line: str) -> None:
        for message in markup_problems(line, docstring=self.page.endswith(".py")):
            self.problem(index, message)

    def _include_in_prose(self, index: int) -> None:
        folders = (self.root / "snippets", self.root / "docs" / "assets")
        try:
            lines = expand(self.lines[index], folders)
        except BadInclude as error:
            self.problem(index, str(error))
        else:
            if lines and lines[0].file.suffix != ".svg":
                self.problem(index, "an include outside of a fence; put it inside one")

    def _fence(self, index: int, fence: re.Match[str], hint: str) -> int:
        """Read the fence that opens at `index`, and return the index after it."""
        wrong = _unsupported(fence)
        if wrong:
            self.problem(index, wrong)
            return self._skip(index, fence["ticks"])
        indent = len(fence["indent"])
        body: list[Line] = []
        before = len(self.scan.problems)
        for here in range(index + 1, len(self.lines)):
            line = self.lines[here].expandtabs(TAB)
            inside = line[indent:]
            if line.strip() and line[:indent].strip():
                self.problem(here, "indented less than its fence; indent it, or close the fence")
                return here
            if re.fullmatch(r"``` *", inside):
                if len(self.scan.problems) == before:
                    self._add(index, here, fence, hint, body)
                return here + 1
            if line.lstrip().startswith("```"):
                self.problem(here, "a fence inside a fence; show it as two blocks")
            if "\t" in self.lines[here] and fence["info"].strip() not in _MAY_HAVE_TABS:
                self.problem(here, "a tab; the site shows spaces, so write spaces")
            body += self._expanded(here, inside)
        self.problem(index, "this fence is never closed; add ``` at the same indent")
        return index + 1

    def _skip(self, index: int, ticks: str) -> int:
        for here in range(index + 1, len(self.lines)):
            if self.lines[here].strip(" \t>") == ticks:
                return here + 1
        return index + 1

    def _expanded(self, index: int, text: str) -> list[Line]:
        try:
            lines = expand(text, (self.root / "snippets",))
        except BadInclude as error:
            self.problem(index, str(error))
            return []
        page = self.root / self.page
        return [Line(text, page, index + self.offset)] if lines is None else lines

    def _add(self, index: int, end: int, fence: re.Match[str], hint: str, body: list[Line]) -> None:
        while body and not body[0].text.strip():
            body.pop(0)
        while body and not body[-1].text.strip():
            body.pop()
        if not body:
            self.problem(index, "an empty block; write something or remove it")
            return
        if ".unsafe" in hint and "/" in self.page:
            self.problem(index, "a comment does not hide the copy button; use braces")
            return
        try:
            info = parse_info(fence["info"], hint)
        except BadFence as error:
            self.problem(index, str(error))
            return
        self.scan.blocks.append(
            Block(
                page=self.page,
                number=len(self.scan.blocks) + 1,
                line=index + self.offset,
                end=end + self.offset,
                language=info.language,
                classes=info.classes,
                attributes=info.attributes,
                text="\n".join(line.text if line.text.strip() else "" for line in body),
                indent=len(fence["indent"]),
                file=body[0].file,
                first=body[0].number,
            )
        )


def _unsupported(fence: re.Match[str]) -> str | None:
    if ">" in fence["indent"]:
        return "a fence in a block quote; move it out of the quote"
    if "\t" in fence["indent"]:
        return "a fence indented with a tab; indent it with spaces"
    if fence["ticks"].startswith("~"):
        return "a fence of ~~~; write ```"
    if len(fence["ticks"]) > 3:
        return "a fence of four or more backticks; write three"
    if "`" in fence["info"]:
        return "``` on one line; write inline code with a single backtick"
    return None


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def scan_docstrings(source: str, path: str | Path, *, root: Path = ROOT) -> list[Scan]:
    """Return one scan per docstring that has blocks or problems, in the order of the file."""
    page = Path(path).as_posix()
    scans: list[Scan] = []
    count = 0
    for node in sorted(_docstrings(ast.parse(source)), key=lambda node: node.lineno):
        text = str(node.value)
        scan = scan_page(text, page, root=root, first_line=node.lineno)
        spans_lines = (node.end_lineno or node.lineno) - node.lineno
        if scan.blocks and text.count("\n") != spans_lines:
            message = 'escapes move the lines of this docstring; write r"""'
            scan = Scan(problems=[Problem(page, node.lineno, message)])
        scan.blocks = [
            replace(block, number=number) for number, block in enumerate(scan.blocks, count + 1)
        ]
        count += len(scan.blocks)
        if scan.blocks or scan.problems:
            scans.append(scan)
    return scans


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield docstrings, and the strings below an assignment that documentation tools read too."""
    for node in ast.walk(tree):
        if not isinstance(node, _DOCUMENTED):
            continue
        for index, statement in enumerate(node.body):
            documents = index == 0 or isinstance(node.body[index - 1], (ast.Assign, ast.AnnAssign))
            if documents and isinstance(statement, ast.Expr):
                value = statement.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value


def written_blocks(root: Path) -> dict[str, list[Block]]:
    """Return the blocks of every page and module as they are now."""
    pages: dict[str, list[Block]] = {}
    markdown = [*(root / "docs").rglob("*.md"), root / "README.md", root / "CONTRIBUTING.md"]
    for file in filter(Path.is_file, markdown):
        name = file.relative_to(root).as_posix()
        pages[name] = scan_page(file.read_text(encoding="utf-8"), name, root=root).blocks
    for file in (root / "src" / "safepoint").rglob("*.py"):
        name = file.relative_to(root).as_posix()
        scans = scan_docstrings(file.read_text(encoding="utf-8"), name, root=root)
        pages[name] = [block for scan in scans for block in scan.blocks]
    return pages
