"""What a server says, as an error of the tree that says what to do next."""

from __future__ import annotations

import re
from typing import Any

from safepoint._postgres.driver import driver
from safepoint._postgres.reasons import MIGRATE, NO_ANSWER, NO_ROOM, WRONG_WORD, reason
from safepoint.errors import StorageError, StorageFull, StorageRefused, StorageUnavailable

_AGAIN = frozenset(
    [
        "40001",  # serialization failure: nothing was done
        "40P01",  # deadlock: nothing was done
        "53300",  # too many connections
        "57P01",  # shut down by an administrator
        "57P02",  # another backend crashed
        "57P03",  # starting up, or recovering
        "57P05",  # idle for too long
    ]
)


_SCHEMA = re.compile(r"permission denied for schema (safepoint|safepoint_anchor|safepoint_journal)")
_FOR = {
    "safepoint": ("workers", "safepoint_writer"),
    "safepoint_anchor": ("the anchor", "safepoint_anchor"),
    "safepoint_journal": ("the journal", "safepoint_journal"),
}


def comes_back(error: Any) -> bool:
    """Tell whether the same may well work on a new connection, in a moment."""
    code = error.sqlstate
    if code is not None:
        return code in _AGAIN or code.startswith("08")
    if not isinstance(error, driver().OperationalError):
        return False  # the driver's own: it cannot read what was sent, or does not like a word
    text = str(error)
    if WRONG_WORD.search(text):
        return False
    # The server of a connection that was lost, or one that is on its way up.
    if re.search(r"starting up|shutting down|recovery mode|not yet accept", text):
        return True
    return reason(text) in (None, NO_ANSWER, NO_ROOM)


def refusal(error: Any, where: str) -> StorageError:
    """Return what to raise in place of an error of the driver."""
    code = error.sqlstate
    said = _one_line(error.diag.message_primary or str(error))
    if code is None and isinstance(error, driver().DataError):
        return StorageUnavailable(
            f"What the server of {where} sent cannot be read: {said}.",
            "Somebody else wrote it, or changed the schema. Put the database back from a backup.",
        )
    if code is None:
        return _not_connected(said, where)
    if code == "42501":
        return StorageRefused(
            f"{_capital(where)} refuses that: {said}.", f"Nothing was done. {_right(said)}"
        )
    if code == "42703":
        return StorageUnavailable(
            f"A schema in {where} has the name of safepoint's, and not its columns.",
            "If it is another application's, create a database of its own for the checkpoints:"
            " createdb checkpoints. If somebody changed it, restore it from a backup.",
        )
    if code in ("42P01", "3F000", "42883"):
        return StorageUnavailable(
            f"There is no schema of safepoint in {where}.",
            f"Make it, as one who may create roles: {MIGRATE} DSN",
        )
    if code == "25006":
        return StorageUnavailable(
            f"{_capital(where)} takes no writes: it is a copy, or set to read-only.",
            "Name the primary as host, or end the read-only mode: alter database … set"
            " default_transaction_read_only = off",
        )
    if code == "53100":
        return StorageFull(
            f"The server of {where} has no room.",
            "Nothing was saved. Make room on its volume, then save again.",
        )
    if code in ("57014", "55P03"):
        return StorageUnavailable(
            f"The server of {where} took too long: {said}.",
            "Nothing was done. See what it is busy with: select * from pg_stat_activity",
        )
    if code in ("SP006", "SP007"):
        return StorageRefused(
            f"{_capital(where)} refuses that: {said}.",
            "Nothing was done. What is kept there is never changed.",
        )
    return StorageUnavailable(
        f"The server of {where} could not do that: {said} (SQLSTATE {code}).",
        "Nothing was done. Look at the server's log.",
    )


def _right(said: str) -> str:
    """Say which login to use."""
    schema = _SCHEMA.fullmatch(said)
    if schema is None:
        return "Use a login of the role that may do it, and keep it where only that job runs."
    job, role = _FOR[schema[1]]
    return (
        f"Use a login that is for {job} alone, in the role that migrate made for that, {role}"
        f" unless you chose another prefix: grant {role} to LOGIN"
    )


def _not_connected(said: str, where: str) -> StorageError:
    wrong = WRONG_WORD.search(said)
    if wrong is not None:
        return StorageUnavailable(
            f"The connection string of {where} cannot be used: {wrong[0]}.",
            "Correct the connection string.",
        )
    named = reason(said)
    if named is None:
        return StorageUnavailable(
            f"The server of {where} cannot be reached: {said}.",
            "Look at its log, and at the network.",
        )
    return named.error(f"The server of {where} {named.what}.", named.do)


def _one_line(text: str) -> str:
    """Return the last thing that was said, in ASCII and not too long."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = ascii(" ".join(lines))[1:-1].rstrip(".")
    return shown if len(shown) <= 300 else f"{shown[:297]}..."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
