"""Safepoint: the guide to checkpoint security that you can run."""

from __future__ import annotations

from safepoint.checkpoint import Checkpoint
from safepoint.codec import Codec
from safepoint.errors import (
    CheckpointError,
    CodecError,
    ConfigurationError,
    Conflict,
    DecodeError,
    EncodeError,
    InvalidId,
    KeyRefused,
    LimitExceeded,
    NotFound,
    RecordMalformed,
    RecordsMissing,
    SealBroken,
    SealError,
    StorageError,
    StorageFull,
    StorageUnavailable,
    UnknownKey,
    UnsafeLocation,
    WorkflowError,
    WorkflowMismatch,
    WrongPlace,
)
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.limits import Limits
from safepoint.storage import (
    CheckpointStorage,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
)
from safepoint.workflow import Run, Workflow

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointStorage",
    "Codec",
    "CodecError",
    "ConfigurationError",
    "Conflict",
    "DecodeError",
    "EncodeError",
    "FileCheckpointStorage",
    "InMemoryCheckpointStorage",
    "InvalidId",
    "KeyRefused",
    "Keyring",
    "Ledger",
    "LimitExceeded",
    "Limits",
    "NotFound",
    "RecordMalformed",
    "RecordsMissing",
    "Run",
    "SealBroken",
    "SealError",
    "SigningKey",
    "StorageError",
    "StorageFull",
    "StorageUnavailable",
    "UnknownKey",
    "UnsafeLocation",
    "Workflow",
    "WorkflowError",
    "WorkflowMismatch",
    "WrongPlace",
]
