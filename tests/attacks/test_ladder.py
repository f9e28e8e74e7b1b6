"""The ladder, computed: each rung stops something, and only the top stops everything.

`reasons.txt` holds why the top refuses each attack: the class of each refusal, and words of it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ormsgpack import unpackb

from safepoint.attacks import ATTACKS, RESIDUE, TARGETS, Outcome
from safepoint.attacks.kit import EVERY
from safepoint.attacks.ladder import scratch
from safepoint.attacks.rungs import TOP
from safepoint.core.chain import View
from safepoint.core.codec import Codec
from safepoint.core.errors import CheckpointError, SealBroken
from safepoint.core.keys import Key, Keyring
from safepoint.core.ledger import Link
from safepoint.core.record import Opened
from safepoint.resume.approval import Answer, Question, Reason
from safepoint.resume.asking import Asking
from safepoint.resume.gate import Decision
from safepoint.rules import RULES
from safepoint.shared.desk import Desk
from tests.harness.ladder import every, reasons, strays

BELOW = [name for name in TARGETS if name != TOP]
# Bytes have no alias, and whoever reads once leaves no time between check and use. There is
# nothing to refuse, and nothing came of it.
NOTHING_TO_REFUSE = {"aliasing", "time-of-check"}

each_attack = pytest.mark.parametrize("attack", ATTACKS)


@each_attack
def test_the_top_detects_every_attack(attack: str) -> None:
    row = every()[attack]
    wanted = Outcome.NOT_APPLICABLE if attack in NOTHING_TO_REFUSE else Outcome.DETECTED
    assert row[TOP] is wanted
    assert row[ATTACKS[attack].stopped_by] is row[TOP], "as pages show"


@each_attack
def test_an_attack_hurts_a_rung_below_the_top(attack: str) -> None:
    """Or it proves nothing. What the gate stops hurts the naive twin."""
    row = every()[attack]
    assert any(row[rung].succeeded for rung in BELOW)
    if ATTACKS[attack].stopped_by == TOP:
        assert row["naive"] is Outcome.ACCEPTED


def test_a_rung_falls_to_an_attack_that_the_next_one_detects() -> None:
    """Or the next rung is not worth its page."""
    rows = [every()[name] for name in ATTACKS]
    for rung, above in pairwise(TARGETS):
        assert any(row[rung].succeeded and row[above] is Outcome.DETECTED for row in rows), rung


def test_the_gate_changes_nothing_about_the_store() -> None:
    """The page shows one column for both."""
    for attack, row in every().items():
        if (ATTACKS | RESIDUE)[attack].stopped_by == "anchored":
            assert row["gated"] is row["anchored"]


def test_the_top_does_not_detect_the_residue() -> None:
    """If this fails, something got better: say so on the page."""
    assert {every()[attack][TOP] for attack in RESIDUE} == {Outcome.ACCEPTED}


def test_only_a_store_that_reads_twice_can_be_deceived_between_the_two() -> None:
    row = every()["time-of-check"]
    assert {rung for rung, outcome in row.items() if outcome.succeeded} == {"hash-chain"}
    assert set(row.values()) == {Outcome.ACCEPTED, Outcome.NOT_APPLICABLE}


def test_code_runs_on_the_lowest_rung_alone() -> None:
    rows = every().items()
    ran = [(name, rung) for name, row in rows for rung in row if row[rung] is Outcome.EXECUTED]
    assert {target for _, target in ran} == {"naive"}
    assert {"pickle-payload", "unknown-type", "row-chooses-decoder"} <= {a for a, _ in ran}


def test_nothing_is_left_behind() -> None:
    assert strays() == []
    assert [name for name in sys.modules if name.startswith("sentinel_")] == []
    assert [entry for entry in sys.path if "safepoint-attack-" in entry] == []


def test_an_attack_is_a_leg_of_its_rule_and_has_a_story_of_its_own() -> None:
    assert {*ATTACKS, *RESIDUE} == {*EVERY}
    for name, attack in EVERY.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        listed = attack.residue or name in RULES[attack.rule].legs["attack"]
        assert listed, f"name {name} as an attack of {attack.rule} in src/safepoint/rules.toml"
        assert re.fullmatch(r".{1,89}\.", attack.story)
        assert attack.about.endswith(".")
    assert len({attack.story for attack in EVERY.values()}) == len(EVERY)


@cache
def expected() -> dict[str, list[str]]:
    """Why each attack is refused. Where there are several reasons, it tries several things."""
    text = Path(__file__).with_name("reasons.txt").read_text(encoding="utf-8")
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    return {attack: [line.strip() for line in why] for attack, *why in blocks}


def is_why(reason: str, refusal: str) -> bool:
    """Tell whether a refusal is of that class, and says that."""
    kind, _, words = reason.partition(": ")
    found, _, message = refusal.partition(": ")
    return found == kind and words in message


@each_attack
def test_the_top_refuses_each_attack_for_its_own_reason(attack: str) -> None:
    """Or a store that has lost that defence would still seem to have it."""
    refused, why = reasons()[attack], expected().get(attack)
    assert why is not None, f"say in tests/attacks/reasons.txt why {attack} is refused: {refused}"
    assert [text for text in refused if not any(is_why(each, text) for each in why)] == []
    assert [each for each in why if not any(is_why(each, text) for text in refused)] == []


def ended(attack: str, rung: str) -> Outcome:
    """How an attack ends in this process."""
    with scratch() as folder:
        return ATTACKS[attack].run(TARGETS[rung](folder))


def nothing(*_: object, **__: object) -> tuple[()]:
    """Check nothing."""
    return ()


def genuine(*_: object) -> bool:
    """Call every signature right."""
    return True


def trusting(asking: Asking, note: Link, *_: object, **__: object) -> tuple[Answer, ...] | None:
    """Take what a note says for what people answered."""
    with suppress(CheckpointError, KeyError, TypeError):
        return tuple(asking.gate.approvers.open(text) for text in note.state["statements"]) or None
    return None


EVER: dict[str, Key] = {}


def for_ever(ring: Keyring, key_id: str) -> Key:
    """Trust each key that was ever on a ring."""
    EVER.update((key.id, key) for key in ring)
    if key_id in EVER:
        return EVER[key_id]
    raise SealBroken("Nobody's.")


def any_tag(codec: Codec, data: bytes) -> Any:
    """Decode whatever the library takes, and make something of each tag."""
    return unpackb(data, ext_hook=lambda code, body: body)


def by_seal_alone(
    view: View, opened: Opened, first: int, *, every_signature: bool = False
) -> Iterator[Opened]:
    """Walk back without a look at what each record names as the one before it."""
    sequences = range(opened.header.sequence - 1, first - 1, -1)
    for place, record in view._records(opened.header.thread, sequences):
        yield view._open(record, place)


def only_asks(*given: Any, **named: Any) -> Decision:
    """Let a run go on as whatever it is, unless it waits for people."""
    asked = named["asked"] if "asked" in named else getattr(given[-1], "asked", False)
    return Decision((Reason.ASKED,), 1, ()) if asked else Decision((), 0, ())


sign = Desk.answer


def by_name(desk: Desk, shown: Question, *given: Any) -> Answer:
    """Sign whatever a thread asks by now."""
    return sign(desk, desk.waits(shown.thread)[0].question, *given)


def cut(value: object) -> str:
    """Show what there is room for."""
    return repr(value)[:500]


DECODED = """deep-nesting duplicate-keys not-a-number pickle-payload pickle-right-type
secret-in-error"""
FORGED = "edit-and-rehash flip-byte"
PAST = "reorder delete-middle splice-branches"
GATED = "old-checkpoint other-version wider-tools changed-tool wider-permissions"
ELSE = """thief-crosses-version thief-thins-quorum thief-invents-question thief-skips-step
thief-moves-approval thief-spends-twice"""
DEFENCES: dict[str, tuple[Any, str, str]] = {
    "core.codec.Codec.decode": (any_tag, TOP, DECODED),
    "core.codec._ONE_HASH": (sys.maxsize, TOP, "equal-hashes"),
    "core.keys.Key.verify": (genuine, "signed-chain", FORGED),
    "core.keys.Keyring.find": (for_ever, TOP, "everything-in-one-folder retired-key thief-prunes"),
    "core.chain.View._predecessors": (by_seal_alone, TOP, f"{PAST} stolen-key-undelete"),
    "core.chain.check_follows": (nothing, TOP, "cut-oldest delete-middle reorder splice-branches"),
    "core.chain.check_is": (nothing, TOP, "fork stolen-key-rewrite"),
    "core.chain.refuse_deleted": (nothing, TOP, "undelete-by-number"),
    "core.storage.Lease.check_fence": (nothing, TOP, "former-owner second-writer"),
    "stores.disk.hard_link_refusals": (nothing, TOP, "plant-hard-link"),
    "stores.disk.folder_refusals": (nothing, TOP, "open-folder"),
    "resume.gate.Gate.decide": (only_asks, TOP, GATED),
    "resume.approval.is_signed": (genuine, TOP, "forge-approval"),
    "resume.approval.Answer.check_time": (nothing, TOP, "expired-approval thief-revives-expired"),
    "resume.approval.Answer.check_answers": (
        nothing,
        TOP,
        f"{ELSE} replay-approval ride-along thief-adds-tools",
    ),
    "resume.answers.Answers.about": (nothing, TOP, "drop-denial"),
    "resume.answers.Answers.orders": (nothing, TOP, "drop-hold"),
    "resume.asking.Asking._judge": (
        trusting,
        TOP,
        f"{ELSE} forgotten-run thief-adds-tools thief-revives-expired",
    ),
    "shared.desk.Desk.answer": (by_name, TOP, "change-after-look"),
    "resume.approval.shown": (cut, TOP, "show-less-than-runs"),
}
"""What can be removed alone: in place of it, on which rung, and what falls then. The rest
stands on two checks: a cut is missed by the anchor and by the chain, an odd name by each layer."""


@pytest.mark.parametrize("share", [32, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("defence", DEFENCES)
def test_without_a_defence_the_attacks_on_it_succeed(
    defence: str, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those alone: nothing else leaned on it without saying so.

    Of the others a share is tried, a different one for each defence.
    """
    instead, rung, fall = DEFENCES[defence]
    held = [name for name in ATTACKS if every()[name][rung] is Outcome.DETECTED]
    others = [name for name in held if name not in fall.split()]
    chosen = others[list(DEFENCES).index(defence) % share :: share]
    held = [name for name in held if name in fall.split() or name in chosen]
    monkeypatch.setattr(f"safepoint.{defence}", instead)
    assert {name for name in held if ended(name, rung).succeeded} == set(fall.split())
