"""What a drawing must be: well-formed, inert, self-contained, readable on light and dark."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

_BLACK = re.compile(
    r"(?:fill|stroke|color)\s*[=:]\s*[\"']?\s*(?:black|#000(?:000)?|rgb\(0,\s*0,\s*0\))\b",
    re.IGNORECASE,
)
# A backslash could spell any of the others.
_REACHES_OUT = re.compile(r"url\(\s*[\"']?(?!#|[\"'])|image-set|@import|\\", re.IGNORECASE)
_ACTIVE = frozenset({"script", "foreignobject", "set", "animate", "animatetransform"})


def svg_problems(text: str) -> list[str]:
    """Return what is wrong with a drawing, as ends of the sentence "this SVG …"."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return ["declares entities; remove the DOCTYPE"]
    try:
        root = ET.fromstring(text)  # noqa: S314  a file of this repository, no entities
    except ET.ParseError as error:
        return [f"is not well-formed: {error}"]
    problems = _that_run_or_reach_out(root, text)
    if _name(root.tag) != "svg":
        problems.append("has no <svg> at its root")
    titles = [child for child in root if _name(child.tag) == "title"]
    if not titles or not (titles[0].text or "").strip():
        problems.append("has no <title>; say what it shows")
    has_text = any(_name(element.tag) == "text" for element in root.iter())
    if has_text and "currentColor" not in text and "var(--" not in text:
        problems.append("has text in fixed colours; use currentColor or var(--…)")
    if _BLACK.search(text):
        problems.append("uses fixed black; use currentColor")
    return problems


def _that_run_or_reach_out(root: ET.Element, text: str) -> list[str]:
    problems: list[str] = []
    for element in root.iter():
        name = _name(element.tag)
        # On a page it is HTML, which is blind to case.
        if name.lower() in _ACTIVE:
            problems.append(f"has <{name}>; remove it")
        for key, value in element.attrib.items():
            attribute = _name(key)
            if attribute.lower().startswith("on"):
                problems.append(f"has an event handler {attribute}; remove it")
            if attribute.lower() in {"href", "src"} and not value.startswith("#"):
                problems.append("refers to something outside itself; inline it")
    if _REACHES_OUT.search(text):
        problems.append("refers to something outside itself; inline it")
    return list(dict.fromkeys(problems))


def _name(tag: str) -> str:
    return tag.rpartition("}")[2]
