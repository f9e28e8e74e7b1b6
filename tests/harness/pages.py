"""Every fenced block of a page is a test: Sybil finds it, and this runs it or checks it.

This file stands by itself, to be copied into another project. It needs pytest, sybil and pyyaml,
and these lines in `conftest.py`:

    from pathlib import Path
    from pages import Pages

    pytest_collect_file = Pages(Path(__file__).parent).pytest()

How to write a block is in the docstring of the package `tests.harness`. A project that has more
languages, attributes or checks adds them to the tables below (`EVALUATORS`, `ATTRIBUTES`, …).
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import doctest
import hashlib
import importlib.util
import io
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import tokenize
import tomllib
import traceback
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import yaml
from sybil import Document, Example, Region, Sybil
from sybil.document import PythonDocStringDocument
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

TIMEOUT = 600.0  # a machine may be slow, and busy besides
"""Seconds that a program has."""
TAB: Final = 4
"""How wide the site shows a tab."""
ENOUGH: Final = 12
"""Characters of a message that no other message is likely to have."""

# What the opening line of a fence can say: a project adds to these tables.
DATA: Final = "json toml ini yaml"
_FILE: Final = (r"[\w.-]+", "a plain file name in the page's folder")
WORDS: Final = {
    "title": ("", r".+", "words"),
    "data-raises": ("python", r"[A-Za-z_]\w*(: .*\S)?", "Type, or Type: part of the message"),
    "data-marker": ("python", *_FILE),
    "data-exit": ("bash", r"[1-9]\d{0,2}", "the exit code of a failure, 1 to 255"),
    "data-needs": ("", r"\w+", "a module that not every Python can have"),
    "data-write": (f"{DATA} python", *_FILE),
    ".unsafe": ("python", "", ""),
    ".no-copy": ("", "", ""),
    ".refused": ("", "", ""),
    ".fix": ("", "", ""),
    ".alone": ("python", "", ""),
    ".wrap": (f"{DATA} text", "", ""),
}
"""On which languages a word means something ("" for all), which form it has, and what that is."""
_LATER: Final = "data-write keeps the block for later; say there what happens"
NEEDS: Final = {
    "data-marker": (".unsafe", "data-marker needs .unsafe; add it"),
    ".unsafe": (".no-copy", "an .unsafe block also needs .no-copy; add it"),
    ".alone .unsafe": ("", ".unsafe blocks run alone already; remove .alone"),
    "data-write .unsafe": ("", _LATER),
    "data-write data-raises": ("", _LATER),
    "python .refused": ("data-raises", '.refused says that it raises; add data-raises="Type"'),
}
"""Words that need another one ("" for what cannot be), and what is said if it is missing."""
_FENCES: Final = {
    r"\s*>": "a fence in a block quote; move it out of the quote",
    r"\s*[^\s`~]": "a fence beside the mark of a list; put it on a line of its own",
    r" *\t": "a fence indented with a tab; indent it with spaces",
    r" *~": "a fence of ~~~; write ```",
    r" *````": "a fence of four or more backticks; write three",
    r" *```.*`": "``` on one line; write inline code with a single backtick",
}
"""Opening lines that the site shows otherwise, or that not every tool finds."""

_LEXER: Final = RawFencedCodeBlockLexer(re.compile(r"(?P<info>[^\n]*)\n?"))
_INFO: Final = re.compile(r"\{ *\.(\w+)(?=[ }])(.*)\}|([\w+#-]*)((?: +title=\"[^\"]*\")?)")
_WORD: Final = re.compile(r" +(\.[\w-]+|[\w-]+(?==))(?:=\"([^\"]*)\")?(?= |$)")
HINT: Final = re.compile(r"^ *<!-- *block: *(?P<words>(?:(?!--).)*?) *--> *$")
_CUT: Final = re.compile(r"^\s*;*-+8<-+(?=\s|$)")
_INCLUDE: Final = re.compile(r'^( *)-+8<-+ +"([^":]+)(?::([A-Za-z][\w-]*))?"$')
_MARK: Final = re.compile(r"-+8<-+[ \t]+\[[ \t]*(start|end)[ \t]*:[ \t]*([\w-]+)[ \t]*\]")
_PLACES: Final = re.compile(r"XDG_|SAFEPOINT_CONFIG$|(STATE|LOGS|CONFIGURATION)_DIRECTORY$")


class PageError(ValueError):
    """One or more places of a page that cannot be run as they are."""


class Wrong(Exception):
    """A block did not do what the page says. The text is for the writer of the page."""


class Line(NamedTuple):
    """A line of a block, and where it was written."""

    text: str
    file: Path
    number: int


@dataclass(eq=False)
class Block:
    """A fenced block, as the site renders it, or another place of a page that cannot stay so.

    Attributes:
        page: the path below the project's root.
        line: the line of its opening fence.
        end: the line of its closing fence.
        number: 1 for the first block of the page, 0 for what cannot run.
        text: what a reader sees: dedented, includes expanded.
        file: where its first line of text was written: the page, or a snippet.
        first: and on which line.
        problem: why it cannot run as it is, and how many lines below the first that stands.
        place: where it runs, with the other blocks of the page.
    """

    page: str
    line: int
    end: int
    place: Place
    file: Path
    number: int = 0
    first: int = 1
    language: str = "problem"
    classes: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    indent: int = 0
    problem: tuple[str, int] | None = None

    @property
    def digest(self) -> str:
        """The digest by which what ran and rendered HTML are compared."""
        return digest(self.text)

    @property
    def checker(self) -> Block | None:
        """The `text` block that states what this one prints, if the next one does."""
        following = self.place.blocks[self.place.blocks.index(self) + 1 :][:1]
        checks = [b for b in following if b.language == "text" and "data-check" not in b.attributes]
        return checks[0] if checks else None

    def __str__(self) -> str:
        message, below = self.problem or ("", 0)
        return f"{self.page}:{self.line + below}: {message}"


def digest(text: str) -> str:
    """Return the SHA-256 of a block's text, blind to what HTML does not show."""
    lines = [line.rstrip() for line in text.strip("\n").split("\n")]
    return hashlib.sha256("\n".join(lines).strip("\n").encode()).hexdigest()


