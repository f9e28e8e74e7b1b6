"""The site that is published: lean, the same twice, and nothing of the machine in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from socket import create_server
from typing import Final

import pytest

from publish import advisories, hooks
from publish.project import Project
from tests.harness.blocks import ROOT
from tests.harness.shared import build, built
from tests.publish.conftest import write


def contents(site: Path) -> dict[str, bytes]:
    files = [file for file in sorted(site.rglob("*")) if file.is_file()]
    return {file.relative_to(site).as_posix(): file.read_bytes() for file in files}


@pytest.mark.deep
def test_two_builds_of_one_commit_are_the_same_to_the_byte(tmp_path: Path) -> None:
    site, evidence = built()
    first = contents(site)
    build(ROOT, tmp_path / "another folder", evidence, PYTHONHASHSEED="2")
    again = contents(tmp_path / "another folder")
    assert sorted(again) == sorted(first)
    assert [name for name, content in first.items() if again[name] != content] == []


def test_nothing_of_the_builders_machine_is_in_it() -> None:
    site = contents(built()[0])
    home = str(Path.home()).encode()
    private = [str(ROOT).encode(), *([home] if len(home) > 5 else [])]
    found = [name for name, content in site.items() if any(part in content for part in private)]
    assert found == []
    assert b"unsafe" not in site["index.html"].partition(b"</head>")[0]


def test_every_page_is_in_the_navigation_once_and_says_what_it_is(real: Project) -> None:
    """A title, and a sentence of a length that a search engine shows whole."""
    assert sorted(real.navigation) == sorted(real.pages)
    for page in real.pages.values():
        assert page.title, page.src
        assert 40 <= len(page.description) <= 170, page.src
    where = {src: (real.pages[src].url, real.pages[src].twin) for src in real.pages}
    assert where["index.md"] == ("", "index.md")
    assert where["security/seal.md"] == ("security/seal/", "security/seal.md")
    assert where["reference/index.md"] == ("reference/", "reference.md")


def test_the_pages_ran_on_releases_that_have_every_fix(real: Project) -> None:
    rows = [row[2:].split(" | ") for row in advisories.in_short(real).split("\n")[2:]]
    ran = {name: (least, release) for name, least, release, _ in rows if release != "none"}
    assert {"langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "torch"} <= {*ran}
    assert [name for name, pair in ran.items() if max(pair, key=advisories._order) != pair[1]] == []


def test_every_advisory_stands_once_in_a_group_and_names_rules_and_a_page(real: Project) -> None:
    found = advisories.read(real)
    names = [name for each in found for name in (each.id, *each.also)]
    assert len(names) == len({*names})
    for each in found:
        assert each.group in advisories.GROUPS, each.id
        assert each.rules, each.id
        assert {*each.rules} <= {*real.rules}, each.id
        assert each.page in real.pages, each.id


def test_every_advisory_that_a_page_names_is_listed(real: Project) -> None:
    known = {name for each in advisories.read(real) for name in (each.id, *each.also)}
    for page in real.pages.values():
        named = set(re.findall(r"CVE-\d{4}-\d{4,}|GHSA(?:-\w{4}){3}", page.text))
        assert named <= known, page.src


PARTS: Final = ("docs", "snippets", "src", "overrides", "publish", "tests", "mkdocs.yml")
CHANGES: Final = {
    "docs/threat-model.md": ("# Threat model", "# Changed model", "threat-model/"),
    "snippets/strict_codec.py": ('"""', '"""Changed snippet. ', "examples/strict_codec.py"),
    "src/safepoint/rules.toml": ("is a trust boundary", "is a changed one", "data/rules.json"),
    "src/safepoint/testing/storages.py": ("The claims", "The changed claims", "reference/storage/"),
}


def test_all_that_pages_are_made_of_is_watched_and_read_anew(real: Project) -> None:
    by_itself = {"docs", "mkdocs.yml"}
    watched = {*by_itself, *real.settings["watch"], "tests"}
    assert watched == {*PARTS, "CHANGELOG.md"}
    assert {"publish", "safepoint", "tests"} == hooks._CHANGES


def test_an_old_address_leads_to_a_page_that_is_there(real: Project) -> None:
    site, _ = built()
    for old, new in real.settings["extra"]["moved"].items():
        page, _, anchor = new.partition("#")
        html = (site / old / "index.html").read_text("utf-8")
        assert f'href="{"../" * old.count("/")}{new}"' in html
        assert not anchor or f'id="{anchor}"' in (site / page / "index.html").read_text("utf-8")


@pytest.mark.deep
def test_serve_follows_pages_snippets_rules_and_docstrings(tmp_path: Path) -> None:
    """A build takes twenty seconds of a processor, and this takes two."""
    for name in PARTS[:-1]:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in ("mkdocs.yml", "CHANGELOG.md", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    with closing(create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]

    def shows(page: str, words: str) -> bool:
        end = time.monotonic() + 900
        while time.monotonic() < end and server.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}") as answer:
                    if words in answer.read().decode():
                        return True
            except OSError:
                pass
            time.sleep(0.2)
        return False

    command = [sys.executable, "-m", "mkdocs", "serve", "-q", "-a", f"127.0.0.1:{port}"]
    here = os.environ | {"PYTHONPATH": str(tmp_path / "src")}  # and not where it is installed from
    with subprocess.Popen(command, cwd=tmp_path, env=here) as server:
        try:
            assert shows("", "Safepoint")
            for name, (old, new, _) in CHANGES.items():
                text = (tmp_path / name).read_text("utf-8")
                assert old in text, name
                write(tmp_path, name, text.replace(old, new, 1))
            for _, new, page in CHANGES.values():
                assert shows(page, new.strip('"# ')), page
        finally:
            server.kill()
