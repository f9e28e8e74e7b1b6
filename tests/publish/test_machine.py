"""What programs read says what the pages say, labels included, and is the same each time."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from publish import machine
from publish.machine import data, feed
from publish.machine.twins import slug
from publish.project import ROOT, Project
from safepoint.audit.catalogue import CHECKS
from safepoint.rules import RULES
from safepoint.shared.explanations import EXPLANATIONS
from tests.harness.blocks import find_blocks, without_fences
from tests.harness.evidence import pretend

RAW = re.compile(
    r"--8<--|^:::|\{:? ?[.#]|</?(?:div|figure|figcaption|sup|br)\b|<!--|^ *(?:!!!|\?\?\?) "
)
ATOM = {"a": feed.ATOM}


def parsed(text: str | bytes) -> ET.Element:
    """Return the XML of our own feed."""
    return ET.fromstring(text)  # noqa: S314  our own


def outside_of_blocks(text: str) -> str:
    """Return what is prose in a twin, without its inline code."""
    return re.sub(r"`[^`\n]*`", "`code`", without_fences(text))


def anchors(text: str) -> set[str]:
    """Return all that a link into a page's Markdown can name."""
    headings = re.findall(r"^#+ (.*)$", without_fences(text), re.MULTILINE)
    named = set(re.findall(r'<a id="([^"]+)">', text))
    return {slug(heading.replace("`", "")) for heading in headings} | named


def test_every_page_has_a_twin_and_each_is_listed(real: Project, files: dict[str, bytes]) -> None:
    text = files["llms.txt"].decode()
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+\.md)\): \S", text, re.MULTILINE)
    twins = sorted(name for name in files if name.endswith(".md"))
    assert twins == sorted(page.twin for page in real.pages.values()) == sorted(listed)
    assert text.index("\n## Data\n") < text.index("\n## Optional\n") < text.index("(reference.md)")
    assert listed.index("index.md") < listed.index("guide.md") < listed.index("security/seal.md")


