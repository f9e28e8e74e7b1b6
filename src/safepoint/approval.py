"""Approvals: what somebody is asked, and the signed statement that they answer with.

A `Question` says exactly what is to be resumed. An `Approver` signs a yes or a no to it, with a
key that no worker has. `Approvers` knows whose keys count, and tells a genuine answer to this
question from every other text.

These classes decide; they touch no disk.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal, get_args

from safepoint.codec import Codec
from safepoint.errors import (
    ApprovalExpired,
    ApprovalMalformed,
    ApprovalMismatch,
    ApprovalUntrusted,
    CheckpointError,
    ConfigurationError,
    EncodeError,
    InvalidId,
    KeyRefused,
    LimitExceeded,
    quoted,
)
from safepoint.keys import Key, Keyring, SigningKey, VerifyingKey
from safepoint.names import Head, Limits, check_name, digest_of, is_digest, spelled
from safepoint.record import check_app


class Reason(StrEnum):
    """What the gate found. Its value is what a policy, an approval and the journal write.

    ```python
    from safepoint.approval import Reason

    print(Reason.TOOLS_ADDED, "-", Reason.TOOLS_ADDED.sentence)
    #> tools-added - The run would get tools that it did not have at this checkpoint.
    ```
    """

    OLD_CHECKPOINT = "old-checkpoint"
    VERSION_CHANGED = "version-changed"
    NO_MIGRATION = "no-migration"
    TOOLS_ADDED = "tools-added"
    TOOL_CHANGED = "tool-changed"
    PERMISSIONS_WIDENED = "permissions-widened"
    ASKED = "asked"
    OWNED_BY_ANOTHER = "owned-by-another"
    UNVERIFIED = "unverified"

    @property
    def sentence(self) -> str:
        """What it means, for whoever has to decide."""
        return _SENTENCES[self]


_SENTENCES = {
    Reason.OLD_CHECKPOINT: (
        "The checkpoint is not the end of its thread, so steps that already ran would run again."
    ),
    Reason.VERSION_CHANGED: (
        "Another version of the workflow wrote the checkpoint, and its state may mean something"
        " else to this one."
    ),
    Reason.NO_MIGRATION: (
        "No migration leads from the version that wrote the checkpoint to this one, so its state"
        " would be read as it is."
    ),
    Reason.TOOLS_ADDED: "The run would get tools that it did not have at this checkpoint.",
    Reason.TOOL_CHANGED: (
        "A tool has the name that it had at this checkpoint, and another version or schema."
    ),
    Reason.PERMISSIONS_WIDENED: "A tool would be allowed more than it was at this checkpoint.",
    Reason.ASKED: "A step of the workflow asks for a person's yes.",
    Reason.OWNED_BY_ANOTHER: (
        "Another worker owns the thread, and with two at work its steps could run twice."
    ),
    Reason.UNVERIFIED: (
        "The checkpoint or the end of its thread could not be verified, so nothing in it is"
        " trusted."
    ),
}


# The rest of an approval has its own bounds, so that what fits in here fits in there.
LIMITS: Final = Limits(state_bytes=48 * 1024, depth=32, items=4096)
MAX_SHOWN: Final = 2000
_MAX_NAME: Final = 128
_CODEC: Final = Codec(limits=LIMITS)
_SPACES: Final = re.compile(" {2,}")


def checked_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the arguments, equal to them at every level and of the same types.

    Raises:
        ConfigurationError: they are not a dict, or a name in it is no text of 1 to 128 characters.
        EncodeError: a value could not be restored faithfully, so nobody could sign it.
        LimitExceeded: they are more than a person could read.
    """
    copy: dict[str, Any] = decoded(encoded(arguments))
    return copy


