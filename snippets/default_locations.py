"""A store whose parts each have a place of their own, from the start.

Run it as the user that the program has. On Linux it makes, for you:

    ~/.local/state/safepoint/invoices/storage   what is saved
    ~/.local/state/safepoint-anchor/invoices    where each thread ends
    ~/.local/share/safepoint-keys/invoices      the key
"""

import sys
from pathlib import Path

from safepoint import CheckpointError, open_ledger
from safepoint.audit import audit
from safepoint.places import in_default_places


def preflight(name):
    """Before each start, and in CI."""
    findings = audit(in_default_places(name))
    errors = [each for each in findings if each.severity == "error"]
    if errors:
        sys.exit("\n".join(map(str, errors)))


try:
    ledger = open_ledger("invoices")  # begins it the first time
    preflight("invoices")
    ledger.save("order-7", {"amount": 42})
except CheckpointError as refusal:
    raise SystemExit(f"stop, and call for help: {refusal}") from None

places = ledger.places
for path in map(Path, (places.storage, places.key[0], places.anchor)):
    mode = path.stat().st_mode & 0o777
    print(f"{mode:o} {path.parent.name}/{path.name}")
    #> 600 storage/checkpoints.db
    #> 600 invoices/signing.key
    #> 600 invoices/heads.db
