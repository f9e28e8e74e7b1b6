"""Data: parsed, strictly. SQL: executed."""

from __future__ import annotations

import configparser
import json
import sqlite3
import tomllib
from collections.abc import Callable
from typing import Any

import yaml

from tests.harness.blocks import Block
from tests.harness.page import Failure, Page
from tests.harness.svg import svg_problems


def run_json(_: Page, block: Block) -> str:
    """Parse JSON; duplicate keys, NaN and infinities are refused."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        _refuse_twice([key for key, _ in items])
        return dict(items)

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def parse(text: str) -> Any:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)

    return _parsed("JSON", parse, block)


def run_yaml(_: Page, block: Block) -> str:
    """Parse one YAML document; duplicate keys are refused."""

    def parse(text: str) -> object:
        loader = _StrictLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()

    return _parsed("YAML", parse, block)


def run_toml(_: Page, block: Block) -> str:
    """Parse TOML."""
    return _parsed("TOML", tomllib.loads, block)


def run_ini(_: Page, block: Block) -> str:
    """Parse an INI file."""
    return _parsed("INI", configparser.RawConfigParser(strict=True).read_string, block)


def run_svg(_: Page, block: Block) -> str:
    """Check a drawing: well-formed, and nothing in it runs or reaches out."""
    problems = svg_problems(block.text, drawing=False)
    if problems:
        raise Failure(f"this SVG {'; '.join(problems)}")
    return ""


def run_sql(page: Page, block: Block) -> str:
    """Execute statements in the page's database and return the rows, as `sqlite3` prints them."""
    rows: list[str] = []
    for statement in _statements(block.text):
        try:
            cursor = page.database.execute(statement)
        except sqlite3.Error as error:
            raise Failure(f"SQLite refuses it: {error}\n{statement.strip()}") from None
        rows += ["|".join(map(_cell, row)) for row in cursor]
    page.database.commit()
    return "".join(f"{row}\n" for row in rows)


class _StrictLoader(yaml.SafeLoader):
    """Safe, and each key of a mapping stands once. A merge may still be overridden."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        _refuse_twice([self.construct_object(key, deep=True) for key in keys])
        return super().construct_mapping(node, deep)


def _refuse_twice(keys: list[Any]) -> None:
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"the key {key!r} stands twice")


def _parsed(name: str, parse: Callable[[str], object], block: Block) -> str:
    try:
        parse(block.text)
    except (ValueError, configparser.Error, yaml.YAMLError) as error:
        raise Failure(f"not {name}: {error}") from None
    return ""


def _statements(text: str) -> list[str]:
    statements: list[str] = []
    current = ""
    *pieces, rest = text.split(";")
    for piece in pieces:
        current += f"{piece};"
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    lines = (current + rest).splitlines()
    if any(line.strip() and not line.lstrip().startswith("--") for line in lines):
        raise Failure("a statement without a semicolon at its end; add it")
    return statements


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
