"""The parts of the SQLite storage."""

from __future__ import annotations
