"""The record format: its vectors, the implementation, and a verifier that shares no code with it.

After a change of the format, make the vectors again: `.venv/bin/python -m tests.vectors`.
"""

from __future__ import annotations

import ast
import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from safepoint import (
    CheckpointError,
    Codec,
    FileAnchor,
    FileCheckpointStorage,
    InMemoryAnchor,
    Keyring,
    Ledger,
    Limits,
    SigningKey,
)
from safepoint.errors import KeyRefused
from safepoint.keys import Key, Revoked, VerifyingKey
from safepoint.names import Head
from safepoint.record import Place, open_sealed
from safepoint.verify import View
from tests.harness.blocks import ROOT, expand
from tests.vectors import FOLDER, PAGE, files, shown, write

Vector = dict[str, Any]


def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="ascii"))


def each(vectors: Iterable[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=lambda vector: vector["name"])


KEYS: Final[dict[str, Vector]] = load("keys.json")["keys"]
RECORDS: Final[list[Vector]] = load("records.json")["vectors"]
THREADS: Final[list[Vector]] = load("threads.json")["vectors"]
STATES: Final[list[Vector]] = load("states.json")["vectors"]
REFUSED_KEYS: Final[list[Vector]] = load("keys.json")["refused"]


# ---------------------------------------------------------------- the files


@pytest.mark.parametrize("name", sorted(files()))
def test_the_published_vectors_are_the_ones_that_are_made_today(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="ascii") == files()[name]
    assert {file.name for file in FOLDER.iterdir()} == set(files())


def test_the_vector_on_the_page_is_the_published_one() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert shown(text) == text
    for shown_once in (f'"{RECORDS[0]["opens"]["digest"]}"', f"\n{RECORDS[0]['record']}"):
        assert text.count(shown_once) == 1
        assert shown(text.replace(shown_once, "\n")) == text


def test_one_command_makes_the_files_and_the_page_again(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text('```{ .json data-write="vector.json" }\n{}\n```\nrest\n')
    write(tmp_path, tmp_path / "page.md")
    assert {name: (tmp_path / name).read_text() for name in files()} == files()
    vector = (tmp_path / "page.md").read_text().split("\n", 1)[1].removesuffix("```\nrest\n")
    assert json.loads(vector) == RECORDS[0]


def test_there_is_a_vector_for_each_refusal() -> None:
    """Of the errors that the page names for a record, a thread, a state and a key."""
    refused = {v.get("refused") for v in [*RECORDS, *THREADS, *STATES, *REFUSED_KEYS]}
    assert refused - {None} == {
        "LimitExceeded",
        "RecordMalformed",
        "UnknownKey",
        "SealBroken",
        "WrongPlace",
        "KeyRevoked",
        "RecordsMissing",
        "RolledBack",
        "Forked",
        "DecodeError",
        "KeyRefused",
    }


# ---------------------------------------------------------------- the implementation


class Until:
    """The point up to which a revoked key counts, in the one thread of a vector."""

    def __init__(self, head: Head) -> None:
        self.head = head

    def read(self, store: str, thread: str) -> Head:
        return self.head


def key_of(name: str) -> Key:
    """A key as a reader holds it: the public half, where there is one."""
    key = KEYS[name]
    if "public" in key:
        return VerifyingKey(base64.b64decode(key["public"]))
    return SigningKey(base64.b64decode(key["secret"]), key["algorithm"])


def ring_of(vector: Vector) -> Keyring:
    gone = [
        Revoked(key_of(name), None if head is None else Until(Head(**head)))
        for name, head in vector.get("revoked", {}).items()
    ]
    return Keyring(verify=[key_of(name) for name in vector["keys"]], revoked=gone)


def outcome(act: Callable[[], Any]) -> Any:
    """What came of it: a value, or the name of the error."""
    try:
        return act()
    except CheckpointError as error:
        return type(error).__name__


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
        )
        return {
            "key": opened.key,
            "digest": opened.digest,
            "kind": opened.header.kind,
            "previous": opened.header.previous,
            "state": opened.payload.decode("latin-1"),
        }

    assert outcome(act) == vector.get("refused", vector.get("opens"))


def lay_out(vector: Vector, folder: Path) -> None:
    """Write a thread as the page says that the file storage keeps it."""
    folder.mkdir(mode=0o700)
    (folder / vector["thread"]).mkdir(mode=0o700)
    content = {f"{int(n):010d}.checkpoint": text for n, text in vector["records"].items()}
    if "base" in vector:
        content["base"] = f"{vector['base']['sequence']:010d}\n{vector['base']['record']}"
    for name, text in content.items():
        file = folder / vector["thread"] / name
        file.write_bytes(text.encode("latin-1"))
        file.chmod(0o600)


@each(THREADS)
def test_the_implementation_verifies_or_refuses_a_thread(vector: Vector, tmp_path: Path) -> None:
    store, thread = vector["store"], vector["thread"]
    lay_out(vector, tmp_path / "state")
    anchor = InMemoryAnchor()
    if "anchor" in vector:
        anchor.advance(store, thread, Head(**vector["anchor"]))
    storage = FileCheckpointStorage(tmp_path / "state")
    ledger = Ledger(storage, store=store, keys=ring_of(vector), anchor=anchor)
    view = View(storage, store, ledger.keys, anchor, Limits())
    oldest_first = outcome(lambda: len(list(view.walk(thread))))
    if oldest_first == "NotFound":  # what a storage says of a record that is not there
        oldest_first = "RecordsMissing"
    assert oldest_first == vector.get("refused", vector.get("verifies"))
    # From the anchor backwards, the same threads verify; the name of the refusal may differ.
    assert (type(outcome(lambda: ledger.verify(thread))) is int) == ("verifies" in vector)


def test_an_anchor_file_is_as_the_page_says(tmp_path: Path) -> None:
    head = next(vector["anchor"] for vector in THREADS if "anchor" in vector)
    folder = tmp_path / "anchor"
    folder.mkdir(mode=0o700)
    told, seen = f"{head['sequence']} {head['digest']}", "2026-11-16T12:00:00.000000Z"
    text = f"safepoint-anchor/1 invoices order-7 {told} {seen}\n"
    for name, content in (("store", "safepoint-anchor/1 invoices\n"), ("order-7.head", text)):
        (folder / name).write_text(content)
        (folder / name).chmod(0o600)
    assert FileAnchor(folder).read("invoices", "order-7") == Head(**head)


@each(STATES)
def test_the_implementation_decodes_or_refuses_a_state(vector: Vector) -> None:
    codec = Codec(limits=Limits(**vector.get("limits", {})))
    data = vector["state"].encode("latin-1")
    expected = vector.get("refused", data)
    assert outcome(lambda: codec.encode(codec.decode(data))) == expected


def key_file(folder: Path, text: str) -> Path:
    folder.chmod(0o700)
    file = folder / "a.key"
    file.write_bytes(text.encode())
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("name", KEYS)
def test_a_key_file_is_read_and_written_as_published(name: str, tmp_path: Path) -> None:
    published = KEYS[name]
    key = SigningKey.from_file(key_file(tmp_path, published["file"]))
    assert (key.id, key.algorithm) == (published["id"], published["algorithm"])
    key.to_file(tmp_path / "again.key")
    assert (tmp_path / "again.key").read_text() == published["file"]
    if name == "ed25519":
        half = VerifyingKey.from_file(key_file(tmp_path, published["public_file"]))
        half.to_file(tmp_path / "half.key")
        assert (half.id, (tmp_path / "half.key").read_text()) == (key.id, published["public_file"])


@each(REFUSED_KEYS)
def test_a_file_that_holds_no_key_is_refused(vector: Vector, tmp_path: Path) -> None:
    file = key_file(tmp_path, vector["file"])
    read = VerifyingKey if vector["name"].startswith("public") else SigningKey
    with pytest.raises(KeyRefused):
        read.from_file(file)


@each([vector for vector in REFUSED_KEYS if "small-order" in vector["name"]])
def test_a_point_of_small_order_is_refused_with_either_top_bit(vector: Vector) -> None:
    public = base64.b64decode(vector["file"].split()[2])
    for top in (0, 0x80):
        with pytest.raises(KeyRefused, match="anybody can sign"):
            VerifyingKey(public[:-1] + bytes([public[-1] & 0x7F | top]))


# ---------------------------------------------------------------- the verifier of the page


def verifier_code() -> str:
    """The verifier as the page shows it, and nothing else."""
    lines = [
        line.text
        for part in ("record", "thread")
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
    """The reader's keys by id: of an Ed25519 key the public half alone."""
    found = {}
    for name in vector["keys"]:
        key = KEYS[name]
        half = "public" if "public" in key else "secret"
        found[key["id"]] = {"algorithm": key["algorithm"], half: base64.b64decode(key[half])}
    return found


def revoked(vector: Vector) -> Vector:
    return {KEYS[name]["id"]: pair(head) for name, head in vector.get("revoked", {}).items()}


def judge_record(vector: Vector, module: Vector) -> Any:
    """What the verifier says, in the words of the vector."""
    try:
        header, digest, state = module["open_record"](
            vector["record"].encode("latin-1"),
            (vector["store"], vector["tenant"], vector["thread"], vector["sequence"]),
            trusted(vector),
            vector.get("base", False),
            revoked(vector),
            *([vector["record_bytes"]] if "record_bytes" in vector else []),
        )
    except module["Refused"] as refusal:
        return str(refusal)
    return {
        "key": vector["record"].split(" ")[1],
        "digest": digest,
        "kind": header["kind"],
        "previous": header["previous"],
        "state": state.decode("latin-1"),
    }


def judge_thread(vector: Vector, module: Vector) -> Any:
    base = vector.get("base")
    try:
        return module["verify_thread"](
            {int(n): record.encode("latin-1") for n, record in vector["records"].items()},
            (vector["store"], vector["tenant"], vector["thread"]),
            trusted(vector),
            base and (base["sequence"], base["record"].encode("latin-1")),
            pair(vector.get("anchor")),
            revoked(vector),
        )
    except module["Refused"] as refusal:
        return str(refusal)


@each(RECORDS)
def test_the_verifier_opens_or_refuses_a_record(vector: Vector) -> None:
    assert judge_record(vector, SHIPPED) == vector.get("refused", vector.get("opens"))


@each(THREADS)
def test_the_verifier_verifies_or_refuses_a_thread(vector: Vector) -> None:
    assert judge_thread(vector, SHIPPED) == vector.get("refused", vector.get("verifies"))


def test_the_verifier_shares_no_code_with_the_package() -> None:
    """Not even in what the file does at its end, to show what it can."""
    tree = ast.parse((ROOT / "snippets/verify_record.py").read_text(encoding="utf-8"))
    names = [
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    packages = {(name or "").partition(".")[0] for name in names}
    assert packages == {"base64", "hashlib", "hmac", "re", "datetime", "cryptography"}


def test_the_verifier_ends_with_two_of_the_vectors() -> None:
    whole = (ROOT / "snippets/verify_record.py").read_text(encoding="utf-8")
    its_own = whole.split("# --8<-- [end:thread]\n")[1].split("\nsecret = ")[0]
    published = {n: RECORDS[n - 1]["record"].encode() for n in (1, 2)}
    assert verifier(its_own)["records"] == published


CHECKS: Final = [
    number for number, line in enumerate(CODE.splitlines()) if line.strip().startswith("check(")
]
assert len(CHECKS) == 16


@pytest.mark.parametrize("number", CHECKS, ids=lambda number: CODE.splitlines()[number].strip())
def test_a_verifier_that_leaves_out_a_check_fails_a_vector(number: int) -> None:
    lines = CODE.splitlines()
    lines[number] = lines[number].replace("check(", "bool(").replace(', "', ') or ("')
    module = verifier("\n".join(lines))

    def fails(judge: Callable[[Vector, Vector], Any], vector: Vector, good: str) -> bool:
        try:
            return bool(judge(vector, module) != vector.get("refused", vector.get(good)))
        except Exception:  # noqa: BLE001  what the check kept out
            return True

    assert any(fails(judge_record, vector, "opens") for vector in RECORDS) or any(
        fails(judge_thread, vector, "verifies") for vector in THREADS
    )


BUILT_IN_TAGS: Final = [
    *("date", "datetime", "time", "timedelta", "decimal", "uuid", "bytes", "int", "tuple"),
    *("set", "frozenset", "dict", "odict", "path", "posixpath", "windowspath"),
]


def is_canonical(state: str) -> bool:
    """The page's text on line 3, without what it says about the inside of a tag."""

    def pairs(found: list[tuple[str, Any]]) -> Vector:
        keys = [key for key, _ in found]
        if len(set(keys)) < len(keys):
            raise ValueError
        if len(keys) == 1 and keys[0][:1] == "$" and keys[0][1:] not in BUILT_IN_TAGS:
            raise ValueError
        if len(keys) > 1 and any(key[:1] == "$" for key in keys):
            raise ValueError
        return dict(found)

    def number(text: str) -> int:
        if not -(2**63) <= int(text) < 2**63:
            raise ValueError
        return int(text)

    try:
        value = json.loads(state, object_pairs_hook=pairs, parse_int=number)
        again = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
        json.dumps(value, ensure_ascii=False).encode()  # half a character has no UTF-8
    except ValueError:
        return False
    return again == state


INSIDE_A_TAG: Final = {
    "int-for-nothing",
    "set-twice",
    "set-not-sorted",
    "odict-key-twice",
    "dict-for-nothing",
    "malformed-date",
}


@each([v for v in STATES if "limits" not in v and v["name"] not in INSIDE_A_TAG])
def test_the_canonical_form_is_as_the_page_says(vector: Vector) -> None:
    assert is_canonical(vector["state"]) == ("decodes" in vector)
