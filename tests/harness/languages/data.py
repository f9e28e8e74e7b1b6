"""Data: parsed, strictly."""

from __future__ import annotations

import configparser
import json
import tomllib
from collections.abc import Callable
from typing import Any

from tests.harness.blocks import Block
from tests.harness.page import Failure, Page


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


def run_toml(_: Page, block: Block) -> str:
    """Parse TOML."""
    return _parsed("TOML", tomllib.loads, block)


def run_ini(_: Page, block: Block) -> str:
    """Parse an INI file."""
    return _parsed("INI", configparser.RawConfigParser(strict=True).read_string, block)


def _refuse_twice(keys: list[Any]) -> None:
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"the key {key!r} stands twice")


def _parsed(name: str, parse: Callable[[str], object], block: Block) -> str:
    try:
        parse(block.text)
    except (ValueError, configparser.Error) as error:
        raise Failure(f"not {name}: {error}") from None
    return ""
