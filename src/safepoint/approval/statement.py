"""The statement: what an approver signs, and the one way to write it.

An approval is two lines that a person can read with `cat`:

    safepoint-approval/1 <key id> <signature, base64>
    {"action":…,"app":…,"approver":"dana","arguments":…,"checkpoint":…,"expires":…,"head":…,…}

The signature covers `safepoint-approval/1`, a line break and the bytes of line 2. No record of a
store is signed under that label, so neither can stand in for the other.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, get_args

from safepoint.approval.question import CODEC, Question, parse
from safepoint.errors import ApprovalMalformed, CheckpointError
from safepoint.keys import SigningKey
from safepoint.times import spelled

Verdict = Literal["approved", "denied"]
"""What an approver said."""

FORMAT: Final = "safepoint-approval/1"
MAX_BYTES: Final = 64 * 1024

_OWN: Final = frozenset(["approver", "expires", "issued", "nonce", "verdict"])
# The last letter of a signature has no bits to spare, so that one signature has one spelling.
_TEXT = re.compile(r"safepoint-approval/1 ([0-9a-f]{16}) ([A-Za-z0-9+/]{85}[AQgw]==)\n([ -~]+)\n")
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
    return f"{FORMAT} {key.id} {signature}\n{body}\n"


def split(text: object) -> tuple[str, bytes, str]:
    """Return the key id, the signature and the body of a text. None of them is trusted yet.

    Raises:
        ApprovalMalformed: it does not have the shape of an approval.
    """
    if not isinstance(text, str):
        raise ApprovalMalformed(f"An approval is text, and not {type(text).__name__}.", SEND)
    if len(text) > MAX_BYTES:
        raise ApprovalMalformed(
            f"The approval is {len(text)} characters, over the limit of {MAX_BYTES}.", SEND
        )
    found = _TEXT.fullmatch(text)
    if found is None:
        other = _OTHER_FORMAT.match(text)
        if other is not None and int(other.group(1)) > 1:
            raise ApprovalMalformed(
                f"The approval says that it is of format safepoint-approval/{int(other.group(1))},"
                f" not {FORMAT}.",
                "If a newer safepoint wrote it, upgrade here too.",
            )
        raise ApprovalMalformed("The text is not an approval.", SEND)
    key_id, signature, body = found.groups()
    return key_id, base64.b64decode(signature), body


def signed(body: str) -> bytes:
    """Return what the signature covers."""
    return f"{FORMAT}\n{body}".encode("ascii")


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
