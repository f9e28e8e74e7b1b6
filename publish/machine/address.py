"""Where things are: relative to the site's root, or complete where the site knows its address."""

from __future__ import annotations

import os
import re
from posixpath import dirname, relpath
from typing import Final
from urllib.parse import urljoin

from publish.broken import BrokenPage

_HTTPS: Final = re.compile(r"https://[\w.:-]+/[\w./~-]*", re.ASCII)


def base() -> str:
    """Return the address that the site is published at, with a slash at its end, or ""."""
    address = os.environ.get("SITE_URL", "").strip()
    return address if not address or address.endswith("/") else f"{address}/"


def repository() -> str:
    """Return where the code is published, or "".

    Raises:
        BrokenPage: it is not an address that a reader could open.
    """
    address = os.environ.get("REPO_URL", "").strip()
    if address and not _HTTPS.fullmatch(address):
        raise BrokenPage("REPO_URL is not an https:// address; correct it, or leave it out")
    return address


def public(path: str) -> str:
    """Return where a reader finds what lies at `path` below the site's root."""
    return urljoin(base(), path) if base() else path or "./"


def between(source: str, target: str) -> str:
    """Return how the file `source` refers to the file `target`, both below the site's root."""
    return relpath(target, dirname(source) or ".")
