"""Few examples of what `make fuzz` tries for long."""

from __future__ import annotations

from hypothesis import settings

if settings.get_current_profile_name() == "quick":
    settings.load_profile("few")
