"""The ladder: nine ways to keep a checkpoint, each as short as people really write it.

Every rung but the top falls to an attack that the next one refuses. The first six are home-made;
6 is our ledger, 7 has an anchor, and 8 our workflow with its gate, approvals and journal.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from safepoint.attacks.home_made import (
    AllowListTarget,
    EncryptedTarget,
    HashChainTarget,
    MacPlaceTarget,
    MacTarget,
    NaiveTarget,
)
from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import Miss
from safepoint.attacks.target import TOOLS, VERSION, Act, Target, Trick
from safepoint.core.anchor import Anchor, InMemoryAnchor
from safepoint.core.codec import Codec
from safepoint.core.errors import CheckpointError, NotFound
from safepoint.core.journal import Journal
from safepoint.core.keys import Keyring, SigningKey
from safepoint.core.ledger import Ledger
from safepoint.core.names import digest_of
from safepoint.core.record import Header, Kind, seal
from safepoint.core.storage import CheckpointStorage, InMemoryCheckpointStorage
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Approver, Approvers, Question, Reason
from safepoint.resume.asking import SPENT
from safepoint.resume.gate import MAX_LIFETIME, Gate, Policy, ToolSet
from safepoint.resume.workflow import Ask, Call, Payload, Run, Step, Workflow
from safepoint.shared.desk import Desk
from safepoint.stores.disk import TEMP
from safepoint.stores.files import BASE, FileCheckpointStorage
from safepoint.stores.sqlite import SQLiteAnchor

_RECORD = ".checkpoint"
_LEASE = 0.001  # seconds: whoever owns a thread is overdue when the next one comes
_Result = TypeVar("_Result")


def _name(thread: str, sequence: int) -> str:
    return f"{thread}/{sequence:010d}{_RECORD}"


class _Tapped:
    """A storage that answers through the adversary."""

    def __init__(self, storage: CheckpointStorage, medium: Medium) -> None:
        self.append, self.head, self.threads = storage.append, storage.head, storage.threads
        self._storage = storage
        self._medium = medium

    def read(self, thread: str, sequence: int) -> bytes:
        record = self._storage.read(thread, sequence)
        tap = self._medium.tap
        return record if tap is None else tap(_name(thread, sequence), record)


class SignedChainTarget(Target):
    """A ledger without an anchor: every record is sealed, bound to its place and linked."""

    name = "signed-chain"
    title = "signed chain"
    format = "msgpack"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self.keys = Keyring(SigningKey.generate())
        self.anchor: Anchor | None = None
        self.whose = ""

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Save through the ledger."""
        self.use(lambda ledger: ledger.save(thread, state))

    def latest(self, thread: str) -> Any:
        """Load through a ledger that was opened again."""
        return self.use(lambda ledger: ledger.latest(thread).state)

    def history(self, thread: str) -> list[Any]:
        """Load everything, and follow each link."""
        return self.use(lambda ledger: [each.state for each in ledger.history(thread)])

    def oldest(self, thread: str) -> Any:
        """Take the first that a history hands out, before it has seen the rest."""
        return self.use(lambda ledger: next(ledger.history(thread)).state)

    def load(self, thread: str, sequence: int) -> Any:
        """Load by number."""
        return self.use(lambda ledger: ledger.load(thread, sequence).state)

    def file(self, thread: str, label: str, state: dict[str, Any]) -> None:
        """Seal the label with it."""
        self.use(lambda ledger: ledger.save(thread, state, label=label))

    def find(self, thread: str, label: str) -> Any:
        """Look for it from the end back, whatever the storage says."""

        def found(ledger: Ledger) -> Any:
            for link in ledger.back(thread):
                if link.label == label:
                    return link.state
            raise NotFound(f"{thread} has no record of the label {label}.", "Check the label.")

        return self.use(found)

    def pend(self, thread: str, value: dict[str, Any]) -> None:
        """Note it, and leave it to the next state to anchor that."""
        self.use(lambda ledger: ledger.note(thread, value, rides_along=True))

    def prune(self, thread: str, keep: int) -> None:
        """Leave a signed base."""
        self.use(lambda ledger: ledger.prune(thread, keep=keep))

    def delete(self, thread: str) -> None:
        """Leave a tombstone and nothing before it."""
        self.use(lambda ledger: (ledger.delete(thread), ledger.erase(thread)))

    def client(self, name: str) -> Self:
        """Open the tenant of the user who is logged in, whatever they name."""
        return self.tenant(name)

    def tenant(self, name: str) -> Self:
        """Seal the tenant with each record."""
        other = self.on(self.medium)
        other.whose = name
        return other

    def rotate(self) -> None:
        """Seal with a new key. The old one still verifies: nobody can say since when it is lost."""
        self.keys = Keyring(SigningKey.generate(), verify=self.keys)

    def records(self, thread: str) -> list[str]:
        """Return the names of the files, which sort in their order."""
        found, folder = self.medium.names(), f"{self._folder}{thread}/"
        return [n for n in found if n.startswith(folder) and n.endswith(_RECORD)]

    @property
    def _folder(self) -> str:
        return self.whose and f"@{self.whose}/"

    def place(self, thread: str, sequence: int) -> str:
        """Return the name of a record's file."""
        return self._folder + _name(thread, sequence)

    def ahead(self, thread: str) -> list[str]:
        """Return the name of what is on its way in, and the next file."""
        return [f"{thread}/{TEMP}", *super().ahead(thread)]

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Write a perfect record for the same place, sealed by a key of one's own or by none."""
        if trick == "unsigned":
            return payload
        forged = self._again(record, payload, SigningKey.generate())
        return _downgraded(record, forged) if trick == "no-algorithm" else forged

    def cut(self, thread: str, keep: int, trick: Trick = "best") -> None:
        """Leave a base that is perfect but for its seal, or none."""
        record = self._dropped(thread, keep)
        if trick != "unsigned":
            base = self._again(record, self.encoded(None), SigningKey.generate(), kind="base")
            base = _downgraded(record, base) if trick == "no-algorithm" else base
            self._leave_base(thread, record, base)

    def relink(self, thread: str) -> None:
        """Mend the digest of a state that was changed. What it takes a key to mend stays broken."""
        for name in self.records(thread):
            record = self.medium.read(name)
            line_1, line_2, rest = (*record.split(b"\n", 2), b"", b"")[:3]
            header = Header.parse(line_2)
            if header is not None and header.digest != digest_of(rest):
                mended = line_2.replace(header.digest.encode(), digest_of(rest).encode())
                self.medium.write(name, b"\n".join((line_1, mended, rest)))

    def smuggle(self, thread: str, payload: bytes) -> None:
        """Seal it with the genuine key, as the record that follows."""
        self._append(thread, payload)

    def by_default(self, medium: Medium | None = None) -> Self:
        """Leave the thief without the key: it is in a folder of its own."""
        other = super().by_default(medium)
        if medium is not None:
            other.keys = Keyring(SigningKey.generate())
        return other

    def _again(self, record: bytes, payload: bytes, key: SigningKey, kind: Kind = "state") -> bytes:
        """Return another record for the place of one, sealed by this key."""
        header, now = _parsed(record)[0], datetime.now(UTC)
        previous = header.previous
        return seal(payload, header.place, key, created=now, kind=kind, previous=previous)[0]

    def _append(self, thread: str, payload: bytes, **header: Any) -> None:
        """Seal a record with the genuine key, behind the last one of a thread."""
        last, digest = _parsed(self.medium.read(self.records(thread)[-1]))
        place = last.place._replace(sequence=last.sequence + 1)
        given = {"created": datetime.now(UTC), "previous": digest, **header}
        record, _ = seal(payload, place, self.keys.signing, **given)
        self.medium.write(self.place(thread, place.sequence), record)

    def _dropped(self, thread: str, keep: int) -> bytes:
        """Remove all but the newest records, and return the oldest that is left."""
        names = self.records(thread)
        for name in names[:-keep]:
            self.medium.delete(name)
        return self.medium.read(names[-keep])

    def _leave_base(self, thread: str, record: bytes, base: bytes) -> None:
        first = _parsed(record)[0].sequence
        self.medium.write(f"{thread}/{BASE}", b"%010d\n%b" % (first, base))

    def use(self, act: Callable[[Ledger], _Result]) -> _Result:
        """Open the ledger as a new process does, and use it once."""
        return act(self._ledger(FileCheckpointStorage(self.path)))

    def _ledger(self, storage: CheckpointStorage, journal: Journal | None = None) -> Ledger:
        return Ledger(
            storage if self.medium.tap is None else _Tapped(storage, self.medium),
            store=self.store,
            keys=self.keys,
            anchor=self.anchor,
            journal=journal,
            tenant=self.whose,
        )


