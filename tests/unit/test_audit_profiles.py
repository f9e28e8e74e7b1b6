"""What others keep: each is built as they build it, and known by what it holds, with exact ids."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from safepoint import SigningKey, SQLiteAnchor, SQLiteCheckpointStorage
from safepoint.audit import check_database, check_privileges, folder, profiles
from safepoint.audit.command import look
from safepoint.audit.profiles import (
    UNREAD,
    Recognised,
    _Search,
    recognise_database,
    recognise_folder,
)
from safepoint.settings import Store
from safepoint.stores import disk
from tests.harness.optional import need
from tests.zoo.others import (
    APPROVALS,
    KEY,
    RESUME,
    TOKEN,
    WORKFLOW,
    agent,
    base,
    cached,
    flows,
    gateway,
    memory,
    openclaw,
    put,
    saved,
    session,
)

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

if not disk.SUPPORTED:
    pytest.skip("modes and owners are POSIX", allow_module_level=True)

Build = Callable[[Path], object]
UNKNOWN = "an SQLite database that is not known here"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, and whoever runs them may be anywhere."""
    monkeypatch.setattr(folder, "temp_folders", list)
    monkeypatch.chdir("/")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "kept"
    place.mkdir(mode=0o700)
    yield place
    place.chmod(0o700)


def then(*steps: Build) -> Build:
    """Build by several steps."""

    def build(path: Path) -> None:
        for step in steps:
            step(path)

    return build


def ids(found: Recognised | None) -> str:
    return "" if found is None else " ".join(sorted(each.id for each in found.findings))


def fake(file: Path) -> None:
    """The names of others, and not their columns."""
    base(file, "create table checkpoints (a); create table writes (b)")


DATABASES: dict[str, tuple[Build, str, str]] = {
    "crewai": (flows, "a database of CrewAI's flows", "SP12.unsealed-state"),
    "crewai memory": (
        memory,
        "a database of CrewAI's long-term memory",
        "SP08.likely-secrets SP12.unsealed-state",
    ),
    "openai": (session, "a database of OpenAI Agents' SQLiteSession", "SP12.unsealed-state"),
    "openclaw agent": (
        agent,
        "a database of an OpenClaw agent",
        "SP08.likely-secrets SP12.unsealed-state",
    ),
    "openclaw agent, old": (
        lambda file: agent(file, "2026.8.1-beta.2"),
        "a database of an OpenClaw agent",
        "SP08.likely-secrets SP12.unsealed-state SP19.advisories",
    ),
    "openclaw gateway": (
        gateway,
        "the shared database of an OpenClaw gateway",
        "SP12.unsealed-state SP19.unsigned-approvals",
    ),
    "named like others": (fake, UNKNOWN, "SP02.foreign-database"),
    "empty": (
        lambda file: base(file, "create table a (b); drop table a"),
        UNKNOWN,
        "SP02.foreign-database",
    ),
    "written by others": (
        then(session, lambda file: file.chmod(0o666)),
        "a database of OpenAI Agents' SQLiteSession",
        "SP04.writable SP12.unsealed-state",
    ),
    "at work": (
        then(session, lambda file: put(Path(f"{file}-wal"), "7\x7f\6 newer")),
        "a database of OpenAI Agents' SQLiteSession",
        "SP02.unseen SP12.unsealed-state",
    ),
    "damaged": (
        then(session, lambda file: file.write_bytes(file.read_bytes()[:100] + b"\xff" * 4000)),
        UNREAD,
        "SP02.unseen",
    ),
    "cut off": (then(agent, lambda file: os.truncate(file, 5000)), UNREAD, "SP02.unseen"),
}


