"""Model files: read as data, loaded without running code; and code that loads them, looked at."""

from __future__ import annotations
