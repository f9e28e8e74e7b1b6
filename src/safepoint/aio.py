"""A ledger that serves many requests at once: from an event loop, and for several tenants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from copy import copy
from functools import lru_cache, partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from safepoint.core.errors import ConfigurationError
from safepoint.core.ledger import Ledger, Owned
from safepoint.core.names import check_tenant

_P = ParamSpec("_P")
_T = TypeVar("_T")
_S = TypeVar("_S", bound="Tenanted")
_REMEMBERED: Final = 1000  # ledgers of tenants, each of which is made anew in no time


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


class Tenanted:
    """What an adapter is that has one ledger, or one for each tenant.

    Args:
        ledger: of the whole store.
        tenant: returns the name of the tenant whose request is being served. None if there are no
            tenants.

    Raises:
        ConfigurationError: there is a callable, and the ledger is a tenant's already.
    """

    def __init__(self, ledger: Ledger, tenant: Callable[[], str] | None) -> None:
        if tenant is not None:
            check_tenant("any", ledger.tenant_name)
        self._ledger, self._tenant = ledger, tenant
        self._of: Final = lru_cache(_REMEMBERED)(ledger.tenant)

    @property
    def ledger(self) -> Ledger:
        """Where the records are: with a `tenant`, those of the one whose request is served.

        Raises:
            ConfigurationError: the application does not say whose request it is.
            InvalidId: the name is outside the grammar.
        """
        if self._tenant is None:
            return self._ledger
        try:
            name, cause = self._tenant(), None
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody is named
            name, cause = "", error
        if not name:
            raise ConfigurationError(
                "The application did not say which tenant this is for.",
                "Nothing was read or written. Set what tenant= returns where you authenticate a"
                " request, before you call the graph or the workflow.",
            ) from cause
        return self._of(name)

    async def _aside(self, call: Callable[[], _T]) -> _T:
        """Call it in a thread, in the context of whose request it is."""
        return await asyncio.to_thread(call)

    def _scoped(self) -> Self:
        """Return the same for one tenant, whose request is served now, and for no other."""
        if self._tenant is None:
            return self
        scope = copy(self)
        scope._ledger, scope._tenant = self.ledger, None  # noqa: SLF001 - the same class
        return scope


def in_thread(
    method: Callable[Concatenate[_S, _P], _T],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]:
    """Let an event loop go on while an operation of an adapter is done in a thread."""

    @wraps(method)
    async def call(self: _S, /, *args: _P.args, **options: _P.kwargs) -> _T:
        return await self._aside(partial(method, self, *args, **options))

    return call


def for_one(
    method: Callable[Concatenate[_S, _P], _T],
) -> Callable[Concatenate[_S, _P], _T]:
    """Let an operation ask once, as it begins, whose it is; and do all of it there."""

    @wraps(method)
    def call(self: _S, /, *args: _P.args, **options: _P.kwargs) -> _T:
        return method(self._scoped(), *args, **options)

    return call
