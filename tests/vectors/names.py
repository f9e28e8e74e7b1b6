"""Names of threads that were made of any text, and names that were made of none."""

from __future__ import annotations

from typing import Final

from safepoint.core.names import thread_name, thread_text
from tests.vectors.material import Vector

_TEXTS: Final = {
    "name": "order-7",
    "number": "7",
    "uuid": "3f0c2a9e-7d1b-4c55-9a51-0a7c3b1de2f4",
    "name-of-64": "x" * 64,
    "empty": "",
    "nul-byte": "\0",
    "spaces": "Order #7",
    "umlaut": "Müller",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "beyond-16-bits": "\U0001f600",
    "dash-first": "-7",
    "underscore-first": "_7",
    "underscore-inside": "a b_c",
    **{device: device for device in ("con", "prn", "aux", "nul", "com0", "lpt9")},
    "no-device": "com10",
    "mark-t": "t--order",
    "mark-b": "b--order",
    "mark-h": "h--order",
    "line-end": "order-7\n",
    "escaped-64": "X" + "x" * 58,
    "escaped-65": "X" + "x" * 59,
    "ulid": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "base32-of-38": "É" * 19,
    "base32-of-39": "É" * 19 + "x",
    "long": "x" * 65,
}
_OF_NOTHING: Final = {
    "escape-for-nothing": "t--order",
    "half-an-escape": "t--_4",
    "escape-of-a-letter": "t--_61",
    "no-utf-8": "t--_ff",
    "no-base32": "b--1",
    "base32-for-nothing": "b--n5zgizls",
    "digest": "h--order",
}


def vectors() -> list[Vector]:
    """Return each text with its name, and what the name says; then names that no text has."""
    made = {name: (text, thread_name(text)) for name, text in _TEXTS.items()}
    return [
        *(
            {"name": name, "text": text, "thread": thread, "says": thread_text(thread)}
            for name, (text, thread) in made.items()
        ),
        *({"name": n, "thread": thread, "says": None} for n, thread in _OF_NOTHING.items()),
    ]
