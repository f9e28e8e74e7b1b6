"""Choose the folder, check it, and only then open it."""

from pathlib import Path

from safepoint import FileCheckpointStorage
from safepoint.audit import audit

folder = Path("my-state")
folder.mkdir(mode=0o700, exist_ok=True)

for finding in audit(folder, rule="SP04"):
    if finding.severity == "error":
        raise SystemExit(str(finding))

storage = FileCheckpointStorage(folder)
print(storage.head("order-7"))
#> 0
