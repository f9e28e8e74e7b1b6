"""The one way in for states that carry no seal. It is explicit, and it leaves a report.

No path of a ledger loads an unsigned record. To move to sealed checkpoints, you read the old ones
here once, as data, decide that you vouch for them, and seal them.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from safepoint.core.errors import (
    CheckpointError,
    CodecError,
    ConfigurationError,
    Conflict,
    DecodeError,
    InvalidId,
    LimitExceeded,
    NotFound,
    ResumeRefused,
    StorageUnavailable,
    ThreadDeleted,
    shell,
)
from safepoint.core.files import write_all
from safepoint.core.ledger import Ledger
from safepoint.core.names import DEFAULT_LIMITS, Limits, check_name, digest_of

SEALED: Final = "sealed"
THERE_ALREADY: Final = "there already"
REFUSED: Final = "refused"
# What is wrong with a file or with its thread. Anything else is wrong with the ledger.
OF_THE_SOURCE: Final = (CodecError, LimitExceeded, InvalidId, Conflict, NotFound)
_PLAIN: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_OPENINGS: Final = (b'{"outcome": "begun", "', b'{"outcome": "refused", "')


@dataclass(frozen=True, slots=True)
class Unsigned:
    """A state that nobody has signed, and where it came from.

    Attributes:
        thread: the thread that it becomes part of.
        state: the state, already decoded, by you.
        source: what the report calls it: a file's name.
        digest: the sha256 of the bytes that it was read from.
        app: what wrote it, as it should stand in the checkpoint.
        tools: the digest of its tool set, the same.
        label: what the checkpoint can be found by.
    """

    thread: str
    state: Any = field(repr=False)
    source: str = ""
    digest: str = ""
    app: str = ""
    tools: str | None = None
    label: str = ""


class Moved(NamedTuple):
    """What became of a file, or of a thread of another store, or would.

    Attributes:
        source: its name there.
        outcome: `"sealed"`, `"there already"` or `"refused"`.
        thread: the thread that it is, or is part of; empty if it is refused.
        sequence: its place there, or its last one.
        reason: why it was refused, and what to do.
    """

    source: str
    outcome: str
    thread: str = ""
    sequence: int = 0
    reason: str = ""


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
    for file in listed(folder):
        shown = shell(str(file))
        if file.is_dir():
            raise ConfigurationError(
                f"{shown} is a folder, and json_files reads files alone.",
                "Nothing was read. Read each folder by itself, and give its states the thread that"
                " they belong to; or move it elsewhere.",
            )
        if file.suffix.lower() != ".json":
            continue
        name = _thread(thread(file.stem) if thread else file.stem, str(file))
        if name in threads:
            raise Conflict(
                f"{shell(str(threads[name]))} and {shown} would both become {name}.",
                "Nothing was read. Give each a name of its own.",
            )
        threads[name] = file
    for name, file in threads.items():
        text = read_file(file, limits.state_bytes + 1)
        state = strict_json(text, shell(str(file)), limits.state_bytes, limits.items)
        yield Unsigned(name, state, file.name, digest_of(text), app)


def _thread(thread: object, source: str) -> str:
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


def listed(folder: str | os.PathLike[str]) -> list[Path]:
    """Return what is in a folder, in the order of the names.

    Raises:
        StorageUnavailable: it cannot be read.
    """
    try:
        return sorted(Path(folder).iterdir())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise _unreadable(folder, reason) from None


def read_file(file: Path, most: int) -> bytes:
    """Return the first bytes of a regular file. No link is followed, and no pipe waited for.

    Raises:
        StorageUnavailable: it cannot be read, or is something else.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | _PLAIN)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _unreadable(file, "not a regular file")
            return opened.read(most)
    except OSError as error:
        raise _unreadable(file, error.strerror) from error


def _unreadable(path: str | os.PathLike[str], reason: str | None) -> StorageUnavailable:
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
            "Find out what it is before you raise Limits.state_bytes.",
        )
    # Before a parser builds them. Those in a text count too, and few texts have as many.
    if text.count(b",") + text.count(b"[") + text.count(b"{") > items:
        raise LimitExceeded(
            f"{shown} has more than {items} values.",
            "Find out what it is before you raise Limits.items.",
        )
    problem: CheckpointError  # raised below: the error of the parser carries the text along
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError:
        problem = LimitExceeded(f"{shown} is nested too deep.", "Find out who wrote it.")
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
    with Sealer(ledger, report) as sealer:
        return sum(sealer.seal(unsigned) == SEALED for unsigned in states)


