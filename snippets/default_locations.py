"""A store whose parts each have a place of their own, from the start.

Run it as the user that the program has. On Linux it makes, for you:

    ~/.local/state/safepoint/invoices/storage   what is saved
    ~/.local/state/safepoint/invoices/journal   who saved it, and when
    ~/.local/state/safepoint-anchor/invoices    where each thread ends
    ~/.local/share/safepoint-keys/invoices      both keys
"""

import sys

from safepoint import CheckpointError
from safepoint.audit import check_places
from safepoint.places import default_locations

# Leave `service` out, and root or systemd make it a service.
places = default_locations("invoices", service=False)


def set_up():
    """Once, by hand. Later, what is missing is refused."""
    places.ledger(create=True)


def preflight():
    """Before each start, and in CI."""
    findings = check_places(
        places.storage,
        keys=places.keys,
        anchor=places.anchor,
        journal=places.journal,
        journal_anchor=places.journal_anchor,
    )
    errors = [each for each in findings if each.severity == "error"]
    if errors:
        sys.exit("\n".join(map(str, errors)))


set_up()  # leave this line out of the program itself
preflight()
try:
    ledger = places.ledger()
    ledger.save("order-7", {"amount": 42})
except CheckpointError as refusal:
    raise SystemExit(f"stop, and call for help: {refusal}") from None

for path in (places.storage, places.key_file, places.anchor):
    mode = path.stat().st_mode & 0o777
    print(f"{mode:o} {path.parent.name}/{path.name}")
    # > 700 invoices/storage
    # > 600 invoices/signing.key
    # > 700 safepoint-anchor/invoices
