"""Every refusal of this package is one error of this tree.

```{ .text data-check="subclasses" data-module="safepoint.core.errors" }
CheckpointError
├── InvalidId            a thread or store name outside the grammar
├── NotFound             no such checkpoint
│   └── ThreadDeleted    deleted on purpose, by a signed record
├── Conflict             another writer took that sequence first
├── NotOwner             another worker owns the thread
├── CodecError
│   ├── EncodeError      the state holds what cannot be restored
│   ├── DecodeError      the bytes are not what this codec writes
│   └── PickleRefused    a pickle that is more than data, or none
├── LimitExceeded        too large, too deep, too many
├── SealError
│   ├── RecordMalformed  not a sealed record
│   ├── UnknownKey       sealed by a key that is not on the keyring
│   ├── KeyRevoked       sealed by a key that no longer counts there
│   ├── SealBroken       changed after it was sealed
│   └── WrongPlace       genuine, but of another place
├── AnchorError
│   ├── RolledBack       the store ends before what the anchor has seen
│   ├── Forked           another record stands where the anchored one stood
│   ├── AnchorMismatch   the anchor of another store
│   └── AnchorUnavailable
├── KeyRefused           a key that is unsafe to use
├── StorageError
│   ├── RecordsMissing   gone from the middle of a thread
│   ├── UnsafeLocation   others could change what is stored there
│   ├── StorageFull      no room; nothing was saved
│   ├── StorageRefused   the store's own permissions say no to this credential
│   └── StorageUnavailable
├── WorkflowError
│   ├── WorkflowMismatch the checkpoint belongs to a different workflow
│   └── MigrationFailed  the state could not be carried to this version
├── ResumeError
│   ├── ResumeRefused    the gate says no, and nobody can approve it
│   │   └── WaitEnded    nobody approved it in time
│   ├── ApprovalNeeded   the gate wants a person's yes first
│   ├── ApprovalError
│   │   ├── ApprovalMalformed
│   │   ├── ApprovalUntrusted  unsigned, self-made, of an unknown or revoked key
│   │   ├── ApprovalExpired    too late, or too early
│   │   ├── ApprovalMismatch   genuine, but of something else
│   │   └── ApprovalSpent      used before
│   ├── ThreadHeld       an operator stopped it
│   └── AnswersError
│       ├── AnswersBroken      edited, moved or removed
│       └── AnswersUnavailable
├── JournalError
│   ├── JournalBroken    edited, reordered or cut
│   └── JournalUnavailable
├── ModelError
│   ├── UnsafeRuntime    this PyTorch cannot keep the promise of weights_only
│   ├── UnsafeModel      the file wants more than data
│   ├── ModelMalformed   damaged, or of no format that is loaded
│   ├── ModelMismatch    other tensors than the schema says
│   └── ModelUnsupported safetensors cannot hold it
├── MissingPackage       an optional package is not installed
└── ConfigurationError   an argument of the wrong kind
```

An error says what happened and what to do next, on one line. It carries no state and no key.
"""

from __future__ import annotations

import os
import shlex
from typing import Any


class CheckpointError(Exception):
    """The root of the tree: catch this to catch every refusal.

    Attributes:
        what: what happened, as one sentence.
        do: what to do next, as one or two sentences.
        address: where the site explains it, from its root: `errors/#sealbroken`.
        kind: which of several things of its class it is, in a word; None if there is one alone.
    """

    kind: str | None = None

    def __init__(self, what: str, do: str) -> None:
        super().__init__(what, do)
        self.what = what
        self.do = do
        # A traceback shows this below the message, and `str(error)` stays one line.
        name = _known_as(type(self))
        self.add_note(f"Explained by: safepoint explain {name} (on the site: {_address(name)})")

    def __str__(self) -> str:
        return f"{self.what} {self.do}"

    @property
    def address(self) -> str:  # noqa: D102  among the attributes above
        return _address(_known_as(type(self)))


class InvalidId(CheckpointError, ValueError):
    """A thread or store name is outside the grammar, so it never reaches a file name or a query."""


class NotFound(CheckpointError, LookupError):
    """There is no checkpoint at that place."""


class ThreadDeleted(NotFound):
    """The thread was deleted on purpose. A signed record says so, and its name stays taken."""


class Conflict(CheckpointError):
    """Another writer saved that sequence first. Nothing was overwritten."""


class NotOwner(CheckpointError):
    """Another worker owns the thread by now, or has owned it since. Nothing was saved."""


class CodecError(CheckpointError):
    """State could not be turned into bytes, or bytes into state."""


class EncodeError(CodecError, TypeError):
    """The state holds a value that could not be restored faithfully, so it is not saved."""


class DecodeError(CodecError, ValueError):
    """The bytes are not what this codec writes, so nothing was built from them."""


class PickleRefused(CodecError, ValueError):
    """The pickle asks for more than data, or is none. Nothing in it was run or built."""


class LimitExceeded(CheckpointError, ValueError):
    """A record or state is larger, deeper or has more items than its limit."""


class SealError(CheckpointError):
    """A record failed verification. Nothing in it was decoded."""


class RecordMalformed(SealError):
    """The bytes are not a sealed record: unsealed, cut short, or of another version."""


class UnknownKey(SealError):
    """The record names a key that is not on the keyring."""


class KeyRevoked(SealError):
    """The record is sealed by a key that was revoked before this record's place."""


class SealBroken(SealError):
    """The record was changed after it was sealed."""


class WrongPlace(SealError):
    """The record is genuine but belongs to another store, tenant, thread or sequence."""


class AnchorError(CheckpointError):
    """The store and the anchor do not tell the same story, or the anchor cannot be asked."""


