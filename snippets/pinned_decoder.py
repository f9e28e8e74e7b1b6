"""Rows with a tag, and a reader that does not obey it."""

import sqlite3
from dataclasses import dataclass

from safepoint import Codec
from safepoint.core.errors import DecodeError


@dataclass
class Invoice:
    amount: int


FORMAT = "invoices/2"  # all that this release writes, and all it reads
codec = Codec([Invoice])


def save(db, thread, state):
    row = (thread, FORMAT, codec.encode(state))
    db.execute("INSERT INTO rows VALUES (?, ?, ?)", row)


def load(db, thread):
    query = "SELECT format, body FROM rows WHERE thread = ?"
    found, body = db.execute(query, [thread]).fetchone()
    if found != FORMAT:  # compared, and never looked up
        raise DecodeError(
            f"{thread} is not of the format {FORMAT}.",
            "Convert old rows once, offline, with a program for that.",
        )
    return codec.decode(body)


db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE rows (thread, format, body)")
save(db, "order-7", Invoice(42))
print(load(db, "order-7"))
#> Invoice(amount=42)

# Whoever can write the table can choose a tag, and nothing else.
for tag in ("pickle", "invoices/1", "invoices/2"):
    pickled = b"cos\nmkdir\n(Vmarker\ntR."
    db.execute("UPDATE rows SET format = ?, body = ?", [tag, pickled])
    try:
        load(db, "order-7")
    except DecodeError as refusal:
        print(f"{tag}: {refusal.what}")
        #> pickle: order-7 is not of the format invoices/2.
        #> invoices/1: order-7 is not of the format invoices/2.
        #> invoices/2: The encoded state is not in canonical form.
db.close()
