"""AsyncLedger: a ledger for an event loop, which goes on while a storage works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from safepoint.core.ledger import Ledger, Owned

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _awaited(
    method: Callable[Concatenate[Ledger, _P], _T],
) -> Callable[Concatenate[AsyncLedger, _P], Coroutine[Any, Any, _T]]:
    """Return a method of the same arguments that calls the ledger's in another thread."""

    @wraps(method)
    async def call(self: AsyncLedger, /, *args: _P.args, **options: _P.kwargs) -> _T:
        return await asyncio.to_thread(getattr(self.ledger, method.__name__), *args, **options)

    return call


def _iterated(
    method: Callable[Concatenate[Ledger, _P], Iterator[_T]],
) -> Callable[Concatenate[AsyncLedger, _P], AsyncIterator[_T]]:
    """Return the same for one that hands out one after the other."""

    @wraps(method)
    async def walk(self: AsyncLedger, /, *args: _P.args, **options: _P.kwargs) -> AsyncIterator[_T]:
        found = getattr(self.ledger, method.__name__)(*args, **options)
        while (each := await asyncio.to_thread(next, found, None)) is not None:
            yield each

    return walk


class AsyncLedger:
    """Does what a `Ledger` does, in threads, so that an event loop is not blocked.

    Await `save`, `note`, `load`, `latest`, `threads`, `tenants`, `verify`, `anchored`,
    `accept_loss`, `prune`, `delete`, `erase`, `rotated`, `copy_to` and `own`; `history` and `back`
    are for `async for`, `owning` for `async with`. Each takes and returns what the ledger's does,
    and raises the same.

    A cancelled `await` does not stop its thread: a save that you no longer wait for may still be
    saved, and an `own` may own. Ask `latest`, and release what is owned.

    ```python
    import asyncio

    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.aio import AsyncLedger


    async def main():
        keys = Keyring(SigningKey.generate())
        ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
        invoices = AsyncLedger(ledger)
        await invoices.save("order-7", {"amount": 42})
        print((await invoices.latest("order-7")).state)
        #> {'amount': 42}


    asyncio.run(main())
    ```

    Args:
        ledger: what does the work. You can go on using it beside this one.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger: Final = ledger

    def tenant(self, name: str) -> AsyncLedger:
        """Return that of one tenant, as `Ledger.tenant` does."""
        return AsyncLedger(self.ledger.tenant(name))

    @asynccontextmanager
    async def owning(
        self, thread: str, worker: str, *, seconds: float = 60.0
    ) -> AsyncGenerator[Owned]:
        """Own a thread until the end of an `async with`."""
        owned = await self.own(thread, worker, seconds=seconds)
        try:
            yield owned
        finally:
            await asyncio.shield(asyncio.to_thread(owned.release))

    save = _awaited(Ledger.save)
    note = _awaited(Ledger.note)
    load = _awaited(Ledger.load)
    latest = _awaited(Ledger.latest)
    threads = _awaited(Ledger.threads)
    tenants = _awaited(Ledger.tenants)
    verify = _awaited(Ledger.verify)
    anchored = _awaited(Ledger.anchored)
    accept_loss = _awaited(Ledger.accept_loss)
    prune = _awaited(Ledger.prune)
    delete = _awaited(Ledger.delete)
    erase = _awaited(Ledger.erase)
    rotated = _awaited(Ledger.rotated)
    copy_to = _awaited(Ledger.copy_to)
    own = _awaited(Ledger.own)
    history = _iterated(Ledger.history)
    back = _iterated(Ledger.back)
