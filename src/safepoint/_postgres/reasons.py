"""Why a server did not let us in: its words, and what to do about each."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from safepoint.errors import StorageError, StorageRefused, StorageUnavailable

MIGRATE: Final = "safepoint postgres migrate"
_IN_ROLE: Final = "create role worker_1 login in role safepoint_writer"


class Reason(NamedTuple):
    """What a server or libpq said, and how we say it."""

    pattern: str
    what: str
    do: str
    error: type[StorageError] = StorageUnavailable


WRONG_WORD: Final = re.compile(
    r'invalid integer value "[^"]*" for connection option "\w+"|invalid port number: "[^"]*"'
    r'|invalid "?\w+"? value: "[^"]*"|bad value for connect_timeout: \'[^\']*\''
    r'|could not match \d+ \w+(?: \w+)? to \d+ \w+|could not parse network address "[^"]*"'
    r'|definition of service "[^"]*" not found|service file "[^"]*" not found'
    # What its `options` say, and the server refuses before there is a session.
    r'|unrecognized configuration parameter "[^"]*"|invalid value for parameter "[^"]*": "[^"]*"'
    r"|invalid command-line argument for server process: \S+|-\S+ requires a value"
    r'|parameter "[^"]*" cannot be changed\b.*|permission denied to set parameter "[^"]*"'
)
"""What is wrong with a connection string, in the words of libpq, the driver or the server."""
NO_ANSWER: Final = Reason(
    r"Connection refused|No such file or directory|could not connect|No route to host"
    r"|Network is unreachable|timeout expired|timed out",
    "does not answer",
    "Start it, or correct host and port. To try one out: safepoint try-postgres FOLDER",
)
NO_ROOM: Final = Reason(
    r"too many clients|too many connections|remaining connection slots",
    "has no connection left for this login",
    "Find out who holds them: select usename, count(*) from pg_stat_activity group by 1. A login is"
    " kept from taking all with: alter role worker_1 connection limit 20",
)
_REASONS: Final = (
    NO_ROOM,
    Reason(
        r"password authentication failed|no password supplied|empty password",
        "refuses the password",
        "Put the login's present password into the file that PGPASSFILE names, with mode 0600, or"
        f" create the login: {_IN_ROLE}",
        StorageRefused,
    ),
    Reason(
        r"no pg_hba\.conf entry|pg_hba\.conf rejects connection",
        "has no rule that lets this login in from here",
        "Connect from a host and with the TLS that its pg_hba.conf names, or let its administrator"
        " add a line.",
        StorageRefused,
    ),
    Reason(
        r'role "[^"]*" does not exist',
        "knows no such login",
        f"Create it, in one of the roles that migrate made: {_IN_ROLE}",
    ),
    Reason(
        r'role "[^"]*" is not permitted to log in',
        "lets nobody log in as that role",
        f"Its login was ended, or it is a role to be in. Create another login: {_IN_ROLE}",
        StorageRefused,
    ),
    Reason(
        r'database "[^"]*" does not exist',
        "has no such database",
        f"Create it, then make the schema: createdb checkpoints && {MIGRATE} DSN",
    ),
    Reason(
        r"permission denied for database",
        "does not let this login into the database",
        "Let its owner grant that: grant connect on database checkpoints to safepoint_writer",
        StorageRefused,
    ),
    Reason(
        r"server does not support SSL",
        "does not speak TLS, and the connection string demands it",
        "Turn ssl on in its configuration. Do not lower sslmode.",
        StorageRefused,
    ),
    Reason(
        r"certificate verify failed|server certificate for|self.signed certificate"
        r"|root certificate file",
        "does not prove who it is",
        "Name the authority that signed its certificate with sslrootcert, and the host by the name"
        " that is in it. Do not lower sslmode.",
        StorageRefused,
    ),
    Reason(
        r"session is read-only|server is in hot standby mode|session is not read-only",
        "takes no writes: it is a copy, or the database or the login is set to read-only",
        "Name the primary as host, or reset default_transaction_read_only. To read from a copy,"
        " write target_session_attrs=any.",
    ),
    Reason(
        r"could not access file|could not load library",
        "begins no session: a setting of the login or the database names a library that is not"
        " there",
        "Let an administrator reset that: alter role worker_1 reset all; alter role worker_1 in"
        " database checkpoints reset all",
    ),
    Reason(
        r"could not translate host name|Name or service not known|could not resolve",
        "cannot be found",
        "Correct the host in the connection string.",
    ),
    NO_ANSWER,
)


def reason(said: str) -> Reason | None:
    """Return what that means, or None if it is nothing that we know."""
    return next((each for each in _REASONS if re.search(each.pattern, said)), None)
