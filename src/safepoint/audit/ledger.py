"""What is around a store: its anchor, its keys, the approvers' keys, and the journal."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from safepoint.audit.finding import Finding, content, finding, of_tenant, refused
from safepoint.core.anchor import Anchor
from safepoint.core.chain import scoped
from safepoint.core.errors import RolledBack, SealBroken, Unavailable, shell
from safepoint.core.journal import Journal
from safepoint.core.keys import Hidden, Key, VerifyingKey, parse_key
from safepoint.core.ledger import Ledger
from safepoint.core.names import JOURNAL
from safepoint.resume.approval import Approvers
from safepoint.resume.gate import Gate
from safepoint.shared.states import view_of
from safepoint.stores.disk import SUPPORTED

_PATIENCE: Final = 0.2
_LONGEST: Final = 64 * 1024
_SECRET: Final = re.compile(rb"-----BEGIN OPENSSH PRIVATE KEY-----[^-]+-----END[A-Z ]+-----")
# A writer that recovers writes two entries, and may die before the anchor has seen either.
_LAG: Final = 2


def check_anchor(ledger: Ledger, heads: Mapping[tuple[Ledger, str], int]) -> Iterator[Finding]:
    """Compare the threads with the anchor, and look at where it is kept.

    Args:
        ledger: the store.
        heads: of each thread that verifies, with the ledger of its tenant, where it ends.
    """
    if ledger.anchor is None:
        yield finding("SP15.no-anchor", ledger.store)
        return
    # The anchor is asked after the storage: by now it has seen what was saved by then. Some
    # writers may have saved and not anchored yet, so those that seem late get a moment.
    late = [each for each in heads if any(_lag(*each, heads[each]))]
    if late:
        time.sleep(_PATIENCE)
    for each in late:
        yield from of_tenant(each[0].tenant_name, _lag(*each, heads[each]))
    yield from _apart(ledger)


def _lag(ledger: Ledger, thread: str, head: int) -> Iterator[Finding]:
    try:
        anchored = view_of(ledger).anchored(thread)
    except (RolledBack, Unavailable) as refusal:
        yield refused("SP15", refusal, thread)
        return
    if anchored is None:
        yield finding("SP15.never-anchored", thread)
        return
    if head > anchored.sequence:
        yield finding("SP15.behind", thread, head=head, anchored=anchored)


def _apart(ledger: Ledger) -> Iterator[Finding]:
    """Look at where storage and anchor lie, if both are on disk."""
    named = [getattr(each, "path", None) for each in (ledger.storage, ledger.anchor)]
    paths = [Path(each) for each in named if each is not None and Path(each).exists()]
    if len(paths) < 2 or not SUPPORTED:
        return
    storage, anchor = (each.parent if each.is_file() else each for each in paths)
    kept, apart = storage.stat(), anchor.stat()
    writable = apart.st_mode & stat.S_IWUSR and not os.statvfs(anchor).f_flag & os.ST_RDONLY
    if kept.st_uid == apart.st_uid and writable:
        yield finding("SP15.one-owner", str(anchor), user=apart.st_uid, storage=shell(str(storage)))


def check_keys(ledger: Ledger, counts: Counter[str]) -> Iterator[Finding]:
    """Say how many records keys other than the newest still seal."""
    for key in [*ledger.keys][:-1]:
        if counts[key.id]:
            yield finding("SP08.retired-in-use", key.id, count=counts[key.id], store=ledger.store)


def approvers_apart(ledger: Ledger, approvers: Approvers) -> Iterator[Finding]:
    """Look whether a writer has an approver's key."""
    for each in (key.id for key in ledger.keys if key.id in approvers.keys):
        name, _ = approvers.keys[each]
        yield finding("SP19.on-keyring", ledger.store, key=each, name=name)


def check_secrets(ring: Iterable[Key], gate: Gate | None) -> Iterator[Finding]:
    """Look for secret keys of people that count, in the folders of public ones and of a ring."""
    if gate is not None:
        yield from _secrets(ring, gate.approvers, "SP19.secret-here")
        yield from _secrets(ring, gate.operators, "SP21.open-key")


def _secrets(ring: Iterable[Key], people: Approvers, which: str) -> Iterator[Finding]:
    keys = [*ring, *(key for _, key in people.keys.values())]
    for folder in sorted({key.path.parent for key in keys if key.path is not None}):
        for file in _files_in(folder):
            for key_id in dict.fromkeys(_ids(file)):
                if key_id in people.keys and key_id not in people.revoked:
                    yield finding(which, str(file), name=people.keys[key_id][0], key=key_id)


def check_operators(ledger: Ledger, gate: Gate) -> Iterator[Finding]:
    """Look whether people who approve and hold runs have a desk at which to do it."""
    if gate.approvers.keys and gate.answers is None:
        yield finding("SP21.no-answers", ledger.store)
    elif gate.approvers.keys and not gate.operators.names:
        yield finding("SP21.no-operator", ledger.store)


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.is_file())
    except OSError:
        return []


def _ids(file: Path) -> Iterator[str]:
    """Return the id of each secret key in a file that has no passphrase.

    It goes by the bytes: a file that others can read, or that is only linked here, is refused as a
    key and is somebody's secret all the same.
    """
    with suppress(OSError):  # which nobody who runs here can read either
        found = content(os.path.realpath(file), _LONGEST)
        for text in _SECRET.findall(b"" if found is None else found[0].replace(b"\r", b"")):
            parsed = parse_key(Hidden(text))
            if parsed is not None and parsed[0] == "key without a passphrase":
                yield VerifyingKey(parsed[1]).id


def check_journal(
    where: str, place: str, opens: Callable[[], Journal], anchor: Anchor | None
) -> list[Finding]:
    """Verify a journal. Nothing is changed."""
    found = [finding("SP20.no-anchor", where, place=place)] if anchor is None else []
    try:
        counts = opens().counts()
    except (Unavailable, SealBroken) as refusal:
        return [refused("SP20", refusal, where), *found]
    return [*found, *(_behind(where, place, counts, anchor) if anchor is not None else ())]


def _behind(where: str, place: str, counts: dict[str, int], anchor: Anchor) -> Iterator[Finding]:
    """Compare how far the anchor has come with what was verified before."""
    for chain, count in counts.items():
        of, _, thread = chain.rpartition("/")
        known = (scoped(anchor, of[1:]) if of else anchor).read(JOURNAL, thread)
        seen = 0 if known is None else known.sequence
        if count - seen > _LAG:
            yield finding("SP20.behind", where, place=place, chain=chain, count=count, seen=seen)
