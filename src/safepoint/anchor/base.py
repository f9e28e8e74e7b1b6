"""What an anchor is, for those who use one and for those who write one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from safepoint.errors import ConfigurationError, Forked
from safepoint.names import Head


class Anchor(Protocol):
    """Remembers how far each thread had come, where the storage's writer cannot write.

    A signed chain shows an edit. It does not show that its end was cut off, that a thread is gone,
    or that last week's copy was restored: what is left is genuine. The anchor shows these.

    Write your own in ten lines, for a database, a bucket or a service that you have:

    ```python
    from safepoint import Head
    from safepoint.anchor import is_further


    class DictAnchor:
        def __init__(self):
            self._heads = {}
        def read(self, store, thread):
            return self._heads.get((store, thread))
        def advance(self, store, thread, head):
            if is_further(thread, self.read(store, thread), head):
                self._heads[store, thread] = head
        def threads(self, store):
            return [thread for owner, thread in self._heads if owner == store]


    anchor = DictAnchor()
    anchor.advance("invoices", "order-7", Head(2, "sha256:" + "b" * 64))
    anchor.advance("invoices", "order-7", Head(1, "sha256:" + "a" * 64))  # older: ignored
    print(anchor.read("invoices", "order-7"))
    #> #2
    ```

    What yours must guarantee, and what this dict does not:

    - **Monotonic**: a head never moves back, whoever calls and in whichever order.
    - **Atomic**: the comparison and the write are one step for all processes that share it (a
      lock, a transaction, a compare-and-set), and a reader sees the old head or the new one.
    - **Durable**: when `advance` returns, the head survives a crash of the machine.
    - **Out of reach**: it is written under a credential that the storage's other writers do not
      have. An anchor that they can write protects from nothing.
    - **Never silent**: if it cannot be asked, it raises `AnchorUnavailable`. None means that the
      thread was never seen, and nothing else.
    """

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
        """

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`. One that is older than what is known, or the same, is ignored.

        Raises:
            Forked: another record is known at that sequence. The anchor stays as it is.
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be written. It still holds the head it had.
        """

    def threads(self, store: str) -> Iterable[str]:
        """Return the name of each thread of the store that was ever seen.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
        """


def is_further(thread: str, known: Head | None, head: Head) -> bool:
    """Tell whether an anchor that knows `known` has to move to `head`.

    Args:
        thread: the thread, for the message.
        known: what the anchor holds.
        head: what it is asked to hold.

    Raises:
        Forked: both have the same sequence, and they are not the same record.
        ConfigurationError: `head` is not a head.
    """
    checked(head)
    if known is None or head.sequence > known.sequence:
        return True
    if head.sequence == known.sequence and head.digest != known.digest:
        raise Forked(
            f"{thread} {head} is not the record that the anchor has seen there.",
            "Two copies of the store are in use, or one was rewritten. The anchor was not moved:"
            " find out which copy is the right one before you save again.",
        )
    return False


def checked(head: object) -> Head:
    """Return `head` if it is one.

    Raises:
        ConfigurationError: it is something else.
    """
    if not isinstance(head, Head):
        raise ConfigurationError(
            f"A head was asked for, and {type(head).__name__} was given.",
            "Pass safepoint.record.Head(sequence, digest).",
        )
    return head
