"""A storage of your own: short methods that move bytes."""

# --8<-- [start:storage]
import sqlite3

from safepoint import Conflict, NotFound


class TableStorage:
    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.execute(
            "create table if not exists records (thread text,"
            " sequence integer, record blob,"
            " primary key (thread, sequence)) strict"
        )

    def append(self, thread, sequence, record):
        with self.db:
            self.db.execute("begin immediate")
            if self.head(thread) != sequence - 1:
                raise Conflict(
                    f"{thread} #{sequence} is not the next one.",
                    "Load the latest, and decide again.",
                )
            row = (thread, sequence, record)
            self.db.execute("insert into records values (?, ?, ?)", row)

    def read(self, thread, sequence):
        query = (
            "select record from records"
            " where (thread, sequence) = (?, ?)"
        )
        row = self.db.execute(query, (thread, sequence)).fetchone()
        if row is None:
            raise NotFound(
                f"There is no {thread} #{sequence}.",
                "Check the thread's name.",
            )
        return row[0]

    def head(self, thread):
        query = "select max(sequence) from records where thread = ?"
        return self.db.execute(query, (thread,)).fetchone()[0] or 0

    def threads(self):
        query = "select distinct thread from records"
        return [row[0] for row in self.db.execute(query)]


# --8<-- [end:storage]

# --8<-- [start:use]
from safepoint import Keyring, Ledger, SigningKey

storage = TableStorage("checkpoints.db")
table = Ledger(
    storage,
    store="invoices",
    keys=Keyring(SigningKey.from_file("keys/signing.key", create=True)),
)
table.save("order-7", {"amount": 42})
print(table.latest("order-7").state)
#> {'amount': 42}
storage.db.close()
# --8<-- [end:use]
