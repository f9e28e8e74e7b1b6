"""The census: does the site show exactly the blocks that ran?

A whole `make test` ends with it. It takes the site that was built for all tests of the run, takes
every block out of the HTML, and compares page by page with what ran. What a rule names has to have
run, too, if nothing was skipped. `make deep` runs this file, for the site of both generators.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, NamedTuple

from mkdocs.config import load_config
from mkdocs.structure.files import get_files

from publish import evidence
from tests.harness.blocks import GENERATED, ROOT, SHOWS_CODE, digest, without_fences, written_blocks
from tests.harness.evidence import FILE, Entry, Read, find, not_run
from tests.harness.shared import BuildFailed, built

OTHER_SITE: Final = "build/site-zensical"
VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})
"""Elements without an end tag."""
_FROM_CODE: Final = re.compile(r"^ *::: ", re.MULTILINE)
_ODD_COMMENT: Final = re.compile(r"<!---?>|--!>")
# What mkdocs copies or renders as a page, and the tests do not collect.
_OTHER_PAGES: Final = frozenset({".html", ".htm", ".xhtml", ".markdown", ".mdown", ".mkdn", ".mkd"})


class Shown(NamedTuple):
    """A block as a page shows it: its text, and where its element ends in the HTML."""

    text: str
    end: int


def is_generated(page: str) -> bool:
    """Tell whether a page, as it is written, has parts that are made from the code."""
    return bool(_FROM_CODE.search(without_fences(page)))


def rendered_blocks(html: str, *, reference: bool = False) -> list[Shown]:
    """Return each block that a writer wrote, in order: the text of every <pre> and its like.

    The theme has none, so the whole page is read. Only a page of the reference has signatures and
    source that are made from the code itself.
    """
    if _ODD_COMMENT.search(html):
        said = "a comment that a browser ends elsewhere than this reader; write <!-- x -->"
        raise ValueError(said)
    reader = _Reader(html, GENERATED if reference else frozenset())
    reader.feed(html)
    reader.close()
    reader.end(len(html))
    return reader.blocks


class _Reader(HTMLParser):
    def __init__(self, html: str, generated: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self._html = html
        self._lines = [0, *(found.end() for found in re.finditer("\n", html))]
        self._generated = generated
        self.blocks: list[Shown] = []
        self._open: list[str] = []
        self._made: list[bool] = []
        self._text: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        classes = set((dict(attrs).get("class") or "").split())
        self._open.append(tag)
        self._made.append(bool(classes & self._generated))
        if tag in SHOWS_CODE and True not in self._made and self._text is None:
            self._text = []

    def handle_endtag(self, tag: str) -> None:
        if tag not in self._open:
            return
        # HTML lets some elements end without saying so; what they held ends with their parent.
        while self._open.pop() != tag:
            pass
        del self._made[len(self._open) :]
        if self._text is not None and SHOWS_CODE.isdisjoint(self._open):
            line, column = self.getpos()
            self.end(self._html.index(">", self._lines[line - 1] + column) + 1)

    def end(self, place: int) -> None:
        """End the block that is open, if one is."""
        if self._text is not None:
            self.blocks.append(Shown("".join(self._text), place))
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None and True not in self._made:
            self._text.append(data)


class Census(NamedTuple):
    """What is wrong, and what was counted."""

    problems: list[str]
    total: str


def take_census(root: Path, entries: Sequence[Entry], site: Path) -> Census:
    """Compare a site that was built with what ran."""
    problems, ended = list[str](), Counter[str]()
    ran: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        ran[entry.page].append(entry)
    files = get_files(load_config(str(root / "mkdocs.yml"))).documentation_pages()
    sources = {file.dest_uri: f"docs/{file.src_uri}" for file in files}
    docstrings = {entry.sha256: entry for entry in entries if entry.page.endswith(".py")}
    for html in sorted(site.rglob("*.html")):
        name = html.relative_to(site).as_posix()
        page = sources.get(name, name)
        expected = [entry for entry in ran.get(page, ()) if entry.block]
        is_reference = name in sources and is_generated((root / page).read_text(encoding="utf-8"))
        for text, _ in rendered_blocks(html.read_text(encoding="utf-8"), reference=is_reference):
            found = find(expected, digest(text), take=True)
            if found is None and is_reference:
                found = docstrings.get(digest(text))
            if found is None:
                first = text.strip().split("\n")[0]
                said = f"rendered but never ran, so write it as a fence: {first}"
                problems.append(f"{page}: {said}")
            ended[found.outcome if found and found.outcome != "failed" else "missing"] += 1
        for entry in expected:
            said = f"ran but is not rendered: a block of {entry.language}"
            problems.append(f"{page}:{entry.line}: {said}")
    problems += [
        f"{file.relative_to(root).as_posix()}: a page that is not .md, so nothing in it runs"
        for file in sorted((root / "docs").rglob("*"))
        if file.suffix.lower() in _OTHER_PAGES
    ]
    problems += [
        f"{page}: its blocks ran, but the site has no such page"
        for page in sorted(ran)
        if page.startswith("docs/") and page not in sources.values()
    ]
    for page, blocks in written_blocks(root).items():
        left = Counter(b.digest for b in blocks) - Counter(e.sha256 for e in ran.get(page, ()))
        if left and not page.startswith("docs/"):  # where the site would not show them
            problems.append(f"{page}: {left.total()} of its blocks did not run")
    words = {"ran": "ran", "checked": "checked only", "skipped": "skipped", "missing": "missing"}
    said = ", ".join(f"{ended[each]} {word}" for each, word in words.items())
    return Census(problems, f"blocks: {ended.total()} rendered, {said}")


def _built_with_the_other(root: Path) -> Path:
    """Build it with Zensical, which may take the place of mkdocs one day."""
    command = [sys.executable, "-m", "publish.zensical", OTHER_SITE]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"the site does not build; correct this first:\n{done.stderr}")
    return root / OTHER_SITE


def judge(root: Path, found: Read, *, both: bool = False) -> tuple[int, list[str]]:
    """Build the site and compare; return how much is amiss, and what to print."""
    try:
        sites = {"mkdocs": built(root)[0]}
        if both:
            sites["Zensical"] = _built_with_the_other(root)
    except BuildFailed as error:
        return 1, [str(error)]
    legs = [] if root != ROOT or found.totals["skipped"] else not_run(found.proofs)
    said = [f"src/safepoint/rules.toml: nothing ran the {leg}; name what runs" for leg in legs]
    problems = len(legs)
    for generator, site in sites.items():
        census = take_census(root, found.entries, site)
        said += [*([f"{generator}:"] if both else []), *census.problems, census.total]
        problems += len(census.problems)
    return problems, said


def main() -> int:
    """Compare the evidence of the last run with the site of both generators."""
    found = evidence.read(ROOT / FILE, ROOT)
    if found.state != "current":
        print(found.said)
        return 1
    problems, said = judge(ROOT, found, both=True)
    print(*said, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
