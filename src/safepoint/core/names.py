"""Ids, limits, times, digests and heads: the grammar that all share.

Also how an error of custom code becomes one of this package: `translated`.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32decode, b32encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    InvalidId,
    LimitExceeded,
    RolledBack,
    Unavailable,
    quoted,
)

MAX_SEQUENCE = 9_999_999_999
RESERVED = "safepoint-"
"""The prefix of store names that no ledger may have. Model seals use one of them."""
ANSWERS = "answers"
"""The store name of answers, in their records and in an anchor."""
JOURNAL = "journal"
"""The store name of a journal, unless you give it another name."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
_MARK = re.compile(r"[tbh]--")  # of the names that thread_name makes
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")
_ESCAPED = re.compile(rb"_([0-9a-f]{2})")
_IS_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)


def check_name(kind: str, name: object) -> str:
    """Return `name` if every backend can store it.

    Args:
        kind: what the name is for, as it should read in the message: "thread" or "store".
        name: the value to check; anything but a string is refused as well.

    Raises:
        InvalidId: the name is outside the grammar `[a-z0-9][a-z0-9_-]{0,63}`, or is a device name
            on Windows.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidId(f"{quoted(name)} is not {'an' if kind[0] in 'aeiou' else 'a'} {kind} name.")
    if name in _DEVICES:
        raise InvalidId(
            f"{quoted(name)} is the name of a device on Windows.",
            f"Choose another {kind} name, for example '{name}-1'.",
        )
    return name


def thread_name(text: str) -> str:
    """Return a thread name for any text, for example for an id of another system.

    No two texts get the same name. A text that is already a thread name is returned as it is,
    unless it begins with one of these prefixes: `t--` marks text with escapes, `b--` base32, and
    `h--` a SHA-256 for text that is too long for the other two. `thread_text` returns the text,
    except for the last.

    ```python
    from safepoint.core.names import thread_name, thread_text

    print(thread_name("order-7"), thread_name("Order #7"))
    #> order-7 t--_4frder_20_237
    print(thread_text("t--_4frder_20_237"))
    #> Order #7
    ```

    Raises:
        InvalidId: it is not text.
    """
    if not isinstance(text, str):
        raise InvalidId(f"{quoted(text)} is not text.", "Write thread_name(str(value)).")
    if _NAME.match(text) and text not in _DEVICES and not _MARK.match(text):
        return text
    data = text.encode("utf-8", "surrogatepass")
    escaped = "".join(chr(each) if each in _PLAIN else f"_{each:02x}" for each in data)
    for name in (f"t--{escaped}", f"b--{_base32(data)}"):
        if _NAME.match(name):
            return name
    return f"h--{_base32(hashlib.sha256(data).digest())}"


def thread_text(name: str) -> str | None:
    """Return the text that `thread_name` encoded, or None if the name does not contain it."""
    with suppress(ValueError, TypeError, AttributeError):  # nothing that thread_name has made
        text, coded = name, name[3:].encode("utf-8", "surrogatepass")
        if name.startswith("t--"):
            data = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), coded)
            text = data.decode("utf-8", "surrogatepass")
        elif name.startswith("b--"):
            padded = coded.upper() + b"=" * (-len(coded) % 8)
            text = b32decode(padded).decode("utf-8", "surrogatepass")
        return text if thread_name(text) == name else None
    return None


def _base32(data: bytes) -> str:
    return b32encode(data).decode().rstrip("=").lower()


def journal_of(store: str) -> str:
    """Return the name under which a store's anchor has the heads of its journal.

    `Journal.anchor_end` moves them, once an entry about an answer is written.
    """
    return RESERVED + digest_of(store.encode()).removeprefix("sha256:")[:32]


def check_store(name: object) -> str:
    """Return the name of a ledger's store.

    Raises:
        InvalidId: it is outside the grammar, or kept for this package.
    """
    store = check_name("store", name)
    if store.startswith(RESERVED) or store in (ANSWERS, JOURNAL):
        raise InvalidId(
            f"{quoted(store)} is kept for this package, as is what begins with {RESERVED!r}.",
            "Choose another store name.",
        )
    return store


def check_tenant(name: object, within: str = "") -> str:
    """Return the name of a tenant.

    Args:
        name: the value to check.
        within: the tenant of the caller, if any: a tenant cannot have tenants.

    Raises:
        InvalidId: it is outside the grammar.
        ConfigurationError: it is to be a tenant of a tenant.
    """
    if within:
        raise ConfigurationError(f"This is tenant '{within}', and a tenant has no tenants.")
    return check_name("tenant", name)


def with_tenant(tenant: str, thread: str) -> str:
    """Return a thread as people write it: `order-7`, or `@acme/order-7` if it is a tenant's."""
    return f"@{tenant}/{thread}" if tenant else thread


