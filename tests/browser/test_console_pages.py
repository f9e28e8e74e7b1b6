"""The HTML of the console's pages is whole. What a browser says of them is in `test_console.py`."""

from __future__ import annotations

from typing import Final

import pytest

from tests.browser.html import html_problems
from tests.unit.console_pages import HOME, every_page
from tests.unit.console_runs import every_run

HOSTILE: Final = "<script>alert(1)</script><b onclick=x>\u202e  pa\u200by \n" + "x" * 300
FILES: Final = {
    **every_page(),
    **every_run(HOME),
    **{f"{name}-hostile": page for name, page in every_page(HOSTILE).items()},
}


@pytest.mark.parametrize("name", FILES)
def test_the_html_is_whole(name: str) -> None:
    assert html_problems(FILES[name]) == []
