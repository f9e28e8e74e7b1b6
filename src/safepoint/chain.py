"""Heads and links: does what is stored continue what is known?

These functions decide; they touch no disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from safepoint.errors import Forked, RolledBack, WrongPlace
from safepoint.heads import Head
from safepoint.seal import Opened


@dataclass(frozen=True, slots=True)
class Witness:
    """Who saw a head, and what to do when the store says otherwise.

    Attributes:
        name: as it should read in a message.
        cut_off: what to do when the store ends earlier.
        replaced: what to do when another record stands there.
    """

    name: str
    cut_off: str
    replaced: str


ANCHOR: Final = Witness(
    "the anchor",
    "Checkpoints were cut off, or an older copy was restored. Nothing was loaded: put back what is"
    " missing, or accept the loss by name with Ledger.accept_loss.",
    "Two histories exist, and the store shows the other one. Nothing was loaded: restore the copy"
    " that the anchor knows, and replace the key if nobody rewrote it on purpose.",
)
PROCESS: Final = Witness(
    "this process",
    "Checkpoints were cut off, or an older copy was restored, while it ran. Put back what is"
    " missing; if you restored on purpose, open the ledger anew.",
    "The record was replaced while it ran. Find out who can write the store; if you restored on"
    " purpose, open the ledger anew.",
)


def check_reaches(thread: str, head: int, known: Head | None, witness: Witness) -> None:
    """Refuse a thread that ends before what is known of it.

    Args:
        thread: the thread, for the message.
        head: the last sequence in the storage, asked after `known` was.
        known: the head as it was last seen.
        witness: who saw it.

    Raises:
        RolledBack: records were cut off, or an older copy was restored.
    """
    if known is not None and head < known.sequence:
        gone = f"ends at #{head}" if head else "is gone"
        raise RolledBack(f"{thread} {gone}, and {witness.name} has seen {known}.", witness.cut_off)


def check_is(opened: Opened, known: Head, witness: Witness) -> None:
    """Refuse a record that is not the one that is known to stand at its place.

    Raises:
        Forked: another genuine record stands there: there are two heads, and this is the wrong one.
    """
    if opened.digest != known.digest:
        raise Forked(
            f"{opened.header.thread} {known} is not the record that {witness.name} has seen there.",
            witness.replaced,
        )


def check_follows(opened: Opened, previous: str | None) -> None:
    """Refuse a record that does not continue the one before it.

    Raises:
        WrongPlace: one of the two was replaced.
    """
    header = opened.header
    if header.previous != previous:
        raise WrongPlace(
            f"{header.thread} #{header.sequence} does not follow the #{header.sequence - 1} that"
            " is stored.",
            "One of the two was replaced. Restore both from a copy that verifies.",
        )
