"""What the deployments of the zoo are made of. Modes are set, so that no umask matters."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from safepoint import (
    Actor,
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
    SQLiteJournal,
)
from safepoint.core.journal import Event
from safepoint.models import save_checkpoint
from tests.house import rewrite
from tests.unit.commands import named

NAME: Final = "invoices"
THREAD: Final = "order-7"


class Command:
    """A pickle of it runs a command: this one names a folder that nobody makes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("zoo-marker",)


EVIL: Final = pickle.dumps(Command(), 4)
PLAIN: Final = pickle.dumps({"amount": 42, "payee": "alice"}, 4)


def write(path: Path, data: bytes | str, mode: int = 0o600) -> Path:
    """Write a file, with folders that only this user can enter."""
    folder(path.parent)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(mode)
    return path


def folder(path: Path, mode: int = 0o700) -> Path:
    """Make a folder, and those above it, with that mode if it is new."""
    if not path.exists():
        folder(path.parent)
        path.mkdir()
        path.chmod(mode)
    return path


def key(root: Path, name: str = "key") -> SigningKey:
    """Return a key of the deployment, which is made where there is none."""
    folder(root)
    return SigningKey.from_file(root / "keys" / name, create=True)


class Deployed:
    """A store of three checkpoints in one thread, with its key and its anchor, each apart.

    Attributes:
        root: the folder of all of it.
        storage: where the records are: a folder, or a file of SQLite.
        ledger: the store.
    """

    def __init__(
        self, root: Path, *, database: bool = False, tenant: str = "", name: str = NAME
    ) -> None:
        self.root, self.anchor = folder(root), root / "anchor/heads.db"
        self.storage = root / ("state/checkpoints.db" if database else "state")
        kept: Any = (SQLiteCheckpointStorage if database else FileCheckpointStorage)(self.storage)
        heads: Any = SQLiteAnchor(self.anchor, create=True)
        ring = Keyring(key(root))
        self.ledger = Ledger(kept, store=name, keys=ring, anchor=heads)
        self.save(tenant=tenant)

    def save(self, thread: str = THREAD, tenant: str = "", count: int = 3) -> None:
        """Save some checkpoints."""
        ledger = self.ledger.tenant(tenant) if tenant else self.ledger
        for amount in range(count):
            ledger.save(thread, {"amount": amount})

    def record(self, sequence: int, thread: str = THREAD) -> Path:
        """Return the file of a record."""
        return self.storage / f"{thread}/{sequence:010d}.checkpoint"

    def closed(self) -> Deployed:
        """Close what is open in SQLite."""
        for each in (self.ledger.storage, self.ledger.anchor):
            if isinstance(each, SQLiteCheckpointStorage | SQLiteAnchor):
                each.close()
        return self

    def arguments(self, **parts: object) -> list[str]:
        """Return what to give to the command, with other or more parts of the store."""
        usual: dict[str, Any] = {"key": [self.root / "keys/key"], "anchor": self.anchor}
        usual |= {"name": NAME, "storage": self.closed().storage, **parts}
        return named(self.root.with_name("settings.toml"), **usual)


def journal(root: Path, at: str = "journal") -> dict[str, object]:
    """Make a journal with its own key and anchor, and return these parts of a store."""
    keys = Keyring(key(root, "journal"))
    with (
        SQLiteAnchor(root / "journal-anchor/heads.db", create=True) as heads,
        SQLiteJournal(root / at / "journal.db", keys=keys, anchor=heads, create=True) as kept,
    ):
        for _ in range(3):
            kept.record(Event("resume", "done", Actor("ana", "login"), NAME, THREAD))
    return {
        "journal": root / at / "journal.db",
        "journal_key": [root / "keys/journal"],
        "journal_anchor": root / "journal-anchor/heads.db",
    }


def safetensors(path: Path, *, sealed: SigningKey | None = None) -> Path:
    """Write a model of one tensor as PyTorch's own tools would, with a seal beside it if asked."""
    folder(path.parent)
    if sealed is not None:
        import torch

        save_checkpoint(path, {"weight": torch.ones(2)}, key=sealed)
        return path
    header = json.dumps({"weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
    text = header.encode().ljust(-(-len(header) // 8) * 8)
    return write(path, len(text).to_bytes(8, "little") + text + bytes(8))


def torch_file(path: Path, *, legacy: bool = False) -> Path:
    """Write a model as torch.save does."""
    import torch

    file = io.BytesIO()
    torch.save({"weight": torch.ones(2)}, file, _use_new_zipfile_serialization=not legacy)
    return write(path, file.getvalue())


def zipped(members: dict[str, bytes]) -> bytes:
    """Return a zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def database(path: Path, *statements: str, mode: int = 0o600) -> Path:
    """Write a file of SQLite. Its triggers are gone meanwhile, as for anybody who can write it."""
    folder(path.parent)
    rewrite(path, *statements)
    path.chmod(mode)
    return path


def based(data: bytes) -> str:
    """Return base64."""
    return base64.b64encode(data).decode()


Build = Callable[[Path], list[str] | None]
