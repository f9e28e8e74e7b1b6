"""Expand `--8<-- "file:section"` as the site does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

CUT = re.compile(r"^\s*;*-+8<-+(?=\s|$)")
_INCLUDE = re.compile(
    r"""^(?P<space>\ *)-+8<-+[ ]+
    (?P<q>["'])(?P<file>[^"':]+)(?::(?P<section>[A-Za-z][\w-]*))?(?P=q)$""",
    re.VERBOSE,
)
_MARK = re.compile(r"-+8<-+[ \t]+\[[ \t]*(?P<kind>start|end)[ \t]*:[ \t]*(?P<name>[\w-]+)[ \t]*\]")


class BadInclude(ValueError):
    """The include names nothing that can be shown."""


class Line(NamedTuple):
    """A line of a block, and where it was written."""

    text: str
    file: Path
    number: int


def expand(line: str, folders: tuple[Path, ...]) -> list[Line] | None:
    """Return the lines that an include stands for, or None if `line` is no include.

    Raises:
        BadInclude: a missing file or section, or a form that is not supported here.
    """
    if not CUT.match(line):
        return None
    found = _INCLUDE.match(line)
    if found is None:
        raise BadInclude('write an include as --8<-- "file.py" or --8<-- "file.py:section"')
    lines = _read(found["file"], folders)
    if found["section"]:
        lines = _section(lines, found["section"], found["file"])
    return [
        Line(found["space"] + text, file, number)
        for text, file, number in lines
        if not _MARK.search(text)
    ]


def _read(name: str, folders: tuple[Path, ...]) -> list[Line]:
    for folder in folders:
        file = folder / name
        if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
            text = file.read_text(encoding="utf-8")
            lines = [Line(line, file, n) for n, line in enumerate(text.splitlines(), 1)]
            for line in lines:
                if CUT.match(line.text):
                    raise BadInclude(f"{name}:{line.number} includes another file; inline it")
            return lines
    raise BadInclude(f"the include {name!r} does not exist; correct its name or add the file")


def _section(lines: list[Line], name: str, file: str) -> list[Line]:
    start = end = None
    for index, line in enumerate(lines):
        mark = _MARK.search(line.text)
        if mark and mark["name"] == name:
            if mark["kind"] == "start" and start is None:
                start = index
            elif mark["kind"] == "end" and start is not None:
                end = index
                break
    if start is None:
        raise BadInclude(f"{file} has no section {name!r}; add # --8<-- [start:{name}]")
    if end is None:
        raise BadInclude(f"the section {name!r} of {file} has no end; add # --8<-- [end:{name}]")
    return lines[start + 1 : end]
