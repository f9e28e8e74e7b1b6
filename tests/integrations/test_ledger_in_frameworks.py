"""The two files that keep the fact that decides in a ledger: what they claim, under attack.

What the ledger in them refuses, it refuses anywhere: the ladder holds that.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.blocks import ROOT
from tests.harness.optional import need

need("agent_framework", "needs safepoint[agent-framework]")
need("langgraph.checkpoint.sqlite", "needs langgraph-checkpoint-sqlite")

SEEN = "a person says yes to {'payee': 'alice', 'amount': 42}"
VERIFIED = re.compile(r'^ +seen = .*?anchor="now"\)\n', re.MULTILINE | re.DOTALL)
NAIVE = {
    "ledger_in_langgraph": "    order = state\n",
    "ledger_in_agent_framework": '        order = ctx.get_state("draft")\n',
}
"""What the node would read if it trusted the checkpoint of its framework."""


@pytest.mark.parametrize("name", NAIVE)
def test_an_edited_checkpoint_pays_what_was_approved_once_and_without_the_ledger_another_twice(
    name: str, tmp_path: Path
) -> None:
    """The very same file, run and attack, with the state of the framework read instead."""
    source = (ROOT / "snippets" / f"{name}.py").read_text(encoding="utf-8")
    naive, replaced = VERIFIED.subn(NAIVE[name], source)
    assert replaced == 1
    stolen = "paid 5000000 to mally"
    for code, said in (
        (source, ["paid 42 to alice", "refused: the yes to order-7 is spent"]),
        (naive, [stolen, stolen]),
    ):
        folder = tmp_path / str(len(said[0]))
        folder.mkdir(mode=0o700)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [SEEN, *said]
