"""The one way in for states that carry no seal. It is explicit, and it leaves a report.

No path of a ledger loads an unsigned record. To move to sealed checkpoints, you read the old ones
here once, as data, decide that you vouch for them, and seal them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    DecodeError,
    InvalidId,
    LimitExceeded,
    NotFound,
    StorageUnavailable,
    ThreadDeleted,
    quoted,
    shell,
)
from safepoint.ledger import Ledger
from safepoint.names import DEFAULT_LIMITS, Limits, check_name


@dataclass(frozen=True, slots=True)
class Unsigned:
    """A state that nobody has signed, and where it came from.

    Attributes:
        thread: the thread that it becomes part of.
        state: the state, already decoded, by you.
        source: what the report calls it: a file's name.
        digest: the sha256 of the bytes that it was read from.
        app: what wrote it, as it should stand in the checkpoint.
    """

    thread: str
    state: Any = field(repr=False)
    source: str = ""
    digest: str = ""
    app: str = ""


def check_thread(thread: object, source: str) -> str:
    """Return the name if it can be a thread's, and otherwise say of what file it came.

    Raises:
        InvalidId: it is outside the grammar.
    """
    try:
        return check_name("thread", thread)
    except InvalidId as error:
        if not source:
            raise
        raise InvalidId(
            f"{shell(source)} becomes a thread, and {error.what}",
            f"{error.do} Map old names to new ones: json_files(path, thread=function), or"
            " Unsigned(new_name, state).",
        ) from None


PLAIN: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""How a file is opened: no link is followed, and a pipe is refused instead of waited for."""


def json_files(
    folder: str | os.PathLike[str],
    *,
    thread: Callable[[str], str] | None = None,
    app: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Unsigned]:
    """Read the `.json` files of a folder, as data, in the order of their names.

    A file is a thread with one checkpoint. Names are checked before the first file is read, so
    that a migration does not stop half-way because of the last one.

    Args:
        folder: where they are. Files that end otherwise are left out.
        thread: makes the name of the thread of the file's name without its end. Left out, they
            are the same.
        app: what wrote them, as it should stand in the checkpoints.
        limits: for the size of each file, and for how many values it has.

    Raises:
        ConfigurationError: there are folders in the folder, and what is in them would be left out.
        Conflict: two files would become one thread.
        InvalidId: a file's name cannot be that of a thread. The message says how to map it.
        DecodeError: a file is not JSON, has a key twice, or a number that JSON does not have.
        LimitExceeded: a file has more bytes or values than the limits, or is nested too deep.
        StorageUnavailable: the folder or a file cannot be read, or is not a regular file.
    """
    threads: dict[str, Path] = {}
    for file in _files(folder):
        name = check_thread(thread(file.stem) if thread else file.stem, str(file))
        if name in threads:
            raise Conflict(
                f"{shell(str(threads[name]))} and {shell(str(file))} would both become {name}.",
                "Nothing was read. Give each a name of its own.",
            )
        threads[name] = file
    for name, file in threads.items():
        text = read_file(file, limits.state_bytes + 1)
        state = strict_json(text, shell(str(file)), limits.state_bytes, limits.items)
        digest = hashlib.sha256(text).hexdigest()
        yield Unsigned(name, state, file.name, f"sha256:{digest}", app)


def _files(folder: str | os.PathLike[str]) -> list[Path]:
    try:
        with os.scandir(os.fspath(folder)) as entries:  # None would be the current folder
            found = sorted((e.name, e.is_dir()) for e in entries)
    except OSError as error:
        raise unreadable(folder, error.strerror) from error
    for name, is_folder in found:
        if is_folder:
            raise ConfigurationError(
                f"{shell(str(Path(folder, name)))} is a folder, and json_files reads files alone.",
                "Nothing was read. Read each folder by itself, and give its states the thread that"
                " they belong to; or move it elsewhere.",
            )
    files = [Path(folder, name) for name, _ in found]
    return [file for file in files if file.suffix.lower() == ".json"]


