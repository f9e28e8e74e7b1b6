"""While somebody writes, the site follows: pages, snippets, and the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import create_server
from typing import Final, NamedTuple

import pytest

from publish.project import Project
from tests.harness.blocks import ROOT

PARTS = ("docs", "snippets", "src", "overrides", "publish", "tests", "mkdocs.yml", "CHANGELOG.md")
PATIENCE: Final = 900
"""Seconds. A build takes twenty of a processor, and many more where others want it as well."""


class Server(NamedTuple):
    """A server that builds, and where it is."""

    process: subprocess.Popen[bytes]
    address: str

    def shows(self, page: str, words: str) -> bool:
        """Wait until a page has these words, or the server ends."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.address + page, timeout=PATIENCE) as answer:  # noqa: S310  our own
                    if words in answer.read().decode():
                        return True
            except OSError:
                pass
            time.sleep(0.2)
        return False


@contextmanager
def served(root: Path) -> Iterator[Server]:
    """Serve a copy of the project as `make serve` does."""
    with closing(create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-m", "mkdocs", "serve", "-q", "-a", f"127.0.0.1:{port}"],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(root / "src")},
    ) as server:
        try:
            yield Server(server, f"http://127.0.0.1:{port}/")
        finally:
            server.kill()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, to write in."""
    root = tmp_path_factory.mktemp("project")
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, root / name)
    return root


def test_all_that_pages_are_made_of_is_watched() -> None:
    """Below, one change that is seen would show all of them."""
    by_itself = {"docs", "mkdocs.yml"}
    assert {*by_itself, *Project().settings["watch"], "tests"} == set(PARTS)


def test_serve_follows_pages_snippets_rules_and_docstrings(project: Path) -> None:
    changes = {
        "docs/limits.md": ("# Limits", "# Limits, changed", "limits/"),
        "snippets/strict_codec.py": ('"""', '"""Changed snippet. ', "examples/strict_codec.py"),
        "src/safepoint/rules.toml": (
            "The storage backend is a trust boundary",
            "The storage backend is a changed boundary",
            "data/rules.json",
        ),
        "src/safepoint/errors.py": (
            "The record was changed after it was sealed.",
            "The record was changed, as this docstring was.",
            "errors/",
        ),
    }
    with served(project) as server:
        assert server.shows("", "Safepoint")
        for name, (old, new, _) in changes.items():
            file = project / name
            file.write_text(file.read_text("utf-8").replace(old, new, 1), encoding="utf-8")
        for _, new, page in changes.values():
            assert server.shows(page, new.strip('"# ')), page
