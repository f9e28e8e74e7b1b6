"""The Markdown of each page says what the page says, labels included."""

from __future__ import annotations

import re
from posixpath import dirname, join, normpath

import pytest

from publish.broken import BrokenPage
from publish.project import Project
from safepoint.rules import RULES
from tests.harness.blocks import find_blocks
from tests.harness.fences import without_fences
from tests.publish.machine.reading import anchors, of
from tests.publish.machine.tiny import SEAL

RAW = re.compile(
    r"--8<--|^:::|\{:? ?[.#]|</?(?:div|figure|figcaption|sup|br)\b|<!--|^ *(?:!!!|\?\?\?|===) "
)


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


def test_every_page_has_a_twin_and_each_is_listed(real: Project, built: dict[str, bytes]) -> None:
    listed = re.findall(
        r"^- \[[^]]+\]\(([^)]+\.md)\): \S", built["llms.txt"].decode(), re.MULTILINE
    )
    twins = sorted(name for name in built if name.endswith(".md"))
    assert twins == sorted(page.twin for page in real.pages.values())
    assert sorted(listed) == sorted(real.pages[src].twin for src in real.navigation)


def outside_of_blocks(text: str) -> str:
    """Return what is prose in a twin, without its inline code."""
    return re.sub(r"`[^`\n]*`", "`code`", without_fences(text))


def test_nothing_in_a_twin_needs_a_generator(built: dict[str, bytes]) -> None:
    left = [
        f"{name}: {line}"
        for name, content in built.items()
        if name.endswith(".md")
        for line in outside_of_blocks(content.decode()).split("\n")
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


def test_links_lead_to_twins_and_to_what_stands_in_them(
    real: Project, built: dict[str, bytes]
) -> None:
    known = {name: anchors(text.decode()) for name, text in built.items() if name.endswith(".md")}
    wrong = []
    for name in known:
        text = outside_of_blocks(built[name].decode())
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
