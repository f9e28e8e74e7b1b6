"""Choose the folder, check it, then open it."""

from pathlib import Path

from safepoint import FileCheckpointStorage, UnsafeLocation
from safepoint.audit import check_location

folder = Path("my-state")
folder.mkdir(mode=0o700)

errors = [f for f in check_location(folder) if f.severity == "error"]
print(errors)
#> []

storage = FileCheckpointStorage(folder)

folder.chmod(0o777)  # somebody opens it up
try:
    storage.head("order-7")
except UnsafeLocation:
    print("refused")
    #> refused
