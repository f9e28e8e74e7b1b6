"""Allowed on purpose: `# safepoint: allow SL02 made by our own nightly job`.

It stands on a line of what was found, or on a line of its own above it, and gives a reason. Each
id in it is for one finding.
"""

from __future__ import annotations

import contextlib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from safepoint.errors import quoted
from safepoint.lint.finding import Finding
from safepoint.lint.ids import IDS

_MARK: Final = re.compile(r"#\s*safepoint\s*:\s*allow\b(.*)", re.IGNORECASE)
_WORDS: Final = re.compile(r"\s*((?:[A-Za-z]+\d+)(?:\s*,\s*[A-Za-z]+\d+)*)?[\s:,-]*(.*)")
_NEVER: Final = frozenset({"SL90", "SL91"})


class Allow(NamedTuple):
    """A comment that allows something.

    Attributes:
        line: the line that it stands on.
        column: its column, from 1.
        alone: whether nothing else stands there, so that it is about the next line.
        ids: what it allows.
        reason: why.
    """

    line: int
    column: int
    alone: bool
    ids: tuple[str, ...]
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Tell whether it is about this finding."""
        if finding.id not in self.ids:
            return False
        if self.alone and self.line == finding.line - 1:
            return True
        return finding.line <= self.line <= max(finding.line, finding.last)


def allows_in_code(data: bytes) -> list[Allow]:
    """Return the comments of a Python file that allow something."""
    if b"safepoint" not in data:
        return []
    comments: list[tokenize.TokenInfo] = []
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # the parser has the last word
        tokens = tokenize.tokenize(io.BytesIO(data).readline)
        comments.extend(token for token in tokens if token.type == tokenize.COMMENT)
    return [allow for token in comments if (allow := _read(token.string, *token.start, token.line))]


def allows_in_text(lines: Iterable[str]) -> list[Allow]:
    """Return the comments of another file that allow something."""
    found = []
    for number, line in enumerate(lines, 1):
        column = line.find("#")
        if column >= 0 and (allow := _read(line[column:], number, column, line)):
            found.append(allow)
    return found


def _read(text: str, line: int, column: int, whole: str) -> Allow | None:
    mark = _MARK.search(text)
    if mark is None:
        return None
    words = _WORDS.fullmatch(mark[1].strip())
    ids, reason = (words[1] or "", words[2]) if words else ("", "")
    names = tuple(name.strip().upper() for name in ids.split(",") if name.strip())
    return Allow(line, column + 1 + mark.start(), not whole[:column].strip(), names, reason.strip())


def apply(findings: list[Finding], allows: list[Allow], path: str) -> Iterator[Finding]:
    """Leave out what is allowed with a reason, and add each allow that does not count."""
    # Of two calls around an allow, the one that ends first is the inner one.
    left = sorted(findings, key=lambda each: (max(each.line, each.last), -each.line, each.column))
    here = Finding(path, 0, 0, 0, "SL91", "")
    for allow in allows:
        what = _wrong(allow) or _idle(allow, left, findings)
        if what:
            yield replace(here, line=allow.line, column=allow.column, what=what)
    yield from left


def _idle(allow: Allow, left: list[Finding], findings: list[Finding]) -> str:
    """Take one finding out for each id, and say which ids are for none."""
    idle = []
    for name in allow.ids:
        about = allow._replace(ids=(name,))
        found = next((each for each in left if about.covers(each)), None)
        if found is None:
            idle.append(name)
        else:
            left.remove(found)
    if not idle:
        return ""
    taken = any(allow.covers(each) for each in findings if each.id in idle)
    which = " that is not allowed already" if taken else ""
    return f"It allows {', '.join(idle)}, and there is no such finding{which}."


def _wrong(allow: Allow) -> str:
    if not allow.ids:
        return "It does not say what it allows."
    unknown = [name for name in allow.ids if name not in IDS or name in _NEVER]
    if unknown:
        return f"{quoted(unknown[0])} is nothing that can be allowed."
    if len(allow.reason.split()) < 2:
        return f"It allows {', '.join(allow.ids)} without a reason."
    return ""
