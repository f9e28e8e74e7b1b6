"""What the files of a store hold, told by their bytes. One walk over the folder serves all checks.

What a file is, `safepoint.models` tells. Here is what concerns a store: sealed records, their
bounds, keys, and the tags by which readers of other people's state choose what to build: Agent
Framework (`__pickled__`, `__type__`), LangGraph (`"type": "msgpack"`), LangChain
(`"type": "constructor"`), jsonpickle (`py/object`), and what such tags are called elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Final

from safepoint.audit.finding import (
    Closed,
    Finding,
    content,
    existing_folder,
    files,
    finding,
    worst_first,
)
from safepoint.core.codec import check_shape
from safepoint.core.errors import CheckpointError, DecodeError, LimitExceeded, NotFound, shell
from safepoint.core.keys import Keyring
from safepoint.core.names import DEFAULT_LIMITS, Limits
from safepoint.core.record import FORMAT, Header
from safepoint.models import Inspection, Kind, Verdict, inspect
from safepoint.models.look import SEALED
from safepoint.stores.files import LEASE_LINE, RECORD_NAME

KEY_FILE: Final = re.compile(
    rb"\s*(?:(ssh-ed25519 AAAA)|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)"
)
_PINNED: Final = FORMAT.removeprefix("safepoint/").encode()
_MOST: Final = DEFAULT_LIMITS.record_bytes + 11
_ESCAPED: Final = re.compile(rb"\\u00([2-7][0-9A-Fa-f])")
_TAGS: Final = re.compile(
    rb'"(__(?:pickled?|type|class|module|reduce|cls)__|py/[a-z_]{2,20}|[$]type|@class)":'
    rb'|"(?:type|codec|decoder|encoding|format|serde|serializer)":'
    rb'"(msgpack|constructor|jsonpickle|pickle|cloudpickle|dill|joblib|marshal)"'
)
_LOOK: Final = "Look at it yourself."
_BRACKETS: Final = bytes.maketrans(b"[{]}", b"(())")
_WINDOW: Final = 64 * 1024
_PICKLES: Final = (Kind.PICKLE, Kind.PICKLES, Kind.TORCH_LEGACY)


class File:
    """A file of a store: where it is, how it begins, how many bytes it has, and what it is."""

    def __init__(self, path: str, data: bytes, size: int, found: Inspection | None = None) -> None:
        self.path, self.data, self.size = path, data, size
        self.sealed = SEALED.match(data)
        if found is not None:
            self.found = found

    @cached_property
    def text(self) -> bytes:
        """JSON in ASCII, without space: a parser reads UTF-16 and UTF-32, too."""
        text = self.data.decode(json.detect_encoding(self.data), "replace")
        return text.encode("ascii", "replace").translate(None, b" \t\r\n")

    @property
    def is_json(self) -> bool:
        """Whether it may hold an object or an array. Nothing but space may still become one."""
        return self.text[:1] in (b"", b"[", b"{")

    @cached_property
    def found(self) -> Inspection:
        """What it is to whoever wants to load it."""
        return inspect(self.path)

    @property
    def kind(self) -> str:
        """What it is, to go behind "is"."""
        return self.found.kind.sentence


Look = Callable[[File], Iterator[Finding]]


def check_pickles(folder: str | os.PathLike[str]) -> list[Finding]:
    r"""Look for pickles in every file below `folder`. Symbolic links are not followed.

    ```python
    from pathlib import Path

    from safepoint.audit import check_pickles

    Path("state").mkdir(mode=0o700)
    Path("state/order-7").write_bytes(b"\x80\x04K*.")
    print(check_pickles("state")[0].id)
    #> SP03.pickle
    Path("state/order-7").write_text('{"amount": 42}')
    print(check_pickles("state"))
    #> []
    ```

    Returns:
        A warning under SP03 for each file that carries a pickle: alone, in an archive, in an array
        of objects, or in base64 inside a text; and for each file or folder that could not be looked
        at as a whole.

    Raises:
        Unavailable: there is no such folder.
    """
    return look_into(folder, "SP03", _pickles)


def check_formats(path: str | os.PathLike[str]) -> list[Finding]:
    """Look for files that are not in the one format that a ledger reads.

    By what a file holds, never by its name, and nothing is decoded.

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
    Path("state/order-7.json").unlink()
    print(check_formats("state"))
    #> []
    ```

    Returns:
        A warning under SP10 for each such file, and for what could not be looked at.

    Raises:
        Unavailable: there is no such folder.
    """
    formats = _Formats()
    return worst_first([*look_into(path, "SP10", formats), *formats.odd()])


def check_bounds(path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> list[Finding]:
    """Look for records over the size limit, and for states that are too deep or hold too much.

    The headers of MessagePack are counted by the codec's own check, and the brackets and commas of
    JSON here, before any parser sees them. Nothing is decoded, and a file over the limit is not
    read. Sealed records are looked at, and JSON that anybody else wrote.

    ```python
    from pathlib import Path

    from safepoint import Limits
    from safepoint.audit import check_bounds

    Path("state").mkdir(mode=0o700)
    Path("state/order-7.json").write_text("[" * 500 + "]" * 500)
    for finding in check_bounds("state", Limits(depth=64)):
        print(finding.rule, finding.severity, finding.what.split(": ")[1])
        #> SP11 error The JSON is nested deeper than 64 levels.
    Path("state/order-7.json").write_text("[[42]]")
    print(check_bounds("state"))
    #> []
    ```

    Args:
        path: the folder of the store.
        limits: those of your ledger's codec and storage.

    Returns:
        An error under SP11 for each file over a limit, and a warning for what could not be looked
        at.

    Raises:
        Unavailable: there is no such folder.
    """
    return look_into(
        path, "SP11", lambda file: _bounds(file, limits), most=limits.record_bytes + 11
    )


def check_contents(path: str | os.PathLike[str], keys: Keyring | None = None) -> list[Finding]:
    """Make all checks of what the files of a folder hold, in one walk.

    Returns:
        What `check_pickles`, `check_formats` and `check_bounds` return; the keys in it, under SP08;
        a note under SP02 if there are files, and not one sealed record; then an error under SP12
        for those that have the name of one.

    Raises:
        Unavailable: there is no such folder.
    """
    formats, inside = _Formats(), _Keys(path, keys)
    found = look_into(
        path, "SP03", _pickles, formats, lambda file: _bounds(file, DEFAULT_LIMITS), inside
    )
    return worst_first([*found, *formats.odd(), *formats.unsealed(path), *inside.found()])


def keys_inside(
    path: str | os.PathLike[str], keys: Keyring | None = None, *, without: Collection[str] = ()
) -> list[Finding]:
    """Look for key files in the folder of a storage.

    Args:
        path: the folder.
        keys: the ring.
        without: files not to open: SQLite loses its locks if somebody else in the process does.
    """
    inside = _Keys(path, keys)
    closed = look_into(path, "SP08", inside, without=without, most=128)
    return [*inside.found(), *closed]


def look_into(
    path: str | os.PathLike[str],
    rule: str,
    *looks: Look,
    without: Collection[str] = (),
    most: int = _MOST,
) -> list[Finding]:
    """Hand each file below a folder to each of some checks. One that fails hides no other.

    Args:
        path: the folder.
        rule: under which to say what could not be looked at.
        looks: the checks.
        without: files not to open.
        most: how many bytes of each file to read.
    """
    closed, found = Closed(), list[Finding]()
    for name in files(existing_folder(path), closed):
        try:
            begins = None if os.path.realpath(name) in without else content(name, most)
        except OSError as error:
            closed.add(name, error)
            continue
        if begins is None or not begins[1]:
            continue
        file = File(name, *begins)
        for look in looks:
            try:
                found += look(file)
            except NotFound:
                continue  # gone by now
            except CheckpointError as error:
                closed[name] = error.what.rstrip(".")
            except Exception as error:  # noqa: BLE001  one file must never hide the others
                closed[name] = f"{type(error).__name__}, which is a defect of safepoint"
    return [*worst_first(found), *closed.findings(rule)]


def has_pickle(found: Inspection) -> bool:
    """Tell whether a file, or a record, is a pickle or carries one."""
    plain = found.verdict in (Verdict.PICKLE, Verdict.TORCH, Verdict.RUNS_CODE)
    return plain or (found.verdict is Verdict.REFUSED and not found.refused)


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
        yield from _bounds(file, DEFAULT_LIMITS)
    elif file.size > len(file.data) and file.is_json:
        raise LimitExceeded(f"It has {file.size} bytes of JSON.", _LOOK)


def _pickles(file: File) -> Iterator[Finding]:
    if file.sealed:
        return
    kind, found = file.found.kind, file.found
    if has_pickle(found):
        what = f"is {file.kind} that carries a pickle"
        if kind in _PICKLES:
            what = "is a pickle"
        elif kind is Kind.UNKNOWN:
            what = "is a pickle, or carries one"
        elif kind is Kind.JSON:
            what = "carries a pickle in base64"
        yield finding("SP03.pickle", file.path, carries=what)
    elif found.verdict in (Verdict.NOT_LOOKED_INTO, Verdict.REFUSED):
        raise LimitExceeded(found.what, _LOOK)
    elif kind is Kind.UNKNOWN and file.is_json:
        raise LimitExceeded("It begins like JSON, and is none that can be read.", _LOOK)


class _Formats:
    """Which files are not in the one format that a ledger reads."""

    def __init__(self) -> None:
        self._odd: list[tuple[str, str, bool]] = []
        self._sealed = False

    def __call__(self, file: File) -> Iterator[Finding]:
        """Look at a file. What is odd beside sealed records is known when all were seen."""
        if file.sealed and file.sealed[2] == _PINNED:
            self._sealed = True
        elif not (LEASE_LINE.match(file.data) or KEY_FILE.match(file.data[:128])):
            kind, chooses = _kind_of(file)
            self._odd.append((file.path, kind, chooses))
            if file.size > len(file.data) and file.is_json and not chooses:
                raise LimitExceeded(f"It has {file.size} bytes of JSON.", _LOOK)
        return iter(())

    def odd(self) -> Iterator[Finding]:
        """Yield what chooses how it is decoded, and beside sealed records all else."""
        for path, kind, chooses in self._odd:
            if chooses or self._sealed:
                yield finding("SP10.format", path, kind=kind, format=FORMAT)

    def unsealed(self, path: str | os.PathLike[str]) -> Iterator[Finding]:
        """Yield that nothing in the folder is sealed, if anything is there."""
        if self._odd and not self._sealed:
            yield finding("SP02.unsealed", existing_folder(path))
            records = [each for each, _, _ in self._odd if RECORD_NAME.match(Path(each).name)]
            if records:
                where, count = existing_folder(path), len(records)
                yield finding("SP12.no-seal", where, count=count, first=shell(records[0]))


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
    return file.kind, file.found.kind in _PICKLES


def _bounds(file: File, limits: Limits) -> Iterator[Finding]:
    sealed = file.sealed
    most = limits.record_bytes + len(sealed[1] or b"" if sealed else b"")
    if file.size > most:
        if sealed or file.is_json or RECORD_NAME.match(Path(file.path).name):
            yield finding("SP11.size", file.path, size=file.size, most=most)
        return
    state = file.text if file.is_json else b""
    if sealed:
        _, line_2, state = (*file.data[sealed.start(2) :].split(b"\n", 2), b"", b"")[:3]
        header = Header.parse(line_2)
        if header is not None and header.cipher is not None:
            raise LimitExceeded("Its state is encrypted.", _LOOK)
    try:
        if sealed:
            check_shape(state, limits)
        else:
            _check_json(state, limits)
    except LimitExceeded as refusal:
        yield finding("SP11.shape", file.path, why=refusal.what, do=refusal.do)
    except DecodeError:
        return  # no state: nothing that a decoder could be filled with


def _check_json(text: bytes, limits: Limits) -> None:
    """Refuse JSON that is too deep or holds too much, before a parser sees it.

    Raises:
        LimitExceeded: it does.
    """
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    shape = b"".join(_without_strings(bare)).translate(_BRACKETS)
    if shape.count(b",") + shape.count(b"(") - shape.count(b"()") > limits.items:
        raise LimitExceeded(
            f"The JSON holds more than {limits.items} values.",
            "Restore an earlier checkpoint, or raise Limits.items if you expect this many.",
        )
    brackets = re.sub(rb"[^()]+", b"", shape)
    nesting = accumulate(1 if byte == ord("(") else -1 for byte in brackets)
    if max(nesting, default=0) > limits.depth:
        raise LimitExceeded(
            f"The JSON is nested deeper than {limits.depth} levels.",
            "Restore an earlier checkpoint, or raise Limits.depth if you expect this nesting.",
        )


def _without_strings(bare: bytes) -> Iterator[bytes]:
    """Yield JSON without escaped quotes, with each string replaced by one quote.

    It goes window by window, so that a megabyte of quotes does not become a list of a million
    pieces.
    """
    inside = False
    for start in range(0, len(bare), _WINDOW):
        pieces = bare[start : start + _WINDOW].split(b'"')
        yield b'"'.join(pieces[inside::2])
        inside ^= not len(pieces) % 2
        if inside and len(pieces) > 1:
            yield b'"'


class _Keys:
    """Which files are keys, by what they hold and by the paths of a ring."""

    def __init__(self, path: str | os.PathLike[str], keys: Keyring | None) -> None:
        real = Path(os.path.realpath(existing_folder(path)))
        paths = [key.path for key in keys or () if key.path is not None]
        self._public = {str(each): False for each in paths if each.is_relative_to(real)}

    def __call__(self, file: File) -> Iterator[Finding]:
        """Look at a file."""
        match = KEY_FILE.match(file.data[:128])
        if match is not None:
            self._public[os.path.realpath(file.path)] = match[1] is not None
        return iter(())

    def found(self) -> Iterator[Finding]:
        """Yield each key."""
        for file, public in sorted(self._public.items()):
            yield finding("SP08.public-inside" if public else "SP08.inside", file)
