"""What pages link to and the build writes last is written."""

from __future__ import annotations

from collections import Counter

from publish import machine
from publish.project import Project


def test_all_that_pages_may_link_to_is_written_in_the_end() -> None:
    """While MkDocs checks links it stands there empty."""
    project = Project()
    written = machine.files(project, Counter())
    assert set(machine.served(project)) == {name for name in written if not name.endswith(".md")}
    assert all(written[name] for name in machine.served(project))
