"""What an attack is aimed at: an adapter to a store, which can be yours."""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from ormsgpack import packb

from safepoint.attacks.medium import Disk, Medium
from safepoint.attacks.outcome import HONEST, Miss
from safepoint.core.errors import CheckpointError
from safepoint.resume.gate import Tool

TOOLS: Final = (Tool("mail", version="1", permissions=["read"]),)
"""What a run has when it begins."""

WIDER: Final = (*TOOLS, Tool("bank", version="1", permissions=["transfer"]))
"""What somebody would like it to have when it goes on."""

VERSION: Final = "1"
"""The version of the code that begins a run."""

_ROOM: Final = 500
"""How many characters a page shows of what a run asks."""


Trick = Literal["best", "own-key", "no-algorithm", "unsigned"]
"""How a record is forged: as well as possible; signed by a key that the adversary has; with an
algorithm that protects nothing; or as if it were older than signatures."""


Act = Callable[[], object] | None
"""What somebody does meanwhile."""


class Victim(ABC):
    """Anyone who is attacked.

    Attributes:
        name: what it is called in tables.
        refusals: the errors by which it refuses. Anything else counts as a crash.
        folder: a temporary folder. Nothing of it may be outside.
        refused: what it said each time that it refused. Look whether it saw the attack, or
            something else.
    """

    name: ClassVar[str]
    refusals: ClassVar[tuple[type[Exception], ...]] = (CheckpointError,)

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.refused: list[str] = []


