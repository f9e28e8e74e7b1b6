"""`# safepoint: allow SL02 REASON`: what it allows, and when it does not count."""

from __future__ import annotations

import pytest

from safepoint.lint import check_source
from safepoint.lint.source import check_text

LOAD = "torch.load(p, weights_only=False)"


def ids(code: str) -> list[str]:
    return [finding.id for finding in check_source(f"import torch\n{code}\n", "train.py")]


@pytest.mark.parametrize(
    "code",
    [
        f"{LOAD}  # safepoint: allow SL02 made by our nightly job",
        f"{LOAD}  #safepoint:allow sl02: made by our nightly job",
        f"{LOAD}  # noqa: S301  # safepoint: allow SL02 made by us",
        f"# safepoint: allow SL02 made by our nightly job\n{LOAD}",
        f"if x:\n    # safepoint: allow SL02 made by us\n    {LOAD}",
        "torch.load(  # safepoint: allow SL02 made by us\n    p, weights_only=False\n)",
        "torch.load(\n    p,\n    weights_only=False,  # safepoint: allow SL02 made by us\n)",
        "torch.load(\n    p, weights_only=False\n)  # safepoint: allow SL02 made by us",
        f"import pickle\npickle.loads({LOAD})  # safepoint: allow SL02, SL08 made by us",
    ],
)
def test_a_finding_is_allowed_on_its_lines_with_a_reason(code: str) -> None:
    assert ids(code) == []


@pytest.mark.parametrize(
    ("comment", "what"),
    [
        ("allow SL02", "It allows SL02 without a reason."),
        ("allow SL02 ok", "It allows SL02 without a reason."),
        ("allow SL02 --", "It allows SL02 without a reason."),
        ("allow", "It does not say what it allows."),
        ("allow this is fine", "It does not say what it allows."),
        ("allow all of it SL02", "It does not say what it allows."),
        ("allow SL2 made by us", "'SL2' is nothing that can be allowed."),
        ("allow SL02, B614 made by us", "'B614' is nothing that can be allowed."),
        ("allow SL90 made by us", "'SL90' is nothing that can be allowed."),
        ("allow SL08 made by us", "It allows SL08, and there is no such finding."),
    ],
)
def test_an_allow_that_does_not_count_is_a_finding_and_hides_nothing(
    comment: str, what: str
) -> None:
    code = f"import torch\n{LOAD}  # safepoint: {comment}\n"
    load, allow = check_source(code, "train.py")
    assert load.id == "SL02"
    assert str(allow) == (
        f"train.py:2:36: SL91 {what} Write it on the line of the finding, with an id and a reason:"
        " # safepoint: allow SL02 REASON"
    )


def test_of_two_ids_the_idle_one_is_told() -> None:
    code = f"import torch\n{LOAD}  # safepoint: allow SL02, SL08 made by us\n"
    (finding,) = check_source(code)
    assert finding.what == "It allows SL08, and there is no such finding."


INNER = "torch.load(q, weights_only=False)"
ALLOW = "# safepoint: allow SL02 made by us"
TWICE = "# safepoint: allow SL02, SL02 both made by us"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        (f"{ALLOW}\n{LOAD}; {INNER}", (3, 36)),
        (f"{LOAD}; {INNER}  {ALLOW}", (2, 36)),
        (f"torch.load({INNER}, weights_only=False)  {ALLOW}", (2, 12)),
        (f"torch.load(\n    {INNER},  {ALLOW}\n    weights_only=False,\n)", (2, 1)),
        (f"torch.load(\n    {ALLOW}\n    {INNER},\n    weights_only=False,\n)", (2, 1)),
        (f"torch.load(  {ALLOW}\n    {INNER},\n    weights_only=False,\n)", (3, 5)),
        (f"torch.load(\n    {INNER},\n    weights_only=False,\n)  {ALLOW}", (3, 5)),
        (f"{ALLOW}\ntorch.load(\n    {INNER}, weights_only=False\n)", (4, 5)),
    ],
)
def test_an_allow_is_for_one_finding_and_the_other_is_told(
    code: str, left: tuple[int, int]
) -> None:
    """If it stands inside two calls, it is for the one that ends first."""
    (finding,) = check_source(f"import torch\n{code}\n")
    assert (finding.id, finding.line, finding.column) == ("SL02", *left)


@pytest.mark.parametrize(
    "code",
    [
        f"{TWICE}\n{LOAD}; {INNER}",
        f"{LOAD}; {INNER}  {TWICE}",
        f"{ALLOW}\n{LOAD}; {INNER}  {ALLOW}",
        f"torch.load({INNER}, weights_only=False)  {TWICE}",
        f"torch.load(  {ALLOW}\n    {INNER},  {ALLOW}\n    weights_only=False,\n)",
        f"torch.load(\n    {INNER},  {ALLOW}\n    weights_only=False,  {ALLOW}\n)",
    ],
)
def test_two_findings_need_the_id_twice(code: str) -> None:
    assert ids(code) == []


def test_an_allow_for_more_than_there_is_does_not_count() -> None:
    for code in (f"{LOAD}  {TWICE}", f"{ALLOW}\n{LOAD}  {ALLOW}"):
        (finding,) = check_source(f"import torch\n{code}\n")
        assert (finding.id, finding.what) == (
            "SL91",
            "It allows SL02, and there is no such finding that is not allowed already.",
        )


@pytest.mark.parametrize(
    "code",
    [
        f"x = 1  # safepoint: allow SL02 made by us\n{LOAD}",
        f"# safepoint: allow SL02 made by us\n\n{LOAD}",
        f"{LOAD}\n# safepoint: allow SL02 made by us",
    ],
)
def test_an_allow_on_another_line_hides_nothing(code: str) -> None:
    assert sorted(ids(code)) == ["SL02", "SL91"]


def test_an_allow_in_a_text_is_none() -> None:
    assert ids(f'{LOAD}; x = "# safepoint: allow SL02 made by us"') == ["SL02"]


def test_an_allow_for_a_class_stands_at_its_head() -> None:
    head, allow = "import pickle\nclass A(pickle.Unpickler):", "# safepoint: allow SL09 old logs"
    assert ids(f"{head}  {allow}\n    x = 1\n    y = 2") == []
    assert ids(f"{head}\n    x = 1\n    y = 2  {allow}") == ["SL09", "SL91"]


def test_what_cannot_be_parsed_cannot_be_allowed() -> None:
    assert ids("def f(:  # safepoint: allow SL90 made by us") == ["SL90"]


def test_other_files_allow_in_the_same_way() -> None:
    line = b"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1  # safepoint: allow SL06 until May, see ticket 7\n"
    assert check_text(line, "x.env") == []
    above, below = line.split(b"  ")
    assert check_text(below + above, "x.env") == []
    found = check_text(b"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1  # safepoint: allow SL06\n", "x.env")
    assert [finding.id for finding in found] == ["SL06", "SL91"]
