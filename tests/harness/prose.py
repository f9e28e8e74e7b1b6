"""Prose: what a reader would stumble over, with the place and what to do.

Run `python -m tests.harness.prose`; `make check` does. Code is left alone: blocks, inline code and
addresses. What the browser sees on a page, such as its headings and images, is tested there.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.harness.blocks import ROOT, without_fences

LONGEST_SENTENCE: Final = 45
AVOIDED: Final = ("simply", "obviously", "just", "easily", "of course", "!!! danger")
VAGUE: Final = frozenset({"here", "click here", "this", "this page", "link", "more", "read more"})

_FRONT_MATTER: Final = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_UNREAD: Final = re.compile(r"<!--.*?-->|</?[a-z][^<>]*>|\]\([^)]*\)")
_CODE: Final = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)|https?://\S+")
_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^][]*)\]\(")
_STARTS: Final = re.compile(r"^ *(?:[-*+] |\d+\. |#|>|!!!|\?\?\?|:::|=== |$)")
# A semicolon lets a reader breathe, too.
_SENTENCE: Final = re.compile(r"(?<=[.!?:;])[\"”')*]*\s+|\n\n|\|")


TRANSLATED: Final = re.compile(
    r"""
    (?<!here\ )\b(?:is|are|was|were|be)\ no\ (?!longer|more|one)\w+  # is no X: is not an X
    |,\ and\ (?:not|no|nothing|none|never|nobody)\b             # , and not: but not, rather than
    |\b(?:Whoever|whoever)\b|\balone\b|,?\ (?:too|either)[.,;:]         # name the actor; only; also
    |\b(?:a|the|one|each|any|signed|her|his|their|your|person's)\ (?:yes|no)(?=[\s.,;:])
    |\b(?:lies|lie|lay|stands|stand|stood|anew|mend|mends|mended|reckon)\b
    |\b(?:go|goes|going|went|gone)\ on\b|\ball\ (?:of\ it|that|else)\b
    |\b(?:is|are|was|were|be)\ (?:said|told)\b|\bfor\ ever\b
    """,
    re.VERBOSE,
)
"""Words that make English read as if it were translated, with what to write instead."""
MOST: Final = 3
"""How many of them a page may have in 1,000 words."""


def texts(root: Path) -> dict[str, str]:
    """Return what src says: its docstrings, its messages, and its tables of words."""
    said = {file.name: file.read_text("utf-8") for file in sorted((root / "src").rglob("*.toml"))}
    said |= {"docstrings of src": "", "messages of src": ""}
    for file in sorted((root / "src").rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                kind = "docstrings" if id(node) in alone else "messages"
                said[f"{kind} of src"] += f"{node.value}\n"
    return said


def translated(text: str, page: str) -> list[str]:
    """Return what to say of a page that has more of these words than it may."""
    prose = _UNREAD.sub("", _CODE.sub("", without_fences(_FRONT_MATTER.sub("", text))))
    found = [mark[0] for mark in TRANSLATED.finditer(re.sub(r"\s+", " ", prose))]
    rate = 1000 * len(found) / max(len(re.findall(r"\w+", prose)), 500)
    if rate <= MOST:
        return []
    words = ", ".join(dict.fromkeys(word.strip() for word in found))
    return [f"{page}: {rate:.1f} translated words in 1,000, at most {MOST}: {words}"]


def problems(text: str, page: str) -> list[str]:
    """Return what to mend on a page, as `page:line: what; do`, in order."""
    front = _FRONT_MATTER.match(text)
    body = "\n" * front[0].count("\n") + text[front.end() :] if front else text
    prose = [_CODE.sub("\0", line) for line in without_fences(body).split("\n")]
    found = [*_todo(text), *_words(prose), *_sentences(prose)]
    return [f"{page}:{number}: {what}" for number, what in sorted(set(found))]


def _todo(text: str) -> Iterator[tuple[int, str]]:
    """Look everywhere, except where inline code speaks of the word."""
    for number, line in enumerate(text.split("\n"), 1):
        if re.search(r"\b(?:TODO|FIXME|XXX)\b", _CODE.sub("\0", line)):
            yield number, "a TODO is left; write what it asks for, and remove it"


def _words(lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        for link in _LINK.finditer(line):
            if link["text"].lower().strip(" .*_") in VAGUE:
                said = f"the link {link['text']!r} does not say where it leads"
                yield number, f"{said}; name what is there"
        if ended := re.match(r"#+ .*?([.:,;])(?: *\{[^}]*\})?$", line):
            yield number, f"the heading ends with {ended[1]!r}; leave that out"
        for word in AVOIDED:
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", _UNREAD.sub("", line), re.IGNORECASE):
                yield number, f"{word!r} shouts or belittles; leave it out"


def _sentences(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Look at paragraphs, items of lists and cells of tables, each with its first line."""
    first, text = 1, ""
    for number, line in enumerate([*lines, ""], 1):
        if _STARTS.match(line) or line.lstrip().startswith("|"):
            for sentence in _SENTENCE.split(text):
                words = len(re.findall(r"[\w\0]+(?:['’.-][\w\0]+)*", sentence))
                if words > LONGEST_SENTENCE:
                    yield first, f"a sentence of {words} words; make two of it, or a list"
            first, text = number, ""
        first = first if text.strip() else number
        text += f" {_UNREAD.sub('', line).strip()}"


def main(root: Path = ROOT) -> int:
    """Print what is to be mended; return 1 if there is something."""
    files = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    found = [
        problem
        for file in files
        for check in (problems, translated)
        for problem in check(file.read_text(encoding="utf-8"), file.relative_to(root).as_posix())
    ]
    found += [problem for name, text in texts(root).items() for problem in translated(text, name)]
    sys.stdout.write("".join(f"{problem}\n" for problem in found))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
