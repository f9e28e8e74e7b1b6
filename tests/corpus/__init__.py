"""Pickles to test against: ones that execute, ones that people store, and ones that exhaust.

Nothing here is kept as a file: each is generated. A payload does one harmless thing: it leaves
something in a temporary folder that the caller names.
"""

from __future__ import annotations

from tests.corpus.gadgets import GADGETS, Gadget

__all__ = ["GADGETS", "Gadget"]
