"""Finish the HTML that a generator made: marks, the foot of each page, the policy, the twins."""

from __future__ import annotations

import re
from collections import Counter
from html import escape, unescape
from importlib.metadata import version
from pathlib import Path
from typing import Final

from publish import machine, verified
from publish.fold import folded
from publish.lean import lean_assets, lean_page
from publish.marks import marked
from publish.policy import STYLES, with_policy
from publish.project import ROOT, Page, Project, repository
from publish.search import search_later

_ALIGNED: Final = re.compile(r' style="text-align: (?P<side>left|center|right);"')
_TABLE: Final = re.compile(r"(<table\b.*?</table>)", re.DOTALL)
# A block has an empty element before its code.
_CODE: Final = re.compile(r"(?<!</span>)<code>(?P<text>[^<]+)</code>")
_ROOM: Final = (26, 17)
"""How many letters have room on a line of a phone, and in a cell there."""
_NO_HEAD: Final = re.compile(r"<thead>\s*<tr>\s*(?:<th\b[^>]*></th>\s*)+</tr>\s*</thead>\s*")
_IMAGE: Final = re.compile(r'<img\b(?=[^>]*? src="(?P<src>[^"]+\.svg)")(?![^>]*? width=)')
_SIZE: Final = re.compile(r'<svg\b[^>]*? viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)"')


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
        # A head without a word goes. The alignment of cells becomes a class: no page has a style.
        html = _NO_HEAD.sub("", file.read_text(encoding="utf-8"))
        html = _ALIGNED.sub(r' class="to-\g<side>"', html)
        page = pages.get(file.relative_to(site).as_posix())
        if page is not None:
            html, here = marked(unbroken(html), page, project.evidence)
            html = folded(html).replace("</article>", f"{foot(page, project, here)}</article>", 1)
            counts += here
        finished[file] = html
    for file, html in finished.items():
        whole = lean_page(sized(verified.with_census(html, counts, project), file.parent))
        if policy:
            whole = with_policy(whole, file.relative_to(site).as_posix(), styles)
        file.write_text(whole, encoding="utf-8")
    _lead_on(site, project)
    lean_assets(site)
    search_later(site)
    machine.apply(site, project, counts)
    return counts


def _lead_on(site: Path, project: Project) -> None:
    """Write a page at each address that moved, which leads on to where its text is now."""
    page = (ROOT / "overrides/moved.html").read_text(encoding="utf-8")
    for old, new in project.settings.get("extra", {}).get("moved", {}).items():
        up = "../" * old.count("/")
        html = page.replace("TARGET", up + new).replace("ROOT", up)
        (site / old).mkdir(parents=True, exist_ok=True)
        (site / old / "index.html").write_text(with_policy(html, old), encoding="utf-8")


def foot(page: Page, project: Project, counts: Counter[str]) -> str:
    """Say which version this is, what the blocks of a page rest on, and where its source is."""
    up = "../" * page.url.count("/")
    run = project.evidence.run
    parts = [
        f"Safepoint {version('safepoint')}{f', {run.started:%Y-%m-%d}' if run else ''}",
        f'<a href="{up}verified/">{verified.of_page(page, counts, project)}</a>',
        f'<a href="{up}{escape(page.twin)}">This page as Markdown</a>',
        f'<a href="{up}feed.xml">Feed</a>',
    ]
    if code := repository():
        parts.append(f'<a href="{code}/edit/main/docs/{escape(page.src)}">Edit this page</a>')
        parts.append(f'<a href="{code}/issues/new">Report a problem</a>')
        parts.append(f'<a href="{code}">The code</a>')
    return f'<p class="page-foot">{" · ".join(parts)}</p>'


def unbroken(html: str) -> str:
    """Return the HTML with a class on each short name or command, which no line breaks."""

    def whole(found: re.Match[str]) -> str:
        is_short = len(unescape(found["text"])) <= room
        return f'<code class="whole">{found["text"]}</code>' if is_short else found[0]

    parts = _TABLE.split(html)
    for number, part in enumerate(parts):
        room = _ROOM[number % 2]
        parts[number] = _CODE.sub(whole, part)
    return "".join(parts)


def sized(html: str, folder: Path) -> str:
    """Return the HTML with the size of each drawing, so that nothing moves when it arrives."""

    def with_size(image: re.Match[str]) -> str:
        drawing = folder / image["src"]
        found = _SIZE.search(drawing.read_text(encoding="utf-8")) if drawing.is_file() else None
        size = f' width="{found["width"]}" height="{found["height"]}"' if found else ""
        return image[0] + size

    return _IMAGE.sub(with_size, html)
