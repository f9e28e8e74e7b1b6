"""Raw HTML in a page: a short list of tags and comments on one line, and nothing else.

Code could otherwise be shown without a fence, and nobody would have run it.
"""

from __future__ import annotations

import re
from typing import Final

SHOWS_CODE: Final = frozenset({"pre", "xmp", "listing", "plaintext", "textarea", "samp", "iframe"})
"""Elements whose text a browser shows as it was typed, or a document of its own."""
GENERATED: Final = frozenset({"doc-signature", "mkdocstrings-source"})
"""Classes of what mkdocstrings makes from the code itself."""

INLINE_CODE: Final = re.compile(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)")
CODE: Final = "\0"
"""What stands for inline code once it is taken out."""

# No browser ends such a comment earlier than Markdown does, and none holds a piece of code.
_COMMENT = re.compile(r"<!-- (?:(?!--)[^`\0])* -->")
_TAG = re.compile(r"<(?=[A-Za-z/!?])(?P<name>/?[^\s/>]*)(?P<rest>[^<>]*>?)")
# `markdown`, because backticks mean nothing in an element without it.
_ALLOWED = re.compile(
    r"""
      <(?:div|figure|figcaption)(?:[ ](?:class|id)="[\w -]+")*[ ]markdown>
    | <a[ ]id="[\w-]+">
    | <(?:br|sub|sup|kbd)>
    | </(?:div|figure|figcaption|a|sub|sup|kbd)>
    | <https?://[^\s<>]+>
    """,
    re.VERBOSE,
)
_LOOKS = re.compile(rf"\bstyle\s*=|{'|'.join(sorted(GENERATED))}")
_NO_PLACEHOLDERS: Final = SHOWS_CODE | {"code", "script", "style", "svg", "object", "embed", "math"}


def markup_problems(line: str, *, docstring: bool = False) -> list[str]:
    """Say what is wrong with the HTML of a line whose inline code has become `CODE`.

    In a docstring `<name>` may also stand for a name.
    """
    visible = _COMMENT.sub("", line)
    problems = []
    for tag in _TAG.finditer(visible):
        name = tag["name"].lower()
        if _ALLOWED.fullmatch(tag[0]):
            continue
        if name.startswith("!--"):
            problems.append("not a comment on one line; write <!-- words --> without -- in them")
        elif not (docstring and _is_placeholder(name, tag["rest"])):
            problems.append(f"raw <{name}>; write a fenced block, or Markdown")
    if _LOOKS.search(visible):
        problems.append("a style or class that could hide code from the census; remove it")
    return problems


def _is_placeholder(name: str, rest: str) -> bool:
    word = name.rstrip(",")
    return word.isidentifier() and word not in _NO_PLACEHOLDERS and "=" not in rest
