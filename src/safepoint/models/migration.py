"""From a folder of pickled checkpoints to a ledger: read as data, looked at first, sealed once.

A file is a pickle, whatever its name, and becomes a thread with one checkpoint; or it is a
checkpoint of Microsoft Agent Framework, JSON with pickles in base64. Those become a thread for each
run, in the order in which they name one another. Nothing in them is unpickled.
"""

from __future__ import annotations

import io
import os
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from safepoint.core.errors import (
    CheckpointError,
    CodecError,
    ConfigurationError,
    Conflict,
    LimitExceeded,
    PickleRefused,
    quoted,
    shell,
)
from safepoint.core.ledger import Ledger
from safepoint.core.names import check_name, digest_of
from safepoint.migrate import (
    OF_THE_SOURCE,
    Moved,
    Sealer,
    Unsigned,
    check_vouched,
    listed,
    read_file,
    strict_json,
)
from safepoint.models.limits import DEFAULT_PICKLE_LIMITS as LIMITS
from safepoint.models.look import PICKLED, Kind, identified, step, unbased
from safepoint.models.machine import Functions, Refused, run
from safepoint.models.opcodes import scan
from safepoint.models.plain import Types, framework_functions

_VERSION: Final = "1.0"  # of the framework's checkpoints
_NOT_SEALED: Final = "Nothing of it was sealed. Find out who wrote it."
_THREAD: Final = "Nothing of this thread was sealed. Find out who wrote these files."
_YOURS: Final = (
    "If that is a dataclass, an Enum or a pydantic model of yours, pass it as a type. Anything else"
    " is not migrated: look what it does with safepoint scan --decompile."
)


def migrate_pickles(
    folder: str | os.PathLike[str],
    ledger: Ledger,
    *,
    report: str | os.PathLike[str],
    types: Types = (),
    app: str = "",
    dry_run: bool = False,
    allow_unsigned_migration: bool = False,
    allow_missing_past: bool = False,
) -> list[Moved]:
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
    done = migrate_pickles("old", ledger, report="moved.jsonl", dry_run=True)
    for each in done:
        print(each.source, each.outcome)
        #> order-7.pkl sealed
        #> order-8.pkl refused
    print(done[1].reason.partition(",")[0])
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
        app: what wrote them, as it should stand in the checkpoints.
        dry_run: write nothing, and say what would happen.
        allow_unsigned_migration: that you vouch for these states. There is no default yes, and a
            dry run needs none.
        allow_missing_past: take a checkpoint for the first if the one that it follows is gone.

    Returns:
        What became of each file, by their names.

    Raises:
        ConfigurationError: you did not say that you vouch for them, or an argument is of the wrong
            kind, or the report is in the folder or is a file of another kind.
        StorageUnavailable: the folder cannot be read, or the report cannot be written. What the
            report does not name is not sealed.
        CheckpointError: the ledger refuses. What was sealed before is in the report.
    """
    if dry_run is not True:
        check_vouched(allow_unsigned_migration)
    files = Files(Path(folder), framework_functions(types))
    check_elsewhere(report, folder)
    done: list[Moved] = []
    with Sealer(ledger, report, dry_run=dry_run is True) as sealer:

        def refuse(sources: list[str], error: CheckpointError) -> None:
            done.extend(sealer.refuse(source, error) for source in sources)

        for name, sources, problem in files.threads(allow_missing_past):
            if problem is not None:
                refuse(sources, problem)
                continue
            try:
                states = [files.unsigned(name, source, app) for source in sources]
                for each in states:  # all of them, before the first one is sealed
                    ledger.codec.encode(each.state)
                for sequence, each in enumerate(states, 1):
                    done.append(Moved(each.source, sealer.seal(each), name, sequence))
            except OF_THE_SOURCE as error:
                refuse([each for each in sources if each not in {m.source for m in done}], error)
    return sorted(done)


def check_elsewhere(report: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Refuse a report in the folder that is read."""
    if Path(os.path.realpath(folder)) in Path(os.path.realpath(report)).parents:
        raise ConfigurationError(
            f"The report {shell(os.fspath(report))} would be in the folder that is migrated.",
            "Nothing was sealed. Name a file elsewhere: the originals stay as they are.",
        )


class Link(NamedTuple):
    """What a checkpoint of the framework says about its place, beside the file's name."""

    source: str
    identity: str
    previous: str | None
    iteration: int
    workflow: str
    timestamp: str


