"""A tiny project for what the build makes, and the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from publish import machine
from publish.project import Project
from tests.publish.tiny import FILES


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project of three pages, and of a ladder that none of them names."""
    monkeypatch.delenv("SITE_URL", raising=False)
    root = tmp_path / "project"
    ladder = {"docs/ladder.md": Project().pages["ladder.md"].text.lstrip("\n")}
    for name, text in (FILES | ladder).items():
        write(root, name, text)
    return Project(root)


def write(root: Path, name: str, text: str | bytes = "x") -> None:
    """Write a file of a project."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture(scope="session")
def real() -> Project:
    return Project()


@pytest.fixture(scope="session")
def files(real: Project) -> dict[str, bytes]:
    """What programs read of the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SITE_URL", raising=False)
        return machine.files(real)
