"""From a folder of pickled checkpoints to a ledger: read as data, looked at first, sealed once.

A file is a pickle, whatever its name, and becomes a thread with one checkpoint; or it is a
checkpoint of Microsoft Agent Framework, JSON with pickles in base64. Those become a thread for each
run, in the order in which they name one another. Nothing in them is unpickled.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

from safepoint.errors import (
    CheckpointError,
    CodecError,
    ConfigurationError,
    Conflict,
    InvalidId,
    LimitExceeded,
    NotFound,
    PickleRefused,
    StorageUnavailable,
    quoted,
    shell,
)
from safepoint.ledger import Ledger
from safepoint.migrate import (
    SEALED,
    THERE_ALREADY,
    Link,
    Report,
    Sealer,
    Unsigned,
    begun_by,
    chains,
    check_new,
    check_vouched,
    found,
    read_file,
    strict_json,
    unreadable,
)
from safepoint.models.limits import DEFAULT_PICKLE_LIMITS, PickleLimits
from safepoint.models.look import PICKLED, Kind, identify, step, unbased
from safepoint.models.machine import Functions, Refused, run
from safepoint.models.opcodes import scan
from safepoint.models.plain import FRAMEWORK, Message, Types, functions_for
from safepoint.names import check_name

REFUSED: Final = "refused"
_TYPE: Final = "__type__"
_VERSION: Final = "1.0"  # of the framework's checkpoints
_EVENTS: Final = "agent_framework._workflows._events"  # where a request that waits has its class
_DICTS: Final = ("collections:OrderedDict", "collections:defaultdict")
_NOT_SEALED: Final = "Nothing of it was sealed. Look who wrote it."
_MOVE: Final = "Nothing of it was sealed. Move it to another folder if it does not belong here."
_YOURS: Final = (
    "If that is a dataclass, an Enum or a pydantic model of yours, pass it as a type. Anything else"
    " is not migrated: look what it does with safepoint scan --decompile."
)
_WAITING: Final = (
    "It is a request that waits for an answer, and holds classes, which are no data. Let the run"
    " finish first; then copy its last checkpoint to a folder of its own, and migrate that with"
    " allow_missing_past."
)
# What is wrong with a file or with its thread. Anything else is wrong with the ledger.
_OF_THE_FILE: Final = (CodecError, LimitExceeded, InvalidId, Conflict, NotFound)


class Outcome(NamedTuple):
    """What became of a file, or would.

    Attributes:
        source: its name.
        outcome: `"sealed"`, `"there already"` or `"refused"`.
        thread: the thread that it is part of, empty if it could not be told.
        sequence: its place there, 0 if it has none.
        reason: why it was refused, and what to do.
        source_digest: the sha256 of its bytes, empty if they could not be read.
    """

    source: str
    outcome: str
    thread: str = ""
    sequence: int = 0
    reason: str = ""
    source_digest: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a migration did, or would do.

    Attributes:
        outcomes: one for each file.
        dry_run: whether nothing was written.
    """

    outcomes: tuple[Outcome, ...]
    dry_run: bool = False

    @property
    def sealed(self) -> int:
        """How many were sealed, or would be."""
        return self._count(SEALED)

    @property
    def there_already(self) -> int:
        """How many an earlier run had sealed."""
        return self._count(THERE_ALREADY)

    @property
    def refused(self) -> int:
        """How many were refused."""
        return self._count(REFUSED)

    def _count(self, outcome: str) -> int:
        return sum(each.outcome == outcome for each in self.outcomes)


