"""Event: what is written down. Entry: the same, once it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, get_args

from safepoint.errors import ConfigurationError, InvalidId, quoted
from safepoint.journal.actor import Actor, is_text
from safepoint.names import check_name, check_sequence, is_digest, spelled

What = Literal[
    "save",
    "verify",
    "resume",
    "pause",
    "approve",
    "deny",
    "act",
    "rotate",
    "prune",
    "delete",
    "migrate",
    "copy",
    "accept-loss",
    "own",
    "recover",
]
"""What somebody did, or tried to do."""

Outcome = Literal["intended", "done", "refused"]
"""How it ended: not yet, well, or not at all."""

WHATS: Final[tuple[str, ...]] = get_args(What)
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)
MAX_DETAIL: Final = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """Who did what, to which thread, and how it ended.

    ```python
    from safepoint.journal import Actor, Event

    event = Event("resume", "refused", Actor("ana", "login"), "invoices", "order-7")
    ```

    Attributes:
        what: one of `WHATS`.
        outcome: "intended" before it is done, then "done" or "refused".
        actor: who.
        store: the name of the store that it is about.
        thread: the thread, or None if it is about the whole store.
        sequence: the checkpoint, or None.
        digest: the digest of the record, or None.
        detail: the rest, for people. What is longer than 1,000 characters is cut and says so, and
            half a character (a lone surrogate) is spelled out.

    Raises:
        InvalidId: the store, thread, sequence or digest is outside its grammar.
        ConfigurationError: another field is of the wrong kind.
    """

    what: What
    outcome: Outcome
    actor: Actor
    store: str
    thread: str | None = None
    sequence: int | None = None
    digest: str | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        _check_choice("what", self.what, WHATS)
        _check_choice("outcome", self.outcome, OUTCOMES)
        if type(self.actor) is not Actor:
            raise ConfigurationError(
                f"The actor of an event is an Actor, not {type(self.actor).__name__}.",
                "Write Actor(name, how), or Actor.process().",
            )
        check_name("store", self.store)
        if self.thread is not None:
            check_name("thread", self.thread)
        if self.sequence is not None:
            check_sequence(self.sequence)
        if self.digest is not None and not is_digest(self.digest):
            raise InvalidId(
                f"{quoted(self.digest)} is not a digest.",
                "Digests are 'sha256:' and 64 hex digits.",
            )
        object.__setattr__(self, "detail", _bounded(self.detail))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Event):
    """An event as the journal holds it.

    Attributes:
        number: 1, 2, 3 … in the journal. Order comes from it, never from the time.
        at: when it was written, by the writer's clock, in UTC.
        previous: the digest of the entry before it, None for the first.
        digest_of_entry: its own digest, which the next one names.
        key: the id of the key that signed it.
    """

    number: int
    at: datetime
    previous: str | None
    digest_of_entry: str
    key: str

    def __str__(self) -> str:
        """Return one line of printable ASCII, whatever the fields hold."""
        place = self.store if self.thread is None else f"{self.store}/{self.thread}"
        if self.sequence is not None:
            place += f" #{self.sequence}"
        if self.digest is not None:
            place += f" {self.digest[:19]}"
        line = f"{self.number} {spelled(self.at)} {self.what} {self.outcome} {place} {self.actor}"
        return f"{line}: {self.detail!a}" if self.detail else line


def _check_choice(field: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ConfigurationError(
            f"{quoted(value)} cannot be the {field} of an event.",
            f"Choose one of: {', '.join(choices)}.",
        )


def _bounded(detail: object) -> str:
    if not isinstance(detail, str):
        raise ConfigurationError(
            f"The detail of an event is a text, not {type(detail).__name__}.",
            "Write detail=str(...), or leave it out.",
        )
    text = detail
    if len(text) > MAX_DETAIL:
        mark = f"... ({len(text)} characters)"
        text = text[: MAX_DETAIL - len(mark)] + mark
    if not is_text(text):
        text = _bounded(text.encode("utf-8", "backslashreplace").decode())
    return text
