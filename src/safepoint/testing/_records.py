"""RecordClaims: what holds for the four methods of every storage."""

from __future__ import annotations

from typing import Any, Final

from safepoint.errors import CheckpointError, Conflict, EncodeError, InvalidId, NotFound
from safepoint.names import MAX_SEQUENCE
from safepoint.testing._suite import (
    FORGETTING,
    LEASING,
    NotOffered,
    Suite,
    expect,
    fill,
    refused,
    same,
)

REQUIRED: Final = ("append", "read", "head", "threads")
LARGE: Final = 1_000_000
# Names that a query, a file system or a loose column type may take for one another.
NAMES: Final = ("a", "a-", "a_b", "a-b", "axb", "0", "00", "1", "01", "1e0", "null", "a" * 64)
ODD_NAMES: Final[tuple[Any, ...]] = (
    *("", ".", "..", "../x", "a/b", "a\\b", "a\0", "a\n", "A", "-x", "_x", " ", "con", "com1"),
    *("\u0430", "\xe4", "a" * 65, "a'b", 'a"b', "a%", "a;b", None, 7, b"a", True),
)
ODD_SEQUENCES: Final[tuple[Any, ...]] = (0, -1, True, 1.0, "1", None, MAX_SEQUENCE + 1, 2**64)
NOT_BYTES: Final[tuple[Any, ...]] = ("text", None, 7, [1], {"a": 1})


