"""What our SQL makes, which the audit compares with: python -m tests.harness.schema"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.harness.postgres import quick_server

KEPT: Final = Path(__file__).parents[2] / "src" / "safepoint" / "audit" / "schema.json"


def made(version: int = 18) -> str:
    """Run the SQL on a server of its own, and return what the audit should find there."""
    from safepoint.audit.postgres import described, looking
    from safepoint.stores.postgres import create_schema

    with quick_server(version) as server:
        server.database("fresh")
        create_schema(server.dsn(database="fresh"), prefix="x")
        with looking(server.dsn(database="fresh")) as database:
            found = described(database)
    return f"{json.dumps(found, indent=1, sort_keys=True)}\n"


if __name__ == "__main__":
    KEPT.write_text(made(), encoding="utf-8")
