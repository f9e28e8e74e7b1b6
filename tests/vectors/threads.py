"""Whole threads: links, base, tombstone, anchor."""

from __future__ import annotations

from typing import Any

from tests.vectors.material import (
    BASE,
    DELETED,
    ED25519,
    ELSEWHERE,
    FIRST,
    HMAC_2,
    ONE,
    OPENED_DELETED,
    OPENED_ONE,
    OPENED_THREE,
    OPENED_TWO,
    OTHER_TWO,
    SECOND,
    THIRD,
    THREE,
    TWO,
    Vector,
    head,
    sealed,
    stateless,
)


def vectors() -> list[Vector]:
    """Return those that verify, then those that do not."""
    return [*_accepted(), *_broken(), *_pruned_badly(), *_against_the_anchor()]


def _thread(
    name: str, about: str, records: dict[int, bytes], trusted: str = "hmac", **more: Any
) -> Vector:
    result: Vector = {key: more.pop(key) for key in ("verifies", "refused") if key in more}
    return {
        "name": name,
        "about": about,
        "keys": trusted.split(),
        "store": FIRST.store,
        "thread": FIRST.thread,
        **more,
        "records": {str(number): record.decode() for number, record in records.items()},
        **result,
    }


def _base(sequence: int, record: bytes = BASE) -> Vector:
    return {"sequence": sequence, "record": record.decode()}


def _accepted() -> list[Vector]:
    all_three = {1: ONE, 2: TWO, 3: THREE}
    by_new_key, opened_by_new_key = sealed(SECOND, ED25519, previous=OPENED_ONE.digest)
    resealed, _ = sealed(FIRST, HMAC_2)
    return [
        _thread("three", "Each names the one before it.", all_three, verifies=3),
        _thread(
            "anchored",
            "The anchor has seen the head.",
            all_three,
            anchor=head(OPENED_THREE),
            verifies=3,
        ),
        _thread(
            "extended",
            "The anchor has seen #1. A save that was killed leaves a thread like this.",
            all_three,
            anchor=head(OPENED_ONE),
            verifies=3,
        ),
        _thread(
            "rotated",
            "A second key took over.",
            {1: ONE, 2: by_new_key},
            "hmac ed25519",
            anchor=head(opened_by_new_key),
            verifies=2,
        ),
        _thread(
            "resealed",
            "#1 under another key: the links and the anchor stay right.",
            {1: resealed, 2: TWO},
            "hmac-2 hmac",
            anchor=head(OPENED_TWO),
            verifies=2,
        ),
        _thread(
            "pruned",
            "It begins at #2, by its base.",
            {2: TWO, 3: THREE},
            base=_base(2),
            anchor=head(OPENED_THREE),
            verifies=2,
        ),
        _thread(
            "deleted",
            "A tombstone is all that is left.",
            {2: DELETED},
            base=_base(2),
            anchor=head(OPENED_DELETED),
            verifies=1,
        ),
        _thread("empty", "No record, and nobody has seen one.", {}, verifies=0),
    ]


def _broken() -> list[Vector]:
    afterwards, _ = sealed(THIRD, previous=OPENED_DELETED.digest)
    return [
        _thread(
            "after-a-tombstone",
            "Somebody who holds the key went on after the thread was deleted.",
            {1: ONE, 2: DELETED, 3: afterwards},
            refused="WrongPlace",
        ),
        _thread(
            "base-of-a-thief",
            "The key was revoked, so nobody vouches for what was pruned.",
            {2: TWO, 3: THREE},
            base=_base(2),
            revoked={"hmac": head(OPENED_THREE)},
            refused="KeyRevoked",
        ),
        _thread(
            "broken-link",
            "#2 was replaced, by somebody who holds the key.",
            {1: ONE, 2: OTHER_TWO, 3: THREE},
            refused="WrongPlace",
        ),
        _thread(
            "reordered", "#2 and #3 swapped.", {1: ONE, 2: THREE, 3: TWO}, refused="WrongPlace"
        ),
        _thread("gap", "#2 is gone.", {1: ONE, 3: THREE}, refused="RecordsMissing"),
        _thread(
            "stolen-key",
            "Its thief went on after it was revoked.",
            {1: ONE, 2: TWO, 3: THREE},
            revoked={"hmac": head(OPENED_TWO)},
            refused="KeyRevoked",
        ),
    ]


def _pruned_badly() -> list[Vector]:
    other, _ = stateless("base", ELSEWHERE)
    rest = {2: TWO, 3: THREE}
    return [
        _thread("base-gone", "Pruned, and its base removed.", rest, refused="RecordsMissing"),
        _thread(
            "base-other",
            "The base names another #1 than the record does.",
            rest,
            base=_base(2, other),
            refused="WrongPlace",
        ),
        _thread(
            "base-moved", "The base of #2, at #3.", {3: THREE}, base=_base(3), refused="WrongPlace"
        ),
        _thread("base-alone", "Without its record.", {}, base=_base(2), refused="RecordsMissing"),
    ]


def _against_the_anchor() -> list[Vector]:
    return [
        _thread(
            "cut",
            "The newest was cut off.",
            {1: ONE, 2: TWO},
            anchor=head(OPENED_THREE),
            refused="RolledBack",
        ),
        _thread("gone", "All are gone.", {}, anchor=head(OPENED_ONE), refused="RolledBack"),
        _thread(
            "forked",
            "Another #2 stands where the anchored one stood.",
            {1: ONE, 2: OTHER_TWO},
            anchor=head(OPENED_TWO),
            refused="Forked",
        ),
        _thread(
            "pruned-beyond",
            "It begins after what the anchor has seen.",
            {2: TWO, 3: THREE},
            base=_base(2),
            anchor=head(OPENED_ONE),
            refused="RecordsMissing",
        ),
    ]