def _parsed(record: bytes) -> tuple[Header, str]:
    """Return what anybody can read in a record, and its digest.

    Raises:
        Miss: it has no header.
    """
    line_2 = record.split(b"\n", 2)[1]
    header = Header.parse(line_2)
    if header is None:
        raise Miss
    return header, digest_of(line_2)


def _downgraded(record: bytes, forged: bytes) -> bytes:
    """Put the id of the genuine key above it, and a hash that needs none for its signature."""
    line_1 = record.partition(b"\n")[0]
    _, line_2, rest = forged.split(b"\n", 2)
    digest = base64.b64encode(hashlib.sha256(b"safepoint/1 record\n" + line_2).digest())
    return b"\n".join((b" ".join((*line_1.split(b" ")[:2], digest)), line_2, rest))


class SealedTarget(SignedChainTarget):
    """A ledger with an anchor in a folder that the adversary cannot write."""

    name = "anchored"
    title = "sealed and anchored"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self.anchor: Anchor = SQLiteAnchor(self.folder / "anchor/heads.db", create=True)

    def go_back(self, thread: str, sequence: int) -> None:
        """Drop the records, and accept the loss by name."""
        super().go_back(thread, sequence)
        self.use(lambda ledger: ledger.accept_loss(thread))

    def rotate(self) -> None:
        """Seal what the anchor has seen with a new key, and let go of the old one."""
        fresh, keys = InMemoryCheckpointStorage(), Keyring(SigningKey.generate())
        after = Ledger(fresh, store=self.store, keys=keys)
        self.use(lambda ledger: ledger.copy_to(after, up_to=self.anchor))
        for thread in fresh.threads():
            for sequence, record in enumerate(fresh.scan(thread, 1, fresh.head(thread)), 1):
                self.medium.write(self.place(thread, sequence), record)
        self.keys = keys

    def twin(self, medium: Medium, store: str | None = None) -> Self:
        """Return a copy that knows the key and cannot touch the anchor."""
        other = super().twin(medium, store)
        other.anchor = InMemoryAnchor()
        return other


