"""What must not be shown: in a message, in a log, or by a tool that reports local variables."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from safepoint.errors import KeyRefused


class Redacted:
    """Shows its type alone, and is neither pickled nor copied."""

    __slots__ = ()

    noun: ClassVar[str] = "A secret"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> NoReturn:
        raise KeyRefused(
            f"{self.noun} is neither pickled nor copied.", "Pass the key file's path instead."
        )

    def __getstate__(self) -> NoReturn:
        self.__reduce__()


class Hidden(Redacted):
    """Bytes on their way between a key and its file."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """Return the bytes."""
        return self._value