def read_file(file: Path, most: int) -> bytes:
    """Return the first bytes of a regular file. No link is followed, and no pipe waited for.

    Raises:
        StorageUnavailable: it cannot be read, or is something else.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | PLAIN)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise unreadable(file, "not a regular file")
            return opened.read(most)
    except OSError as error:
        raise unreadable(file, error.strerror) from error


def unreadable(path: str | os.PathLike[str], reason: str | None) -> StorageUnavailable:
    """Return the error for a folder or a file that cannot be read."""
    return StorageUnavailable(
        f"{shell(os.fspath(path))} cannot be read ({reason}).",
        "Name a folder of files that this user can read. Links are not followed.",
    )


def strict_json(text: bytes, shown: str, size: int, items: int) -> Any:
    """Return what a text says, if it is JSON without a second meaning.

    Args:
        text: the bytes.
        shown: what a message calls them.
        size: how many there may be.
        items: how many values there may be.

    Raises:
        DecodeError: it is not JSON, has a key twice, or a number that JSON does not have.
        LimitExceeded: it has more bytes or values, or is nested too deep.
    """
    if len(text) > size:
        raise LimitExceeded(
            f"{shown} is over the limit of {size} bytes.",
            "Look what it is before you raise Limits.state_bytes.",
        )
    # Before a parser builds them. Those in a text count too, and few texts have as many.
    if text.count(b",") + text.count(b"[") + text.count(b"{") > items:
        raise LimitExceeded(
            f"{shown} has more than {items} values.",
            "Look what it is before you raise Limits.items.",
        )
    problem: CheckpointError  # raised below: the error of the parser carries the text along
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError:
        problem = LimitExceeded(f"{shown} is nested too deep.", "Look who wrote it.")
    except ValueError:
        problem = DecodeError(
            f"{shown} is not strict JSON.",
            "Nothing of it was sealed. Repair it, or leave it out.",
        )
    raise problem


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse(constant: str) -> float:
    raise ValueError(constant)


_LINE: Final = 1024 * 1024
_OPENINGS: Final = (b'{"outcome": "begun", "', b'{"outcome": "refused", "')
"""How the first line of a report begins."""


class Report:
    """Lines of JSON, added to a file that only its owner can read.

    Raises:
        ConfigurationError: there is a file of another kind.
        StorageUnavailable: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | PLAIN
        with self._told():
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0)
        try:
            with self._told():
                self._begun, whole = _earlier(self._file, self._path)
                if not whole:  # a crash cut its last line short
                    os.write(self._file.fileno(), b"\n")
        except BaseException:
            self._file.close()
            raise

    def has_begun(self, store: str, thread: str) -> bool:
        """Tell whether an earlier run that wrote this report began the thread."""
        return (store, thread) in self._begun

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, entry: dict[str, Any]) -> None:
        """Write one line.

        Raises:
            StorageUnavailable: it cannot be written.
        """
        line = {"outcome": entry["outcome"], **entry}
        text = memoryview(json.dumps(line).encode() + b"\n")
        with self._told():
            while text:
                text = text[os.write(self._file.fileno(), text) :]

    def sync(self) -> None:
        """Put on disk what was written.

        Raises:
            StorageUnavailable: the disk refused.
        """
        with self._told():
            os.fsync(self._file.fileno())

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _refusal(self._path, error, "written") from error


def begun_by(path: str | os.PathLike[str]) -> set[tuple[str, str]]:
    """Return the store and the name of each thread that earlier runs with this report began.

    Nothing is written: there may be no such file yet.

    Raises:
        ConfigurationError: there is a file of another kind.
        StorageUnavailable: there is one, and it cannot be read.
    """
    name = os.fspath(path)
    try:
        with os.fdopen(os.open(name, os.O_RDONLY | PLAIN), "rb", buffering=0) as file:
            return _earlier(file, name)[0]
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise _refusal(name, error, "read") from error


def _refusal(path: str, error: OSError, doing: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"The report {shell(path)} cannot be {doing} ({error.strerror}).",
        "Nothing more was sealed. Name a file in a folder that this user can write.",
    )


