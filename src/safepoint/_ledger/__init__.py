"""The parts of the ledger."""

from __future__ import annotations
