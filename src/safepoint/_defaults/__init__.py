"""The parts of the defaults."""

from __future__ import annotations
