"""A Markdown twin of each page: all that it says, and what its colours say, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from publish.broken import BrokenPage
from publish.fill import fill
from publish.machine.address import public
from publish.machine.prose import about, link, prose
from publish.machine.reference import reference
from publish.project import Page, Project
from tests.harness.callouts import LABELS
from tests.harness.fences import parse_info
from tests.harness.includes import expand

_FENCE: Final = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
_HINT: Final = re.compile(r"^ *<!-- *block: *(?P<words>.*?) *--> *$")
_RULE: Final = re.compile(r"^(?P<indent> *)<!-- rule (?P<id>SP\d+) --> *$")
_END_RULE: Final = re.compile(r"^ *<!-- /rule --> *$")
_CALLOUT: Final = re.compile(
    r'<div class="rule rule--\w+" markdown>\n\n\w+\n\n'
    r"\*\*\[(?P<id>SP\d+)\]\(\S+\) · .+\*\*\n\n\w.+\n</div>"
)
_INSET: Final = re.compile(
    r"^(?P<indent> *)(?P<mark>!!!|\?\?\?\+?|===\+?!?) +"
    r'(?:(?P<kind>[\w-]+) *)?(?:"(?P<title>.*)")? *$'
)
_DIRECTIVE: Final = re.compile(r"^::: +(?P<path>[\w.]+) *$")
_SPACE: Final = "    "


def twins(project: Project) -> dict[str, str]:
    """Return the twin of every page, by its address below the site's root."""
    return {page.twin: twin(page, project) for page in project.pages.values()}


def twin(page: Page, project: Project) -> str:
    """Return one page as Markdown that needs no style sheet.

    Raises:
        BadInclude: it includes what is not there.
        BadFence: the opening line of a block cannot be read.
        BrokenPage: more than a callout stands where one does.
    """
    front = {"title": page.title, "description": about(page), "url": public(page.url)}
    # JSON is YAML, and quotes what needs to be quoted.
    head = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front.items()]
    body = _Writer(page, project).written(fill(page.text, project).split("\n"))
    return "\n".join(["---", *head, "---", "", _tidy(body), ""])


