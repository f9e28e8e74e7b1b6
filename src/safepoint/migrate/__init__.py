"""The one way in for states that carry no seal. It is explicit, and it leaves a report.

No path of a ledger loads an unsigned record. To move to sealed checkpoints, you read the old ones
here once, as data, decide that you vouch for them, and seal them.
"""

from __future__ import annotations

from safepoint.migrate.reading import json_files
from safepoint.migrate.sealing import migrate
from safepoint.migrate.unsigned import Unsigned

__all__ = ["Unsigned", "json_files", "migrate"]