class RolledBack(AnchorError):
    """The store ends before what the anchor has seen: something was cut off or restored."""


class Forked(AnchorError):
    """Where the anchored record stood, another genuine one stands now."""


class AnchorMismatch(AnchorError):
    """The anchor belongs to another store, so it says nothing about this one."""


class AnchorUnavailable(AnchorError):
    """The anchor cannot be read or written right now. Nothing is loaded without it."""


class KeyRefused(CheckpointError):
    """A key is missing, malformed, or readable by others."""


class StorageError(CheckpointError):
    """The storage could not do what was asked."""


class RecordsMissing(StorageError):
    """A record is gone from the middle of a thread, and later ones are there."""


class UnsafeLocation(StorageError):
    """Somebody else could change what is stored at that path."""

    def __init__(self, what: str, do: str, kind: str | None = None) -> None:
        super().__init__(what, do)
        self.kind = kind


class StorageFull(StorageError):
    """There is no room. Nothing was saved, and what was there is intact."""


class StorageRefused(StorageError):
    """The permissions of the store say no to this credential. The message says what was done."""


class StorageUnavailable(StorageError):
    """The storage cannot be reached, read or written right now."""


class WorkflowError(CheckpointError):
    """A workflow or one of its steps is not what a workflow can run."""


class WorkflowMismatch(WorkflowError):
    """The checkpoint was written by a different workflow, or by other steps."""


class MigrationFailed(WorkflowError):
    """A migration raised, or did not return a state. The checkpoint is as it was."""


class ResumeError(CheckpointError, RuntimeError):
    """A run was not resumed. No step ran.

    Attributes:
        question: what to approve or deny, exactly, if it is known: a `Question`.
    """

    question: Any = None


class ResumeRefused(ResumeError):
    """The gate refused the resume for a reason that nobody can approve."""


class ApprovalNeeded(ResumeError):
    """The gate wants a person's approval first."""

    def __init__(self, what: str, do: str, question: Any = None) -> None:
        super().__init__(what, do)
        self.question = question


class ApprovalError(ResumeError):
    """An approval does not count. Nothing was resumed."""


class ApprovalMalformed(ApprovalError):
    """The text is not an approval."""


class ApprovalUntrusted(ApprovalError):
    """The approval is not signed by an approver: unknown, revoked, forged, or the writer itself."""


class ApprovalExpired(ApprovalError):
    """The approval is not valid at this time: too late, or too early."""


class ApprovalMismatch(ApprovalError):
    """The approval is genuine, and of another thread, checkpoint, reason or argument."""


class ApprovalSpent(ApprovalError):
    """The approval was used before, or the thread moved on since it was given."""


class WaitEnded(ResumeRefused):
    """Nobody approved it in time. That is a no, and it is final."""


class ThreadHeld(ResumeError):
    """An operator holds the thread. No step ran, and none runs until the hold is released."""


class AnswersError(ResumeError):
    """The place of the answers cannot vouch for what people said, so nothing goes on."""


class AnswersBroken(AnswersError):
    """An answer or an order was edited, moved or removed."""


class AnswersUnavailable(AnswersError):
    """The place of the answers cannot be written or read right now."""


class JournalError(CheckpointError):
    """The journal cannot vouch for what happened, so nothing goes on without it."""


class JournalBroken(JournalError):
    """An entry of the journal was edited, moved or removed."""


class JournalUnavailable(JournalError):
    """The journal cannot be written or read right now. Nothing was done without it."""


class ModelError(CheckpointError, RuntimeError):
    """A model was not loaded, saved or converted. Nothing in its file was run."""


class UnsafeRuntime(ModelError):
    """This PyTorch cannot keep the promise of `weights_only`, so nothing was loaded."""


class UnsafeModel(ModelError):
    """The file wants more than data: a name that is not on the list, code, or all the memory."""


class ModelMalformed(ModelError):
    """The file is damaged, is two things at once, or is in no format that is loaded."""


class ModelMismatch(ModelError):
    """A tensor is missing, is one too many, or has another shape or type than the schema says."""


class ModelUnsupported(ModelError):
    """The state holds what safetensors cannot, so nothing was saved."""


class MissingPackage(CheckpointError, ImportError):
    """An optional package is not installed. The message says how to get it."""


class ConfigurationError(CheckpointError, TypeError):
    """An argument is of the wrong kind. The message says what to write."""


def missing(what: str, extra: str) -> MissingPackage:
    """Return the error for a package that an extra brings.

    This package is on no index: what has its name there is somebody else's. So it is installed
    from where it came.
    """
    return MissingPackage(
        what,
        "Install safepoint again with its extra, from where you have it. In a copy of the"
        f" repository: pip install '.[{extra}]'",
    )


def _known_as(kind: type[CheckpointError]) -> str:
    """Name the nearest class of this tree: its own, or the one that an application built on."""
    return next(base.__name__ for base in kind.__mro__ if base.__module__ == __name__)


def _address(name: str) -> str:
    return f"errors/#{name.lower()}"


def quoted(value: object) -> str:
    """Show a value that may come from an attacker: ASCII, one line, at most 60 characters."""
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001  a number of 5,000 digits, an object whose repr fails
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:57]}..."


def shell(path: str) -> str:
    """Write a path as one word for a shell: ASCII, on one line, ready to paste."""
    if path.isascii() and path.isprintable():
        return shlex.quote(path)
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:  # no file can have this name
        encoded = path.encode("utf-8", "surrogatepass")
    escaped = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}"
        for byte in encoded
    )
    return f"$'{escaped}'"
