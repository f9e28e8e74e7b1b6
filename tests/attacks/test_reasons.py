"""Why the top refuses: each attack for its own reason, and no longer once that reason is gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from safepoint.approval import Approval, Approvers, Reason, _read
from safepoint.attacks import ATTACKS, TARGETS, Memory, Outcome
from safepoint.attacks.ladder import outcome_of, scratch
from safepoint.attacks.rungs import TOP
from safepoint.codec import Codec
from safepoint.errors import JournalError
from safepoint.gate import Decision, Gate
from safepoint.journal import Entry, Journal, Notes, _entry
from safepoint.names import digest_of
from safepoint.record import Checkpoint, Header, Opened, Place, open_sealed
from safepoint.verify import View
from safepoint.workflow import Approved, Granted, Payload

_EDITED = "SealBroken: was changed after it was sealed"
_STATE = "SealBroken: is not the one that was sealed"
_STRANGER = "UnknownKey: cannot be verified"
_UNSEALED = "RecordMalformed: is not a sealed record"
_MOVED = "WrongPlace: is the one of"
_LINK = "WrongPlace: does not follow"
_TAG = "DecodeError: which this codec does not know"
_JUNK = "DecodeError: holds a token"
_SHORTER = "RolledBack: and the anchor has seen"
_OTHER = "Forked: is not the record that the anchor has seen"
_DELETED = "ThreadDeleted: was deleted on"
_NAME = "InvalidId: is not a thread name"
_LINKED = "UnsafeLocation: is a symbolic link"
_TWICE = "DecodeError: has a key"
_NAN = "DecodeError: holds a number"
_SPELLING = "DecodeError: is not in canonical form"
_ASKS = "ApprovalNeeded: needs the approval of one person. "
_NOBODY = "ApprovalUntrusted: which is no approver's"
_SPENT = "ApprovalSpent: This approval of dana was used for victim #3"
_LINE = "JournalBroken: is not the one that was sealed"

# Each refusal is one of these, and each of these occurs. Where there are several, the attack tries
# several things.
WHY: dict[str, list[str]] = {
    "edit-state": [_STATE],
    "plant-record": [_STRANGER],
    "swap-threads": [_MOVED],
    "time-of-check": [],  # the ledger reads once
    "pickle-payload": [_JUNK],
    "pickle-right-type": [_JUNK],
    "traverse-id": [_NAME],
    "plant-symlink": [_LINKED],
    "plant-hard-link": ["UnsafeLocation: has a second name"],
    "plant-temp": [_LINKED],
    "open-folder": ["UnsafeLocation: can be written by others"],
    "case-fold-id": [_NAME],
    "unicode-id": [_NAME],
    "device-name-id": ["InvalidId: is the name of a device"],
    "newline-id": [_NAME],
    "retired-key": ["KeyRevoked: is sealed by key"],
    "thief-prunes": ["KeyRevoked: The base of"],
    "unknown-type": [_TAG, _JUNK, _SPELLING],
    "duplicate-keys": [_TWICE],
    "not-a-number": [_NAN],
    "secret-in-error": [
        _EDITED,
        _STATE,
        _STRANGER,
        _UNSEALED,
        _TAG,
        _TWICE,
        _NAN,
        _SPELLING,
        "DecodeError: is not JSON",
        "DecodeError: holds a malformed",
    ],
    "row-chooses-decoder": [_TAG],
    "oversized-record": ["LimitExceeded: bytes"],
    "deep-nesting": ["LimitExceeded: is nested deeper"],
    "flip-byte": [_EDITED, _STATE, _STRANGER, _UNSEALED],
    "edit-and-rehash": [_EDITED],
    "other-bytes": [_EDITED],
    "trailing-bytes": [_EDITED],
    "strip-signature": [_UNSEALED],
    "algorithm-downgrade": [_EDITED],
    "key-substitution": [_STRANGER],
    "swap-stores": [_MOVED],
    "replay-old-on-top": [_MOVED],
    "torn-record": ["RecordMalformed: is cut short"],
    "fast-forward": [_MOVED, "RecordsMissing: Thread 'victim-4' has checkpoint"],
    "backdate-clock": [_EDITED],
    "aliasing": [],  # bytes have no alias
    "forged-base": [
        "UnknownKey: base #2 cannot be verified",
        "SealBroken: base #2 was changed after it was sealed",
        "RecordsMissing: Thread 'victim-unsigned' has checkpoint",
    ],
    "reorder": [_LINK],
    "delete-middle": [_LINK],
    "cut-oldest": [_LINK],
    "splice-branches": [_LINK],
    "cut-newest": [_SHORTER],
    "cut-all-but-first": [_SHORTER],
    "restore-snapshot": [_SHORTER],
    "freeze": [_SHORTER],
    "delete-thread": [_SHORTER],
    "undelete-thread": [_SHORTER],
    "undelete-by-number": [_DELETED],
    "stolen-key-undelete": [_DELETED],
    "fork": [_OTHER],
    "stolen-key-rewrite": [_OTHER],
    "former-owner": ["NotOwner: is owned by worker 'worker-2' with token 2"],
    "second-writer": ["NotOwner: is owned by worker 'worker-1', and this save carries no token"],
    "old-checkpoint": [_ASKS + "The run would go back from #2 to #1."],
    "rollback-denial": [_SHORTER],
    "other-version": ["ResumeRefused: No migration leads from version '1' to version '2'."],
    "wider-tools": [_ASKS + "The tool bank is new."],
    "changed-tool": [_ASKS + "The tool mail has version '2-of-somebody-else'"],
    "wider-permissions": [_ASKS + "The tool mail gains the permission send."],
    "ride-along": ["ApprovalMismatch: The approval by dana has the tools"],
    "forge-approval": [
        _NOBODY,
        "ApprovalUntrusted: was changed after dana signed it, or dana never did",
        "ApprovalMalformed: The text is not an approval.",
    ],
    "stranger-approval": [_NOBODY],
    "self-approval": [_NOBODY],
    "swap-request": [
        "ApprovalMismatch: has the argument 'amount': 42, and the question has 5000000"
    ],
    "change-request": [_SPENT],
    "replay-approval": ["ApprovalMismatch: the thread 'victim', and the question has 'attacker'"],
    "reuse-approval": [_SPENT],
    "race-approval": [
        "ApprovalSpent: This approval of dana was used for victim-1 #3",
        "Conflict: victim-2 is at #4 by now, and this run is at #3. The step pay did not run",
    ],
    "expired-approval": ["ApprovalExpired: The approval by dana expired at"],
    "journal-down": ["JournalUnavailable: is not a folder"],
    "journal-edit": [_LINE],
    "journal-cut": [
        "JournalBroken: and the anchor has seen",
        _LINE,
        "JournalBroken: its second line does not end",
        "JournalBroken: is empty",
    ],
    "journal-inject": ["InvalidId: approver name"],
    "journal-plant": ["JournalBroken: is the one of"],
    "everything-in-one-folder": [_SHORTER, _STRANGER],
}


def is_why(reason: str, refusal: str) -> bool:
    """Tell whether a refusal is of that class, and says that."""
    kind, _, words = reason.partition(": ")
    found, _, message = refusal.partition(": ")
    return found == kind and words in message


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_top_refuses_each_attack_for_its_own_reason(attack: str) -> None:
    """Or a store that has lost that defence would still seem to have it."""
    in_memory = ATTACKS[attack].needs is Memory
    with scratch() as folder:
        target = TARGETS[TOP](folder, Memory() if in_memory else None)
        ATTACKS[attack].run(target)
    refused = target.refused
    assert [text for text in refused if not any(is_why(why, text) for why in WHY[attack])] == []
    assert [why for why in WHY[attack] if not any(is_why(why, text) for text in refused)] == []


def test_every_attack_has_its_reason() -> None:
    assert WHY.keys() == ATTACKS.keys()


def nothing(*_: object, **__: object) -> None:
    """Check nothing."""


def plain_json(codec: Codec, data: bytes) -> Any:
    """Decode as people do."""
    del codec
    return json.loads(data)


def anywhere(record: bytes, place: Place, *arguments: Any, **options: Any) -> Opened:
    """Open a record wherever it says that it belongs."""
    header = Header.parse(record.split(b"\n", 2)[1])
    if header is not None:
        place = Place(header.store, header.thread, header.sequence)
    return open_sealed(record, place, *arguments, **options)


def any_base(view: View, thread: str) -> Opened | None:
    """Believe whatever base is there."""
    found = view.storage.base(thread)  # type: ignore[attr-defined]
    if found is None:
        return None
    header = Header.parse(found[1].split(b"\n", 2)[1])
    assert header is not None
    return Opened(header, "", "", b"null")


def genuine(*_: object) -> bool:
    """Call every signature right."""
    return True


def only_asks(*_: object, asked: bool, **__: object) -> Decision:
    """Let a run go on as whatever it is, unless it waits for people."""
    if asked:
        return Decision((Reason.ASKED,), 1, (), ())
    return Decision((), 0, (), ())


def anybody(approvers: Approvers, text: str, *, revoked: bool = False) -> Approval:
    """Believe whoever signed."""
    del approvers, revoked
    line_1, line_2, _ = text.split("\n")
    return _read(line_2.encode(), line_1.split(" ")[1], text)


def believed(gate: Gate, checkpoint: Checkpoint, payload: Payload) -> Granted | None:
    """Take whatever statement a record holds for one about this run."""
    del checkpoint
    if not payload.approved or gate.approvers is None:
        return None
    approval = gate.approvers.open(payload.approved[0])
    question = approval.question
    approved = Approved(question.action, question.arguments, (approval.approver,))
    return Granted(approved, question, "")


def if_possible(notes: Notes, *arguments: Any, **options: Any) -> None:
    """Write it down, or do not."""
    with suppress(JournalError):
        WRITE(notes, *arguments, **options)


def any_entry(journal: Journal, *, thread: str | None = None, **others: Any) -> Iterator[Entry]:
    """Believe each entry that is there."""
    del others
    storage = journal._view.storage
    for number in range(1, storage.head("journal") + 1):
        _, line_2, said, _ = storage.read("journal", number).split(b"\n")
        header = Header.parse(line_2)
        assert header is not None
        entry = _entry(Opened(header, digest_of(line_2), "", said))
        if thread in (None, entry.thread):
            yield entry


WRITE = Notes.write
BOUND: dict[str, Callable[..., Any]] = {"safepoint.approval.Approval.check_answers": nothing}

DEFENCES: dict[str, tuple[dict[str, Callable[..., Any]], str, set[str]]] = {
    "the strict decoder": (
        {"safepoint.codec.Codec.decode": plain_json},
        TOP,
        {
            "pickle-payload",
            "pickle-right-type",
            "unknown-type",
            "duplicate-keys",
            "not-a-number",
            "row-chooses-decoder",
            "deep-nesting",
            "secret-in-error",
        },
    ),
    "the signature": (
        {"safepoint.keys.SigningKey.verify": genuine},
        "signed-chain",
        {
            "edit-and-rehash",
            "flip-byte",
            "algorithm-downgrade",
            "forged-base",
        },
    ),
    "the place": (
        {
            "safepoint.verify.open_sealed": anywhere,
        },
        "signed-chain",
        {"swap-threads", "swap-stores", "replay-old-on-top", "fast-forward"},
    ),
    "the links": (
        {
            "safepoint.verify.check_follows": nothing,
        },
        "signed-chain",
        {"reorder", "delete-middle", "cut-oldest", "splice-branches"},
    ),
    "the links, with an anchor": (
        {
            "safepoint.verify.check_follows": nothing,
        },
        TOP,
        {"reorder", "delete-middle", "cut-oldest", "splice-branches"},
    ),
    "the seal of a base": (
        {"safepoint.verify.View.base": any_base},
        TOP,
        {"forged-base", "thief-prunes"},
    ),
    "the last word of a tombstone": (
        {"safepoint.verify.refuse_deleted": nothing},
        TOP,
        {"stolen-key-undelete", "undelete-by-number"},
    ),
    "the revocation": (
        {"safepoint.record._check_revoked": nothing},
        TOP,
        {"retired-key", "thief-prunes"},
    ),
    "what the anchor has seen": (
        {
            "safepoint.verify.check_is": nothing,
        },
        TOP,
        {"fork", "stolen-key-rewrite"},
    ),
    "the gate": (
        {"safepoint.gate.Gate.decide": only_asks},
        TOP,
        {
            "old-checkpoint",
            "other-version",
            "wider-tools",
            "changed-tool",
            "wider-permissions",
        },
    ),
    "the signature of an approval": (
        {"safepoint.keys.VerifyingKey.verify": genuine},
        TOP,
        {"forge-approval"},
    ),
    "the list of those who may approve": (
        {"safepoint.approval.Approvers.open": anybody},
        TOP,
        {"forge-approval", "stranger-approval", "self-approval"},
    ),
    "the end of an approval": (
        {"safepoint.approval.Approval.check_time": nothing},
        TOP,
        {"expired-approval"},
    ),
    # The record is held to what was signed once more: 42 stays 42, for these tools, in this thread.
    "the question of an approval": (BOUND, TOP, set()),
    "the question of an approval, also in the record": (
        {
            **BOUND,
            "safepoint.workflow._check_unspent": nothing,
            "safepoint.workflow.granted": believed,
            "safepoint.workflow.check_source": nothing,
        },
        TOP,
        {"ride-along", "replay-approval", "reuse-approval"},
    ),
    "the key of a payment, and the last look before it": (
        {
            "safepoint.attacks.rungs.gated.Payments.is_new": genuine,
            "safepoint.workflow.Run._check_still_here": nothing,
        },
        TOP,
        {"race-approval"},
    ),
    "the fence": (
        {"safepoint.storage.base.Ownership.check_fence": nothing},
        TOP,
        {"former-owner", "second-writer"},
    ),
    "the journal's last word": (
        {"safepoint.journal.Notes.write": if_possible},
        TOP,
        {"journal-down"},
    ),
    "the journal's chain and anchor": (
        {
            "safepoint.journal.Journal.show": any_entry,
        },
        TOP,
        {"journal-edit", "journal-cut", "journal-plant"},
    ),
}


@cache
def whole(target: str) -> set[str]:
    """Return what is detected while every defence is there."""
    return {attack for attack in ATTACKS if outcome_of(attack, target) is Outcome.DETECTED}


def concerned(defence: str) -> set[str]:
    """Return the attacks on the runs for a defence of the runs, and every attack for others."""
    fall = DEFENCES[defence][2]
    runs = {attack for attack, kind in ATTACKS.items() if kind.stopped_by == TOP}
    return runs if fall <= runs else set(ATTACKS)


@pytest.mark.parametrize("defence", DEFENCES)
def test_without_a_defence_the_attacks_on_it_succeed(
    defence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those alone: nothing else leaned on it without saying so."""
    patches, target, fall = DEFENCES[defence]
    held = whole(target) & concerned(defence)
    for name, instead in patches.items():
        monkeypatch.setattr(name, instead)
    assert {attack for attack in held if outcome_of(attack, target).succeeded} == fall