class Files:
    """The files of a folder, read as data. They are opened for reading alone, links not followed.

    Args:
        folder: where they are.
        functions: what may be built.
    """

    def __init__(self, folder: Path, functions: Functions) -> None:
        self._folder = folder
        self._functions = functions
        self._digests: dict[str, str] = {}
        self._json: set[str] = set()

    def threads(
        self, without_past: bool
    ) -> Iterator[tuple[str, list[str], CheckpointError | None]]:
        """Look at each file once. Yield the name and the files of each thread, or what is wrong.

        Raises:
            StorageUnavailable: the folder cannot be read.
        """
        pickles: dict[str, list[str]] = defaultdict(list)
        links: dict[str, Link] = {}  # by identity
        for path in listed(self._folder):
            try:
                link, name = self.look(path), check_name("thread", path.stem)
            except CheckpointError as error:
                yield "", [path.name], error
            else:
                if link is None:
                    pickles[name].append(path.name)
                else:
                    links[name] = link
        for name, sources in pickles.items():
            clash = None
            if len(sources) > 1 or name in links:
                clash = Conflict(
                    f"{shell(sources[0])} and another file would both become {name}.",
                    "Give each its own name.",
                )
            yield name, sources, clash
        for chain, problem in _chains(links, without_past):
            yield chain[0].identity, [link.source for link in chain], problem

    def look(self, path: Path) -> Link | None:
        """Return what a checkpoint of the framework says of its place, or None for a pickle.

        Raises:
            CheckpointError: it is something else, or cannot be read.
        """
        data = read_file(path, LIMITS.data_bytes + 1)
        self._digests[path.name] = digest_of(data)
        kind, _ = identified(io.BytesIO(data))
        if kind is Kind.JSON:
            self._json.add(path.name)
            return _link(path.name, strict_json(data, "It", LIMITS.data_bytes, LIMITS.nodes))
        if kind is not Kind.PICKLE:
            raise PickleRefused(
                f"It is {kind.sentence}, and no pickled checkpoint.",
                "Nothing of it was sealed. Move it to another folder if it does not belong here.",
            )
        return None

    def unsigned(self, thread: str, source: str, app: str) -> Unsigned:
        """Return the state in a file.

        Raises:
            PickleRefused: it is more than data. The message says what, and where.
            LimitExceeded: it is too large.
            Conflict: it is not what it was at the first look.
        """
        data = read_file(self._folder / source, LIMITS.data_bytes + 1)
        digest = digest_of(data)
        if digest != self._digests[source]:
            raise Conflict(
                f"{shell(source)} changed while it was migrated.",
                "Stop whatever writes it, and run the migration again.",
            )
        if source in self._json:
            value = strict_json(data, "It", LIMITS.data_bytes, LIMITS.nodes)
            try:
                state = self._revived(value, "", 0)
            except PickleRefused as error:  # the others of its run are refused for it, too
                raise PickleRefused(f"{shell(source)}: {error.what}", error.do) from None
        else:
            state = self._unpickled(data, "It")
        return Unsigned(thread, state, source, digest, app)

    def _unpickled(self, data: bytes, where: str) -> Any:
        try:
            return run(data, functions=self._functions)
        except CodecError as error:
            problem = PickleRefused(f"{where}: {error.what}", error.do)
        for asked in scan(data).asked:
            entry = self._functions.get((asked.module, asked.name))
            if entry is None or isinstance(entry, Refused):
                problem = PickleRefused(
                    f"{where} wants {asked} (byte {asked.position}), which may not be built.",
                    _YOURS if entry is None else entry.do,
                )
                break
        raise problem

    def _revived(self, value: Any, where: str, depth: int) -> Any:
        """Return what JSON of Agent Framework stands for, with each pickle in it read."""
        if depth > LIMITS.depth:
            raise LimitExceeded(f"It is nested deeper than {LIMITS.depth} levels.", _NOT_SEALED)
        if isinstance(value, list):
            return [
                self._revived(each, f"{where}[{number}]", depth + 1)
                for number, each in enumerate(value)
            ]
        if not isinstance(value, dict):
            return value
        if PICKLED not in value:
            return {
                key: self._revived(each, step(where, key), depth + 1) for key, each in value.items()
            }
        text = value[PICKLED]
        data = unbased(text, strict=True) if isinstance(text, str) else None
        if data is None or not value.keys() <= {PICKLED, "__type__"}:
            raise PickleRefused(
                f"{where} is marked as a pickle, and is not written like one.", _NOT_SEALED
            )
        return self._unpickled(data, where)


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
        and (previous is None or (isinstance(previous, str) and previous))
        and said.get("version") == _VERSION
    ):
        raise PickleRefused(
            f"It is JSON, and no checkpoint of Agent Framework in version {_VERSION}.",
            "Nothing of it was sealed. Read it with safepoint.migrate.json_files, or move it"
            " to another folder.",
        )
    if name != f"{identity}.json":
        raise PickleRefused(
            f"It says that it is the checkpoint {quoted(identity)}, and its name says otherwise.",
            _NOT_SEALED,
        )
    return Link(name, identity, previous, iteration, workflow, str(said.get("timestamp")))


def _chains(
    links: dict[str, Link], without_past: bool
) -> Iterator[tuple[list[Link], Conflict | None]]:
    """Put checkpoints in order: a chain for each first one, and why it is none."""
    followers: dict[str | None, list[Link]] = defaultdict(list)
    for link in links.values():
        followers[link.previous].append(link)
    left = set(links)
    for first in links.values():
        if first.previous not in links:
            chain = [first]
            for link in chain:  # it grows
                chain += followers[link.identity]
            left -= {link.identity for link in chain}
            yield chain, next(_problems(chain, without_past), None)
    if left:
        circle = Conflict("It follows itself, or others in a circle that leads back.", _THREAD)
        yield [links[identity] for identity in sorted(left)], circle


def _problems(chain: list[Link], without_past: bool) -> Iterator[Conflict]:
    first = chain[0]
    if first.previous is not None and not without_past:
        yield Conflict(
            f"{shell(first.source)} follows {quoted(first.previous)}, which is not in the folder.",
            "Nothing of this thread was sealed. Put it back; if you removed it on purpose, pass"
            " allow_missing_past=True.",
        )
    for before, link in pairwise(chain):
        pair = f"{shell(link.source)} follows {shell(before.source)}"
        if link.previous != before.identity:
            yield Conflict(
                f"{shell(link.source)} and another follow the same checkpoint, so their order"
                " cannot be told.",
                "Nothing of this thread was sealed. Decide which one counts, copy it with all that"
                " it follows to a folder of its own, and migrate that.",
            )
        # A new run begins at 0 again.
        if link.workflow != before.workflow or 0 != link.iteration < before.iteration:
            yield Conflict(f"{pair}, which is of another workflow, or has more steps.", _THREAD)
