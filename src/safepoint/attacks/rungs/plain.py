"""Rung 1: an allow-list of types, and nothing that says who wrote them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NoReturn

from safepoint.attacks.rungs.numbered import Numbered, Refused


def encode(state: Any) -> bytes:
    """Return plain JSON.

    Raises:
        Refused: the state would not come back as it is.
    """
    data = json.dumps(state).encode()
    if decode(data) != state:
        raise Refused("not a plain state")
    return data


def decode(data: bytes) -> Any:
    """Return what plain JSON holds: no type by name, no key twice, no NaN.

    Its depth and its size are whatever they are.

    Raises:
        Refused: it is something else.
    """
    try:
        return json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except ValueError as error:
        raise Refused(f"not JSON: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) or any(key.startswith(("__", "$")) for key in found):
        # The usual slip: a message that helps to find the mistake, and shows the state.
        raise Refused(f"a key is there twice, or is reserved: {pairs}")
    return found


def _constant(name: str) -> NoReturn:
    raise Refused(f"{name} is not a number")


class AllowListTarget(Numbered):
    """Decodes strictly, so that nothing runs. Takes the record with the newest date for the latest.

    It believes every word, because any word could be its own.
    """

    name = "allow-list"
    title = "allow-list only"

    def pack(self, thread: str, number: int, state: dict[str, Any]) -> bytes:
        """Write the state next to the time."""
        del thread, number
        created = datetime.now(UTC).isoformat(timespec="microseconds")
        return encode({"created": created, "state": state})

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Return the state."""
        return self._open(thread, number, record)["state"]

    def latest(self, thread: str) -> Any:
        """Return the state with the newest date."""
        records = [
            self._open(thread, number, self.medium.read(self.place(thread, number)))
            for number in self.numbers(thread)
        ]
        return max(records, key=lambda record: str(record["created"]))["state"]

    def _open(self, thread: str, number: int, data: bytes) -> dict[str, Any]:
        record = decode(data)
        if not isinstance(record, dict) or set(record) != {"created", "state"}:
            raise Refused(f"{thread} {number} is not a record")
        return record
