"""Find the blocks of a page, line by line, as strictly as the site would need them."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
TAB: Final = 4
"""How wide the site shows a tab."""

# What the opening line of a fence can say.
_RUN: Final = frozenset({"python", "bash", "text", "sql"})
_PARSED: Final = frozenset({"json", "toml", "ini", "yaml"})
LANGUAGES: Final = _RUN | _PARSED
_FILE: Final = r"[\w.-]+"
_ATTRIBUTES: Final = {
    "title": (LANGUAGES, r".+", "words"),
    "data-raises": ({"python"}, r"[A-Za-z_]\w*(: .*\S)?", "Type, or Type: part of the message"),
    "data-marker": ({"python"}, _FILE, "a plain file name in the page's folder"),
    "data-exit": ({"bash", "sql"}, r"[1-9]\d{0,2}", "the exit code of a failure, 1 to 255"),
    "data-check": ({"bash", "text"}, "make|paths|record|subclasses", "the name of a check"),
    "data-module": ({"text"}, r"[\w.]+", "the module of a tree of classes"),
    "data-login": ({"sql"}, r"[a-z]\w*", "the name of a login"),
    "data-tls": ({"sql"}, _FILE, "a host name for the certificate"),
    "data-needs": (LANGUAGES, r"\w+", "a module that not every Python can have"),
    "data-write": (_PARSED | {"python"}, _FILE, "a plain file name in the page's folder"),
}
"""On which languages an attribute means something, in which form, and what that form is."""
ATTRIBUTES: Final = frozenset(_ATTRIBUTES) - {"title"}
"""What a fence says to the tests; the site shows it to nobody, and keeps it."""
_CLASSES: Final = {
    "unsafe": {"python", "sql"},
    "no-copy": LANGUAGES,
    "refused": LANGUAGES,
    "fix": LANGUAGES,
    "alone": {"python"},
    "wrap": _PARSED | {"text"},
}
_FENCE: Final = re.compile(r"^(?P<indent>[ \t>]*)(?P<ticks>`{3,}|~{3,})(?P<info>.*)$")
_INFO: Final = re.compile(r"\{ *\.(\w+)(?=[ }])(.*)\}|([\w+#-]*)((?: +title=\"[^\"]*\")?)")
_WORD: Final = re.compile(r" +(?:\.(?P<name>[\w-]+)|(?P<key>[\w-]+)=\"(?P<value>[^\"]*)\")(?= |$)")
_HINT: Final = re.compile(r"^ *<!-- *block: *(?P<words>(?:(?!--).)*?) *--> *$")
_FENCED: Final = re.compile(r"^ *```.*?(?:^ *```|\Z)", re.MULTILINE | re.DOTALL)

# What HTML a page may have. Code could otherwise be shown without a fence, and nobody would have
# run it. A comment is on one line: no browser ends it earlier than Markdown does.
SHOWS_CODE: Final = frozenset({"pre", "xmp", "listing", "plaintext", "textarea", "samp", "iframe"})
"""Elements whose text a browser shows as it was typed, or a document of its own."""
GENERATED: Final = frozenset({"doc-signature", "mkdocstrings-source"})
"""Classes of what mkdocstrings makes from the code itself."""
INLINE_CODE: Final = re.compile(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)")
_COMMENT: Final = re.compile(r"<!-- (?:(?!--)[^`\0])* -->")
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])(?P<name>/?[^\s/>]*)(?P<rest>[^<>]*>?)")
_ALLOWED: Final = re.compile(
    r"""
      <(?:div|figure|figcaption)(?:[ ](?:class|id)="[\w -]+")*[ ]markdown>
    | <a[ ]id="[\w-]+">
    | <(?:br|sub|sup|kbd)>
    | </(?:div|figure|figcaption|a|sub|sup|kbd)>
    | <https?://[^\s<>]+>
    """,
    re.VERBOSE,
)
_LOOKS: Final = re.compile(rf"\bstyle\s*=|{'|'.join(sorted(GENERATED))}")
_NO_PLACEHOLDERS: Final = SHOWS_CODE | {"code", "script", "style", "svg", "object", "embed", "math"}

# An include stands alone on its line; sections are marked in the file.
_CUT: Final = re.compile(r"^\s*;*-+8<-+(?=\s|$)")
_INCLUDE: Final = re.compile(r'^( *)-+8<-+ +"([^":]+)(?::([A-Za-z][\w-]*))?"$')
_MARK: Final = re.compile(r"-+8<-+[ \t]+\[[ \t]*(start|end)[ \t]*:[ \t]*([\w-]+)[ \t]*\]")


class PageError(ValueError):
    """One or more places of a page that cannot be run as they are."""


class Problem(NamedTuple):
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


class Line(NamedTuple):
    """A line of a block, and where it was written."""

    text: str
    file: Path
    number: int


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
    index = 0
    while index < len(scanner.lines):
        fence = _FENCE.match(scanner.lines[index])
        index = scanner.fence(index, fence) if fence else scanner.prose(index)
    return scanner.scan


def without_fences(page: str) -> str:
    """Return what a page says outside of its fences; every line keeps its number."""
    return _FENCED.sub(lambda found: " " + "\n" * found[0].count("\n"), page)


def expand(line: str, folders: tuple[Path, ...]) -> list[Line] | None:
    """Return the lines that an include stands for, or None if `line` is no include.

    Raises:
        PageError: a missing file or section, or a form that is not supported here.
    """
    if not _CUT.match(line):
        return None
    found = _INCLUDE.match(line)
    if found is None:
        raise PageError('write an include as --8<-- "file.py" or --8<-- "file.py:section"')
    space, name, section = found.groups()
    places = [folder.resolve() for folder in folders]
    files = [folder / name for folder in folders if (folder / name).is_file()]
    files = [file for file in files if any(map(file.resolve().is_relative_to, places))]
    if not files:
        raise PageError(f"the include {name!r} does not exist; correct its name or add the file")
    texts = files[0].read_text(encoding="utf-8").splitlines()
    lines = [Line(space + text, files[0], number) for number, text in enumerate(texts, 1)]
    if any(_CUT.match(each.text) for each in lines):
        raise PageError(f"{name} includes another file; inline it")
    if section:
        marks = {m.groups(): n for n, each in enumerate(lines) if (m := _MARK.search(each.text))}
        start, end = marks.get(("start", section)), marks.get(("end", section))
        if start is None or end is None:
            raise PageError(f"{name} has no whole section {section!r}; mark its start and its end")
        lines = lines[start:end]
    return [each for each in lines if not _MARK.search(each.text)]


def _read_info(info: str, hint: str) -> tuple[str, list[str], dict[str, str]]:
    """Read what follows the three backticks, together with a `block:` comment above them.

    Raises:
        PageError: it is not something that the site renders and the harness knows.
    """
    found = _INFO.fullmatch(info.strip())
    if found is None:
        raise PageError(f"cannot read {info.strip()!r}; write ```python or ```{{ .python … }}")
    language = found[1] or found[3] or ""
    if language not in LANGUAGES:
        said = f"unknown language {language!r}" if language else "no language"
        raise PageError(f"{said}; use one of: {', '.join(sorted(LANGUAGES))}")
    words = f"{(found[2] or found[4] or '').rstrip()} {hint}".rstrip()
    if rest := _WORD.sub("", words).strip():
        raise PageError(f'cannot read {rest!r}; write .class or name="value"')
    classes = [word["name"] for word in _WORD.finditer(words) if word["name"]]
    attributes = {word["key"]: word["value"] for word in _WORD.finditer(words) if word["key"]}
    for problem in _that_mean_nothing(language, classes, attributes):
        raise PageError(problem)
    return language, classes, attributes


def _that_mean_nothing(
    language: str, classes: list[str], attributes: dict[str, str]
) -> Iterator[str]:
    """Say what is not known, means nothing on this language, or lacks its other half."""
    for name in classes:
        if name not in _CLASSES:
            yield f"unknown class .{name}; known: {', '.join(_CLASSES)}"
        elif language not in _CLASSES[name]:
            yield f".{name} means nothing on {language}; remove it"
    for name, value in attributes.items():
        languages, form, says = _ATTRIBUTES.get(name, (LANGUAGES, "", ""))
        if not form:
            yield f"unknown attribute {name}; known: {', '.join(_ATTRIBUTES)}"
        elif language not in languages:
            yield f"{name} means nothing on {language}; remove it"
        elif not re.fullmatch(form, value):
            yield f"{name} is {says}; correct it"
    said, check = {*classes, *attributes}, attributes.get("data-check")
    if check and (check == "make") != (language == "bash"):
        yield 'data-check="make" is for bash, and the others are for text; correct it'
    if "data-marker" in said and "unsafe" not in said:
        yield "data-marker needs .unsafe; add it"
    if "unsafe" in said and "no-copy" not in said:
        yield "an .unsafe block also needs .no-copy; add it"
    if {"alone", "unsafe"} <= said:
        yield ".unsafe blocks run alone already; remove .alone"
    if (check == "subclasses") != ("data-module" in said):
        yield 'data-check="subclasses" and data-module go together; write both'
    if "data-write" in said and {"unsafe", "data-raises"} & said:
        yield "data-write keeps the block for later; say there what happens"
    if language == "python" and "refused" in said and "data-raises" not in said:
        yield '.refused says that it raises; add data-raises="Type"'
    if language == "sql" and "data-login" not in said:
        yield 'SQL runs on PostgreSQL, as a login; add data-login="name"'


class _Scanner:
    def __init__(self, lines: list[str], page: str, root: Path, first_line: int) -> None:
        self.lines = lines
        self.page = page
        self.root = root
        self.offset = first_line
        self.scan = Scan()

    def problem(self, index: int, message: str) -> None:
        self.scan.problems.append(Problem(self.page, index + self.offset, message))

    def prose(self, index: int) -> int:
        """Check a line outside of fences, and return the index after it."""
        line = INLINE_CODE.sub("\0", self.lines[index])
        if _HINT.match(line) and not (_FENCE.match("".join(self.lines[index + 1 : index + 2]))):
            self.problem(index, "a block comment above no fence; put it right above one")
        if "```" in line:
            self.problem(index, "``` in the middle of a line; a fence starts its line")
        elif "`" in line:
            self.problem(index, "inline code that ends on another line; keep it on one")
        if line.lstrip().startswith(">>> "):
            self.problem(index, ">>> outside of a fence; write a ```python block")
        for each in self._expanded(index, self.lines[index], "snippets", "docs/assets")[:1]:
            if each.file != self.root / self.page and each.file.suffix != ".svg":
                self.problem(index, "an include outside of a fence; put it inside one")
        visible = _COMMENT.sub("", line)
        for tag in _TAG.finditer(visible):
            name, word = tag["name"].lower(), tag["name"].lower().rstrip(",")
            stands_for_a_name = word.isidentifier() and word not in _NO_PLACEHOLDERS
            if _ALLOWED.fullmatch(tag[0]):
                continue
            if name.startswith("!--"):
                said = "not a comment on one line; write <!-- words --> without -- in them"
                self.problem(index, said)
            elif not (self.page.endswith(".py") and stands_for_a_name and "=" not in tag["rest"]):
                self.problem(index, f"raw <{name}>; write a fenced block, or Markdown")
        if _LOOKS.search(visible):
            self.problem(index, "a style or class that could hide code from the census; remove it")
        return index + 1

    def fence(self, index: int, fence: re.Match[str]) -> int:
        """Read the fence that opens at `index`, and return the index after it."""
        indent, ticks, info = fence.group("indent", "ticks", "info")
        for said, is_so in {
            "a fence in a block quote; move it out of the quote": ">" in indent,
            "a fence indented with a tab; indent it with spaces": "\t" in indent,
            "a fence of ~~~; write ```": ticks.startswith("~"),
            "a fence of four or more backticks; write three": len(ticks) > 3,
            "``` on one line; write inline code with a single backtick": "`" in info,
        }.items():
            if is_so:
                self.problem(index, said)
                rest = range(index + 1, len(self.lines))
                return next(
                    (n + 1 for n in rest if self.lines[n].strip(" \t>") == ticks), index + 1
                )
        body: list[Line] = []
        before = len(self.scan.problems)
        for here in range(index + 1, len(self.lines)):
            line = self.lines[here].expandtabs(TAB)
            if line.strip() and line[: len(indent)].strip():
                self.problem(here, "indented less than its fence; indent it, or close the fence")
                return here
            if line[len(indent) :].rstrip() == "```":
                if len(self.scan.problems) == before:
                    self._add(index, here, fence, body)
                return here + 1
            if line.lstrip().startswith("```"):
                self.problem(here, "a fence inside a fence; show it as two blocks")
            # What a program printed is shown as it is; what a person writes has spaces.
            if "\t" in self.lines[here] and info.strip() != "text":
                self.problem(here, "a tab; the site shows spaces, so write spaces")
            body += self._expanded(here, line[len(indent) :], "snippets")
        self.problem(index, "this fence is never closed; add ``` at the same indent")
        return index + 1

    def _expanded(self, index: int, text: str, *folders: str) -> list[Line]:
        try:
            lines = expand(text, tuple(self.root / folder for folder in folders))
        except PageError as error:
            self.problem(index, str(error))
            return []
        page = self.root / self.page
        return [Line(text, page, index + self.offset)] if lines is None else lines

    def _add(self, index: int, end: int, fence: re.Match[str], body: list[Line]) -> None:
        while body and not body[0].text.strip():
            body.pop(0)
        hint = _HINT.match(self.lines[index - 1]) if index else None
        words = hint["words"] if hint else ""
        wrong = "" if body else "an empty block; write something or remove it"
        if ".unsafe" in words and "/" in self.page:
            wrong = "a comment does not hide the copy button; use braces"
        try:
            language, classes, attributes = _read_info(fence["info"], words)
        except PageError as error:
            wrong = wrong or str(error)
        if wrong:
            self.problem(index, wrong)
            return
        text = "\n".join(line.text if line.text.strip() else "" for line in body)
        self.scan.blocks.append(
            Block(
                page=self.page,
                number=len(self.scan.blocks) + 1,
                line=index + self.offset,
                end=end + self.offset,
                language=language,
                classes=tuple(classes),
                attributes=attributes,
                text=text.rstrip("\n"),
                indent=len(fence["indent"]),
                file=body[0].file,
                first=body[0].number,
            )
        )


_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


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
        numbered = enumerate(scan.blocks, count + 1)
        scan.blocks = [replace(block, number=number) for number, block in numbered]
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