def migrate_pickles(
    folder: str | os.PathLike[str],
    ledger: Ledger,
    *,
    report: str | os.PathLike[str],
    types: Types = (),
    thread: Callable[[str], str] | None = None,
    app: str = "",
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
    allow_unsigned_migration: bool = False,
    allow_missing_past: bool = False,
) -> Summary:
    r"""Seal the pickled checkpoints of a folder as new threads. The files stay as they are.

    Nothing in them is unpickled. A file that is refused does not stop the others; of a thread, all
    is sealed or nothing. After an interrupt, run it again with the same report: what was sealed is
    recognised.

    ```python
    import pickle
    from pathlib import Path

    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.models import migrate_pickles

    Path("old").mkdir()
    Path("old/order-7.pkl").write_bytes(pickle.dumps({"amount": 42}))
    Path("old/order-8.pkl").write_bytes(b"cos\nsystem\n(S'id'\ntR.")

    keys = Keyring(SigningKey.generate())
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
    summary = migrate_pickles("old", ledger, report="moved.jsonl", dry_run=True)
    for each in summary.outcomes:
        print(each.source, each.outcome)
        #> order-7.pkl sealed
        #> order-8.pkl refused
    print(summary.outcomes[1].reason.partition(",")[0])
    #> It wants os.system (byte 0)
    print(ledger.threads(), Path("moved.jsonl").exists())
    #> [] False
    ```

    Args:
        folder: where they are.
        ledger: where to. Its codec has to know the same types.
        report: a file of JSON lines that this adds to: one before each state is sealed, on disk,
            one after it, and one for each file that is refused.
        types: the dataclasses, Enums, Flags and pydantic models of yours that may occur in them.
            Give a mapping for those that had another name: `{"old.module.Invoice": Invoice}`.
        thread: makes a thread's name of a pickle's name without its end, or of the id of the first
            checkpoint of a run. Left out, they are the same.
        app: what wrote them, as it should stand in the checkpoints.
        limits: for each file, and for each pickle.
        dry_run: write nothing, and say what would happen.
        progress: called with how much is done, and how much there is.
        allow_unsigned_migration: that you vouch for these states. There is no default yes, and a
            dry run needs none.
        allow_missing_past: take a checkpoint for the first if the one that it follows is gone.

    Returns:
        What became of each file.

    Raises:
        ConfigurationError: you did not say that you vouch for them, or an argument is of the wrong
            kind, or the report is in the folder or is a file of another kind.
        StorageUnavailable: the folder cannot be read, or the report cannot be written. What the
            report does not name is not sealed.
        CheckpointError: the ledger refuses. What was sealed before is in the report.
    """
    if dry_run is not True:
        check_vouched(allow_unsigned_migration)
    reader = _Folder(Path(folder), types, thread, limits, allow_missing_past)
    _check_elsewhere(report, folder)
    tell = progress or (lambda _, __: None)
    done = []
    if dry_run is True:
        done = list(_outcomes(reader, ledger, app, _outlook(ledger, begun_by(report)), tell))
    else:
        with Report(report) as lines:
            for each in _outcomes(reader, ledger, app, Sealer(ledger, lines).seal, tell):
                done.append(each)
                if each.outcome == REFUSED:
                    lines.add({"store": ledger.store, **each._asdict()})
            lines.sync()
    return Summary(tuple(sorted(done, key=lambda each: each.source)), dry_run is True)


def _check_elsewhere(report: object, folder: str | os.PathLike[str]) -> None:
    """Refuse a report among the files that it is about."""
    if not isinstance(report, (str, os.PathLike)):
        return  # whoever opens it says so
    try:
        named, linked = Path(report).parent.resolve(), Path(report).resolve()
        places = [named, *named.parents, *linked.parents]
        is_inside = any(place.exists() and place.samefile(folder) for place in places)
    except (OSError, ValueError, RuntimeError):
        return  # whoever opens them says so
    if is_inside:
        raise ConfigurationError(
            f"The report {shell(os.fspath(report))} would be in the folder that is migrated.",
            "Nothing was sealed. Name a file elsewhere: the originals stay as they are.",
        )


