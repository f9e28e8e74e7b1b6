"""Safepoint: the guide to checkpoint security that you can run."""

from __future__ import annotations

from safepoint.anchor import Anchor, FileAnchor, InMemoryAnchor
from safepoint.checkpoint import Checkpoint
from safepoint.codec import Codec
from safepoint.errors import (
    AnchorError,
    AnchorMismatch,
    AnchorUnavailable,
    CheckpointError,
    CodecError,
    ConfigurationError,
    Conflict,
    DecodeError,
    EncodeError,
    Forked,
    InvalidId,
    KeyRefused,
    KeyRevoked,
    LimitExceeded,
    NotFound,
    RecordMalformed,
    RecordsMissing,
    RolledBack,
    SealBroken,
    SealError,
    StorageError,
    StorageFull,
    StorageUnavailable,
    ThreadDeleted,
    UnknownKey,
    UnsafeLocation,
    WorkflowError,
    WorkflowMismatch,
    WrongPlace,
)
from safepoint.heads import Head
from safepoint.keys import Keyring, Revoked, SigningKey, VerifyingKey
from safepoint.ledger import Ledger
from safepoint.limits import Limits
from safepoint.storage import (
    CheckpointStorage,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    RetentionStorage,
)
from safepoint.workflow import Run, Workflow

__all__ = [
    "Anchor",
    "AnchorError",
    "AnchorMismatch",
    "AnchorUnavailable",
    "Checkpoint",
    "CheckpointError",
    "CheckpointStorage",
    "Codec",
    "CodecError",
    "ConfigurationError",
    "Conflict",
    "DecodeError",
    "EncodeError",
    "FileAnchor",
    "FileCheckpointStorage",
    "Forked",
    "Head",
    "InMemoryAnchor",
    "InMemoryCheckpointStorage",
    "InvalidId",
    "KeyRefused",
    "KeyRevoked",
    "Keyring",
    "Ledger",
    "LimitExceeded",
    "Limits",
    "NotFound",
    "RecordMalformed",
    "RecordsMissing",
    "RetentionStorage",
    "Revoked",
    "RolledBack",
    "Run",
    "SealBroken",
    "SealError",
    "SigningKey",
    "StorageError",
    "StorageFull",
    "StorageUnavailable",
    "ThreadDeleted",
    "UnknownKey",
    "UnsafeLocation",
    "VerifyingKey",
    "Workflow",
    "WorkflowError",
    "WorkflowMismatch",
    "WrongPlace",
]
