"""The record format: its vectors, the implementation, and a verifier that shares no code with it.

After a change of the format, make the vectors again: `.venv/bin/python -m tests.vectors`.
"""

from __future__ import annotations

import ast
import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from safepoint import (
    CheckpointError,
    Codec,
    FileCheckpointStorage,
    InMemoryAnchor,
    Keyring,
    Ledger,
    Limits,
    SigningKey,
)
from safepoint.core.chain import View, plain_of
from safepoint.core.codec import write_json
from safepoint.core.errors import Unsafe
from safepoint.core.journal import Entry, Journal
from safepoint.core.keys import Key, VerifyingKey
from safepoint.core.names import Head, thread_name, thread_text
from safepoint.core.record import Place, open_sealed
from tests.harness.blocks import ROOT, expand
from tests.vectors import FOLDER, PAGE, files, shown
from tests.vectors.approvals import OPENS

Vector = dict[str, Any]
OUTCOMES: Final = ("refused", "opens", "verifies", "decodes", "shows")


def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="ascii"))


def each(vectors: Iterable[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=lambda vector: vector["name"])


KEYS: Final[dict[str, Vector]] = load("keys.json")["keys"]
RECORDS: Final[list[Vector]] = load("records.json")["vectors"]
THREADS: Final[list[Vector]] = load("threads.json")["vectors"]
STATES: Final[list[Vector]] = load("states.json")["vectors"]
APPROVALS: Final[list[Vector]] = load("approvals.json")["vectors"]
QUESTIONS: Final[list[Vector]] = load("approvals.json")["questions"]
JOURNALS: Final[list[Vector]] = load("journals.json")["vectors"]
NAMES: Final[list[Vector]] = load("names.json")["vectors"]
REFUSED_KEYS: Final[list[Vector]] = load("keys.json")["refused"]


# ---------------------------------------------------------------- the files


@pytest.mark.parametrize("name", sorted(files()))
def test_the_published_vectors_are_the_ones_that_are_made_today(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="ascii") == files()[name]
    assert {file.name for file in FOLDER.iterdir()} == set(files())


def test_the_vector_on_the_page_is_the_published_one() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert shown(text) == text
    record = RECORDS[0]["record"].encode("latin-1").decode("ascii", "backslashreplace")
    for shown_once in (f'"{RECORDS[0]["opens"]["digest"]}"', f"\n{record}\n"):
        assert text.count(shown_once) == 1
        assert shown(text.replace(shown_once, "\n")) == text


# ---------------------------------------------------------------- the implementation


class Closed:
    """A cipher that leaves the text as it is."""

    def close(self, plain: bytes, place: Place) -> tuple[str, bytes]:
        return KEYS["other"]["id"], plain

    def open(self, text: bytes, key: str, place: Place) -> bytes:
        return text


def key_of(name: str) -> Key:
    """A key as a reader holds it: the public half."""
    return VerifyingKey.from_text(KEYS[name]["public"])


def ring_of(vector: Vector) -> Keyring:
    return Keyring(verify=[key_of(name) for name in vector["keys"]])


def outcome(act: Callable[[], Any]) -> Any:
    """What came of it: a value, or the name of the error and its kind."""
    try:
        return act()
    except CheckpointError as error:
        return " ".join(filter(None, [type(error).__name__, error.kind]))


@each(RECORDS)
def test_the_implementation_opens_or_refuses_a_record(vector: Vector) -> None:
    place = Place(vector["store"], vector["tenant"], vector["thread"], vector["sequence"])
    limits = (
        Limits(state_bytes=vector["record_bytes"] - 4096) if "record_bytes" in vector else Limits()
    )

    def act() -> Vector:
        opened = open_sealed(
            vector["record"].encode("latin-1"),
            place,
            ring_of(vector),
            base=vector.get("base", False),
            limits=limits,
            use=vector.get("use", "record"),
        )
        if opened.header.kind in ("state", "note"):  # what has a state to decode
            plain_of(opened, Closed() if vector.get("encrypted") else None)
        return {
            "key": opened.key,
            "digest": opened.digest,
            "kind": opened.header.kind,
            "label": opened.header.label,
            "tenant": opened.header.tenant,
            "cipher": opened.header.cipher,
            "previous": opened.header.previous,
            "state": opened.payload.decode("latin-1"),
        }

    assert outcome(act) == vector.get("refused", vector.get("opens"))


def lay_out(vector: Vector, folder: Path) -> None:
    """Write a thread as the page says that the file storage keeps it."""
    thread = folder / (vector["tenant"] and f"@{vector['tenant']}") / vector["thread"]
    for each_one in (folder, thread.parent, thread):
        each_one.mkdir(mode=0o700, exist_ok=True)
    content = {f"{int(n):010d}.checkpoint": text for n, text in vector["records"].items()}
    if "base" in vector:
        content["base"] = f"{vector['base']['sequence']:010d}\n{vector['base']['record']}"
    for name, text in content.items():
        file = thread / name
        file.write_bytes(text.encode("latin-1"))
        file.chmod(0o600)


def anchor_of(vector: Vector) -> InMemoryAnchor:
    anchor = InMemoryAnchor()
    if "anchor" in vector:
        scope = anchor.tenant(vector["tenant"]) if vector["tenant"] else anchor
        scope.advance(vector["store"], vector["thread"], Head(**vector["anchor"]))
    return anchor


@each(THREADS)
def test_the_implementation_verifies_or_refuses_a_thread(vector: Vector, tmp_path: Path) -> None:
    store, tenant, thread = vector["store"], vector["tenant"], vector["thread"]
    lay_out(vector, tmp_path / "state")
    storage, anchor = FileCheckpointStorage(tmp_path / "state"), anchor_of(vector)
    ledger = Ledger(storage, store=store, keys=ring_of(vector), anchor=anchor, tenant=tenant)
    view = View(ledger.storage, store, ledger.keys, ledger.anchor, Limits(), tenant=tenant)
    for look in (
        lambda: len(list(view.forward(thread))),
        lambda: ledger.verify(thread),
        lambda: ledger.verify(thread),
    ):
        # What is wrong first from the end back has another name than from the beginning.
        found = outcome(look)
        assert (found if type(found) is int else None) == vector.get("verifies")


@each(JOURNALS)
def test_the_implementation_shows_or_refuses_a_journal(vector: Vector, tmp_path: Path) -> None:
    lay_out(vector, tmp_path / "journal")
    keys, anchor = ring_of(vector), anchor_of(vector)
    storage = FileCheckpointStorage(tmp_path / "journal")
    journal = Journal(storage, keys=keys, name=vector["store"], anchor=anchor)

    def act() -> list[str]:
        fields = json.loads(vector.get("shows", ['{"tenant":"","thread":null}'])[0])
        scope = journal.tenant(fields["tenant"]) if fields["tenant"] else journal
        return [said(entry) for entry in scope.show(thread=fields["thread"])]

    assert outcome(act) == vector.get("refused", vector.get("shows"))
    assert outcome(journal.verify) == vector.get("refused", len(vector["records"]))


def said(entry: Entry) -> str:
    fields = {**asdict(entry), "number": ..., "at": ...}
    return write_json({k: v for k, v in fields.items() if v is not ...}, 2**20).decode()


@each(NAMES)
def test_a_text_has_one_name_and_a_name_tells_its_text(vector: Vector) -> None:
    assert thread_text(vector["thread"]) == vector["says"]
    if "text" in vector:
        assert thread_name(vector["text"]) == vector["thread"]
        assert SHIPPED["thread_name"](vector["text"]) == vector["thread"]


@each(STATES)
def test_the_implementation_decodes_or_refuses_a_state(vector: Vector) -> None:
    codec = Codec(limits=Limits(**vector.get("limits", {})))
    data = vector["state"].encode("latin-1")
    expected = vector.get("refused", data)
    assert outcome(lambda: codec.encode(codec.decode(data))) == expected


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_read_and_written_as_published(name: str, tmp_path: Path) -> None:
    published = KEYS[name]
    key = SigningKey(base64.b64decode(published["seed"]))
    assert key.id == published["id"] == key_of(name).id
    key.public.to_file(tmp_path / "half.pub")
    assert (tmp_path / "half.pub").read_text() == published["public"]
    key.to_file(tmp_path / "a.key")
    assert SigningKey.from_file(tmp_path / "a.key") == key


@each(REFUSED_KEYS)
def test_a_line_that_holds_no_key_is_refused(vector: Vector, tmp_path: Path) -> None:
    file = tmp_path / "a.pub"
    file.write_bytes(vector["public"].encode())
    file.chmod(0o600)
    with pytest.raises(Unsafe):
        VerifyingKey.from_text(vector["public"])
    with pytest.raises(Unsafe):
        VerifyingKey.from_file(file)


# ---------------------------------------------------------------- the verifier of the page


def verifier_code() -> str:
    """The verifier as the page shows it, and nothing else."""
    lines = [
        line.text
        for part in ("record", "thread", "state", "approval", "journal", "key", "names")
        for line in expand(f'--8<-- "verify_record.py:{part}"', (ROOT / "snippets",)) or ()
    ]
    return "\n".join(lines)


def verifier(code: str) -> Vector:
    module: Vector = {}
    exec(compile(code, "verify_record.py", "exec"), module)  # noqa: S102
    return module


CODE: Final = verifier_code()
SHIPPED: Final = verifier(CODE)


def pair(head: Vector | None) -> tuple[int, str] | None:
    return None if head is None else (head["sequence"], head["digest"])


def trusted(vector: Vector) -> Vector:
    """The reader's keys by id, as the verifier reads them."""
    return dict(SHIPPED["read_key"](KEYS[name]["public"]) for name in vector["keys"])


def judge_record(vector: Vector, module: Vector) -> Any:
    """What the verifier says, in the words of the vector."""
    try:
        header, digest, state = module["open_record"](
            vector["record"].encode("latin-1"),
            (vector["store"], vector["tenant"], vector["thread"], vector["sequence"]),
            trusted(vector),
            vector.get("base", False),
            *([vector["record_bytes"]] if "record_bytes" in vector else []),
            use=vector.get("use", "record").encode(),
        )
        module["check_cipher"](header, vector.get("encrypted", False))
    except module["Refused"] as refusal:
        return str(refusal)
    return {
        "key": vector["record"].split(" ")[1],
        "digest": digest,
        **{name: header[name] for name in ("kind", "label", "tenant", "cipher", "previous")},
        "state": state.decode("latin-1"),
    }


def judge_thread(vector: Vector, module: Vector) -> Any:
    base = vector.get("base")
    try:
        states = module["verify_thread"](
            *chain(vector),
            base and (base["sequence"], base["record"].encode("latin-1")),
            pair(vector.get("anchor")),
        )
    except module["Refused"] as refusal:
        return str(refusal)
    return len(states)


def chain(vector: Vector) -> tuple[Any, ...]:
    records = {int(n): record.encode("latin-1") for n, record in vector["records"].items()}
    return records, (vector["store"], vector["tenant"], vector["thread"]), trusted(vector)


def judge_journal(vector: Vector, module: Vector) -> Any:
    try:
        entries = module["verify_journal"](*chain(vector), pair(vector.get("anchor")))
    except module["Refused"] as refusal:
        return str(refusal)
    return [module["spell"](entry) for entry in entries]


def judge_state(vector: Vector, module: Vector) -> Any:
    try:
        return bool(module["read_state"](vector["state"].encode("latin-1")) or True)
    except module["Refused"] as refusal:
        return str(refusal)


def judge_statement(vector: Vector, module: Vector) -> Any:
    """An approval, if there are approvers; or else a question."""
    people, opened = {}, {}
    for owner, names in vector.get("approvers", {}).items():
        for key_id, key in trusted({"keys": names}).items():
            people[key_id] = key, owner
    gone = [KEYS[name]["id"] for name in vector.get("revoked", ())]
    try:
        if people:
            opened["key"], fields = module["open_approval"](vector["text"], people, gone)
        else:
            fields = module["open_question"](vector["text"])
    except module["Refused"] as refusal:
        return str(refusal)
    opened.update((name, fields[name]) for name in OPENS if name in fields)
    return opened | {"arguments": module["spell"](fields["arguments"])}


def judge_key(vector: Vector, module: Vector) -> Any:
    try:
        key_id, _ = module["read_key"](vector["public"])
    except module["Refused"] as refusal:
        return str(refusal)
    return {"id": key_id}


INSIDE_AN_EXTENSION: Final = {
    "int-for-nothing",
    "int-upper-case",
    "set-twice",
    "set-not-sorted",
    "dict-key-twice",
    "dict-for-nothing",
    "dict-odd",
    "malformed-date",
    "infinite-decimal",
}
READ_KEYS: Final[list[Vector]] = [
    {"name": name, "public": key["public"], "opens": {"id": key["id"]}}
    for name, key in KEYS.items()
]
JUDGED: Final[list[tuple[Callable[[Vector, Vector], Any], list[Vector]]]] = [
    (judge_record, RECORDS),
    (judge_thread, THREADS),
    (
        judge_state,
        [v for v in STATES if "limits" not in v and v["name"] not in INSIDE_AN_EXTENSION],
    ),
    (judge_statement, APPROVALS),
    (judge_statement, QUESTIONS),
    (judge_journal, JOURNALS),
    (judge_key, [*READ_KEYS, *REFUSED_KEYS]),
]


def expected(vector: Vector) -> Any:
    return next(vector[key] for key in OUTCOMES if key in vector)


@pytest.mark.parametrize(
    ("judge", "vector"),
    [
        pytest.param(judge, vector, id=f"{judge.__name__}-{vector['name']}")
        for judge, vectors in JUDGED
        for vector in vectors
    ],
)
def test_the_verifier_agrees(judge: Callable[[Vector, Vector], Any], vector: Vector) -> None:
    assert judge(vector, SHIPPED) == expected(vector)


def test_the_verifier_shares_no_code_with_the_package() -> None:
    """Not even in what the file does at its end, to show what it can."""
    tree = ast.parse((ROOT / "snippets/verify_record.py").read_text(encoding="utf-8"))
    names = [
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    packages = {(name or "").partition(".")[0] for name in names}
    standard = {"base64", "hashlib", "json", "math", "re", "struct", "datetime"}
    assert packages == {*standard, "cryptography"}


CHECKS: Final = [
    number
    for number, line in enumerate(CODE.splitlines())
    if line.strip().startswith(("check(", "and "))
]


@pytest.mark.parametrize("number", CHECKS, ids=lambda number: CODE.splitlines()[number].strip())
def test_a_verifier_that_leaves_out_a_check_fails_a_vector(number: int) -> None:
    lines = CODE.splitlines()
    left_out = lines[number].replace("check(", "bool(").replace(', "', ') or ("')
    lines[number] = "" if lines[number].strip().startswith("and ") else left_out
    module = verifier("\n".join(lines))

    def fails(judge: Callable[[Vector, Vector], Any], vector: Vector) -> bool:
        try:
            return bool(judge(vector, module) != expected(vector))
        except Exception:  # noqa: BLE001  what the check kept out
            return True

    assert any(fails(judge, vector) for judge, vectors in JUDGED for vector in vectors)