def _earlier(file: FileIO, path: str) -> tuple[set[tuple[str, str]], bool]:
    """Return which threads earlier runs began, and whether their last line is whole."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    begun, line = set(), b"\n"
    with os.fdopen(os.dup(file.fileno()), "rb") as lines:
        # A file that no migration wrote may be one of the originals. A crash may cut a line short.
        first = lines.readline(_LINE)
        begins = first.rstrip(b"\n") or b"?"
        if first and not any(
            each.startswith(begins) or begins.startswith(each) for each in _OPENINGS
        ):
            raise ConfigurationError(
                f"{shell(path)} exists, and is no report of a migration.",
                "Nothing was written to it. Name a new file as the report, or that of an earlier"
                " run.",
            )
        lines.seek(0)
        for line in lines:
            with suppress(ValueError):  # cut short by a crash
                entry = json.loads(line)
                if entry["outcome"] == "begun":
                    begun.add((str(entry["store"]), str(entry["thread"])))
    return begun, line.endswith(b"\n")


SEALED: Final = "sealed"
THERE_ALREADY: Final = "there already"


def migrate(
    states: Iterable[Unsigned],
    ledger: Ledger,
    *,
    report: str | os.PathLike[str],
    allow_unsigned_migration: bool = False,
) -> int:
    """Seal states that carry no seal as new threads, in one pass, and write down each.

    A thread that exists is not added to: a migration cannot reach into a run that goes on. A state
    that an interrupted migration sealed already is recognised and passed over, so run it again,
    with the same report.

    ```python
    import json
    from pathlib import Path

    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.migrate import json_files, migrate

    Path("old").mkdir()
    Path("old/order-7.json").write_text('{"amount": 42}')

    keys = Keyring(SigningKey.generate())
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
    sealed = migrate(
        json_files("old"),
        ledger,
        report="migration.jsonl",
        allow_unsigned_migration=True,
    )
    print(sealed, ledger.latest("order-7").state)
    #> 1 {'amount': 42}
    for line in Path("migration.jsonl").read_text().splitlines():
        entry = json.loads(line)
        print(entry["source"], entry["outcome"])
        #> order-7.json begun
        #> order-7.json sealed
    ```

    Args:
        states: what to seal; several of one thread become its checkpoints, in order.
        ledger: where to.
        report: a file of JSON lines that this adds to: for each state one before it is sealed,
            on disk, and one after it, with the checkpoint's digest.
        allow_unsigned_migration: that you vouch for these states. There is no default yes.

    Returns:
        How many were sealed.

    Raises:
        ConfigurationError: you did not say that you vouch for them, or the report is a file of
            another kind.
        Conflict: a thread exists, and not because of this migration.
        StorageUnavailable: the report cannot be written. What it does not name is not sealed.
        CheckpointError: a state cannot be sealed. Those before it are.
    """
    check_vouched(allow_unsigned_migration)
    with Report(report) as lines:
        sealer = Sealer(ledger, lines)
        sealed = sum(sealer.seal(unsigned) == SEALED for unsigned in states)
        lines.sync()
    return sealed


def check_vouched(allow_unsigned_migration: object) -> None:
    """Refuse unless somebody vouches for the states.

    Raises:
        ConfigurationError: nobody does.
    """
    if allow_unsigned_migration is not True:
        raise ConfigurationError(
            "These states carry no seal, so whoever could write them decides what they say.",
            "Look at them first. If you vouch for them, pass allow_unsigned_migration=True.",
        )


class Sealer:
    """Seals states one after another, and writes each down: before, on disk, and after.

    Args:
        ledger: where to.
        lines: the report, open.
    """

    def __init__(self, ledger: Ledger, lines: Report) -> None:
        self._ledger = ledger
        self._lines = lines
        self._positions: dict[str, int] = {}

    def seal(self, unsigned: Unsigned) -> str:
        """Seal one as the next of its thread.

        Returns:
            `SEALED`, or `THERE_ALREADY` if an interrupted migration had done it.

        Raises:
            Conflict: the thread exists, and not because of this migration.
            StorageUnavailable: the report cannot be written. What it does not name is not sealed.
            CheckpointError: the state cannot be sealed.
        """
        ledger, lines = self._ledger, self._lines
        thread = check_thread(unsigned.thread, unsigned.source)
        sequence = self._positions[thread] = self._positions.get(thread, 0) + 1
        entry = {
            "outcome": "begun",
            "source": unsigned.source,
            "source_digest": unsigned.digest,
            "store": ledger.store,
            "thread": thread,
            "sequence": sequence,
        }
        if sequence == 1 and not lines.has_begun(ledger.store, thread):
            check_new(ledger, thread)
        lines.add(entry)
        lines.sync()
        digest = found(unsigned, ledger, sequence)
        outcome = SEALED if digest is None else THERE_ALREADY
        if digest is None:
            digest = _seal(unsigned, ledger, sequence)
        lines.add({**entry, "outcome": outcome, "digest": digest})
        return outcome


def check_new(ledger: Ledger, thread: str) -> None:
    """Refuse a thread that exists: a migration only makes new ones.

    Raises:
        Conflict: it exists.
        ThreadDeleted: it did, and its name stays taken.
    """
    try:
        ledger.latest(thread)
    except ThreadDeleted:
        raise
    except NotFound:
        return
    raise Conflict(
        f"{thread} exists in store {ledger.store}, and this report did not begin it.",
        "Nothing was overwritten. A migration only makes new threads: choose another name. To"
        " finish one that was interrupted, name its report.",
    )


def found(unsigned: Unsigned, ledger: Ledger, sequence: int) -> str | None:
    """Return the digest of the checkpoint that holds this very state there, None if none is there.

    Raises:
        Conflict: another state is there.
    """
    try:
        there = ledger.load(unsigned.thread, sequence)
    except ThreadDeleted:
        raise
    except NotFound:
        return None
    # As bytes: in Python 1, 1.0 and True are equal.
    encode = ledger.codec.encode
    if encode(there.state) != encode(unsigned.state) or there.app != unsigned.app:
        raise Conflict(
            f"{unsigned.thread} exists in store {ledger.store}, with another state at #{sequence}.",
            "Nothing was overwritten. A migration only makes new threads: choose another name.",
        )
    return there.digest


def _seal(unsigned: Unsigned, ledger: Ledger, sequence: int) -> str:
    detail = f"unsigned state {unsigned.digest} as #{sequence}"
    ledger.notes.write("migrate", "intended", unsigned.thread, detail=detail)
    saved = ledger.save(unsigned.thread, unsigned.state, app=unsigned.app, after=sequence - 1)
    return saved.digest


_SHOWN: Final = 3
_BRANCH: Final = (
    "Nothing of this thread was sealed. Decide which one counts, copy it with all that it follows"
    " to a folder of its own, and migrate that."
)
_LOOK: Final = "Nothing of this thread was sealed. Look who wrote these files."


@dataclass(frozen=True, slots=True)
class Link:
    """What a file says about its place.

    Attributes:
        source: the file's name.
        identity: which checkpoint it is.
        previous: which one it follows, None if it is the first.
        iteration: how many steps its run had taken. It begins again at 0 in a new run.
        workflow: the name of the workflow that wrote it.
    """

    source: str
    identity: str
    previous: str | None
    iteration: int
    workflow: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Files that belong together.

    Attributes:
        links: each one, in order if there is one.
        refusal: why there is no order that these files agree on.
    """

    links: tuple[Link, ...]
    refusal: Conflict | None = None


