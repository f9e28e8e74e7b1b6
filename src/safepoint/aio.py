"""An adapter that serves many requests at once: from an event loop, and for several tenants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from copy import copy
from functools import lru_cache, partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from safepoint import settings
from safepoint.core.errors import ConfigurationError, ResumeRefused
from safepoint.core.ledger import Ledger
from safepoint.core.names import check_tenant

_P = ParamSpec("_P")
_T = TypeVar("_T")
_S = TypeVar("_S", bound="Tenanted")
_K = TypeVar("_K")
_REMEMBERED: Final = 1000  # ledgers of tenants, or others; creating one again is cheap


class Tenanted:
    """The base of an adapter that has one ledger, or one for each tenant.

    Args:
        ledger: the ledger of the whole store.
        tenant: returns the name of the tenant whose request is being served. None if there are no
            tenants.

    Raises:
        ConfigurationError: `tenant` is set, but the ledger already belongs to a tenant.
    """

    def __init__(self, ledger: Ledger, tenant: Callable[[], str] | None) -> None:
        if tenant is not None:
            check_tenant("any", ledger.tenant_name)
        self._ledger, self._tenant = ledger, tenant
        self._of: Final = lru_cache(_REMEMBERED)(ledger.tenant)

    @classmethod
    def from_settings(cls, store: str, *, worker: str | None = None, **options: Any) -> Self:
        """Open a store as the commands do: with its journal, and the people who may approve in it.

        As `safepoint.settings.open_store`.

        Args:
            store: the name of the store.
            worker: the name of this process among those that serve it, as in `Ledger`.
            options: the other arguments; `ledger` and `gate` are those of the store.

        Raises:
            CheckpointError: as `open_store`.
        """
        made: Callable[..., Self] = cls
        ledger, gate = settings.open_store(store, worker=worker)
        return made(ledger, gate=gate, **options)

    @property
    def ledger(self) -> Ledger:
        """The ledger; with `tenant`, the ledger of the tenant whose request is being served.

        Raises:
            ConfigurationError: the application does not name the tenant.
            InvalidId: the name is outside the grammar.
        """
        if self._tenant is None:
            return self._ledger
        try:
            name, cause = self._tenant(), None
        except Exception as error:  # noqa: BLE001 - in any case, no tenant is named
            name, cause = "", error
        if not name:
            raise ConfigurationError(
                "The application did not say which tenant this is for.",
                "Nothing was read or written. Set what tenant= returns where you authenticate a"
                " request, before you call the graph or the workflow.",
            ) from cause
        return self._of(name)

    async def _aside(self, call: Callable[[], _T]) -> _T:
        """Call it in a thread, in the context of the request."""
        return await asyncio.to_thread(call)

    def _scoped(self) -> Self:
        """Return the same adapter, only for the tenant whose request is being served."""
        if self._tenant is None:
            return self
        scope = copy(self)
        scope._ledger, scope._tenant = self.ledger, None  # noqa: SLF001 - the same class
        return scope


def in_thread(
    method: Callable[Concatenate[_S, _P], _T],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]:
    """Run an operation of an adapter in a thread, so that it does not block the event loop."""

    @wraps(method)
    async def call(self: _S, /, *args: _P.args, **options: _P.kwargs) -> _T:
        return await self._aside(partial(method, self, *args, **options))

    return call


def for_one(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Determine the tenant once, when an operation starts, and run it only for that tenant."""

    @wraps(method)
    def call(self: _S, /, *args: _P.args, **options: _P.kwargs) -> _T:
        return method(self._scoped(), *args, **options)

    return call


def half_moved(thread: str) -> ResumeRefused:
    """Return the error that an adapter raises for a thread that was not moved completely."""
    return ResumeRefused(
        f"{thread} was not moved in to its end.", "Move it in again, from where it was."
    )


def remember(known: dict[_K, _T], key: _K, value: _T, most: int = _REMEMBERED) -> _T:
    """Store a value as the newest of at most `most`, and return it."""
    known.pop(key, None)
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]
    return value