class GatedTarget(SealedTarget):
    """The anchored ledger, and a workflow on it that continues if its gate lets it.

    An approval is a statement that dana or erin signed, with a key that no worker has.
    """

    name = "gated"
    title = "sealed, anchored and gated"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self.people = {name: SigningKey.generate() for name in ("dana", "erin")}
        self.approvers = Approvers({name: key.public for name, key in self.people.items()})
        self._journal_keys = Keyring(SigningKey.generate())
        self._journal_anchor = SQLiteAnchor(self.folder / "journal-anchor/heads.db", create=True)
        self.written: Journal | None = self._journal(create=True)
        self.opened: Ledger | None = None
        self._asking: set[str] = set()
        self._migrations: dict[str, Any] = {}
        self._bank: set[str] = set()
        self._operator = SigningKey.generate()
        self._left = Answers(
            FileCheckpointStorage(self.answers.folder),
            SQLiteAnchor(self.folder / "answers-anchor/heads.db", create=True),
        )

    def begin(self, thread: str, arguments: dict[str, Any]) -> None:
        """Capture a run before its first step."""
        workflow, _ = self._payments(thread)
        self.use(lambda ledger: workflow.begin(ledger, thread, arguments=arguments))

    def ask(self, thread: str, arguments: dict[str, Any]) -> None:
        """Run up to the step that asks: the first one, or the one after a payment."""
        again = thread in self._asking
        self._asking.add(thread)
        workflow, _ = self._payments(thread, arguments)
        if again:
            self.use(lambda ledger: workflow.rehydrate(ledger, thread).step())
        else:
            self.use(lambda ledger: workflow.start(ledger, thread))

    def approve(self, thread: str, who: str = "dana", shown: dict[str, Any] | None = None) -> bytes:
        """Sign a statement about what the verified store asks, or what somebody shows instead."""
        question = replace(self._question(thread), **(shown or {}))
        person = Approver(who, self.people.get(who) or SigningKey.generate())
        moment = datetime.now(UTC) - self.ago
        return person.approve(question, lifetime=self.lasts, now=moment).encode()

    def look(self, thread: str) -> Question:
        """Verify the store at an approver's desk and read what is asked there.

        Raises:
            Miss: nothing is asked.
        """
        waits = self._at_desk(thread, lambda desk: desk.waits(thread))
        if not waits:
            raise Miss
        return waits[0].question

    def shown(self, seen: Question) -> str:
        """Return each line that a desk shows."""
        return "\n".join(seen.described)

    def press(self, thread: str, seen: Question, who: str = "dana") -> bytes:
        """Let the desk sign what was read and put that with the answers."""
        person = Approver(who, self.people[who])
        signed = self._at_desk(thread, lambda desk: desk.answer(seen, "approve", person))
        return signed.text.encode()

    def reword(self, thread: str, arguments: dict[str, Any]) -> None:
        """Seal another question with the writer's key, after the one that waits."""
        self._asks(thread, arguments, 1, datetime.now(UTC))

    def _asks(self, thread: str, arguments: dict[str, Any], done: int, then: datetime) -> None:
        """Seal by hand that a run has done some steps and asks for the next one."""
        tools, steps = ToolSet(self.tools), ("ask", "pay", "ask_again", "pay_again")
        asks = Payload({}, steps[:done], tools, Ask("pay", arguments), next=steps[done])
        app, packed = self._payments(thread)[0].app, Codec().encode(asks.pack())
        self._append(thread, packed, app=app, tools=tools.digest, created=then)

    def leave(self, thread: str, said: Literal["no", "hold"]) -> None:
        """Sign it and put it where it is anchored."""
        if said == "no":
            erin = Approver("erin", self.people["erin"])
            self._left.put(erin, erin.deny(self._question(thread)))
        else:
            self._left.hold(Approver("omar", self._operator), self.store, thread)

    def deny(self, thread: str, who: str = "erin") -> None:
        """Sign a denial, and let a worker write it down."""
        said = Approver(who, self.people[who]).deny(self._question(thread))
        self._rehydrated(self._payments(thread)[0], thread, said.encode())

    def resume(
        self, thread: str, approval: bytes = b"", sequence: int | None = None, meanwhile: Act = None
    ) -> Any:
        """Pass the gate, and run up to the payment."""
        workflow, paid = self._payments(thread)
        try:
            run = self._rehydrated(workflow, thread, approval, sequence)
            if meanwhile is not None:
                meanwhile()
            if run.denied:
                run.step()  # which says so
            # Up to the payment, a pause or the end.
            self.use(lambda _: next((step for step in run if paid), None))
        except CheckpointError:
            if not paid:  # what is paid is paid, whatever was refused afterwards
                raise
        return paid[0] if paid else None

    def own(self, thread: str, worker: str) -> Self:
        """Take a lease, and keep the ledger open that has it."""
        time.sleep(2 * _LEASE)
        other = self.on(self.medium)
        other.opened = other.use(lambda ledger: ledger)
        other.use(lambda ledger: ledger.own(thread, worker, seconds=_LEASE))
        return other

    def journalled(self, thread: str) -> list[str]:
        """Verify the journal and show what it says of a thread."""
        return [str(entry) for entry in self._journal().show(thread=thread)]

    def counterfeit(self, thread: str, arguments: dict[str, Any], trick: Trick = "best") -> bytes:
        """Write dana's statement without her key."""
        question = replace(self._question(thread), arguments=arguments)
        forged = Approver("dana", SigningKey.generate()).approve(question)
        label, _, signature, body = forged.replace("\n", " ", 1).split(" ", 3)
        if trick == "unsigned":
            return body.encode()
        if trick == "no-algorithm":
            # The id of her key, and a hash that needs none where its signature belongs.
            digest = hashlib.sha512(f"{label} approval\n{body.rstrip()}".encode()).digest()
            signature = base64.b64encode(digest).decode()
            return f"{label} {self.people['dana'].public.id} {signature}\n{body}".encode()
        return forged.encode()

    def self_approve(self, thread: str, arguments: dict[str, Any]) -> Iterator[bytes]:
        """Sign a statement with the writer's key; put one into a record; leave the pause out."""
        question = replace(self._question(thread), arguments=arguments)
        said = Approver("dana", self.keys.signing).approve(question)
        yield said.encode()
        self.misuse(thread, arguments, said.encode())
        yield b""
        tools, app = ToolSet(TOOLS), self._payments(thread)[0].app
        done = Codec().encode({"done": ["ask"], "state": {}, "tools": tools.described})
        self._append(thread, done, app=app, tools=tools.digest)
        yield b""

    def upgrade(self, thread: str) -> None:
        """Deploy version 2, with a migration from version 1."""
        self._migrations = {VERSION: dict}

    def misuse(
        self,
        thread: str,
        arguments: dict[str, Any],
        yes: bytes,
        skips: bool = False,
        prunes: bool = False,
    ) -> None:
        """Seal a note by hand that spends a statement; before it, a state that asks for it."""
        texts, last = _texts(yes), 3 if skips else 1
        said = json.loads(texts[0].splitlines()[1])
        if skips or self.tools is not TOOLS:
            self._asks(thread, arguments, last, datetime.fromisoformat(said["issued"]))
        if prunes:  # with a genuine base: what `prune` would keep stays no longer
            record = self._dropped(thread, 1)
            base = self._again(record, self.encoded(None), self.keys.signing, kind="base")
            self._leave_base(thread, record, base)
        with suppress(CheckpointError, Miss):
            question = self._question(thread).text
            value = Codec().encode({"question": question, "statements": texts})
            self._append(thread, value, kind="note", label=SPENT)

    def blame(self, thread: str, who: str) -> None:
        """Seal the journal's last entry again with the writer's key, after it, by somebody else."""
        name = self.journal.names()[-1]
        record = self.journal.read(name)
        header, digest = _parsed(record)
        place = header.place._replace(sequence=header.sequence + 1)
        forged, _ = seal(
            record.split(b"\n", 2)[2].replace(b"dana", who.encode()),
            place,
            self.keys.signing,
            created=datetime.now(UTC),
            previous=digest,
            use="journal",
        )
        following = f"{place.sequence:010d}".join(name.rsplit(f"{header.sequence:010d}", 1))
        self.journal.write(following, forged)

    def twin(self, medium: Medium, store: str | None = None) -> Self:
        """Return a copy that knows the key and has no reason to write anything down."""
        other = super().twin(medium, store)
        other.written = None
        return other

    def _payments(
        self, thread: str, request: dict[str, Any] | None = None
    ) -> tuple[Workflow, list[Any]]:
        """Return what a process runs, and the arguments of each payment that it makes.

        Where people are asked, it asks for `request` before it pays, and again after that.
        """
        asks, paid = thread in self._asking, list[Any]()

        def ask(state: dict[str, Any]) -> Ask | None:
            return None if request is None else Ask("pay", request, self.within)

        def pay(state: dict[str, Any], call: Call) -> None:
            if asks and not call.was_approved:
                return
            if call.key not in self._bank:  # in whatever process, it pays for each key once
                self._bank.add(call.key)
                # What to pay is what a person signed, if one was asked.
                paid.append(call.approved.arguments if asks else state["arguments"])

        def ask_again(state: dict[str, Any]) -> Ask | None:
            return ask(state)

        def pay_again(state: dict[str, Any], call: Call) -> None:
            pay(state, call)

        steps: list[Step] = [ask, pay, ask_again, pay_again] if asks else [pay]
        flow = Workflow(
            "payment" if asks else "errand",
            steps,
            version=self.version,
            tools=self.tools,
            gate=Gate(
                Policy({Reason.ASKED: self.quorum}, lifetime=MAX_LIFETIME),
                self.approvers,
                answers=self._left,
                operators=Approvers({"omar": self._operator.public}),
            ),
            migrations=self._migrations,
        )
        return flow, paid

    def _at_desk(self, thread: str, act: Callable[[Desk], _Result]) -> _Result:
        gate = self._payments(thread)[0].gate
        return self.use(lambda ledger: act(Desk(ledger, self._left, gate)))

    def _question(self, thread: str) -> Question:
        """Return what a person sees who looks at the verified store.

        Raises:
            Miss: nothing is asked.
        """
        workflow, _ = self._payments(thread)
        question = self.use(lambda ledger: workflow.question(ledger, thread))
        if question is None:
            raise Miss
        return question

    def _rehydrated(
        self, workflow: Workflow, thread: str, approval: bytes, sequence: int | None = None
    ) -> Run:
        said, now = _texts(approval), datetime.now(UTC) + self.later
        return self.use(
            lambda ledger: workflow.rehydrate(ledger, thread, sequence, approvals=said, now=now)
        )

    def _journal(self, *, create: bool = False) -> Journal:
        entries = FileCheckpointStorage(self.journal.folder, read_only=not create)
        return Journal(entries, keys=self._journal_keys, anchor=self._journal_anchor)

    def _ledger(self, storage: CheckpointStorage, journal: Journal | None = None) -> Ledger:
        return self.opened or super()._ledger(storage, journal or self.written)


def _texts(approvals: bytes) -> list[str]:
    """Return each of some statements, which have two lines each."""
    lines = approvals.decode().splitlines(keepends=True)
    return ["".join(lines[first : first + 2]) for first in range(0, len(lines), 2)]


TARGETS: dict[str, type[Target]] = {
    target.name: target
    for target in (
        NaiveTarget,
        AllowListTarget,
        EncryptedTarget,
        HashChainTarget,
        MacTarget,
        MacPlaceTarget,
        SignedChainTarget,
        SealedTarget,
        GatedTarget,
    )
}
"""The built-in targets by name, from the bottom of the ladder to its top."""

TOP = GatedTarget.name
"""The name of the top rung."""
