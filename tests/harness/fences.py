"""What the opening line of a fence says: language, classes and attributes."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RUN: Final = frozenset({"python", "bash", "text", "sql"})
_PARSED: Final = frozenset({"json", "toml", "ini"})
LANGUAGES: Final = _RUN | _PARSED
_FILE: Final = r"[\w.-]+"
_ATTRIBUTES: Final = {
    "title": (LANGUAGES, r".+", "words"),
    "data-raises": ({"python"}, r"[A-Za-z_]\w*(: .*\S)?", "Type, or Type: part of the message"),
    "data-marker": ({"python"}, _FILE, "a plain file name in the page's folder"),
    "data-exit": ({"bash", "sql"}, r"[1-9]\d{0,2}", "the exit code of a failure, 1 to 255"),
    "data-check": (
        {"bash", "text"},
        "make|paths|record|subclasses",
        "make on bash; paths, record or subclasses on text",
    ),
    "data-module": ({"text"}, r"[\w.]+", "the module of a tree of classes"),
    "data-login": ({"sql"}, r"[a-z]\w*", "the name of a login"),
    "data-tls": ({"sql"}, _FILE, "a host name for the certificate"),
    "data-needs": (LANGUAGES, r"\w+", "a module that not every Python can have"),
    "data-skip": (LANGUAGES, r".*\S.*", "a reason"),
    "data-write": (_PARSED | {"python"}, _FILE, "a plain file name in the page's folder"),
}
"""What a fence can say: on which languages, in which form, and what that form is."""
ATTRIBUTES: Final = frozenset(_ATTRIBUTES) - {"title"}
"""What it says to the tests; the site shows it to nobody, and keeps it."""
_CLASSES: Final = {
    "unsafe": {"python", "sql"},
    "no-copy": LANGUAGES,
    "refused": LANGUAGES,
    "fix": LANGUAGES,
    "alone": {"python"},
    "wrap": _PARSED | {"text"},
}

_INFO = re.compile(r"(?P<language>[\w#+.-]+)?[ ]*(?:\{(?P<braces>.*)\}|(?P<options>[^{}]*))")
_WORD = re.compile(
    r"""\s*(?:\.(?P<class>[\w-]+)|(?P<key>[\w-]+)=(?P<q>["'])(?P<value>.*?)(?P=q))(?=\s|$)"""
)
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
    options = (found["options"] or "").strip()
    if options and not re.fullmatch(r"""title=(["']).*\1""", options):
        word = options.split()[0]
        raise BadFence(
            f"with {word!r} the site does not render this as code; write ```{{ .language … }}"
        )
    classes: list[str] = []
    attributes: dict[str, str] = {}
    _read(f"{found['braces'] or options} {hint}", classes, attributes)
    if found["braces"] is not None and not language and classes:
        language = classes.pop(0)
    if language not in LANGUAGES:
        known = f"use one of: {', '.join(sorted(LANGUAGES))}"
        raise BadFence(
            f"unknown language {language!r}; {known}" if language else f"no language; {known}"
        )
    for problem in _problems(language, classes, attributes):
        raise BadFence(problem)
    return Info(language, tuple(classes), attributes)


def _read(text: str, classes: list[str], attributes: dict[str, str]) -> None:
    while text := text.strip():
        found = _WORD.match(text)
        if found is None:
            raise BadFence(f'cannot read {text!r}; write .class or name="value"')
        if found["class"]:
            classes.append(found["class"])
        elif found["key"] in attributes:
            raise BadFence(f"{found['key']} stands twice; keep one")
        else:
            attributes[found["key"]] = found["value"]
        text = text[found.end() :]


def _problems(language: str, classes: list[str], attributes: dict[str, str]) -> list[str]:
    """Say what is not known, means nothing on this language, or lacks its other half."""
    wrong = []
    for name in classes:
        if name not in _CLASSES:
            wrong.append(f"unknown class .{name}; known: {', '.join(_CLASSES)}")
        elif language not in _CLASSES[name]:
            wrong.append(f".{name} means nothing on {language}; remove it")
    for name, value in attributes.items():
        if name not in _ATTRIBUTES:
            wrong.append(f"unknown attribute {name}; known: {', '.join(_ATTRIBUTES)}")
            continue
        languages, form, says = _ATTRIBUTES[name]
        if language not in languages:
            wrong.append(f"{name} means nothing on {language}; remove it")
        elif not re.fullmatch(form, value):
            wrong.append(f"{name} is {says}; correct it")
    said = {*classes, *attributes}
    check = attributes.get("data-check")
    pairs = {
        "data-marker needs .unsafe; add it": "data-marker" in said and "unsafe" not in said,
        "an .unsafe block also needs .no-copy; add it": "unsafe" in said and "no-copy" not in said,
        ".unsafe blocks run alone already; remove .alone": {"alone", "unsafe"} <= said,
        'data-check="make" is for bash, and the others are for text; correct it': check is not None
        and (check == "make") != (language == "bash"),
        'data-check="subclasses" and data-module go together; write both': (check == "subclasses")
        != ("data-module" in said),
        "data-write keeps the block for later; say there what happens": "data-write" in said
        and bool({"unsafe", "data-raises"} & said),
        '.refused says that it raises; add data-raises="Type"': language == "python"
        and "refused" in said
        and "data-raises" not in said,
        'SQL runs on PostgreSQL, as a login; add data-login="name"': language == "sql"
        and not {"data-login", "data-skip"} & said,
    }
    return wrong + [problem for problem, is_so in pairs.items() if is_so]
