"""The one way in for states that carry no seal. It is explicit, and it leaves a report.

No path of a ledger loads an unsigned record. To move to sealed checkpoints, you read the old ones
here once, as data, decide that you vouch for them, and seal them.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    DecodeError,
    LimitExceeded,
    NotFound,
    StorageUnavailable,
    shell,
)
from safepoint.ids import check_name
from safepoint.ledger import Ledger
from safepoint.limits import DEFAULT_LIMITS, Limits

# No link is followed, and a pipe is refused instead of waited for.
_PLAIN: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


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


def json_files(
    folder: str | os.PathLike[str], *, app: str = "", limits: Limits = DEFAULT_LIMITS
) -> Iterator[Unsigned]:
    """Read the `.json` files of a folder, as data. A file's name, without its end, is the thread.

    Raises:
        DecodeError: a file is not JSON, has a key twice, or a number that JSON does not have.
        LimitExceeded: a file has more bytes or values than the limits, or is nested too deep.
        StorageUnavailable: the folder or a file cannot be read, or is not a regular file.
    """
    try:
        names = sorted(file.name for file in Path(folder).iterdir() if file.suffix == ".json")
    except OSError as error:
        raise _unreadable(folder, error.strerror) from error
    for name in names:
        file = Path(folder, name)
        text = _read(file, limits.state_bytes + 1)
        state = _parse(text, shell(str(file)), limits)
        digest = hashlib.sha256(text).hexdigest()
        yield Unsigned(file.stem, state, name, f"sha256:{digest}", app)


def migrate(
    states: Iterable[Unsigned],
    ledger: Ledger,
    *,
    report: str | os.PathLike[str],
    allow_unsigned_migration: bool = False,
) -> int:
    """Seal states that carry no seal as new threads, in one pass, and write down each.

    A thread that exists is not added to: a migration cannot reach into a run that goes on. A state
    that an interrupted migration sealed already is recognised and passed over, so run it again.

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
        ConfigurationError: you did not say that you vouch for them, or one is not `Unsigned`.
        Conflict: a thread exists, and not because of this migration.
        StorageUnavailable: the report cannot be written. What it does not name is not sealed.
        CheckpointError: a state cannot be sealed. Those before it are.
    """
    if allow_unsigned_migration is not True:
        raise ConfigurationError(
            "These states carry no seal, so whoever could write them decides what they say.",
            "Look at them first. If you vouch for them, pass allow_unsigned_migration=True.",
        )
    positions: dict[str, int] = {}
    sealed = 0
    with _Report(report) as lines:
        for unsigned in states:
            if not isinstance(unsigned, Unsigned):
                raise ConfigurationError(
                    f"A migration takes Unsigned states, and was given {type(unsigned).__name__}.",
                    "Write Unsigned(thread, state), or read a folder with json_files(path).",
                )
            thread = check_name("thread", unsigned.thread)
            sequence = positions[thread] = positions.get(thread, 0) + 1
            entry = {
                "outcome": "begun",
                "source": unsigned.source,
                "source_digest": unsigned.digest,
                "store": ledger.store,
                "thread": thread,
                "sequence": sequence,
            }
            lines.add(entry)
            lines.sync()
            outcome, digest = _seal(unsigned, ledger, sequence)
            sealed += outcome == "sealed"
            lines.add({**entry, "outcome": outcome, "digest": digest})
        lines.sync()
    return sealed


class _Report:
    """The file that says what a migration did."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError(
                f"A report was asked for at {type(path).__name__}, which is not a path.",
                'Write report="migration.jsonl".',
            )
        self._path = os.fspath(path)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _PLAIN
            self._descriptor = os.open(path, flags, 0o600)
        except (OSError, ValueError) as error:
            raise self._refusal(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def add(self, entry: dict[str, Any]) -> None:
        text = memoryview(json.dumps(entry).encode() + b"\n")
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError as error:
            raise self._refusal(error) from error

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError | ValueError) -> StorageUnavailable:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        return StorageUnavailable(
            f"The report {shell(str(self._path))} cannot be written ({reason}).",
            "Nothing more was sealed. Name a file in a folder that this user can write.",
        )


def _seal(unsigned: Unsigned, ledger: Ledger, sequence: int) -> tuple[str, str]:
    thread = unsigned.thread
    try:
        there = ledger.load(thread, sequence)
    except NotFound:
        saved = ledger.save(thread, unsigned.state, app=unsigned.app, after=sequence - 1)
        return "sealed", saved.digest
    # As bytes: in Python 1, 1.0 and True are equal.
    encode = ledger.codec.encode
    if encode(there.state) != encode(unsigned.state) or there.app != unsigned.app:
        raise Conflict(
            f"{thread} exists in store {ledger.store}, with another state at #{sequence}.",
            "Nothing was overwritten. A migration only makes new threads: choose another name.",
        )
    return "there already", there.digest


def _read(file: Path, most: int) -> bytes:
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
        "Name a folder of .json files that this user can read. Links are not followed.",
    )


def _parse(text: bytes, shown: str, limits: Limits) -> Any:
    if len(text) > limits.state_bytes:
        raise LimitExceeded(
            f"{shown} is over the limit of {limits.state_bytes} bytes.",
            "Look what it is before you raise Limits.state_bytes.",
        )
    # Before a parser builds them. Those in a text count too, and few texts have as many.
    if text.count(b",") + text.count(b"[") + text.count(b"{") > limits.items:
        raise LimitExceeded(
            f"{shown} has more than {limits.items} values.",
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
