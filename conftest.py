"""Every block of code in docs/, README.md, CONTRIBUTING.md and src/ is a test."""

from __future__ import annotations

pytest_plugins = ["tests.harness.plugin"]
