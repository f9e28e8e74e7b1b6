"""Are the approvers' keys where they belong: the public half here, the secret with them alone?"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from safepoint.audit.files import content
from safepoint.audit.finding import Finding
from safepoint.errors import KeyRefused, shell
from safepoint.keys import ED25519, SECRET, SigningKey, VerifyingKey
from safepoint.ledger import Ledger

_LONGEST: Final = 64 * 1024
_SEED: Final = re.compile(
    re.escape(SECRET.magic + b" " + ED25519.encode()) + rb"[ \t]+([A-Za-z0-9+/]{43}=)"
)


def approvers_apart(
    ledger: Ledger, people: Sequence[tuple[str, VerifyingKey]]
) -> Iterator[Finding]:
    """Look at where the keys are, as far as their files are known.

    Args:
        ledger: the store, with the keys that write it.
        people: each approver's name, with one of their keys.
    """
    names = {key.id: name for name, key in people}
    for key in ledger.keys.all:
        if key.id in names:
            yield _error(
                f"Key {key.id} of the approver {names[key.id]} is on the keyring of the ledger, so"
                " a writer could approve its own work.",
                "Give the approver a key of their own: SigningKey.generate('ed25519').",
                ledger.store,
            )
    for name, public in people:
        if public.path is not None:
            yield from _public(ledger, name, public, public.path)
    paths = [key.path for key in (*ledger.keys.all, *(key for _, key in people))]
    for folder in sorted({path.parent for path in paths if path is not None}):
        yield from _secrets(folder, names)


def _error(what: str, do: str, where: str) -> Finding:
    return Finding("SP19", "error", what, do, where)


def _public(ledger: Ledger, name: str, key: VerifyingKey, path: Path) -> Iterator[Finding]:
    shown = shell(str(path))
    try:
        now = VerifyingKey.from_file(path)
    except KeyRefused as refusal:
        yield _error(refusal.what, refusal.do, str(path))
        return
    if not now.is_same_as(key):
        yield _error(
            f"The file {shown} holds another key of {name} by now.",
            f"Ask {name} for the id of their key, and compare it with what is there.",
            str(path),
        )
    storage = getattr(ledger.storage, "path", None)
    if isinstance(storage, (str, os.PathLike)) and path.is_relative_to(os.path.realpath(storage)):
        yield _error(
            f"The public key {shown} of {name} is inside the storage folder.",
            "Whoever writes the storage could put another in its place. Move it to a folder of its"
            f" own, and compare its id with what {name} says.",
            str(path),
        )


def _secrets(folder: Path, names: dict[str, str]) -> Iterator[Finding]:
    """Look for an approver's secret next to the keys that this machine uses."""
    try:
        files = sorted(file for file in folder.iterdir() if file.is_file())
    except OSError:
        return
    for file in files:
        for key in dict.fromkeys(_ids(file)):
            if key in names:
                yield _error(
                    f"The secret key of {names[key]} is here, in {shell(str(file))}, so whoever"
                    " runs here could approve in their name.",
                    "Let them make a new key where nobody else is, send its public half, and revoke"
                    f" this one: Approvers(..., revoked=[{key!r}]).",
                    str(file),
                )


def _ids(file: Path) -> Iterator[str]:
    """Return the id of each secret key in a file.

    It goes by the bytes: a file that others can read, or that is only linked here, is refused as a
    key, and is somebody's secret all the same.
    """
    try:
        found = content(os.path.realpath(file), _LONGEST)
    except OSError:
        return  # which nobody who runs here can read either
    for seed in _SEED.findall(b"" if found is None else found[0]):
        yield SigningKey(base64.b64decode(seed), ED25519).id
