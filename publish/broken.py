"""What stops the build."""

from __future__ import annotations


class BrokenPage(ValueError):
    """A page that cannot be built: its name, the line, what is wrong and what to do."""
