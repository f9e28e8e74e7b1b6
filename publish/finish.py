"""Finish the HTML that a generator made: marks, the foot of each page, the policy, the twins."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from html import escape
from pathlib import Path
from typing import Final

from publish import machine, verified
from publish.allowed import foreign
from publish.broken import BrokenPage
from publish.images import sized
from publish.lean import lean_page, lean_site
from publish.machine.address import repository
from publish.marks import marked
from publish.names import unbroken
from publish.policy import STYLES, ForeignScript, with_policy, without_styles
from publish.project import Page, Project
from publish.search import search_later

_END: Final = "</article>"
_TITLE: Final = re.compile(r"<title>.*?</title>", re.DOTALL)
_SHARED: Final = re.compile(r'(<meta property="og:title" content=")[^"]*"')


def finish(site: Path, project: Project, *, policy: bool, styles: str = STYLES) -> Counter[str]:
    """Finish each page of a site that was built into `site`, and count its blocks.

    Args:
        site: the folder of the HTML.
        project: what it was made from.
        policy: whether the pages say what they may load. A page that reloads by itself cannot.
        styles: where styles may come from, in the words of the policy.
    """
    pages = {page.html: page for page in project.pages.values()}
    finished: dict[Path, str] = {}
    counts: Counter[str] = Counter()
    for file in sorted(site.rglob("*.html")):
        html = without_styles(file.read_text(encoding="utf-8"))
        name = file.relative_to(site).as_posix()
        page = pages.get(name)
        problems = foreign(html)
        if problems:
            where = f"docs/{page.src}" if page else name
            raise BrokenPage("\n".join(f"{where}: {problem}" for problem in problems))
        if page is not None:
            html, here = marked(unbroken(_titled(html, page, project)), page, project.evidence)
            html = html.replace(_END, foot(page, project, here) + _END, 1)
            counts += here
        finished[file] = html
    for file, html in finished.items():
        whole = lean_page(sized(verified.with_census(html, counts, project), file))
        try:
            whole = with_policy(whole, styles) if policy else whole
        except ForeignScript as error:
            raise BrokenPage(f"{file.relative_to(site).as_posix()}: {error}") from None
        file.write_text(whole, encoding="utf-8")
    lean_site(site)
    search_later(site)
    machine.apply(site, project, counts)
    return counts


def _titled(html: str, page: Page, project: Project) -> str:
    """Call a page by its own name, and not by that in the menu."""
    site = project.settings["site_name"]
    title = page.title if page.title == site else f"{page.title} - {site}"
    html = _TITLE.sub(lambda _: f"<title>{escape(title)}</title>", html, count=1)
    return _SHARED.sub(lambda found: f'{found[1]}{escape(page.title)}"', html, count=1)


def foot(page: Page, project: Project, counts: Counter[str]) -> str:
    """Say when a page was last changed, what its blocks rest on, and where its source is."""
    up = "../" * page.url.count("/")
    day = project.reviewed.get(page.src)
    parts = [f"Last changed {_written(day)}"] if day else []
    parts.append(f'<a href="{up}verified/">{verified.of_page(page, counts, project)}</a>')
    parts.append(f'<a href="{up}{escape(page.twin)}">This page as Markdown</a>')
    if address := repository():
        parts.append(f'<a href="{escape(address)}">The code</a>')
    return f'<p class="page-foot">{" · ".join(parts)}</p>'


def _written(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
