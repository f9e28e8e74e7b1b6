"""Which files of a folder carry a pickle? Answered by looking at bytes: nothing is decoded.

It finds pickles that stand alone, pickles in the members of a zip archive (as PyTorch writes
them), and pickles in base64 inside JSON (as Agent Framework writes them).
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
import pickletools
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from safepoint.audit.files import content, existing_folder, files, unclear, unlisted
from safepoint.audit.finding import Finding
from safepoint.errors import shell

LOOKED_AT = 64 * 1024 * 1024
_MANY = 200_000
_BASE64 = re.compile(rb'"([A-Za-z0-9+/]{8,}={0,2})"')
_NAMES = re.compile(r"[A-Za-z_][\w.]* [A-Za-z_][\w.]*\Z")
_DO = "Keep other writers out, and move the state to a format that cannot execute."


class _Unclear(Exception):
    """There is more than this check looks at, or it cannot be looked at."""


def check_pickles(folder: str | os.PathLike[str]) -> list[Finding]:
    """Look for pickles in every file below `folder`. Symbolic links are not followed.

    Returns:
        A warning under SP03 for each file that carries a pickle, and a note for each file or
        folder that could not be looked at as a whole.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    findings: list[Finding] = []
    closed: list[OSError] = []
    for file in files(existing_folder(folder), closed):
        try:
            what = _look(file)
        except (OSError, _Unclear) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            findings.append(unclear("SP03", file, reason))
        else:
            if what is not None:
                findings.append(Finding("SP03", "warning", f"{shell(file)} {what}.", _DO, file))
    return findings + unlisted("SP03", closed)


def is_pickle(data: bytes) -> bool:
    """Tell whether `data` begins like a pickle of any protocol, by its opcodes alone.

    A whole pickle counts, and so does a broken one that would import something before it breaks:
    by then it may have run. What goes on for long counts, too.
    """
    count, imports = 0, False
    try:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
            count += 1
            if opcode.name in ("GLOBAL", "INST"):
                imports = imports or bool(_NAMES.match(str(argument)))
            elif opcode.name == "STACK_GLOBAL":
                imports = True
            if opcode.name == "STOP" or count > _MANY:
                return count > 1
    except Exception:  # noqa: BLE001  whatever genops raises, the rest is not a pickle's opcodes
        return imports
    return imports


def _look(file: str) -> str | None:
    found = content(file, LOOKED_AT + 1)
    if found is None:
        return None
    data, _ = found
    if len(data) > LOOKED_AT:
        raise _Unclear("too large")
    if is_pickle(data):
        return "is a pickle"
    if zipfile.is_zipfile(io.BytesIO(data)) and any(map(is_pickle, _members(data))):
        return "is an archive that carries a pickle"
    if any(map(is_pickle, _embedded(data))):
        return "carries a pickle in base64"
    return None


def _members(data: bytes) -> Iterator[bytes]:
    budget = LOOKED_AT
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                with archive.open(member) as opened:
                    content = opened.read(budget + 1)
                budget -= len(content)
                yield content
                if budget < 0:
                    break
    except Exception:  # noqa: BLE001  a damaged archive fails in many ways
        raise _Unclear("a damaged archive") from None
    if budget < 0:
        raise _Unclear("too large when unpacked")


def _embedded(data: bytes) -> Iterator[bytes]:
    texts: list[bytes] = _BASE64.findall(data)
    with suppress(ValueError, RecursionError):
        texts += (text.encode() for text in _strings(json.loads(data)))
    for text in texts:
        with suppress(binascii.Error, ValueError):
            yield base64.b64decode(text, validate=False)


def _strings(value: Any) -> Iterator[str]:
    """Return the strings of a JSON value, however they were escaped."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if len(item) >= 8 and item.isascii():
                yield item
        elif isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
