"""What the opening line of a fence says: language, classes and attributes."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RUN: Final = frozenset({"python", "bash", "text", "sql"})
_PARSED: Final = frozenset({"json", "toml", "ini"})
LANGUAGES: Final = _RUN | _PARSED
_HINTS: Final = {
    "py": "write python",
    "python3": "write python",
    "pycon": "write python, with #> lines for what it prints",
    "console": "write bash, and what it prints as text",
    "sh": "write bash",
    "shell": "write bash",
    "txt": "write text",
    "mermaid": "diagrams are SVG files in docs/assets",
}
_LOOKS: Final = {"title": re.compile(r".+")}
_MEANS: Final = {
    "data-raises": frozenset({"python"}),
    "data-marker": frozenset({"python"}),
    "data-exit": frozenset({"bash", "sql"}),
    "data-check": frozenset({"bash", "text"}),
    "data-module": frozenset({"text"}),
    "data-login": frozenset({"sql"}),
    "data-tls": frozenset({"sql"}),
    "data-skip": LANGUAGES,
    "data-write": _PARSED | {"python"},
}
ATTRIBUTES: Final = frozenset(_MEANS)
"""What a fence can say to the tests; the site shows it to nobody, and keeps it."""
_CLASSES: Final = {
    "unsafe": frozenset({"python", "sql"}),
    "no-copy": LANGUAGES,
    "refused": LANGUAGES,
    "fix": LANGUAGES,
    "alone": frozenset({"python"}),
    "wrap": _PARSED | {"text"},
}
_CHECKS: Final = {"bash": {"make"}, "text": {"paths", "record", "subclasses"}}

_INFO = re.compile(r"(?P<language>[\w#+.-]+)?[ ]*(?:\{(?P<braces>.*)\}|(?P<options>[^{}]*))")
_IN_BRACES = re.compile(
    r"""\.(?P<class>[\w-]+)(?=\s|$) | (?P<key>[\w-]+)=(?P<q>["'])(?P<value>.*?)(?P=q)(?=\s|$)""",
    re.VERBOSE,
)
_AN_OPTION = re.compile(r"""(?P<key>[A-Za-z]\w*)=(?P<q>["'])(?P<value>.*?)(?P=q)(?=\s|$)""")


_FENCED: Final = re.compile(r"^ *```.*?(?:^ *```|\Z)", re.MULTILINE | re.DOTALL)


def without_fences(page: str) -> str:
    """Return what a page says outside of its fences; every line keeps its number."""
    return _FENCED.sub(lambda found: " " + "\n" * found[0].count("\n"), page)


class BadFence(ValueError):
    """The opening line says something that would not be understood or not be rendered."""


class Info(NamedTuple):
    """The meaning of an opening line."""

    language: str
    classes: tuple[str, ...]
    attributes: dict[str, str]


def parse_info(info: str, hint: str = "") -> Info:
    """Read what follows the three backticks, together with a `block:` comment above them.

    Raises:
        BadFence: it is not something that the site renders and the harness knows.
    """
    found = _INFO.fullmatch(info.strip())
    if found is None:
        raise BadFence(f"cannot read {info.strip()!r}; write ```python or ```{{ .python … }}")
    language = (found["language"] or "").removeprefix(".")
    classes: list[str] = []
    attributes: dict[str, str] = {}
    if found["braces"] is not None:
        _read_braces(found["braces"], classes, attributes)
        if not language and classes:
            language = classes.pop(0)
    elif found["options"]:
        _read_options(found["options"], attributes)
    _read_braces(hint, classes, attributes)
    _check_language(language)
    _check_words(language, classes, attributes)
    return Info(language, tuple(classes), attributes)


def _read_braces(text: str, classes: list[str], attributes: dict[str, str]) -> None:
    rest = text.strip()
    while rest:
        found = _IN_BRACES.match(rest)
        if found is None:
            raise BadFence(f'cannot read {rest!r}; write .class or name="value"')
        if found["class"]:
            classes.append(found["class"])
        else:
            _put(attributes, found["key"], found["value"])
        rest = rest[found.end() :].lstrip()


def _read_options(text: str, attributes: dict[str, str]) -> None:
    rest = text.strip()
    while rest:
        found = _AN_OPTION.match(rest)
        if found is None or found["key"] not in _LOOKS:
            word = rest.split()[0]
            raise BadFence(
                f"with {word!r} the site does not render this as code; "
                "write ```{ .language … } with braces"
            )
        _put(attributes, found["key"], found["value"])
        rest = rest[found.end() :].lstrip()


def _put(attributes: dict[str, str], key: str, value: str) -> None:
    if key in attributes:
        raise BadFence(f"{key} stands twice; keep one")
    attributes[key] = value


def _check_language(language: str) -> None:
    if not language:
        raise BadFence("no language; write one after the backticks, text for output")
    if language not in LANGUAGES:
        hint = _HINTS.get(language, f"use one of: {', '.join(sorted(LANGUAGES))}")
        raise BadFence(f"unknown language {language!r}; {hint}")


def _check_words(language: str, classes: list[str], attributes: dict[str, str]) -> None:
    for name in classes:
        if name not in _CLASSES:
            raise BadFence(f"unknown class .{name}; known: {', '.join(sorted(_CLASSES))}")
        if language not in _CLASSES[name]:
            raise BadFence(f".{name} means nothing on {language}; remove it")
    for key, value in attributes.items():
        if key in _LOOKS:
            if not _LOOKS[key].fullmatch(value):
                raise BadFence(f"cannot read {key}={value!r}; correct it")
        elif key not in _MEANS:
            known = ", ".join(sorted({*_LOOKS, *_MEANS}))
            raise BadFence(f"unknown attribute {key}; known: {known}")
        elif language not in _MEANS[key]:
            raise BadFence(f"{key} means nothing on {language}; remove it")
    _check_values(language, classes, attributes)


def _check_values(language: str, classes: list[str], attributes: dict[str, str]) -> None:
    if not attributes.get("data-skip", "a reason").strip():
        raise BadFence('a skip without a reason; write data-skip="why"')
    if not re.fullmatch(r"[1-9]\d{0,2}", attributes.get("data-exit", "1")):
        raise BadFence("data-exit is the exit code of a failure, 1 to 255; correct it")
    if not re.fullmatch(r"[A-Za-z_]\w*(: .*\S)?", attributes.get("data-raises", "Type")):
        raise BadFence('write data-raises="Type" or data-raises="Type: part of the message"')
    if "data-marker" in attributes and "unsafe" not in classes:
        raise BadFence("data-marker needs .unsafe; add it, or remove the marker")
    if not re.fullmatch(r"[\w.-]+", attributes.get("data-marker", "x")):
        raise BadFence("data-marker is a plain file name in the page's folder; correct it")
    _check_login(language, attributes)
    check = attributes.get("data-check")
    if check is not None and check not in _CHECKS[language]:
        raise BadFence(
            f"unknown data-check={check!r}; known: {', '.join(sorted(_CHECKS[language]))}"
        )
    if (check == "subclasses") != ("data-module" in attributes):
        raise BadFence('data-check="subclasses" and data-module go together; write both')
    if not re.fullmatch(r"[\w.-]+", attributes.get("data-write", "x")):
        raise BadFence("data-write is a plain file name in the page's folder; correct it")
    if "data-write" in attributes and {"unsafe", "data-raises"} & {*classes, *attributes}:
        raise BadFence("data-write keeps the block for later; say there what happens")
    if {"alone", "unsafe"} <= {*classes}:
        raise BadFence(".unsafe blocks run alone already; remove .alone")
    if language == "python" and "refused" in classes and "data-raises" not in attributes:
        raise BadFence('.refused says that it raises; add data-raises="Type"')
    if "unsafe" in classes and "no-copy" not in classes:
        raise BadFence("an .unsafe block also needs .no-copy; add it")


def _check_login(language: str, attributes: dict[str, str]) -> None:
    if not re.fullmatch(r"[a-z]\w*", attributes.get("data-login", "x")):
        raise BadFence("data-login is the name of a login; correct it")
    if not re.fullmatch(r"[\w.-]+", attributes.get("data-tls", "x")):
        raise BadFence("data-tls is a host name for the certificate; correct it")
    if language == "sql" and not {"data-login", "data-skip"} & attributes.keys():
        raise BadFence('SQL runs on PostgreSQL, as a login; add data-login="name"')
