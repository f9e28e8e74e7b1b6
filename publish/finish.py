"""Finish the HTML that a generator made: marks, the foot of each page, the policy, the twins."""

from __future__ import annotations

import json
from datetime import date
from html import escape
from pathlib import Path
from typing import Final

from publish import machine, verified
from publish.lean import lean_page, lean_styles
from publish.marks import Count, marked
from publish.policy import STYLES, with_policy, without_styles
from publish.project import Page, Project

_END: Final = "</article>"
_SEARCH: Final = "search/search_index.json"
_LAZY: Final = "search/all.json"


def finish(site: Path, project: Project, *, policy: bool, styles: str = STYLES) -> Count:
    """Finish each page of a site that was built into `site`.

    Args:
        site: the folder of the HTML.
        project: what it was made from.
        policy: whether the pages say what they may load. A page that reloads by itself cannot.
        styles: where styles may come from, in the words of the policy.
    """
    pages = {page.html: page for page in project.pages.values()}
    finished: dict[Path, str] = {}
    count = Count()
    for file in sorted(site.rglob("*.html")):
        html = without_styles(file.read_text(encoding="utf-8"))
        page = pages.get(file.relative_to(site).as_posix())
        if page is not None:
            html = marked(html, page, project.evidence, count)
            html = html.replace(_END, _foot(page, project) + _END, 1)
        finished[file] = html
    for file, html in finished.items():
        whole = lean_page(verified.with_census(html, count, project))
        file.write_text(with_policy(whole, styles) if policy else whole, encoding="utf-8")
    lean_styles(site)
    _search_later(site)
    machine.apply(site, project)
    return count


def _foot(page: Page, project: Project) -> str:
    """Say when a page was last changed, what its blocks rest on, and where its source is."""
    up = "../" * page.url.count("/")
    day = project.reviewed.get(page.src)
    parts = [f"Last changed {_written(day)}"] if day else []
    parts.append(f'<a href="{up}verified/">{verified.of_page(page, project)}</a>')
    parts.append(f'<a href="{up}{escape(page.twin)}">This page as Markdown</a>')
    return f'<p class="page-foot">{" · ".join(parts)}</p>'


def _written(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


def _search_later(site: Path) -> None:
    """Keep what can be searched out of the way until somebody searches: it is half a site."""
    index = site / _SEARCH
    if index.is_file():
        whole = index.read_bytes()
        (site / _LAZY).write_bytes(whole)
        empty = {"config": json.loads(whole)["config"], "docs": []}
        index.write_text(json.dumps(empty, sort_keys=True), encoding="utf-8")
