"""Whole threads: links, base, tombstone, anchor, tenant."""

from __future__ import annotations

from typing import Any

from tests.vectors.material import (
    ACME,
    BASE,
    DANA,
    DELETED,
    ELSEWHERE,
    FIRST,
    NOTE,
    OF_ACME,
    ONE,
    OPENED_ACME,
    OPENED_DELETED,
    OPENED_NOTE,
    OPENED_ONE,
    OPENED_THREE,
    OPENED_TWO,
    OTHER,
    OTHER_TWO,
    SECOND,
    THIRD,
    THREE,
    TWO,
    WRITER,
    Vector,
    head,
    sealed,
    stateless,
)


def _thread(
    outcome: int | str,
    name: str,
    about: str,
    records: dict[int, bytes],
    trusted: str = "writer",
    tenant: str = "",
    **more: Any,
) -> Vector:
    return {
        "name": name,
        "about": about,
        "keys": trusted.split(),
        "store": FIRST.store,
        "tenant": tenant,
        "thread": FIRST.thread,
        **more,
        "records": {str(number): record.decode("latin-1") for number, record in records.items()},
        ("verifies" if isinstance(outcome, int) else "refused"): outcome,
    }


def _base(sequence: int, record: bytes = BASE) -> Vector:
    return {"sequence": sequence, "record": record.decode("latin-1")}


def vectors() -> list[Vector]:
    """Return those that verify, then those that do not."""
    all_three, rest, two = {1: ONE, 2: TWO, 3: THREE}, {2: TWO, 3: THREE}, {1: ONE, 2: TWO}
    at_1, at_2, at_3, tombstone = map(head, (OPENED_ONE, OPENED_TWO, OPENED_THREE, OPENED_DELETED))
    by_new_key, opened_by_new_key = sealed(SECOND, DANA, previous=OPENED_ONE.digest)
    rotated = {1: ONE, 2: by_new_key}
    new_name = TWO.replace(WRITER.id.encode(), DANA.id.encode())
    renamed = {1: ONE, 2: new_name, 3: sealed(THIRD, DANA, previous=OPENED_TWO.digest)[0]}
    resealed = {1: sealed(FIRST, OTHER)[0], 2: TWO}
    after = {1: ONE, 2: DELETED, 3: sealed(THIRD, previous=OPENED_DELETED.digest)[0]}
    other = _base(2, stateless("base", ELSEWHERE)[0])
    links = "#1 under another key: the links and the anchor stay right."
    killed = "The anchor has seen #1. A save that was killed leaves a thread like this."
    went_on = "Somebody who holds the key went on after the thread was deleted."
    thief = "Its key was taken off the ring, so nobody vouches for what was pruned."
    replaced = {1: ONE, 2: OTHER_TWO, 3: THREE}
    two_keys, base = "writer dana", _base(2)
    missing, place = "RolledBack missing", "SealBroken place"
    chain, tenant = "SealBroken chain", "SealBroken tenant"
    forked = "Another #2 stands where the anchored one stood."
    beyond = "It begins after what the anchor has seen."
    on, opened_on = sealed(THIRD, previous=OPENED_NOTE.digest)
    noted = {1: ONE, 2: NOTE, 3: on}
    replayed = "Of a held run: the same note at the end again."
    second = OF_ACME._replace(sequence=2)
    acme_two, opened_acme_two = sealed(second, previous=OPENED_ACME.digest, label="pay:2/2")
    stray = sealed(second._replace(tenant="bolt"), previous=OPENED_ACME.digest)[0]
    acme, of_acme = {1: ACME, 2: acme_two}, {"tenant": "acme", "anchor": head(opened_acme_two)}
    base_of_acme = sealed(
        second, kind="base", previous=OPENED_ACME.digest, payload=b"\xc0", app=""
    )[0]
    relabelled = acme_two.replace(b"pay:2/2", b"pay:1/2")
    found: list[tuple[Any, ...]] = [
        (3, "three", "Each names the one before it.", all_three),
        (3, "anchored", "The anchor has seen the head.", all_three, {"anchor": at_3}),
        (3, "extended", killed, all_three, {"anchor": at_1}),
        (2, "rotated", "A second key took over.", rotated,
         {"trusted": two_keys, "anchor": head(opened_by_new_key)}),
        (2, "resealed", links, resealed, {"trusted": "other writer", "anchor": at_2}),
        (2, "pruned", "It begins at #2, by its base.", rest, {"base": base, "anchor": at_3}),
        (1, "deleted", "A tombstone is all that is left.", {2: DELETED},
         {"base": base, "anchor": tombstone}),
        (3, "noted", "A note is a link like any other.", noted, {"anchor": head(opened_on)}),
        (missing, "note-dropped", "The note is gone.", {1: ONE, 3: on}),
        (chain, "note-swapped", "A state stands where the note stood.", {**noted, 2: TWO}),
        (place, "note-replayed", replayed, {**noted, 4: NOTE}),
        ("RolledBack other", "note-as-head", "A note where the anchor has seen a state.",
         {1: ONE, 2: NOTE}, {"anchor": at_2}),
        (2, "tenant", "Of a tenant, each with a label.", acme, of_acme),
        (1, "tenant-pruned", "By its own base.", {2: acme_two},
         {**of_acme, "base": _base(2, base_of_acme)}),
        (tenant, "tenant-base-of-none", "By the base of a thread without a tenant.",
         {2: acme_two}, {**of_acme, "base": base}),
        (tenant, "tenant-as-none", "Asked for as the thread of no tenant.", acme),
        (tenant, "none-as-tenant", "The reverse.", two, {"tenant": "acme"}),
        (tenant, "tenants-mixed", "#2 is another tenant's.", {1: ACME, 2: stray},
         {"tenant": "acme"}),
        ("RolledBack", "tenant-cut", "The newest was cut off.", {1: ACME}, of_acme),
        ("SealBroken", "label-edited", "Found by another label.", {1: ACME, 2: relabelled},
         of_acme),
        (0, "empty", "No record, and nobody has seen one.", {}),
        (chain, "after-a-tombstone", went_on, after),
        ("SealBroken key", "base-of-a-thief", thief, {2: by_new_key},
         {"base": base, "trusted": "dana"}),
        (chain, "broken-link", "#2 was replaced, by somebody who holds the key.", replaced),
        (place, "reordered", "#2 and #3 swapped.", {1: ONE, 2: THREE, 3: TWO}),
        (missing, "gap", "#2 is gone.", {1: ONE, 3: THREE}),
        ("SealBroken key", "stolen-key", "Its thief went on after it was taken off the ring.",
         {1: resealed[1], 2: TWO}, {"trusted": "other"}),
        ("SealBroken", "renamed-key", "Its #2 names the key of #3 in line 1.", renamed,
         {"trusted": two_keys}),
        (missing, "base-gone", "Pruned, and its base removed.", rest),
        (chain, "base-other", "The base names another #1 than the record does.", rest,
         {"base": other}),
        (place, "base-moved", "The base of #2, at #3.", {3: THREE}, {"base": _base(3)}),
        (missing, "base-alone", "Without its record.", {}, {"base": base}),
        ("RolledBack", "cut", "The newest was cut off.", two, {"anchor": at_3}),
        ("RolledBack", "gone", "All are gone.", {}, {"anchor": at_1}),
        ("RolledBack other", "forked", forked, {1: ONE, 2: OTHER_TWO}, {"anchor": at_2}),
        (missing, "pruned-beyond", beyond, rest, {"base": base, "anchor": at_1}),
    ]  # fmt: skip
    return [_thread(*row[:4], **(row[4] if len(row) > 4 else {})) for row in found]