def half_moved(thread: str) -> ResumeRefused:
    """Return what an adapter raises for a thread of which some states are to come."""
    return ResumeRefused(
        f"{thread} was not moved in to its end.", "Run the migration again, with the same report."
    )


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
        report: a file of JSON lines that only its owner can read. This adds to it.
        dry_run: say what would happen, and write nothing.

    Raises:
        ConfigurationError: the report is a file of another kind.
        StorageUnavailable: it cannot be written.
    """

    def __init__(
        self, ledger: Ledger, report: str | os.PathLike[str], *, dry_run: bool = False
    ) -> None:
        self._ledger, self._path, self._dry = ledger, os.fspath(report), dry_run
        self._positions: dict[str, int] = {}
        self._begun: set[tuple[str, str]] = set()
        self._fd = -1
        if dry_run and not os.path.lexists(self._path):
            return
        flags = os.O_RDONLY if dry_run else os.O_RDWR | os.O_CREAT | os.O_APPEND
        with self._told():
            self._fd = os.open(self._path, flags | _PLAIN, 0o600)
            try:
                self._read_earlier()
            except BaseException:
                os.close(self._fd)
                raise

    def _read_earlier(self) -> None:
        """Find out which threads earlier runs with this report began."""
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with os.fdopen(os.dup(self._fd), "rb") as lines:
            # What no migration wrote may be one of the originals. A crash may cut a line short.
            head = lines.read(max(map(len, _OPENINGS)))
            begins = head.partition(b"\n")[0] or b"?"
            if head and not any(e.startswith(begins) or begins.startswith(e) for e in _OPENINGS):
                raise ConfigurationError(
                    f"{shell(self._path)} exists, and is no report of a migration.",
                    "Nothing was written to it. Name a new file as the report, or that of an"
                    " earlier run.",
                )
            lines.seek(0)
            line = b"\n"
            for line in lines:
                with suppress(ValueError, TypeError, KeyError, RecursionError):
                    entry = json.loads(line)
                    if entry["outcome"] == "begun":
                        self._begun.add((str(entry["store"]), str(entry["thread"])))
        if not self._dry and not line.endswith(b"\n"):
            write_all(self._fd, b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._fd < 0:
            return
        try:
            with self._told():
                if kind is None and not self._dry:
                    os.fsync(self._fd)
        finally:
            os.close(self._fd)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageUnavailable(
                f"The report {shell(self._path)} cannot be written ({error.strerror}).",
                "Nothing more was sealed. Name a file in a folder that this user can write.",
            ) from error

    def add(self, entry: dict[str, Any], *, sync: bool = False) -> None:
        """Write one line of the report, which begins with its outcome."""
        if self._dry:
            return
        with self._told():
            write_all(self._fd, json.dumps({"outcome": "", **entry}).encode() + b"\n")
            if sync:
                os.fsync(self._fd)

    def refuse(self, source: str, error: CheckpointError) -> Moved:
        """Write down that something is not sealed, and why."""
        moved = Moved(source, REFUSED, reason=str(error))
        self.add({"store": self._ledger.store, **moved._asdict()})
        return moved

    def seal(self, unsigned: Unsigned) -> str:
        """Seal one as the next of its thread.

        Returns:
            `SEALED`, or `THERE_ALREADY` if an interrupted migration had done it.

        Raises:
            Conflict: the thread exists, and not because of this migration.
            StorageUnavailable: the report cannot be written. What it does not name is not sealed.
            CheckpointError: the state cannot be sealed.
        """
        ledger = self._ledger
        thread = _thread(unsigned.thread, unsigned.source)
        sequence = self._positions[thread] = self._positions.get(thread, 0) + 1
        entry = {
            "outcome": "begun",
            "source": unsigned.source,
            "source_digest": unsigned.digest,
            "store": ledger.store,
            "thread": thread,
            "sequence": sequence,
        }
        if sequence == 1 and (ledger.store, thread) not in self._begun:
            self._check_new(thread)
        self.add(entry, sync=True)
        digest = self._found(unsigned, sequence)
        if digest is not None:
            self.add({**entry, "outcome": THERE_ALREADY, "digest": digest})
            return THERE_ALREADY
        if not self._dry:
            detail = f"unsigned state {unsigned.digest} as #{sequence}"
            ledger.notes.write("migrate", "intended", thread, detail=detail)
            saved = ledger.save(
                thread,
                unsigned.state,
                app=unsigned.app,
                tools=unsigned.tools,
                label=unsigned.label,
                after=sequence - 1,
            )
            self.add({**entry, "outcome": SEALED, "digest": saved.digest})
        return SEALED

    def _check_new(self, thread: str) -> None:
        try:
            self._ledger.latest(thread)
        except ThreadDeleted:
            raise
        except NotFound:
            return
        raise Conflict(
            f"{thread} exists in store {self._ledger.store}, and this report did not begin it.",
            "Nothing was overwritten. A migration only makes new threads: choose another name. To"
            " finish one that was interrupted, name its report.",
        )

    def _found(self, unsigned: Unsigned, sequence: int) -> str | None:
        """Return the digest of the checkpoint that holds this very state there, if one does."""
        ledger = self._ledger
        try:
            there = ledger.load(unsigned.thread, sequence)
        except ThreadDeleted:
            raise
        except NotFound:
            return None
        # As bytes: in Python 1, 1.0 and True are equal.
        encode = ledger.codec.encode
        same = (there.app, there.label) == (unsigned.app, unsigned.label)
        if not same or encode(there.state) != encode(unsigned.state):
            raise Conflict(
                f"{unsigned.thread} exists in store {ledger.store}, with another state at"
                f" #{sequence}.",
                "Nothing was overwritten. A migration only makes new threads: choose another name.",
            )
        return there.digest
