"""Which files of a folder carry a pickle? Answered by looking at bytes: nothing is decoded.

It finds pickles that stand alone, pickles in the members of a zip archive (as PyTorch writes
them), and pickles in base64 inside JSON (as Agent Framework writes them).

Whoever wrote the files chose how much there is to look at, so all of it is bounded: what is over a
bound is said, and left.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import pickletools
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from safepoint.audit.files import Closed, content, existing_folder, files
from safepoint.audit.finding import Finding
from safepoint.audit.text import is_json, narrow, quoted_strings, unescaped
from safepoint.errors import shell

LOOKED_AT = 64 * 1024 * 1024
MEMBERS = 20_000
STRINGS = 2_000_000
OPCODES = 3_000_000
_MANY: Final = 200_000
_SHORTEST: Final = 8
_BASE64: Final = re.compile(rb'"([A-Za-z0-9+/]{8,}={0,2})"')
_PLAIN: Final = re.compile(rb"[A-Za-z0-9+/]+={0,2}\Z")
_NAMES: Final = re.compile(r"[A-Za-z_][\w.]* [A-Za-z_][\w.]*\Z")
# The others are unpacked whole, however much was asked for.
_BOUNDED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MEMBER: Final = b"PK\x01\x02"
_DO: Final = "Keep other writers out, and move the state to a format that cannot execute."


class _Unclear(Exception):
    """There is more than this check looks at, or it cannot be looked at."""


def check_pickles(folder: str | os.PathLike[str]) -> list[Finding]:
    """Look for pickles in every file below `folder`. Symbolic links are not followed.

    Returns:
        A warning under SP03 for each file that carries a pickle, and for each file or folder that
        could not be looked at as a whole.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    root = existing_folder(folder)
    findings: list[Finding] = []
    closed = Closed()
    for file in files(root, closed):
        try:
            what = _look(file)
        except OSError as error:
            closed.add(file, error)
        except _Unclear as reason:
            closed[file] = str(reason)
        else:
            if what is not None:
                findings.append(Finding("SP03", "warning", f"{shell(file)} {what}.", _DO, file))
    return findings + closed.findings("SP03")


def is_pickle(data: bytes) -> bool:
    """Tell whether `data` begins like a pickle of any protocol, by its opcodes alone.

    A whole pickle counts, and so does a broken one that would import something before it breaks:
    by then it may have run. What goes on for long counts, too.
    """
    return _weighed(data)[0]


def _weighed(data: bytes) -> tuple[bool, int]:
    """Tell whether it is a pickle, and how many opcodes it took to tell."""
    count, imports = 0, False
    try:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
            count += 1
            if opcode.name in ("GLOBAL", "INST"):
                imports = imports or bool(_NAMES.match(str(argument)))
            elif opcode.name == "STACK_GLOBAL":
                imports = True
            if opcode.name == "STOP" or count > _MANY:
                return count > 1, count
    except Exception:  # noqa: BLE001  whatever genops raises, the rest is not a pickle's opcodes
        return imports, count
    return imports, count


def _look(file: str) -> str | None:
    found = content(file, LOOKED_AT + 1)
    if found is None:
        return None
    data, _ = found
    if len(data) > LOOKED_AT:
        raise _Unclear("too large to look at")
    if is_pickle(data):
        return "is a pickle"
    if zipfile.is_zipfile(io.BytesIO(data)) and _any_pickle(_members(data)):
        return "is an archive that carries a pickle"
    if _any_pickle(_embedded(narrow(data))):
        return "carries a pickle in base64"
    return None


def _any_pickle(pieces: Iterable[bytes]) -> bool:
    effort = 0
    for piece in pieces:
        found, opcodes = _weighed(piece)
        if found:
            return True
        effort += opcodes + 1
        if effort > OPCODES:
            raise _Unclear(f"too large to look at: more than {OPCODES} opcodes of a pickle")
    return False


def _members(data: bytes) -> Iterator[bytes]:
    # An archive lists each of its members behind these four bytes, and that list is read at once.
    if data.count(_MEMBER) > MEMBERS:
        raise _Unclear(f"too large to look at: an archive of more than {MEMBERS} members")
    budget, skipped = LOOKED_AT, False
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                if member.compress_type not in _BOUNDED:
                    skipped = True
                    continue
                with archive.open(member) as opened:
                    unpacked = opened.read(budget + 1)
                budget -= len(unpacked)
                yield unpacked
                if budget < 0:
                    break
    except Exception:  # noqa: BLE001  a damaged archive fails in many ways
        raise _Unclear("a damaged archive") from None
    if budget < 0:
        raise _Unclear("too large to look at when unpacked")
    if skipped:
        raise _Unclear("an archive that is compressed in a rare way")


def _embedded(text: bytes) -> Iterator[bytes]:
    if text.count(b"\\u00") > STRINGS:
        raise _Unclear(f"too large to look at: more than {STRINGS} escapes")
    text = unescaped(text)
    for plain in _BASE64.finditer(text):
        yield from _decoded(plain[1])
    if not is_json(text, string=True):
        return
    if text.count(b'"') > 2 * STRINGS:
        raise _Unclear(f"too large to look at: more than {STRINGS} strings")
    for string in quoted_strings(text):
        # The plain ones were seen above. One in which an escape is left is no base64.
        if len(string) >= _SHORTEST and b"\\" not in string and not _PLAIN.match(string):
            yield from _decoded(string)


def _decoded(letters: bytes) -> Iterator[bytes]:
    """Return what base64 stands for, as its readers take it: what is no letter of it is skipped."""
    with suppress(binascii.Error, ValueError):
        yield base64.b64decode(letters, validate=False)
