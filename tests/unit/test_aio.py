"""A ledger for an event loop: the loop goes on, and what is cancelled may still be saved."""

from __future__ import annotations

import asyncio
import inspect
from threading import Event

import pytest

from safepoint import Ledger, NotFound
from safepoint.aio import AsyncLedger
from tests.unit.tampered import THREAD, Memory, fill, opened

LONG = 60  # seconds after which a storage gives up that nobody lets go on


class Waiting(Memory):
    """A storage that keeps a record when it is told to, and says how far it is."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go, self.kept = Event(), Event(), Event()

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        self.entered.set()
        assert self.go.wait(LONG), "nobody ran while this waited"
        super().append(thread, sequence, record, fence=fence)
        self.kept.set()


@pytest.mark.parametrize("cancelled", [False, True])
def test_the_loop_goes_on_and_a_cancelled_save_is_saved(*, cancelled: bool) -> None:
    storage = Waiting()

    async def main() -> None:
        ledger = AsyncLedger(opened(storage))
        saving = asyncio.create_task(ledger.save(THREAD, {"n": 1}))
        await asyncio.to_thread(storage.entered.wait, LONG)
        with pytest.raises(NotFound):
            await ledger.latest(THREAD)  # while the save waits
        if cancelled:
            saving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saving
        storage.go.set()
        if not cancelled:
            assert (await saving).sequence == 1
        await asyncio.to_thread(storage.kept.wait, LONG)
        assert (await ledger.latest(THREAD)).state == {"n": 1}

    asyncio.run(main())


def test_each_method_does_what_the_ledgers_does() -> None:
    plain = opened(Memory())
    fill(plain, 3)
    ledger = AsyncLedger(plain)

    async def main() -> None:
        assert [each async for each in ledger.history(THREAD)] == list(plain.history(THREAD))
        async for each in ledger.history(THREAD):
            assert each == await ledger.load(THREAD, 1)
            break
        with pytest.raises(NotFound):
            await ledger.load("nowhere", 1)
        assert (await ledger.threads(), await ledger.verify(THREAD)) == ([THREAD], 3)
        owned = await ledger.own(THREAD, "worker-1")
        assert plain.owners.owner(THREAD) == "worker-1"
        assert await ledger.prune(THREAD, keep=2) == 1
        assert await ledger.delete(THREAD) == plain.delete(THREAD)
        assert await ledger.erase(THREAD) == 2
        owned.release()
        assert plain.owners.owner(THREAD) is None
        async with ledger.tenant("acme").owning(THREAD, "worker-1"):
            assert plain.tenant("acme").owners.owner(THREAD) == "worker-1"
        assert plain.tenant("acme").owners.owner(THREAD) is None

    asyncio.run(main())


def test_no_method_is_left_behind() -> None:
    names = {name for name, each in vars(Ledger).items() if inspect.isfunction(each)}
    left = {name for name in names if name[0] != "_"} - vars(AsyncLedger).keys()
    assert left == set()
    assert len({name for name in names if name[0] != "_"}) <= 18  # few ideas are the feature
