"""SP03: pickle executes while it decodes, and no later check helps."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from safepoint.attacks import MARKER
from safepoint.attacks.payload import marker_pickle
from tests.harness.ladder import on
from tests.harness.optional import need


def test_payload_runs_before_the_type_check_and_never_in_a_ledger() -> None:
    """Also one that yields the declared type, which passes the check."""
    for attack in ("pickle-payload", "pickle-right-type"):
        ended = on("disk")[0][attack]
        assert (ended["naive"], ended["signed-chain"]) == ("executed", "detected")


def test_payload_only_leaves_a_marker(tmp_path: Path) -> None:
    """Under plain pickle.loads, in a process of its own."""
    (tmp_path / "payload").write_bytes(marker_pickle(tmp_path / MARKER))
    code = "import pickle, sys; pickle.loads(open('payload', 'rb').read())"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, "payload"]


def test_fickling_reads_the_payload_without_running_it(tmp_path: Path) -> None:
    need("fickling", "needs safepoint[pickle]")
    from fickling.analysis import check_safety
    from fickling.fickle import Pickled

    pickled = Pickled.load(marker_pickle(tmp_path / MARKER))
    assert "from os import mkdir" in ast.unparse(pickled.ast)
    assert check_safety(pickled).severity.name == "LIKELY_OVERTLY_MALICIOUS"
    assert not (tmp_path / MARKER).exists()
