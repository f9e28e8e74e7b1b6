"""The parts of `safepoint.codec`. Private: import `Codec` from there."""

from __future__ import annotations
