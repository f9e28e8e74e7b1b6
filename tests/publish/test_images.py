"""A drawing has its room before it arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from publish.images import sized


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "x.svg").write_text('<svg xmlns="x" viewBox="0 0 360 204.5"></svg>')
    (tmp_path / "y.svg").write_text("<svg></svg>")
    return tmp_path / "a" / "index.html"


def test_a_drawing_gets_the_size_that_it_says(page: Path) -> None:
    html = '<p><img alt="x" src="../x.svg"></p>'
    assert sized(html, page) == '<p><img width="360" height="204.5" alt="x" src="../x.svg"></p>'


@pytest.mark.parametrize(
    "html",
    [
        '<img src="../y.svg">',
        '<img src="../gone.svg">',
        '<img src="x.png">',
        '<img width="1" src="../x.svg">',
    ],
    ids=["no size", "no file", "no drawing", "sized"],
)
def test_anything_else_stays_as_it_is(page: Path, html: str) -> None:
    assert sized(html, page) == html
