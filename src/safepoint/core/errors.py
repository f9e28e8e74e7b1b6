"""Every refusal of this package is one error of this tree.

```{ .text data-check="subclasses" data-module="safepoint.core.errors" }
CheckpointError
├── InvalidId            a name, sequence or digest outside its grammar
├── NotFound             no such checkpoint
│   └── ThreadDeleted    deleted on purpose, by a signed record
├── Conflict             another writer took that sequence first
├── NotOwner             another worker owns the thread, or an operator holds it
├── EncodeError          the state holds what cannot be restored
├── DecodeError          the bytes are not the data that is read here
├── LimitExceeded        too large, too deep, too many
├── SealBroken           a record is not what was sealed for its place
├── RolledBack           the history is not the one that was seen before
├── Unavailable          the storage, anchor, journal or answers cannot be used
│   └── Unsafe           a place, key or runtime that others could use
├── ResumeRefused        the run is not resumed and no step ran
├── ApprovalNeeded       the gate wants a person's approval first
├── ApprovalRefused      an approval that does not count
├── ModelRefused         a model that is not loaded, saved or converted
├── MissingPackage       an optional package is not installed
└── ConfigurationError   an argument or a setting that cannot be used
```

An error says what happened and what to do next, on one line. It carries no state and no key.
"""

from __future__ import annotations

import os
import shlex
from typing import Any, Literal

_PartKind = Literal["anchor", "journal", "answers", "refused"]
_PlaceKind = Literal["hard-link", "link", "other-kind", "other-owner", "replaceable", "replaced"]
_AwayKind = Literal[_PartKind, _PlaceKind, "stranger", "writable"]
_SealKind = Literal["form", "key", "place", "tenant", "chain", "journal", "answers"]
_ApprovalKind = Literal["form", "key", "mismatch", "used", "moved"]
_ChainKind = Literal["missing", "other"]
_SizeKind = Literal["memory", "pickle"]
_RunKind = Literal["held", "ended", "busy"]
ErrorKind = Literal[_RunKind, _AwayKind, _SealKind, _ApprovalKind, _ChainKind, _SizeKind]
"""Which of several things of its class an error is."""


class CheckpointError(Exception):
    """The root of the tree: catch this to catch every refusal.

    Attributes:
        what: what happened, as one sentence.
        do: what to do next, as one or two sentences.
        address: where the site explains it, from its root: `errors/#sealbroken`.
        kind: which of several things of its class it is, in a word; None if there is only one.
    """

    do = "Look up its name: the site says what to do first."
    kind: ErrorKind | None = None

    def __init__(self, what: str, do: str | None = None, kind: ErrorKind | None = None) -> None:
        self.what = what
        self.do = do or self.do
        super().__init__(self.what, self.do)
        self.kind = kind
        # A traceback shows this below the message, and `str(error)` stays one line.
        name = _name_of(type(self))
        self.add_note(f"Explained by: safepoint explain {name} (on the site: {_address(name)})")

    def __str__(self) -> str:
        return f"{self.what} {self.do}"

    @property
    def address(self) -> str:  # noqa: D102  among the attributes above
        return _address(_name_of(type(self)))


class InvalidId(CheckpointError, ValueError):
    """A name, sequence or digest is outside its grammar: it reaches no file name and no query."""

    do = "Use 1 to 64 of a-z, 0-9, '-' and '_', and start with a letter or digit."


class NotFound(CheckpointError, LookupError):
    """There is no checkpoint at that place."""

    do = "Check the name, and the path."


class ThreadDeleted(NotFound):
    """The thread was deleted on purpose. A signed record says so, and its name stays taken."""

    do = "Its name stays taken. Start a thread of another name."


class Conflict(CheckpointError):
    """Another writer saved that sequence first. Nothing was overwritten.

    Its kind: "busy" if another run of a LangGraph thread continues, or continued first.
    """

    do = "Nothing was overwritten. Load the latest checkpoint, and decide again from there."


