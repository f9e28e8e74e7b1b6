"""What search looks through: fetched when somebody searches, with the places that names lead to."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from html import unescape
from pathlib import Path
from typing import Final

from safepoint.rules import RULES

_SEARCH: Final = "search/search_index.json"
_LAZY: Final = "search/all.json"
_ADVISORY: Final = re.compile(r"\b(?:(?:CVE|PYSEC)-\d+-\d+|GHSA(?:-\w{4}){3})\b")
_CALLOUT: Final = re.compile(r"<p>(SP\d\d) · ")
_MESSAGE: Final = re.compile(r"\b([A-Z]\w+): (.+)")
_PARAGRAPH: Final = re.compile(r"</p>|</li>|\n")
_SHORTEST: Final = 3
_TAG: Final = re.compile(r"<[^>]+>")
# Words lead to the pages that teach, before lists and reference. Names lead to what has them.
_TEACHING: Final = ("guide/", "moving-in/", "security/", "stores/", "words/")
_LISTING: Final = ("command/checks/",)
_BOOST: Final = 2


def search_later(site: Path) -> None:
    """Keep what can be searched out of the way until somebody searches: it is half a site."""
    index = site / _SEARCH
    if index.is_file():
        whole = json.loads(index.read_bytes())
        for doc in whole["docs"]:
            if doc["location"].startswith(_TEACHING):
                doc.setdefault("boost", _BOOST)
            elif doc["location"].startswith(_LISTING):
                doc.setdefault("boost", 0.1)
        found = {**whole, "known": _known(whole["docs"]), "said": _said(whole["docs"])}
        text = json.dumps(found, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        (site / _LAZY).write_text(text, encoding="utf-8")
        empty = {"config": whole["config"], "docs": []}
        index.write_text(json.dumps(empty, sort_keys=True), encoding="utf-8")


def _known(docs: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return where each name leads: errors, attacks, rules and advisories, the best place first."""
    first: dict[str, list[str]] = defaultdict(list)
    later: dict[str, list[str]] = defaultdict(list)
    for doc in docs:
        place, title = doc["location"], doc["title"]
        page, _, anchor = place.partition("#")
        if page == "errors/" and anchor.endswith(f".{title}"):
            first[title.lower()].append(place)
        elif page == "attacks/" and anchor == title:
            later[title.lower()].append(place)
        elif page == "rules/" and anchor.upper() in RULES:
            later[anchor].append(place)
        elif page == "affected/":
            for name in _ADVISORY.findall(title):
                first[name.lower()].append(place)
            for name in _ADVISORY.findall(doc["text"]):
                later[name.lower()].append(place)
        for name in _CALLOUT.findall(doc["text"]):
            rule = RULES.get(name)
            if rule is not None and rule.page and page == f"{rule.page.removesuffix('.md')}/":
                first[name.lower()].append(place)
    return {name: list(dict.fromkeys([*first[name], *later[name]])) for name in {*first, *later}}


def _said(docs: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the paragraphs about each error, as words, for a message that lost its name.

    One that several have is left out: it leads to none of them.
    """
    entries = {
        doc["title"]: doc["location"]
        for doc in docs
        if doc["location"].startswith("errors/#") and doc["location"].endswith(f".{doc['title']}")
    }
    owners: dict[str, set[str]] = defaultdict(set)
    for doc in docs:
        text = doc["text"]
        for name, message in _MESSAGE.findall(text):
            if name in entries:
                owners[_words(message)].add(entries[name])
        if doc["location"] in entries.values():
            for paragraph in _PARAGRAPH.split(text):
                owners[_words(paragraph)].add(doc["location"])
    said: dict[str, list[str]] = defaultdict(list)
    for words, places in sorted(owners.items()):
        if len(places) == 1 and words.count(" ") >= _SHORTEST:
            said[places.pop()].append(words)
    return said


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", unescape(_TAG.sub("", text)).lower()))
