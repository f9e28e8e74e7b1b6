"""The test vectors of the record format, docs/vectors/*.json, made by the implementation.

    .venv/bin/python -m tests.vectors

writes them again after a change of the format. Nothing in them depends on the day or the machine:
keys and times are fixed, and Ed25519 is deterministic. `tests/unit/test_vectors.py` holds
the files against this package, against the implementation, and against
`snippets/verify_record.py`, which shares no code with it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from tests.vectors import approvals, journals, names, records, states, threads
from tests.vectors.material import published_keys, refused_keys

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
FOLDER: Final = DOCS / "vectors"
PAGE: Final = DOCS / "format.md"
WARNING: Final = "Test keys, published. They protect nothing: never seal anything of yours by them."

_RECORD = re.compile(r'(```\{ \.text [^\n]*data-check="record" \}\n).*?(```\n)', re.DOTALL)
_VECTOR = re.compile(r'(```\{ \.json [^\n]*data-write="vector\.json" \}\n).*?(```\n)', re.DOTALL)


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    contents: dict[str, dict[str, Any]] = {
        "keys.json": {
            "warning": WARNING,
            "keys": published_keys(),
            "refused": refused_keys(),
        },
        "records.json": {"keys": "keys.json", "vectors": records.vectors()},
        "threads.json": {"keys": "keys.json", "vectors": threads.vectors()},
        "states.json": {"vectors": states.vectors()},
        "approvals.json": {
            "keys": "keys.json",
            "vectors": approvals.vectors(),
            "questions": approvals.questions(),
        },
        "journals.json": {"keys": "keys.json", "vectors": journals.vectors()},
        "names.json": {"vectors": names.vectors()},
    }
    return {name: _dumped(content) for name, content in contents.items()}


def shown(page: str) -> str:
    """Return the text of the page, with the record and vector that it shows as made today."""
    vector = records.vectors()[0]
    record = vector["record"].encode("latin-1").decode("ascii", "backslashreplace")
    page = _RECORD.sub(lambda found: f"{found[1]}{record}\n{found[2]}", page)
    return _VECTOR.sub(lambda found: found[1] + _dumped(vector) + found[2], page)


def write(folder: Path = FOLDER, page: Path = PAGE) -> None:
    """Make the files again, and the vector on the page."""
    for name, text in files().items():
        (folder / name).write_text(text, encoding="ascii")
    page.write_text(shown(page.read_text(encoding="utf-8")), encoding="utf-8")


def _dumped(content: dict[str, Any]) -> str:
    return f"{json.dumps(content, indent=1)}\n"
