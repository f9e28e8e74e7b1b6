"""`python -m safepoint` is the command `safepoint`."""

from safepoint.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
