"""Test keys, published: they protect nothing. `ssh-keygen` of OpenSSH 9.2 made them.

plain and phrase are Ed25519 keys; the second has a passphrase and one round of bcrypt, so that
tests are fast. rounds has 1,025 of them, cipher is encrypted with chacha20-poly1305, and pem is not
in OpenSSH's format. The rest are of other types.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
PASSPHRASE: Final = "four words at random"  # noqa: S105  published


def text(name: str) -> bytes:
    """Return a key file."""
    return (FOLDER / name).read_bytes()


def put(path: Path, name: str) -> Path:
    """Copy a key file to where only its owner reads it."""
    path.write_bytes(text(name))
    path.chmod(0o600)
    return path
