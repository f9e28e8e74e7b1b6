"""The lists and the data say what the pages say, and are the same each time."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from publish import machine
from publish.machine import data, feed, sitemap
from publish.project import ROOT, Project
from safepoint.attacks import ATTACKS, RESIDUE
from safepoint.attacks.models import MODEL_ATTACKS
from safepoint.attacks.network import NETWORK_ATTACKS
from safepoint.attacks.sql import SQL_ATTACKS
from safepoint.explain import EXPLANATIONS
from safepoint.rules import RULES
from tests.harness.pretend import pretend
from tests.publish.machine.reading import of, parsed


def test_llms_txt_lists_every_page_in_order_with_the_reference_last(fake: Project) -> None:
    assert (
        machine.llms.text(fake).split("\n## Data\n")[0]
        == """\
# Tiny

> A tiny site.

Every page below is Markdown. A block under `UNSAFE - do not copy` is an attack; one under \
`Refused:` raises; one under `Do this:` is what to write. No evidence: this site claims nothing \
of its blocks. Run make test, then build again.

## Overview

- [A store](index.md): What: a store.

## Security

- [The seal](security/seal.md): Here is why.
"""
    )
    assert machine.llms.text(fake).endswith(
        "\n## Optional\n\n- [Reference](reference.md): Back home.\n"
    )


def test_without_evidence_nothing_is_claimed(fake: Project) -> None:
    assert data.documents(fake)["evidence"] == {"format": 1, "state": "missing"}


def test_an_example_is_copied_with_its_digest(fake: Project) -> None:
    [example] = data.documents(fake)["examples"]["examples"]
    content = machine.files(fake)["examples/lint.toml"]
    assert content.startswith(b"# Rules for a linter.\na = 1\n")
    assert example == {
        "name": "lint.toml",
        "title": "Rules for a linter.",
        "description": "Rules for a linter.",
        "rules": ["SP26"],
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "address": "examples/lint.toml",
    }


def test_a_sitemap_needs_an_address(
    fake: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    for name in ("sitemap.xml", "sitemap.xml.gz"):
        (site / name).write_bytes(b"what a generator left")
    sitemap.apply(site, fake)
    assert list(site.iterdir()) == []
    monkeypatch.setenv("SITE_URL", "https://example.org/guide")
    sitemap.apply(site, fake)
    found = re.findall("<loc>(.*)</loc>", (site / "sitemap.xml").read_text())
    assert found == [
        f"https://example.org/guide/{path}"
        for path in ("", "security/seal/", "reference/", "ladder/")
    ]


def test_with_an_address_every_reference_is_complete(
    fake: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_URL", "https://example.org/guide/")
    assert 'url: "https://example.org/guide/security/seal/"' in of(fake, "security/seal.md")
    assert "(https://example.org/guide/security/seal.md)" in machine.llms.text(fake)
    root = parsed(feed.atom(fake))
    links = {link.get("href", "") for link in root.iter(f"{{{feed.ATOM}}}link")}
    assert all(link.startswith("https://example.org/guide/") for link in links)


def test_the_data_is_complete(real: Project, built: dict[str, bytes]) -> None:
    read: dict[str, Any] = {
        name.removeprefix("data/").removesuffix(".json"): json.loads(content)
        for name, content in built.items()
        if name.startswith("data/")
    }
    assert {name: value["format"] for name, value in read.items()} == dict.fromkeys(
        ("rules", "attacks", "examples", "errors", "matrix", "advisories", "evidence"), 1
    )
    assert [rule["id"] for rule in read["rules"]["rules"]] == list(RULES)
    assert [row["rule"] for row in read["matrix"]["rows"]] == list(RULES)
    assert sorted(attack["id"] for attack in read["attacks"]["attacks"]) == sorted(
        [*ATTACKS, *RESIDUE, *MODEL_ATTACKS, *SQL_ATTACKS, *NETWORK_ATTACKS]
    )
    assert {rule for each in read["attacks"]["attacks"] for rule in each["rules"]} <= set(RULES)
    assert {error["name"] for error in read["errors"]["errors"]} == set(EXPLANATIONS)
    snippets = sorted(file.name for file in (real.root / "snippets").iterdir() if file.is_file())
    assert [example["name"] for example in read["examples"]["examples"]] == snippets
    for example in read["examples"]["examples"]:
        copied = built[example["address"]]
        assert hashlib.sha256(copied).hexdigest() == example["sha256"]
        assert all(example[field] for field in ("title", "description", "size"))


def test_every_field_is_named_on_the_page_for_programs(
    real: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = real.pages["machine.md"].text
    monkeypatch.setenv("EVIDENCE", str(pretend(tmp_path / "evidence.jsonl", ROOT)))
    for name, document in data.documents(Project(), Counter(ran=1)).items():
        [row] = re.findall(rf"^\| \[`data/{name}\.json`\]\S+ \| (.*) \|$", page, re.MULTILINE)
        named = set(re.findall("`(\\w+)`", row))
        fields = set(document) - {"format"}
        for value in document.values():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                fields |= set(value[0])
        lists = {"rules", "attacks", "examples", "errors", "rows", "advisories"}
        assert fields - lists <= named, name


@pytest.mark.parametrize("text", [None, "no JSON"], ids=["missing", "unreadable"])
def test_without_evidence_the_data_has_what_the_page_says(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "evidence.jsonl"
    if text:
        file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("EVIDENCE", str(file))
    document = data.documents(Project(), Counter(never=1))["evidence"]
    assert document == {
        "format": 1,
        "state": "unreadable" if text else "missing",
        "shown": {"never": 1},
    }


def test_two_processes_write_the_same_bytes(fake: Project, tmp_path: Path) -> None:
    code = "import sys; from collections import Counter; from pathlib import Path; "
    code += "from publish import machine, project; "
    code += "machine.apply(Path(sys.argv[1]), project.Project(Path(sys.argv[2])), Counter())"
    trees = []
    for seed in ("1", "2"):
        site = tmp_path / f"site-{seed}"
        subprocess.run(
            [sys.executable, "-c", code, str(site), str(fake.root)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        trees.append({file.relative_to(site).as_posix(): file.read_bytes() for file in walk(site)})
    assert trees[0] == trees[1]
    assert trees[0].keys() == machine.files(fake).keys()


def test_the_real_site_is_written_the_same_twice(real: Project, built: dict[str, bytes]) -> None:
    again = machine.files(real)
    assert [name for name in again if again[name] != built.get(name)] == []


def walk(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())
