"""Is everything in a store in the one format that its reader pins? By bytes: nothing is decoded.

The tags are those by which readers of other people's state choose what to build: Agent Framework
(`__pickled__`, `__type__`), LangGraph (`"type": "msgpack"`), LangChain (`"type": "constructor"`),
jsonpickle (`py/object`), and what such tags are called elsewhere.
"""

from __future__ import annotations

import os
import re
from typing import Final

from safepoint.audit.files import Closed, content, existing_folder, files
from safepoint.audit.finding import Finding, shortened
from safepoint.audit.pickles import is_pickle
from safepoint.audit.text import is_json, narrow
from safepoint.errors import shell
from safepoint.record import FORMAT
from safepoint.storage.file import LEASE_LINE

LOOKED_AT: Final = 1024 * 1024
SEALED: Final = re.compile(rb"([0-9]{10}\n)?safepoint/([0-9]{1,9}) ")
"""How a record begins, or what `prune` left: a line with a sequence, and the format."""

_PINNED: Final = FORMAT.removeprefix("safepoint/").encode()
_ESCAPED: Final = re.compile(rb"\\u00([2-7][0-9A-Fa-f])")
_TAGS: Final = re.compile(
    rb'"(__(?:pickled?|type|class|module|reduce|cls)__|py/[a-z_]{2,20}|[$]type|@class)"[ \t\r\n]*:'
    rb'|"(?:type|codec|decoder|encoding|format|serde|serializer)"[ \t\r\n]*:[ \t\r\n]*'
    rb'"(msgpack|constructor|jsonpickle|pickle|cloudpickle|dill|joblib|marshal)"'
)
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_YAML: Final = b"!!python/"
_MAGIC: Final = (
    (b"SQLite format 3\0", "an SQLite database", True),
    (b"PK\x03\x04", "a zip archive", False),
    (b"\x1f\x8b", "compressed data (gzip)", False),
    (b"\x28\xb5\x2f\xfd", "compressed data (zstd)", False),
    (b"\xfd7zXZ\0", "compressed data (xz)", False),
    (b"BZh", "compressed data (bzip2)", False),
)


def check_formats(path: str | os.PathLike[str]) -> list[Finding]:
    """Look for files that are not in the one format that a ledger reads.

    By what a file holds, never by its name. Of each the first megabyte is looked at, and nothing
    is decoded.

    In a folder with sealed records every other file counts. In a folder of something else, only
    those count that say themselves how they want to be decoded: pickles, databases, JSON or YAML
    with the tag of a decoder, records of another version.

    ```python
    from pathlib import Path

    from safepoint.audit import check_formats

    Path("state").mkdir(mode=0o700)
    Path("state/order-7.json").write_text('{"__pickled__": "gASVBAAAAA==", "amount": 42}')
    for finding in check_formats("state"):
        print(finding.rule, finding.severity, finding.what.split("/state/")[1].split(":")[0])
        #> SP10 warning order-7.json is JSON that names its decoder ("__pickled__")
    ```

    Returns:
        A warning under SP10 for each such file, and for what could not be looked at.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    root = existing_folder(path)
    closed = Closed()
    odd: list[tuple[str, str, bool]] = []
    sealed = False
    for file in files(root, closed):
        try:
            found = content(file, LOOKED_AT)
        except OSError as error:
            closed.add(file, error)
            continue
        if found is None or not found[0]:
            continue  # an empty file chooses nothing
        data, size = found
        record = SEALED.match(data)
        if record is not None and record[2] == _PINNED:
            sealed = True
            continue
        if LEASE_LINE.match(data):
            continue
        kind, chooses = kind_of(data)
        odd.append((file, kind, chooses))
        if size > LOOKED_AT and not chooses and is_json(data):
            closed[file] = f"{size} bytes of JSON"
    findings = (_odd(file, kind) for file, kind, chooses in odd if chooses or sealed)
    return [*shortened(findings, "SP10", root), *closed.findings("SP10", root)]


def _odd(file: str, kind: str) -> Finding:
    return Finding(
        "SP10",
        "warning",
        f"{shell(file)} is {kind}: a reader that accepts it beside {FORMAT} lets the record"
        " choose.",
        "Pin one decoder in the reader, and keep every other file out of the folder.",
        file,
    )


def kind_of(data: bytes) -> tuple[str, bool]:
    """Say what the beginning of a file is, and whether it chooses its decoder whoever reads it."""
    record = SEALED.match(data)
    if record is not None:
        return f"a record of the format safepoint/{int(record[2])}", True
    for magic, kind, chooses in _MAGIC:
        if data.startswith(magic):
            return kind, chooses
    if is_json(data):
        tags = _tags(data)
        return (f"JSON that names its decoder ({tags})", True) if tags else ("JSON", False)
    if _PICKLE.match(data) or is_pickle(data):
        return "a pickle", True
    if _YAML in data:
        return "YAML that names Python objects", True
    return "in no format that this check knows", False


def _tags(data: bytes) -> str:
    # A parser also reads escapes in keys.
    text = _ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), narrow(data))
    found = {(match[1] or match[2]).decode("ascii") for match in _TAGS.finditer(text)}
    return ", ".join(f'"{tag}"' for tag in sorted(found)[:4])
