"""What the PostgreSQL storage, anchor and journal share: the schema, and how to ask a server."""

from __future__ import annotations
