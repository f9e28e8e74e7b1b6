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
    done = []
    if dry_run is True:
        done = list(_outcomes(reader, ledger, app, _outlook(ledger, begun_by(report))))
    else:
        with Report(report) as lines:
            for each in _outcomes(reader, ledger, app, Sealer(ledger, lines).seal):
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
    reader: _Folder, ledger: Ledger, app: str, seal: Callable[[Unsigned], str]
) -> Iterator[Outcome]:
    """Seal what a folder holds, thread after thread, and return what became of each file."""
    reader.survey()
    for source, error in reader.refused.items():
        yield Outcome(source, REFUSED, "", 0, str(error), reader.digests.get(source, ""))
    for name, sources in sorted(reader.threads.items()):
        refusals: dict[str, str] = {}
        for source in sources:  # before the first one of it is sealed
            try:
                ledger.codec.encode(reader.read(source))
            except CheckpointError as error:
                refusals[source] = str(error)
        for sequence, source in enumerate(sources, 1):
            outcome, reason, digest = REFUSED, "", reader.digests[source]
            if not refusals:
                try:
                    outcome = seal(Unsigned(name, reader.read(source), source, digest, app))
                except _OF_THE_FILE as error:
                    refusals = {source: str(error)}
            if refusals:
                reason = refusals.get(source) or (
                    f"It is of one thread with {shell(next(iter(refusals)))}, which is refused."
                    " Nothing of it was sealed. Mend that one first."
                )
            yield Outcome(source, outcome, name, 0 if refusals else sequence, reason, digest)


class _Folder:
    """The files of a folder, read as data. They are opened for reading alone, links not followed.

    Attributes:
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
        self._links: dict[str, Link] = {}  # of those that say what they follow; a pickle does not
        self.threads: dict[str, list[str]] = {}
        self.refused: dict[str, CheckpointError] = {}
        self.digests: dict[str, str] = {}

    def survey(self) -> None:
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
        groups: list[tuple[str, list[str]]] = []
        for source, is_folder in names:
            try:
                self._look_at(source, is_folder)
            except CheckpointError as error:
                self.refused[source] = error
            else:
                if source not in self._links:
                    groups.append((Path(source).stem, [source]))
        for chain in chains(list(self._links.values()), allow_missing_past=self._without_past):
            sources = [link.source for link in chain.links]
            if chain.refusal is None:
                groups.append((chain.links[0].identity, sources))
            else:
                self.refused.update(dict.fromkeys(sources, chain.refusal))
        threads: dict[str, list[list[str]]] = {}
        for name, sources in groups:
            try:
                threads.setdefault(self._named(name), []).append(sources)
            except InvalidId as error:
                self.refused.update(dict.fromkeys(sources, error))
        for name, several in threads.items():
            if len(several) == 1:
                self.threads[name] = several[0]
                continue
            both = " and ".join(shell(sources[0]) for sources in several[:2])
            clash = Conflict(f"{both} would both become {name}.", "Give each its own name.")
            self.refused.update((each, clash) for sources in several for each in sources)

    def read(self, source: str) -> Any:
        """Return the state in a file.

        Raises:
            PickleRefused: it is more than data. The message says what, and where.
            LimitExceeded: it is too large.
            Conflict: it is not what it was when the folder was surveyed.
        """
        try:
            data = self._content(source)
        except StorageUnavailable as error:
            raise Conflict(error.what, error.do) from None  # of the file, and not of the ledger
        if _digest(data) != self.digests[source]:
            raise Conflict(
                "It changed while it was migrated.",
                "Stop whatever writes it, and run the migration again.",
            )
        if source not in self._links:
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

    def _look_at(self, source: str, is_folder: bool) -> None:
        if is_folder:
            raise ConfigurationError(
                "It is a folder, and this reads the files of one folder.",
                "Migrate each folder by itself, or move it elsewhere.",
            )
        data = self._content(source)
        self.digests[source] = _digest(data)
        kind = identify(data, limits=self._limits)
        if kind is Kind.JSON:
            self._links[source] = _link(source, self._parsed(data))
        elif kind is not Kind.PICKLE:
            raise PickleRefused(f"It is {kind.sentence}, and no pickled checkpoint.", _MOVE)

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