def encoded(arguments: object) -> bytes:
    """Return the bytes of the arguments: equal bytes mean equal values of equal types.

    Raises:
        ConfigurationError: they are not a dict, or a name in it is no text of 1 to 128 characters.
        EncodeError: a value could not be restored faithfully.
        LimitExceeded: they are more than a person could read.
    """
    if type(arguments) is not dict:
        raise ConfigurationError(
            f"The arguments of a question are a dict, and not {type(arguments).__name__}.",
            'Write arguments={"amount": 42}, or {} if there are none.',
        )
    for name in arguments:
        if type(name) is not str or not 0 < len(name) <= _MAX_NAME:
            raise ConfigurationError(
                f"{quoted(name)} is not the name of an argument.",
                f"Name each argument with a text of 1 to {_MAX_NAME} characters.",
            )
    problem: EncodeError | LimitExceeded
    try:
        return _CODEC.encode(arguments)
    except EncodeError as error:
        # The codec says where in a "state" it stopped.
        problem = EncodeError(
            error.what.replace("state", "arguments", 1),
            "Ask with plain values: text, numbers, Decimals, dates, bytes, and lists and dicts of"
            " them.",
        )
    except LimitExceeded:
        problem = LimitExceeded(
            "The arguments of a question are more than a person could read.",
            f"Keep them within {LIMITS.state_bytes} bytes, {LIMITS.depth} levels and"
            f" {LIMITS.items} values: ask about a digest of what is larger.",
        )
    raise problem


def decoded(data: bytes) -> Any:
    """Return a fresh copy of what `encoded` was given."""
    return _CODEC.decode(data)


def digest_of_value(value: object) -> str:
    """Return the digest of a value's canonical bytes: equal if value and types are."""
    return digest_of(_CODEC.encode(value))


def shown(value: object) -> str:
    """Return the whole value in ASCII, on one line, with everything escaped that could hide.

    Spaces are escaped where several stand together: a terminal would wrap the line there, and
    what follows them could pass for a line of its own.
    """
    try:
        text = ascii(value)
    except ValueError:  # an int of more digits than Python prints
        text = f"JSON {_CODEC.encode(value).decode('ascii')}"
    return _SPACES.sub(lambda found: r"\x20" * len(found.group()), text)


def line_of(name: str, value: object) -> str:
    """Return the line of one argument for a person to read. If it is cut, it says so first."""
    text = shown(value)
    if len(text) <= MAX_SHOWN:
        return f"argument {shown(name)}: {text}"
    # Said before the value, so that a value cannot end in words that look like these.
    return (
        f"argument {shown(name)}, of which these are {MAX_SHOWN} of {len(text)} characters, in"
        f" full {digest_of_value(value)}: {text[:MAX_SHOWN]}"
    )


class Arguments:
    """A field that keeps bytes: what goes in is copied, and so is what comes out."""

    def __get__(self, instance: object | None, owner: type) -> dict[str, Any]:
        if instance is None:  # asked for a default when the class is made; there is none
            raise AttributeError("arguments")
        copy: dict[str, Any] = decoded(vars(instance)["_arguments"])
        return copy

    def __set__(self, instance: object, value: dict[str, Any]) -> None:
        vars(instance)["_arguments"] = encoded(value)


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


