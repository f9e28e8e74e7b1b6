"""What others keep: built by their own code where that is installed, and else by their tables."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.harness.optional import need
from tests.zoo.build import EVIL, folder, write

KEY = "sk-" + "a1" * 20  # has the form of a key, and opens nothing
TOKEN = "ghp_" + "b2" * 18
META = """
create table schema_meta (meta_key text, role text, schema_version int, agent_id text,
  app_version text);
insert into schema_meta values ('primary', 'any', 1, 'main', 'VERSION');
"""
AGENT = """
create table auth_profile_store (store_key text, store_json text, updated_at int);
create table transcript_events (session_id text, seq int, event_json text);
insert into transcript_events values ('s', 1, 'SAID');
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
APPROVALS = {"version": 1, "defaults": {"ask": "off", "askFallback": "full"}, "agents": {}}


def put(file: Path, text: object, mode: int = 0o600) -> Path:
    """Write a text, or JSON."""
    return write(file, text if isinstance(text, str) else json.dumps(text, indent=2), mode)


def base(file: Path, script: str) -> None:
    folder(file.parent)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)
    file.chmod(0o600)


def saved(saver: Any) -> None:
    """Two threads, of which one waits for a person."""
    from langgraph.checkpoint.base import empty_checkpoint

    for thread in ("a", "b"):
        where = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        state = empty_checkpoint()
        state["channel_values"], state["channel_versions"] = {"said": {"key": KEY}}, {"said": "1"}
        where = saver.put(where, state, {}, {"said": "1"})
    saver.put_writes(where, [("__interrupt__", "Pay?"), ("said", [1])], "task")


def langgraph(file: Path, *, pickles: bytes = b"", kind: str = "pickle") -> None:
    need("langgraph.checkpoint.sqlite", "needs langgraph-checkpoint-sqlite")
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.checkpoint.sqlite import SqliteSaver

    folder(file.parent)
    with closing(sqlite3.connect(file, check_same_thread=False)) as connection:
        saved(SqliteSaver(connection, serde=JsonPlusSerializer()))
        edit = "update writes set type = ?1, value = ?2 where channel = 'said' and length(?2)"
        connection.execute(edit, [kind, pickles]).connection.commit()
    file.chmod(0o600)


def agent(file: Path, version: str = "2026.8.1", said: str = TOKEN) -> None:
    base(file, META.replace("VERSION", version) + AGENT.replace("SAID", said))


def gateway(file: Path) -> None:
    base(file, META.replace("VERSION", "2026.9.1") + GATEWAY)


def openclaw(root: Path, version: str = "2026.9.1") -> None:
    put(root / "openclaw.json", f"// mine\n{{ meta: {{ lastTouchedVersion: '{version}' }} }}")


def framework(root: Path) -> None:
    need("agent_framework", "needs safepoint[agent-framework]")
    from agent_framework import FileCheckpointStorage, WorkflowCheckpoint

    state = {"at": {1, 2}, "key": KEY}
    made = WorkflowCheckpoint(workflow_name="w", graph_signature_hash="h", state=state)
    made.checkpoint_id = "made"
    asyncio.run(FileCheckpointStorage(root).save(made))


def cached(
    root: Path, link: str = "../../blobs/0a", weights: bytes = EVIL, name: str = "model.bin"
) -> None:
    """A cache of Hugging Face with one model: its snapshot has links to its blobs."""
    repo = root / "models--org--net"
    put(repo / "refs/main", "0" * 40)
    write(repo / "blobs/0a", weights)
    put(repo / "blobs/0b", "{}")
    snapshot = folder(repo / "snapshots" / ("0" * 40))
    (snapshot / name).symlink_to(link)
    (snapshot / "config.json").symlink_to("../../blobs/0b")


def everything(root: Path) -> None:
    openclaw(root, "2026.2.19-2")
    put(root / "exec-approvals.json", APPROVALS)
    gateway(root / "state/openclaw.sqlite")
    agent(root / "agents/main/agent/openclaw-agent.sqlite", "2026.2.1")
    put(root / "agents/main/sessions/s.jsonl", f'{json.dumps(SESSION)}\n{{"text": "{KEY}"}}\n')
