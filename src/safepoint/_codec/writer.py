"""One run of an encoder: it spends the limits as it goes, and knows where it stopped."""

from __future__ import annotations

import re
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as escape
from typing import Any, Final

from safepoint.errors import LimitExceeded
from safepoint.limits import Limits

_PLAIN: Final = (dict, list, tuple, set, frozenset, bytes, str, int, float)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]{1,24}\Z")
_REGISTRABLE: Final = ("__dataclass_fields__", "__members__", "model_validate")


class Refusal(Exception):
    """Why a value is not written. The way to it is collected while the exception unwinds."""

    def __init__(self, what: str, do: str) -> None:
        super().__init__(what, do)
        self.what = what
        self.do = do
        self.steps: list[str] = []

    @property
    def sentence(self) -> str:
        """What happened, with the place inside the state where it did."""
        return f"state{''.join(reversed(self.steps))} {self.what}"


class Writer:
    """The table of types, and what is left of each limit.

    Attributes:
        find: `get` of the table from type to the function that writes it.
        depth: levels of containers that are left.
        items: values of the text that are left, counted as `check_shape` counts them. Scalars
            take theirs off unchecked; the next container, or the end, notices.
        rebuilt: a value was written that only the caller's own class can bring back.
    """

    __slots__ = ("_limits", "_room", "depth", "find", "items", "rebuilt")

    def __init__(self, table: dict[type, Write], limits: Limits) -> None:
        self.find = table.get
        self.depth = limits.depth
        self.items = limits.items
        self.rebuilt = False
        self._room = limits.state_bytes
        self._limits = limits

    def run(self, value: object) -> str:
        """Return the text of a whole state.

        Raises:
            LimitExceeded: it is too deep, too large or has too many values.
            Refusal: it holds a value that could not be restored faithfully.
        """
        text = self.write(value)
        if self.items < 0:
            raise self._too_many()
        if len(text) > self._limits.state_bytes:
            raise self._too_large()
        return text

    def write(self, value: object) -> str:
        """Return the text of one value."""
        return self.find(type(value), refuse)(self, value)

    def enter(self, items: int) -> None:
        """Go into a container whose text holds `items` values more. Leave by `depth += 1`.

        Raises:
            LimitExceeded: that is one level or one value too many.
        """
        self.depth -= 1
        self.items -= items
        if self.depth < 0:
            raise LimitExceeded(
                f"The state is nested deeper than {self._limits.depth} levels, or contains itself.",
                "Save a flatter state, with ids in place of objects inside objects.",
            )
        if self.items < 0:
            raise self._too_many()

    def string(self, value: str) -> str:
        """Return a string in quotes.

        Raises:
            Refusal: it holds half a character, which no UTF-8 file or database could keep.
            LimitExceeded: there is no room left.
        """
        if not (value.isascii() or _encodes(value)):
            raise Refusal(
                "holds a lone surrogate, which is half a character.",
                "Replace it before you save, for example with "
                "text.encode(errors='replace').decode().",
            )
        text = escape(value)
        self._room -= len(text)
        if self._room < 0:
            raise self._too_large()
        return text

    def spend(self, text: str) -> str:
        """Return `text`, and take its length off the room that is left.

        Raises:
            LimitExceeded: there is no room left.
        """
        self._room -= len(text)
        if self._room < 0:
            raise self._too_large()
        return text

    def _too_many(self) -> LimitExceeded:
        return LimitExceeded(
            f"The state holds more than {self._limits.items} values.",
            "Keep large data elsewhere and save a reference to it, or raise Limits.items.",
        )

    def _too_large(self) -> LimitExceeded:
        return LimitExceeded(
            f"The state takes more than {self._limits.state_bytes} bytes when encoded.",
            "Keep large data elsewhere and save a reference to it, or raise Limits.state_bytes.",
        )


Write = Callable[[Writer, Any], str]
Revive = Callable[[Any], Any]


def out_of_resources() -> LimitExceeded:
    """Return the error for limits that promise more than the process has."""
    return LimitExceeded(
        "The state is nested too deep, or is too large, for this process.",
        "Save a flatter or smaller state, or lower the limits to what the process can hold.",
    )


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_plain(name: object) -> bool:
    """Return whether a key is a short word; a longer one, or one with digits, may be a secret."""
    return type(name) is str and _PLAIN_NAME.match(name) is not None


def type_name(cls: type) -> str:
    """Return `module.qualname`, on one line and in ASCII."""
    return ascii(f"{cls.__module__}.{cls.__qualname__}")[1:-1]


def refuse(_: Writer, value: object) -> str:
    """Refuse a value whose exact type is not in the table.

    Raises:
        Refusal: always.
    """
    cls = type(value)
    plain = next((base.__name__ for base in _PLAIN if issubclass(cls, base)), None)
    if any(hasattr(cls, name) for name in _REGISTRABLE):
        do = f"Register it: Codec([{ascii(cls.__name__)[1:-1]}])."
    elif plain:
        do = f"Convert it first: {plain}(value) is kept, a subclass of {plain} is not."
    else:
        do = "Convert it first to a type that the codec knows, such as dict, list, str or bytes."
    raise Refusal(f"is of the type {type_name(cls)}, which this codec does not know.", do)
