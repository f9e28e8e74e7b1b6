"""Send less: the theme's rules that no page uses, style sheets of other pages, spaces, comments.

The theme's style sheet serves every site that anybody builds with it. What is left out here names
a class that stands on no page and in no script, or costs more than it gives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_WHOLE: Final = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2>)", re.DOTALL)
_SPACES: Final = re.compile(r"[ \t\r\n]+")
_ASSET: Final = re.compile(
    r"""<(?:link rel="stylesheet" href|script src)="[^"]*?"""
    r"""(?P<name>assets/[\w.-]+\.(?:css|js))">(?:</script>)?"""
)
# Each of these serves pages on which one of the classes stands.
_ONLY_WITH: Final = {
    "assets/_mkdocstrings.css": {"doc"},
    "assets/checklist.css": {"checklist"},
    "assets/checklist.js": {"checklist"},
    "assets/find.css": {"attacks", "ladder--stores"},
    "assets/home.css": {"front"},
}
_CLASSES: Final = re.compile(r'class="([^"]*)"')
_WORD: Final = re.compile(r"-?[A-Za-z_][\w-]*")
_CLASS: Final = re.compile(rf"\.({_WORD.pattern})")
_FUNCTION: Final = re.compile(r":(?:not|is|where|has)\([^()]*\)")
_COMMA: Final = re.compile(r",(?![^(\[]*[)\]])")  # between selectors, and not inside of one
# From right to left; and what holds colours still while they are switched, for which a browser
# would look at every element twice while a page loads.
_COSTLY: Final = ("[dir=rtl]", "[data-md-color-switching]")
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_LINES: Final = re.compile(r"\s*\n\s*")
_LINE_COMMENT: Final = re.compile(r"^ *//.*\n", re.MULTILINE)
_VARIABLE: Final = re.compile(
    r"""(?P<name>--[\w-]+):(?:"[^"]*"|'[^']*'|url\([^()]*(?:\([^()]*\)[^()]*)*\)|[^;{}"'])*+(?:;|(?=\}))"""
)
_USE: Final = re.compile(r"var\(\s*(--[\w-]+)")


def lean_page(html: str) -> str:
    """Return a page without the assets that it does not use, and without spare spaces."""
    classes = _classes(html)

    def kept(asset: re.Match[str]) -> str:
        only = _ONLY_WITH.get(asset["name"])
        return asset[0] if only is None or only & classes else ""

    html = _ASSET.sub(kept, html)
    parts = _WHOLE.split(html)  # what is not whole, what is, and the name of its element
    parts[::3] = [_SPACES.sub(" ", part) for part in parts[::3]]
    del parts[2::3]
    return "".join(parts)


def _classes(html: str) -> set[str]:
    return {name for names in _CLASSES.findall(html) for name in names.split()}


def lean_site(site: Path) -> None:
    """Leave out of the style sheets what no page uses, and of our own files what only authors read.

    Raises:
        ValueError: a style sheet has a brace that nothing closes.
    """
    scripts = "".join(file.read_text(encoding="utf-8") for file in sorted(site.rglob("*.js")))
    words = set(_WORD.findall(scripts))
    for file in site.rglob("*.html"):
        words |= _classes(file.read_text(encoding="utf-8"))
    own = "".join(file.read_text(encoding="utf-8") for file in sorted(site.glob("assets/*.css")))
    for file in sorted(site.glob("assets/stylesheets/*.css")):
        css = "".join(_rules(_COMMENT.sub("", file.read_text(encoding="utf-8")), words))
        file.write_text(_without_variables(css, own + scripts), encoding="utf-8")
    for file in site.rglob("*.map"):
        file.unlink()
    for file in site.glob("assets/*.css"):
        css = _COMMENT.sub("", file.read_text(encoding="utf-8"))
        file.write_text(_LINES.sub("\n", css).lstrip(), encoding="utf-8")
    for file in site.glob("assets/*.js"):
        script = _LINE_COMMENT.sub("", file.read_text(encoding="utf-8"))
        file.write_text(script, encoding="utf-8")


def _rules(css: str, words: set[str]) -> Iterator[str]:
    """Yield the rules of a style sheet that can match something."""
    place = 0
    while (brace := css.find("{", place)) >= 0:
        statements, _, head = css[place:brace].rpartition(";")
        if statements:
            yield f"{statements};"
        end = _end(css, brace)
        body = css[brace + 1 : end - 1]
        if head.startswith(("@media", "@supports")):
            body = "".join(_rules(body, words))
        elif not head.startswith("@"):
            head = ",".join(part for part in _COMMA.split(head) if _matches(part, words))
        if head and body:
            yield f"{head}{{{body}}}"
        place = end
    yield css[place:]


def _end(css: str, brace: int) -> int:
    """Return the place after the brace that closes the one at `brace`."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(css, brace):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return found.end()
    raise ValueError("a style sheet with a brace that nothing closes")


def _matches(selector: str, words: set[str]) -> bool:
    if selector.startswith(_COSTLY):
        return False
    plain = _FUNCTION.sub("", re.sub(r"\\.", "_", selector))
    return all(name in words for name in _CLASS.findall(plain))


def _without_variables(css: str, others: str) -> str:
    """Leave out variables that nothing asks for: most are icons, and large."""
    while True:
        used = set(_USE.findall(css + others)) | set(re.findall(r"--[\w-]+", others))
        left = _VARIABLE.sub(lambda found: found[0] if found["name"] in used else "", css)  # noqa: B023
        if left == css:
            return css
        css = left