@pytest.mark.parametrize(("build", "name", "expected"), DATABASES.values(), ids=DATABASES)
def test_a_database_is_known_by_its_columns(
    root: Path, build: Build, name: str, expected: str
) -> None:
    file = root / "any name%20#?.db"
    build(file)
    before = {each: each.read_bytes() for each in root.iterdir()}
    found = recognise_database(str(file))
    assert found is not None
    assert (found.name, ids(found)) == (name, expected)
    assert {each: each.read_bytes() for each in root.iterdir()} == before
    assert not any(secret in f"{found}" for secret in (KEY, TOKEN))
    key = root.parent / "keys/key"
    SigningKey.from_file(key, create=True)
    told = look([], [Store(storage=str(file), store="s", key=(str(key),))])
    ours = {"SP02.not-verified"} | ({"SP13.unavailable"} if name == UNREAD else set())
    assert {each.id for each in told.findings} - {*expected.split()} == ours
    checked = " ".join(sorted(each.id for each in check_database(file)))
    assert checked == ("SP13.unavailable" if name == UNREAD else expected)


def test_a_secret_counts_once_and_its_text_is_not_said(root: Path) -> None:
    memory(root / "m.db")
    found = recognise_database(str(root / "m.db"))
    assert found is not None
    [secrets] = [each.what for each in found.findings if each.rule == "SP08"]
    assert secrets.endswith("likely secrets: 1 API keys, 1 tokens.")


def test_no_more_is_searched_than_a_limit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "_SEARCHED", 20)
    memory(root / "m.db")
    assert ids(recognise_database(str(root / "m.db"))) == "SP08.unseen SP12.unsealed-state"


def test_a_store_of_ours_is_none_of_others_whatever_was_done_to_it(root: Path) -> None:
    SQLiteCheckpointStorage(root / "s.db").close()
    SQLiteAnchor(root / "a.db", create=True).close()
    for file in ("s.db", "a.db"):
        assert recognise_database(str(root / file)) is None
    with closing(sqlite3.connect(root / "s.db")) as thief:
        thief.execute("pragma application_id = 7")
        thief.execute("drop trigger checkpoints_update")
        thief.commit()
    assert recognise_database(str(root / "s.db")) is None
    assert [each.id for each in check_database(root / "s.db")] == ["SP13.unavailable"]
    with closing(sqlite3.connect(root / "a.db")) as thief:
        thief.execute("drop table heads")
        thief.commit()
    assert recognise_database(str(root / "a.db")) is None
    put(root / "s.txt", "SQLite format 4")
    assert recognise_database(str(root / "s.txt")) is None


def moved(root: Path) -> None:
    blobs = root / "models--org--net/blobs"
    blobs.rename(root.parent / "blobs")
    blobs.symlink_to(root.parent / "blobs")


def widened(root: Path) -> None:
    put(root / "pipeline_resume_1.json", RESUME, 0o644)
    root.chmod(0o775)


OPENCLAW = "a folder of OpenClaw"
LOBSTER = "a folder of Lobster's resume states"
FOLDERS: dict[str, tuple[Build, str, str]] = {
    "old": (
        lambda root: openclaw(root, "2026.5.17"),
        OPENCLAW,
        "SP19.advisories SP19.resumers SP22.gateway",
    ),
    "approvals": (
        lambda root: put(root / "x", APPROVALS),
        OPENCLAW,
        "SP19.resumers SP19.unsigned-approvals",
    ),
    "lobster": (
        lambda root: put(root / "state/any.json", RESUME),
        LOBSTER,
        "SP12.unsigned-resume SP19.resumers SP19.resumers",
    ),
    "a workflow of lobster": (
        lambda root: put(root / "w.json", WORKFLOW),
        LOBSTER,
        "SP12.unsigned-resume SP19.resumers",
    ),
    "a link to state": (
        then(openclaw, lambda root: (root / "exec").symlink_to(root / "openclaw.json")),
        OPENCLAW,
        "SP02.unseen-link SP19.resumers SP22.gateway",
    ),
    "cache": (cached, "a cache of Hugging Face", "SP24.runs-code SP25.cache"),
    "cache whose blobs are elsewhere": (
        then(cached, moved),
        "a cache of Hugging Face",
        "SP25.cache SP25.outside-cache SP25.outside-cache",
    ),
    "names alone": (
        lambda root: (
            put(root / "openclaw.json", {"meta": {}}),
            put(root / "pipeline_resume_1.json", {"pipeline": []}),
            put(root / "models--a--b/refs/main", "no commit"),
            put(root / "models--a--b/blobs/0a", ""),
            put(root / "models--a--b/snapshots/0/x", ""),
            put(root / "s.jsonl", '{"session":' * 100_000),
            SigningKey.from_file(root / "k.key", create=True),
        ),
        "",
        "",
    ),
    "nothing": (lambda _: None, "", ""),
}


