"""The lists that a reader sees first on long pages."""

from __future__ import annotations

import re

import pytest

from publish import advisories, errors
from publish.advisories import Advisory
from publish.machine.examples import copies, described
from publish.project import Project
from safepoint.explain import EXPLANATIONS


def test_every_error_is_named_once_and_leads_to_its_entry() -> None:
    found = re.findall(r"\[(\w+)\]\(#(\w+)\)", errors.names(Project()))
    assert sorted(name for name, _ in found) == sorted(EXPLANATIONS)
    assert all(anchor == name.lower() for name, anchor in found)


def advisory(number: int, fixed: str) -> Advisory:
    return Advisory(
        id=f"CVE-2026-{number}",
        group="models",
        package="box",
        affected="older",
        fixed=fixed,
        about="A flaw.",
        rules=("SP01",),
        page="guide.md",
        source="https://example.org",
    )


@pytest.mark.parametrize(
    ("fixed", "least"),
    [
        (("1.9", "1.10.2", "1.10"), "1.10.2"),
        (("2.0.0rc3",), "2.0.0rc3"),
        (("1.0.10, with its strict mode", "0.9"), "1.0.10"),
        (("1.0", ""), "see the entries"),
        (("the first one after a change",), "see the entries"),
    ],
)
def test_a_package_needs_the_newest_of_its_fixes(
    monkeypatch: pytest.MonkeyPatch, fixed: tuple[str, ...], least: str
) -> None:
    found = [advisory(number, each) for number, each in enumerate(fixed, 1000)]
    monkeypatch.setattr(advisories, "read", lambda _: found)
    links = ", ".join(f"[{each.id}](#{each.anchor})" for each in found)
    assert advisories.in_short(Project()).split("\n")[2:] == [f"| box | {least} | {links} |"]


def test_what_is_copied_has_no_marks_of_the_pages_and_is_described_so() -> None:
    project = Project()
    files = copies(project)
    assert [name for name, content in files.items() if b"--8<--" in content] == []
    assert {each["address"]: each["size"] for each in described(project)} == {
        name: len(content) for name, content in files.items()
    }
    written = (project.root / "snippets/approvals.py").read_bytes()
    kept = [line for line in written.split(b"\n") if b"--8<--" not in line]
    assert files["examples/approvals.py"] == b"\n".join(kept)
