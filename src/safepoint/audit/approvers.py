"""Are the approvers' keys where they belong: the public half here, the secret with them alone?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from safepoint.audit.files import content
from safepoint.audit.finding import Finding
from safepoint.errors import KeyRefused, shell
from safepoint.keys import SigningKey, VerifyingKey
from safepoint.keys.files import SECRET
from safepoint.ledger import Ledger


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
        try:
            begins = content(str(file), len(SECRET.magic))
            key = SigningKey.from_file(file) if begins and begins[0] == SECRET.magic else None
        except (OSError, KeyRefused):
            continue
        if key is not None and key.id in names:
            yield _error(
                f"The secret key of {names[key.id]} is here, in {shell(str(file))}, so whoever"
                " runs here could approve in their name.",
                "Let them make a new key where nobody else is, send its public half, and revoke"
                f" this one: Approvers(..., revoked=[{key.id!r}]).",
                str(file),
            )
