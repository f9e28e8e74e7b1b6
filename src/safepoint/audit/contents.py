"""What a file of a store, or of somebody's state, holds: told by its bytes and never decoded.

What a file is, `safepoint.models` tells. Here is what concerns a store: sealed records, their
bounds, keys, and the tags by which readers of other people's state choose what to build: Agent
Framework (`__pickled__`, `__type__`), LangGraph (`"type": "msgpack"`), LangChain
(`"type": "constructor"`), jsonpickle (`py/object`), and what such tags are called elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from safepoint.audit.finding import NO_FILE, Finding, content, files, finding, guard, listed, unseen
from safepoint.core.errors import LimitExceeded
from safepoint.core.names import DEFAULT_LIMITS
from safepoint.core.record import FORMAT, Header, read_line
from safepoint.core.storage import LEASE_LINE
from safepoint.models import Format, Inspection, Verdict, inspect
from safepoint.models.look import SEALED
from safepoint.models.seals import STORE
from safepoint.stores.files import RECORD_NAME

KEY_FILE: Final = re.compile(
    rb"\s*(?:(ssh-ed25519 AAAA)|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)"
)
_PINNED: Final = FORMAT.removeprefix("safepoint/").encode()
_ESCAPED: Final = re.compile(rb"\\u00([2-7][0-9A-Fa-f])")
_TAGS: Final = re.compile(
    rb'"(__(?:pickled?|type|class|module|reduce|cls)__|py/[a-z_]{2,20}|[$]type|@class)":'
    rb'|"(?:type|codec|decoder|encoding|format|serde|serializer)":'
    rb'"(msgpack|constructor|jsonpickle|pickle|cloudpickle|dill|joblib|marshal)"'
)
_LOOK: Final = "Look at it yourself."
_LINE: Final = 11  # of a base, before its record
_PICKLES: Final = (Format.PICKLE, Format.PICKLES, Format.TORCH_LEGACY)
_CARRIES: Final = dict.fromkeys(_PICKLES, "is a pickle") | {
    Format.UNKNOWN: "is a pickle, or carries one",
    Format.JSON: "carries a pickle in base64",
}


class File:
    """A file: where it is, how it begins, how many bytes it has, and what it is."""

    def __init__(self, path: str, data: bytes, size: int, found: Inspection | None = None) -> None:
        self.path, self.data, self.size = path, data, size
        self.sealed = SEALED.match(data)
        if found is not None:
            self.found = found

    @cached_property
    def text(self) -> bytes:
        """JSON in ASCII, without space: a parser reads UTF-16 and UTF-32 as well."""
        text = self.data.decode(json.detect_encoding(self.data), "replace")
        return text.encode("ascii", "replace").translate(None, b" \t\r\n")

    @property
    def is_json(self) -> bool:
        """Whether it may hold an object or an array. Nothing but space may still become one."""
        return self.text[:1] in (b"", b"[", b"{")

    @cached_property
    def found(self) -> Inspection:
        """What it is to anyone who wants to load it."""
        return inspect(self.path)


class Contents:
    """What the files in the folder of a store hold.

    Attributes:
        findings: what is wrong with them.
        is_sealed: whether one of them is a record in the one format that a ledger reads.
    """

    def __init__(self, path: str) -> None:
        self.findings: list[Finding] = []
        self.is_sealed = False
        count = 0
        for name in files(path, self.findings):
            with guard("SP03", name, self.findings):
                begins = content(name, DEFAULT_LIMITS.record_bytes + _LINE)
                if begins is None and os.path.lexists(name):
                    is_link = os.path.islink(name)  # noqa: PTH114  that of Path may raise
                    why = ("links are not followed",) if is_link else NO_FILE
                    self.findings.append(unseen("SP03", name, *why))
                if begins is not None and begins[1]:
                    file = File(name, *begins)
                    count += 1
                    self.is_sealed = self.is_sealed or _is_pinned(file)
                    self.findings.extend(_stored(file))
        if count and not self.is_sealed:
            self.findings.append(finding("SP02.unsealed", path))


def _is_pinned(file: File) -> bool:
    return file.sealed is not None and file.sealed[2] == _PINNED


def _stored(file: File) -> Iterator[Finding]:
    """Yield what is wrong with a file in the folder of a store. What cannot be told is last."""
    key = KEY_FILE.match(file.data[:128])
    if key is not None:
        yield finding("SP08.public-inside" if key[1] else "SP08.inside", file.path, part="storage")
    elif not (_is_pinned(file) or LEASE_LINE.match(file.data)):
        yield finding("SP10.format", file.path, kind=_kind_of(file)[0], format=FORMAT)
    most = DEFAULT_LIMITS.record_bytes + (len(file.sealed[1] or b"") if file.sealed else 0)
    is_record = file.sealed or file.is_json or RECORD_NAME.match(Path(file.path).name)
    if file.size > most and is_record:
        yield finding("SP11.size", file.path, size=file.size, most=most)
    if not file.sealed:
        yield from _pickles(file)


def has_pickle(found: Inspection) -> bool:
    """Tell whether a file, or a record, is a pickle or carries one."""
    return bool(found.pickles) and found.verdict is not Verdict.NOT_LOOKED_INTO


def runs(found: Inspection) -> list[str]:
    """Return what a pickle asks for, if loading it runs code."""
    return sorted(found.wants) if found.verdict is Verdict.RUNS_CODE else []


def is_seal_of_model(data: bytes) -> bool:
    """Tell whether a record is the seal of a model, as far as one sees without a key."""
    line_1, line_2, _ = (*data.split(b"\n", 2), b"", b"")[:3]
    header = Header.parse(line_2)
    return read_line(line_1) is not None and header is not None and header.store == STORE


def of_state(file: File, *, tagged: bool = True) -> Iterator[Finding]:
    """Look at a text that may be the state of anybody: for pickles, and for who decodes it.

    Args:
        file: the text.
        tagged: whether tags mean anything in it, as they do not in code.
    """
    if has_pickle(file.found):
        yield from _pickles(file)
    if not tagged:
        return
    kind, chooses = _kind_of(file)
    if chooses:
        yield finding("SP10.format", file.path, kind=kind, format=FORMAT)
    elif file.size > len(file.data) and file.is_json:
        raise LimitExceeded(f"It has {file.size} bytes of JSON.", _LOOK)


def _pickles(file: File) -> Iterator[Finding]:
    kind, found = file.found.kind, file.found
    if has_pickle(found):
        what = _CARRIES.get(kind, f"is {kind.sentence} that carries a pickle")
        names = runs(found)
        which = "SP03.runs-code" if names else "SP03.pickle"
        yield finding(which, file.path, carries=what, names=listed(names))
    elif found.verdict in (Verdict.NOT_LOOKED_INTO, Verdict.REFUSED):
        raise LimitExceeded(found.what, _LOOK)
    elif kind is Format.UNKNOWN and file.is_json:
        raise LimitExceeded("It begins like JSON but cannot be read as JSON.", _LOOK)


def _kind_of(file: File) -> tuple[str, bool]:
    """Say what a file is, and whether it chooses its decoder whoever reads it."""
    if file.sealed:
        return f"a record of the format safepoint/{int(file.sealed[2])}", True
    if file.data.startswith(b"SQLite format 3\0"):
        return "an SQLite database", True
    if file.is_json:
        # A parser also reads escapes in keys.
        text = _ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), file.text)
        tags = sorted({(match[1] or match[2]).decode("ascii") for match in _TAGS.finditer(text)})
        shown = ", ".join(f'"{tag}"' for tag in tags[:4])
        return (f"JSON that names its decoder ({shown})", True) if tags else ("JSON", False)
    if b"!!python/" in file.data:
        return "YAML that names Python objects", True
    return file.found.kind.sentence, file.found.kind in _PICKLES
