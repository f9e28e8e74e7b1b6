"""Rung 8: our ledger with an anchor, and our workflow with its gate, approvals and journal."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from safepoint.anchor import FileAnchor
from safepoint.approval import Approver, Approvers, Question
from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import Miss
from safepoint.attacks.rungs.sealed import SealedTarget
from safepoint.attacks.target import TOOLS, VERSION, Trick
from safepoint.errors import CheckpointError
from safepoint.gate import Gate
from safepoint.journal import FileJournal, Journal
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.storage.base import CheckpointStorage
from safepoint.tools import Tool, ToolSet
from safepoint.workflow import Ask, Call, Run, Step, Workflow


class Payments:
    """A process that runs payments.

    Args:
        gate: who may resume into what.
        bank: the keys of what was paid, in whatever process. It pays for each key once.
        asks: whether it asks people before it pays.
        request: what it asks them.
        tools: what this process has.
        version: the version of its code.

    Attributes:
        paid: the arguments of each payment, in this process.
    """

    def __init__(
        self,
        gate: Gate,
        bank: set[str],
        *,
        asks: bool,
        request: dict[str, Any] | None = None,
        tools: Iterable[Tool] = TOOLS,
        version: str = VERSION,
    ) -> None:
        self.paid: list[Any] = []
        self._bank = bank
        self._request = request
        name, steps = ("payment", self._asking()) if asks else ("errand", self._at_once())
        self.workflow = Workflow(name, steps, version=version, tools=tools, gate=gate)

    def begin(self, ledger: Ledger, thread: str, arguments: dict[str, Any]) -> None:
        """Begin a run that pays at once, and die before its first step."""
        self.workflow.begin(ledger, thread, arguments=arguments)

    def ask(self, ledger: Ledger, thread: str, *, again: bool) -> None:
        """Begin a run that asks, or go on with one that has paid and asks again."""
        if again:
            self.workflow.rehydrate(ledger, thread).step()
        else:
            self.workflow.start(ledger, thread)

    def go_on(self, run: Run) -> None:
        """Run up to the next payment, a pause or the end."""
        for _ in run:
            if self.paid:
                return

    def is_new(self, key: str) -> bool:
        """Tell whether the bank has not seen this key yet, and show it the key."""
        new = key not in self._bank
        self._bank.add(key)
        return new

    def _at_once(self) -> list[Step]:
        def pay(state: dict[str, Any], call: Call) -> None:
            if self.is_new(call.key):
                self.paid.append(state["arguments"])

        return [pay]

    def _asking(self) -> list[Step]:
        def ask(state: dict[str, Any]) -> Ask | None:
            del state
            return None if self._request is None else Ask("pay", self._request)

        def pay(state: dict[str, Any], call: Call) -> None:
            del state  # what to pay is what a person signed
            if call.was_approved and self.is_new(call.key):
                self.paid.append(call.approved.arguments)

        def ask_again(state: dict[str, Any]) -> Ask | None:
            return ask(state)

        def pay_again(state: dict[str, Any], call: Call) -> None:
            pay(state, call)

        return [ask, pay, ask_again, pay_again]


_LEASE = 0.001  # seconds: whoever owns a thread is overdue when the next one comes


class GatedTarget(SealedTarget):
    """The anchored ledger, and a workflow on it that goes on if its gate lets it.

    A yes is a statement that dana or erin signed, with a key that no worker has.
    """

    name = "gated"
    title = "sealed, anchored and gated"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self.keys = Keyring(SigningKey.generate("ed25519"))
        self.people = {name: SigningKey.generate("ed25519") for name in ("dana", "erin")}
        self.gate = Gate(approvers=Approvers({n: key.public for n, key in self.people.items()}))
        self._journal_keys = Keyring(SigningKey.generate())
        self._journal_anchor = FileAnchor(self.folder / "journal-anchor", create=True)
        self.written: Journal | None = self._journal(create=True)
        self.opened: Ledger | None = None
        self._asking: set[str] = set()
        self._bank: set[str] = set()

    def begin(self, thread: str, arguments: dict[str, Any]) -> None:
        """Capture a run before its first step."""
        self.use(lambda ledger: self._payments(thread).begin(ledger, thread, arguments))

    def ask(self, thread: str, arguments: dict[str, Any]) -> None:
        """Run up to the step that asks: the first one, or the one after a payment."""
        again = thread in self._asking
        self._asking.add(thread)
        payments = self._payments(thread, request=arguments)
        self.use(lambda ledger: payments.ask(ledger, thread, again=again))

    def approve(
        self,
        thread: str,
        who: str = "dana",
        *,
        shown: dict[str, Any] | None = None,
        ago: timedelta = timedelta(0),
    ) -> bytes:
        """Sign a statement about what the verified store asks, or what somebody shows instead."""
        question = self._question(thread)
        if shown is not None:
            question = replace(question, arguments=shown)
        person = Approver(who, self.people.get(who) or SigningKey.generate("ed25519"))
        return person.approve(question, now=datetime.now(UTC) - ago).encode()

    def deny(self, thread: str, who: str = "erin") -> None:
        """Sign a no, and let a worker write it down."""
        said = Approver(who, self.people[who]).deny(self._question(thread))
        self._rehydrated(self._payments(thread), thread, said.encode())

    def resume(
        self,
        thread: str,
        approval: bytes = b"",
        *,
        tools: Iterable[Tool] = TOOLS,
        version: str = VERSION,
        sequence: int | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> Any:
        """Pass the gate, and run up to the payment."""
        payments = self._payments(thread, tools=tools, version=version)
        try:
            run = self._rehydrated(payments, thread, approval, sequence)
            if meanwhile is not None:
                meanwhile()
            self.use(lambda _: payments.go_on(run))
        except CheckpointError:
            if not payments.paid:  # what is paid is paid, whatever was refused afterwards
                raise
        return payments.paid[0] if payments.paid else None

    def own(self, thread: str, worker: str) -> Self:
        """Take a lease, and keep the ledger open that has it."""
        time.sleep(2 * _LEASE)
        other = self.on(self.medium)
        other.opened = other.use(lambda ledger: ledger)
        other.use(lambda ledger: ledger.own(thread, worker, seconds=_LEASE))
        return other

    def journalled(self, thread: str) -> list[str]:
        """Verify the journal, and show what it says of a thread."""
        return [str(entry) for entry in self._journal().show(thread=thread)]

    def counterfeit(self, thread: str, arguments: dict[str, Any], trick: Trick = "best") -> bytes:
        """Write dana's statement without her key."""
        question = replace(self._question(thread), arguments=arguments)
        forged = Approver("dana", SigningKey.generate("ed25519")).approve(question)
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
        done = {"done": ["ask"], "state": {}, "tools": ToolSet(TOOLS).described}
        self._write(thread, {**done, "approved": [said]})
        yield b""
        self._write(thread, done)
        yield b""

    def twin(self, medium: Medium, store: str | None = None) -> Self:
        """Return a copy that knows the key, and has no reason to write anything down."""
        other = super().twin(medium, store)
        other.written = None
        return other

    def _payments(self, thread: str, **options: Any) -> Payments:
        return Payments(self.gate, self._bank, asks=thread in self._asking, **options)

    def _question(self, thread: str) -> Question:
        """Return what a person sees who looks at the verified store.

        Raises:
            Miss: nothing is asked.
        """
        workflow = self._payments(thread).workflow
        question = self.use(lambda ledger: workflow.question(ledger, thread))
        if question is None:
            raise Miss
        return question

    def _rehydrated(
        self, payments: Payments, thread: str, approval: bytes, sequence: int | None = None
    ) -> Run:
        approvals = [approval.decode()] if approval else []
        return self.use(
            lambda ledger: payments.workflow.rehydrate(
                ledger, thread, sequence, approvals=approvals
            )
        )

    def _write(self, thread: str, state: dict[str, Any]) -> None:
        """Append what a worker would, with its key."""
        workflow = self._payments(thread).workflow
        self.twin(self.medium).use(
            lambda ledger: ledger.save(thread, state, app=workflow.app, tools=workflow.tools.digest)
        )

    def _journal(self, *, create: bool = False) -> FileJournal:
        return FileJournal(
            self.journal.folder,
            keys=self._journal_keys,
            anchor=self._journal_anchor,
            create=create,
        )

    def _ledger(self, storage: CheckpointStorage, journal: Journal | None = None) -> Ledger:
        return self.opened or super()._ledger(storage, journal or self.written)
