"""Chains of a journal: entries that are shown, and what was never one."""

from __future__ import annotations

from typing import Any, Final

from safepoint.core.codec import write_json
from safepoint.core.record import Opened, Place, Use
from tests.vectors.material import ELSEWHERE, OTHER, WRITER, Vector, head, sealed

JOURNAL: Final = Place("journal", "", "order-7", 1)
ENTRY: Final[dict[str, Any]] = {
    "actor": {"how": "login", "name": "ana"},
    "detail": "",
    "digest": ELSEWHERE,
    "outcome": "intended",
    "sequence": 1,
    "store": "invoices",
    "tenant": "",
    "thread": "order-7",
    "what": "save",
}


def written(
    *entries: bytes, thread: str = "order-7", tenant: str = "", use: Use = "journal"
) -> tuple[dict[int, bytes], Opened]:
    """Return a chain with these entries, and its end."""
    records: dict[int, bytes] = {}
    opened: Opened | None = None
    for number, payload in enumerate(entries, 1):
        place = JOURNAL._replace(tenant=tenant, thread=thread, sequence=number)
        previous = opened.digest if opened else None
        records[number], opened = sealed(
            place, OTHER, payload=payload, previous=previous, app="", use=use
        )
    assert opened
    return records, opened


def line(**changes: Any) -> bytes:
    """Return line 3 with other fields; with `...`, without one."""
    fields = {**ENTRY, **changes}
    return write_json({k: v for k, v in fields.items() if v is not ...}, 2**20)


def _vector(name: str, about: str, records: dict[int, bytes], **more: Any) -> Vector:
    return {
        "name": name,
        "about": about,
        "keys": ["other"],
        "store": "journal",
        "tenant": "",
        "thread": "order-7",
        **more,
        "records": {str(number): record.decode() for number, record in records.items()},
    }


def _shown(name: str, about: str, *entries: bytes, **more: Any) -> Vector:
    place = {name: more[name] for name in ("tenant", "thread") if name in more}
    records, end = written(*entries, **place)
    shows = {"shows": [entry.decode() for entry in entries]}
    return _vector(name, about, records, **more, anchor=head(end)) | shows


def vectors() -> list[Vector]:
    """Return chains that are shown, then those that are broken."""
    return [*_accepted(), *_broken(), *_no_entries()]


def _accepted() -> list[Vector]:
    refused = line(what="resume", outcome="refused", sequence=None, digest=None, detail="Zo\u00eb")
    store = line(what="rotate", thread=None, sequence=None, digest=None)
    of_acme = line(what="rotate", tenant="acme", thread=None, sequence=None, digest=None)
    return [
        _shown("one", "A save, before it is done.", line()),
        _shown("two", "Each names the one before it.", line(), refused),
        _shown("store", "About no thread, of no tenant.", store, thread="journal"),
        _shown("tenant", "About a thread of a tenant.", line(tenant="acme"), tenant="acme"),
        _shown("tenant-store", "About no thread, of a tenant.", of_acme, tenant="acme",
               thread="journal"),
        _shown("long", "A detail of 1,000 characters.", line(detail="\u00eb" * 1000)),
    ]  # fmt: skip


def _broken() -> list[Vector]:
    (records, end), (shorter, _) = written(line(), line(what="deny")), written(line())
    other, _ = written(line(), line(what="approve"))
    by_writer, _ = sealed(JOURNAL, WRITER, payload=line(), app="", use="journal")
    known: dict[str, Any] = {"anchor": head(end)}
    found: list[tuple[Any, ...]] = [
        ("edited", "A no is now a yes.", {
            **records, 2: records[2].replace(b'"deny"', b'"approve"')}),
        ("first-gone", "It begins at #2.", {2: records[2]}),
        ("swapped", "#1 and #2 swapped.", {1: records[2], 2: records[1]}),
        ("cut", "The newest was cut off.", shorter, known),
        ("forked", "Another #2 than the anchor has seen.", other, known),
        ("writer", "By the key of the checkpoints.", {1: by_writer}),
        ("as-record", "Signed as a checkpoint.", written(line(), use="record")[0]),
        ("as-approval", "Signed as an approval.", written(line(), use="approval")[0]),
        ("as-order", "Signed as an order.", written(line(), use="order")[0]),
        ("as-model", "Signed for a model.", written(line(), use="model")[0]),
        ("other-journal", "Of the journal named journal.", shorter, {"store": "book"}),
        ("other-chain", "Of the chain order-7.", shorter, {"thread": "order-8"}),
        ("tenant-as-none", "Of a tenant, found as one of none.",
         written(line(tenant="acme"), tenant="acme")[0]),
        ("none-as-tenant", "The reverse.", shorter, {"tenant": "acme"}),
        ("other-tenant", "Of another tenant.",
         written(line(tenant="acme"), tenant="acme")[0], {"tenant": "bolt"}),
    ]  # fmt: skip
    return [
        _vector(*row[:3], **(row[3] if len(row) > 3 else {})) | {"refused": "SealBroken journal"}
        for row in found
    ]


def _no_entries() -> list[Vector]:
    """Return what a holder of the key could write, and this release does not."""
    bad: dict[str, Any] = {
        "actor": "ana",
        "detail": "x" * 1001,
        "digest": "sha256:00",
        "outcome": "over",
        "sequence": True,
        "store": "..",
        "tenant": None,
        "thread": "order-8",
        "what": "paid",
    }
    found = [
        ("not-json", "No JSON.", b"paid"),
        ("list", "No object.", b"[]"),
        ("spaces", "Another spelling of the same.", line().replace(b":", b": ")),
        ("field-more", "A field more.", line(amount=42)),
        *((f"without-{field}", f"No {field}.", line(**{field: ...})) for field in ENTRY),
        *((f"bad-{field}", f"No {field}.", line(**{field: bad[field]})) for field in bad),
        ("nobody", "An actor without a name.", line(actor={"how": "login", "name": ""})),
        ("names", "An actor whose name is a list.", line(actor={"how": "login", "name": ["ana"]})),
        ("how-long", "257 characters.", line(actor={"how": "x" * 257, "name": "ana"})),
        ("how", "An actor of whom nobody says how.", line(actor={"name": "ana"})),
        ("of-a-tenant", "About a tenant, sealed as of none.", line(tenant="acme")),
        ("large", "More than 32,768 bytes.", line(detail="x" * 32768)),
    ]
    of_nobody, _ = written(line(tenant="Acme", thread=None), thread="journal")
    return [
        _vector("tenant-name", "No name of a tenant.", of_nobody, thread="journal")
        | {"refused": "SealBroken journal"},
        *(
            _vector(name, about, written(payload)[0]) | {"refused": "SealBroken journal"}
            for name, about, payload in found
        ),
    ]
