"""An invoice that waits for people, a bank that pays once per key, and the store around them."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from safepoint import (
    Approver,
    Approvers,
    Ask,
    FileCheckpointStorage,
    Gate,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteJournal,
    Tool,
    Workflow,
)
from safepoint.resume.workflow import Call

State = dict[str, Any]

STORE = "invoices"
WRITER = SigningKey(bytes(range(32)))
JOURNAL = SigningKey(bytes(range(1, 33)))
DANA_KEY = SigningKey(bytes(range(2, 34)))
ERIN_KEY = SigningKey(bytes(range(3, 35)))
DANA, ERIN = Approver("dana", DANA_KEY), Approver("erin", ERIN_KEY)
APPROVERS = Approvers({"dana": DANA_KEY.public, "erin": ERIN_KEY.public})


@dataclass(frozen=True)
class Bank:
    """A folder with a file per payment. It pays once per key, whoever asks how often.

    A file appears whole: a bank that forgot the amount would be no witness.
    """

    path: Path

    def pay(self, key: str, arguments: dict[str, Any]) -> None:
        self.path.mkdir(exist_ok=True)
        temp = self.path / f".{os.getpid()}"
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(fd, json.dumps(arguments).encode())
        os.close(fd)
        with suppress(FileExistsError):
            os.link(temp, self.path / quote(key, safe=""))
        temp.unlink()

    @property
    def payments(self) -> dict[str, dict[str, Any]]:
        """What was paid, by key."""
        if not self.path.exists():
            return {}
        files = [file for file in self.path.iterdir() if not file.name.startswith(".")]
        return {unquote(file.name): json.loads(file.read_bytes()) for file in sorted(files)}


@dataclass(frozen=True)
class Place:
    """A folder with a store, its anchor, its journal and the bank."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> Place:
        path.mkdir(mode=0o700)
        place = cls(path)
        SQLiteAnchor(path / "anchor/heads.db", create=True)
        SQLiteJournal(path / "journal/journal.db", keys=Keyring(JOURNAL), create=True)
        place.ledger()
        return place

    @property
    def bank(self) -> Bank:
        return Bank(self.path / "bank")

    def journal(self) -> SQLiteJournal:
        return SQLiteJournal(self.path / "journal/journal.db", keys=Keyring(JOURNAL))

    def ledger(self) -> Ledger:
        """A ledger as a new process opens it."""
        return Ledger(
            FileCheckpointStorage(self.path / "store"),
            store=STORE,
            keys=Keyring(WRITER),
            anchor=SQLiteAnchor(self.path / "anchor/heads.db"),
            journal=self.journal(),
        )

    def workflow(self, version: str = "1") -> Workflow:
        """An invoice: what it pays comes out of what people signed."""

        def fetch(state: State) -> State:
            return {"payee": "alice"}

        def ask(state: State) -> Ask:
            return Ask("pay", {"amount": state["amount"], "payee": state["payee"]})

        def pay(state: State, call: Call) -> State:
            approved = call.approved
            assert approved.action == "pay"
            self.bank.pay(call.key, approved.arguments)
            return {"paid": approved.arguments["amount"]}

        return Workflow(
            "invoice",
            [fetch, ask, pay],
            version=version,
            tools=[Tool("bank", permissions=["pay"])],
            gate=Gate(approvers=APPROVERS),
            migrations={"1": migrated} if version == "2" else {},
        )


def migrated(state: State) -> State:
    """A migration that shows if it ran twice."""
    return {**state, "migrations": state.get("migrations", 0) + 1}