# Finding: Sybil's lexer and collection, and what a fence says.


class Docstrings(PythonDocStringDocument):
    """The docstrings of a module, as they are written. Each is a page; nothing is imported."""

    __init__ = Document.__init__

    @staticmethod
    def extract_docstrings(python_source_code: str) -> Iterator[tuple[int, int, str]]:
        """Yield where each starts and ends, and its text on the lines of the file."""
        for start, end, _ in PythonDocStringDocument.extract_docstrings(python_source_code):
            yield start, end, python_source_code[start:end]


class Pages(Sybil):
    """The Markdown pages below a folder.

    Args:
        root: the folder; includes come from its `snippets/`.
        parsers: what else finds something in a page, beside its fences.
    """

    def __init__(self, root: Path, *parsers: Callable[[Document], Iterable[Region]]) -> None:
        super().__init__(
            parsers=[self.blocks, *parsers],
            pattern="*.md",
            path=str(root),
            document_types={".py": Docstrings},
            teardown=_close,
        )
        self.folders = (root / "snippets",)
        self.fences = list[tuple[int, int]]()

    def parse(self, path: Path) -> Document:
        """Find the blocks of a page, and number them."""
        document = super().parse(path)
        for number, example in enumerate(document.examples(), 1):
            block: Block = example.parsed
            block.first += example.line - block.line if block.file == path else 0
            block.end += example.line - block.line
            block.line, block.number = example.line, 0 if block.problem else number
        return document

    def identify(self, example: Example) -> str:
        """Return the name of a block's test."""
        return f"{example.line}-{example.parsed.language}"

    def blocks(self, document: Document) -> Iterator[Region]:
        """Find every fence of a page, or of a docstring, whatever its language and attributes."""
        place, end = Place(self.path), 0
        self.fences.clear()
        for region in sorted(_LEXER(document), key=lambda region: region.start):
            if region.start < end:
                continue  # inside of a fence that is never closed
            end = region.end
            self.fences.append((region.start, end))
            place.blocks.append(self._read(document, region, place))
            place.blocks[-1].number = len(place.blocks)
            yield Region(region.start, end, place.blocks[-1], evaluate)

    def _read(self, document: Document, region: Region, place: Place) -> Block:
        above, whole = document.text[: region.start], document.text[region.start : region.end]
        opening, *lines = whole.split("\n")
        line, file = above.count("\n") + 1, Path(document.path)
        page = file.relative_to(self.path) if file.is_relative_to(self.path) else file
        block = Block(page.as_posix(), line, line + len(lines), place, file)
        hint = HINT.match(above.removesuffix("\n").rpartition("\n")[2])
        try:
            body = self._body(opening, lines, block)
            info = region.lexemes["info"] or ""
            block.language, words = read_info(info, f" {hint['words']}" if hint else "")
        except PageError as error:
            block.problem = error.args
            return block
        block.classes = tuple(word[1:] for word in words if word.startswith("."))
        block.attributes = {w: value for w, value in words.items() if not w.startswith(".")}
        if hint and ".unsafe" in hint["words"] and "/" in block.page:
            block.problem = "a comment does not hide the copy button; use braces", 0
        block.text = "\n".join(each.text if each.text.strip() else "" for each in body).rstrip("\n")
        block.file, block.first = body[0].file, body[0].number
        return block

    def _body(self, opening: str, lines: list[str], block: Block) -> list[Line]:
        """Return the lines of a block, includes expanded, or say what the site would not show."""
        for form, said in _FENCES.items():
            if re.match(form, opening):
                raise PageError(said, 0)
        indent, _, info = opening.partition("```")
        if not lines or lines.pop().rstrip() != f"{indent}```":
            raise PageError("this fence is never closed; add ``` at the same indent", 0)
        block.indent, body = len(indent), list[Line]()
        for below, line in enumerate(lines, 1):
            if line[: len(indent)].strip():
                raise PageError(
                    "indented less than its fence; indent it, or close the fence", below
                )
            if line.lstrip().startswith("```"):
                raise PageError("a fence inside a fence; show it as two blocks", below)
            if "\t" in line and info != "text":  # what a program printed is shown as it is
                raise PageError("a tab; the site shows spaces, so write spaces", below)
            text = line.expandtabs(TAB)[len(indent) :]
            try:
                body += expand(text, self.folders) or [Line(text, block.file, block.line + below)]
            except PageError as error:
                raise PageError(*error.args, below) from None
        while body and not body[0].text.strip():
            body.pop(0)
        if not body:
            raise PageError("an empty block; write something or remove it", 0)
        return body


