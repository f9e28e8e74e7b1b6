"""A tiny project for what programs read, and the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from publish import machine
from publish.project import Project
from tests.publish.machine.tiny import ADVISORIES, HOME, REFERENCE, SEAL, TINY


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project of three pages, and of a ladder that none of them names."""
    monkeypatch.delenv("SITE_URL", raising=False)
    written = {
        "mkdocs.yml": "site_name: Tiny\nsite_description: A tiny site.\nnav:\n"
        "  - Home: index.md\n  - Security:\n      - Seal: security/seal.md\n"
        "  - Reference:\n      - Box: reference/index.md\n",
        "docs/index.md": HOME,
        "docs/security/seal.md": SEAL,
        "docs/reference/index.md": REFERENCE,
        "docs/ladder.md": Project().pages["ladder.md"].text.lstrip("\n"),
        "docs/assets/boxes.svg": '<svg xmlns="http://www.w3.org/2000/svg"><title>Boxes</title>'
        "<desc>A box beside\n another.</desc></svg>\n",
        "snippets/lint.toml": "# Rules for a linter.\n# --8<-- [start:all]\na = 1\n"
        "# --8<-- [end:all]\n",
        "src/tiny.py": TINY,
        "publish/advisories.toml": ADVISORIES,
        "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n### Added\n\n- **A box.** See "
        "[the seal](docs/security/seal.md), and [how to help](CONTRIBUTING.md).\n\n"
        "## [1.0.0] - 2030-01-02\n\n### Fixed\n\n- The lid\n  closes. It did not.\n",
    }
    for name, text in written.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return Project(tmp_path)


@pytest.fixture(scope="module")
def real() -> Project:
    return Project()


@pytest.fixture(scope="module")
def built(real: Project) -> dict[str, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SITE_URL", raising=False)
        return machine.files(real)
