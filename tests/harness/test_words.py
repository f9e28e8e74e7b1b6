"""What is filled in, what is linted, and what is locked: each planted fault is found."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from bootstrap import read_lock
from safepoint.rules import LEGS, Rule
from tests.harness.blocks import ROOT
from tests.harness.callouts import CalloutError, filled, main
from tests.harness.lock import canonical

RULE: Final = Rule(
    "SP01", "Storage", "A boundary", "danger", "own", "Guard it.", None, dict.fromkeys(LEGS, ())
)
EMPTY: Final = "# T\n\n<!-- rule SP01 -->\n<!-- /rule -->\n\nMore.\n"
FULL: Final = """\
# T

<!-- rule SP01 -->
<div class="rule rule--danger" markdown>

Danger

**[SP01](../rules.md#sp01) · A boundary**

Guard it.
</div>
<!-- /rule -->

More.
"""


def test_a_callout_is_checked_and_then_filled_in(tmp_path: Path) -> None:
    file = tmp_path / "docs/security/x.md"
    file.parent.mkdir(parents=True)
    for text in (EMPTY, FULL.replace("Guard it.", "Old.")):
        file.write_text(text, encoding="utf-8")
        assert main(["--check"], root=tmp_path, rules={"SP01": RULE}) == 1
        assert file.read_text(encoding="utf-8") == text
        assert main([], root=tmp_path, rules={"SP01": RULE}) == 0
        assert file.read_text(encoding="utf-8") == FULL
    assert main(["--check"], root=tmp_path, rules={"SP01": RULE}) == 0
    taught = {"SP01": replace(RULE, page="a/b.md")}
    assert "**[SP01](a/b.md) " in filled(EMPTY, "docs/index.md", taught)
    assert "**[SP01](../rules.md#sp01) " in filled(EMPTY, "docs/a/b.md", taught)
    assert filled(code := f"```text\n{EMPTY}```\n", "docs/index.md", taught) == code
    for wrong in (EMPTY.replace("SP01", "SP09"), f"<!-- rule SP01 -->\n{EMPTY}", FULL[:60]):
        with pytest.raises(CalloutError, match=r"no rule SP09|has no end"):
            filled(wrong, "docs/index.md", taught)


FOR_SITE, FOR_TESTS, TORCH, FOR_GPUS = read_lock()
PACKAGES = FOR_SITE + FOR_TESTS
PIN: Final = re.compile(
    r"([\w.-]+)==[\w.!]+(?: ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
)


def test_whatever_the_project_asks_for_is_locked_with_digests_and_pytorch_alone() -> None:
    """Also what builds the package, because pip resolves nothing."""
    assert (PIN.sub("", PACKAGES), PIN.sub("", FOR_GPUS), TORCH) == ("", "", "torch==2.13.0\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        asked += extra
    names = {canonical(re.split(r"[\[<>=;]", line)[0]) for line in asked} - {"safepoint"}
    assert names <= {canonical(name) for name, _ in PIN.findall(PACKAGES)} | {"torch"}
