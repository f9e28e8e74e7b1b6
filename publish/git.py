"""What git knows about the project."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

_PATIENCE: Final = 30.0


def git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, or None if it fails. It reads this folder's history and no other.

    The repository's own settings can name programs, to watch files, check signatures and fetch what
    is missing. None of these is run; a command that runs others, as `diff` does, is not for here.
    """
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    settings = (
        *("-c", f"safe.directory={root.resolve()}"),
        *("-c", "core.fsmonitor=false", "-c", "log.showSignature=false"),
    )
    try:
        done = subprocess.run(  # noqa: S603  nothing here comes from outside
            ["git", *settings, *arguments],  # noqa: S607
            cwd=root,
            env=environment | {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": ""},
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.decode(errors="surrogateescape")
