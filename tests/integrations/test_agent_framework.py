"""What the pages say about Microsoft Agent Framework, on the release they name."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.harness.optional import need

need("agent_framework", "needs safepoint[agent-framework]")

import agent_framework


def save(folder: Path, state: dict[str, Any]) -> Path:
    checkpoint = agent_framework.WorkflowCheckpoint(
        workflow_name="invoice", graph_signature_hash="", state=state
    )
    storage = agent_framework.FileCheckpointStorage(folder)
    asyncio.run(storage.save(checkpoint))
    (file,) = folder.glob("*.json")
    return file


@pytest.mark.parametrize("name", ["Executor", "handler", "inspect.getmodule"])
def test_of_its_own_modules_a_file_may_name_types_and_no_functions(
    name: str, tmp_path: Path
) -> None:
    """https://github.com/microsoft/agent-framework/issues/7432; here nothing is called."""
    file = save(tmp_path, {"kind": datetime(2026, 1, 1, tzinfo=UTC)})
    stored = json.loads(file.read_text())
    names = [b"agent_framework._workflows._executor", name.encode()]
    pickled = b"\x80\x04" + b"".join(b"\x8c%c%b" % (len(each), each) for each in names) + b"\x93."
    stored["state"]["kind"] = {
        "__pickled__": base64.b64encode(pickled).decode(),
        "__type__": "builtins:type",
    }
    file.write_text(json.dumps(stored))
    storage = agent_framework.FileCheckpointStorage(tmp_path)
    if name == "Executor":
        assert asyncio.run(storage.load(file.stem)).state["kind"] is agent_framework.Executor
        return
    with pytest.raises(agent_framework.WorkflowCheckpointException, match="blocked for"):
        asyncio.run(storage.load(file.stem))


def test_the_storage_path_has_no_default() -> None:
    with pytest.raises(TypeError, match="storage_path"):
        agent_framework.FileCheckpointStorage()  # type: ignore[call-arg]
