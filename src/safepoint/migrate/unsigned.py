"""Unsigned: a state on its way in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from safepoint.errors import InvalidId, shell
from safepoint.ids import check_name


@dataclass(frozen=True, slots=True)
class Unsigned:
    """A state that nobody has signed, and where it came from.

    Attributes:
        thread: the thread that it becomes part of.
        state: the state, already decoded, by you.
        source: what the report calls it: a file's name.
        digest: the sha256 of the bytes that it was read from.
        app: what wrote it, as it should stand in the checkpoint.
    """

    thread: str
    state: Any = field(repr=False)
    source: str = ""
    digest: str = ""
    app: str = ""


def check_thread(thread: object, source: str) -> str:
    """Return the name if it can be a thread's, and otherwise say of what file it came.

    Raises:
        InvalidId: it is outside the grammar.
    """
    try:
        return check_name("thread", thread)
    except InvalidId as error:
        if not source:
            raise
        raise InvalidId(
            f"{shell(source)} becomes a thread, and {error.what}",
            f"{error.do} Map old names to new ones: json_files(path, thread=function), or"
            " Unsigned(new_name, state).",
        ) from None
