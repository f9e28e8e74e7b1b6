"""Line 2 of a record: what a signature binds a state to, and the one way to write it.

A header has exactly one spelling, given by a regular expression. So two readers, in any language,
cannot read one header in two ways, and nothing needs to be encoded again to be compared.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, cast, get_args

from safepoint.errors import InvalidId, quoted
from safepoint.ids import check_name, check_sequence
from safepoint.times import spelled

Kind = Literal["state", "base", "deleted"]
"""What a record is: a checkpoint, where a pruned thread begins, or that a thread was deleted."""

_KINDS: Final = get_args(Kind)
_NAME: Final = "[a-z0-9][a-z0-9_-]{0,63}"
_DIGEST: Final = "sha256:[0-9a-f]{64}"
_APP: Final = "[A-Za-z0-9._@/+:-]{0,128}"
_LINE_2 = re.compile(
    rf'{{"app":"(?P<app>{_APP})",'
    r'"created":"(?P<created>[0-9]{4}-[0-9]{2}-[0-9]{2}'
    r'T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{6}Z)",'
    rf'"digest":"(?P<digest>{_DIGEST})",'
    rf'"kind":"(?P<kind>{"|".join(_KINDS)})",'
    rf'"previous":(?:null|"(?P<previous>{_DIGEST})"),'
    r'"sequence":(?P<sequence>[1-9][0-9]{0,9}),'
    rf'"store":"(?P<store>{_NAME})",'
    rf'"thread":"(?P<thread>{_NAME})",'
    rf'"tools":(?:null|"(?P<tools>{_DIGEST})")}}'
)
_IS_DIGEST = re.compile(_DIGEST)
_IS_APP = re.compile(_APP)


class Place(NamedTuple):
    """Where the reader expects a record to belong."""

    store: str
    thread: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.thread} #{self.sequence}"


class Header(NamedTuple):
    """Line 2 of a record."""

    app: str
    created: str
    digest: str
    kind: Kind
    previous: str | None
    sequence: int
    store: str
    thread: str
    tools: str | None

    def __bytes__(self) -> bytes:
        previous = "null" if self.previous is None else f'"{self.previous}"'
        tools = "null" if self.tools is None else f'"{self.tools}"'
        return (
            f'{{"app":"{self.app}","created":"{self.created}","digest":"{self.digest}",'
            f'"kind":"{self.kind}","previous":{previous},"sequence":{self.sequence},'
            f'"store":"{self.store}","thread":"{self.thread}","tools":{tools}}}'
        ).encode("ascii")

    @classmethod
    def parse(cls, line: bytes) -> Header | None:
        """Return the header that `line` spells, or None if it spells none."""
        # Latin-1 never fails, and what it makes of a byte above 127 is in no grammar below.
        found = _LINE_2.fullmatch(line.decode("latin-1"))
        if found is None:
            return None
        fields: Any = found.groups()
        app, created, digest, kind, previous, sequence, store, thread, tools = fields
        number = int(sequence)
        if (number == 1) != (previous is None) or not _is_time(created):
            return None
        return cls(app, created, digest, kind, previous, number, store, thread, tools)

    @classmethod
    def of(
        cls,
        place: Place,
        *,
        app: str,
        created: datetime,
        digest: str,
        kind: str,
        previous: str | None,
        tools: str | None,
    ) -> Header:
        """Return a header whose every field is inside its grammar.

        Raises:
            InvalidId: one is not.
        """
        check_name("store", place.store)
        check_name("thread", place.thread)
        check_sequence(place.sequence)
        check_app(app)
        if created.tzinfo is None:
            raise InvalidId("The creation time has no time zone.", "Give an aware datetime.")
        if kind not in _KINDS:
            raise InvalidId(f"{quoted(kind)} is no kind of record.", "Write records with a Ledger.")
        for name in (digest, previous, tools):
            if name is not None and not is_digest(name):
                raise InvalidId(
                    f"{quoted(name)} is not a digest.", "Digests are 'sha256:' and 64 hex digits."
                )
        if (place.sequence == 1) != (previous is None):
            raise InvalidId(
                "The first checkpoint has no previous one, and every other has.",
                "Write records with Ledger.save.",
            )
        return cls(
            app=app,
            created=spelled(created),
            digest=digest,
            kind=cast("Kind", kind),
            previous=previous,
            sequence=place.sequence,
            store=place.store,
            thread=place.thread,
            tools=tools,
        )


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def check_app(app: object) -> str:
    """Return the name of what writes a record, if it is one.

    Raises:
        InvalidId: it is outside the grammar.
    """
    if not isinstance(app, str) or not _IS_APP.fullmatch(app):
        raise InvalidId(
            f"{quoted(app)} is not an app name.",
            "Use up to 128 of A-Z, a-z, 0-9 and . _ @ / + : -",
        )
    return app


def digest_of(data: bytes) -> str:
    """Return the digest of `data` as records write it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_digest(text: object) -> bool:
    """Tell whether `text` is a digest as records write it."""
    return isinstance(text, str) and _IS_DIGEST.fullmatch(text) is not None