class RecordClaims(Suite):
    """Append, read, head and threads."""

    def test_methods_come_in_whole_sets(self) -> None:
        """It has the four methods, and of pruning and leasing all methods or none."""
        storage = self.storage()

        def has(method: str) -> bool:
            return callable(getattr(storage, method, None))

        for method in REQUIRED:
            expect(has(method), f"A storage must have the method {method}.")
        for methods in (FORGETTING, LEASING):
            found = [method for method in methods if has(method)]
            expect(
                not found or len(found) == len(methods),
                f"A storage that has {', '.join(found)} must have all of {', '.join(methods)}.",
            )

    def test_a_record_comes_back_byte_for_byte(self) -> None:
        """What was appended is read back as `bytes`, exactly, also empty or a megabyte long."""
        storage = self.storage()
        every = bytes(range(256))
        records = [b"", every, b"\r\n\0\n\x1a", "\ufeff\xe4".encode(), (every * 4000)[:LARGE]]
        for sequence, record in enumerate(records, start=1):
            storage.append("a", sequence, record)
        for _ in range(2):
            for sequence, record in enumerate(records, start=1):
                found = storage.read("a", sequence)
                expect(
                    type(found) is bytes and found == record,
                    f"A record of {len(record)} bytes must come back exactly, as bytes.",
                )

    def test_a_second_record_at_a_place_is_refused(self) -> None:
        """Nothing is ever overwritten, not even by the same bytes."""
        storage = self.storage()
        fill(storage, 2)
        for again in (b"another", b"record 1", b""):
            refused(Conflict, "A second record at a place", storage.append, "a", 1, again)
        same(storage.read("a", 1), b"record 1", "The first record must stay.")
        same(storage.head("a"), 2, "A refused record must not move the head.")

    def test_a_refused_record_leaves_nothing(self) -> None:
        """After a refusal everything is as it was, and the next record is taken."""
        storage = self.storage()
        fill(storage, 2)
        refused(Conflict, "A second record at a place", storage.append, "a", 2, b"late")
        same(storage.head("a"), 2, "A refused record must not move the head.")
        same(sorted(storage.threads()), ["a"], "A refused record must not make a thread.")
        fill(storage, 3, first=3)
        found = [storage.read("a", sequence) for sequence in (1, 2, 3)]
        same(found, [b"record 1", b"record 2", b"record 3"], "It must go on after a refusal.")

    def test_a_refusal_shows_no_record(self) -> None:
        """No message carries what a record holds."""
        storage = self.storage()
        storage.append("a", 1, b"canary-one")
        said = refused(Conflict, "A second record", storage.append, "a", 1, b"canary-two")
        said += refused(NotFound, "A read of what is not there", storage.read, "a", 2)
        expect("canary" not in said, "A refusal must not show a record.")

    def test_threads_do_not_mix(self) -> None:
        """Each thread has its own records and its own head, however alike the names are."""
        storage = self.storage()
        for number, name in enumerate(NAMES):
            fill(storage, 1 + number % 3, thread=name)
            storage.append(name, 2 + number % 3, name.encode())
        for number, name in enumerate(NAMES):
            last = 2 + number % 3
            same(storage.head(name), last, f"The head of thread {name} must be its own.")
            same(storage.read(name, last), name.encode(), f"Thread {name} must keep its own.")
        same(sorted(storage.threads()), sorted(NAMES), "Each thread must be listed by its name.")

    def test_the_head_is_the_highest_sequence(self) -> None:
        """It is 0 for a thread without a record, and a number, not a text, above."""
        storage = self.storage()
        same(storage.head("a"), 0, "The head of a thread without a record is 0.")
        for sequence in range(1, 13):
            fill(storage, sequence, first=sequence)
            same(storage.head("a"), sequence, "The head must be the highest sequence.")

    def test_each_thread_is_listed_once(self) -> None:
        """A thread is listed from its first record on, and not because somebody asked for it."""
        storage = self.storage()
        same(list(storage.threads()), [], "An empty storage has no thread.")
        storage.head("asked")
        refused(NotFound, "A read of what is not there", storage.read, "asked", 1)
        for name in ("b", "a", "c"):
            fill(storage, 3, thread=name)
        same(sorted(storage.threads()), ["a", "b", "c"], "Each thread must be listed once.")

    def test_what_is_not_there_is_not_found(self) -> None:
        """A read of no record is `NotFound`: not None, not a `KeyError`."""
        storage = self.storage()
        fill(storage, 2)
        for thread, sequence in (("a", 3), ("a", MAX_SEQUENCE), ("b", 1)):
            refused(NotFound, "A read of what is not there", storage.read, thread, sequence)

    def test_a_buffer_is_copied(self) -> None:
        """Who changes a buffer after `append`, or uses it again, changes nothing stored."""
        storage = self.storage()
        buffer = bytearray(LARGE)
        try:
            for sequence, view in ((1, buffer), (2, memoryview(buffer))):
                buffer[:] = b"%d" % sequence * LARGE
                storage.append("a", sequence, view)
            buffer[:] = b"x" * LARGE
        except EncodeError:
            return  # to refuse a buffer is as safe
        for sequence in (1, 2):
            found = storage.read("a", sequence)
            expect(
                type(found) is bytes and found == b"%d" % sequence * LARGE,
                "A buffer that was appended must be kept as a copy, in bytes.",
            )

    def test_odd_names_are_refused(self) -> None:
        """A name outside the grammar reaches no file and no query."""
        storage = self.guarding(self.storage())
        for name in ODD_NAMES:
            for call, rest in (
                (storage.append, (1, b"")),
                (storage.read, (1,)),
                (storage.head, ()),
            ):
                refused(InvalidId, f"The name {ascii(name)[:70]}", call, name, *rest)
        same(list(storage.threads()), [], "A refused name must not make a thread.")
        beside = [path.name for path in self.folder.parent.iterdir()]
        same(beside, [self.folder.name], "A refused name must not make a file.")

    def test_odd_sequences_are_refused(self) -> None:
        """A sequence is a whole number from 1 up, and `True` is none."""
        storage = self.guarding(self.storage())
        for sequence in ODD_SEQUENCES:
            what = f"The sequence {sequence!r}"
            refused(InvalidId, what, storage.append, "a", sequence, b"")
            refused(InvalidId, what, storage.read, "a", sequence)
        same(list(storage.threads()), [], "A refused sequence must not make a thread.")

    def test_what_is_not_bytes_is_refused(self) -> None:
        """A record that is not bytes is an `EncodeError`, and nothing is kept of it."""
        storage = self.guarding(self.storage())
        for record in NOT_BYTES:
            what = f"A record of the type {type(record).__name__}"
            refused(EncodeError, what, storage.append, "a", 1, record)
        same(storage.head("a"), 0, "What is not bytes must not be kept.")

    def test_a_place_out_of_order_is_refused(self) -> None:
        """A record goes behind the last one. A storage may leave that to the ledger."""
        storage = self.storage()
        fill(storage, 2)
        try:
            storage.append("a", 4, b"after a gap")
        except CheckpointError:
            same(storage.head("a"), 2, "A refused record must not move the head.")
            refused(NotFound, "A read of what was refused", storage.read, "a", 4)
            fill(storage, 3, first=3)
        else:
            raise NotOffered("It keeps a record at any free place: the ledger sees to the order.")

    def test_another_opening_sees_each_record(self) -> None:
        """What one opening has appended, another sees at once, and the other way round."""
        storage, other = self.storage(), self.another()
        for sequence, (writer, reader) in enumerate(((storage, other), (other, storage)), start=1):
            fill(writer, sequence, first=sequence)
            same(reader.head("a"), sequence, "Another opening must see the new head.")
            found = reader.read("a", sequence)
            same(found, b"record %d" % sequence, "Another opening must see the record.")
            same(list(reader.threads()), ["a"], "Another opening must see the thread.")
            what = "A place that another opening has filled"
            refused(Conflict, what, reader.append, "a", sequence, b"late")

    def test_it_is_all_there_when_it_is_opened_again(self) -> None:
        """Nothing depends on the object, or on how it was closed."""
        storage = self.storage()
        fill(storage, 12)
        if not self.shared:
            raise NotOffered("It lives in one process: shared = False.")
        self.closed(storage)
        again = self.another()
        same(again.head("a"), 12, "A new opening must find the head.")
        same(again.read("a", 12), b"record 12", "A new opening must find the record.")
        fill(again, 13, first=13)
        same(again.head("a"), 13, "A new opening must go on.")
