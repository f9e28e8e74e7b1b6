"""The versions of what a block ran on."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from typing import Final

PACKAGES: Final = {
    "safepoint": "safepoint",
    "agent_framework": "agent-framework-core",
    "bandit": "bandit",
    "cryptography": "cryptography",
    "fickling": "fickling",
    "langgraph.checkpoint": "langgraph-checkpoint",
    "langgraph.checkpoint.postgres": "langgraph-checkpoint-postgres",
    "langgraph.checkpoint.sqlite": "langgraph-checkpoint-sqlite",
    "langgraph.graph": "langgraph",
    "modelscan": "modelscan",
    "numpy": "numpy",
    "picklescan": "picklescan",
    "psycopg": "psycopg",
    "pydantic": "pydantic",
    "ruff": "ruff",
    "safepoint.testing.postgres": "PostgreSQL",
    "safetensors": "safetensors",
    "sqlite3": "SQLite",
    "torch": "torch",
}
"""Modules whose versions matter, with the names of their distributions, or of their databases."""


def versions(modules: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages among `modules` that matter."""
    found = {PACKAGES[name]: _version(PACKAGES[name]) for name in set(modules) & set(PACKAGES)}
    return {name: version for name, version in sorted(found.items()) if version}


@cache
def _version(distribution: str) -> str | None:
    if distribution == "SQLite":
        return sqlite3.sqlite_version
    if distribution == "PostgreSQL":
        return _postgres_version()
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _postgres_version() -> str | None:
    """Ask the program that `Server` starts."""
    from safepoint.errors import CheckpointError
    from safepoint.testing.postgres import installed

    try:
        program = installed(18) / "bin" / "postgres"
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    except (CheckpointError, OSError, subprocess.SubprocessError):
        return None
    return said.stdout.split()[-1]
