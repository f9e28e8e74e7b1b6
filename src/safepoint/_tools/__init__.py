"""The parts of `safepoint.tools`. Private: import from there."""

from __future__ import annotations
