"""SP03: pickle executes while it decodes, and no later check helps."""

from __future__ import annotations

import ast
import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint.attacks.payload import marker_pickle, marker_pickle_of_type
from safepoint.errors import RecordMalformed
from tests.harness.optional import need


def load_with_the_naive_twin(folder: Path, pickled: bytes) -> subprocess.CompletedProcess[str]:
    """Plant the pickle in the twin's store and load it, in a process of its own."""
    state = {"__pickled__": base64.b64encode(pickled).decode(), "__type__": "datetime:timedelta"}
    record = {"thread": "t", "sequence": 1, "app": "", "created": "2026-11-15", "state": state}
    (folder / "store").mkdir()
    (folder / "store/t.1.json").write_text(json.dumps(record))
    code = (
        "from safepoint.attacks.naive import NaiveLedger;"
        " print(NaiveLedger('store').latest('t').state)"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_payload_runs_before_the_type_check_raises(tmp_path: Path) -> None:
    done = load_with_the_naive_twin(tmp_path, marker_pickle(tmp_path / "marker"))
    assert "TypeError: expected datetime:timedelta, got builtins:NoneType" in done.stderr
    assert (tmp_path / "marker").is_dir()


def test_payload_of_the_right_type_passes_the_type_check(tmp_path: Path) -> None:
    done = load_with_the_naive_twin(tmp_path, marker_pickle_of_type(tmp_path / "marker"))
    assert (done.returncode, done.stdout) == (0, "1 day, 0:00:00\n")
    assert (tmp_path / "marker").is_dir()


@pytest.mark.parametrize("make", [marker_pickle, marker_pickle_of_type])
def test_payload_does_not_run_in_a_ledger(tmp_path: Path, make: Callable[[Path], bytes]) -> None:
    storage = FileCheckpointStorage(tmp_path / "state")
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    ledger.save("t", 1)
    record = tmp_path / "state/t/0000000001.checkpoint"
    record.write_bytes(make(tmp_path / "marker"))
    with pytest.raises(RecordMalformed):
        ledger.latest("t")
    assert not (tmp_path / "marker").exists()


def test_fickling_reads_the_payload_without_running_it(tmp_path: Path) -> None:
    need("fickling", "needs safepoint[pickle]")
    from fickling.analysis import check_safety
    from fickling.fickle import Pickled

    pickled = Pickled.load(marker_pickle(tmp_path / "marker"))
    assert "from os import mkdir" in ast.unparse(pickled.ast)
    assert check_safety(pickled).severity.name == "LIKELY_OVERTLY_MALICIOUS"
    assert not (tmp_path / "marker").exists()