def test_nothing_in_a_twin_needs_a_generator_and_its_links_lead_somewhere(
    real: Project, files: dict[str, bytes]
) -> None:
    known = {name: anchors(text.decode()) for name, text in files.items() if name.endswith(".md")}
    wrong = []
    for name in known:
        text = outside_of_blocks(files[name].decode())
        wrong += [f"{name}: {line}" for line in text.split("\n") if RAW.search(line)]
        for target in re.findall(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", text, re.MULTILINE):
            path, _, fragment = "".join(target).partition("#")
            there = normpath(join(dirname(name), path)) if path else name
            if there in known and (not fragment or fragment in known[there]):
                continue
            made = there in files or there == "assets/scanners.svg" or (real.docs / there).is_file()
            if there in known or not (made or path.startswith("https:")):
                wrong.append(f"{name}: {target} leads nowhere")
    assert wrong == []


def test_every_block_and_callout_is_in_the_twin_under_its_label(
    real: Project, files: dict[str, bytes]
) -> None:
    labels = {"unsafe": "**UNSAFE - do not", "refused": "**Refused:**", "fix": "**Do this:**"}
    wrong = []
    for page in real.pages.values():
        shown = re.sub(r"^ +", "", files[page.twin].decode(), flags=re.MULTILINE)
        for block in find_blocks(page.text, f"docs/{page.src}"):
            text = re.sub(r"^ +", "", f"```{block.language}\n{block.text}\n```", flags=re.MULTILINE)
            before = [part[-200:].rpartition("\n\n") for part in shown.split(text)[:-1]]
            wanted = [labels[kind] for kind in block.classes if kind in labels] or [""]
            if not any(last[0].rpartition("\n")[2].startswith(wanted[0]) for last in before):
                wrong.append(f"{page.src}: {wanted[0]} {block.text[:60]}")
        for name in re.findall(r"^ *<!-- rule (SP\d+) -->$", page.text, re.MULTILINE):
            severity = {"danger": "Danger", "warning": "Warning", "info": "Note"}
            rule = RULES[name]
            said = rf"{severity[rule.severity]}\n\n\*\*\[{name}\]\(\S+\) · .+\n\n"
            if not re.search(said + re.escape(rule.callout), shown):
                wrong.append(f"{page.src}: the callout of {name}")
        tabs = re.findall(r'^ *=== "(.*)"$', page.text, re.MULTILINE)
        wrong += [f"{page.src}: {tab}" for tab in tabs if f"\n\n**{tab}**\n\n" not in shown]
    assert wrong == []


def test_the_data_is_complete(real: Project, files: dict[str, bytes]) -> None:
    read: dict[str, Any] = {
        name[5:-5]: json.loads(files[name]) for name in files if name.startswith("data/")
    }
    assert {value["format"] for value in read.values()} == {1}
    assert [rule["id"] for rule in read["rules"]["rules"]] == list(RULES)
    assert {error["name"] for error in read["errors"]["errors"]} == set(EXPLANATIONS)
    assert [check["id"] for check in read["checks"]["checks"]] == list(CHECKS)
    snippets = sorted(file.name for file in (real.root / "snippets").iterdir() if file.is_file())
    assert [example["name"] for example in read["examples"]["examples"]] == snippets
    for example in read["examples"]["examples"]:
        copied = files[example["address"]]
        begins, line, rest = copied.partition(b"# safepoint example ")
        line, _, rest = rest.partition(b"\n")
        assert line == "{name} {version} sha256:{sha256}".format_map(example).encode()
        assert hashlib.sha256(begins + rest).hexdigest() == example["sha256"]
        assert len(copied) == example["size"]
        assert b"--8<--" not in copied
        assert example["title"]
        assert example["description"]


@pytest.mark.parametrize("state", ["current", "missing", "unreadable"])
def test_every_field_is_named_on_the_page_for_programs(
    real: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    file = tmp_path / "evidence.xml"
    if state == "current":
        pretend(file, ROOT)
    elif state == "unreadable":
        file.write_text("no XML", encoding="utf-8")
    monkeypatch.setenv("EVIDENCE", str(file))
    documents = data.documents(Project(), Counter(ran=1))
    if state != "current":
        assert documents["evidence"] == {"format": 1, "state": state, "shown": {"ran": 1}}
        return
    for name, document in documents.items():
        page = real.pages["contributing.md"].text
        [row] = re.findall(rf"^\| \[`data/{name}\.json`\]\S+ \| (.*) \|$", page, re.MULTILINE)
        items = [value for value in document.values() if isinstance(value, list) and value]
        fields = {field for item in items if isinstance(item[0], dict) for field in item[0]}
        fields |= set(document) - {"format", name}
        assert fields <= set(re.findall("`(\\w+)`", row)), name


def test_with_an_address_every_reference_is_complete(
    fake: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    monkeypatch.setenv("SITE_URL", "https://example.org/guide")
    machine.apply(site, fake, Counter())
    twin_text = (site / "security/seal.md").read_text()
    assert 'url: "https://example.org/guide/security/seal/"' in twin_text
    assert "(https://example.org/guide/security/seal.md)" in (site / "llms.txt").read_text()
    links = [link.get("href", "") for link in parsed(feed.atom(fake)).iter(f"{{{feed.ATOM}}}link")]
    assert all(link.startswith("https://example.org/guide/") for link in links)


def test_the_feed_dates_by_data_and_leaves_out_what_has_no_date(fake: Project) -> None:
    root = parsed(feed.atom(fake))
    seen = [
        [entry.findtext(f"a:{name}", "", ATOM) for name in ("id", "updated", "summary")]
        for entry in root.findall("a:entry", ATOM)
    ]
    assert seen == [
        [
            "tag:safepoint,2026:advisory/CVE-2030-12345",
            "2030-02-01T00:00:00Z",
            "A box was open. Affects 1.0 and older. Fixed in 1.1.",
        ],
    ]
    assert root.findtext("a:updated", "", ATOM) == "2030-02-01T00:00:00Z"
