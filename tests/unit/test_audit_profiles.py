"""What others keep: each is built as they build it, and known by what it holds, with exact ids."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from safepoint import SigningKey, SQLiteCheckpointStorage, _files
from safepoint.anchor import SQLiteAnchor
from safepoint.audit import check_database, check_privileges, folder, profiles
from safepoint.audit.profiles import UNREAD, Recognised, recognise_database, recognise_folder
from tests.harness.optional import need

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

if not _files.SUPPORTED:
    pytest.skip("modes and owners are POSIX", allow_module_level=True)

Build = Callable[[Path], object]
KEY = "sk-" + "a1" * 20  # has the form of a key, and opens nothing
TOKEN = "ghp_" + "b2" * 18
FLOWS = """
create table flow_states (id integer primary key, flow_uuid text, method_name text, timestamp,
  state_json text);
create table pending_feedback (id integer primary key, flow_uuid text unique, context_json text,
  state_json text, created_at);
insert into flow_states values (1, 'u', 'pay', 0, '{}');
"""
WAITS = "insert into pending_feedback values (1, 'u', '', '', 0);"
MEMORY = """
create table long_term_memories (id integer primary key, task_description text, metadata text,
  datetime text, score real);
insert into long_term_memories values (1, 'pay', 'SECRETS', '', 1);
"""
SESSIONS = """
create table agent_sessions (session_id text primary key, created_at, updated_at);
create table agent_messages (id integer primary key, session_id text, message_data text,
  created_at);
insert into agent_messages values (1, 's', '{}', 0);
"""
META = """
create table schema_meta (meta_key text, role text, schema_version int, agent_id text,
  app_version text);
