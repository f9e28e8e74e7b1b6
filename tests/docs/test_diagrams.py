"""Every drawing of the site is inert, self-contained, titled and readable on light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.blocks import ROOT
from tests.harness.svg import svg_problems

ASSETS = ROOT / "docs" / "assets"
DRAWINGS = sorted(ASSETS.rglob("*.svg"))


def test_there_are_drawings() -> None:
    """Or the test below would hold of nothing."""
    assert DRAWINGS


@pytest.mark.parametrize("file", DRAWINGS, ids=lambda file: file.relative_to(ASSETS).as_posix())
def test_a_drawing_is_as_it_should_be(file: Path) -> None:
    """Each problem is named."""
    assert svg_problems(file.read_text(encoding="utf-8")) == []
