"""The parts of a workflow."""

from __future__ import annotations
