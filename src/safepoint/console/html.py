"""HTML made on the server, from markup of our own and from text of others.

Whatever is no `Html` is text: it is escaped, and no character outside printable ASCII gets into a
page, whoever wrote it, but what `reads_as` adds. Text of others goes through `visible`, which shows
spaces that could hide something too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final, TypeAlias
from urllib.parse import urlencode

from safepoint.core import errors


class Html(str):
    """Markup. Whatever else is text, and is escaped."""

    __slots__ = ()


Inside: TypeAlias = "Html | str | Iterable[Inside] | None"
"""What a tag holds: markup, text, nothing, or several of these."""

_VOID: Final = frozenset({"br", "hr", "input", "link", "meta"})
_TEXT_ALONE: Final = frozenset({"title", "option", "textarea", "desc"})  # they hold no markup
_TAG: Final = re.compile(r"(?!script|style|iframe|object|embed|base|img|use)[a-z][a-z0-9]*")
_ATTRIBUTE: Final = re.compile(r"(?!style|on|src|ping|form[am]|background|xlink)[a-zA-Z0-9-]+")
_ADDRESS: Final = re.compile(r"(?:/(?!/)|[?#])[A-Za-z0-9/_.@~-]*(?:\?[A-Za-z0-9_.~%+&=-]*)?")
_ODD: Final = re.compile(r"[^ -~]+")
_LATIN: Final = re.compile(  # without what is a pair of letters, or looks like another
    r"[ -~\xc0-\xd6\xd8-\xf6\xf8-\u0130\u0134-\u0137\u0139-\u013e\u0141-\u0148\u014a-\u017e]+"
)
_ODD_OR_SPACE: Final = re.compile(r"(?:[^ -~]| {2,}|\A | \Z)+")


def tag(name: str, /, *inside: Inside, **attributes: str | int | bool | None) -> Html:
    """Return an element. `class_` stands for class, and `aria_label` for aria-label.

    Args:
        name: of the element.
        inside: what it holds.
        attributes: True stands for one without a value; what is None or False is left out.

    Raises:
        ValueError: it would run or load something, or lead out of the console.
    """
    if not _TAG.fullmatch(name):
        raise ValueError(f"{name!a} is no element of these pages.")
    begin = f"<{name}{''.join(_attributes(attributes))}>"
    if name in _VOID:
        return Html(begin)
    held = joined(*inside)
    if name in _TEXT_ALONE:
        held = Html(escape(_ODD_OR_SPACE.sub(_escapes, "".join(map(str, inside)))))
    return Html(f"{begin}{held}</{name}>")


def _attributes(given: Mapping[str, str | int | bool | None]) -> Iterator[str]:
    for word, value in given.items():
        name = word.rstrip("_").replace("_", "-")
        if not _ATTRIBUTE.fullmatch(name):
            raise ValueError(f"{name!a} is no attribute of these pages.")
        if name in ("href", "action") and value is not None and not _ADDRESS.fullmatch(str(value)):
            raise ValueError(f"{value!a} is no address in the console.")
        if value is True:
            yield f" {name}"
        elif value is not None and value is not False:
            yield f' {name}="{escape(_ODD.sub(_escapes, str(value)))}"'


def joined(*inside: Inside, by: str = "") -> Html:
    """Join markup and text. Of text, what is not printable ASCII is shown as escapes."""
    return Html(escape(by).join(_each(inside)))


def _each(inside: Iterable[Inside]) -> Iterator[str]:
    for each in inside:
        if isinstance(each, Html):
            yield each
        elif isinstance(each, str):
            yield _marked(_ODD, each)
        elif each is not None:
            yield joined(*each)


def visible(text: str) -> Html:
    r"""Show a text of others: nothing in it is markup, and nothing in it is hidden.

    All that is not a printable ASCII character is shown as an escape, and so are spaces at either
    end, or beside each other:

    ```python
    from safepoint.console.html import visible

    print(visible("ACME\u202e<b>"))
    #> ACME<mark class="odd">\u202e</mark>&lt;b&gt;
    ```
    """
    return _marked(_ODD_OR_SPACE, text)


def reads_as(value: object) -> Html | None:
    """Spell a text as it looks, if its letters are ASCII, Latin-1 and Latin Extended-A alone.

    It stands below the text with its escapes, which is what counts.
    """
    if not isinstance(value, str) or value.isascii() or not _LATIN.fullmatch(value):
        return None
    spelled = escape(value).encode("ascii", "xmlcharrefreplace").decode()
    return quiet("reads as: ", Html(spelled))


def _marked(odd: re.Pattern[str], text: str) -> Html:
    return Html(odd.sub(lambda each: f'<mark class="odd">{_escapes(each)}</mark>', escape(text)))


def _escapes(found: re.Match[str]) -> str:
    return "".join(r"\x20" if each == " " else ascii(each)[1:-1] for each in found.group())


# --- what several pages are made of


def address(home: str, *steps: str, **query: str | int) -> str | None:
    """Return where something is below home, None if a name of it is outside the grammar."""
    asked = urlencode({name: value for name, value in query.items() if value})
    path = f"{home}/{'/'.join(steps)}{'?' * bool(asked)}{asked}"
    is_sound = _ADDRESS.fullmatch(path) and "//" not in path and "/." not in path
    return path if is_sound else None


def run_address(home: str, store: str, tenant: str, thread: str) -> str | None:
    """Return where the page of a run is, None if a name is outside the grammar."""
    return address(home, "run", store, *([f"@{tenant}"] if tenant else []), thread)


def utc(at: datetime | str) -> str:
    """Spell a time for people, to the second."""
    given = datetime.fromisoformat(at) if isinstance(at, str) else at
    return f"{given.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def moment(at: datetime, text: str = "") -> Html:
    """Show a time: to the second, or by another text, and exactly for machines."""
    exact = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return tag("time", text or utc(at), datetime=exact, class_="moment")


def away(at: datetime) -> str:
    """Say how far a time is from now: "in 3 h", "12 s ago"."""
    left = at - datetime.now(UTC)
    return f"in {lasting(left)}" if left > timedelta(0) else f"{lasting(-left)} ago"


def lasting(span: timedelta) -> str:
    """Say how long something lasts, in the largest unit that there is at least two of."""
    seconds = span.total_seconds()
    for name, unit in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def quiet(*inside: Inside) -> Html:
    """Return a line that matters less than what stands above it."""
    return tag("div", *inside, class_="quiet")


def badge(state: str, text: str = "") -> Html:
    """Show a state by word, shape and colour.

    Args:
        state: "waiting", "held", "denied", "expired", "alarm", "ok", or "refused".
        text: another word for it.
    """
    return tag("span", text or state, class_=f"state state--{state}")


def card(role: str, *paragraphs: Inside) -> Html:
    """Return paragraphs in a box, without those that are empty. A role is alarm, good or note."""
    return tag("div", (tag("p", each) for each in paragraphs if each), class_=f"card {role}")


def alarm(title: str, *inside: Inside) -> Html:
    """Return a part that tells of something that does not verify. Each title is there once."""
    name = re.sub(r"\W+", "-", title).lower()
    heading = tag("h2", title, id=name)
    return tag("section", heading, inside, class_="card alarm", aria_labelledby=name)


def explained(error: str, do: str = "") -> Html:
    """Say what to do about an error, and what explains it."""
    means = "What it means: ", tag("code", f"safepoint explain {error}")
    return tag("p", do, means if hasattr(errors, error) else None)


def code(text: str) -> Html:
    """Show a text to copy, to the byte: it is ASCII in lines, as all that is signed."""
    lines = joined(*text.removesuffix("\n").split("\n"), by="\n")
    return tag("pre", lines, class_="code", tabindex="0")


def listed(texts: Iterable[str]) -> Html | None:
    """Return texts of others as a list, None if there are none."""
    items = [tag("li", visible(each)) for each in texts]
    return tag("ul", items) if items else None


def facts(pairs: Iterable[tuple[str, Inside]]) -> Html:
    """Return a list of names and what they are, without those that are nothing."""
    rows = (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs if value)
    return tag("dl", rows, class_="facts")


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[Inside]]) -> Html:
    """Return a table that becomes blocks on a phone: each cell knows its heading.

    The roles say what the elements say, since a browser forgets that when they become blocks.

    Args:
        caption: what it lists, for whoever does not see it.
        headings: one per column.
        rows: the cells. The first of a row names it.
    """
    heads = [tag("th", each, scope="col", role="columnheader") for each in headings]
    labels = [tag("span", each, class_="label", aria_hidden="true") for each in headings]
    body = list[Html]()
    for row in rows:
        cells = zip(labels, row, strict=True)
        inside = (tag("td", label, tag("div", each), role="cell") for label, each in cells)
        body.append(tag("tr", inside, role="row"))
    named = tag("caption", caption, class_="unseen")
    head = tag("thead", tag("tr", heads, role="row"), role="rowgroup")
    rest = tag("tbody", body, role="rowgroup")
    return tag("table", named, head, rest, class_="blocks", role="table")


def hidden(**fields: str) -> list[Html]:
    """Return the fields of a form that nobody sees, those that are not empty."""
    given = [(name, each) for name, each in fields.items() if each]
    return [tag("input", type="hidden", name=name, value=each) for name, each in given]
