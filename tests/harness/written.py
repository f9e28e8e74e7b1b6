"""Every block that was written: on a page, in the README, in a docstring."""

from __future__ import annotations

from pathlib import Path

from tests.harness.blocks import Block, scan_page
from tests.harness.docstrings import scan_docstrings


def written_blocks(root: Path) -> dict[str, list[Block]]:
    """Return the blocks of every page and module as they are now."""
    pages: dict[str, list[Block]] = {}
    markdown = [*(root / "docs").rglob("*.md"), root / "README.md", root / "CONTRIBUTING.md"]
    for file in filter(Path.is_file, markdown):
        name = file.relative_to(root).as_posix()
        pages[name] = scan_page(file.read_text(encoding="utf-8"), name, root=root).blocks
    for file in (root / "src" / "safepoint").rglob("*.py"):
        name = file.relative_to(root).as_posix()
        scans = scan_docstrings(file.read_text(encoding="utf-8"), name, root=root)
        pages[name] = [block for scan in scans for block in scan.blocks]
    return pages
