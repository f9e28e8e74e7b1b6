"""LangGraph's own tests, with SealedSaver as their checkpointer: the sources contain them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from tests.harness.optional import need

KEPT: Final = Path(__file__).parents[2] / "build" / "langgraph"
VERSION: Final = "1.2.20"
DIGEST: Final = "79f86df92f2dd17d5ec464cab68dbb685439ab102ca39f0b1b7b198025a2414c"
TESTS: Final = 632


def _fetch(sources: Path) -> bool:
    """Fetch the sources from the package index, unless they were fetched before."""
    KEPT.mkdir(parents=True, exist_ok=True)
    wanted = KEPT / "wanted.txt"
    wanted.write_text(f"langgraph=={VERSION} --hash=sha256:{DIGEST}\n")
    options = ["--no-deps", "--no-build-isolation", "--no-binary=langgraph", f"--dest={KEPT}"]
    pip = [sys.executable, "-m", "pip", "download", "-q", *options, f"--requirement={wanted}"]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert "HASHES" not in done.stderr, done.stderr
    return sources.exists()


@pytest.mark.deep
def test_all_of_langgraphs_own_tests_that_take_a_checkpointer_pass(tmp_path: Path) -> None:
    assert version("langgraph") == VERSION, "Change the digest, and see which tests there are."
    sources = KEPT / f"langgraph-{VERSION}.tar.gz"
    need(
        lambda: sources.exists() or _fetch(sources),
        "needs the package index, for LangGraph's sources",
    )
    with tarfile.open(sources) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from 3.11.4
        archive.extractall(tmp_path)  # noqa: S202  of a known digest
    folder = tmp_path / sources.name.removesuffix(".tar.gz")
    (folder / "tests/conftest.py").rename(folder / "tests/upstream.py")
    shutil.copy(Path(__file__).with_name("langgraph_conftest.py"), folder / "tests/conftest.py")
    (folder / "pytest.ini").write_text("[pytest]\n")
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = [sys.executable, "-m", "pytest", "-q", "-p", "anyio", "--junitxml=done.xml", "tests"]
    run += [f"--ignore=tests/test_{name}.py" for name in ("remote_graph", "prune_postgres")]
    total = 0
    for again in ((), ("--last-failed",), ("--last-failed",)):  # some sleep for 1/100 s
        said = subprocess.run(
            [*run, *again], cwd=folder, env=alone, capture_output=True, text=True, check=False
        )
        cases = [*ET.parse(folder / "done.xml").iter("testcase")]  # noqa: S314  our own
        failed, total = [each.attrib for each in cases if len(each)], total or len(cases)
        if not failed:
            break
    assert (failed, total) == ([], TESTS), said.stdout
