"""Which modules a block imports, by what stands in it, and their versions."""

from __future__ import annotations

import ast
import re
import sqlite3
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from typing import Final

from tests.harness.blocks import Block

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


_PROGRAMS: Final = {distribution: module for module, distribution in PACKAGES.items()}
_PYTHON_M = re.compile(r"\bpython3? +-m +(\w+)")
_FIRST_WORD = re.compile(r"(?:^|[|;&(])[ \t]*([\w.-]+)", re.MULTILINE)


def imported_by(block: Block) -> set[str]:
    """Return the modules that a block imports or starts, by their first names, or as PACKAGES."""
    if "data-check" in block.attributes:
        return set()
    if block.language == "sql":
        return {"safepoint.testing.postgres"}
    if block.language == "python":
        return _imported(block.text)
    if block.language == "bash":
        programs = set(_FIRST_WORD.findall(block.text))
        started = {module for name, module in _PROGRAMS.items() if name in programs}
        return started | set(_PYTHON_M.findall(block.text))
    return set()


def _imported(code: str) -> set[str]:
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return set()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    known = {key for name in names for key in PACKAGES if f"{name}.".startswith(f"{key}.")}
    return known | {name.partition(".")[0] for name in names} - {""}
