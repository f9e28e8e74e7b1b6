"""Are the keys young, apart from what they seal, and fewer than they were?"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from safepoint.audit.contents import keys_inside
from safepoint.audit.finding import Finding
from safepoint.audit.reading import view_of
from safepoint.errors import AnchorError, CheckpointError, ConfigurationError, KeyRefused, shell
from safepoint.keys import HMAC, Key, Keyring
from safepoint.ledger import Ledger
from safepoint.verify import storage_errors

_DAY: Final = 86_400


def check_keys(
    keys: Keyring,
    path: str | os.PathLike[str] | None = None,
    now: datetime | None = None,
    max_age_days: int = 365,
    *,
    ledger: Ledger | None = None,
) -> list[Finding]:
    """Look at the keys of a store, at their files, and at what they still seal.

    What is wrong with the mode or the owner of a key's file is said when the key is loaded.

    ```python
    from datetime import UTC, datetime, timedelta

    from safepoint import Keyring, SigningKey
    from safepoint.audit import check_keys

    keys = Keyring(SigningKey.from_file("keys/signing.key", create=True))
    print(check_keys(keys))
    #> []
    for finding in check_keys(keys, now=datetime.now(UTC) + timedelta(days=400)):
        print(finding.rule, finding.severity, finding.what.split("/keys/")[1])
        #> SP08 warning signing.key is 400 days old, and the limit is 365.
    ```

    Args:
        keys: the ring.
        path: the folder of the storage, to look for keys that lie in it.
        now: what to reckon the age from, with a time zone; the present if None.
        max_age_days: how old the file of the newest key may be. Older keys of a ring are there
            because it was rotated, so their age is no finding.
        ledger: the store, to count what each key seals. A record counts if its seal verifies,
            whether its key was revoked or not; what to say of the others is for `check_records`.

    Returns:
        Under SP08, an error for each key that lies in the storage folder; a warning if the newest
        key is older than the limit, and for a revoked key that still seals records; a note for a
        retired key that does or does not, and for a reader that holds a key with which it could
        write.

    Raises:
        ConfigurationError: `keys` is not a keyring, or `now` has no time zone.
        StorageUnavailable: there is no such folder.
    """
    if not isinstance(keys, Keyring):
        raise ConfigurationError(
            f"check_keys was given {type(keys).__name__} as keys.", "Give it a Keyring."
        )
    moment = datetime.now(UTC) if now is None else now
    if moment.tzinfo is None:
        raise ConfigurationError(
            "The time to reckon from has no time zone.", "Write now=datetime.now(UTC)."
        )
    findings = [] if path is None else keys_inside(path, keys)
    findings += _age(_newest(keys), moment.timestamp(), max_age_days)
    findings += _readers(keys)
    if ledger is not None:
        findings += _in_use(keys, ledger)
    return findings


def _newest(keys: Keyring) -> Key | None:
    trusted = [key for key in keys if keys.revoked(key.id) is None]
    return trusted[-1] if trusted else None


def _age(key: Key | None, now: float, limit: int) -> Iterator[Finding]:
    if key is None or key.path is None:
        return
    with suppress(OSError):
        days = int((now - key.path.stat().st_mtime) // _DAY)
        if days > limit:
            yield Finding(
                "SP08",
                "warning",
                f"By the time of its file, the key {shell(str(key.path))} is {days} days old, and"
                f" the limit is {limit}.",
                "Practise the rotation: seal with a new key, and keep this one to verify, by"
                " keyring.rotated(SigningKey.generate()).",
                str(key.path),
            )


def _signs(keys: Keyring) -> bool:
    try:
        return bool(keys.signing.id)
    except KeyRefused:
        return False


def _readers(keys: Keyring) -> Iterator[Finding]:
    if _signs(keys):
        return
    for key in keys:
        if key.algorithm == HMAC and keys.revoked(key.id) is None:
            yield Finding(
                "SP08",
                "note",
                f"This ring only verifies, and key {key.id} on it is an HMAC key, with which a"
                " reader could also seal.",
                "Seal with an Ed25519 key, and give readers its public half: key.public.",
                key.id,
            )


def _in_use(keys: Keyring, ledger: Ledger) -> Iterator[Finding]:
    newest = _newest(keys)
    if all(key is newest for key in keys):
        return
    counts, complete = _counts(keys, ledger)
    for key in keys:
        count = counts[key.id]
        name = "records of store {} still name" if count > 1 else "record of store {} still names"
        still = f"{count} {name.format(ledger.store)} key {key.id}"
        if count and keys.revoked(key.id) is not None:
            yield Finding(
                "SP08",
                "warning",
                f"{still}, which is revoked.",
                "Those from before the theft count. Seal them anew under your key, with"
                " Ledger.copy_to, and take this one off the ring.",
                key.id,
            )
        elif count and key is not newest:
            yield Finding(
                "SP08",
                "note",
                f"{still}, which is retired.",
                "Keep it on the ring to verify them, or seal them anew with Ledger.copy_to.",
                key.id,
            )
        elif complete and key is not newest:
            yield Finding(
                "SP08",
                "note",
                f"Key {key.id} seals no record of store {ledger.store} any more.",
                "Take it off the ring: a key that nobody needs can only be stolen.",
                key.id,
            )


def _counts(keys: Keyring, ledger: Ledger) -> tuple[Counter[str], bool]:
    """Count records by the key that sealed them, and tell whether those are all.

    What names a key and does not verify by it proves nothing: whoever can write the storage could
    make it look as if a key that is needed were not.
    """
    counts: Counter[str] = Counter()
    complete = True
    view = view_of(ledger, Keyring(verify=[keys.find(key.id) for key in keys]))
    try:
        threads = ledger.threads()
    except AnchorError:
        complete = False
        with storage_errors("list", "the threads"):
            threads = sorted(ledger.storage.threads())
    for thread in threads:
        try:
            head = view.reach(thread, view.anchored(thread))
            base = view.base(thread)
            if base is not None:
                counts[base.key] += 1
            first = 1 if base is None else base.header.sequence
            for sequence in range(first, head + 1):
                try:
                    counts[view.open(thread, sequence).key] += 1
                except CheckpointError:
                    complete = False
        except CheckpointError:
            complete = False
    return counts, complete
