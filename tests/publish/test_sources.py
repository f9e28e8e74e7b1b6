"""Nothing is published that nobody meant to publish: links, unknown kinds, live drawings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from publish.broken import BrokenPage
from publish.machine.examples import copies, described
from publish.project import ROOT, Project
from publish.sources import check_sources, flaw, read_text

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><title>T</title></svg>'
LINK = "a link, and what it leads to would be published; put the file itself there"
KIND = "no file of this kind belongs here; move it, or list its kind in publish/sources.py"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a file of each kind."""
    root = tmp_path / "project"
    for name in (
        "docs/index.md",
        "docs/security/seal.md",
        "docs/assets/card.png",
        "docs/assets/site.css",
        "docs/assets/deep/site.js",
        "docs/vectors/keys.json",
        "snippets/a.py",
        "snippets/check.sh",
        "snippets/lint.toml",
        "snippets/pg_hba.conf",
        "overrides/main.html",
    ):
        write(root, name)
    write(root, "docs/assets/logo.svg", SVG)
    return root


def write(root: Path, name: str, text: str = "x") -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


def refusal(root: Path) -> str:
    with pytest.raises(BrokenPage) as caught:
        check_sources(root)
    return str(caught.value)


def test_what_is_there_now_passes(root: Path) -> None:
    check_sources(root)
    check_sources(ROOT)


@pytest.mark.parametrize(
    "name",
    ["docs/leak.txt", "docs/leak.md", "snippets/leak.conf", "overrides/leak.html", "docs/.leak"],
)
def test_a_link_to_a_file_is_refused(root: Path, name: str) -> None:
    write(root, "../secret")
    (root / name).symlink_to(root.parent / "secret")
    assert refusal(root) == f"{name}: {LINK}"
    (root.parent / "secret").unlink()
    assert refusal(root) == f"{name}: {LINK}"


@pytest.mark.parametrize(
    "name", ["docs/leak", "snippets/__pycache__", "overrides/a/leak", "docs/.leak"]
)
def test_a_link_to_a_folder_is_refused(root: Path, name: str) -> None:
    write(root, "../secrets/secret.md")
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).symlink_to(root.parent / "secrets")
    assert refusal(root) == f"{name}: {LINK}"


@pytest.mark.parametrize("folder", ["docs", "snippets", "overrides"])
def test_a_folder_that_is_a_link_itself_is_refused(root: Path, folder: str) -> None:
    (root / folder).rename(root.parent / "elsewhere")
    (root / folder).symlink_to(root.parent / "elsewhere")
    assert refusal(root) == f"{folder}: {LINK}"


@pytest.mark.parametrize(
    "name",
    [
        "docs/page.html",
        "docs/assets/page.html",
        "docs/site.js",
        "docs/security/site.css",
        "docs/assets/keys.json",
        "docs/drawing.SVG",
        "docs/page.markdown",
        "docs/key",
        "docs/__pycache__/a.pyc",
        "snippets/a.pyc",
        "snippets/a.py~",
        "snippets/page.md",
        "overrides/site.js",
        "overrides/notes.txt",
    ],
)
def test_a_kind_that_does_not_belong_there_is_refused(root: Path, name: str) -> None:
    write(root, name)
    assert refusal(root) == f"{name}: {KIND}"


def test_each_file_has_its_line(root: Path) -> None:
    write(root, "docs/b.html")
    write(root, "docs/a.html")
    write(root, "snippets/c.html")
    assert refusal(root) == f"docs/a.html: {KIND}\ndocs/b.html: {KIND}\nsnippets/c.html: {KIND}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SVG.replace("</svg>", "<script/></svg>"), "this SVG has <script>; remove it"),
        (SVG.replace("<svg", "<svg onload='x()'"), "this SVG has an event handler onload"),
        (SVG.replace("</title>", ""), "this SVG is not well-formed"),
        (
            f'<?xml-stylesheet href="https://example.org/a.css"?>{SVG}',
            "this SVG has a processing instruction; remove it",
        ),
        (f'<?xml version="1.0" encoding="utf-7"?>{SVG}', "this SVG has a processing instruction"),
    ],
)
def test_a_drawing_that_could_do_something_is_refused(root: Path, text: str, problem: str) -> None:
    write(root, "docs/evil.svg", text)
    assert refusal(root).startswith(f"docs/evil.svg: {problem}")


def test_a_drawing_in_another_encoding_is_refused(root: Path) -> None:
    (root / "docs/evil.svg").write_bytes(SVG.encode("utf-16"))
    assert refusal(root) == "docs/evil.svg: not UTF-8; save the file as UTF-8"


def test_what_is_neither_file_nor_folder_is_refused(root: Path) -> None:
    """Reading it would wait for ever."""
    os.mkfifo(root / "docs/wait.md")
    assert refusal(root) == "docs/wait.md: neither a file nor a folder; remove it"


def test_a_name_that_cannot_be_shown_is_refused_on_one_line(root: Path) -> None:
    write(root, "docs/a\nb.md")
    (root / os.fsdecode(b"docs/\xff.md")).write_text("x")
    assert refusal(root) == (
        "docs/a\\nb.md: a name with letters that cannot be shown; rename it\n"
        "docs/\\udcff.md: a name with letters that cannot be shown; rename it"
    )


