"""One set of limits, for whoever writes and whoever reads."""

import zlib

from safepoint import (
    Codec,
    FileCheckpointStorage,
    Keyring,
    Ledger,
    LimitExceeded,
    Limits,
    SigningKey,
)

limits = Limits(state_bytes=64 * 1024, depth=8, items=1_000)
ledger = Ledger(
    FileCheckpointStorage("state", limits=limits),
    store="invoices",
    keys=Keyring(SigningKey.generate()),
    codec=Codec(limits=limits),
)

# They hold on save as well, so the writer learns first.
for state in ("x" * 100_000, [0] * 2_000, [[[[[[[[[0]]]]]]]]]):
    try:
        ledger.save("order-7", state)
    except LimitExceeded as refusal:
        print(refusal.what)
        #> The encoded state has 100005 bytes, and the limit is 65536.
        #> The state holds more than 1000 values.
        #> The state is nested deeper than 8 levels, or contains itself.


# If a storage of yours compresses, say how much may come out.
def inflate(row, limit):
    stream = zlib.decompressobj()
    data = stream.decompress(row, limit)
    if not stream.eof or stream.unused_data:
        raise LimitExceeded(
            f"The row holds more than {limit} bytes, or is damaged.",
            "Find out who wrote it.",
        )
    return data


print(inflate(zlib.compress(b"[1,2]"), limits.record_bytes))
#> b'[1,2]'
try:
    bomb = zlib.compress(bytes(64 * 1024 * 1024), 9)
    inflate(bomb, limits.record_bytes)
except LimitExceeded as refusal:
    print(refusal.what)
    #> The row holds more than 69632 bytes, or is damaged.
