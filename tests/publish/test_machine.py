"""What programs read says what the pages say, labels included, and is the same each time."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from publish import advisories, changes, machine
from publish.broken import BrokenPage
from publish.machine import data, feed, sitemap
from publish.machine.prose import slug
from publish.machine.twins import twin
from publish.project import ROOT, Project
from safepoint.attacks import ATTACKS, RESIDUE
from safepoint.attacks.models import MODEL_ATTACKS
from safepoint.attacks.network import NETWORK_ATTACKS
from safepoint.attacks.sql import SQL_ATTACKS
from safepoint.explain import EXPLANATIONS
from safepoint.rules import RULES
from tests.harness.blocks import find_blocks
from tests.harness.pretend import pretend

ATOM = {"a": feed.ATOM}
RAW = re.compile(
    r"--8<--|^:::|\{:? ?[.#]|</?(?:div|figure|figcaption|sup|br)\b|<!--|^ *(?:!!!|\?\?\?|===) "
)

HOME = """\
---
title: A store
description: "What: a store."
hide: [toc]
---

<div class="hero" markdown>
# A store { .big #top }

A lead.
{ .hero__lead }

See [the seal](security/seal.md#how-it-works) and `{ .kept }`, or [the code][code].
[Again](security/seal.md "The seal"){ title="x" }.
</div>

[code]: reference/index.md

<figure class="diagram" markdown>
![Two boxes,
one line.](assets/boxes.svg)
</figure>

--8<-- "boxes.svg"
"""
SEAL = """\
# The seal

<!-- rule SP12 -->
<div class="rule rule--danger" markdown>

Danger

**[SP12](../rules.md#sp12) · Stale title**

Stale words.
</div>
<!-- /rule -->

Here is [why](../index.md). And more.

## How it works

```{ .python .unsafe .no-copy title="An edit" }
# UNSAFE: this is an attack.
edit()


edit()
```

```{ .python .refused data-raises="SealBroken: broken" }
load()
```

```{ .toml .fix title="lint.toml" }
--8<-- "lint.toml:all"
```

!!! warning "Mind this"

    Keep **it**, as [home](../index.md) says.

    ```{ .bash title="Run it" }
    make attacks
    ```

=== "SQLite"

    A file.

- **✓**{ .detected } refused<br>at once
- **`one`**{ #one } is here

<div class="error" id="two" markdown>
</div>
"""
REFERENCE = """\
# Reference

Back [home](../index.md).

::: tiny.Box
    options:
      members: [open]
"""
TINY = '''\
class Box:
    """Holds something.

    ```python
    Box()
    ```

    ```{ .text data-check="paths" }
    [ ]
    ```
    """

    def __init__(self, size: int = 1) -> None: ...

    def open(self, *, wide: bool = False) -> str:
        """Open it, at once."""

    def close(self) -> None:
        """Close it."""
'''
ADVISORIES = """\
[[advisory]]
id = "CVE-2030-12345"
group = "models"
package = "tiny"
affected = "1.0 and older"
fixed = "1.1"
date = "2030-02"
about = "A box was open."
rules = ["SP23"]
page = "security/seal.md"
source = "https://example.org/advisory"
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project of three pages, and of a ladder that none of them names."""
    monkeypatch.delenv("SITE_URL", raising=False)
    written = {
        "mkdocs.yml": "site_name: Tiny\nsite_description: A tiny site.\nnav:\n"
        "  - Home: index.md\n  - Security:\n      - Seal: security/seal.md\n"
        "  - Reference:\n      - Box: reference/index.md\n",
        "docs/index.md": HOME,
        "docs/security/seal.md": SEAL,
        "docs/reference/index.md": REFERENCE,
        "docs/ladder.md": Project().pages["ladder.md"].text.lstrip("\n"),
        "docs/assets/boxes.svg": '<svg xmlns="http://www.w3.org/2000/svg"><title>Boxes</title>'
        "<desc>A box beside\n another.</desc></svg>\n",
        "snippets/lint.toml": "# Rules for a linter.\n# --8<-- [start:all]\na = 1\n"
        "# --8<-- [end:all]\n",
        "src/tiny.py": TINY,
        "publish/advisories.toml": ADVISORIES,
        "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n### Added\n\n- **A box.** See "
        "[the seal](docs/security/seal.md), and [how to help](CONTRIBUTING.md).\n\n"
        "## [1.0.0] - 2030-01-02\n\n### Fixed\n\n- The lid\n  closes. It did not.\n",
    }
    for name, text in written.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return Project(tmp_path)


@pytest.fixture(scope="module")
def real() -> Project:
    return Project()


@pytest.fixture(scope="module")
def built(real: Project) -> dict[str, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SITE_URL", raising=False)
        return machine.files(real)


def parsed(text: str | bytes) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  our own


def of(project: Project, src: str) -> str:
    return twin(project.pages[src], project)


def test_a_twin_keeps_what_a_page_says_and_drops_what_only_html_needs(fake: Project) -> None:
    assert (
        of(fake, "index.md")
        == """\
---
title: "A store"
description: "What: a store."
url: "./"
---

<a id="top"></a>

# A store

A lead.

See [the seal](security/seal.md#how-it-works) and `{ .kept }`, or [the code][code].
[Again](security/seal.md "The seal").

[code]: reference.md

[Figure: Two boxes, one line.](assets/boxes.svg)

Figure: Boxes. A box beside another.
"""
    )


def test_a_twin_says_in_words_what_colours_say(fake: Project) -> None:
    rule = RULES["SP12"]
    assert (
        of(fake, "security/seal.md")
        == f"""\
---
title: "The seal"
description: "Here is why."
url: "security/seal/"
---

# The seal

> **Danger · [SP12](../rules.md#sp12) · {rule.title}**
>
> {rule.callout}

Here is [why](../index.md). And more.

## How it works

**UNSAFE - do not copy:** An edit

```python
# UNSAFE: this is an attack.
edit()


edit()
```

**Refused:** raises `SealBroken`

```python
load()
```

**Do this:** lint.toml

```toml
a = 1
```

**Warning: Mind this**

Keep **it**, as [home](../index.md) says.

**Run it**

```bash
make attacks
```

**Tab: SQLite**

A file.

- **✓** refused at once
- **`one`**<a id="one"></a> is here

<a id="two"></a>
"""
    )


CALLOUT = SEAL[SEAL.index("<div") : SEAL.index("<!-- /rule")]


@pytest.mark.parametrize(
    "inside",
    [
        f"{CALLOUT}```{{ .python .unsafe .no-copy }}\n# UNSAFE: this.\n```\n",
        CALLOUT.replace("Stale words.", "```{ .python .unsafe }"),
        CALLOUT.replace("Stale words.", "Stale words.\n\nMore."),
        CALLOUT.replace("**[SP12]", "**[SP13]"),
        "Words.\n",
    ],
    ids=["a block", "a fence", "a paragraph", "another rule", "words"],
)
@pytest.mark.parametrize("indent", ["", "    "])
def test_what_stands_in_a_callout_does_not_get_lost(
    fake: Project, inside: str, indent: str
) -> None:
    region = f"<!-- rule SP12 -->\n{inside}<!-- /rule -->"
    inset = '!!! note "N"\n\n' if indent else ""
    text = inset + "".join(f"{indent}{line}\n" for line in region.split("\n"))
    page = f"---\ntitle: Seal\n---\n\n# Seal\n\n{text}"
    (fake.docs / "security/seal.md").write_text(page, encoding="utf-8")
    with pytest.raises(BrokenPage) as caught:
        of(fake, "security/seal.md")
    assert str(caught.value) == (
        f"docs/security/seal.md:{9 if indent else 7}: more than the callout of SP12 stands up to "
        "<!-- /rule -->; move it out, then run make fix"
    )


def test_a_callout_that_is_not_filled_in_yet_is_there_for_programs(fake: Project) -> None:
    page = "# Seal\n\n<!-- rule SP12 -->\n<!-- /rule -->\n"
    (fake.docs / "security/seal.md").write_text(page, encoding="utf-8")
    assert f"> {RULES['SP12'].callout}\n" in of(fake, "security/seal.md")


def test_the_twin_of_a_reference_has_names_signatures_and_summaries(fake: Project) -> None:
    text = of(fake, "reference/index.md")
    assert "Back [home](index.md)." in text
    assert text.endswith(
        """\
<a id="tiny.Box"></a>

## `Box(size: int = 1)`

Holds something.

```text
[ ]
```

- `open(*, wide: bool = False) -> str`: Open it, at once.
"""
    )


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


def test_changes_link_to_pages_and_to_nothing_else_of_the_repository(fake: Project) -> None:
    assert (
        changes.markdown(fake)
        == """\
## Unreleased { #unreleased }

### Added

- **A box.** See [the seal](security/seal.md), and how to help.

## 1.0.0 · 2030-01-02 { #1-0-0 }

### Fixed

- The lid
  closes. It did not."""
    )


def test_the_feed_dates_by_data_and_leaves_out_what_has_no_date(fake: Project) -> None:
    root = parsed(feed.atom(fake))
    entries = root.findall("a:entry", ATOM)
    seen = [
        [entry.findtext(f"a:{name}", "", ATOM) for name in ("id", "updated", "summary")]
        for entry in entries
    ]
    assert seen == [
        [
            "tag:safepoint,2026:advisory/CVE-2030-12345",
            "2030-02-01T00:00:00Z",
            "A box was open. Affects 1.0 and older. Fixed in 1.1.",
        ],
        ["tag:safepoint,2026:changes/1.0.0", "2030-01-02T00:00:00Z", "Fixed: The lid closes."],
    ]
    assert root.findtext("a:updated", "", ATOM) == "2030-02-01T00:00:00Z"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("SP23", "SP99", "CVE-2030-12345 names SP99, which is no id that is known"),
        ("CVE-2030-12345", "CVE-1", "CVE-1 names CVE-1, which is no id that is known"),
        (
            "security/seal.md",
            "no.md",
            "CVE-2030-12345 names the page no.md, which does not exist",
        ),
        (
            '"models"',
            '"other"',
            "CVE-2030-12345 names the group other, and there are checkpoints, models, scanners",
        ),
        ('date = "2030-02"', 'day = "2030-02"', "CVE-2030-12345 has the unknown key 'day'"),
        ('fixed = "1.1"\n', "", "CVE-2030-12345 has no fixed"),
        ('id = "CVE-2030-12345"\n', "", "this advisory has no id"),
        ('"CVE-2030-12345"', "5", "this advisory needs one line of text as id"),
        ('"1.1"', "1.1", "CVE-2030-12345 needs one line of text as fixed"),
        ('"1.1"', '"1\\n1"', "CVE-2030-12345 needs one line of text as fixed"),
        ('"2030-02"', "2030-02-01", "CVE-2030-12345 needs one line of text as date"),
        ('["SP23"]', '"SP23"', "CVE-2030-12345 needs a list of lines of text as rules"),
        ('["SP23"]', "[23]", "CVE-2030-12345 needs a list of lines of text as rules"),
        *(
            (
                '"2030-02"',
                f'"{day}"',
                f"CVE-2030-12345 has the date '{day}', which is no day and no month",
            )
            for day in ("soon", "", "2030", "2030-13", "2030-02-30", "2030-W01", "20300201")
        ),
        *(
            (
                "https://example.org/advisory",
                source,
                "CVE-2030-12345 has a source that is no address with https or http",
            )
            for source in ("javascript:alert(1)", "ftp://example.org", "", "https://a> <b")
        ),
        (
            "A box was open.",
            "A [box]\\u0028javascript:alert) was open.",
            "CVE-2030-12345 has in about a link with the scheme 'javascript', not https or http",
        ),
        (
            "A box was open.",
            "A box\\u0008 was open.",
            "CVE-2030-12345 has in about the control character U+0008",
        ),
    ],
)
def test_an_advisory_about_nothing_is_refused(
    fake: Project, old: str, new: str, message: str
) -> None:
    file = fake.root / advisories.FILE
    file.write_text(ADVISORIES.replace(old, new), encoding="utf-8")
    with pytest.raises(BrokenPage) as caught:
        advisories.read(fake)
    assert str(caught.value) == f"publish/advisories.toml:1: {message}; correct it"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "A box was open.",
            "A [box](javascript:alert) was open.",
            ":8: a link with the scheme 'javascript', not https or http; remove it",
        ),
        ("A box was", "A\b box was", ":8: the control character U+0008; remove it"),
        ('"1.1"', "1.1.1", ":6: this is no TOML; correct it"),
        ('source = "', 'source = ["', ":12: this is no TOML; correct it"),
        ('"1.1"', "[" * 100_000, ":12: this is no TOML; correct it"),
        ("[[advisory]]", "[advisory]", ": not only [[advisory]] tables; remove the rest"),
        ("[[advisory]]", "[[advisry]]", ": not only [[advisory]] tables; remove the rest"),
        ("[[advisory]]", "advisory = [1]\n[x]", ": not only [[advisory]] tables; remove the rest"),
        (
            "[[advisory]]",
            f"{ADVISORIES}\n[[advisory]]",
            ":13: CVE-2030-12345 stands twice; correct it",
        ),
        (
            "[[advisory]]\n",
            'advisory = [{ id = "CVE-1" }]\n#',
            ": not only [[advisory]] tables; remove the rest",
        ),
    ],
)
def test_a_file_that_is_no_list_of_advisories_is_refused(
    fake: Project, old: str, new: str, message: str
) -> None:
    file = fake.root / advisories.FILE
    file.write_text(ADVISORIES.replace(old, new), encoding="utf-8")
    with pytest.raises(BrokenPage) as caught:
        advisories.read(fake)
    assert str(caught.value) == f"publish/advisories.toml{message}"


def test_without_the_line_an_advisory_is_still_named(fake: Project) -> None:
    file = fake.root / advisories.FILE
    file.write_text('advisory = [{ id = "CVE-2030-12345" }]\n', encoding="utf-8")
    with pytest.raises(BrokenPage) as caught:
        advisories.read(fake)
    assert str(caught.value) == ("publish/advisories.toml: CVE-2030-12345 has no group; correct it")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("## 1.0.0 - 2030-13-01\n", ":3: 2030-13-01 is no day; correct it"),
        ("- a \b lid\n", ":3: the control character U+0008; remove it"),
        (
            "- [a lid](javascript:alert(1))\n",
            ":3: a link with the scheme 'javascript', not https or http; remove it",
        ),
    ],
)
def test_a_change_that_no_page_may_hold_is_refused(fake: Project, text: str, message: str) -> None:
    (fake.root / changes.FILE).write_text(f"# Changelog\n\n{text}", encoding="utf-8")
    with pytest.raises(BrokenPage) as caught:
        feed.atom(fake)
    assert str(caught.value) == f"CHANGELOG.md{message}"


def test_the_feed_holds_whatever_may_be_written(fake: Project) -> None:
    hard = """<b>&amp; & ]]> <![CDATA[ "x" 'y' 🙂 &#8; <!-- -->"""
    file = fake.root / advisories.FILE
    about = hard.replace('"', '\\"')
    file.write_text(ADVISORIES.replace("A box was open.", about), encoding="utf-8")
    text = f"## {hard.split(maxsplit=1)[0]} - 2030-01-02\n\n### {hard}\n\n- **{hard}**\n"
    (fake.root / changes.FILE).write_text(text, encoding="utf-8")
    root = parsed(feed.atom(fake))
    said = [entry.findtext("a:summary", "", ATOM) for entry in root.findall("a:entry", ATOM)]
    assert said == [f"{hard} Affects 1.0 and older. Fixed in 1.1.", f"{hard}: {hard}."]


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


def test_every_page_has_a_twin_and_each_is_listed(real: Project, built: dict[str, bytes]) -> None:
    listed = re.findall(
        r"^- \[[^]]+\]\(([^)]+\.md)\): \S", built["llms.txt"].decode(), re.MULTILINE
    )
    twins = sorted(name for name in built if name.endswith(".md"))
    assert twins == sorted(page.twin for page in real.pages.values())
    assert sorted(listed) == sorted(real.pages[src].twin for src in real.navigation)


def outside_of_blocks(text: str) -> list[str]:
    """Return the lines of a twin that are prose, without their inline code."""
    lines, inside = [], False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            lines.append(re.sub(r"`[^`]*`", "`code`", line))
    return lines


def test_nothing_in_a_twin_needs_a_generator(built: dict[str, bytes]) -> None:
    left = [
        f"{name}: {line}"
        for name, content in built.items()
        if name.endswith(".md")
        for line in outside_of_blocks(content.decode())
        if RAW.search(line)
    ]
    assert left == []


def test_every_block_is_in_the_twin_under_its_label(real: Project, built: dict[str, bytes]) -> None:
    wrong = []
    for page in real.pages.values():
        shown = re.findall(
            r"(?P<said>[^\n]*)\n\n *```(?P<language>\w+)\n(?P<text>.*?)\n *```$",
            re.sub(r"^ +(?=```)", "", built[page.twin].decode(), flags=re.MULTILINE),
            re.DOTALL | re.MULTILINE,
        )
        twin_text = built[page.twin].decode()
        source = (real.docs / page.src).read_text(encoding="utf-8")
        for block in find_blocks(source, f"docs/{page.src}"):
            flat = [line.strip() for line in block.text.split("\n") if line.strip()]
            if flat[0] not in twin_text or flat[-1] not in twin_text:
                wrong.append(f"{page.src}:{block.line} is missing")
            for kind, label in (
                ("unsafe", "**UNSAFE - do not copy:**"),
                ("refused", "**Refused:**"),
                ("fix", "**Do this:**"),
            ):
                said = [each[0] for each in shown if flat[0] in each[2]]
                if kind in block.classes and not any(
                    each.strip().startswith(label) for each in said
                ):
                    wrong.append(f"{page.src}:{block.line} has lost {label}")
            if "unsafe" in block.classes and "UNSAFE:" not in flat[0]:
                wrong.append(f"{page.src}:{block.line} does not begin with UNSAFE")
    assert wrong == []


def test_a_callout_begins_with_its_severity(real: Project, built: dict[str, bytes]) -> None:
    words = {"danger": "Danger", "warning": "Warning", "info": "Note"}
    for page in real.pages.values():
        text = built[page.twin].decode()
        for name in re.findall(r"^ *<!-- rule (SP\d+) -->$", page.text, re.MULTILINE):
            assert f"> **{words[RULES[name].severity]} · [{name}](" in text
            assert RULES[name].callout in text


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", "\n".join(outside_with_code(text)), re.MULTILINE)
    return {slug(heading.replace("`", "")) for heading in headings} | set(
        re.findall(r'<a id="([^"]+)">', text)
    )


def outside_with_code(text: str) -> list[str]:
    lines, inside = [], False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            lines.append(line)
    return lines


def test_links_lead_to_twins_and_to_what_stands_in_them(
    real: Project, built: dict[str, bytes]
) -> None:
    known = {name: anchors(text.decode()) for name, text in built.items() if name.endswith(".md")}
    wrong = []
    for name in known:
        text = "\n".join(outside_of_blocks(built[name].decode()))
        targets = re.findall(r"\]\(([^)\s]+)\)", text)
        targets += re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)
        for target in targets:
            if re.match(r"https?:", target):
                continue
            path, _, fragment = target.partition("#")
            there = normpath(join(dirname(name), path)) if path else name
            if there in known:
                if fragment and fragment not in known[there]:
                    wrong.append(f"{name}: {target} has no such section")
            elif there in built:
                continue
            elif there.endswith(".md") or not ((real.docs / there).is_file() or there in GENERATED):
                wrong.append(f"{name}: {target} does not exist")
    assert wrong == []


GENERATED = {"assets/resume.svg", "assets/logins.svg", "assets/scanners.svg"}


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


def test_the_feed_is_atom_with_ids_of_its_own(built: dict[str, bytes]) -> None:
    root = parsed(built["feed.xml"])
    assert root.tag == f"{{{feed.ATOM}}}feed"
    for element in (root, *root.findall("a:entry", ATOM)):
        for name in ("id", "title", "updated"):
            [found] = element.findall(f"a:{name}", ATOM)
            assert found.text
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", element.findtext("a:updated", "", ATOM)
        )
        assert element.findall("a:link[@rel='alternate']", ATOM)
    assert root.findtext("a:author/a:name", "", ATOM)
    ids = [element.text or "" for element in root.iter(f"{{{feed.ATOM}}}id")]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"tag:safepoint,2026:[\w./-]+", each) for each in ids)


def test_what_the_feed_links_to_is_there(built: dict[str, bytes]) -> None:
    root = parsed(built["feed.xml"])
    for entry in root.findall("a:entry", ATOM):
        [link] = entry.findall("a:link", ATOM)
        path, _, fragment = (link.get("href") or "").partition("#")
        assert fragment in anchors(built[f"{path.rstrip('/')}.md"].decode())


def test_every_advisory_that_a_page_names_is_listed(real: Project) -> None:
    listed = set(advisories.corpus(real))
    for each in advisories.read(real):
        listed |= {each.id, *each.also}
    for page in real.pages.values():
        named = set(re.findall(r"CVE-\d{4}-\d{4,}|GHSA(?:-\w{4}){3}", page.text))
        assert named <= listed, page.src


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
