"""Approvals: the question to a person, and the signed statement that answers it.

A `Question` says exactly what would be resumed. An `Approver` signs an approval or a denial, with a
key that no worker has. `Approvers` knows which keys count, and distinguishes a genuine answer to
this question from every other text.

A question travels as one line of canonical JSON. An answer is the envelope of `record.py` for the
use "approval": line 1 with the signature, and on line 2 the question's fields with who answered
what and when, and when it expires. These classes decide and do not access the disk.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Literal

from safepoint.core.codec import read_json, write_json
from safepoint.core.errors import (
    ApprovalRefused,
    CheckpointError,
    ConfigurationError,
    EncodeError,
    LimitExceeded,
    Unsafe,
    quoted,
)
from safepoint.core.keys import Key, Keyring, SigningKey, VerifyingKey
from safepoint.core.names import Head, check_name, digest_of, is_digest, stamp
from safepoint.core.record import check_word, is_signed, read_line, sign_line

MAX_BYTES: Final = 64 * 1024
QUESTION: Final = "safepoint.Question"
"""The tag of a question in the records of an adapter. No value of an application has it."""
SKEW: Final = timedelta(seconds=60)
_HOUR: Final = timedelta(hours=1)
# The arguments of a step fit into a question with its details, and that fits into an approval.
_MAX_ARGUMENTS: Final = 48 * 1024
_MAX_QUESTION: Final = 60 * 1024
_ACTION: Final = re.compile(r"[A-Za-z0-9._:/-]{0,128}")
_REASON: Final = re.compile(r"[a-z][a-z-]{0,63}")
_NONCE: Final = re.compile(r"[0-9a-f]{32}")
_SPACES: Final = re.compile(" {2,}")
_MALFORMED: Final = (
    CheckpointError,
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
    OverflowError,
)


class Reason(StrEnum):
    """A finding of the gate. Policies, approvals and the journal use its value.

    Attributes:
        OLD_CHECKPOINT: it is not the end of its thread, so steps would run a second time.
        VERSION_CHANGED: another version wrote it, so its state may mean something else.
        NO_MIGRATION: no migration leads from that version to this one.
        TOOLS_ADDED: the run would get tools that it did not have at this checkpoint.
        TOOL_CHANGED: a tool with the same name has another version or schema.
        PERMISSIONS_WIDENED: a tool would have more permissions than at this checkpoint.
        ASKED: a step of the workflow asks for a person's approval.
    """

    OLD_CHECKPOINT = "old-checkpoint"
    VERSION_CHANGED = "version-changed"
    NO_MIGRATION = "no-migration"
    TOOLS_ADDED = "tools-added"
    TOOL_CHANGED = "tool-changed"
    PERMISSIONS_WIDENED = "permissions-widened"
    ASKED = "asked"


@dataclass(frozen=True, eq=False, repr=False)
class Question:
    r"""A question to a person: may this app continue a thread from a checkpoint?

    Read it before you sign it. Each item of `described` is one line of ASCII, with every character
    escaped that could hide something:

    ```python
    from safepoint.resume.approval import Question
    from safepoint.core.names import Head

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

    Two questions are equal if every field is, including its type: 1 does not equal True.

    Attributes:
        store: the store that the thread is in.
        thread: the thread that would continue.
        checkpoint: the record that it would continue from.
        head: the record after which the run would continue: the newest state, or LangGraph's
            checkpoint. When the run has continued, an approval no longer counts.
        app: the program that would run it: a workflow's name, with its version.
        tools: the digest of the tool set that it would have.
        reasons: why a person is asked.
        action: the action that a step asks for, or "".
        arguments: the exact arguments of the action, or {}. If they are changed later, `text` and
            `described` stay the same, and people sign these.
        details: the gate's findings, for example which tool is new.
        tenant: the thread's tenant, or "".
        next: the step that would run, or "" if none is left.
        done: the steps that count as done, as `app` has them.
        scope: the part of the thread that it is about, or "": a graph has several parts that
            continue separately.
        until: when the wait ends, in UTC as a record writes it, or "" if it does not. From then on
            it counts as denied.

    Raises:
        InvalidId: a name is outside its grammar.
        ConfigurationError: another field could not be shown as it is.
        EncodeError: an argument could not be restored faithfully, so nobody could sign it.
        LimitExceeded: it is more than a person could read.
    """

    store: str
    thread: str
    checkpoint: Head
    head: Head
    app: str
    tools: str
    reasons: tuple[str, ...]
    action: str
    arguments: dict[str, Any]
    details: tuple[str, ...] = ()
    tenant: str = ""
    next: str = ""
    done: tuple[str, ...] = ()
    scope: str = ""
    until: str = ""

    def __post_init__(self) -> None:
        check_name("store", self.store)
        check_name("thread", self.thread)
        if self.tenant != "":
            check_name("tenant", self.tenant)
        check_word(self.app)
        # Whatever is shown is one line of ASCII, and no more than it seems.
        right = {
            "tools": is_digest(self.tools),
            "reasons": all(map(_REASON.fullmatch, self.reasons)) and self.reasons,
            "action": _ACTION.fullmatch(self.action),
            "arguments": _are_named(self.arguments),
            "details": all(
                each.isascii() and each.isprintable() and not _SPACES.search(each)
                for each in self.details
            ),
            "next": type(self.next) is str,
            "done": all(type(each) is str for each in self.done),
            "scope": type(self.scope) is str,
            "until": self.until == "" or _is_moment(self.until),
        }
        for name, is_right in right.items():
            if not is_right:
                raise _unfit(name, getattr(self, name))
        self.text  # noqa: B018  it is refused here, if it is too much

    @cached_property
    def text(self) -> str:
        """The question as it is sent to a person: one line of canonical JSON."""
        return self._write(_FIELDS)

    @cached_property
    def subject(self) -> str:
        """The part that a denial is about: the same for every version and tool set.

        If no step asks for anything, it is the whole question.
        """
        return self._write(_SUBJECT) if self.action else self.text

    def _write(self, names: Iterable[str]) -> str:
        values = {name: getattr(self, name) for name in names}
        for name, each in values.items():
            if isinstance(each, (Head, tuple)):
                values[name] = asdict(each) if isinstance(each, Head) else list(map(str, each))
        return f"{_encode(values, _MAX_QUESTION).decode('ascii')}\n"

    @classmethod
    def from_text(cls, text: str) -> Question:
        """Read a question from its `text`. It is not authenticated: read it before you sign it.

        Raises:
            ApprovalRefused: it is not a question.
        """
        try:
            return _question(read_json(_unwrap(text, "a question").encode(), _MAX_QUESTION))
        except ApprovalRefused:
            raise
        except _MALFORMED as error:
            why = f" {error.what}" if isinstance(error, CheckpointError) else ""
            raise ApprovalRefused(f"The text is not a question.{why}", _SEND, "form") from None

    def is_over(self, now: datetime | None = None) -> bool:
        """Tell whether the wait has ended, at this moment or by the clock."""
        return self.until != "" and datetime.fromisoformat(self.until) <= (now or datetime.now(UTC))

    @property
    def described(self) -> list[str]:
        """The whole question for a person to read, one line per field and per argument.

        A line is ASCII. Text is quoted, with everything escaped that is not a printable ASCII
        character.
        """
        arguments = read_json(self.text[:-1].encode(), _MAX_QUESTION)["arguments"]
        return [
            f"action: {shown(self.action) if self.action else '(none)'}",
            f"arguments: {len(arguments) or '(none)'}",
            *(f"argument {shown(name)}: {shown(value)}" for name, value in arguments.items()),
            f"next: {shown(self.next) if self.next else '(none)'}",
            f"done: {', '.join(map(shown, self.done)) or '(none)'}",
            f"scope: {shown(self.scope) if self.scope else '(none)'}",
            f"until: {f'{self.until}, then deny' if self.until else '(none)'}",
            f"thread: {self.thread}",
            f"tenant: {self.tenant or '(none)'}",
            f"store: {self.store}",
            f"app: {self.app or '(none)'}",
            f"reasons: {', '.join(self.reasons)}",
            *(f"detail: {detail}" for detail in self.details),
            f"checkpoint: {self.checkpoint} {self.checkpoint.digest}",
            f"head: {self.head} {self.head.digest}",
            f"tools: {self.tools}",
        ]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Question) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"<Question about {self.thread} {self.head}: {', '.join(self.reasons)}>"


_FIELDS: Final = frozenset(each.name for each in fields(Question))
_SUBJECT: Final = _FIELDS - {"app", "tools", "reasons", "details", "next", "done", "until"}
_SEND: Final = "Send what Question.text gave, unchanged."
_ASK: Final = (
    "Ask with a word of A-Z, a-z, 0-9 and . _ : / -, and with named, plain values: text, numbers,"
    " Decimals, dates, bytes, and lists and dicts of them."
)


def _unfit(name: str, value: object) -> ConfigurationError:
    return ConfigurationError(
        f"{quoted(value)} cannot be the {name} of a question.",
        "Ask with words for reasons and action, a dict of named arguments, names of steps, and"
        " sentences in ASCII for details.",
    )


def _question(values: Any) -> Question:
    """Return the question from decoded fields: exactly these, each with its own type."""
    lists = [values[name] for name in ("reasons", "details", "done")]
    if values.keys() != _FIELDS or not all(
        type(each) is list and all(type(word) is str for word in each) for each in lists
    ):
        raise ConfigurationError("It has other fields than a question.", _SEND)
    heads = {name: Head(**values[name]) for name in ("checkpoint", "head")}
    tuples = {name: tuple(values[name]) for name in ("reasons", "details", "done")}
    return Question(**{**values, **heads, **tuples})


def signable(action: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a step's arguments, equal at every level and with the same types.

    Raises:
        ConfigurationError: the action is not a word, or a name is not a text.
        EncodeError: a value could not be restored faithfully, so nobody could sign it.
        LimitExceeded: they are more than a person could read.
    """
    if not _ACTION.fullmatch(action) or not action or not _are_named(arguments):
        raise ConfigurationError("It is not an action with named arguments.", _ASK)
    line = _encode({"arguments": arguments}, _MAX_ARGUMENTS)
    copy: dict[str, Any] = read_json(line, _MAX_ARGUMENTS)["arguments"]
    return copy


def end_of(created: datetime, within: timedelta) -> str:
    """Return when a wait or an answer ends. No calendar goes beyond year 9999."""
    return stamp(created + min(within, datetime.max.replace(tzinfo=UTC) - created))


def _are_named(arguments: object) -> bool:
    return type(arguments) is dict and all(type(name) is str for name in arguments)


def _encode(values: dict[str, Any], most: int) -> bytes:
    try:
        return write_json(values, most)
    except EncodeError as error:
        raise EncodeError(error.what.replace("state['arguments']", "arguments"), _ASK) from None
    except LimitExceeded:
        raise LimitExceeded(
            "The question is more than a person could read.",
            f"Keep its arguments within {_MAX_ARGUMENTS} bytes: ask about a digest of what is"
            " larger. If it is about many tools, change fewer at a time.",
        ) from None


def _unwrap(text: str, what: str) -> str:
    """Return a text as it was sent: mail and forms change line ends and add some.

    The content of a line is not changed. The signature covers it.
    """
    if not isinstance(text, str) or len(text) > MAX_BYTES:
        raise ApprovalRefused(
            f"This is not {what}: it is not text, or more than {MAX_BYTES} characters.",
            "Send what the other side gave, unchanged.",
            "form",
        )
    return text.replace("\r\n", "\n").strip(" \t\r\n")


def shown(value: object) -> str:
    """Return the whole value in ASCII, on one line, with misleading characters escaped.

    Several spaces in a row are escaped: a terminal would wrap the line there, and the text after
    them could look like a separate line.
    """
    return _SPACES.sub(lambda found: r"\x20" * len(found.group()), ascii(value))


def _without(question: Question, other: Question) -> str:
    """Return a line of a question that another lacks: its place, if that differs.

    A long one is shown by its beginning, its length and its digest.
    """
    lines, place = question.described, ("store:", "tenant:", "thread:")
    lines = [line for line in lines if line not in other.described]
    line = min(lines, key=lambda line: not line.startswith(place), default="(nothing)")
    if len(line) <= 100:
        return line
    return f"{line[:97]}... ({len(line)} characters, {digest_of(line.encode())})"


Choice = Literal["approved", "denied"]
"""What an approver said."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose signature was verified. `Approvers.open` returns it.

    Attributes:
        approver: the person who answered.
        key: the id of their key.
        verdict: "approved" or "denied".
        issued: when they signed, by their clock, in UTC.
        expires: when it expires.
        nonce: 32 hex digits that no other approval has.
        question: the question.
        text: the signed text.
        why: a reason, if one was stored with it. It has no effect.
    """

    approver: str
    key: str
    verdict: Choice
    issued: datetime
    expires: datetime
    nonce: str
    question: Question
    text: str = field(repr=False)
    why: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        kind = "approval" if self.verdict == "approved" else "denial"
        return f"The {kind} by {self.approver}"

    def check_answers(self, question: Question) -> None:
        """Refuse this answer if it is about another question.

        Raises:
            ApprovalRefused: a field differs; the message says which, and both values.
        """
        if self.question != question:
            ours, theirs = _without(self.question, question), _without(question, self.question)
            raise ApprovalRefused(
                f"{self} has {ours}, but the question has {theirs}.", kind="mismatch"
            )

    def check_time(self, now: datetime, lifetime: timedelta) -> None:
        """Refuse this answer if it is not valid at this time.

        Clocks may differ by a minute, so an approval may be that far in the future. An expired one
        is always refused.

        Args:
            now: the time.
            lifetime: the maximum validity of an approval.

        Raises:
            ApprovalRefused: it has expired, is from the future, or is valid for too long.
        """
        if now >= self.expires:
            raise ApprovalRefused(
                f"{self} expired at {stamp(self.expires)}, and it is {stamp(now)}."
            )
        if self.question.is_over(max(now, self.issued)):
            raise ApprovalRefused(
                f"{self} came too late: the wait ended at {self.question.until}.",
                "Nothing was done. Start the run again if it is still wanted.",
            )
        if self.issued - now > SKEW:
            raise ApprovalRefused(
                f"{self} was issued at {stamp(self.issued)}, and it is only {stamp(now)}: that"
                f" is more than the {SKEW.seconds} seconds by which clocks may differ.",
                f"Set the clocks of this machine and of {self.approver} right, then ask again.",
            )
        valid = self.expires - self.issued
        if valid > lifetime:
            raise ApprovalRefused(
                f"{self} is valid for {valid}, but the policy allows {lifetime}.",
                f"Ask {self.approver} again, for a shorter time: approve(question, lifetime=...).",
            )


@dataclass(frozen=True, slots=True)
class Approver:
    """A person who can sign an approval or a denial.

    A worker that had the person's key could approve its own work. So keep the key in a process and
    on a machine that no worker can write to.

    Args:
        name: the person's name in `Approvers`.
        key: their own key.

    Raises:
        InvalidId: the name is outside the grammar.
    """

    name: str
    key: SigningKey

    def __post_init__(self) -> None:
        check_name("approver", self.name)

    def approve(
        self, question: Question, *, lifetime: timedelta = _HOUR, now: datetime | None = None
    ) -> str:
        """Sign an approval that is valid for `lifetime` from now, and return its text."""
        return self._answer("approved", question, lifetime, now)

    def deny(
        self, question: Question, *, lifetime: timedelta = _HOUR, now: datetime | None = None
    ) -> str:
        """Sign a denial and return its text. It expires, unless it is stored or noted before."""
        return self._answer("denied", question, lifetime, now)

    def _answer(
        self, verdict: Choice, question: Question, lifetime: timedelta, now: datetime | None
    ) -> str:
        issued = now or datetime.now(UTC)
        line_2 = write_json(
            {
                **read_json(question.text[:-1].encode(), _MAX_QUESTION),
                "approver": self.name,
                "expires": end_of(issued, lifetime),
                "issued": stamp(issued),
                "nonce": secrets.token_hex(16),
                "verdict": verdict,
            },
            MAX_BYTES,
        )
        return (b"%b\n%b\n" % (sign_line(line_2, self.key, "approval"), line_2)).decode()


class Approvers:
    """The people who may approve, with their public keys.

    ```python
    from dataclasses import replace

    from safepoint import Approver, Approvers, SigningKey
    from safepoint.resume.approval import Question
    from safepoint.core.errors import ApprovalRefused
    from safepoint.core.names import Head

    key = SigningKey.generate()
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
        approval.check_answers(replace(question, arguments={"amount": 5_000_000}))
    except ApprovalRefused as error:
        print(error.what.partition(",")[0])
        #> The approval by dana has argument 'amount': 42
    ```

    Args:
        keys: each person's public key, or several of them, by the person's name.
        revoked: the keys that no longer count, or their ids. That includes earlier signatures,
            because a thief of a key can write any date.

    Attributes:
        keys: each key with the name of its owner, revoked ones included, by the key's id.
        revoked: the ids of the keys that no longer count.
        names: the people who may approve: everybody with a key that is not revoked.

    Raises:
        InvalidId: a name is outside the grammar.
        Unsafe: something is not a public key, one key has two names, or a revoked key is not
            listed.
    """

    __slots__ = ("keys", "names", "revoked")

    def __init__(
        self,
        keys: Mapping[str, VerifyingKey | Iterable[VerifyingKey]],
        *,
        revoked: Iterable[Key | str] = (),
    ) -> None:
        self.keys: Final[dict[str, tuple[str, VerifyingKey]]] = {}
        for name, public in keys.items():
            check_name("approver", name)
            for key in public if isinstance(public, Iterable) else (public,):
                self._add(name, key)
        self.revoked: Final = frozenset(
            each.id if isinstance(each, Key) else each for each in revoked
        )
        if not self.revoked <= self.keys.keys():  # a mistyped id would revoke nothing
            raise Unsafe(
                f"{quoted(min(self.revoked - self.keys.keys()))} is revoked and belongs to no"
                " approver here.",
                "Keep a revoked key under its owner's name, and give the key or its 16 hex digits.",
            )
        self.names: Final = tuple(
            sorted({name for key_id, (name, _) in self.keys.items() if key_id not in self.revoked})
        )

    def _add(self, name: str, key: object) -> None:
        if not isinstance(key, VerifyingKey):
            raise Unsafe(
                f"{name} is listed with {type(key).__name__}, not with a public key: anyone who"
                " checks an approval could make one.",
                "Give what they sent you of key.public, for a key of SigningKey.generate().",
            )
        owner, _ = self.keys.setdefault(key.id, (name, key))
        if owner != name:
            raise Unsafe(
                f"Key {key.id} is listed for {owner} and for {name}, so it would count as two"
                " people.",
                "Give each person a key of their own.",
            )

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Approvers({list(self.names)})"

    def check_apart(self, keyring: Keyring) -> None:
        """Refuse approvers whose keys are also on a ledger's keyring.

        Raises:
            Unsafe: one is, so a writer of the store could approve its own work.
        """
        for key in keyring:
            if key.id in self.keys:
                raise Unsafe(
                    f"Key {key.id} of the approver {self.keys[key.id][0]} is on the keyring of the"
                    " ledger, so a writer could approve its own work.",
                    "Give the approver a key of their own: SigningKey.generate().",
                )

    def open(self, text: str, *, revoked: bool = False) -> Answer:
        """Verify a signed text and return the answer.

        The answer is genuine. Check with its `check_answers` and `check_time` whether it is about
        your question and still valid.

        Args:
            text: the signed text.
            revoked: also open an answer of a revoked key, which does not count.

        Raises:
            ApprovalRefused: it is not an answer; or nobody of these approvers signed it, or their
                key is revoked, or it speaks for somebody else.
        """
        # 1. the size, and the grammar of line 1
        line_1, _, line_2 = _unwrap(text, "an answer").encode("utf-8", "replace").partition(b"\n")
        found = read_line(line_1)
        if found is None:
            raise ApprovalRefused(
                "The text is not an answer.",
                "Send what Approver.approve or Approver.deny gave, unchanged.",
                "form",
            )
        key_id, signature = found

        # 2. the key
        if key_id not in self.keys:
            raise ApprovalRefused(
                f"The answer names key {key_id}, which is not an approver's.",
                "If you know that key, list it in Approvers, as revoked if its owner may no longer"
                " approve. If not, treat it as forged.",
                "key",
            )
        name, key = self.keys[key_id]
        if key_id in self.revoked and not revoked:
            raise ApprovalRefused(
                f"The answer names key {key_id} of {name}, which was revoked.",
                "The thief of that key may have written it. Ask again: they must sign with"
                " another key.",
            )

        # 3. the signature, as an approval
        if not is_signed(line_2, signature, key, "approval"):
            raise ApprovalRefused(
                f"The answer was changed after {name} signed it, or {name} never did.",
                "Do not use it: find out where it comes from, then ask again.",
            )

        # 4. line 2: from here on, written by a holder of the key
        answer = _read(line_2, key_id, f"{line_1.decode()}\n{line_2.decode()}\n")
        if answer.approver != name:
            raise ApprovalRefused(
                f"The answer says that it is by {quoted(answer.approver)}, and key {key_id} is"
                f" the key of {name}.",
                "Each person must sign with their own key.",
            )
        return answer


def peek(text: str) -> dict[str, Any]:
    """Return the content of a statement without verifying it; nothing if it is not a statement."""
    try:
        said = read_json(text.split("\n")[1].encode(), MAX_BYTES)
    except (CheckpointError, IndexError):
        return {}
    return said if isinstance(said, dict) else {}


def _read(line_2: bytes, key_id: str, text: str) -> Answer:
    """Return the answer of a line whose signature was verified."""
    try:
        values = read_json(line_2, MAX_BYTES)
        approver, verdict, nonce = (values.pop(name) for name in ("approver", "verdict", "nonce"))
        issued, expires = (_moment(values.pop(name)) for name in ("issued", "expires"))
        question = _question(values)
        check_name("approver", approver)
        if verdict in ("approved", "denied") and _NONCE.fullmatch(nonce):
            return Answer(approver, key_id, verdict, issued, expires, nonce, question, text)
        why = "Its verdict or nonce is not written as it should be."
    except _MALFORMED as error:
        why = error.what if isinstance(error, CheckpointError) else "It has other fields."
    raise ApprovalRefused(
        f"Key {key_id} signed an answer that this release does not write. {why}",
        "Check that the approver runs a released version of safepoint with the same format.",
        "form",
    )


def _is_moment(text: str) -> bool:
    try:
        return bool(_moment(text))
    except (TypeError, ValueError):
        return False


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if stamp(moment) != text:
        raise ValueError
    return moment
