"""What the files of a store hold, told by their bytes. One walk over the folder serves all checks.

The tags of SP10 are those by which readers of other people's state choose what to build: Agent
Framework (`__pickled__`, `__type__`), LangGraph (`"type": "msgpack"`), LangChain
(`"type": "constructor"`), jsonpickle (`py/object`), and what such tags are called elsewhere.

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
import string
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from safepoint.audit.finding import (
    Closed,
    Finding,
    content,
    existing_folder,
    files,
    finding,
    refused,
    worst_first,
)
from safepoint.codec import check_shape
from safepoint.errors import LimitExceeded, NotFound, PickleRefused, StorageUnavailable, shell
from safepoint.keys import Keyring
from safepoint.models import Kind, inspect
from safepoint.names import DEFAULT_LIMITS, Limits
from safepoint.record import FORMAT
from safepoint.storage.file import LEASE_LINE, RECORD_NAME

BEGINNING: Final = 1024 * 1024
LOOKED_AT: Final = 64 * 1024 * 1024
STRINGS: Final = 2_000_000
OPCODES: Final = 3_000_000
_MANY: Final = 200_000
_NAMES: Final = re.compile(r"[A-Za-z_][\w.]* [A-Za-z_][\w.]*\Z")
_CARRIES: Final = {
    **dict.fromkeys((Kind.PICKLE, Kind.PICKLES, Kind.TORCH_LEGACY, Kind.UNKNOWN), "is a pickle"),
    Kind.JSON: "carries a pickle in base64",
    Kind.NPY: "is a NumPy array that carries a pickle",
}
KEY_FILE: Final = re.compile(
    rb"\s*(?:safepoint-(public-)?key/[0-9]+ |-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)"
)
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
_WORDS: Final = re.compile(rb'[^\[\]{},:"]+')

# Nothing but space so far may still become JSON.
_JSON: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[\[{]|\Z)")
_ASCII: Final = re.compile(rb"\\u00([0-7][0-9A-Fa-f])")
_BASE64: Final = frozenset(f"{string.ascii_letters}{string.digits}+/=".encode())
_QUOTED: Final = re.compile(rb'"([^"\\]{8,})(?=")')
_DROPPED: Final = (b"\\\\", b'\\"', b"\\n", b"\\r", b"\\t", b"\\b", b"\\f")


class File(NamedTuple):
    """A file: where it is, how it begins, and how many bytes it has."""

    path: str
    head: bytes
    size: int


Look = Callable[[File], Iterator[Finding]]


class _Unclear(Exception):
    """There is more than this check looks at, or it cannot be looked at."""


def check_pickles(folder: str | os.PathLike[str]) -> list[Finding]:
    """Look for pickles in every file below `folder`. Symbolic links are not followed.

    Returns:
        A warning under SP03 for each file that carries a pickle: alone, in an archive, in an array
        of objects, or in base64 inside JSON; and for each file or folder that could not be looked
        at as a whole.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    return look_into(folder, "SP03", _pickles)


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
    formats = Formats()
    return worst_first([*look_into(path, "SP10", formats), *formats.odd()])


