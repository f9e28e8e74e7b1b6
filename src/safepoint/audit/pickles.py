"""Which files of a folder carry a pickle? Answered by looking at bytes: nothing is decoded.

It finds pickles that stand alone, pickles in the members of a zip archive (as PyTorch writes
them), and pickles in base64 inside JSON (as Agent Framework writes them).
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import pickletools
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from safepoint.audit.finding import Finding
from safepoint.errors import StorageUnavailable, shell
from safepoint.storage.location import absolute

LOOKED_AT = 64 * 1024 * 1024
_MANY = 1_000_000
_BASE64 = re.compile(rb'"([A-Za-z0-9+/]{8,}={0,2})"')
_DO = "Keep other writers out, and move the state to a format that cannot execute."


def check_pickles(folder: str | os.PathLike[str]) -> list[Finding]:
    """Look for pickles in every file below `folder`. Symbolic links are not followed.

    Returns:
        A warning under SP03 for each file that carries a pickle; a note if it is too large.

    Raises:
        StorageUnavailable: the folder cannot be listed.
    """
    path = absolute(folder)
    if not Path(path).is_dir():
        raise StorageUnavailable(f"{shell(path)} is not a folder.", "Name the folder to look at.")
    findings = []
    for file in sorted(_files(path)):
        try:
            found = _look(file)
        except OSError as error:
            found = Finding(
                "SP03",
                "note",
                f"{shell(file)} cannot be read ({error.strerror}).",
                "Run the check as a user who can read it.",
                file,
            )
        if found is not None:
            findings.append(found)
    return findings


def is_pickle(data: bytes) -> bool:
    """Tell whether `data` begins with a whole pickle, of any protocol, by its opcodes alone.

    What goes on for a million opcodes counts as one, too.
    """
    try:
        for count, (opcode, _, _) in enumerate(pickletools.genops(io.BytesIO(data))):
            if opcode.name == "STOP":
                return count > 0
            if count == _MANY:
                return True
    except Exception:  # noqa: BLE001  whatever genops raises, these are not a pickle's opcodes
        return False
    return False


def _files(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(parent, name)  # noqa: PTH118  names may be any bytes
            if stat.S_ISREG(os.lstat(file).st_mode):
                yield file


def _look(file: str) -> Finding | None:
    with Path(file).open("rb") as opened:
        data = opened.read(LOOKED_AT + 1)
    if len(data) > LOOKED_AT:
        what, do = "is too large to look at.", "Take it apart, and look at the parts."
        return Finding("SP03", "note", f"{shell(file)} {what}", do, file)
    if is_pickle(data):
        what = "is a pickle."
    elif data.startswith(b"PK\x03\x04") and any(map(is_pickle, _members(data))):
        what = "is an archive that carries a pickle."
    elif any(map(is_pickle, _embedded(data))):
        what = "carries a pickle in base64."
    else:
        return None
    return Finding("SP03", "warning", f"{shell(file)} {what}", _DO, file)


def _members(data: bytes) -> Iterator[bytes]:
    budget = LOOKED_AT
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                with archive.open(member) as opened:
                    content = opened.read(budget)
                budget -= len(content)
                yield content
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError, NotImplementedError, EOFError):
        return


def _embedded(data: bytes) -> Iterator[bytes]:
    for text in _BASE64.findall(data):
        with suppress(binascii.Error):
            yield base64.b64decode(text, validate=True)
