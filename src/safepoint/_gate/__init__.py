"""The parts of `safepoint.gate`. Private: import from there."""

from __future__ import annotations