def read_info(info: str, hint: str = "") -> tuple[str, dict[str, str]]:
    """Read what follows the three backticks, together with a `block:` comment above them.

    Raises:
        PageError: it is not something that the site renders and this file knows.
    """
    found = _INFO.fullmatch(info.strip())
    if found is None:
        raise PageError(f"cannot read {info.strip()!r}; write ```python or ```{{ .python … }}", 0)
    language = found[1] or found[3] or ""
    if language not in EVALUATORS:
        said = f"unknown language {language!r}" if language else "no language"
        raise PageError(f"{said}; use one of: {', '.join(sorted(EVALUATORS))}", 0)
    text = f"{(found[2] or found[4] or '').rstrip()}{hint}".rstrip()
    if rest := _WORD.sub("", text).strip():
        raise PageError(f'cannot read {rest!r}; write .class or name="value"', 0)
    words = dict(_WORD.findall(text))
    for problem in _that_mean_nothing(language, words):
        raise PageError(problem, 0)
    return language, words


def _that_mean_nothing(language: str, words: Mapping[str, str]) -> Iterator[str]:
    """Say what is not known, means nothing on this language, or lacks its other half."""
    for word, value in words.items():
        languages, form, says = WORDS.get(word, (None, "", ""))
        if languages is None:
            kind = "class" if word.startswith(".") else "attribute"
            yield f"unknown {kind} {word}; known: {', '.join(WORDS)}"
        elif languages and language not in languages.split():
            yield f"{word} means nothing on {language}; remove it"
        elif not re.fullmatch(form, value):
            yield f"{word} is {says or 'a class, without a value'}; correct it"
    said = {language, *words, *(f"{word}={value}" for word, value in words.items())}
    for each, (other, problem) in NEEDS.items():
        if said.issuperset(each.split()) and other not in said:
            yield problem


def expand(line: str, folders: Iterable[Path]) -> list[Line] | None:
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
    files = [folder / name for folder in folders if (folder / name).is_file()]
    files = [f for f in files if any(f.resolve().is_relative_to(p.resolve()) for p in folders)]
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


# Running: where the blocks of a page run, one after the other.

OPENERS: Final[list[Callable[[Place], None]]] = []
"""What a project does with a place before the first block runs there, such as to start a server."""


