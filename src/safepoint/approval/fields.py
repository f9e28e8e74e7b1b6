"""The fields of a question: each inside its grammar, and of its own plain type."""

from __future__ import annotations

import re
from typing import Final

from safepoint.errors import ConfigurationError, InvalidId, quoted
from safepoint.header import is_digest
from safepoint.heads import Head

MAX_REASONS: Final = 16
MAX_ACTION: Final = 256
MAX_DETAILS: Final = 64
MAX_DETAIL: Final = 1000
MAX_DETAILS_TOGETHER: Final = 8192
_REASON = re.compile(r"[a-z][a-z-]{0,63}")


def plain(text: str) -> str:
    """Return what a `str` says, without the subclass that it may be of."""
    return str.__str__(text)


def unwrapped(text: str) -> str:
    """Return a text as it was sent: on its way, mail and forms change the line ends, and add some.

    What is inside of a line stays as it is, and the signature covers that.
    """
    return text.replace("\r\n", "\n").strip(" \t\r\n") + "\n"


def check_digest(digest: object) -> str:
    """Return a digest.

    Raises:
        InvalidId: it is none.
    """
    if not isinstance(digest, str) or not is_digest(digest):
        raise InvalidId(
            f"{quoted(digest)} is not a digest.", "Digests are 'sha256:' and 64 hex digits."
        )
    return plain(digest)


def check_action(action: object) -> str:
    """Return what a step asks for.

    Raises:
        ConfigurationError: it is no text, too long, or holds half a character.
    """
    if not isinstance(action, str) or len(action) > MAX_ACTION or not _encodes(action):
        raise ConfigurationError(
            f"{quoted(action)} is not an action.",
            f"Say what is asked for in a text of up to {MAX_ACTION} whole characters.",
        )
    return plain(action)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_head(name: str, head: object) -> Head:
    """Return a head that was looked at.

    Raises:
        InvalidId: its sequence or digest is outside the grammar.
        ConfigurationError: it is no head.
    """
    if type(head) is not Head:
        raise ConfigurationError(
            f"The {name} of a question is a Head, and not {type(head).__name__}.",
            "Write Head(checkpoint.sequence, checkpoint.digest).",
        )
    checked = Head(head.sequence, head.digest)  # one that was unpickled was never looked at
    return Head(checked.sequence, plain(checked.digest))


def head_of(name: str, value: object) -> Head:
    """Return the head that two fields spell.

    Raises:
        InvalidId: the sequence or digest is outside the grammar.
        ConfigurationError: the fields are others.
    """
    if type(value) is not dict or value.keys() != {"digest", "sequence"}:
        raise ConfigurationError(
            f"The {name} is not a sequence and a digest.", "Give Question.fields."
        )
    return Head(value["sequence"], value["digest"])


def check_reasons(values: object) -> tuple[str, ...]:
    """Return the reasons as plain text: the members of a `StrEnum` are signed as what they say.

    Raises:
        ConfigurationError: they are none, too many, twice the same, or no words.
    """
    listed = values if isinstance(values, tuple | list) else ()
    found = tuple(plain(each) for each in listed if isinstance(each, str))
    if (
        not 0 < len(listed) <= MAX_REASONS
        or len(set(found)) != len(listed)
        or not all(map(_REASON.fullmatch, found))
    ):
        raise ConfigurationError(
            f"{quoted(values)} are not the reasons of a question.",
            f"Give a tuple of 1 to {MAX_REASONS} different words, such as ('old-checkpoint',).",
        )
    return found


def check_details(values: object) -> tuple[str, ...]:
    """Return what is different, as plain sentences.

    Raises:
        ConfigurationError: they are too many, too long, or no text of one line.
    """
    listed = values if isinstance(values, tuple | list) else (None,)
    found = tuple(plain(each) for each in listed if isinstance(each, str))
    if (
        len(found) != len(listed)
        or len(found) > MAX_DETAILS
        or not all(each.isascii() and each.isprintable() for each in found)
        or any(len(each) > MAX_DETAIL for each in found)
        or sum(map(len, found)) > MAX_DETAILS_TOGETHER
    ):
        raise ConfigurationError(
            f"{quoted(values)} are not the details of a question.",
            f"Give a tuple of up to {MAX_DETAILS} sentences, each on one line, in ASCII, and"
            f" {MAX_DETAILS_TOGETHER} characters together.",
        )
    return found
