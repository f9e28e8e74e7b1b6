"""The approvers: whose keys count, and what of what they signed counts here and now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from safepoint.approval.binding import difference
from safepoint.approval.fields import unwrapped
from safepoint.approval.question import MAX_BYTES, Question
from safepoint.approval.statement import Approval, noun, read, signed, split
from safepoint.approval.times import check_lifetime, utc
from safepoint.approval.validity import check_valid
from safepoint.errors import (
    ApprovalMismatch,
    ApprovalUntrusted,
    ConfigurationError,
    KeyRefused,
    quoted,
)
from safepoint.ids import check_name
from safepoint.keys import Key, Keyring, SigningKey, VerifyingKey


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