def _outlook(ledger: Ledger, begun: set[tuple[str, str]]) -> Callable[[Unsigned], str]:
    """Return what tells what a `Sealer` would do, and does nothing."""
    positions: dict[str, int] = {}

    def seal(unsigned: Unsigned) -> str:
        thread = unsigned.thread
        sequence = positions[thread] = positions.get(thread, 0) + 1
        if (ledger.store, thread) in begun:
            return SEALED if found(unsigned, ledger, sequence) is None else THERE_ALREADY
        if sequence == 1:
            check_new(ledger, thread)
        return SEALED

    return seal


def _outcomes(
    reader: _Folder,
    ledger: Ledger,
    app: str,
    seal: Callable[[Unsigned], str],
    progress: Callable[[int, int], None],
) -> Iterator[Outcome]:
    """Seal what a folder holds, thread after thread, and return what became of each file."""
    reader.survey(progress)
    done, total = reader.files, 2 * reader.files
    for source, error in reader.refused.items():
        done += 1
        yield Outcome(source, REFUSED, "", 0, str(error), reader.digests.get(source, ""))
    for name, files in sorted(reader.threads.items()):
        refusals: dict[str, str] = {}
        for stored in files:  # before the first one of it is sealed
            try:
                ledger.codec.encode(reader.read(stored))
            except CheckpointError as error:
                refusals[stored.source] = str(error)
        for sequence, stored in enumerate(files, 1):
            outcome, reason, digest = REFUSED, "", reader.digests[stored.source]
            if not refusals:
                try:
                    outcome = seal(Unsigned(name, reader.read(stored), stored.source, digest, app))
                except _OF_THE_FILE as error:
                    refusals = {stored.source: str(error)}
            if refusals:
                reason = refusals.get(stored.source) or (
                    f"It is of one thread with {shell(next(iter(refusals)))}, which is refused."
                    " Nothing of it was sealed. Mend that one first."
                )
            done += 1
            progress(done, total)
            place = 0 if refusals else sequence
            yield Outcome(stored.source, outcome, name, place, reason, digest)


class _Stored(NamedTuple):
    """A file with a checkpoint, and what it says about its place: a pickle says nothing."""

    source: str
    link: Link | None


