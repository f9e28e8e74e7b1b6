"""Where things are: relative to the site's root, or complete where the site knows its address."""

from __future__ import annotations

import os
from posixpath import dirname, relpath
from urllib.parse import urljoin


def base() -> str:
    """Return the address that the site is published at, with a slash at its end, or ""."""
    address = os.environ.get("SITE_URL", "").strip()
    return address if not address or address.endswith("/") else f"{address}/"


def public(path: str) -> str:
    """Return where a reader finds what lies at `path` below the site's root."""
    return urljoin(base(), path) if base() else path or "./"


def between(source: str, target: str) -> str:
    """Return how the file `source` refers to the file `target`, both below the site's root."""
    return relpath(target, dirname(source) or ".")
