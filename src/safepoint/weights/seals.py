"""The seal of a model: a record of its own beside the file, bound to the file's digest.

`model.safetensors.seal` is a sealed record as a ledger writes them, readable with `cat`. Its state
names the digest of the whole file, and holds what else belongs to the checkpoint.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from safepoint._files import opened
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    InvalidId,
    LimitExceeded,
    NotFound,
    RecordMalformed,
    SealBroken,
    SealError,
    StorageUnavailable,
    WrongPlace,
    shell,
)
from safepoint.keys import Keyring, SigningKey
from safepoint.names import DEFAULT_LIMITS, RESERVED, check_name
from safepoint.record import Header, Opened, Place, open_sealed, seal

ENDING: Final = ".seal"
STORE: Final = f"{RESERVED}models"
"""The store that these records say they are of. No ledger's record passes for one of them."""

REST_BYTES: Final = DEFAULT_LIMITS.state_bytes
"""How long the rest of a checkpoint may be, encoded."""

_STATE: Final = re.compile(
    rb'\{"bytes":([1-9][0-9]{0,17}),"digest":"(sha256-tree:[0-9a-f]{64})","rest":(.+)\}', re.DOTALL
)
_NOTHING: Final = b"null"


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a seal says of a model file.

    Attributes:
        name: the model's name, which the seal is bound to.
        digest: the digest of the file.
        size: its bytes.
        rest: what else belongs to the checkpoint, still encoded; None if the file is all of it.
    """

    name: str
    digest: str
    size: int
    rest: bytes | None = field(default=None, repr=False)


def name_of(path: str, name: str | None) -> str:
    """Return the name of a model: the given one, or that of its file.

    Raises:
        InvalidId: it is outside the grammar of names.
    """
    if name is not None:
        return check_name("model", name)
    try:
        # All of it but the ending: a seal of model.v1 must not pass for one of model.v2.
        return check_name("model", Path(path).stem)
    except InvalidId as error:
        raise InvalidId(
            f"The name of {shell(path)} cannot be that of a model.",
            f"Pass one, when you save and when you load: name=… {error.do}",
        ) from None


def make_seal(sealed: Sealed, key: SigningKey, *, app: str = "") -> bytes:
    """Return the text of a seal.

    Raises:
        ConfigurationError: the key is none.
        InvalidId: the name or the app is outside its grammar.
        LimitExceeded: the rest is too large.
    """
    if not isinstance(key, SigningKey):
        raise ConfigurationError(
            f"A model is sealed with a SigningKey, not with {type(key).__name__}.",
            'Write key=SigningKey.from_file("model.key").',
        )
    rest = check_rest(sealed.rest or _NOTHING)
    # Canonical JSON, as a codec would write it: the rest comes out of one.
    state = b'{"bytes":%d,"digest":"%b","rest":%b}' % (sealed.size, sealed.digest.encode(), rest)
    place = Place(STORE, sealed.name, 1)
    record, _ = seal(state, place, key, created=datetime.now(UTC), app=app)
    return record


def check_rest(rest: bytes) -> bytes:
    """Return the rest of a checkpoint, if it fits into a seal.

    Raises:
        LimitExceeded: it does not.
    """
    if len(rest) > REST_BYTES:
        raise LimitExceeded(
            f"Besides its tensors the checkpoint holds over {REST_BYTES} bytes.",
            "Save large arrays of numbers as tensors.",
        )
    return rest


def read_seal(path: str, keys: Keyring, name: str | None = None) -> Sealed:
    """Verify the seal beside a model file, and return what it says.

    Raises:
        ConfigurationError: the keys are none.
        NotFound: there is no seal.
        StorageUnavailable: it cannot be read.
        SealError: it is not genuine, or of another model.
    """
    if not isinstance(keys, Keyring):
        raise ConfigurationError(
            f"A seal is verified with a Keyring, not with {type(keys).__name__}.",
            "Write keys=Keyring(SigningKey.from_file(…)), or for a public key"
            " Keyring(verify=[VerifyingKey.from_file(…)]).",
        )
    place = Place(STORE, name_of(path, name), 1)
    found = _opened(path, place, keys)
    state = _STATE.fullmatch(found.payload)
    if state is not None:
        rest = None if state[3] == _NOTHING else state[3]
        return Sealed(place.thread, state[2].decode(), int(state[1]), rest)
    raise RecordMalformed(
        f"The seal of {shell(path)} does not speak of a model.",
        "Nothing was loaded. Seal the model anew with save_checkpoint or seal_model.",
    )


def _opened(path: str, place: Place, keys: Keyring) -> Opened:
    """Open the record beside a file, and let a refusal speak of the file."""
    record = _read(path, DEFAULT_LIMITS.record_bytes + 1)
    try:
        return open_sealed(record, place, keys)
    except WrongPlace:
        problem: CheckpointError = _elsewhere(path, record)
    except (SealError, LimitExceeded) as error:
        what = error.what.replace(
            f"The state of {place}", f"The state in the seal of {shell(path)}"
        )
        what = what.replace(f"{place} is sealed by", f"{shell(path)} is sealed by")
        problem = type(error)(what.replace(str(place), f"The seal of {shell(path)}"), error.do)
    raise problem


def _elsewhere(path: str, record: bytes) -> WrongPlace:
    """Say what a genuine record is the seal of, if not of this file."""
    header = Header.parse(record.split(b"\n", 2)[1])
    if header is None or (header.store, header.sequence, header.kind) != (STORE, 1, "state"):
        return WrongPlace(
            f"The seal of {shell(path)} is a genuine record, and not one of a model.",
            "Nothing was loaded. Somebody put it there: restore the model's own seal.",
        )
    return WrongPlace(
        f"{shell(path)} is sealed as {header.thread}.",
        f"If you renamed it, pass name={header.thread!r}. If not, somebody put it there: restore"
        " the one that belongs there.",
    )


def has_seal(path: str) -> bool:
    """Tell whether there is anything where the seal of a model file would be, links followed."""
    return seal_beside(path) is not None


def seal_beside(path: str) -> str | None:
    """Return where the seal of a model file is, links followed, or None if there is nothing."""
    places = (each + ENDING for each in (path, os.path.realpath(path)))
    return next(filter(os.path.lexists, places), None)


def check_digest(path: str, sealed: Sealed, size: int, digest: Callable[[], str]) -> None:
    """Go on if the file is the one that was sealed.

    Raises:
        SealBroken: it is another.
    """
    if size != sealed.size or digest() != sealed.digest:
        raise SealBroken(
            f"{shell(path)} is not the file that was sealed as {sealed.name}.",
            "Nothing was loaded. Find out who can write it, then restore the one that verifies.",
        )


def _read(path: str, most: int) -> bytes:
    file = path + ENDING
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with opened(file, flags) as descriptor:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return _read_all(descriptor, most)
            raise StorageUnavailable(
                f"{shell(file)} is not a regular file.", "Mend that, and load again."
            )
    except FileNotFoundError:
        raise NotFound(
            f"{shell(path)} has no seal: there is no {shell(file)}.",
            "Nothing was loaded. Bring the seal along with the model, or ask whoever made it to"
            f" seal it. If that was you: python -m safepoint.weights seal {shell(path)} --key KEY",
        ) from None
    except OSError as error:
        raise StorageUnavailable(
            f"{shell(file)} cannot be read ({error.strerror}).", "Mend that, and load again."
        ) from None


def _read_all(descriptor: int, most: int) -> bytes:
    data = b""
    while len(data) < most and (more := os.read(descriptor, most - len(data))):
        data += more
    return data