class _Folder:
    """The files of a folder, read as data. They are opened for reading alone, links not followed.

    Attributes:
        files: how many there are.
        threads: which of them become a thread, in order.
        refused: why the others become nothing.
        digests: the sha256 of each that could be read.
    """

    def __init__(
        self,
        folder: Path,
        types: Types,
        thread: Callable[[str], str] | None,
        limits: PickleLimits,
        without_past: bool,
    ) -> None:
        self._folder = folder
        self._thread = thread
        self._limits = limits
        self._without_past = without_past
        types = types if isinstance(types, Mapping) else list(types)
        functions_for(types)  # which says what is wrong with them
        if not isinstance(types, Mapping):
            types = {f"{cls.__module__}.{cls.__qualname__}": cls for cls in types}
        self._types: Mapping[str, type] = {**FRAMEWORK, **types}
        self._functions: Functions = functions_for(self._types)
        self.files = 0
        self.threads: dict[str, tuple[_Stored, ...]] = {}
        self.refused: dict[str, CheckpointError] = {}
        self.digests: dict[str, str] = {}

    def survey(self, progress: Callable[[int, int], None]) -> None:
        """Read each file once, and tell which of them make a thread.

        Raises:
            StorageUnavailable: the folder cannot be read.
        """
        try:
            with os.scandir(self._folder) as entries:
                names = sorted((each.name, each.is_dir(follow_symlinks=False)) for each in entries)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not a path"
            raise unreadable(self._folder, reason) from None
        self.files = len(names)
        looked: list[_Stored] = []
        for number, (name, is_folder) in enumerate(names, 1):
            try:
                looked.append(self._looked_at(name, is_folder))
            except CheckpointError as error:
                self.refused[name] = error
            progress(number, 2 * self.files)
        self._arrange(looked)

    def read(self, stored: _Stored) -> Any:
        """Return the state in a file.

        Raises:
            PickleRefused: it is more than data. The message says what, and where.
            LimitExceeded: it is too large.
            Conflict: it is not what it was when the folder was surveyed.
        """
        try:
            data = self._content(stored.source)
        except StorageUnavailable as error:
            raise Conflict(error.what, error.do) from None  # of the file, and not of the ledger
        if _digest(data) != self.digests[stored.source]:
            raise Conflict(
                "It changed while it was migrated.",
                "Stop whatever writes it, and run the migration again.",
            )
        if stored.link is None:
            return self._unpickled(data, "")
        return _as_data(self._revived(self._parsed(data), "", 0))

    def _content(self, name: str) -> bytes:
        data = read_file(self._folder / name, self._limits.data_bytes + 1)
        if len(data) > self._limits.data_bytes:
            raise LimitExceeded(
                f"It is over the limit of {self._limits.data_bytes} bytes.",
                "Look what it is before you raise PickleLimits.data_bytes.",
            )
        return data

    def _parsed(self, data: bytes) -> Any:
        return strict_json(data, "It", self._limits.data_bytes, self._limits.nodes)

    def _looked_at(self, name: str, is_folder: bool) -> _Stored:
        if is_folder:
            raise ConfigurationError(
                "It is a folder, and this reads the files of one folder.",
                "Migrate each folder by itself, or move it elsewhere.",
            )
        data = self._content(name)
        self.digests[name] = _digest(data)
        kind = identify(data, limits=self._limits)
        if kind is Kind.PICKLE:
            return _Stored(name, None)
        if kind is Kind.JSON:
            return _Stored(name, _link(name, self._parsed(data)))
        raise PickleRefused(f"It is {kind.sentence}, and no pickled checkpoint.", _MOVE)

    def _arrange(self, looked: list[_Stored]) -> None:
        linked = {stored.source: stored for stored in looked if stored.link is not None}
        groups: list[tuple[str, tuple[_Stored, ...]]] = [
            (Path(each.source).stem, (each,)) for each in looked if each.link is None
        ]
        links = [stored.link for stored in linked.values() if stored.link is not None]
        for chain in chains(links, allow_missing_past=self._without_past):
            files = tuple(linked[link.source] for link in chain.links)
            if chain.refusal is not None:
                self.refused.update((stored.source, chain.refusal) for stored in files)
            else:
                groups.append((chain.links[0].identity, files))
        threads: dict[str, list[tuple[_Stored, ...]]] = {}
        for name, files in groups:
            try:
                threads.setdefault(self._named(name), []).append(files)
            except InvalidId as error:
                self.refused.update((stored.source, error) for stored in files)
        for name, several in threads.items():
            if len(several) == 1:
                self.threads[name] = several[0]
                continue
            first = " and ".join(shell(files[0].source) for files in several[:2])
            clash = Conflict(f"{first} would both become {name}.", "Give each its own name.")
            self.refused.update((each.source, clash) for files in several for each in files)

    def _named(self, name: str) -> str:
        try:
            return check_name("thread", self._thread(name) if self._thread else name)
        except InvalidId as error:
            raise InvalidId(
                f"It would become a thread, and {error.what}",
                f"{error.do} Map old names to new ones: thread=function.",
            ) from None

    def _unpickled(self, data: bytes, where: str) -> Any:
        """Return the state that a pickle holds; a refusal says where it comes from."""
        try:
            return run(data, functions=self._functions, limits=self._limits)
        except CodecError as error:
            problem = self._explained(error, data, where)
        raise problem

    def _explained(self, error: CodecError, data: bytes, where: str) -> PickleRefused:
        missing = [
            (asked, self._functions.get((asked.module, asked.name)))
            for asked in scan(data, limits=self._limits).asked
            if isinstance(self._functions.get((asked.module, asked.name)), Refused | None)
        ]
        if not missing:
            return PickleRefused(f"{where}: {error.what}".lstrip(": "), error.do)
        wanted = " and ".join(f"{asked} (byte {asked.position})" for asked, _ in missing[:3])
        hint = missing[0][1]
        do = hint.do if isinstance(hint, Refused) else _YOURS
        if any(asked.module == _EVENTS for asked, _ in missing):
            do = _WAITING
        return PickleRefused(f"{where or 'It'} wants {wanted}, which may not be built.", do)

    def _revived(self, value: Any, where: str, depth: int) -> Any:
        """Return what JSON of Agent Framework stands for, with each pickle in it read."""
        if depth > self._limits.depth:
            raise LimitExceeded(
                f"It is nested deeper than {self._limits.depth} levels.",
                "Look what it is before you raise PickleLimits.depth.",
            )
        if isinstance(value, list):
            return [
                self._revived(each, f"{where}[{number}]", depth + 1)
                for number, each in enumerate(value)
            ]
        if not isinstance(value, dict):
            return value
        if PICKLED not in value and _TYPE not in value:
            return {
                key: self._revived(each, step(where, key), depth + 1) for key, each in value.items()
            }
        pickled, named = value.get(PICKLED), value.get(_TYPE)
        if len(value) != 2 or not isinstance(pickled, str) or not isinstance(named, str):
            raise PickleRefused(
                f"{where} is marked as a pickle, and is not written like one.", _NOT_SEALED
            )
        data = unbased(pickled, strict=True)
        if data is None:
            raise PickleRefused(f"{where} is marked as a pickle, and is no base64.", _NOT_SEALED)
        state = self._unpickled(data, where)
        if not self._is_of(state, named):
            raise PickleRefused(
                f"{where} is marked as {quoted(named)}, and is a {type(state).__name__}.",
                _NOT_SEALED,
            )
        return state

    def _is_of(self, state: Any, named: str) -> bool:
        """Tell whether a state is of the type that its file names."""
        cls = type(state)
        module, _, name = named.rpartition(":")
        if f"{cls.__module__}:{cls.__qualname__}" == named or (cls is dict and named in _DICTS):
            return True
        if isinstance(state, PurePath):  # Python 3.13 has them in another module
            return module in ("pathlib", "pathlib._local") and name == cls.__name__
        return self._types.get(f"{module}.{name}") is cls


