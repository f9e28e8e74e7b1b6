"""The approver: a person, or what acts for one, with a key of their own."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Final

from safepoint.approval.question import Question
from safepoint.approval.statement import Verdict, write
from safepoint.approval.times import check_lifetime, utc
from safepoint.errors import ConfigurationError, KeyRefused
from safepoint.ids import check_name
from safepoint.keys import SigningKey

HOUR: Final = timedelta(hours=1)


class Approver:
    """Somebody who can say yes or no to a question, and sign it.

    The key is the approver's own: a worker that had it could approve its own work. So it stays in
    a process and on a machine that no worker writes to.

    Args:
        name: who it is, as `Approvers` knows them.
        key: an Ed25519 key.

    Raises:
        InvalidId: the name is outside the grammar.
        KeyRefused: the key does not sign, or whoever verifies with it could sign too.
    """

    __slots__ = ("_key", "_name")

    def __init__(self, name: str, key: SigningKey) -> None:
        self._name: Final = str.__str__(check_name("approver", name))
        if not isinstance(key, SigningKey):
            raise KeyRefused(
                f"An approver signs with a signing key, not {type(key).__name__}.",
                'Write Approver("dana", SigningKey.from_file(path)).',
            )
        if key.algorithm != "ed25519":
            raise KeyRefused(
                f"Key {key.id} is for {key.algorithm}: whoever checks an approval could make one.",
                "Make a key for approvals with SigningKey.generate('ed25519').",
            )
        self._key: Final = key

    @property
    def name(self) -> str:
        """Who it is."""
        return self._name

    @property
    def key(self) -> str:
        """The id of their key."""
        return self._key.id

    def approve(self, question: Question, *, lifetime: timedelta = HOUR) -> str:
        """Sign a yes, from now on and for as long as `lifetime`, and return its text.

        Raises:
            ConfigurationError: it is not a question, or the lifetime is none.
        """
        return self.approve_at_time(question, datetime.now(UTC), lifetime=lifetime)

    def approve_at_time(
        self, question: Question, now: datetime, *, lifetime: timedelta = HOUR
    ) -> str:
        """Sign a yes as if it were `now`.

        Raises:
            ConfigurationError: it is not a question, or a time is none.
        """
        return self._answer("approved", question, now, lifetime)

    def deny(self, question: Question, *, lifetime: timedelta = HOUR) -> str:
        """Sign a no, and return its text. It expires too: after that, ask again.

        Raises:
            ConfigurationError: it is not a question, or the lifetime is none.
        """
        return self.deny_at_time(question, datetime.now(UTC), lifetime=lifetime)

    def deny_at_time(self, question: Question, now: datetime, *, lifetime: timedelta = HOUR) -> str:
        """Sign a no as if it were `now`.

        Raises:
            ConfigurationError: it is not a question, or a time is none.
        """
        return self._answer("denied", question, now, lifetime)

    def _answer(
        self, verdict: Verdict, question: Question, now: datetime, lifetime: timedelta
    ) -> str:
        if type(question) is not Question:
            raise ConfigurationError(
                f"An approver answers a Question, and was given {type(question).__name__}.",
                "Read it first: question = Question.from_text(text), then question.described.",
            )
        issued = utc(now)
        return write(
            question,
            self._key,
            approver=self._name,
            verdict=verdict,
            issued=issued,
            expires=_end(issued, lifetime),
            nonce=secrets.token_hex(16),
        )

    def __repr__(self) -> str:
        key = getattr(self, "_key", None)  # None if it was refused while it was made
        return f"Approver({getattr(self, '_name', None)!r}, key={key and key.id!r})"


def _end(issued: datetime, lifetime: object) -> datetime:
    try:
        return issued + check_lifetime(lifetime)
    except OverflowError:
        raise ConfigurationError(
            "The approval would end after the year 9999.", "Write lifetime=timedelta(hours=1)."
        ) from None
