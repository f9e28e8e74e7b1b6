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
from tests.harness.prose import CEILINGS, problems, translated
from tests.harness.prose import main as prose
from tests.harness.testing import page

LONG: Final = "one long word " * 15
TOO_LONG: Final = "a sentence of 46 words; make two of it, or a list"
FAULTS: Final = [
    (f"Short. {LONG}ends.", 1, TOO_LONG),
    (f"x\n\nShort.\n{LONG}\n`x`.", 3, TOO_LONG),
    (f"| a | {LONG}ends. |", 1, TOO_LONG),
    ("[Click here](a.md) to go on.", 1, "the link 'Click here' does not say where it leads"),
    ("# A title\n\n## It ends. { #x }", 3, "the heading ends with '.'; leave that out"),
    ("- a\n- Just save.", 2, "'just' shouts or belittles; leave it out"),
    ("'''bash\n# FIXME\n'''", 2, "a TODO is left; write what it asks for, and remove it"),
    ("---\ntitle: x\n---\n\nJust so.", 5, "'just' shouts or belittles; leave it out"),
    ("'''python\nx\n'''\n\nJust", 5, "'just' shouts or belittles; leave it out"),
]


def test_a_fault_of_the_prose_is_found_on_its_line() -> None:
    for text, line, what in FAULTS:
        [problem] = problems(page(text), "README.md")
        assert problem.startswith(f"README.md:{line}: {what}")


def test_the_pages_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    status = prose()
    assert (status, capsys.readouterr().out) == (0, "")


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n<!-- rule SP99 -->\n<!-- /rule -->", "docs/x.md:2: there is no rule SP99"),
        ("<!-- rule SP01 -->\n", "docs/x.md:1: this callout has no end"),
        ("<!-- rule SP01 -->\n<!-- rule SP01 -->", "docs/x.md:1: this callout has no end"),
        ("x\n<!-- /rule -->", "docs/x.md:2: this ends no callout"),
        ("<!-- rule SP01 -->\n<!-- /rules index -->", "docs/x.md:2: this ends no callout"),
    ],
)
def test_a_bad_marker_is_refused_with_page_and_line(text: str, message: str) -> None:
    with pytest.raises(CalloutError) as error:
        filled(text, "docs/x.md", {"SP01": RULE})
    assert str(error.value).startswith(message)


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


def test_a_page_has_few_words_that_read_as_translated() -> None:
    page = "# A page\n\nIt is no file, and nobody reads it alone. `whoever`\n"
    (said,) = translated(page, "docs/x.md")
    assert said.startswith("docs/x.md: 6.0 translated words in 1,000, at most 4: is no file, ")
    assert translated("It is not a file.\n", "docs/x.md") == []
    assert max(CEILINGS.values()) < 15
