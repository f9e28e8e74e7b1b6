"""A connection that does not wait for ever: a server that hangs still answers below our feet.

Its kernel acknowledges what we send, so neither keepalives nor TCP notice, and the server's own
timeouts hang with it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from safepoint._postgres.driver import driver

if TYPE_CHECKING:
    from safepoint._postgres.driver import Connection

MARGIN: Final = 2.0
"""How many seconds longer than the server we wait, for its own timeout to reach us."""


def connect(conninfo: str, seconds: float, chosen: dict[str, str]) -> Connection:
    """Connect. Each answer is waited for so many seconds, and then the connection is closed.

    Raises:
        psycopg.Error: it cannot be done.
    """
    connection = _patient().connect(conninfo, autocommit=True, **chosen)
    connection.patience = seconds + MARGIN
    connection.only = connection.cursor()
    return cast("Connection", connection)


@cache
def _patient() -> Any:
    psycopg = driver()

    class Patient(psycopg.Connection):  # type: ignore[misc,name-defined]
        patience: float | None = None
        only: psycopg.Cursor[Any]  # type: ignore[name-defined]

        def execute(
            self, query: Any, params: Any = None, *, prepare: Any = None, binary: bool = False
        ) -> Any:
            """Execute on the one cursor that there is: take what it found before you do it again.

            To make a cursor takes as long as all else that the driver does for a small statement.
            """
            return self.only.execute(query, params, prepare=prepare, binary=binary)

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            """Wait as the driver does, and not longer than is good for us."""
            try:
                return super().wait(gen, interval, self.patience if timeout is None else timeout)
            except psycopg.errors._WaitTimeout:  # noqa: SLF001  it has no other name
                self.pgconn.finish()  # whatever it still says belongs to no question of ours
                raise psycopg.OperationalError(
                    "timeout expired: no answer from the server"
                ) from None

    return Patient
