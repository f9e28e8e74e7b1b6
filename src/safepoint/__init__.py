"""Safepoint: the guide to checkpoint security that you can run."""

from __future__ import annotations

from safepoint.core.anchor import InMemoryAnchor
from safepoint.core.codec import Codec
from safepoint.core.errors import (
    ApprovalNeeded,
    CheckpointError,
    Conflict,
    LimitExceeded,
    NotFound,
    NotOwner,
    RolledBack,
    SealBroken,
)
from safepoint.core.journal import Actor, InMemoryJournal
from safepoint.core.keys import Keyring, SigningKey, VerifyingKey
from safepoint.core.ledger import Ledger
from safepoint.core.names import Limits
from safepoint.core.record import Checkpoint
from safepoint.core.storage import InMemoryCheckpointStorage
from safepoint.places import open_ledger
from safepoint.resume.approval import Approver, Approvers
from safepoint.resume.gate import Gate, Policy, Tool, ToolSet
from safepoint.resume.workflow import Ask, Workflow
from safepoint.stores.files import FileCheckpointStorage
from safepoint.stores.sqlite import SQLiteAnchor, SQLiteCheckpointStorage, SQLiteJournal

__all__ = [
    "Actor",
    "ApprovalNeeded",
    "Approver",
    "Approvers",
    "Ask",
    "Checkpoint",
    "CheckpointError",
    "Codec",
    "Conflict",
    "FileCheckpointStorage",
    "Gate",
    "InMemoryAnchor",
    "InMemoryCheckpointStorage",
    "InMemoryJournal",
    "Keyring",
    "Ledger",
    "LimitExceeded",
    "Limits",
    "NotFound",
    "NotOwner",
    "Policy",
    "RolledBack",
    "SQLiteAnchor",
    "SQLiteCheckpointStorage",
    "SQLiteJournal",
    "SealBroken",
    "SigningKey",
    "Tool",
    "ToolSet",
    "VerifyingKey",
    "Workflow",
    "open_ledger",
]