class Place:
    """What the blocks of a page share: a module, a folder, an environment, what was printed.

    Until the place is closed the module is `__main__`, as it is for a reader who copies the page
    into a file: classes pickle, and messages name them as the reader will see them. The folder is
    a new one below the system's temporary folder.

    Attributes:
        root: the project.
        blocks: those of the page.
        folder: where they run.
        environ: what programs that they start find in their environment.
        names: what stands for a part of the output that differs each time.
        output: what the last block printed and a `text` block has yet to check.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blocks: list[Block] = []
        self.environ: dict[str, str] = {}
        self.output = ""
        self.stack = contextlib.ExitStack()
        self.module: ModuleType | None = None

    def open(self, like: Place | None = None) -> None:
        """Begin as a reader does: in a new folder, with an empty module."""
        temp = Path(tempfile.gettempdir()).resolve()
        made = tempfile.TemporaryDirectory(dir=temp, prefix="page-", ignore_cleanup_errors=True)
        base = Path(self.stack.enter_context(made))
        self.folder = base / "work"
        for new in (self.folder, base / "home"):
            new.mkdir(mode=0o700)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self.environ = {"PATH": path, "LANG": "C.UTF-8"} | (like.environ if like else {})
        self.environ |= {"HOME": str(base / "home"), "TMPDIR": str(temp)}
        self.names = {str(self.folder): "/home/you", str(temp): "/tmp"}  # noqa: S108  shown
        self.names |= like.names if like else {}
        for opener in OPENERS:
            opener(self)
        environ, enter = without_places(os.environ) | self.environ, self.stack.enter_context
        enter(patch.dict(os.environ, environ, clear=True))
        enter(patch.object(tempfile, "tempdir", None))
        enter(contextlib.chdir(self.folder))
        self.stack.callback(os.umask, os.umask(0o022))
        self.stack.callback(sys.modules.update, __main__=sys.modules["__main__"])
        self.module = sys.modules["__main__"] = ModuleType("__main__")

    def shown(self, text: str) -> str:
        """Return output as every reader sees it, whatever the folder is called today."""
        for real, name in self.names.items():
            alone = r"(?<!\d)%s(?!\d)" if real.isdigit() else "%s"
            text = re.sub(alone % re.escape(real), name, text)
        return text

    def evaluate(self, block: Block) -> None:
        """Run a block, or check it for what it is.

        Raises:
            Wrong: it does not do what the page says.
        """
        if self.module is None:
            self.open()
        name = block.attributes.get("data-check", block.language)
        if name != "text":
            self.output = ""
        if name == "python" and "unsafe" in block.classes:
            name = "unsafe"
        if name == "python" and "data-write" in block.attributes:
            name = "kept"
        where = self
        if "alone" in block.classes:  # as a file that stands by itself
            where = Place(self.root)
            where.open(self)
        try:
            self.output = {**EVALUATORS, **CHECKS}[name](where, block)
        finally:
            if where is not self:
                where.close()
        if kept := block.attributes.get("data-write"):
            (self.folder / kept).write_text(f"{block.text}\n", encoding="utf-8")
        if self.output.strip() and block.checker is None:
            how = "#> lines or a text block" if block.language == "python" else "a text block"
            raise Wrong(f"prints what nothing checks; add {how} below\n{self.output}")

    def run(
        self,
        command: list[str],
        given: str = "",
        *,
        merge: bool = True,
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, str, str]:
        """Run a program in the folder; return its exit code, its output and, unless merged
        into it, its errors.

        Raises:
            Wrong: it did not end in time. What it started was ended with it.
        """
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env={**self.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            encoding="utf-8",
            errors="backslashreplace",
            start_new_session=True,
        ) as process:
            try:
                output, said = process.communicate(given, timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise Wrong(f"still running after {TIMEOUT:g} s; make it end") from None
        return process.returncode, self.shown(output), self.shown(said or "")

    def close(self) -> None:
        """Remove the folder, and end what runs for it."""
        self.stack.close()


def without_places(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out what says where a user's or a service's files belong."""
    return {name: value for name, value in environ.items() if not _PLACES.match(name)}


def missing(block: Block) -> str:
    """Return what a block needs and is not installed, or ""."""
    name = block.attributes.get("data-needs", "json")
    return "" if importlib.util.find_spec(name) else name


def _close(namespace: dict[str, Any]) -> None:
    if "place" in namespace:
        namespace["place"].close()


def evaluate(example: Example) -> str | None:
    """Evaluate a block for Sybil: return what is wrong with it, or None."""
    block: Block = example.parsed
    if block.problem:
        return str(block)
    if name := missing(block):
        block.place.output = ""
        raise unittest.SkipTest(f"{block}needs {name}, which is not installed")
    if example.namespace.setdefault("place", block.place) is not block.place:  # a new docstring
        example.namespace["place"].close()
        example.namespace["place"] = block.place
    try:
        block.place.evaluate(block)
    except Wrong as wrong:
        return f"{block}{wrong}"
    return None


