r"""The text of a journal: one line per entry, with exactly one spelling.

    {"entry":{…},"key":"<16 hex>","signature":"<base64>"}

The signature covers `safepoint-journal/1\n` and the bytes of the entry, which name the digest of
the entry before it. All is ASCII, and each character that a terminal or a parser of lines could
take for more than itself is escaped.

These functions decide; they touch no disk.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from safepoint.errors import CheckpointError, ConfigurationError
from safepoint.journal.actor import Actor
from safepoint.journal.event import OUTCOMES, WHATS, Entry, Event
from safepoint.keys import SigningKey
from safepoint.names import Head, digest_of, spelled

FORMAT: Final = "safepoint-journal/1"
LINE_BYTES: Final = 32 * 1024
"""More than the longest line that fits the bounds of an event, each character escaped."""

_FRAME = re.compile(
    rb'\{"entry":(\{[ -~]*\}),"key":"([0-9a-f]{16})","signature":"'
    rb'([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/]{85}[AQgw]==)"\}'
)
_STRING: Final = r'"((?:[ !#-\[\]-~]++|\\["\\bfnrt]|\\u[0-9a-f]{4})*+)"'
_NAME: Final = "[a-z0-9][a-z0-9_-]{0,63}"
_DIGEST: Final = "sha256:[0-9a-f]{64}"
_NUMBER: Final = "[1-9][0-9]{0,9}"
_ENTRY = re.compile(
    rf'{{"actor":{{"how":{_STRING},"name":{_STRING}}},'
    r'"at":"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z)",'
    rf'"detail":{_STRING},'
    rf'"digest":(?:null|"({_DIGEST})"),'
    rf'"journal":"({_NAME})",'
    rf'"number":({_NUMBER}),'
    rf'"outcome":"({"|".join(OUTCOMES)})",'
    rf'"previous":(?:null|"({_DIGEST})"),'
    rf'"sequence":(?:null|({_NUMBER})),'
    rf'"store":"({_NAME})",'
    rf'"thread":(?:null|"({_NAME})"),'
    rf'"what":"({"|".join(WHATS)})"}}'
)


class Frame(NamedTuple):
    """The three parts of a line, before anything in them is believed."""

    entry: bytes
    key: str
    signature: bytes


class Parsed(NamedTuple):
    """An entry, and the name of the journal that it was written for."""

    journal: str
    entry: Entry


def check(event: object, now: object) -> tuple[Event, datetime]:
    """Return the event and the time in UTC, if they can be written.

    Raises:
        ConfigurationError: `event` is no event, or the time has no time zone.
        InvalidId: a field of the event is outside its grammar.
    """
    if not isinstance(event, Event):
        raise ConfigurationError(
            f"A journal records an Event, not {type(event).__name__}.",
            "Write Event(what, outcome, actor, store).",
        )
    if not isinstance(now, datetime) or now.utcoffset() is None:
        raise ConfigurationError("The time has no time zone.", "Give an aware datetime.")
    try:
        # One that was unpickled, or is of another class, was never looked at.
        looked_at = Event(
            what=event.what,
            outcome=event.outcome,
            actor=Actor(event.actor.name, event.actor.how),
            store=event.store,
            thread=event.thread,
            sequence=event.sequence,
            digest=event.digest,
            detail=event.detail,
        )
        return looked_at, now.astimezone(UTC)
    except AttributeError as error:
        raise ConfigurationError(
            "The event lacks a field.", "Write Event(what, outcome, actor, store)."
        ) from error
    except OverflowError as error:
        raise ConfigurationError(
            "The time is out of range in UTC.", "Give one of this century."
        ) from error


def write(
    journal: str, event: Event, after: Head | None, at: datetime, key: SigningKey
) -> tuple[bytes, Entry]:
    """Return the line of an event that follows the entry `after`, and the entry.

    Args:
        journal: the journal's name.
        event: what `check` returned.
        after: the newest entry, or None.
        at: the time in UTC.
        key: what signs.
    """
    number, previous = (1, None) if after is None else (after.sequence + 1, after.digest)
    text = _spelled(journal, event, number, at, previous)
    signature = base64.b64encode(key.sign(signed(text)))
    line = b'{"entry":%b,"key":"%b","signature":"%b"}\n' % (text, key.id.encode(), signature)
    return line, Entry(
        what=event.what,
        outcome=event.outcome,
        actor=event.actor,
        store=event.store,
        thread=event.thread,
        sequence=event.sequence,
        digest=event.digest,
        detail=event.detail,
        number=number,
        at=at,
        previous=previous,
        digest_of_entry=digest_of(text),
        key=key.id,
    )


def frame(line: bytes) -> Frame | None:
    """Take a line apart, or return None if it is none. The line break is no part of it."""
    found = _FRAME.fullmatch(line)
    if found is None:
        return None
    return Frame(found[1], found[2].decode(), base64.b64decode(found[3]))


def is_unfinished(line: bytes) -> bool:
    """Tell whether a writer that died may have left this at the end of a file.

    A whole line with something else in the place of its line break is no such thing: somebody
    replaced that.
    """
    if line.endswith(b"\n"):
        return False
    found = _FRAME.match(line)
    return found is None or found.end() == len(line)


def signed(entry: bytes) -> bytes:
    """Return what the signature of an entry covers."""
    return FORMAT.encode() + b"\n" + entry


def parse(text: bytes, key: str) -> Parsed | None:
    """Return the entry that the bytes spell, or None if they spell none."""
    found = _ENTRY.fullmatch(text.decode("latin-1"))
    if found is None:
        return None
    fields: Any = found.groups()
    how, name, at, detail, digest, journal, number = fields[:7]
    outcome, previous, sequence, store, thread, what = fields[7:]
    try:
        entry = Entry(
            what=what,
            outcome=outcome,
            actor=Actor(_unescaped(name), _unescaped(how)),
            store=store,
            thread=thread,
            sequence=None if sequence is None else int(sequence),
            digest=digest,
            detail=_unescaped(detail),
            number=int(number),
            at=datetime.fromisoformat(at),
            previous=previous,
            digest_of_entry=digest_of(text),
            key=key,
        )
    except (CheckpointError, ValueError):
        return None
    if (number == "1") != (previous is None):
        return None
    # One entry has one spelling: no escape where none is needed, and none in capitals.
    if _spelled(journal, entry, int(number), entry.at, previous) != text:
        return None
    return Parsed(journal, entry)


def _spelled(journal: str, event: Event, number: int, at: datetime, previous: str | None) -> bytes:
    actor = f'{{"how":{json.dumps(event.actor.how)},"name":{json.dumps(event.actor.name)}}}'
    return (
        f'{{"actor":{actor},"at":"{spelled(at)}","detail":{json.dumps(event.detail)},'
        f'"digest":{_or_null(event.digest)},"journal":"{journal}","number":{number},'
        f'"outcome":"{event.outcome}","previous":{_or_null(previous)},'
        f'"sequence":{"null" if event.sequence is None else event.sequence},'
        f'"store":"{event.store}","thread":{_or_null(event.thread)},"what":"{event.what}"}}'
    ).encode("ascii")


def _or_null(name: str | None) -> str:
    return "null" if name is None else f'"{name}"'


def _unescaped(text: str) -> str:
    found: str = json.loads(f'"{text}"')
    return found
