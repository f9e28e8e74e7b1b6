"""Prose: what a reader would stumble over, with the place and what to do.

Run `python -m tests.harness.prose`; `make check` does. Code is left alone: blocks, inline code,
addresses and what is filled in between markers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from tests.harness.blocks import ROOT

LONGEST_SENTENCE: Final = 45
DESCRIPTION: Final = range(50, 161)
AVOIDED: Final = ("simply", "obviously", "just", "easily", "of course", "!!! danger")
VAGUE: Final = frozenset({"here", "click here", "this", "this page", "link", "more", "read more"})

_FENCE: Final = re.compile(r"^ *```")
_COMMENT: Final = re.compile(r"<!--.*?-->")
_CODE: Final = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<text>[^][]*)\]\([^)]*\)")
_HEADING: Final = re.compile(r"^(?P<level>#{1,6}) +(?P<text>.*?)(?: *\{[^}]*\})?$")
_STARTS: Final = re.compile(r"^ *(?:[-*+] |\d+\. |#|\||>|!!!|\?\?\?|:::|<|=== )")
# A semicolon lets a reader breathe, too.
_SENTENCE: Final = re.compile(r"(?<=[.!?:;])[\"”')*]*\s+")
_FRONT_MATTER: Final = re.compile(r"\A---\n(?P<yaml>.*?\n)---\n", re.DOTALL)
_TAG: Final = re.compile(r"</?[a-z][^<>]*>")
_CODE_WORD: Final = "\0"
"""What stands for inline code."""


class Line(NamedTuple):
    """A line of prose, without its code and addresses."""

    number: int
    text: str


Check = Callable[[Sequence[Line]], Iterator[tuple[int, str]]]


def problems(text: str, page: str) -> list[str]:
    """Return what to mend on a page, as `page:line: what; do`, in order.

    Args:
        text: the Markdown.
        page: its path below the project. The pages of the site, in `docs/`, need a description.
    """
    found = list(_todo(text))
    if page.startswith("docs/"):
        found += _description(text)
    raw = list(_outside_of_code(text))
    found += _links(raw)
    lines = [Line(number, _bare(line)) for number, line in raw]
    for check in (_words, _sentences, _headings):
        found += check(lines)
    return [f"{page}:{number}: {what}" for number, what in sorted(set(found))]


def _outside_of_code(text: str) -> Iterator[Line]:
    """Yield the lines that a reader reads as prose, without front matter and inline code."""
    front = _FRONT_MATTER.match(text)
    first = text[: front.end()].count("\n") if front else 0
    in_fence = False
    for number, line in enumerate(text.split("\n"), 1):
        fence = bool(_FENCE.match(line))
        if number > first and not fence and not in_fence:
            yield Line(number, _CODE.sub(_CODE_WORD, _COMMENT.sub("", line)))
        in_fence ^= fence


def _bare(line: str) -> str:
    """Leave out addresses and tags."""
    line = _TAG.sub("", _LINK.sub(lambda link: link["text"], line))
    return re.sub(r"https?://\S+", _CODE_WORD, line)


def _todo(text: str) -> Iterator[tuple[int, str]]:
    """Look everywhere, except where inline code speaks of the word."""
    for number, line in enumerate(text.split("\n"), 1):
        if re.search(r"\b(?:TODO|FIXME|XXX)\b", _CODE.sub(_CODE_WORD, line)):
            yield number, "a TODO is left; write what it asks for, and remove it"


def _description(text: str) -> Iterator[tuple[int, str]]:
    front = _FRONT_MATTER.match(text)
    meta = yaml.safe_load(front["yaml"]) if front else None
    said = meta.get("description") if isinstance(meta, dict) else None
    if not isinstance(said, str):
        yield 1, "the page has no description; add one to its front matter, between --- lines"
    elif len(said) not in DESCRIPTION:
        least, most = DESCRIPTION[0], DESCRIPTION[-1]
        yield 1, f"the description has {len(said)} characters; write {least} to {most}"
    elif not said.endswith("."):
        yield 1, "the description is no sentence; end it with a period"


def _links(lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        for link in _LINK.finditer(line):
            text = link["text"].strip()
            if link["image"] and not text:
                yield number, "an image without a text; say in the brackets what it shows"
            elif not link["image"] and text.lower().strip(".*_") in VAGUE:
                yield number, f"the link {text!r} does not say where it leads; name what is there"


def _words(lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        for word in AVOIDED:
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", line, re.IGNORECASE):
                yield number, f"{word!r} shouts or belittles; leave it out"


def _sentences(lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    for number, paragraph in _paragraphs(lines):
        for sentence in _SENTENCE.split(paragraph):
            words = len(re.findall(r"[\w\0]+(?:['’.-][\w\0]+)*", sentence))
            if words > LONGEST_SENTENCE:
                yield number, f"a sentence of {words} words; make two of it, or a list"


def _headings(lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    before = 0
    for number, line in lines:
        heading = _HEADING.match(line)
        if heading is None:
            continue
        level = len(heading["level"])
        if heading["text"].endswith((".", ":", ",", ";")):
            yield number, f"the heading ends with {heading['text'][-1]!r}; leave that out"
        if before and level > before + 1:
            yield (
                number,
                f"a heading of level {level} below one of level {before}; use {before + 1}",
            )
        if before and level == 1:
            yield number, "a second title; use ##"
        before = level


def _paragraphs(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield paragraphs, items of lists and cells of tables, each with its first line."""
    first, text, last = 0, "", 0
    for line in lines:
        if not line.text.strip() or line.number != last + 1 or _STARTS.match(line.text):
            yield Line(first, text)
            text = ""
        first, last = first if text.strip() else line.number, line.number
        if line.text.lstrip().startswith("|"):
            yield from (Line(line.number, cell) for cell in line.text.split("|"))
        else:
            text += f" {line.text.strip()}"
    yield Line(first, text)


def pages(root: Path) -> list[Path]:
    """Return every file of prose."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def main(root: Path = ROOT) -> int:
    """Print what is to be mended; return 1 if there is something."""
    said: dict[str, str] = {}
    found: list[str] = []
    for file in pages(root):
        page = file.relative_to(root).as_posix()
        text = file.read_text(encoding="utf-8")
        found += problems(text, page)
        front = _FRONT_MATTER.match(text)
        line = re.search(r"^description: (.*)$", front["yaml"], re.MULTILINE) if front else None
        other = said.setdefault(line[1], page) if line else page
        if other != page:
            found.append(f"{page}:1: {other} has the same description; say what this one is about")
    sys.stdout.write("".join(f"{problem}\n" for problem in found))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
