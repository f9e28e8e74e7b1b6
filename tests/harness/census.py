"""The census: does the site show exactly the blocks that ran?

A whole `make test` ends with it. It takes the site that was built for all tests of the run, or
builds one, takes every block out of the HTML, and compares page by page with the evidence.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mkdocs.config import load_config
from mkdocs.structure.files import get_files

from tests.harness.blocks import ROOT, Block, digest, written_blocks
from tests.harness.evidence import Entry, Outcome, find, read
from tests.harness.messages import messages, never_raised
from tests.harness.rendered import is_generated, rendered_blocks
from tests.harness.shared import BuildFailed, built

OTHER_SITE: Final = "build/site-zensical"
UNRAISED: Final = "unraised.txt"
# What mkdocs copies or renders as a page, and the tests do not collect.
_OTHER_PAGES: Final = frozenset({".html", ".htm", ".xhtml", ".markdown", ".mdown", ".mkdn", ".mkd"})


@dataclass
class Census:
    """The result: what was counted, and what is wrong."""

    rendered: Counter[Outcome] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    elsewhere: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many blocks the site shows."""
        return self.rendered.total() + self.missing

    def lines(self) -> list[str]:
        """Say it, with the sum as the last line."""
        counted = [f"  {language:8} {n:5}" for language, n in sorted(self.languages.items())]
        if self.elsewhere:
            places = ", ".join(f"{n} in {place}" for place, n in sorted(self.elsewhere.items()))
            counted.append(f"not on the site, and evaluated all the same: {places}")
        found = self.rendered
        total = (
            f"blocks: {self.total} rendered, {found['ran']} ran, "
            f"{found['checked']} checked only, {found['skipped']} skipped, {self.missing} missing"
        )
        return [*self.problems, *counted, total]


def built_with_the_other(root: Path) -> Path:
    """Build it with Zensical, which may take the place of mkdocs one day.

    Raises:
        BuildFailed: with what Zensical said.
    """
    done = subprocess.run(
        [sys.executable, "-m", "publish.zensical", OTHER_SITE],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed(f"the site does not build; correct this first:\n{done.stderr}")
    return root / OTHER_SITE


def take_census(root: Path, entries: Sequence[Entry], site: Path) -> Census:
    """Compare a site that was built with the evidence and with the pages as they are now."""
    census = Census()
    written = written_blocks(root)
    ran = _by_page(entries)
    _check_evidence(census, written, ran, entries)
    docstrings = {entry.sha256: entry for entry in entries if entry.page.endswith(".py")}
    sources = _sources(root)
    shown_docstrings: set[str] = set()
    for html in sorted(site.rglob("*.html")):
        name = html.relative_to(site).as_posix()
        source = sources.get(name)
        page = f"docs/{source}" if source else name
        expected = [entry for entry in ran.get(page, ()) if entry.block]
        is_reference = bool(source) and is_generated((root / page).read_text(encoding="utf-8"))
        shown = rendered_blocks(html.read_text(encoding="utf-8"), reference=is_reference)
        for text, _ in shown:
            entry = find(expected, digest(text), take=True)
            if entry is None and is_reference:
                entry = docstrings.get(digest(text))
                shown_docstrings.add(digest(text))
            _count(census, page, text, entry)
        for entry in expected:
            census.problems.append(
                f"{page}:{entry.line}: ran but is not rendered: "
                f"{_first_line(written.get(page, ()), entry.sha256)}"
            )
    _check_no_page_of_another_kind(census, root)
    _check_all_pages_built(census, ran, {f"docs/{source}" for source in sources.values()})
    for entry in entries:
        if not entry.page.startswith("docs/") and entry.sha256 not in shown_docstrings:
            census.elsewhere["docstrings" if entry.page.endswith(".py") else entry.page] += 1
    return census


def _count(census: Census, page: str, text: str, entry: Entry | None) -> None:
    if entry is None:
        census.missing += 1
        first = text.strip().split("\n")[0]
        census.problems.append(f"{page}: rendered but never ran, so write it as a fence: {first}")
    elif entry.outcome != "failed":
        census.rendered[entry.outcome] += 1
        census.languages[entry.language] += 1
    else:
        census.missing += 1


def _check_evidence(
    census: Census,
    written: dict[str, list[Block]],
    ran: dict[str, list[Entry]],
    entries: Iterable[Entry],
) -> None:
    census.problems += [
        f"{entry.page}:{entry.line}: failed; correct it and run make test"
        for entry in entries
        if entry.outcome == "failed"
    ]
    for page in sorted({*written, *ran}):
        now = Counter(block.digest for block in written.get(page, ()))
        then = Counter(entry.sha256 for entry in ran.get(page, ()) if entry.block)
        if now == then:
            continue
        changed = [
            block for block in written.get(page, ()) if now[block.digest] > then[block.digest]
        ]
        line = changed[0].line if changed else 1
        said = changed[0].text.split("\n")[0] if changed else "a block that is gone"
        why = "stale evidence" if then else "no evidence"
        census.problems.append(f"{page}:{line}: {why}, so run make test again: {said}")


def _check_no_page_of_another_kind(census: Census, root: Path) -> None:
    census.problems += [
        f"{file.relative_to(root).as_posix()}: a page that is not .md, so nothing in it runs"
        for file in sorted((root / "docs").rglob("*"))
        if file.suffix.lower() in _OTHER_PAGES
    ]


def _check_all_pages_built(census: Census, ran: dict[str, list[Entry]], built: set[str]) -> None:
    census.problems += [
        f"{page}: its blocks ran, but the site has no such page"
        for page in sorted(ran)
        if page.startswith("docs/") and page not in built
    ]


def _sources(root: Path) -> dict[str, str]:
    """Map each HTML file of the site to the page that it was made from, as mkdocs does."""
    config = load_config(str(root / "mkdocs.yml"))
    return {file.dest_uri: file.src_uri for file in get_files(config).documentation_pages()}


def _by_page(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    pages: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        pages[entry.page].append(entry)
    return dict(pages)


def _first_line(blocks: Iterable[Block], sought: str) -> str:
    return next((b.text.split("\n")[0] for b in blocks if b.digest == sought), "(changed since)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, compare, print; return 1 if anything is amiss."""
    parser = argparse.ArgumentParser(prog="census", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the project")
    parser.add_argument(
        "--both", action="store_true", help="build with Zensical as well, and count there too"
    )
    options = parser.parse_args(arguments)
    root, evidence = options.root, options.root / "build" / "evidence.jsonl"
    try:
        entries = read(evidence).entries
        sites = {"mkdocs": built(root)[0]}
        if options.both:
            sites["Zensical"] = built_with_the_other(root)
    except FileNotFoundError:
        print(f"There is no evidence at {evidence.name}. Run make test.")
        return 1
    except (BuildFailed, ValueError) as error:
        print(error)
        return 1
    if root == ROOT:
        _tell_refusals(evidence.parent)
    problems = 0
    for generator, site in sites.items():
        census = take_census(root, entries, site)
        print(*([f"{generator}:"] if options.both else []), *census.lines(), sep="\n")
        problems += len(census.problems)
    return 1 if problems else 0


def _tell_refusals(build: Path) -> None:
    """Say how many refusals of the package no test of the run has seen, and list them."""
    found = messages()
    never = never_raised(build, found)
    lines = [f"{said.module}:{said.lines.start}: {said.error}: {said}\n" for said in never]
    (build / UNRAISED).write_text("".join(lines), encoding="utf-8")
    print(f"refusals: {len(found)} in the source, {len(never)} never raised (build/{UNRAISED})")


if __name__ == "__main__":
    raise SystemExit(main())