def test_what_the_tools_of_a_developer_leave_is_no_matter(root: Path) -> None:
    """Neither generator publishes these, and neither do we."""
    before = copies(Project(root))
    for name in (
        "docs/.DS_Store",
        "docs/.index.md.swp",
        "snippets/.DS_Store",
        "snippets/.a.py",
        "snippets/.ruff_cache/x",
        "snippets/__pycache__/a.cpython-311.pyc",
        "overrides/.DS_Store",
    ):
        write(root, name)
    check_sources(root)
    assert copies(Project(root)) == before


def test_a_hidden_page_is_refused(root: Path) -> None:
    """The generators leave it out, but it would have a twin."""
    write(root, "docs/.old/page.md")
    assert refusal(root) == "docs/.old/page.md: a hidden page; rename or remove it"


def test_only_what_is_an_example_is_copied(root: Path) -> None:
    write(root, "../secret")
    write(root, "snippets/a.pyc")
    write(root, "snippets/deep/b.py")
    (root / "snippets/leak.conf").symlink_to(root.parent / "secret")
    assert sorted(copies(Project(root))) == [
        "examples/a.py",
        "examples/check.sh",
        "examples/lint.toml",
        "examples/pg_hba.conf",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\nb = (\n", "snippets/a.py:2: this is no Python; correct it"),
        (b"a = 1\n# \xff\n", "snippets/a.py:2: not UTF-8; save the file as UTF-8"),
    ],
)
def test_an_example_that_cannot_be_read_is_refused(
    root: Path, content: bytes, message: str
) -> None:
    (root / "mkdocs.yml").write_text("nav:\n  - Home: index.md\n")
    write(root, "docs/index.md", "# Home\n")
    write(root, "docs/security/seal.md", "# Seal\n")
    (root / "snippets/a.py").write_bytes(content)
    with pytest.raises(BrokenPage) as caught:
        described(Project(root))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\ntw\x08o\n", "CHANGELOG.md:2: the control character U+0008; remove it"),
        (b"one\r\ntwo\rthree\n", "CHANGELOG.md:2: the control character U+000D; remove it"),
        (b"\n\n\xc2\x85", "CHANGELOG.md:3: the control character U+0085; remove it"),
        (b"\x7f", "CHANGELOG.md:1: the control character U+007F; remove it"),
        (b"\0", "CHANGELOG.md:1: the control character U+0000; remove it"),
        (b"\xef\xbf\xbe", "CHANGELOG.md:1: the control character U+FFFE; remove it"),
        (b"one\n\xff", "CHANGELOG.md:2: not UTF-8; save the file as UTF-8"),
        (
            b"one\n\n[x](javascript:alert)",
            "CHANGELOG.md:3: a link with the scheme 'javascript', not https or http; remove it",
        ),
    ],
)
def test_a_text_that_no_page_may_hold_is_refused(root: Path, content: bytes, message: str) -> None:
    (root / "CHANGELOG.md").write_bytes(content)
    with pytest.raises(BrokenPage) as caught:
        read_text(root, "CHANGELOG.md")
    assert str(caught.value) == message


def test_a_text_that_is_a_link_is_refused(root: Path) -> None:
    write(root, "../secret")
    (root / "CHANGELOG.md").symlink_to(root.parent / "secret")
    with pytest.raises(BrokenPage) as caught:
        read_text(root, "CHANGELOG.md")
    assert str(caught.value) == f"CHANGELOG.md: {LINK}"


def test_a_text_is_read_with_the_line_ends_of_any_system(root: Path) -> None:
    (root / "CHANGELOG.md").write_bytes("a\tb\r\n– 🙂\n".encode())
    assert read_text(root, "CHANGELOG.md") == "a\tb\n– 🙂\n"
    assert read_text(root, "NOTHING.md") == ""


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:alert(1))",
        "[x]( <JavaScript:alert(1)>)",
        "[x](java\tscript:alert(1))",
        "[x](\n javascript:alert(1))",
        "[x](javascript&#58;alert(1))",
        "[x](javascript&colon;alert(1))",
        "[x](&#106;avascript:alert(1))",
        "[x](java&Tab;script:alert(1))",
        "![x](data:image/svg+xml,x)",
        "[x][y]\n\n[y]: vbscript:x",
        "[x][y]\n\n> [y]:\n  file:///etc/hostname",
        "<ftp://example.org>",
        "<mailto:dana@example.org>",
        '[x](a.md){ href="javascript:alert(1)" }',
        "[a]: b.md [x](javascript:alert(1))",
    ],
)
def test_a_link_elsewhere_than_the_web_is_seen(text: str) -> None:
    found = flaw(text)
    assert found is not None
    assert "a link with the scheme " in found[1]


@pytest.mark.parametrize(
    "text",
    [
        "[x](https://example.org/a:b) and <http://example.org>",
        "[x](docs/security/seal.md#a:b) [y](?a:b) [z](//example.org:80)",
        '[x](a.md "Note: this")',
        "Note: this. [x]: and [^1]: Note: a foot. 3 < 4: true. `a[0](b)`",
        "[x][y]\n\n[y]: HTTPS://example.org",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    assert flaw(text) is None
