"""Following a journal line by line: each genuine, each upon the one before."""

from __future__ import annotations

from typing import Final

from safepoint.errors import AnchorError, JournalBroken, JournalUnavailable, UnknownKey
from safepoint.journal import _text
from safepoint.journal.event import Entry
from safepoint.keys import Keyring
from safepoint.names import Head

THREAD: Final = "journal"
"""The thread under which an anchor keeps the head of a journal."""

_RESTORE: Final = (
    "Nothing is appended to it. Keep this copy, find out who can write the journal, and restore"
    " one that verifies."
)


class Chain:
    """Verifies lines in their order. It touches no disk.

    Args:
        name: the journal's.
        keys: which keys to trust.
        head: the entry after which the lines follow. None if they begin with the first.
        known: an entry that must be among them, or before them.
        witness: who has seen that one, for the message.
        anywhere: take the first line as it comes, and go on from there.
    """

    def __init__(
        self,
        name: str,
        keys: Keyring,
        head: Head | None = None,
        *,
        known: Head | None = None,
        witness: str = "the anchor",
        anywhere: bool = False,
    ) -> None:
        self._name = name
        self._keys = keys
        self._until: dict[str, Head | None] = {}
        self._known = known
        self._witness = witness
        self._anywhere = anywhere
        self.head = head

    def follow(self, line: bytes, where: str) -> Entry:
        """Return the entry of a line, and expect the next one after it.

        Args:
            line: the bytes, with the line break.
            where: the file, for the message, as a word for a shell.

        Raises:
            JournalBroken: it was edited, moved, or follows upon something else.
            JournalUnavailable: how far a revoked key counts cannot be read.
        """
        shown = self._shown(where)
        if len(line) > _text.LINE_BYTES:
            raise too_long(shown)
        frame = _text.frame(line[:-1]) if line.endswith(b"\n") else None
        if frame is None:
            raise JournalBroken(f"{shown} is not a line of a journal.", _RESTORE)
        try:
            key = self._keys.find(frame.key)
        except UnknownKey as unknown:
            raise JournalBroken(
                f"{shown} cannot be verified. {unknown.what}",
                "If that key is one of yours, add it with Keyring(..., verify=[key]). If not,"
                " somebody else wrote the line.",
            ) from None
        if not key.verify(_text.signed(frame.entry), frame.signature):
            raise JournalBroken(
                f"{shown} was changed after it was written, or somebody else wrote it.", _RESTORE
            )
        parsed = _text.parse(frame.entry, frame.key)
        if parsed is None:
            raise JournalBroken(
                f"{shown} is an entry that this release did not write.",
                "Check that its writer runs a released version of safepoint with the same format.",
            )
        if parsed.journal != self._name:
            raise JournalBroken(
                f"{shown} is an entry of the journal {parsed.journal}, not of {self._name}.",
                _RESTORE,
            )
        self._check_place(parsed.entry, shown)
        self._check_revoked(parsed.entry, shown)
        self.head = Head(parsed.entry.number, parsed.entry.digest_of_entry)
        self._check_known()
        self._anywhere = False
        return parsed.entry

    def check_end(self) -> None:
        """Check that the journal does not end before what is known of it.

        Raises:
            JournalBroken: it does.
        """
        if self._known is None:
            return
        if self.head is None or self.head.sequence < self._known.sequence:
            ends = "is empty" if self.head is None else f"ends at entry {self.head.sequence}"
            raise JournalBroken(
                f"The journal {self._name} {ends}, and {self._witness} has seen entry"
                f" {self._known.sequence}.",
                "Its newest lines were cut off, or an old copy was restored. Put the whole journal"
                " back, and find out who did that.",
            )
        self._check_known()

    def _check_known(self) -> None:
        if (
            self._known is not None
            and self.head is not None
            and self.head.sequence == self._known.sequence
            and self.head.digest != self._known.digest
        ):
            raise JournalBroken(
                f"Entry {self.head.sequence} of the journal {self._name} is not the one that"
                f" {self._witness} has seen.",
                "Two copies of the journal are in use, or one was written anew. Find out which is"
                " the right one.",
            )

    def _shown(self, where: str) -> str:
        if self._anywhere:
            return f"A line in {where}"
        if self.head is None:
            return f"The first line in {where}"
        return f"The line after entry {self.head.sequence} in {where}"

    def _check_place(self, entry: Entry, shown: str) -> None:
        if self._anywhere:
            return
        number = 1 if self.head is None else self.head.sequence + 1
        if entry.number != number:
            raise JournalBroken(
                f"{shown} is entry {entry.number}, where entry {number} belongs: lines were"
                " removed, moved or repeated.",
                _RESTORE,
            )
        if entry.previous != (None if self.head is None else self.head.digest):
            raise JournalBroken(
                f"{shown} was written after another entry {number - 1} than the one that is there.",
                _RESTORE,
            )

    def _check_revoked(self, entry: Entry, shown: str) -> None:
        revoked = self._keys.revoked(entry.key)
        if revoked is None:
            return
        if entry.key not in self._until:
            try:
                self._until[entry.key] = revoked.head(self._name, THREAD)
            except AnchorError as refusal:
                raise JournalUnavailable(refusal.what, refusal.do) from refusal
        until = self._until[entry.key]
        if until is None or not (
            entry.number < until.sequence or Head(entry.number, entry.digest_of_entry) == until
        ):
            last = "here" if until is None else f"after entry {until.sequence}"
            raise JournalBroken(
                f"{shown} is signed by key {entry.key}, which was revoked and does not count"
                f" {last}.",
                "Whoever stole that key may have written it. Restore what was there before, and"
                " record with the new key.",
            )


def too_long(shown: str) -> JournalBroken:
    """Return the refusal of a line that no writer of this package made."""
    return JournalBroken(f"{shown} has more than {_text.LINE_BYTES} bytes.", _RESTORE)


def refused(what: str) -> JournalBroken:
    """Return the refusal of something else that is wrong with the files."""
    return JournalBroken(what, _RESTORE)
