"""No text of others becomes markup, or hides anything, on any page of the console."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest

from safepoint.console import pages
from safepoint.console.pages import code, run_address, visible
from safepoint.resume.approval import shown
from tests.unit.console_pages import HOME, every_page, question

FOLDER: Final = Path(pages.__file__).parent

HOSTILE: Final = {
    "a script": "<script>alert(1)</script>",
    "the end of an attribute": "\" autofocus onfocus='alert(1)' x=\"",
    "the end of a title": "</title></option></textarea></pre><b>",
    "an entity": "&lt;script&gt;&#x202e;&quot;",
    "a template": "{home}{0}%s${x}{{y}}",
    "right to left": "ACME\u202egnp.exe\u2066\u2069",
    "no width": "pa\u200by\u2060\ufeff\u00ad",
    "spaces": "  pay  42 ",
    "lines": "yes\nno\r\n\tstore: x\x0b\x0c\x1c\x85\u2028\u2029",
    "controls": "\0\x01\x1b[2J\x7f\x9b",
    "letters of others": "\u0440\u0430\u0443 \uff50\uff41\uff59",
    "planes": "\U0001f4b8\U0010ffff\ufffe\ue000",
    "long": "<b> " * 3_000 + "\u202e",
}


class Outline(HTMLParser):
    """The tags of a page, with the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[Any] = []
        self.text = self.read = ""
        self._last = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        if name == "mark":
            assert [each for each, _ in attributes] == ["class"]
            return
        self._last = name
        self.tags.append((name, [each for each, _ in attributes]))

    def handle_endtag(self, name: str) -> None:
        if name != "mark":
            self.tags.append(f"/{name}")

    def handle_data(self, data: str) -> None:
        self.text += data
        self.read += data if self._last not in ("title", "pre") else ""

    def handle_comment(self, data: str) -> None:
        self.tags.append(f"!{data}")

    handle_pi = unknown_decl = handle_comment


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_of_others_becomes_markup_or_hides(text: str) -> None:
    harmless = {name: Outline(page).tags for name, page in every_page("harmless").items()}
    for name, page in every_page(text).items():
        assert re.fullmatch(r"[\n -~]*", page), name
        assert Outline(page).tags == harmless[name], name
        assert all(LEADS.fullmatch(each) for each in hrefs(page)), name
        is_spaced = re.search(r"\A | \Z|  ", text) and text != HOSTILE["long"]
        assert not is_spaced or text not in Outline(page).read, name  # all of it is visible


LEADS: Final = re.compile(
    rf"{HOME}/[A-Za-z0-9/_.@~%-]*(\.css)?|#[a-z0-9-]+|\?(find=by:dana)?"
    r"|\?((refresh=1|page=\d+)&amp;)?find=[A-Za-z0-9/_.~%-]*&amp;order=deadline"
)


def hrefs(page: str) -> list[str]:
    return re.findall(r'(?:href|action)="([^"]*)"', page)


def test_what_is_signed_is_shown_to_the_letter() -> None:
    """The lines of a question are ASCII already, so nothing in them is marked or lost."""
    lines = question(arguments={"to": "ACME\u202e  x ", "odd": HOSTILE["planes"]}).described
    assert [Outline(str(visible(each))).text for each in lines] == lines
    assert "mark" not in "".join(map(visible, lines))
    assert Outline(str(code("a  <b> \nc\u202e\n"))).text == "a  <b> \nc\\u202e"  # to the byte
    for text in (*HOSTILE.values(), "half a character: \ud800"):
        told = Outline(str(visible(text))).text
        same = shown(text)[1:-1].replace(r"\\", "\\").replace(r"\'", "'")
        strict = re.sub(r"\A | \Z", r"\\x20", same)
        assert told == strict, text[:40]


@pytest.mark.parametrize(
    ("name", "said", "unsaid"),
    [
        ("away", "Cannot tell what waits in payroll: It is not there.", "Nothing waits for you"),
        ("empty", "Nothing waits for you.", "Could not be"),
        ("waiting", "safepoint explain SealBroken", "Nothing waits for you"),
        ("done", "In refunds, 2 answers cannot be shown.", "In invoices"),
    ],
)
def test_what_a_page_says_is_true_there(name: str, said: str, unsaid: str) -> None:
    text = Outline(every_page()[name]).text
    assert (said in text, unsaid in text) == (True, False)


ACTIVE: Final = re.compile(
    r"<(script|style|iframe|object|embed|base|img|use)\b|\b(on\w+|style|src|ping|form\w*ction)="
    r"|\bsafe\b|Markup|autoescape|https?:|='",
    re.I,
)


def test_templates_run_and_load_nothing_and_trust_no_text() -> None:
    """No script, style or frame; no text that is not escaped; each attribute in quotes."""
    files = sorted((FOLDER / "templates").glob("*.html"))
    assert len(files) == 7
    for file in files:
        text = file.read_text(encoding="ascii")
        assert [each.group() for each in ACTIVE.finditer(text)] == [], file.name
        bare = re.sub(r'"[^"]*"', '""', re.sub(r"\{[{%#].*?[}%#]\}", "", text))
        assert re.findall(r'<[^>]*=(?!")[^>]*>', bare) == [], file.name


def test_a_run_has_one_address_whatever_its_name() -> None:
    assert run_address("/k", "invoices", "acme", "order-7") == "/k/run/invoices/@acme/order-7"
    for name in ("../x", "a?b#c", "//example.org", "javascript:x", "\u202e", "a b"):
        assert re.fullmatch(r"/k/run/a/[A-Za-z0-9%._~@-]+", run_address("/k", "a", "", name))
