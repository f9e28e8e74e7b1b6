"""Safepoint: the guide to checkpoint security that you can run."""

from __future__ import annotations

from safepoint.anchor import FileAnchor, InMemoryAnchor, SQLiteAnchor
from safepoint.approval import Approver, Approvers
from safepoint.codec import Codec
from safepoint.errors import (
    AnchorError,
    ApprovalNeeded,
    CheckpointError,
    Conflict,
    LimitExceeded,
    NotFound,
    NotOwner,
    RolledBack,
    SealBroken,
    SealError,
)
from safepoint.gate import Gate, Policy
from safepoint.journal import Actor, FileJournal, InMemoryJournal
from safepoint.keys import Keyring, SigningKey, VerifyingKey
from safepoint.ledger import Ledger
from safepoint.names import Limits
from safepoint.places import open_ledger
from safepoint.record import Checkpoint
from safepoint.storage import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    SQLiteCheckpointStorage,
)
from safepoint.tools import Tool, ToolSet
from safepoint.workflow import Ask, Workflow

__all__ = [
    "Actor",
    "AnchorError",
    "ApprovalNeeded",
    "Approver",
    "Approvers",
    "Ask",
    "Checkpoint",
    "CheckpointError",
    "Codec",
    "Conflict",
    "FileAnchor",
    "FileCheckpointStorage",
    "FileJournal",
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
    "SealBroken",
    "SealError",
    "SigningKey",
    "Tool",
    "ToolSet",
    "VerifyingKey",
    "Workflow",
    "open_ledger",
]