def check_bounds(path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> list[Finding]:
    """Look for records over the size limit, and for states that are too deep or hold too much.

    The brackets and commas are counted by the codec's own check, which runs before any parser.
    Nothing is decoded, and a file over the limit is not read. Sealed records are looked at, and
    JSON that anybody else wrote.

    ```python
    from pathlib import Path

    from safepoint import Limits
    from safepoint.audit import check_bounds

    Path("state").mkdir(mode=0o700)
    Path("state/order-7.json").write_text("[" * 500 + "]" * 500)
    for finding in check_bounds("state", Limits(depth=64)):
        print(finding.rule, finding.severity, finding.what.split(": ")[1])
        #> SP11 error The encoded state is nested deeper than 64 levels.
    ```

    Args:
        path: the folder of the store.
        limits: those of your ledger's codec and storage.

    Returns:
        An error under SP11 for each file over a limit, and a warning for what could not be looked
        at.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    return look_into(path, "SP11", lambda file: _bounds(file, limits))


def check_contents(path: str | os.PathLike[str], keys: Keyring | None = None) -> list[Finding]:
    """Make all checks of what the files of a folder hold, in one walk.

    Returns:
        What `check_pickles`, `check_formats` and `check_bounds` return; the keys in it, under SP08;
        and a note under SP02 if there are files, and not one sealed record.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    formats, inside = Formats(), Keys(path, keys)
    found = look_into(
        path, "SP03", _pickles, formats, lambda file: _bounds(file, DEFAULT_LIMITS), inside
    )
    return worst_first([*found, *formats.odd(), *formats.unsealed(path), *inside.found()])


def look_into(
    path: str | os.PathLike[str], rule: str, *looks: Look, without: Collection[str] = ()
) -> list[Finding]:
    """Hand each file below a folder to each of some checks.

    Args:
        path: the folder.
        rule: under which to say what could not be looked at.
        looks: the checks.
        without: files not to open: SQLite loses its locks if somebody else in the process does.
    """
    root = existing_folder(path)
    closed, found = Closed(), list[Finding]()
    for name in files(root, closed):
        if os.path.realpath(name) in without:
            continue
        try:
            begins = content(name, BEGINNING)
            if begins is None:
                continue
            for look in looks:
                try:
                    found += look(File(name, *begins))
                except _Unclear as reason:
                    closed[name] = str(reason)
        except OSError as error:
            closed.add(name, error)
    return [*worst_first(found), *closed.findings(rule)]


# --- pickles


def _pickles(file: File) -> Iterator[Finding]:
    what = _pickled(file)
    if what is not None:
        yield finding("SP03.pickle", file.path, what=what)


def _pickled(file: File) -> str | None:
    if not file.size or SEALED.match(file.head):
        return None
    why, texts = "", True
    try:
        found = inspect(file.path)
    except NotFound:
        return None  # gone by now
    except (LimitExceeded, PickleRefused, StorageUnavailable) as refusal:
        if is_pickle(file.head):
            return "is a pickle"
        why = refusal.what.rstrip(".")
    else:
        if found.pickles:
            return _CARRIES.get(found.kind, "is an archive that carries a pickle")
        texts = found.kind in (Kind.JSON, Kind.UNKNOWN)
        if found.unseen and not texts:
            why = found.unseen[0].rstrip(".")
    if texts and file.size > LOOKED_AT:
        why = why or "too large to look at"
    elif texts:
        whole = content(file.path, LOOKED_AT)
        if whole is not None and _any_pickle(_embedded(narrow(whole[0]))):
            return "carries a pickle in base64"
    if why:
        raise _Unclear(why)
    return None


def is_pickle(data: bytes) -> bool:
    """Tell whether `data` begins like a pickle of any protocol, by its opcodes alone.

    A whole pickle counts, and so does a broken one that would import something before it breaks:
    by then it may have run. What goes on for long counts, too.
    """
    return _weighed(data)[0]


def _weighed(data: bytes) -> tuple[bool, int]:
    """Tell whether it is a pickle, and how many opcodes it took to tell."""
    count, imports = 0, False
    with suppress(Exception):  # whatever genops raises, the rest is not a pickle's opcodes
        for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
            count += 1
            named = opcode.name in ("GLOBAL", "INST") and _NAMES.match(str(argument))
            imports = imports or bool(named) or opcode.name == "STACK_GLOBAL"
            if opcode.name == "STOP" or count > _MANY:
                return count > 1, count
    return imports, count


def _any_pickle(pieces: Iterator[bytes]) -> bool:
    effort = 0
    for piece in pieces:
        found, opcodes = _weighed(piece)
        if found:
            return True
        effort += opcodes + 1
        if effort > OPCODES:
            raise _Unclear(f"too large to look at: more than {OPCODES} opcodes of a pickle")
    return False


def _embedded(text: bytes) -> Iterator[bytes]:
    """Return what each string stands for as base64. What is no letter of that, readers skip."""
    if text.count(b"\\u00") > STRINGS:
        raise _Unclear(f"too large to look at: more than {STRINGS} escapes")
    text = _unescaped(text)
    if text.count(b'"') > 2 * STRINGS:
        raise _Unclear(f"too large to look at: more than {STRINGS} strings")
    for found in _QUOTED.finditer(text):
        with suppress(binascii.Error, ValueError):
            yield base64.b64decode(found[1], validate=False)


def _unescaped(text: bytes) -> bytes:
    """Return JSON with its escapes undone, as far as they could stand for a letter of base64.

    Others are dropped, as readers of base64 drop what is no letter of it.
    """
    if b"\\" not in text:
        return text
    for escape in _DROPPED:
        text = text.replace(escape, b"")
    return _ASCII.sub(_letter, text.replace(b"\\/", b"/"))


def _letter(escape: re.Match[bytes]) -> bytes:
    code = int(escape[1], 16)
    return bytes([code]) if code in _BASE64 else b""


# --- formats


class Formats:
    """Which files are not in the one format that a ledger reads."""

    def __init__(self) -> None:
        self._odd: list[tuple[str, str, bool]] = []
        self._sealed = False

    def __call__(self, file: File) -> Iterator[Finding]:
        """Look at a file. What is odd beside sealed records is known when all were seen."""
        record = SEALED.match(file.head)
        if record is not None and record[2] == _PINNED:
            self._sealed = True
        elif file.head and not LEASE_LINE.match(file.head):
            kind, chooses = kind_of(file.head)
            self._odd.append((file.path, kind, chooses))
            if file.size > BEGINNING and not chooses and is_json(file.head):
                raise _Unclear(f"{file.size} bytes of JSON")
        return iter(())

    def odd(self) -> Iterator[Finding]:
        """Yield what chooses how it is decoded, and beside sealed records all else."""
        for path, kind, chooses in self._odd:
            if chooses or self._sealed:
                yield finding("SP10.format", path, kind=kind, format=FORMAT)

    def unsealed(self, path: str | os.PathLike[str]) -> Iterator[Finding]:
        """Yield that nothing in the folder is sealed, if anything is there."""
        root = existing_folder(path)
        if self._odd and not self._sealed:
            yield finding("SP02.unsealed", root)


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


# --- bounds


def _bounds(file: File, limits: Limits) -> Iterator[Finding]:
    try:
        _check_bounds(file, limits)
    except LimitExceeded as refusal:
        yield refused("SP11", refusal, file.path)


def _check_bounds(file: File, limits: Limits) -> None:
    path, start, size = file
    sealed = SEALED.match(start)
    text = sealed is not None or is_json(start)
    most = limits.record_bytes + len(sealed[1] or b"" if sealed else b"")
    if size > most and (text or RECORD_NAME.match(Path(path).name)):
        raise LimitExceeded(
            f"{shell(path)} has {size} bytes or more, and the limit is {most}.",
            "Find out who wrote it; if it was you, pass the same Limits here as there.",
        )
    found = content(path, most) if text else None
    state = b"" if found is None else found[0]
    if sealed is not None:
        state = state[sealed.start(2) :].partition(b"\n")[2].partition(b"\n")[2].rstrip(b"\n")
    try:
        if len(state) > limits.state_bytes:
            check_shape(state, limits)
        check_shape(_skeleton(state), limits)
    except LimitExceeded as refusal:
        raise LimitExceeded(f"{shell(path)}: {refusal.what}", refusal.do) from None


def _skeleton(data: bytes) -> bytes:
    """Return what gives JSON its shape, and one byte for all that stands between.

    The codec's check knows what the codec writes. Here it must count in spite of spaces, long
    numbers and letters of any script.
    """
    bare = narrow(data).translate(None, b" \t\r\n")
    bare = bare.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in bare else bare
    return _WORDS.sub(b"0", bare)


def is_json(data: bytes) -> bool:
    """Tell whether a file that begins like this may hold an object or an array."""
    return _JSON.match(narrow(data[:64])) is not None


def narrow(data: bytes) -> bytes:
    """Return JSON with one byte for each ASCII letter: a parser reads UTF-16 and UTF-32, too."""
    if b"\0" in data[:4]:
        return data.removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff").replace(b"\0", b"")
    return data


# --- keys


class Keys:
    """Which files are keys, by what they hold and by the paths of a ring."""

    def __init__(self, path: str | os.PathLike[str], keys: Keyring | None) -> None:
        real = Path(os.path.realpath(existing_folder(path)))
        paths = [key.path for key in (() if keys is None else keys.all) if key.path is not None]
        self._public = {str(each): False for each in paths if each.is_relative_to(real)}

    def __call__(self, file: File) -> Iterator[Finding]:
        """Look at a file."""
        match = KEY_FILE.match(file.head[:128])
        if match is not None:
            self._public[os.path.realpath(file.path)] = match[1] is not None
        return iter(())

    def found(self) -> Iterator[Finding]:
        """Yield each key."""
        for file, public in sorted(self._public.items()):
            yield finding("SP08.public-inside" if public else "SP08.inside", file)


def keys_inside(
    path: str | os.PathLike[str], keys: Keyring | None = None, *, without: Collection[str] = ()
) -> list[Finding]:
    """Look for key files in the folder of a storage.

    Args:
        path: the folder.
        keys: the ring.
        without: files not to open.
    """
    inside = Keys(path, keys)
    closed = look_into(path, "SP08", inside, without=without)
    return [*inside.found(), *closed]