insert into schema_meta values ('primary', 'any', 1, 'main', 'VERSION');
"""
AGENT = """
create table auth_profile_store (store_key text, store_json text, updated_at int);
create table transcript_events (session_id text, seq int, event_json text);
insert into transcript_events values ('s', 1, 'SECRET');
"""
GATEWAY = """
create table state_leases (scope text, lease_key text, owner text);
create table exec_approvals_config (config_key text, raw_json text);
insert into exec_approvals_config values ('primary', '{}');
"""
RESUME = {
    "pipeline": [{"name": "exec", "args": {}, "raw": "exec pay"}],
    "resumeAtIndex": 1,
    "items": [],
    "haltType": "approval_request",
    "prompt": "Pay?",
    "createdAt": "2026-11-17T12:00:00.000Z",
}
WORKFLOW = {
    "filePath": "/w/pay.lobster",
    "resumeAtIndex": 3,
    "steps": {},
    "args": {},
    "createdAt": "2026-11-17T12:00:00.000Z",
}
SESSION = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-11-17", "cwd": "/w"}
UNKNOWN = "an SQLite database that is not known here"
APPROVALS = {"version": 1, "defaults": {"ask": "off", "askFallback": "full"}, "agents": {}}


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


def put(file: Path, text: object, mode: int = 0o600) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text if isinstance(text, str) else json.dumps(text, indent=2))
    file.chmod(mode)
    return file


def base(file: Path, script: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)
    file.chmod(0o600)


def then(*steps: Build) -> Build:
    """Build by several steps."""

    def build(path: Path) -> None:
        for step in steps:
            step(path)

    return build


def ids(found: Recognised | None) -> str:
    return "" if found is None else " ".join(sorted(each.id for each in found.findings))


def saved(saver: Any) -> None:
    """Two threads, of which one waits for a person."""
    from langgraph.checkpoint.base import empty_checkpoint

    for thread in ("a", "b"):
        where = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        state = empty_checkpoint()
        state["channel_values"], state["channel_versions"] = {"said": {"key": KEY}}, {"said": "1"}
        where = saver.put(where, state, {}, {"said": "1"})
    saver.put_writes(where, [("__interrupt__", "Pay?"), ("said", [1])], "task")


def langgraph(file: Path, *, pickles: bool = False) -> None:
    need("langgraph.checkpoint.sqlite", "needs langgraph-checkpoint-sqlite")
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.checkpoint.sqlite import SqliteSaver

    with closing(sqlite3.connect(file, check_same_thread=False)) as connection:
        saved(SqliteSaver(connection, serde=JsonPlusSerializer(pickle_fallback=pickles)))
        if pickles:
            connection.execute("update writes set type = 'pickle' where channel = 'said'")
            connection.commit()
    file.chmod(0o600)


def flows(file: Path) -> None:
    base(file, FLOWS)


def waiting(file: Path) -> None:
    base(file, FLOWS + WAITS)


def memory(file: Path) -> None:
    base(file, MEMORY.replace("SECRETS", f"{TOKEN} {TOKEN} {KEY}"))


def session(file: Path) -> None:
    base(file, SESSIONS)


def agent(file: Path, version: str = "2026.8.1") -> None:
    base(file, META.replace("VERSION", version) + AGENT.replace("SECRET", TOKEN))


def gateway(file: Path) -> None:
    base(file, META.replace("VERSION", "2026.9.1") + GATEWAY)


def fake(file: Path) -> None:
    """The names of others, and not their columns."""
    base(file, "create table checkpoints (a); create table writes (b)")


DATABASES: dict[str, tuple[Build, str, str]] = {
    "langgraph": (
        langgraph,
        "a database of LangGraph's SqliteSaver",
        "SP08.likely-secrets SP10.row-types SP12.unsealed-state SP19.unsigned-approvals",
    ),
    "langgraph with pickles": (
        lambda file: langgraph(file, pickles=True),
        "a database of LangGraph's SqliteSaver",
        (
            "SP03.pickle-rows SP08.likely-secrets SP10.row-types SP12.unsealed-state"
            " SP19.unsigned-approvals"
        ),
    ),
    "crewai": (flows, "a database of CrewAI's flows", "SP12.unsealed-state"),
    "crewai that waits": (
        waiting,
        "a database of CrewAI's flows",
        "SP12.unsealed-state SP19.unsigned-approvals",
    ),
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
    "unknown": (
        lambda file: base(file, "create table notes (a); insert into notes values (1), (2)"),
        UNKNOWN,
        "SP02.foreign-database",
    ),
    "named like others": (fake, UNKNOWN, "SP02.foreign-database"),
    "empty": (
        lambda file: base(file, "create table a (b); drop table a"),
        UNKNOWN,
        "SP02.foreign-database",
    ),
    "open": (
        then(session, lambda file: file.chmod(0o644)),
        "a database of OpenAI Agents' SQLiteSession",
        "SP04.mode SP12.unsealed-state",
    ),
    "written by others": (
        then(session, lambda file: file.chmod(0o666)),
        "a database of OpenAI Agents' SQLiteSession",
        "SP04.refused SP12.unsealed-state",
    ),
    "at work": (
        then(session, lambda file: put(Path(f"{file}-wal"), "newer")),
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
    checked = " ".join(sorted(each.id for each in check_database(file)))
    assert checked == ("SP13.refused" if name == UNREAD else expected)


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
        thief.commit()
    assert recognise_database(str(root / "s.db")) is None
    assert [each.id for each in check_database(root / "s.db")] == ["SP13.refused"]
    with closing(sqlite3.connect(root / "a.db")) as thief:
        thief.execute("drop table heads")
        thief.commit()
    assert recognise_database(str(root / "a.db")) is None
    put(root / "s.txt", "SQLite format 4")
    assert recognise_database(str(root / "s.txt")) is None


def openclaw(root: Path, version: str = "2026.9.1") -> None:
    put(root / "openclaw.json", f"// mine\n{{ meta: {{ lastTouchedVersion: '{version}' }} }}")


def framework(root: Path) -> None:
    need("agent_framework", "needs safepoint[agent-framework]")
    from agent_framework import FileCheckpointStorage, WorkflowCheckpoint

    state = {"at": {1, 2}, "key": KEY}
    made = WorkflowCheckpoint(workflow_name="w", graph_signature_hash="h", state=state)
    asyncio.run(FileCheckpointStorage(root).save(made))


def cached(root: Path, link: str = "../../blobs/0a") -> None:
    repo = root / "models--org--net"
    put(repo / "refs/main", "0" * 40)
    put(repo / "blobs/0a", "cos\nsystem\n(S'id'\ntR.")
    snapshot = repo / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "model.bin").symlink_to(link)
    (snapshot / "config.json").symlink_to("../../blobs/0b")
    put(repo / "blobs/0b", "{}")


def moved(root: Path) -> None:
    blobs = root / "models--org--net/blobs"
    blobs.rename(root.parent / "blobs")
    blobs.symlink_to(root.parent / "blobs")


def everything(root: Path) -> None:
    openclaw(root, "2026.2.19-2")
    put(root / "exec-approvals.json", APPROVALS)
    gateway(root / "state/openclaw.sqlite")
    agent(root / "agents/main/agent/openclaw-agent.sqlite", "2026.2.1")
    put(root / "agents/main/sessions/s.jsonl", f'{json.dumps(SESSION)}\n{{"text": "{KEY}"}}\n')


def widened(root: Path) -> None:
    put(root / "pipeline_resume_1.json", RESUME, 0o644)
    root.chmod(0o775)


OPENCLAW = "a folder of OpenClaw"
LOBSTER = "a folder of Lobster's resume states"
FOLDERS: dict[str, tuple[Build, str, str]] = {
    "settings": (openclaw, OPENCLAW, "SP19.resumers SP22.gateway"),
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
    "all of it": (
        everything,
        OPENCLAW,
        (
            "SP08.likely-secrets SP08.likely-secrets SP12.unsealed-state SP12.unsealed-state"
            " SP13.transcripts SP19.advisories SP19.resumers SP19.unsigned-approvals"
            " SP19.unsigned-approvals SP22.gateway"
        ),
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
    "lobster, open": (
        widened,
        LOBSTER,
        "SP01.readable SP04.mode SP04.refused SP12.unsigned-resume SP19.resumers",
    ),
    "a link to state": (
        then(openclaw, lambda root: (root / "exec").symlink_to(root / "openclaw.json")),
        OPENCLAW,
        "SP02.unseen-link SP19.resumers SP22.gateway",
    ),
    "agent framework": (
        framework,
        "a folder of Agent Framework's FileCheckpointStorage",
        "SP03.pickle-rows SP08.likely-secrets SP12.unsealed-state SP19.resumers",
    ),
    "cache": (cached, "a cache of Hugging Face", "SP24.runs-code SP25.cache"),
    "cache that leads out": (
        lambda root: cached(root, "/etc/hostname"),
        "a cache of Hugging Face",
        "SP25.cache SP25.outside-cache",
    ),
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_is_closed_is_said(root: Path) -> None:
    openclaw(root)
    put(root / "x.json", RESUME, 0o000)
    (root / "state").mkdir(mode=0o000)
    assert ids(recognise_folder(str(root))).startswith("SP02.unseen SP02.unseen ")


def test_the_tables_of_langgraph_in_postgresql(postgres: Server) -> None:
    need("langgraph.checkpoint.postgres", "needs langgraph-checkpoint-postgres")
    from langgraph.checkpoint.postgres import PostgresSaver

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
    closed = check_privileges(postgres.dsn("stranger", name))
    assert sorted(each.id for each in closed) == ["SP02.unseen", "SP19.resumers"]