class NotOwner(CheckpointError):
    """Another worker owns the thread, or an operator holds it: stop. Nothing was saved.

    Its kind: "held" if an operator holds it.
    """

    do = "Nothing was saved. Own the thread, or pass worker=NAME. If another worker has it, stop."


class EncodeError(CheckpointError, TypeError):
    """The state holds a value that could not be restored faithfully, so it is not saved."""

    do = "Save plain values in its place: text, finite numbers, dates, lists and dicts."


class DecodeError(CheckpointError, ValueError):
    """The bytes are not the data that is read here, so nothing was built from them, or run."""

    do = "Nothing was built from it. Find out who wrote it."


class LimitExceeded(CheckpointError, ValueError):
    """A record or state is larger, deeper or has more items than its limit.

    Its kind: "memory" if a model does not fit into the memory, "pickle" if it is over a limit of
    `PickleLimits`.
    """

    do = "Save a reference to what is large in its place, or raise the limit if it is all yours."


class SealBroken(CheckpointError):
    """A record is not what was sealed for its place. Nothing in it was decoded.

    Its kind: "form" if it is not a sealed record, "key" if no known key sealed it, "place" if
    it is genuine and of another place, "tenant" if that is another tenant's, "chain" if it is
    genuine and its neighbour is another one, "journal" or "answers" if it is of those.
    """

    do = (
        "Nothing was decoded. Do not use it: find out who can write the store, then restore a copy"
        " that verifies."
    )


class RolledBack(CheckpointError):
    """The history is not the one that was seen before: cut off, set back, or another one.

    Its kind: "missing" if a record is gone and later ones are there, "other" if another record
    is where the known one was.
    """

    do = (
        "Find out who did that, and restore a copy that verifies. Only if none is left, accept the"
        " loss by name: Ledger.accept_loss."
    )


class Unavailable(CheckpointError):
    """A part cannot be reached, read or written right now. Nothing was done without it.

    Its kind: "anchor", "journal" or "answers" if it is not the storage,
    "refused" if the permissions of the store say no to this credential.
    """

    do = "Fix what the message names, and try again."


class Unsafe(Unavailable, RuntimeError):
    """A place, a key or a runtime that others could use or have changed, or a key that is none.

    Its kind, of a place: "writable", "link", "replaced" and others, as the audit names them.
    """

    do = "Find out who could use it, and replace what they may have read or changed."


class ResumeRefused(CheckpointError, RuntimeError):
    """A run was not resumed and no step ran. It stays so until something changes.

    Its kind: "ended" if nobody approved it in time.

    Attributes:
        question: what to approve or deny, exactly, if it is known: a `Question`.
        by: the name of the person who denied it, or "".
        reason: why, if they stored a reason with their denial.
    """

    do = "No step ran. Start a new thread, if what it does is still wanted."
    question: Any = None
    by: str = ""
    reason: str = ""


class ApprovalNeeded(CheckpointError, RuntimeError):
    """The gate wants a person's approval first."""

    def __init__(self, what: str, do: str, question: Any = None) -> None:
        super().__init__(what, do)
        self.question = question


class ApprovalRefused(CheckpointError, RuntimeError):
    """An approval does not count and nothing was resumed: forged, late, used, or of another run.

    Its kind: "form" if the text is not an approval, "key" if its key is not listed, "mismatch" if
    it answers another question, "used" if that was answered before, "moved" if it was not, and the
    run has gone on.

    Attributes:
        question: what to approve or deny, exactly, if it is known: a `Question`.
    """

    do = "Nothing was done with it. Ask people again, about what is asked now."
    question: Any = None


class ModelRefused(CheckpointError, RuntimeError):
    """A model was not loaded, saved or converted. Nothing in its file was run."""

    do = "Nothing was loaded. If you made it, save its state_dict again; if not, load it nowhere."


class MissingPackage(CheckpointError, ImportError):
    """An optional package is not installed. The message says how to get it."""


class ConfigurationError(CheckpointError, TypeError):
    """An argument or a setting cannot be used. The message says what to write."""

    do = "Nothing was done. Correct that, and try again."


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


def _name_of(kind: type[CheckpointError]) -> str:
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