def chains(links: Iterable[Link], *, allow_missing_past: bool = False) -> list[Chain]:
    """Put files in order: a chain for each first checkpoint, by the names of the files.

    Args:
        links: what each file says. Each has an identity of its own, which is its name.
        allow_missing_past: take a checkpoint for the first if the one that it follows is gone.
    """
    left = {link.identity: link for link in sorted(links, key=lambda link: link.source)}
    names = set(left)
    followers: dict[str | None, list[Link]] = {}
    for link in left.values():
        followers.setdefault(link.previous, []).append(link)
    beginnings = [link for link in left.values() if link.previous not in names]
    found: list[Chain] = []
    for first in (*beginnings, *left.values()):  # whoever is left then is in a circle
        if first.identity in left:
            beside = followers[first.previous] if first.previous is not None else [first]
            belong = [first, *(each for each in beside if each is not first)]
            for link in belong:  # it grows
                if left.pop(link.identity, None):
                    belong += [
                        each
                        for each in followers.get(link.identity, ())
                        if each.identity in left and each not in belong
                    ]
            problems = _refusals(tuple(belong), names, allow_missing_past)
            found.append(Chain(tuple(belong), next(problems, None)))
    return sorted(found, key=lambda chain: chain.links[0].source)


def _refusals(links: tuple[Link, ...], names: set[str], without_past: bool) -> Iterator[Conflict]:
    first = links[0]
    if first.previous in names:
        shown = _shown(sorted(links, key=lambda link: link.source))
        circle = "follow one another in a circle" if len(links) > 1 else "follows itself"
        yield Conflict(f"{shown} {circle}.", _LOOK)
    elif first.previous is not None and not without_past:
        yield Conflict(
            f"{shell(first.source)} follows {quoted(first.previous)}, which is not in the folder.",
            "Nothing of this thread was sealed. Put it back; if you removed it on purpose, pass"
            " allow_missing_past=True.",
        )
    for before, link in pairwise(links):
        if link.previous != before.identity:
            twins = [each for each in links if each.previous == link.previous]
            yield Conflict(
                f"{_shown(twins)} follow the same checkpoint, so their order cannot be told.",
                _BRANCH,
            )
        pair = f"{shell(link.source)} follows {shell(before.source)}"
        if link.workflow != before.workflow:
            yield Conflict(f"{pair}, which is of another workflow.", _LOOK)
        if 0 != link.iteration < before.iteration:
            yield Conflict(
                f"{pair}, and counts {link.iteration} steps after {before.iteration}.", _LOOK
            )


def _shown(links: Sequence[Link]) -> str:
    names = [shell(link.source) for link in links]
    if len(names) > _SHOWN:
        names[_SHOWN:] = [f"{len(names) - _SHOWN} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
