"""The parser: JSON in, values out, through a closed table of tags."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NoReturn

from safepoint._codec.writer import Revive, out_of_resources
from safepoint.errors import CheckpointError, DecodeError, quoted

FROM_HERE: Final = "Restore a checkpoint that this codec wrote."

Pairs = list[tuple[str, Any]]


class Reader:
    """Parses text and revives what is tagged. Its shape must have been checked before."""

    __slots__ = ("_decoder", "_revivers")

    def __init__(self, revivers: dict[str, Revive]) -> None:
        self._revivers = {f"${tag}": revive for tag, revive in revivers.items()}
        self._decoder = self._parser(self._object)

    def read(self, text: str) -> Any:
        """Return the value of a text, which may still be one that is not canonical.

        Raises:
            DecodeError: it is not JSON, or a tag is unknown, or a type refuses what is tagged.
            LimitExceeded: the stack or the memory of this process does not suffice.
        """
        return self._read(self._decoder, text)

    def read_watched(self, text: str, watch: Callable[[str, Any, Any], None]) -> None:
        """Read a text, and call `watch(tag, inner, value)` for each tagged value, innermost first.

        Raises:
            DecodeError: as for `read`.
            LimitExceeded: as for `read`.
        """

        def watched(pairs: Pairs) -> Any:
            value = self._object(pairs)
            if type(value) is not dict:
                watch(pairs[0][0][1:], pairs[0][1], value)
            return value

        self._read(self._parser(watched), text)

    @staticmethod
    def _parser(hook: Callable[[Pairs], Any]) -> json.JSONDecoder:
        return json.JSONDecoder(object_pairs_hook=hook, parse_constant=_not_finite)

    @staticmethod
    def _read(parser: json.JSONDecoder, text: str) -> Any:
        # Raised after the handlers: a JSONDecodeError carries the whole text along.
        problem: CheckpointError
        try:
            return parser.decode(text)
        except CheckpointError:
            raise
        except ValueError:
            problem = DecodeError("The encoded state is not JSON.", FROM_HERE)
        except (RecursionError, MemoryError):
            problem = out_of_resources()
        raise problem

    def _object(self, pairs: Pairs) -> Any:
        """Return the dict of a JSON object, or the value of a tagged one."""
        if len(pairs) == 1:
            tag, inner = pairs[0]
            if tag[:1] == "$":
                return self._revive(tag, inner)
        value = dict(pairs)
        if len(value) != len(pairs):
            raise DecodeError("The encoded state has a key twice in one object.", FROM_HERE)
        return value

    def _revive(self, tag: str, inner: object) -> Any:
        revive = self._revivers.get(tag)
        if revive is None:
            raise DecodeError(
                f"The encoded state holds the tag {quoted(tag[1:])}, "
                "which this codec does not know.",
                "Register the type that is stored under that name, as Codec([Invoice]) does for"
                " Invoice.",
            )
        try:
            return revive(inner)
        except CheckpointError:
            raise
        except Exception:  # noqa: BLE001 - each type has its own way to say that it is malformed
            problem = DecodeError(f"The encoded state holds a malformed {tag[1:]}.", FROM_HERE)
        raise problem


def _not_finite(_: str) -> NoReturn:
    raise DecodeError("The encoded state holds a number that is not finite.", FROM_HERE)