class Target(Victim):
    """A store under attack: how a victim uses it, and what an adversary who can write it sees.

    Three methods aim the attacks at a store of your own. Let `save` and `latest` open the store
    again each time, as another process would:

    ```python
    import json
    import tempfile
    from pathlib import Path

    from safepoint.attacks import ATTACKS, Target


    class PlainJson(Target):
        name = "plain-json"
        refusals = (ValueError,)  # json raises this for what is not JSON

        def save(self, thread, state):
            number = len(self.records(thread)) + 1
            file = Path(self.path, f"{thread}.{number:04}.json")
            file.write_text(json.dumps(state))

        def latest(self, thread):
            return json.loads(Path(self.path, self.records(thread)[-1]).read_text())

        def records(self, thread):
            return sorted(file.name for file in self.path.glob(f"{thread}.*.json"))


    for name in ("edit-state", "cut-newest", "deep-nesting", "torn-record"):
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: {ATTACKS[name].run(PlainJson(folder))}")
    #> edit-state: accepted
    #> cut-newest: accepted
    #> deep-nesting: crashed
    #> torn-record: detected
    ```

    The other methods have defaults that fit a store without keys that keeps its state as JSON
    text, and an application that keeps approvals as fields of it. Override those that do not fit
    yours. An attack that needs one that you leave out is "not applicable", which proves nothing.

    Attributes:
        name: what the target is called in tables.
        title: the same, for people.
        format: how a state is written: "json" or "msgpack".
        refusals: the errors by which this store refuses. Anything else counts as a crash.
        folder: a temporary folder. Nothing of the store may be outside it.
        refused: what the store said each time that it refused.
        medium: the records, in the adversary's hands; on disk, the files below `folder / "store"`.
        journal: what was written down, in their hands as well: the files below
            `folder / "journal/entries"`.
        store: the name of the store, if yours has names.
        quorum: how many people have to say yes to what a run asks.
        within: how long a run waits for them, None if forever.
        lasts: how long an approval counts, where it ends.
        ago: how long ago people say yes.
        later: how much later it is by the clock of the worker that continues a run.
        tools: what the process has that continues with a run.
        version: the version of its code.
        answers: where people leave a denial or a hold, in the adversary's hands as well: the files
            below `folder / "answers"`.
    """

    title: ClassVar[str] = ""
    format: ClassVar[Literal["json", "msgpack"]] = "json"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder)
        self.journal = Disk(self.folder / "journal/entries")
        self.journal.folder.parent.mkdir(mode=0o700, exist_ok=True)
        self.store = "victim-store"
        self.quorum = 1
        self.within: timedelta | None = None
        self.lasts = timedelta(hours=1)
        self.ago = self.later = timedelta(0)
        self.tools: Iterable[Tool] = TOOLS
        self.version = VERSION
        self.answers = Disk(self.folder / "answers")
        self.medium = Disk(self.folder / "store") if medium is None else medium
        if isinstance(self.medium, Disk):
            self.medium.folder.mkdir(mode=0o700, exist_ok=True)

    @property
    def path(self) -> Path:
        """The folder of the store, which the adversary can write.

        Raises:
            Miss: the store is not on disk.
        """
        if not isinstance(self.medium, Disk):
            raise Miss
        return self.medium.folder

    # What every target has.

    @abstractmethod
    def save(self, thread: str, state: dict[str, Any]) -> None:
        """The victim saves a state."""

    @abstractmethod
    def latest(self, thread: str) -> Any:
        """The victim, in a new process, loads the newest state."""

    @abstractmethod
    def records(self, thread: str) -> list[str]:
        """The adversary finds the names of a thread's records in the medium, oldest first."""

    # What else a careful victim can do with this store.

    def history(self, thread: str) -> list[Any]:
        """The victim loads and checks everything there is, oldest first."""
        return [self.latest(thread)]

    def oldest(self, thread: str) -> Any:
        """The victim begins to look at everything, and stops after the first."""
        return self.history(thread)[0]

    def load(self, thread: str, sequence: int) -> Any:
        """The victim loads an older state, by its number.

        Raises:
            Miss: this store has no way to do that.
        """
        raise Miss

    def file(self, thread: str, label: str, state: dict[str, Any]) -> None:
        """The victim saves a state, to find it by a label."""
        self.save(thread, state)
        self.point(thread, label, len(self.records(thread)))

    def find(self, thread: str, label: str) -> Any:
        """The victim, in a new process, loads the state of a label, where an index says it is."""
        return self.load(thread, int(self.medium.read(index(thread, label))))

    def pend(self, thread: str, value: dict[str, Any]) -> None:
        """Keep what a task of a framework wrote, until the next state. Default: as a state."""
        self.save(thread, value)

    def prune(self, thread: str, keep: int) -> None:
        """The victim drops all but the newest records, on purpose."""
        for name in self.records(thread)[:-keep]:
            self.medium.delete(name)

    def delete(self, thread: str) -> None:
        """The victim deletes a thread on purpose."""
        for name in self.records(thread):
            self.medium.delete(name)

    def go_back(self, thread: str, sequence: int) -> None:
        """An operator goes back on purpose: what is newer than `sequence` is dropped."""
        for name in self.records(thread)[sequence:]:
            self.medium.delete(name)

    def rotate(self) -> None:
        """An operator who fears that the key was copied puts another in its place.

        Raises:
            Miss: the store has no key.
        """
        raise Miss

    def client(self, name: str) -> Self:
        """Return what somebody gets at who is logged in by that name, and names a thread.

        By default that is any thread: the application takes the id from the request.
        """
        return self

    def tenant(self, name: str) -> Self:
        """Return the store as it keeps the threads of one tenant apart from the others.

        Raises:
            Miss: it does not.
        """
        raise Miss

    # What a workflow does on this store when it is interrupted, asks people, and goes on. Override
    # these if your application has something better than a field of its state. Where one refuses,
    # let it raise one of the `refusals`.

    def begin(self, thread: str, arguments: dict[str, Any]) -> None:
        """A run begins, with `TOOLS` and as `VERSION`, and its worker dies before it acts."""
        self.save(thread, {"pending": arguments})
        self.note(thread, "worker", "begin")

    def ask(self, thread: str, arguments: dict[str, Any]) -> None:
        """A run, new or continued, comes to a step that asks a person first, and waits."""
        state = self.latest(thread) if self.records(thread) else {}
        # An earlier yes stays where it is.
        self.save(thread, {"approved": False, **state, "pending": arguments})
        self.note(thread, "worker", "ask")

    def approve(self, thread: str, who: str = "dana", shown: dict[str, Any] | None = None) -> bytes:
        """A person looks at what a run asks and says yes.

        Args:
            thread: the thread.
            who: the person. Only dana and erin may.
            shown: what they see in place of parts of the question, if somebody came between.

        Returns:
            What travels to the worker; nothing where the approval is a field of the state.
        """
        self._answer(thread, who, yes=True)
        return b""

    def look(self, thread: str) -> Any:
        """A person opens the page of a run that waits and reads it.

        Returns:
            What they have open. By default it is text, as much of it as the page has room for.
        """
        return str(self.latest(thread)["pending"])[:_ROOM]

    def shown(self, seen: Any) -> str:
        """Return everything that a person could read on a page that they opened."""
        return str(seen)

    def press(self, thread: str, seen: Any, who: str = "dana") -> bytes:
        """They press yes on that page, however long ago they opened it.

        By default the button sends the name of the thread, and whatever that asks by now is
        approved.

        Returns:
            What travels to the worker, as `approve` does.
        """
        return self.approve(thread, who)

    def reword(self, thread: str, arguments: dict[str, Any]) -> None:
        """The worker of a run that waits asks something else, with whatever key the store has."""
        self.ask(thread, arguments)

    def deny(self, thread: str, who: str = "erin") -> None:
        """A person says no, and a worker hears of it."""
        self._answer(thread, who, yes=False)

    def leave(self, thread: str, said: Literal["no", "hold"]) -> None:
        """A person leaves a denial of a request, or a hold, where workers look before each step.

        Nobody carries it to a worker.
        """
        self.answers.folder.mkdir(mode=0o700, exist_ok=True)
        self.answers.write(thread, said.encode())

    def _answer(self, thread: str, who: str, *, yes: bool) -> None:
        """Say yes or no to whatever is pending when this is read."""
        state = self.latest(thread)
        by = sorted({*state.get("by", ()), who})
        self.save(thread, {**state, "approved": yes and len(by) >= self.quorum, "by": by})
        self.note(thread, who, "approve" if yes else "deny")

    def resume(
        self, thread: str, approval: bytes = b"", sequence: int | None = None, meanwhile: Act = None
    ) -> Any:
        """A worker in a new process continues with a run, and acts if it may.

        Args:
            thread: the thread.
            approval: what an approver's approval came as, or several of them, one after the other.
            sequence: the checkpoint from which to continue; the newest, if not.
            meanwhile: what happens elsewhere after this worker has made up its mind.

        Returns:
            The arguments with which it acted, or None if it did not.
        """
        state = self.latest(thread) if sequence is None else self.load(thread, sequence)
        arguments = state.get("pending") if state.get("approved", True) else None
        if thread in self.answers.names():
            arguments = None
        if meanwhile is not None:
            meanwhile()
        if arguments is not None:
            self.save(thread, {**state, "pending": None, "paid": arguments})
            self.note(thread, "worker", "resume")
        return arguments

    def upgrade(self, thread: str) -> None:
        """Let version 2 continue with a run of version 1 from now on, as somebody planned it."""

    def own(self, thread: str, worker: str) -> Self:
        """A worker takes a thread over, because the one before it did not answer any more.

        Returns:
            The store as that worker has it open.
        """
        return self

    def self_approve(self, thread: str, arguments: dict[str, Any]) -> Iterable[bytes]:
        """The worker, which holds whatever key the store has, says yes in a person's name.

        Yields:
            What it hands on, once for each way that there is.
        """
        self._answer(thread, "dana", yes=True)
        yield b""

    def note(self, thread: str, who: str, what: str) -> None:
        """Write down who did what. If that fails, it fails."""
        line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {who} {what} {thread}\n"
        with suppress(OSError):
            self.journal.write(f"{len(self.journal.names()) + 1:010d}", line.encode())

    def journalled(self, thread: str) -> list[str]:
        """An auditor reads who did what to a thread, oldest first, one line each."""
        text = b"".join(self.journal.everything().values()).decode()
        return [line for line in text.splitlines() if line.split(" ")[-1] == thread]

    # What the adversary knows. None of it needs the key.

    def place(self, thread: str, sequence: int) -> str:
        """Return the name that a record of that sequence has, or would have.

        Raises:
            Miss: names cannot be foretold.
        """
        raise Miss

    def ahead(self, thread: str) -> list[str]:
        """Return the names at which the next save will write."""
        return [self.place(thread, len(self.records(thread)) + 1)]

    def edit(self, record: bytes, old: bytes, new: bytes) -> bytes:
        """Return a genuine record of the state `HONEST` with `old` replaced by `new` in it.

        Raises:
            Miss: the adversary cannot find it.
        """
        if old not in record:
            raise Miss
        return record.replace(old, new)

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Return a genuine record of the state `HONEST` with another encoded state inside.

        Raises:
            Miss: the format has no room for it, or for the trick.
        """
        if trick != "best":
            raise Miss
        for text in spellings(HONEST):
            if text in record:
                return record.replace(text, payload)
        raise Miss

    def counterfeit(self, thread: str, arguments: dict[str, Any], trick: Trick = "best") -> bytes:
        """Make up an approval to what a thread asks, and return what travels to the worker.

        Raises:
            Miss: there is no room for the trick.
        """
        self.save("attacker", HONEST)
        state = self.encoded({"approved": True, "pending": arguments})
        record = self.medium.read(self.records("attacker")[-1])
        self.medium.write(self.records(thread)[-1], self.forge(record, state, trick))
        self.relink(thread)
        return b""

    def cut(self, thread: str, keep: int, trick: Trick = "best") -> None:
        """Drop all but the newest records, and forge what a prune would leave.

        Raises:
            Miss: the format has no room for the trick.
        """
        if trick != "best":
            raise Miss
        for name in self.records(thread)[:-keep]:
            self.medium.delete(name)
        self.relink(thread)

    def point(self, thread: str, label: str, sequence: int) -> None:
        """Say in the store's index where the record of a label is."""
        self.medium.write(index(thread, label), str(sequence).encode())

    def relink(self, thread: str) -> None:
        """Mend, after tampering, whatever of a thread can be mended without a key."""

    def pickled(self, pickle: bytes, type_name: str) -> bytes | None:
        """Return a record that carries a pickle, or None if the format has no room for one."""
        return None

    # What a thief of the key does, or a writer inside who holds it. Without a key, anybody can.

    def encoded(self, state: Any) -> bytes:
        """Return the bytes of a state in the format of this store: what a `smuggle` carries."""
        if self.format == "msgpack":
            return packb(state)
        return json.dumps(state, separators=(",", ":")).encode()

    def smuggle(self, thread: str, payload: bytes) -> None:
        """Write a thread's next record around these encoded bytes, genuine in everything else.

        The store's own code, which might refuse to encode them, is not asked. Override this where
        a record takes a key, or your decoder is never reached and nothing is said about it.

        Raises:
            Miss: the format has no room for them.
        """
        self.save(thread, HONEST)
        name = self.records(thread)[-1]
        self.medium.write(name, self.forge(self.medium.read(name), payload))
        self.relink(thread)

    def misuse(
        self,
        thread: str,
        arguments: dict[str, Any],
        yes: bytes,
        skips: bool = False,
        prunes: bool = False,
    ) -> None:
        """Write a thread's next record, which says that these arguments were approved.

        It says that the run has what the process has that continues with it.

        Args:
            thread: the thread.
            arguments: what is to be done.
            yes: what a person signed, or several, one after the other, for whatever it was; it is
                put where a worker would put it.
            skips: say also that the steps before a later payment are done.
            prunes: remove what is before that record, with whatever a prune would leave.
        """
        self.save(thread, {**self.latest(thread), "approved": True, "pending": arguments})
        if prunes:
            self.prune(thread, 1)

    def blame(self, thread: str, who: str) -> None:
        """Add to the journal, with the key of the store, that somebody else did what was done.

        Raises:
            Miss: there is not a journal.
        """
        self.note(thread, who, "approve")

    def on(self, medium: Medium) -> Self:
        """Return this very store, reading and writing another medium: a replica."""
        other = copy.copy(self)
        other.medium = medium
        if isinstance(medium, Disk):
            medium.folder.mkdir(mode=0o700, exist_ok=True)
        return other

    def by_default(self, medium: Medium | None = None) -> Self:
        """Return this application as it is where nobody said where its parts should be.

        Args:
            medium: a copy of the folder with the records, in a thief's hands. By default all that
                the application needs is in it, and then it works there.
        """
        return self if medium is None else self.twin(medium)

    def twin(self, medium: Medium, store: str | None = None) -> Self:
        """Return the same application with the same key: a second store, or a thief's copy.

        Whatever this store keeps where its writer cannot write, the twin must not have.
        """
        other = self.on(medium)
        other.store = self.store if store is None else store
        return other


def index(thread: str, label: str) -> str:
    """Return the name of the entry that says where the record of a label is."""
    return f"{thread}.{label}.index"


def spellings(state: Any) -> Iterator[bytes]:
    """Yield the ways in which a state is commonly written."""
    for ends in ((", ", ": "), (",", ":")):
        yield json.dumps(state, separators=ends).encode()
    yield packb(state)
