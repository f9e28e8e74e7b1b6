"""The site that is published: the same twice, and nothing of the machine in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from publish.verified import DIFFERENCES, ZENSICAL
from tests.harness.blocks import ROOT


def built(site: Path, seed: str) -> dict[str, bytes]:
    """Build the site as `make site` does, and return its files."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        env={
            **os.environ,
            "NO_MKDOCS_2_WARNING": "1",
            "PYTHONHASHSEED": seed,
            "SITE_URL": "https://docs.example/safepoint/",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return files(site)


def files(site: Path) -> dict[str, bytes]:
    return {
        file.relative_to(site).as_posix(): file.read_bytes()
        for file in sorted(site.rglob("*"))
        if file.is_file()
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return built(tmp_path_factory.mktemp("first"), "1")


def test_two_builds_of_one_commit_are_the_same_to_the_byte(
    site: dict[str, bytes], tmp_path: Path
) -> None:
    again = built(tmp_path / "another folder", "2")
    assert sorted(again) == sorted(site)
    assert [name for name, content in site.items() if again[name] != content] == []


def test_nothing_of_the_builders_machine_is_in_it(site: dict[str, bytes]) -> None:
    home = str(Path.home()).encode()
    private = [str(ROOT).encode(), *([home] if len(home) > 5 else [])]
    found = [name for name, content in site.items() if any(part in content for part in private)]
    assert found == []


def test_what_differs_with_zensical_is_listed_for_the_version_that_ci_builds_with(
    site: dict[str, bytes],
) -> None:
    """That it shows the same blocks is what the census finds out, on both sites."""
    assert all(f"<li>{said[:30]}".encode() in site["verified/index.html"] for said in DIFFERENCES)
    assert f"zensical=={ZENSICAL}" in (ROOT / "requirements.txt").read_text().split()
    assert b"unsafe" not in site["index.html"].partition(b"</head>")[0]
