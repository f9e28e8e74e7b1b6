"""The text between the blocks of a page, without what only a web page needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from posixpath import join, normpath
from typing import Final

from markdown.extensions.toc import slugify

from publish.machine.address import between
from publish.project import Page, Project
from tests.harness.markup import INLINE_CODE

_WRAPPER: Final = re.compile(r"^ *</?(?:div|figure|figcaption)\b[^>]*>[ \t]*$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^ *<!-- .* -->[ \t]*\n?", re.MULTILINE)
_INLINE_TAG: Final = re.compile(r"</?(?:sub|sup|kbd|div|figure|figcaption)\b[^>]*>")
_ATTRIBUTES: Final = r"""\{:?[ ]*(?P<words>(?:[.#][\w-]|[\w-]+=["'])[^{}\n]*?)[ ]*\}"""
_ALONE: Final = re.compile(rf"^ *{_ATTRIBUTES}[ \t]*\n?", re.MULTILINE)
_HEADING: Final = re.compile(rf"^(?P<head>#+ .*?)[ ]+{_ATTRIBUTES}[ \t]*$", re.MULTILINE)
_TRAILING: Final = re.compile(rf"[ ]?{_ATTRIBUTES}")
_ID: Final = re.compile(r"""(?:#|id=")(?P<id>[\w.-]+)""")
_IMAGE: Final = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_LINK: Final = re.compile(r'(?P<open>\]\()(?P<target>[^)\s]+)(?P<close>(?:\s+"[^"]*")?\))')
_DEFINITION: Final = re.compile(r"^(?P<open> *\[[^\]^][^\]]*\]: +)(?P<target>\S+)$", re.MULTILINE)
_APART: Final = re.compile(
    r"^ *<!-- rule SP\d+ -->$.*?^ *<!-- /rule -->$|^ *```.*?^ *``` *$", re.DOTALL | re.MULTILINE
)
_MASK: Final = re.compile(r"\0(?P<number>\d+)\0")


def prose(text: str, page: Page, project: Project) -> str:
    """Return lines outside of blocks as plain Markdown, whose links lead to other twins."""
    masked, back = _without_code(text)
    masked = _COMMENT.sub("", _WRAPPER.sub(_anchor, masked))
    masked = masked.replace("<br>", " ")
    masked = _HEADING.sub(_heading, masked)
    masked = _TRAILING.sub(_anchor, _ALONE.sub(_anchor, masked))
    masked = _INLINE_TAG.sub("", masked)

    def image(found: re.Match[str]) -> str:
        alt = " ".join(found["alt"].split())
        return f"[Figure: {alt}]({found['target']})"

    masked = _IMAGE.sub(image, masked)
    for pattern in (_LINK, _DEFINITION):
        masked = pattern.sub(lambda found: _link(found, page, project), masked)
    return back(masked)


def link(target: str, page: Page, project: Project) -> str:
    """Return where a link of a page leads to from the page's twin."""
    if re.match(r"[a-z][a-z0-9+.-]*:|#|/", target):
        return target
    path, mark, fragment = target.partition("#")
    source = normpath(join("/", page.src, "..", path)).lstrip("/")
    other = project.pages.get(source)
    return between(page.twin, other.twin if other else source) + mark + fragment


def _link(found: re.Match[str], page: Page, project: Project) -> str:
    groups = found.groupdict()
    return f"{groups['open']}{link(groups['target'], page, project)}{groups.get('close') or ''}"


def _heading(found: re.Match[str]) -> str:
    """Keep what links point to, where it is not what the heading would be called anyway."""
    identifier = _ID.search(found["words"])
    if identifier is None or identifier["id"] == slug(found["head"].lstrip("# ")):
        return found["head"]
    return f'<a id="{identifier["id"]}"></a>\n\n{found["head"]}'


def _anchor(found: re.Match[str]) -> str:
    """Leave of what a browser needs only what links point to."""
    identifier = _ID.search(found[0])
    return f'<a id="{identifier["id"]}"></a>' if identifier else ""


def slug(heading: str) -> str:
    """Return the anchor that the site gives to a heading without one of its own."""
    return str(slugify(re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading), "-"))


def plain(text: str) -> str:
    """Return a sentence without its markup."""
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text)


def about(page: Page) -> str:
    """Return one sentence about a page: its description, or the first that it says."""
    if page.description:
        return page.description
    for paragraph in re.split(r"\n\s*\n", _APART.sub("", page.text)):
        first = paragraph.lstrip()
        if first and first[0].isalnum():
            sentence = re.split(r"(?<=[.:?!])\s", " ".join(plain(first).split()))[0]
            return sentence.removesuffix(":") + ("." if sentence.endswith(":") else "")
    return page.title


def _without_code(text: str) -> tuple[str, Callable[[str], str]]:
    """Return the text with its inline code masked, and what puts it back."""
    codes: list[str] = []

    def mask(found: re.Match[str]) -> str:
        codes.append(found[0])
        return f"\0{len(codes) - 1}\0"

    def back(masked: str) -> str:
        return _MASK.sub(lambda found: codes[int(found["number"])], masked)

    return INLINE_CODE.sub(mask, text), back
