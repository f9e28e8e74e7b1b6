"""The lock: every package is pinned, with the digests of the files that may be needed."""

from __future__ import annotations

import re
import tomllib

import pytest

from bootstrap import read_lock
from tests.harness.blocks import ROOT
from tests.harness.lock import File, canonical, is_wanted, locked

PACKAGES, TORCH, FOR_GPUS = read_lock()
PIN = re.compile(r"([\w.-]+)==[\w.!]+(?: ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n")


def test_everything_is_pinned_with_digests_and_pytorch_stands_alone() -> None:
    for part in (PACKAGES, FOR_GPUS):
        assert PIN.sub("", part) == ""
    assert TORCH == "torch==2.13.0\n"
    assert "triton" in PIN.findall(FOR_GPUS)[-1]


def test_whatever_the_project_asks_for_is_in_it() -> None:
    """Also what builds the package, because pip resolves nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        asked += extra
    names = {canonical(re.split(r"[\[<>=;]", line)[0]) for line in asked} - {"safepoint"}
    locked = {canonical(name) for name, _ in PIN.findall(PACKAGES)} | {"torch"}
    assert names - locked == set()


@pytest.mark.parametrize(
    ("file", "wanted"),
    {
        "a-1-py3-none-any.whl": True,
        "a-1-2-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": True,
        "a-1-cp311-cp311-macosx_11_0_arm64.whl": True,
        "a-1-cp39-abi3-manylinux_2_28_aarch64.whl": True,
        "a-1-cp314-abi3-manylinux_2_28_aarch64.whl": False,
        "a-1-cp310-cp310-manylinux_2_28_x86_64.whl": False,
        "a-1-cp312-cp312-win_amd64.whl": False,
        "a-1.tar.gz": False,
    }.items(),
)
def test_files_for_the_machines_and_pythons_are_taken(file: str, wanted: bool) -> None:
    assert is_wanted(file) == wanted


def test_a_release_is_its_wheels_or_its_source_for_its_pythons_and_nobody_elses() -> None:
    files = [
        File("a_b-1.0-py3-none-any.whl", "01", ">=3.9,<3.13"),
        File("A.B-1.0-cp311-cp311-macosx_11_0_arm64.whl", "02", ">=3.9,<3.13"),
        File("a_b-1.0.tar.gz", "03"),
        File("a_b-1.0.1-py3-none-any.whl", "04"),
        File("a_b_c-1.0-py3-none-any.whl", "05"),
        File("a-b-2.0.tar.gz", "06", ">=3.9"),
    ]
    assert locked("a.b", "1.0", files).split(" \\\n    --hash=sha256:") == [
        'a.b==1.0 ; python_version != "3.13"', "01", "02",
    ]  # fmt: skip
    assert locked("a-b", "2.0", files) == "a-b==2.0 \\\n    --hash=sha256:06"
    with pytest.raises(SystemExit, match=r"no file of a-b 3\.0 with a digest"):
        locked("a-b", "3.0", files)