def _as_data(value: Any) -> Any:
    """Return a value with each message in it as a dict, as the class's own `to_dict` returns it."""
    if type(value) is Message:
        shown = {each.name: _as_data(getattr(value, each.name)) for each in fields(value)}
        return {**shown, "type": value.type.value}
    if type(value) is dict:
        return {key: _as_data(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_as_data(inner) for inner in value)
    return value


def _link(name: str, value: Any) -> Link:
    """Return what a checkpoint of the framework says about its place.

    Raises:
        PickleRefused: it is none, or is not the one that its name says.
    """
    said = value if isinstance(value, dict) else {}
    identity, previous = said.get("checkpoint_id"), said.get("previous_checkpoint_id")
    iteration, workflow = said.get("iteration_count"), said.get("workflow_name")
    if not (
        isinstance(identity, str)
        and isinstance(workflow, str)
        and type(iteration) is int
        and iteration >= 0
        and (previous is None or (isinstance(previous, str) and previous))
        and isinstance(said.get("state"), dict)
    ):
        raise PickleRefused(
            "It is JSON, and no checkpoint of Agent Framework.",
            "Nothing of it was sealed. Read it with safepoint.migrate.json_files, or move it"
            " to another folder.",
        )
    if name != f"{identity}.json":
        raise PickleRefused(
            f"It says that it is the checkpoint {quoted(identity)}, and its name says otherwise.",
            _NOT_SEALED,
        )
    if said.get("version") != _VERSION:
        raise PickleRefused(
            f"It is a checkpoint of version {quoted(said.get('version'))}, and"
            f" {_VERSION} is known here.",
            _NOT_SEALED,
        )
    return Link(name, identity, previous, iteration, workflow)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
