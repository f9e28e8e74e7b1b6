"""`python -m tests.vectors`: make docs/vectors/*.json again, and the vector that a page shows."""

from __future__ import annotations

from tests.vectors import write

if __name__ == "__main__":
    write()
