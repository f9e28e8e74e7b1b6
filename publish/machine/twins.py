"""A Markdown twin of each page: all that it says, and what its colours say, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import dirname, join, normpath, relpath
from typing import Final
from xml.etree import ElementTree as ET

from markdown.extensions.toc import slugify

from publish.fill import fill
from publish.machine.reference import reference
from publish.project import Page, Project, public
from tests.harness.blocks import INLINE_CODE, Block, expand, find_blocks

_INSET: Final = re.compile(r'^ *(?:===|[!?]{3}\+? +(?P<kind>[\w-]+))(?: +"(?P<title>.*)")? *$')
_DIRECTIVE: Final = re.compile(r"^::: +(?P<path>[\w.]+) *$")
_DEEPER: Final = 4  # spaces before what is inset

_COMMENT: Final = re.compile(r"^ *<!-- .* -->[ \t]*\n?", re.MULTILINE)
_TAG: Final = re.compile(r"</?(?:sub|sup|kbd|div|figure|figcaption)\b[^>]*>")
_ATTRIBUTES: Final = r"""\{:?[ ]*(?P<words>(?:[.#][\w-]|[\w-]+=["'])[^{}\n]*?)[ ]*\}"""
_HEADING: Final = re.compile(rf"^(?P<head>#+ .*?)[ ]+{_ATTRIBUTES}[ \t]*$", re.MULTILINE)
_TRAILING: Final = re.compile(rf"[ ]?{_ATTRIBUTES}")
_ID: Final = re.compile(r"""(?:#|id=")(?P<id>[\w.-]+)""")
_IMAGE: Final = re.compile(r"!\[(?P<alt>[^\]]*)\](?=\()")
_LINK: Final = re.compile(r"(?P<open>\]\(|^ *\[[^\]^][^\]]*\]: +)(?P<target>[^)\s]+)", re.MULTILINE)
_MASK: Final = re.compile(r"\0(?P<number>\d+)\0")


def twins(project: Project) -> dict[str, str]:
    """Return the twin of every page, by its address below the site's root."""
    return {page.twin: twin(page, project) for page in project.pages.values()}


def twin(page: Page, project: Project) -> str:
    """Return one page as Markdown that needs no style sheet.

    Raises:
        PageError: a block of it cannot be read.
    """
    front = {"title": page.title, "description": page.description, "url": public(page.url)}
    # JSON is YAML, and quotes what needs to be quoted.
    head = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front.items()]
    lines = list(_flat(fill(page.text, project).split("\n")))
    body = "".join(_pieces(lines, page, project))
    return "\n".join(["---", *head, "---", "", _tidy(body), ""])


def _flat(lines: Sequence[str]) -> Iterator[str]:
    """Yield a page's lines with what stands in callouts below a line that says so."""
    insets: list[int] = []  # how deep the marks stand that are open here
    in_block = False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        while line.strip() and insets and indent <= insets[-1]:
            insets.pop()
        shown = line[_DEEPER * len(insets) :]
        found = None if in_block else _INSET.match(line)
        if found:
            insets.append(indent)
            words = ((found["kind"] or "").capitalize(), found["title"])
            said = f"**{': '.join(filter(None, words))}**"
            shown = f"\n{' ' * (len(shown) - len(shown.lstrip()))}{said}\n"
        in_block ^= line.lstrip().startswith("```")
        yield from shown.split("\n")


def _pieces(lines: Sequence[str], page: Page, project: Project) -> Iterator[str]:
    """Yield a page piece by piece: prose, blocks, drawings, and what is made from the code."""
    found = find_blocks("\n".join(lines), f"docs/{page.src}", root=project.root)
    blocks = {block.line - 1: block for block in found}
    prose: list[str] = []
    index = 0
    while index < len(lines):
        start, index = index, index + 1
        directive = _DIRECTIVE.match(lines[start])
        figure = expand(lines[start], (project.docs / "assets",)) if start not in blocks else None
        if start in blocks:
            index = blocks[start].end
            piece = _block(blocks[start])
        elif directive:
            while index < len(lines) and lines[index].startswith(" "):
                index += 1
            options = "\n".join(lines[start + 1 : index])
            piece = reference(directive["path"], options, project)
        elif figure:
            piece = _figure("\n".join(line.text for line in figure))
        else:
            prose.append(lines[start])
            continue
        yield _prose("\n".join(prose), page, project)
        yield f"\n\n{piece}\n\n"
        prose = []
    yield _prose("\n".join(prose), page, project)


def _block(block: Block) -> str:
    said = label(block.classes, block.attributes)
    lines = [*([said, ""] if said else []), f"```{block.language}", *block.text.split("\n"), "```"]
    return "\n".join(" " * block.indent + line if line else "" for line in lines)


def label(classes: Sequence[str], attributes: Mapping[str, str]) -> str:
    """Return what the colours and the title of a block say, as one line, or ""."""
    title = attributes.get("title", "")
    if "unsafe" in classes:
        return f"**UNSAFE - do not copy:** {title}".rstrip()
    if "refused" in classes:
        raises = attributes.get("data-raises", "").partition(":")[0]
        ends = " ".join(part for part in (title, f"raises `{raises}`" if raises else "") if part)
        return f"**Refused:** {ends}".rstrip()
    if "fix" in classes:
        return f"**Do this:** {title}".rstrip()
    return f"**{title}**" if title else ""


def _figure(svg: str) -> str:
    root = ET.fromstring(svg)  # noqa: S314  a file of this repository
    texts = {child.tag.rpartition("}")[2]: " ".join((child.text or "").split()) for child in root}
    said = [texts[name] for name in ("title", "desc") if texts.get(name)]
    return f"Figure: {'. '.join(part.rstrip('.') for part in said)}."


def _tidy(text: str) -> str:
    """Leave at most one empty line between two others, but every one inside a block."""
    kept: list[str] = []
    inside = False
    for line in text.strip("\n").split("\n"):
        inside ^= line.lstrip().startswith("```")
        if line.strip() or inside or kept[-1]:
            kept.append(line if inside else line.rstrip())
    return "\n".join(kept)


def _prose(text: str, page: Page, project: Project) -> str:
    """Return lines outside of blocks as plain Markdown, whose links lead to other twins."""
    codes = [found[0] for found in INLINE_CODE.finditer(text)]
    numbers = iter(range(len(codes)))
    text = INLINE_CODE.sub(lambda _: f"\0{next(numbers)}\0", text)
    text = _COMMENT.sub("", text).replace("<br>", " ")
    text = _HEADING.sub(_heading, text)
    text = _TAG.sub(_anchor, _TRAILING.sub(_anchor, text))
    text = _IMAGE.sub(lambda found: f"[Figure: {' '.join(found['alt'].split())}]", text)
    text = _LINK.sub(lambda found: found["open"] + _link(found["target"], page, project), text)
    return _MASK.sub(lambda found: codes[int(found["number"])], text)


def _link(target: str, page: Page, project: Project) -> str:
    """Return where a link of a page leads to from the page's twin."""
    if re.match(r"[a-z][a-z0-9+.-]*:|#|/", target):
        return target
    path, mark, fragment = target.partition("#")
    source = normpath(join(dirname(page.src), path))
    other = project.pages[source].twin if source in project.pages else source
    return relpath(other, dirname(page.twin) or ".") + mark + fragment


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
