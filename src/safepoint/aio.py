"""AsyncLedger: a ledger for an event loop, which goes on while a storage works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from safepoint.ledger import Ledger

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

    Await `save`, `note`, `load`, `latest`, `find`, `threads`, `verify`, `anchor_now`, `prune`,
    `delete`, `erase`, `own`, `owner` and `release`; `history` and `back` are for `async for`. Each
    takes and returns what the ledger's does, and raises the same. For a tenant, write
    `AsyncLedger(ledger.tenant(name))`.

    A cancelled `await` does not stop its thread: a save that you no longer wait for may still be
    saved. Ask `latest`. End what `own` gave with `await release(thread)`.

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

    save = _awaited(Ledger.save)
    note = _awaited(Ledger.note)
    find = _awaited(Ledger.find)
    load = _awaited(Ledger.load)
    latest = _awaited(Ledger.latest)
    threads = _awaited(Ledger.threads)
    verify = _awaited(Ledger.verify)
    anchor_now = _awaited(Ledger.anchor_now)
    prune = _awaited(Ledger.prune)
    delete = _awaited(Ledger.delete)
    erase = _awaited(Ledger.erase)
    own = _awaited(Ledger.own)
    owner = _awaited(Ledger.owner)
    release = _awaited(Ledger.release)
    history = _iterated(Ledger.history)
    back = _iterated(Ledger.back)
