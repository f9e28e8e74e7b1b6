"""Does code load what can execute? By its text: nothing is imported, and nothing runs."""

from __future__ import annotations

import os
from typing import Final

from safepoint.audit.finding import Finding, worst_first
from safepoint.errors import StorageUnavailable
from safepoint.models.lint import Finding as Found
from safepoint.models.lint import check_paths

# These take a protection away from other loads too.
_ERRORS: Final = frozenset({"SL03", "SL04", "SL06", "SL11"})


def check_loads(path: str | os.PathLike[str]) -> list[Finding]:
    r"""Look for loads that can run what a file says, in a file of code or in a folder of it.

    This is `safepoint lint`, as a check. Its ids stand in each finding.

    ```python
    from pathlib import Path

    from safepoint.audit import check_loads

    Path("train.py").write_text('from torch import load\nload("model.pt")\n')
    for finding in check_loads("train.py"):
        print(finding.rule, finding.severity, finding.what[:39])
        #> SP23 warning train.py:2:1 has SL01: torch.load witho
    ```

    Args:
        path: the file, or the folder.

    Returns:
        An error where a protection is switched off, and a warning for each other load that can
        execute, under SP03, SP23 or SP24. What could not be looked at is a warning under SP26.

    Raises:
        StorageUnavailable: there is nothing at that path, or no Python file in it.
    """
    where = os.fspath(path)
    report = check_paths([where])
    if report.failures:
        raise StorageUnavailable(*report.failures[0])
    return worst_first(map(_told, report.findings))


def _told(found: Found) -> Finding:
    return Finding(
        found.rule,
        "error" if found.id in _ERRORS else "warning",
        f"{found.place} has {found.id}: {found.what}",
        found.fix,
        found.path,
    )
