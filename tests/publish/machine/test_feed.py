"""The feed, and what it is made of: advisories and changes."""

from __future__ import annotations

import re

import pytest

from publish import advisories, changes
from publish.broken import BrokenPage
from publish.machine import feed
from publish.project import Project
from tests.publish.machine.reading import anchors, parsed
from tests.publish.machine.tiny import ADVISORIES

ATOM = {"a": feed.ATOM}


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


def refusal(project: Project, text: str) -> str:
    """Return what is said of such a list of advisories."""
    (project.root / advisories.FILE).write_text(text, encoding="utf-8")
    with pytest.raises(BrokenPage) as caught:
        advisories.read(project)
    return str(caught.value)


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
    said = refusal(fake, ADVISORIES.replace(old, new))
    assert said == f"publish/advisories.toml:1: {message}; correct it"


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
    assert refusal(fake, ADVISORIES.replace(old, new)) == f"publish/advisories.toml{message}"


def test_without_the_line_an_advisory_is_still_named(fake: Project) -> None:
    said = refusal(fake, 'advisory = [{ id = "CVE-2030-12345" }]\n')
    assert said == "publish/advisories.toml: CVE-2030-12345 has no group; correct it"


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
