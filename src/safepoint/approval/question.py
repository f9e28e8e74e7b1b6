"""The question: exactly what somebody is asked to approve."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, Final

from safepoint.approval.arguments import Arguments, line_of, shown
from safepoint.approval.fields import (
    check_action,
    check_details,
    check_digest,
    check_head,
    check_reasons,
    head_of,
    plain,
    unwrapped,
)
from safepoint.codec import Codec
from safepoint.errors import (
    ApprovalMalformed,
    CheckpointError,
    ConfigurationError,
)
from safepoint.header import check_app
from safepoint.heads import Head
from safepoint.ids import check_name
from safepoint.limits import Limits

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
    arguments: Arguments = Arguments()  # noqa: RUF009 - keeps nothing itself
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
