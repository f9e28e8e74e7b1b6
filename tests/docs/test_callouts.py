"""The callouts on the pages are those of the rules, word for word."""

from __future__ import annotations

import pytest

from tests.harness.callouts import main


def test_every_callout_is_the_text_of_its_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """To repair: python -m tests.harness.callouts."""
    status = main(["--check"])
    assert status == 0, capsys.readouterr().out