# Python: in the page's module, or in a process of its own if it is unsafe.


class Raised(NamedTuple):
    """An exception that ended a block, and the line of the block that raised it."""

    name: str
    message: str
    line: int | None
    details: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


def compiled(block: Block) -> CodeType:
    """Compile with the name of the page and its line numbers, so that tracebacks point there."""
    above = "\n" * (block.first - 1)
    try:
        return compile(above + block.text, str(block.file), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise Wrong(f"raises SyntaxError: {error}") from None


def check_syntax(_: Place, block: Block) -> str:
    """Compile a block that runs later, as a file."""
    compiled(block)
    return ""


def run_python(place: Place, block: Block) -> str:
    """Run a block in the page's module and return the output that is still unchecked."""
    if block.text.startswith("# UNSAFE:"):
        raise Wrong("starts with # UNSAFE: but is not marked; write ```{ .python .unsafe … }")
    code, raised = compiled(block), None
    with captured() as output:
        try:
            exec(code, vars(place.module))  # noqa: S102
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001
            here = error.__traceback__ and error.__traceback__.tb_next
            line = here.tb_lineno - block.first + 1 if here else None
            details = "".join(traceback.format_exception(error.with_traceback(here)))
            raised = Raised(type(error).__name__, place.shown(str(error)), line, details)
    return _compared(block, place.shown("".join(output)), raised)


def run_unsafe(place: Place, block: Block) -> str:
    """Run a block by itself in another process, and look for what its payload leaves behind."""
    if not block.text.startswith("# UNSAFE: "):
        raise Wrong("an unsafe block starts with # UNSAFE: and what it shows; add that line")
    name = block.attributes.get("data-marker", "")
    if name and (place.folder / name).exists():
        raise Wrong(f"the marker {name} is there before the block runs; choose another name")
    mark = f"<{secrets.token_hex(16)}>"
    script = f"{block.text}\nprint('{mark}')\n"
    code, output, errors = place.run([sys.executable, "-"], script, merge=False)
    output, *end = output.split(f"{mark}\n")
    _, *traces = errors.split("Traceback (most recent call last):\n")
    if not end and not traces:
        raise Wrong(f"ended with exit code {code} before its last line\n{errors}")
    raised = None
    if not end:
        said = re.sub(r"\A(?: .*\n)+(?:\w+\.)*", "", traces[-1]).rstrip("\n")
        kind, _, message = said.partition(": ")
        lines = re.findall(r'^  File "<stdin>", line (\d+)', traces[-1], re.MULTILINE)
        raised = Raised(kind, message, int(lines[0]) if lines else None, errors)
    rest = _compared(block, output, raised)
    if name and not (place.folder / name).exists():
        raise Wrong(f"the marker {name} is not there afterwards: the payload did not run")
    if not (name or raised or output):
        raise Wrong('shows no effect; add data-marker="file", printed output or data-raises')
    return rest


def _compared(block: Block, printed: str, raised: Raised | None) -> str:
    """Compare with what the block says about itself; return what it leaves to a text block."""
    wanted, _, part = block.attributes.get("data-raises", "").partition(": ")
    if raised and not wanted:
        raise Wrong(f"raises {raised}\n{raised.details}")
    if wanted and not raised:
        raise Wrong(f"raises nothing, though the page says {wanted}")
    if raised:
        _check_raised(block, raised, wanted, part)
    stated = stated_output(block.text)
    if stated is not None:
        if not printed:
            raise Wrong("prints nothing, though it has #> lines")
        if printed.rstrip("\n") != stated:
            raise Wrong(_difference("does not print what its #> lines say", stated, printed))
        printed = ""
    return printed + (f"{raised}\n" if raised and block.checker else "")


def _check_raised(block: Block, raised: Raised, wanted: str, part: str) -> None:
    last = ast.parse(block.text).body[-1]
    first = min([last.lineno, *(each.lineno for each in getattr(last, "decorator_list", []))])
    if raised.name != wanted:
        raise Wrong(f"raises {raised.name}, though the page says {wanted}\n{raised.details}")
    if raised.line is not None and raised.line < first:
        raise Wrong(f"raises {wanted} before its last statement; end the block there")
    if part not in raised.message:
        raise Wrong(f"raises {wanted} with another message\n--- the page\n{part}\n+++ {raised}")
    if part and len(part) < ENOUGH and part != raised.message:
        said = f"write {ENOUGH} characters or more of it, or the whole message"
        raise Wrong(f"{part!r} could be in many messages; {said}")
    if not part and block.checker is None:
        said = f'write data-raises="{wanted}: part of it", or a text block below'
        raise Wrong(f"the message of {wanted} is unchecked; {said}")


def stated_output(code: str) -> str | None:
    """Return what the `#>` lines say, or None if there are none.

    pytest-examples writes several lines from one `print` as a bare triple-quoted string; that
    counts too.
    """
    found = [
        (token.start[0], token.string[2:].removeprefix(" "))
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT and token.string.startswith("#>")
    ]
    for node in ast.walk(ast.parse(code)):
        source = ast.get_source_segment(code, node) if isinstance(node, ast.Expr) else None
        if isinstance(node, ast.Expr) and (source or "").startswith(('"""\n', "'''\n")):
            lines = (source or "")[4:-3].rstrip(" ").removesuffix("\n").split("\n")
            text = "\n".join(line.removeprefix(" " * node.col_offset) for line in lines)
            found.append((node.lineno, text))
    return "\n".join(text for _, text in sorted(found)) if found else None


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """Capture what this process and its children write to standard output."""
    result: list[str] = []
    outer, saved = sys.stdout, os.dup(1)
    with tempfile.TemporaryFile() as file:
        outer.flush()
        os.dup2(file.fileno(), 1)
        sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
        try:
            yield result
        finally:
            ours, sys.stdout = sys.stdout, outer
            ours.close()
            os.dup2(saved, 1)
            os.close(saved)
            file.seek(0)
            result.append(file.read().decode("utf-8", "backslashreplace"))


# Scripts, printed text, data.


def run_bash(place: Place, block: Block) -> str:
    """Run a script to its end, or to the failure that it announces; return what it printed."""
    mark = f"<{secrets.token_hex(16)}>"  # which cannot be in anyone's output
    script = f"{block.text}\nprintf '{mark}%s\\n' \"$?\""
    code, output, _ = place.run(["bash", "-euo", "pipefail", "-c", script])
    output, *end = re.split(rf"{mark}(\d+)\n", output)
    if end:
        code, output = int(end[0]), output + end[1]
    check_exit(block, code, output)
    if not end and "data-exit" not in block.attributes:
        raise Wrong(f"the script ended before its last line; let it reach that\n{output}")
    return output


def check_exit(block: Block, code: int, output: str) -> None:
    """Compare the exit code of a program with what the block says."""
    wanted = int(block.attributes.get("data-exit", "0"))
    if code != wanted:
        raise Wrong(f"exit code {code} instead of {wanted}\n{output}")


def run_text(place: Place, block: Block) -> str:
    """Compare with what the block before printed. Three dots may stand for less than half of it."""
    got = place.output.expandtabs(TAB)
    if not got:
        raise Wrong("nothing before it printed this; remove it, or print it")
    if not doctest.OutputChecker().check_output(f"{block.text}\n", got, doctest.ELLIPSIS):
        raise Wrong(_difference("is not what the block above printed", block.text, got))
    if 2 * len("".join(block.text.replace("...", "").split())) < len("".join(got.split())):
        raise Wrong("... stands for more than half of the output; show more of it")
    return ""


def _difference(headline: str, expected: str, got: str) -> str:
    return f"{headline}\n--- the page\n{expected}\n+++ the run\n{got}"


def _read_as(name: str, parse: Callable[[str], object]) -> Callable[[Place, Block], str]:
    def run(_: Place, block: Block) -> str:
        try:
            parse(block.text)
        except (ValueError, yaml.YAMLError, configparser.Error) as error:
            raise Wrong(f"not {name}: {error}") from None
        return ""

    return run


EVALUATORS: Final[dict[str, Callable[[Place, Block], str]]] = {
    "python": run_python,
    "bash": run_bash,
    "text": run_text,
    "json": _read_as("JSON", json.loads),
    "toml": _read_as("TOML", tomllib.loads),
    "ini": _read_as("INI", lambda text: configparser.RawConfigParser().read_string(text)),
    "yaml": _read_as("YAML", yaml.safe_load),
}
"""What runs a block of a language, raises Wrong, and returns the output that is still unchecked."""
CHECKS: Final[dict[str, Callable[[Place, Block], str]]] = {
    "unsafe": run_unsafe,
    "kept": check_syntax,
}
"""What takes its place for some of them, by the name that `data-check` gives."""