def check_sequence(sequence: object) -> int:
    """Return `sequence` if it is a whole number from 1 up to `MAX_SEQUENCE`.

    Raises:
        InvalidId: it is anything else, `True` included.
    """
    if type(sequence) is not int or not 1 <= sequence <= MAX_SEQUENCE:
        raise InvalidId(
            f"{quoted(sequence)} is not a sequence number.",
            f"Sequences are whole numbers from 1 to {MAX_SEQUENCE}.",
        )
    return sequence


def check_place(thread: object, sequence: object) -> None:
    """Check the place of a record in a store.

    Raises:
        InvalidId: the thread or the sequence is outside the grammar.
    """
    check_name("thread", thread)
    check_sequence(sequence)


def digest_of(data: bytes) -> str:
    """Return the digest of `data` in the form that records use."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_digest(text: object) -> bool:
    """Tell whether `text` is a digest in the form that records use."""
    return isinstance(text, str) and _IS_DIGEST.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a checkpoint may be. Anything larger is refused with `LimitExceeded`.

    Attributes:
        state_bytes: the encoded state.
        depth: nesting of containers in the state.
        items: values in the encoded state.
    """

    state_bytes: int = 16 * 1024 * 1024
    depth: int = 64
    items: int = 1_000_000

    @property
    def record_bytes(self) -> int:
        """The whole record: the state and the two lines above it."""
        return self.state_bytes + 4096


DEFAULT_LIMITS = Limits()


def too_large(size: int, limit: int) -> LimitExceeded:
    """Return the error for a record that is over the limit."""
    return LimitExceeded(f"The record has {size} bytes or more, and the limit is {limit}.")


def sized(record: bytes, limit: int) -> bytes:
    """Return the record as immutable `bytes`, if it is within the limit.

    Raises:
        LimitExceeded: it is too large.
    """
    if len(data := bytes(record)) > limit:
        raise too_large(len(data), limit)
    return data


def stamp(moment: datetime) -> str:
    """Return an aware time in UTC in the form that all records use."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, order=True)
class Head:
    """The end of a thread: the sequence and the digest of its last record.

    Attributes:
        sequence: of its last record.
        digest: of that record.

    Raises:
        InvalidId: the sequence or the digest is outside its grammar.
    """

    sequence: int
    digest: str

    def __post_init__(self) -> None:
        check_sequence(self.sequence)
        if not is_digest(self.digest):
            raise InvalidId(
                f"{quoted(self.digest)} is not a digest.",
                "Digests are 'sha256:' and 64 hex digits.",
            )

    def __str__(self) -> str:
        return f"#{self.sequence}"


def is_further(thread: str, known: Head | None, head: Head) -> bool:
    """Tell whether an anchor at `known` has to move to `head`.

    Args:
        thread: the thread, for the message.
        known: the current head.
        head: the new one.

    Raises:
        RolledBack: both have the same sequence, and they are not the same record.
    """
    if known is None or head.sequence > known.sequence:
        return True
    if head.sequence == known.sequence and head.digest != known.digest:
        raise RolledBack(
            f"{thread} {head} is not the record that the anchor has seen there.", kind="other"
        )
    return False


class Heads(Protocol):
    """Anything that remembers the heads of threads: an anchor, or a copy of one."""

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head, or None if the thread was never seen."""


@contextmanager
def translated(
    what: str,
    kind: Literal["anchor", "journal"] | None = None,
    to: type[CheckpointError] = Unavailable,
) -> Iterator[None]:
    """Turn any exception of custom code in the block into an error of this package."""
    try:
        yield
    except CheckpointError as error:
        if kind and type(error) is Unavailable:
            error.kind = kind
        raise
    except Exception as error:
        raise to(f"{what}: it raised {type(error).__name__}.", Unavailable.do, kind) from error


def read_head(heads: Any, store: str, thread: str) -> Head | None:
    """Return the head of a thread from an anchor or a copy of one.

    Raises:
        RolledBack: it is the anchor of another store.
        Unavailable: it cannot be asked.
    """
    with translated(f"The anchor could not be asked about {thread}", "anchor"):
        with suppress(InvalidId):  # what it holds is no head
            head = heads.read(store, thread)
            # One that was unpickled, or copied by hand, was never looked at.
            return None if head is None else Head(head.sequence, head.digest)
        raise TypeError