@dataclass
class _Writer:
    """Goes through the lines of a page, and of what is inset in it."""

    page: Page
    project: Project

    def written(self, lines: Sequence[str]) -> str:
        pieces: list[str] = []
        text: list[str] = []
        for kind, piece in self._pieces(lines):
            if kind == "prose":
                text.append(piece)
                continue
            pieces += [self._prose(text), piece]
            text = []
        pieces.append(self._prose(text))
        return "\n".join(pieces)

    def _prose(self, lines: list[str]) -> str:
        return prose("\n".join(lines), self.page, self.project) if lines else ""

    def _pieces(self, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
        index, hint = 0, ""
        while index < len(lines):
            line = lines[index]
            words = _HINT.match(line)
            hint = words["words"] if words else hint
            step = 1
            if fence := _FENCE.match(line):
                step = _fence_length(lines, index)
                yield "block", self._block(lines[index : index + step], fence, hint)
                hint = ""
            elif rule := _RULE.match(line):
                step = _until(lines, index, _END_RULE)
                yield "block", self._rule(rule, lines[index : index + step])
            elif directive := _DIRECTIVE.match(line):
                step = 1 + _inset_length(lines[index + 1 :], 0)
                options = "\n".join(lines[index + 1 : index + step])
                yield "block", reference(directive["path"], options, self.project)
            elif (inset := _INSET.match(line)) and (inset["kind"] or inset["title"]):
                step = 1 + _inset_length(lines[index + 1 :], len(inset["indent"]))
                yield "block", self._inset(inset, lines[index + 1 : index + step])
            elif not words:
                included = expand(
                    line, (self.project.root / "snippets", self.project.docs / "assets")
                )
                if included is None:
                    yield "prose", line
                else:
                    yield "block", _figure("\n".join(piece.text for piece in included))
            index += step

    def _block(self, lines: Sequence[str], fence: re.Match[str], hint: str) -> str:
        indent = fence["indent"]
        info = parse_info(fence["info"], hint)
        body: list[str] = []
        for line in lines[1:-1]:
            inside = line[len(indent) :]
            included = expand(inside, (self.project.root / "snippets",))
            body += [inside] if included is None else [piece.text for piece in included]
        while body and not body[0].strip():
            body.pop(0)
        while body and not body[-1].strip():
            body.pop()
        said = label(info.classes, info.attributes)
        shown = [said, "", f"```{info.language}"] if said else [f"```{info.language}"]
        return _indented(["", *shown, *body, "```", ""], indent)

    def _rule(self, found: re.Match[str], lines: Sequence[str]) -> str:
        """Return the callout anew, from the rule: what stands there may be older, but not more."""
        inside = "\n".join(line.removeprefix(found["indent"]) for line in lines[1:-1])
        callout = _CALLOUT.fullmatch(inside)
        if inside.strip() and (callout is None or callout["id"] != found["id"]):
            said = f"more than the callout of {found['id']} stands up to <!-- /rule -->"
            raise BrokenPage(f"{self._place(lines)}: {said}; move it out, then run make fix")
        rule = self.project.rules[found["id"]]
        up = "../" * self.page.src.count("/")
        target = rule.page
        if target is None or target == self.page.src:
            target = f"rules.md#{rule.id.lower()}"
        there = link(up + target, self.page, self.project)
        shown = [
            "",
            f"> **{LABELS[rule.severity]} · [{rule.id}]({there}) · {rule.title}**",
            ">",
            f"> {rule.callout}",
            "",
        ]
        return _indented(shown, found["indent"])

    def _place(self, lines: Sequence[str]) -> str:
        """Return the page and the line where these lines begin in it, however deep they stand."""
        text = (self.project.docs / self.page.src).read_text(encoding="utf-8")
        written = [line.strip() for line in text.split("\n")]
        wanted = [line.strip() for line in lines]
        for number in range(len(written)):
            if written[number : number + len(wanted)] == wanted:
                return f"docs/{self.page.src}:{number + 1}"
        return f"docs/{self.page.src}"

    def _inset(self, found: re.Match[str], lines: Sequence[str]) -> str:
        indent = found["indent"]
        kind = "Tab" if found["mark"].startswith("=") else (found["kind"] or "note").capitalize()
        said = f"**{kind}: {found['title']}**" if found["title"] else f"**{kind}**"
        inside = self.written([line[len(indent) + len(_SPACE) :] for line in lines])
        return _indented(["", said, "", *inside.split("\n"), ""], indent)


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


def _tidy(text: str) -> str:
    """Leave at most one empty line between two others, but every one inside a block."""
    kept: list[str] = []
    inside = False
    for line in text.strip("\n").split("\n"):
        inside ^= bool(_FENCE.match(line))
        if line.strip() or inside or kept[-1]:
            kept.append(line.rstrip() if not inside else line)
    return "\n".join(kept)


def _figure(svg: str) -> str:
    root = ET.fromstring(svg)  # noqa: S314  a file of this repository
    texts = {child.tag.rpartition("}")[2]: " ".join((child.text or "").split()) for child in root}
    said = [texts[name] for name in ("title", "desc") if texts.get(name)]
    return f"\nFigure: {'. '.join(part.rstrip('.') for part in said)}.\n"


def _indented(lines: Sequence[str], indent: str) -> str:
    return "\n".join(f"{indent}{line}" if line.strip() else "" for line in lines)


def _fence_length(lines: Sequence[str], start: int) -> int:
    for index in range(start + 1, len(lines)):
        if lines[index].strip() == "```":
            return index - start + 1
    return len(lines) - start


def _until(lines: Sequence[str], start: int, end: re.Pattern[str]) -> int:
    for index in range(start + 1, len(lines)):
        if end.match(lines[index]):
            return index - start + 1
    return 1


def _inset_length(lines: Sequence[str], indent: int) -> int:
    """Count the lines that stand deeper than `indent`, empty ones between them included."""
    count = 0
    for number, line in enumerate(lines, 1):
        if line.startswith(" " * indent + _SPACE):
            count = number
        elif line.strip():
            break
    return count