def utc(moment: object) -> datetime:
    """Return an aware datetime in UTC.

    Raises:
        ConfigurationError: it is none, or has no time zone.
    """
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise ConfigurationError(
            "The time is not a datetime with a time zone.", "Write datetime.now(UTC)."
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ConfigurationError(
            "The time is outside of the years 1 to 9999 in UTC.", "Write datetime.now(UTC)."
        ) from None


def check_lifetime(lifetime: object) -> timedelta:
    """Return how long something is valid.

    Raises:
        ConfigurationError: it is not a time, or not above zero.
    """
    if not isinstance(lifetime, timedelta) or lifetime <= timedelta():
        raise ConfigurationError(
            f"The lifetime {quoted(lifetime)} is not a timedelta above zero.",
            "Write lifetime=timedelta(hours=1).",
        )
    return lifetime


FORMAT: Final = "safepoint-question/1"
MAX_BYTES: Final = 64 * 1024
CODEC: Final = Codec(limits=Limits(state_bytes=MAX_BYTES, depth=40, items=8192))

_TEXT = re.compile(r"safepoint-question/1\n([ -~]+)\n")


@dataclass(frozen=True, eq=False)
class Question:
    r"""What somebody is asked: to let a thread go on from a checkpoint, as this, for these reasons.

    Read it before you sign it. Each line of `described` is one line, in ASCII, with everything
    escaped that could hide something:

    ```python
    from safepoint import Head
    from safepoint.approval import Question

    head = Head(3, "sha256:" + "a" * 64)
    question = Question(
        store="invoices",
        thread="order-7",
        checkpoint=head,
        head=head,
        app="invoice@2",
        tools="sha256:" + "b" * 64,
        reasons=("asked",),
        action="pay",
        arguments={"amount": 42, "to": "ACME\u202e"},
    )
    for line in question.described[:4]:
        print(line)
        #> action: 'pay'
        #> arguments: 2
        #> argument 'amount': 42
        #> argument 'to': 'ACME\u202e'
    ```

    Two questions are equal if every field is, types included: an approval of 1 is not one of True.

    Attributes:
        store: the store that the thread is in.
        thread: the thread that is to go on.
        checkpoint: where it is to go on from.
        head: where it ends now. Once it has moved, an approval of this question is void.
        app: what is to run it: a workflow's name, with its version.
        tools: the digest of the tool set that it would have.
        reasons: why a person is asked.
        action: what a step asks for, or "" if none does.
        arguments: what it asks for exactly, or {}. Each read gives a new copy.
        details: what is different, in the gate's words: which tool is new, how far it goes back.

    Raises:
        InvalidId: a name is outside its grammar.
        ConfigurationError: another field is of the wrong kind.
        EncodeError: an argument could not be restored faithfully, so nobody could sign it.
        LimitExceeded: the arguments are more than a person could read.
    """

    store: str
    thread: str
    checkpoint: Head
    head: Head
    app: str
    tools: str
    reasons: tuple[str, ...]
    action: str
    arguments: Arguments = Arguments()
    details: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked = {
            "store": plain(check_name("store", self.store)),
            "thread": plain(check_name("thread", self.thread)),
            "checkpoint": check_head("checkpoint", self.checkpoint),
            "head": check_head("head", self.head),
            "app": plain(check_app(self.app)),
            "tools": check_digest(self.tools),
            "reasons": check_reasons(self.reasons),
            "details": check_details(self.details),
            "action": check_action(self.action),
        }
        vars(self).update(checked)
        if self.checkpoint.sequence > self.head.sequence or (
            self.checkpoint.sequence == self.head.sequence and self.checkpoint != self.head
        ):
            raise ConfigurationError(
                f"The checkpoint {self.checkpoint} does not come before the head {self.head}, nor"
                " is it that head.",
                "Ask about a checkpoint of the thread as it is now.",
            )
        if not self.action and self.arguments:
            raise ConfigurationError(
                "A question has arguments, and no action that they belong to.",
                'Name what is asked for: action="pay".',
            )
        vars(self)["_encoded"] = CODEC.encode(self.fields)

    @property
    def fields(self) -> dict[str, Any]:
        """Every field, as plain values: what is encoded and signed."""
        return {
            "action": self.action,
            "app": self.app,
            "arguments": self.arguments,
            "checkpoint": {"digest": self.checkpoint.digest, "sequence": self.checkpoint.sequence},
            "details": list(self.details),
            "head": {"digest": self.head.digest, "sequence": self.head.sequence},
            "reasons": list(self.reasons),
            "store": self.store,
            "thread": self.thread,
            "tools": self.tools,
        }

    @classmethod
    def from_fields(cls, values: object) -> Question:
        """Return the question of these fields: exactly them, and each of its own type.

        Raises:
            CheckpointError: they are not what `fields` gives.
        """
        if type(values) is not dict or values.keys() != _FIELDS:
            raise ConfigurationError(
                "A question has fields of its own, and these are others.", "Give Question.fields."
            )
        for name in ("reasons", "details"):
            if type(values[name]) is not list:
                raise ConfigurationError(f"The {name} are not a list.", "Give Question.fields.")
        heads = {name: head_of(name, values[name]) for name in ("checkpoint", "head")}
        return cls(**{**values, **heads})

    @property
    def text(self) -> str:
        """The question as it travels to whoever is asked."""
        encoded: bytes = vars(self)["_encoded"]
        return f"{FORMAT}\n{encoded.decode('ascii')}\n"

    @classmethod
    def from_text(cls, text: str) -> Question:
        """Read a question that `text` gave. Nobody vouches for it: look at it before you sign it.

        Raises:
            ApprovalMalformed: it is not a question of this format.
        """
        if not isinstance(text, str):
            raise ApprovalMalformed(f"A question is text, and not {type(text).__name__}.", _SEND)
        if len(text) > MAX_BYTES:
            raise ApprovalMalformed(
                f"The question is {len(text)} characters, over the limit of {MAX_BYTES}.", _SEND
            )
        found = _TEXT.fullmatch(unwrapped(text))
        if found is None:
            raise ApprovalMalformed("The text is not a question.", _SEND)
        try:
            return cls.from_fields(parse(found.group(1)))
        except CheckpointError as error:
            why = error.what
        raise ApprovalMalformed(f"The question is malformed. {why}", _SEND)

    @property
    def described(self) -> list[str]:
        """What a person reads before they sign: one line per field and per argument.

        A line is ASCII. Text is quoted, with everything escaped that is not a printable ASCII
        character. A value that is too long for a line is cut, and its line begins with how long
        it is and with its digest.
        """
        arguments = self.arguments
        return [
            f"action: {shown(self.action) if self.action else '(none)'}",
            f"arguments: {len(arguments) or '(none)'}",
            *(line_of(name, value) for name, value in arguments.items()),
            f"thread: {self.thread}",
            f"store: {self.store}",
            f"app: {self.app or '(none)'}",
            f"reasons: {', '.join(self.reasons)}",
            *(f"detail: {detail}" for detail in self.details),
            f"checkpoint: {self.checkpoint} {self.checkpoint.digest}",
            f"head: {self.head} {self.head.digest}",
            f"tools: {self.tools}",
        ]

    def __eq__(self, other: object) -> bool:
        if type(other) is not Question:
            return NotImplemented
        return self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        kept = (each.name for each in fields(self) if each.name != "arguments")
        return f"Question({', '.join(f'{name}={getattr(self, name)!r}' for name in kept)})"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        # A copy, or one from another process, is looked at like any other.
        return Question.from_text, (self.text,)


def parse(line: str) -> Any:
    """Return what a line of canonical JSON says.

    Raises:
        ApprovalMalformed: it is something else, or too deep, or too much.
    """
    try:
        return CODEC.decode(line.encode("ascii"))
    except CheckpointError:
        pass
    raise ApprovalMalformed("Its second line is not JSON as the codec writes it.", _SEND)


_FIELDS: Final = frozenset(each.name for each in fields(Question))
_SEND: Final = "Send what Question.text gave, unchanged."


_PLAIN: Final = (
    "store",
    "thread",
    "checkpoint",
    "head",
    "app",
    "tools",
    "reasons",
    "details",
    "action",
)


def difference(answered: Question, asked: Question) -> str | None:
    """Say in which field two questions differ, and both values, or return None if in none.

    A value that is too long to be shown is shown by its beginning, its length and its digest, so
    that two of them never look the same.
    """
    if answered == asked:
        return None
    for name in _PLAIN:
        ours, theirs = getattr(answered, name), getattr(asked, name)
        if ours != theirs:
            return f"the {name} {_told(ours)}, and the question has {_told(theirs)}"
    return _arguments(answered, asked)


def _arguments(answered: Question, asked: Question) -> str:
    ours, theirs = answered.arguments, asked.arguments
    # By their bytes: 1 == True in Python, and nobody who approves the one approves the other.
    left, right = (
        {name: digest_of_value(value) for name, value in each.items()} for each in (ours, theirs)
    )
    name = min(name for name in {*left, *right} if left.get(name) != right.get(name))
    shown_name = _told(name)
    if name not in ours:
        return f"no argument {shown_name}, and the question has {_told(theirs[name])}"
    there = _told(theirs[name]) if name in theirs else "none"
    return f"the argument {shown_name}: {_told(ours[name])}, and the question has {there}"


def _told(value: object) -> str:
    if isinstance(value, Head):
        return f"{value} {value.digest}"
    if is_digest(value):
        return str(value)
    text = quoted(value)
    if text == shown(value):
        return text
    return f"{text} ({len(shown(value))} characters, {digest_of_value(value)})"


Verdict = Literal["approved", "denied"]
"""What an approver said."""

FORMAT_STATEMENT: Final = "safepoint-approval/1"
MAX_BYTES_STATEMENT: Final = 64 * 1024

_OWN: Final = frozenset(["approver", "expires", "issued", "nonce", "verdict"])
# The last letter of a signature has no bits to spare, so that one signature has one spelling.
_TEXT_STATEMENT = re.compile(
    r"safepoint-approval/1 ([0-9a-f]{16}) ([A-Za-z0-9+/]{85}[AQgw]==)\n([ -~]+)\n"
)
_OTHER_FORMAT = re.compile(r"safepoint-approval/([0-9]{1,3}) ")
_NONCE = re.compile(r"[0-9a-f]{32}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
SEND: Final = "Send what Approver.approve or Approver.deny gave, unchanged."


@dataclass(frozen=True, slots=True)
class Approval:
    """An answer whose signature was verified. `Approvers.open` makes it.

    Attributes:
        approver: who answered.
        key: the id of the key that they signed with.
        verdict: "approved" or "denied".
        issued: when they signed, by their clock, in UTC.
        expires: from when on it does not count.
        nonce: 32 hex digits that no other approval has.
        question: what they answered.
        text: the signed text.
    """

    approver: str
    key: str
    verdict: Verdict
    issued: datetime
    expires: datetime
    nonce: str
    question: Question
    text: str = field(repr=False)


def noun(approval: Approval) -> str:
    """Return how a message begins: "The approval by dana"."""
    kind = "approval" if approval.verdict == "approved" else "denial"
    return f"The {kind} by {approval.approver}"


def write(
    question: Question,
    key: SigningKey,
    *,
    approver: str,
    verdict: Verdict,
    issued: datetime,
    expires: datetime,
    nonce: str,
) -> str:
    """Return the signed text of an answer."""
    body = CODEC.encode(
        {
            **question.fields,
            "approver": approver,
            "expires": spelled(expires),
            "issued": spelled(issued),
            "nonce": nonce,
            "verdict": verdict,
        }
    ).decode("ascii")
    signature = base64.b64encode(key.sign(signed(body))).decode("ascii")
    return f"{FORMAT_STATEMENT} {key.id} {signature}\n{body}\n"


def split(text: object) -> tuple[str, bytes, str]:
    """Return the key id, the signature and the body of a text. None of them is trusted yet.

    Raises:
        ApprovalMalformed: it does not have the shape of an approval.
    """
    if not isinstance(text, str):
        raise ApprovalMalformed(f"An approval is text, and not {type(text).__name__}.", SEND)
    if len(text) > MAX_BYTES_STATEMENT:
        raise ApprovalMalformed(
            f"The approval is {len(text)} characters, over the limit of {MAX_BYTES_STATEMENT}.",
            SEND,
        )
    found = _TEXT_STATEMENT.fullmatch(text)
    if found is None:
        other = _OTHER_FORMAT.match(text)
        if other is not None and int(other.group(1)) > 1:
            raise ApprovalMalformed(
                f"The approval says that it is of format safepoint-approval/{int(other.group(1))},"
                f" not {FORMAT_STATEMENT}.",
                "If a newer safepoint wrote it, upgrade here too.",
            )
        raise ApprovalMalformed("The text is not an approval.", SEND)
    key_id, signature, body = found.groups()
    return key_id, base64.b64decode(signature), body


def signed(body: str) -> bytes:
    """Return what the signature covers."""
    return f"{FORMAT_STATEMENT}\n{body}".encode("ascii")


def read(body: str, key_id: str, text: str) -> Approval:
    """Return the approval of a body whose signature was verified.

    Raises:
        ApprovalMalformed: the holder of the key signed something else.
    """
    try:
        values: Any = parse(body)
        if type(values) is not dict or not values.keys() >= _OWN:
            raise _other("It lacks fields that every approval has.")
        own = {name: values.pop(name) for name in _OWN}
        question = Question.from_fields(values)
        if type(own["approver"]) is not str or own["verdict"] not in get_args(Verdict):
            raise _other("It does not say who answered what.")
        if type(own["nonce"]) is not str or not _NONCE.fullmatch(own["nonce"]):
            raise _other("Its nonce is not 32 hex digits.")
        issued, expires = _moment(own["issued"]), _moment(own["expires"])
        if issued >= expires:
            raise _other("It expires before it is issued.")
    except CheckpointError as error:
        why = error.what
    else:
        return Approval(
            own["approver"],
            key_id,
            own["verdict"],
            issued,
            expires,
            own["nonce"],
            question,
            text,
        )
    raise ApprovalMalformed(
        f"Key {key_id} signed an approval that this release does not write. {why}",
        "Check that the approver runs a released version of safepoint with the same format.",
    )


def _moment(text: object) -> datetime:
    if type(text) is str and _TIME.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass  # the 31st of February
    raise _other("Its times are not written as they should be.")


def _other(why: str) -> ApprovalMalformed:
    return ApprovalMalformed(why, SEND)


SKEW: Final = timedelta(seconds=60)


def check_valid(approval: Approval, now: datetime, lifetime: timedelta) -> None:
    """Refuse an approval that does not count at this time.

    Clocks may differ by a minute. That excuses an approval from the future, never an expired one.

    Raises:
        ApprovalExpired: it is too late, too early, or the approval is valid for too long.
    """
    if now >= approval.expires:
        raise ApprovalExpired(
            f"{noun(approval)} expired at {spelled(approval.expires)}, and it is {spelled(now)}.",
            f"Ask {approval.approver} again.",
        )
    if approval.issued - now > SKEW:
        raise ApprovalExpired(
            f"{noun(approval)} was issued at {spelled(approval.issued)}, and it is only"
            f" {spelled(now)}: that is more than the {SKEW.seconds} seconds by which clocks"
            " may differ.",
            f"Set the clocks of this machine and of {approval.approver} right, then ask again.",
        )
    valid = approval.expires - approval.issued
    if valid > lifetime:
        raise ApprovalExpired(
            f"{noun(approval)} is valid for {valid}, and the policy allows {lifetime}.",
            f"Ask {approval.approver} again, for a shorter time: approve(question, lifetime=...).",
        )


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


class Approvers:
    """The people who may approve, and the public keys by which they are known.

    ```python
    from dataclasses import replace

    from safepoint import ApprovalMismatch, Head, SigningKey
    from safepoint.approval import Approver, Approvers, Question

    key = SigningKey.generate("ed25519")
    dana, approvers = Approver("dana", key), Approvers({"dana": key.public})

    head = Head(3, "sha256:" + "a" * 64)
    tools = "sha256:" + "b" * 64
    asked = {"amount": 42}
    question = Question(
        "invoices", "order-7", head, head, "invoice", tools, ("asked",), "pay", asked
    )
    approval = approvers.open(dana.approve(question))
    print(approval.approver, approval.verdict, approval.question == question)
    #> dana approved True

    try:
        approvers.check_bound(approval, replace(question, arguments={"amount": 5_000_000}))
    except ApprovalMismatch as error:
        print(error.what)
        #> The approval by dana has the argument 'amount': 42, and the question has 5000000.
    ```

    Args:
        keys: each person's public key, or several of them, by the person's name.
        revoked: which of these keys no longer count, or their ids. What they signed before does
            not count either: whoever stole a key can write any date.

    Raises:
        InvalidId: a name is outside the grammar.
        KeyRefused: something is no public key, one key has two names, or what is revoked is
            nobody's key.
    """

    __slots__ = ("_keys", "_revoked")

    def __init__(
        self,
        keys: Mapping[str, VerifyingKey | Iterable[VerifyingKey]],
        *,
        revoked: Key | str | Iterable[Key | str] = (),
    ) -> None:
        if not isinstance(keys, Mapping) or not keys:
            raise KeyRefused(
                "Approvers are people by name, each with a public key; there are none here.",
                'Write Approvers({"dana": VerifyingKey.from_file(path)}).',
            )
        found: dict[str, tuple[str, VerifyingKey]] = {}
        for name, given in keys.items():
            person = str.__str__(check_name("approver", name))
            for key in _listed(person, given):
                owner, known = found.setdefault(key.id, (person, key))
                if not known.is_same_as(key):
                    raise KeyRefused(
                        f"Two different keys have the id {key.id}.",
                        "Replace one of them with a new key.",
                    )
                if owner != person:
                    raise KeyRefused(
                        f"Key {key.id} is listed for {owner} and for {person}, so it would count"
                        " as two people.",
                        "Give each person a key of their own.",
                    )
        self._keys: Final = found
        self._revoked: Final = frozenset(_revoked(revoked, found))

    @property
    def names(self) -> tuple[str, ...]:
        """Who may approve, in alphabetical order: everybody with a key that is not revoked."""
        return tuple(
            sorted({name for key, (name, _) in self._keys.items() if key not in self._revoked})
        )

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Approvers({list(self.names) if hasattr(self, '_revoked') else ''})"

    def check_apart(self, keyring: Keyring) -> None:
        """Refuse approvers whose keys are also on the keyring of a ledger.

        Raises:
            KeyRefused: one is: whoever writes the store could approve what they wrote.
        """
        if not isinstance(keyring, Keyring):
            raise KeyRefused(
                f"Approvers are held against a Keyring, and not {type(keyring).__name__}.",
                "Give the keyring of the ledger.",
            )
        for key in keyring:
            if key.id in self._keys:
                raise KeyRefused(
                    f"Key {key.id} of the approver {self._keys[key.id][0]} is on the keyring of the"
                    " ledger, so a writer could approve its own work.",
                    "Give the approver a key of their own: SigningKey.generate('ed25519').",
                )

    @property
    def keys(self) -> tuple[tuple[str, VerifyingKey], ...]:
        """Each key with the name of its owner, revoked ones included."""
        return tuple(self._keys.values())

    @property
    def revoked(self) -> frozenset[str]:
        """The ids of the keys that no longer count."""
        return frozenset(self._revoked)

    def open(self, text: str, *, revoked: bool = False) -> Approval:
        """Verify a text in the one order that is safe, and return what it says.

        It is genuine then. Whether it answers your question, and at this time, `check_at_time`
        tells.

        Args:
            text: what somebody signed.
            revoked: also open what a key signed that was revoked since. It does not count then.

        Raises:
            ApprovalMalformed: it is not an approval of this format.
            ApprovalUntrusted: nobody of these approvers signed it, or their key is revoked, or it
                speaks for somebody else.
        """
        # 1. the size, and the grammar of the two lines
        text = unwrapped(text) if isinstance(text, str) and len(text) <= MAX_BYTES else text
        key_id, signature, body = split(text)

        # 2. the key
        if key_id not in self._keys:
            raise ApprovalUntrusted(
                f"The approval names key {key_id}, which is no approver's.",
                "If that person may approve, add their public key to Approvers; if not, treat it as"
                " forged.",
            )
        name, key = self._keys[key_id]
        if key_id in self._revoked and not revoked:
            raise ApprovalUntrusted(
                f"The approval names key {key_id} of {name}, which was revoked.",
                "Whoever stole that key may have written it. Ask again, and let them sign with"
                " a key that counts.",
            )

        # 3. the signature
        if not key.verify(signed(body), signature):
            raise ApprovalUntrusted(
                f"The approval was changed after {name} signed it, or {name} never did.",
                "Do not use it: find out where it comes from, then ask again.",
            )

        # 4. the body: from here on, written by a holder of the key
        approval = read(body, key_id, text)
        if approval.approver != name:
            raise ApprovalUntrusted(
                f"The approval says that it is by {quoted(approval.approver)}, and key {key_id} is"
                f" the key of {name}.",
                "Nobody signs for somebody else: let each person sign with their own key.",
            )
        return approval

    def check_bound(self, approval: Approval, question: Question) -> None:
        """Refuse an approval that answers another question. The time is not looked at.

        Raises:
            ApprovalMismatch: a field differs; the message says which, and both values.
            ApprovalUntrusted: it was not opened with approvers who count here.
        """
        approval = self._opened(approval)
        if type(question) is not Question:
            raise ConfigurationError(
                f"An approval answers a Question, not {type(question).__name__}.",
                "Give the question that was asked.",
            )
        differs = difference(approval.question, question)
        if differs is not None:
            raise ApprovalMismatch(
                f"{noun(approval)} has {differs}.",
                f"It does not count here. Ask {approval.approver} this question.",
            )

    def check_at_time(
        self, approval: Approval, question: Question, now: datetime, *, lifetime: timedelta
    ) -> None:
        """Refuse an approval that answers another question, or that is not valid at this time.

        Args:
            approval: what `open` returned.
            question: what is to happen, exactly.
            now: the time. An approval counts from when it was issued, give or take a minute for
                clocks that differ, and until just before it expires.
            lifetime: the longest that an approval may be valid.

        Raises:
            ApprovalMismatch: it answers another question.
            ApprovalExpired: it is too late, too early, or valid for too long.
            ApprovalUntrusted: it was not opened with approvers who count here.
        """
        self.check_bound(approval, question)
        check_valid(approval, utc(now), check_lifetime(lifetime))

    def count(self, approvals: Iterable[Approval]) -> int:
        """Return how many people approved. Who did so twice counts once; who denied, not at all.

        Raises:
            ApprovalUntrusted: one was not opened with approvers who count here.
        """
        people = set()
        for approval in approvals:
            genuine = self._opened(approval)
            if genuine.verdict == "approved":
                people.add(genuine.approver)
        return len(people)

    def _opened(self, approval: Approval) -> Approval:
        """Open it again, and refuse one that was made by hand or opened by others."""
        if type(approval) is not Approval:
            raise ConfigurationError(
                f"This takes an Approval, and was given {type(approval).__name__}.",
                "Open the text first: approvers.open(text).",
            )
        genuine = self.open(approval.text)
        if genuine != approval:
            raise ApprovalUntrusted(
                "The approval is not what its signed text says.",
                "Use what approvers.open(text) returns.",
            )
        return genuine


def _listed(name: str, given: Any) -> list[VerifyingKey]:
    keys = list(given) if isinstance(given, Iterable) else [given]
    for key in keys:
        if not isinstance(key, VerifyingKey):
            raise KeyRefused(
                f"{name} is listed with {type(key).__name__}, and not with a public key"
                + (
                    ": whoever checks an approval could make one."
                    if isinstance(key, SigningKey)
                    else "."
                ),
                "Give what they sent you of key.public, for a key of"
                " SigningKey.generate('ed25519').",
            )
    if not keys:
        raise KeyRefused(
            f"{name} is listed without a key.", "Give their public key, or leave them out."
        )
    return keys


def _revoked(given: Any, known: Mapping[str, object]) -> Iterable[str]:
    listed = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    for each in listed:
        key_id = each.id if isinstance(each, Key) else each
        # A mistyped id would revoke nothing, and nobody would notice.
        if not isinstance(key_id, str) or key_id not in known:
            raise KeyRefused(
                f"{quoted(key_id)} is revoked, and is the key of no approver here.",
                "Keep a revoked key under its owner's name, and give the key or its 16 hex digits.",
            )
        yield key_id
