"""The project as the site sees it."""

from __future__ import annotations

from publish.project import Project


def test_every_page_is_in_the_navigation_once() -> None:
    project = Project()
    assert sorted(project.navigation) == sorted(project.pages)
    assert len(set(project.navigation)) == len(project.navigation)


def test_every_page_says_what_it_is() -> None:
    """A title, and a sentence of a length that a search engine shows whole."""
    for page in Project().pages.values():
        assert page.title, page.src
        assert 40 <= len(page.description) <= 170, (page.src, len(page.description))


def test_addresses_are_those_that_mkdocs_makes() -> None:
    pages = Project().pages
    assert (pages["index.md"].url, pages["index.md"].twin) == ("", "index.md")
    assert pages["guide.md"].html == "guide/index.html"
    assert pages["security/seal.md"].twin == "security/seal.md"
    assert pages["reference/index.md"].url == "reference/"
