"""`python -m safepoint` is the command `safepoint`."""

from __future__ import annotations

from safepoint.command.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
