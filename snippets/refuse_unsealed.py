"""Take in a checkpoint from elsewhere: verify first, decode after."""

from pathlib import Path

from safepoint import (
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SealBroken,
    SigningKey,
)


def take_in(file, *, thread, keys):
    """Return the state in `file` if a key that you hold sealed it."""
    storage = InMemoryCheckpointStorage()
    storage.append(thread, 1, Path(file).read_bytes())
    return Ledger(storage, store="invoices", keys=keys).load(thread, 1)


# A colleague's export, and something that came by mail.
ours = Keyring(SigningKey.generate())
storage = InMemoryCheckpointStorage()
Ledger(storage, store="invoices", keys=ours).save("order-7", [42])
Path("export.checkpoint").write_bytes(storage.read("order-7", 1))
Path("mail.checkpoint").write_bytes(b"cos\nmkdir\n(Vmarker\ntR.")

for file in ("export.checkpoint", "mail.checkpoint"):
    try:
        print(take_in(file, thread="order-7", keys=ours).state)
        #> [42]
    except SealBroken as refusal:
        print(refusal.what)
        #> order-7 #1 is not a sealed record.
