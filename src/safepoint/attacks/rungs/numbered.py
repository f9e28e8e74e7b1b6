"""What the home-made rungs have in common: numbered records, written and renamed into place."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from safepoint.attacks.target import BOTH, Target


class Refused(Exception):
    """The refusal of a home-made store."""


class Numbered(Target):
    """A store that keeps record 7 of thread `order` as `order.7.record`.

    A rung says how a state becomes a record and back. Where records lie, and who may put what
    there, none of these rungs asks.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = (Refused,)
    media = BOTH

    @abstractmethod
    def pack(self, thread: str, number: int, state: dict[str, Any]) -> bytes:
        """Return the record of a state."""

    @abstractmethod
    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Return the state in a record.

        Raises:
            Refused: this rung does not accept it.
        """

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Write the record under a temporary name, then rename it."""
        number = self.following(thread)
        name = self.place(thread, number)
        self.medium.write(f"{name}.tmp", self.pack(thread, number, state))
        self.medium.rename(f"{name}.tmp", name)

    def following(self, thread: str) -> int:
        """Return the number of the next record."""
        return max(self.numbers(thread), default=0) + 1

    def latest(self, thread: str) -> Any:
        """Open the record with the highest number."""
        return self.load(thread, self.numbers(thread)[-1])

    def history(self, thread: str) -> list[Any]:
        """Open every record."""
        return [self.load(thread, number) for number in self.numbers(thread)]

    def load(self, thread: str, sequence: int) -> Any:
        """Open the record with that number."""
        return self.unpack(thread, sequence, self.medium.read(self.place(thread, sequence)))

    def numbers(self, thread: str) -> list[int]:
        """Return the numbers of the thread's records, in order."""
        return self._found(thread)

    def records(self, thread: str) -> list[str]:
        """Return the names of the thread's records, in order."""
        return [self.place(thread, number) for number in self._found(thread)]

    def _found(self, thread: str) -> list[int]:
        parts = [name.rsplit(".", 2) for name in self.medium.names()]
        return sorted(int(part[1]) for part in parts if part[::2] == [thread, "record"])

    def place(self, thread: str, sequence: int) -> str:
        """Return the name of a record."""
        return f"{thread}.{sequence}.record"

    def ahead(self, thread: str) -> list[str]:
        """Return the next temporary name, and the name after it."""
        (name,) = super().ahead(thread)
        return [f"{name}.tmp", name]
