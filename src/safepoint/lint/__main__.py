"""`python -m safepoint.lint PATH`: find loads that can run what a file says."""

from __future__ import annotations

import sys

from safepoint.lint.command import main

if __name__ == "__main__":
    sys.exit(main())
