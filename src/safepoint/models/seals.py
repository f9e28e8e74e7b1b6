"""The seal of a model: a record of its own next to the file, bound to the file's digest.

`model.safetensors.seal` is a sealed record as a ledger writes them, readable with `cat`. Its state
names the digest of the whole file and holds what else belongs to the checkpoint.

The digest is BLAKE3, which takes a tenth of the time of SHA-256: `b3sum` prints the same one.
"""

from __future__ import annotations

import json
import mmap
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, NamedTuple

from safepoint.core.codec import Codec
from safepoint.core.errors import DecodeError, InvalidId, LimitExceeded, NotFound, SealBroken, shell
from safepoint.core.keys import Keyring, SigningKey
from safepoint.core.names import DEFAULT_LIMITS, RESERVED, check_name, thread_name, thread_text
from safepoint.core.record import Place, open_sealed, seal
from safepoint.models.look import opened
from safepoint.models.tensors import package

ENDING: Final = ".seal"
STORE: Final = f"{RESERVED}models"
"""The store that these records say they are of. No ledger's record passes for one of them."""

_CODEC: Final = Codec()


def digest(file: BinaryIO | IO[bytes], size: int) -> str:
    """Return `blake3:` and 64 hex digits for the first bytes of an open file.

    Raises:
        MissingPackage: blake3 is not installed.
    """
    blake3 = package("blake3").blake3
    with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
        # In one thread: a process that was forked has no other of its library.
        return f"blake3:{blake3(mapped).hexdigest()}"


class Sealed(NamedTuple):
    """What a seal says of a model file.

    Attributes:
        name: the model's name, which the seal is bound to.
        digest: the digest of the file.
        size: its bytes.
        rest: what else belongs to the checkpoint, still encoded; None if the file is everything.
    """

    name: str
    digest: str
    size: int
    rest: bytes | None = None


def name_of(path: str, name: str | None) -> str:
    """Return the name of a model: the given one, or that of its file, as `thread_name` writes it.

    All of it but the ending counts: a seal of model.v1 must not pass for one of model.v2.

    """
    with suppress(InvalidId):
        return check_name("model", name)
    return thread_name(Path(path).stem if name is None else name)


def make_seal(sealed: Sealed, key: SigningKey, *, app: str = "") -> bytes:
    """Return the text of a seal."""
    state: dict[str, Any] = {"bytes": sealed.size, "digest": sealed.digest}
    if sealed.rest is not None:
        state["rest"] = sealed.rest
    place = Place(STORE, "", sealed.name, 1)
    encoded, now = _CODEC.encode(state), datetime.now(UTC)
    return seal(encoded, place, key, created=now, app=app, use="model")[0]


def read_seal(path: str, keys: Keyring, name: str | None = None) -> Sealed:
    """Verify the seal next to a model file, and return what it says.

    Raises:
        NotFound: there is no seal.
        Unavailable: it cannot be read.
        SealBroken: it is not genuine, or of another model.
    """
    shown, beside = shell(path), path + ENDING
    place = Place(STORE, "", name_of(path, name), 1)
    try:
        with opened(beside) as file:
            record = file.read(DEFAULT_LIMITS.record_bytes + 1)
    except NotFound:
        raise NotFound(
            f"{shown} has no seal: {shell(beside)} is missing.",
            "Nothing was loaded. Copy the seal along with the model, or ask the author to seal"
            f" it. If that was you: safepoint seal-model {shown} --key KEY",
        ) from None
    try:
        payload = open_sealed(record, place, keys, use="model").payload
    except (SealBroken, LimitExceeded) as error:  # let it speak of the file
        if error.kind in ("place", "tenant"):
            header = json.loads(record.split(b"\n", 2)[1])
            sealed = shell(thread_text(header["thread"]) or header["thread"])
            raise SealBroken(
                f"{shown} is sealed as {sealed} in {header['store']}.",
                f"If you renamed it, give its name, {sealed} (name=, or --name). If not,"
                " somebody put it there: restore the one that belongs there.",
                "place",
            ) from None
        what = f"The seal of {shown} does not verify. {error.what}"
        do = (
            "Nothing was loaded. Give the key that sealed it (keys=, or --key). If that was it, the"
            " file or its seal was changed: restore both."
        )
        raise type(error)(what, do, error.kind) from None
    with suppress(DecodeError, LookupError, TypeError):
        state = _CODEC.decode(payload)
        return Sealed(place.thread, state["digest"], state["bytes"], state.get("rest"))
    raise SealBroken(
        f"The seal of {shown} does not speak of a model.",
        "Nothing was loaded. Seal the model again with save_checkpoint or seal_model.",
    )


def seal_beside(path: str) -> str | None:
    """Return where the seal of a model file is, links followed, or None if there is nothing."""
    places = (path, os.path.realpath(path)) if os.path.islink(path) else (path,)  # noqa: PTH114
    return next(filter(os.path.lexists, (each + ENDING for each in places)), None)
