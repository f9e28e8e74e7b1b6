"""The blocks of this project, and what may stand beside them: code that no fence shows never ran.

`pages.py` finds and runs them. Here are the words that this project adds to a fence, and the HTML
that a page may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sybil import Document, Region

from tests.harness import checks, pages, sql
from tests.harness.pages import HINT, Block, PageError, Pages, Place, digest, evaluate, expand

__all__ = ["Block", "digest", "expand"]

ROOT: Final = Path(__file__).resolve().parents[2]
_FENCED: Final = re.compile(r"^ *```.*?(?:^ *```|\Z)", re.MULTILINE | re.DOTALL)

# What a fence of this project can say besides.
_CHECK: Final = 'data-check="make" is for bash, and the others are for text; correct it'
_TREE: Final = 'data-check="subclasses" and data-module go together; write both'
_LOGIN: Final = 'SQL runs on PostgreSQL, as a login; add data-login="name"'
pages.EVALUATORS["sql"] = sql.run_sql
pages.OPENERS.append(sql.start_server)
pages.CHECKS.update(
    make=checks.check_make,
    paths=checks.check_paths,
    record=checks.check_record,
    subclasses=checks.check_subclasses,
)
pages.WORDS.update(
    {
        "data-exit": ("bash sql", *pages.WORDS["data-exit"][1:]),
        "data-check": ("bash text", "make|paths|record|subclasses", "the name of a check"),
        "data-module": ("text", r"[\w.]+", "the module of a tree of classes"),
        "data-login": ("sql", r"[a-z]\w*", "the name of a login"),
        "data-tls": ("sql", r"[\w.-]+", "a host name for the certificate"),
        ".unsafe": ("python sql", "", ""),
    }
)
pages.NEEDS.update(
    {
        "sql": ("data-login", _LOGIN),
        "data-module": ("data-check=subclasses", _TREE),
        "data-check=subclasses": ("data-module", _TREE),
        "data-check=make": ("bash", _CHECK),
        "data-check bash": ("data-check=make", _CHECK),
    }
)

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
_ODD: Final = re.compile("[`<>=]|doc")
"""A part of whatever is a problem."""
_LOOKS: Final = re.compile(rf"\bstyle\s*=|{'|'.join(sorted(GENERATED))}")
_NO_PLACEHOLDERS: Final = SHOWS_CODE | {"code", "script", "style", "svg", "object", "embed", "math"}


class Project(Pages):
    """All that has blocks: the pages, README, CONTRIBUTING, and the docstrings of the package."""

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root, self.markup)
        self._included = (*self.folders, root / "docs" / "assets")

    def should_parse(self, path: Path) -> bool:
        """Tell whether a file is a page, or a module whose docstrings are."""
        below = path.relative_to(self.path) if path.is_relative_to(self.path) else Path()
        is_page = below.suffix == ".md" and (
            below.parts[0] == "docs" or below.as_posix() in {"README.md", "CONTRIBUTING.md"}
        )
        return is_page or (below.suffix == ".py" and below.parts[:2] == ("src", "safepoint"))

    def markup(self, document: Document) -> Iterator[Region]:
        """Find each line outside of fences that shows what would not run."""
        text = document.text
        for start, end in self.fences:
            text = text[:start] + re.sub(r"[^\n]", "\1", text[start:end]) + text[end:]
        start, lines = 0, text.split("\n")
        page = Path(document.path)
        name = page.relative_to(self.path).as_posix()
        for number, line in enumerate(lines, 1):
            following = "".join(lines[number : number + 1])
            odd = "\1" not in line and _ODD.search(line)
            said = "\n".join(self._problems(line, following, name)) if odd else ""
            end = start + len(line)
            if said:
                block = Block(name, number, number, Place(self.path), page, problem=(said, 0))
                yield Region(start, end, block, evaluate)
            start = end + 1

    def _problems(self, line: str, following: str, page: str) -> Iterator[str]:
        try:
            included = expand(line, self._included)
            if included and included[0].file.suffix != ".svg":
                yield "an include outside of a fence; put it inside one"
        except PageError as error:
            yield str(error)
        line = INLINE_CODE.sub("\0", line)
        if HINT.match(line) and "\1" not in following:
            yield "a block comment above no fence; put it right above one"
        if "```" in line:
            yield "``` in the middle of a line; a fence starts its line"
        elif "`" in line:
            yield "inline code that ends on another line; keep it on one"
        if line.lstrip().startswith(">>> "):
            yield ">>> outside of a fence; write a ```python block"
        visible = _COMMENT.sub("", line)
        for tag in _TAG.finditer(visible):
            name, word = tag["name"].lower(), tag["name"].lower().rstrip(",")
            stands_for_a_name = word.isidentifier() and word not in _NO_PLACEHOLDERS
            if _ALLOWED.fullmatch(tag[0]):
                continue
            if name.startswith("!--"):
                yield "not a comment on one line; write <!-- words --> without -- in them"
            elif not (page.endswith(".py") and stands_for_a_name and "=" not in tag["rest"]):
                yield f"raw <{name}>; write a fenced block, or Markdown"
        if _LOOKS.search(visible):
            yield "a style or class that could hide code from the census; remove it"


def scan_page(text: str, path: str | Path, *, root: Path = ROOT) -> list[Block]:
    """Return the blocks of a page that is written so, and each place that cannot stay, in order."""
    project = Project(root)
    document = Document(text, str(root / path))
    regions = [region for parser in project.parsers for region in parser(document)]
    return [each.parsed for each in sorted(regions, key=lambda each: each.start)]


def find_blocks(text: str, path: str | Path, *, root: Path = ROOT) -> list[Block]:
    """Return the blocks of a page.

    Raises:
        PageError: with one line per place that must be corrected.
    """
    found = scan_page(text, path, root=root)
    if problems := [str(block) for block in found if block.problem]:
        raise PageError("\n".join(problems))
    return found


def without_fences(page: str) -> str:
    """Return what a page says outside of its fences; every line keeps its number."""
    return _FENCED.sub(lambda found: " " + "\n" * found[0].count("\n"), page)


def written_blocks(root: Path) -> dict[str, list[Block]]:
    """Return the blocks of every page and module as they are now."""
    project = Project(root)
    files = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]
    found = {}
    for file in (*files, *(root / "src" / "safepoint").rglob("*.py")):
        if file.is_file():
            blocks = [example.parsed for example in project.parse(file).examples()]
            found[file.relative_to(root).as_posix()] = [b for b in blocks if not b.problem]
    return found
