"""HTML on the server: templates that escape all text, and a filter that shows what hides in it.

Whatever a template prints is escaped and nothing outside printable ASCII gets into a page, anyone
who wrote it, but what `reads_as` adds. Text of others goes through `visible` besides, which marks
escapes and shows spaces that could hide something as well.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from safepoint.core import errors
from safepoint.core.errors import missing
from safepoint.core.names import thread_text
from safepoint.resume.approval import Question, shown
from safepoint.shared.states import brief
from safepoint.shared.terminal import counted, when

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape
except ImportError as _missing:
    raise missing("The console needs starlette, uvicorn and jinja2.", "console") from _missing

MOST: Final = 200
"""How many records of a run are shown, the newest, and how many alarms."""
MOST_ASKED: Final = 20
MOST_SHOWN: Final = 100  # characters of the arguments, in full or not at all
MOST_FACTS: Final = 8  # arguments that are above the lines, too
_ODD: Final = re.compile(r"[^ -~]+")
_ODD_OR_SPACE: Final = re.compile(r"(?:[^ -~]| {2,}|\A | \Z)+")
_LATIN: Final = re.compile(  # without what is a pair of letters, or looks like another
    r"[ -~\xc0-\xd6\xd8-\xf6\xf8-\u0130\u0134-\u0137\u0139-\u013e\u0141-\u0148\u014a-\u017e]+"
)


def visible(text: str) -> Markup:
    r"""Show a text of others: nothing in it is markup and nothing in it is hidden.

    All that is not a printable ASCII character is shown as an escape, and so are spaces at either
    end, or next to each other:

    ```python
    from safepoint.console.pages import visible

    print(visible("ACME\u202e<b>"))
    #> ACME<mark class="odd">\u202e</mark>&lt;b&gt;
    ```
    """
    marked = _ODD_OR_SPACE.sub(_mark, str(escape(text)))
    return Markup(marked)  # noqa: S704  escaped above


def _mark(found: re.Match[str]) -> str:
    return f'<mark class="odd">{_escapes(found)}</mark>'


def _escapes(found: re.Match[str]) -> str:
    return "".join(r"\x20" if each == " " else ascii(each)[1:-1] for each in found.group())


def as_shown(text: str) -> str:
    """Spell a text as it is printed and can be found: what is not printable ASCII as escapes."""
    return _ODD.sub(_escapes, text)


def _printed(value: object) -> str:
    """Return what a template prints: of text, what is not printable ASCII becomes an escape."""
    return value if isinstance(value, Markup) else as_shown(str(value))


def code(text: str) -> Markup:
    """Return a text to copy, to the byte: it is ASCII in lines, as everything that is signed."""
    return Markup("\n").join(map(_printed, text.removesuffix("\n").split("\n")))


def reads_as(value: object) -> Markup | None:
    """Spell a text as it looks, if its letters are ASCII, Latin-1 and Latin Extended-A alone.

    It stands below the text with its escapes, which is what counts.
    """
    if not isinstance(value, str) or value.isascii() or not _LATIN.fullmatch(value):
        return None
    spelled = str(escape(value)).encode("ascii", "xmlcharrefreplace").decode()
    return Markup(spelled)  # noqa: S704  escaped above


def _lines(question: Question) -> list[tuple[str, Markup | None]]:
    """Return each line of a question, and how its value reads."""
    given = question.arguments.items()
    values = {f"argument {shown(name)}: {shown(value)}": value for name, value in given}
    return [(line, reads_as(values.get(line))) for line in question.described]


def _summary(question: Question) -> str:
    """Return the arguments of a question for a list."""
    given = question.arguments.items()
    full = ", ".join(f"{brief(name)} {brief(value)}" for name, value in given)
    return full if len(full) <= MOST_SHOWN else f"{len(given)} arguments, open it to read them"


def _facts(question: Question) -> list[tuple[str, str]]:
    """Return the first arguments in plain words: in full, or with how long they are."""
    found = [(brief(n), brief(v)) for n, v in question.arguments.items()][:MOST_FACTS]
    return [(_in_full(name), _in_full(value)) for name, value in found]


def _in_full(text: str) -> str:
    """Return a text, or how long it is: a part of it could mislead."""
    return text if len(text) <= MOST_SHOWN else f"({len(text):,} characters, in full below)"


def _named(thread: str) -> str:
    """Return a thread's name as the application wrote it, quoted if it could mislead."""
    return brief(text) if (text := thread_text(thread)) else thread


def run_address(home: str, store: str, tenant: str, thread: str) -> str:
    """Return where the page of a run is."""
    names = [store, *([f"@{tenant}"] if tenant else []), thread]
    return "/".join([home, "run", *(quote(_ODD.sub("?", each), safe="@") for each in names)])


def _exact(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _away(at: datetime) -> str:
    """Say how far a time is from now, in the largest unit of at least two: "in 3 h", "12 s ago"."""
    left = at - datetime.now(UTC)
    seconds = abs(left.total_seconds())
    unit = next((unit for unit in _UNITS if seconds >= 2 * unit), 1)
    lasts = f"{seconds / unit:.0f} {_UNITS.get(unit, 's')}"
    return f"in {lasts}" if left > timedelta(0) else f"{lasts} ago"


_UNITS: Final = {86_400: "days", 3_600: "h", 60: "min"}
_TEMPLATES: Final = Environment(
    loader=PackageLoader("safepoint.console"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_printed,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "visible": visible,
    "code": code,
    "when": when,
    "exact": _exact,
    "away": _away,
    "lines": _lines,
    "named": _named,
    "summary": _summary,
    "facts": _facts,
    "shown": shown,
    "time": datetime.fromisoformat,
}
_TEMPLATES.globals |= {
    "most": MOST,
    "most_asked": MOST_ASKED,
    "most_facts": MOST_FACTS,
    "run_address": run_address,
    "counted": counted,
    "is_error": lambda name: hasattr(errors, name),
}


def render(name: str, home: str, title: str, **given: Any) -> str:
    """Return a whole page.

    Args:
        name: of its template.
        home: the path that the console is below, without a slash at its end.
        title: of the page, for the tab.
        given: what the template shows; and for the layout `signers`, who signs here and what,
            `counts`, how many runs wait and are held, `active`, which list it is, `find`, what
            was searched for, and `refresh`, after how many seconds it is loaded again.
    """
    usual = {"signers": "", "counts": {}, "active": "", "refresh": 0}
    usual |= {"find": "", "now": datetime.now(UTC)}
    page = _TEMPLATES.get_template(f"{name}.html")
    return page.render(home=home, title=title, **{**usual, **given})