@pytest.mark.parametrize(("build", "name", "expected"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_is_known_by_what_its_files_hold(
    root: Path, build: Build, name: str, expected: str
) -> None:
    build(root)
    found = recognise_folder(str(root))
    assert ("" if found is None else found.name, ids(found)) == (name, expected)
    assert not any(secret in f"{found}" for secret in (KEY, TOKEN))


def test_who_could_resume_is_said_by_name(root: Path) -> None:
    import pwd

    widened(root)
    root.chmod(0o777)
    found = recognise_folder(str(root))
    assert found is not None
    [said] = [each for each in found.findings if each.id == "SP19.resumers"]
    assert said.severity == "error"
    assert f"user '{pwd.getpwuid(os.geteuid()).pw_name}', group '" in said.what
    assert said.what.endswith(", every user of this machine.")


def test_a_folder_with_too_many_files_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "_FILES", 1)
    openclaw(root)
    put(root / "x.json", RESUME)
    assert "SP02.unseen" in ids(recognise_folder(str(root)))


def test_what_is_closed_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system says it, to everybody but root."""
    openclaw(root)
    closed = {str(put(root / "x.json", RESUME)), str(put(root / "state/y.json", RESUME).parent)}

    def closing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *more: Any) -> Any:
            if path in closed:
                raise PermissionError(13, "Permission denied")
            return real(path, *more)

        return call

    for name in ("open", "scandir"):
        monkeypatch.setattr(os, name, closing(getattr(os, name)))
    assert ids(recognise_folder(str(root))).startswith("SP02.unseen SP02.unseen ")


def test_the_tables_of_langgraph_in_postgresql(postgres: Server) -> None:
    need("langgraph.checkpoint.postgres", "needs langgraph-checkpoint-postgres")
    from langgraph.checkpoint.postgres import PostgresSaver

    from safepoint.stores.postgres import create_schema

    name = "langgraph_tables"
    postgres.database(name)
    with PostgresSaver.from_conn_string(postgres.dsn(database=name)) as saver:
        saver.setup()
        saved(saver)
    postgres.login("stranger")
    found = check_privileges(postgres.dsn(database=name))
    assert " ".join(sorted(each.id for each in found)) == (
        "SP08.likely-secrets SP10.row-types SP12.unsealed-state SP19.resumers"
        " SP19.unsigned-approvals"
    )
    assert [each.what for each in found if "2 threads, 2 checkpoints" in each.what]
    # The command says the same, and nothing of a store that is not there.
    told = look([], [Store(postgres=postgres.dsn(database=name))])
    assert [replace(each, store="") for each in told.findings] == found
    assert told.failures == ()
    closed = check_privileges(postgres.dsn("stranger", name))
    assert sorted(each.id for each in closed) == ["SP02.unseen", "SP19.resumers"]
    # A store of ours in the same database does not hide them, also from who may not read them.
    create_schema(postgres.dsn(database=name))
    beside = {each.id for each in check_privileges(postgres.dsn(database=name))}
    assert {each.id for each in found} <= beside
    postgres.login("apart", "safepoint_writer")
    may_not = check_privileges(postgres.dsn("apart", database=name))
    assert "public.checkpoints" in [each.where for each in may_not if not each.seen]


@pytest.mark.parametrize("text", [b"eyJ-", b"eyJaaaaaaaaaa.", b"sk-", b"xoxb-", b"gh"])
def test_the_search_for_secrets_takes_no_longer_for_what_only_begins_as_one(text: bytes) -> None:
    began = time.monotonic()
    _Search().add([text * (2_000_000 // len(text))])
    assert time.monotonic() - began < 2
