"""What the build refuses, with a line that says so: attacks on the site, and mistakes."""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from typing import Final

import pytest

from publish import policy
from publish.fill import FILLS, broken_lines, check, fill
from publish.finish import foot
from publish.policy import with_policy
from publish.project import BrokenPage, Project
from publish.sources import check_sources
from tests.harness.blocks import ROOT
from tests.harness.shared import CODE
from tests.publish.conftest import write

SVG: Final = '<svg xmlns="http://www.w3.org/2000/svg"><title>T</title></svg>'
LINK: Final = ": a link, and what it leads to would be published; put the file itself there"
KIND: Final = ": no file of this kind belongs here; move it, or list its kind in publish/sources.py"
TO: Final = "-> "
"""What begins a content that is no content, but where a link leads to."""
KINDS: Final = (
    *("docs/page.html", "docs/assets/page.html", "docs/site.js", "docs/security/site.css"),
    *("docs/assets/keys.json", "docs/drawing.SVG", "docs/page.markdown", "docs/key"),
    *("docs/__pycache__/a.pyc", "snippets/a.pyc", "snippets/a.py~", "snippets/page.md"),
    *("overrides/site.js", "overrides/notes.txt"),
)
SOURCES: Final[list[tuple[str, str, str]]] = [
    *((name, f"{TO}../secret.md", LINK) for name in ("docs/a.md", "snippets/a.py", "docs/.a")),
    ("docs/b.md", f"{TO}../gone", LINK),
    *((name, "x", KIND) for name in KINDS),
    ("docs/a.svg", SVG.replace("</svg>", "<script/></svg>"), ": this SVG has <script>; remove it"),
    ("docs/a.svg", SVG.replace("<svg", "<svg onload='x()'"), ": this SVG has an event handler"),
    ("docs/a.svg", SVG.replace("</title>", ""), ": this SVG is not well-formed"),
]


@pytest.mark.parametrize(("name", "content", "said"), SOURCES)
def test_a_file_that_may_not_be_published_is_refused(
    fake: Project, name: str, content: str, said: str
) -> None:
    write(fake.root, "secret.md")
    (fake.root / name).unlink(missing_ok=True)
    if content.startswith(TO):
        (fake.root / name).symlink_to(content.removeprefix(TO))
    else:
        write(fake.root, name, content)
    with pytest.raises(BrokenPage) as caught:
        check_sources(fake.root)
    assert str(caught.value).startswith(f"{name}{said}")


BROKEN: Final = {
    "See SP99.": "3: there is no rule SP99; see src/safepoint/rules.toml",
    "<!-- fill nothing -->": "3: nothing fills in 'nothing'; known: ",
    '```python\n--8<-- "gone.py"\n```': "4: ",
    "```python\n1": "3: this fence is never closed; add ``` at ",
    "```klingon\nqapla\n```": "3: ",
}


def test_a_line_that_would_not_be_built_as_it_was_meant_is_refused(real: Project) -> None:
    for text, said in BROKEN.items():
        [problem] = broken_lines("page.md", f"# Page\n\n{text}\n", real)
        assert problem.startswith(f"docs/page.md:{said}")


def test_what_is_filled_in_may_not_hold_what_a_page_may_not(
    real: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes from other files: the changelog, the evidence, tables."""
    for text in (
        "- <script>alert(1)</script>",
        "<!--><pre>hidden = 1</pre><!-- x -->",
        '<meta http-equiv="refresh" content="0">',
        "```python\n1\n```",
    ):
        monkeypatch.setattr("publish.fill.FILLS", {"changes": lambda _, text=text: text})
        with pytest.raises(BrokenPage, match=r"^docs/\(filled in by changes\)"):
            fill("<!-- fill changes -->", real)


def test_every_page_of_this_site_is_whole_and_every_fill_writes_something(real: Project) -> None:
    check(real)
    text = "\n".join(page.text for page in real.pages.values())
    for name in FILLS:
        assert f"<!-- fill {name} -->\n" in text
        filled = fill(f"# x\n\n<!-- fill {name} -->\n\nThe end", real)
        assert len(filled) > 20, name
        assert "<!-- fill" not in filled


HEAD: Final = (
    '<meta charset="utf-8"><script src="a.js"></script><script>go(new URL(".",location))</script>'
)
UNKNOWN: Final = "x: a script that the theme did not have before"


def test_the_policy_names_the_themes_scripts_alone_wherever_the_page_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = hashlib.sha256(b'go(new URL("",location))').hexdigest()
    monkeypatch.setattr(policy, "THEME", frozenset({known}))
    data = '<script id="c" type="application/json">{"a": 1}</script>'
    for root in (".", "../..", "/docs/a-b/"):
        html = with_policy((HEAD + data).replace('"."', f'"{root}"'), "x")
        assert html.index("Content-Security-Policy") < html.index("<script")
        assert html.count("'sha256-") == 1
        assert "default-src 'none'; script-src 'self' 'sha256-" in html
        assert "; style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src " in html
        assert "base-uri 'none'; form-action 'none'" in html
    for html, said in {
        HEAD.replace("go(", "evil("): f"{UNKNOWN}: 'evil(",
        HEAD.replace('"."', '"https://evil"'): UNKNOWN,
        HEAD.replace('"."', '"//evil.example/"'): UNKNOWN,
        HEAD.replace('"."', '""+evil()+""'): UNKNOWN,
        f"{HEAD}<article><SCRIPT>x</SCRIPT></article>": "x: a script in the text of the page; ",
        "<p>words</p>": 'x: <meta charset="utf-8"> is missing',
    }.items():
        with pytest.raises(BrokenPage) as caught:
            with_policy(html, "x")
        assert str(caught.value).startswith(said)


def test_an_address_of_the_code_that_nobody_could_open_is_refused(
    real: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is a site that is published without one: its readers could not install anything."""
    for address in ("javascript:go()", "http://x/", 'https://x/"onclick="go()'):
        monkeypatch.setenv("REPO_URL", address)
        with pytest.raises(BrokenPage, match="REPO_URL is not an https:// address; correct it, "):
            foot(real.pages["guide.md"], real, Counter())
    monkeypatch.setenv("REPO_URL", CODE)
    said = foot(real.pages["guide.md"], real, Counter())
    assert said.endswith('<a href="https://code.example/team/safepoint">The code</a></p>')
    assert "safepoint/edit/main/docs/guide.md" in said
    monkeypatch.delenv("REPO_URL")
    check(real)  # for oneself, as `make serve` does
    monkeypatch.setenv("SITE_URL", "https://docs.example/")
    with pytest.raises(BrokenPage, match=r"^SITE_URL is set, and not .*; set REPO_URL, too$"):
        check(real)


def test_a_page_says_how_to_install_from_a_copy_and_from_the_address_that_the_build_knows(
    real: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never by the name alone: what an index has of that name is somebody else's."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    known = {"index.md": "", "langgraph.md": "langgraph", "agent-framework.md": "agent-framework"}
    for page, extra in {**known, "guide.md": ""}.items():
        assert not extra or extra in extras
        shown = f"[{extra}]" if extra else ""
        copied = f"pip install '.{shown}'" if extra else "pip install ."
        monkeypatch.delenv("REPO_URL", raising=False)
        said = fill(real.pages[page].text, real)
        assert copied in said
        assert "git+" not in said
        monkeypatch.setenv("REPO_URL", CODE)
        said = fill(real.pages[page].text, real)
        assert copied in said
        assert f"pip install 'safepoint{shown} @ git+{CODE}'" in said
