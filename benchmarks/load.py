"""Worker processes that use one store at the same time, and say what was acknowledged."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Self

_SECONDS = 30.0


Store = Any
"""What a worker has opened: `save` returns what names the checkpoint, which is durable then;
`names` has all of a thread, verified; and `close`."""
Opener = Any
"""How a worker opens a store: `open(worker)`. It is sent to the worker."""


class Saved(NamedTuple):
    """What one worker says after it has saved.

    Attributes:
        names: what it was told is saved, for each thread.
        taken: how long each save took, in seconds.
    """

    names: dict[str, list[str]]
    taken: list[float]


@dataclass(frozen=True)
class Share:
    """What one worker saves: the threads get their checkpoints in turns."""

    threads: tuple[str, ...]
    checkpoints: int


def state_of(thread: str, step: int) -> dict[str, Any]:
    """Return a state of about 1 KB, of what every serializer knows."""
    lines = [{"item": f"item {n}", "amount": n * 125, "paid": n < step} for n in range(20)]
    return {"order": thread, "step": step, "status": "waiting for approval", "lines": lines}


def save_all(store: Store, share: Share) -> Saved:
    """Save a share, thread by thread in turns, as a worker with many runs does."""
    names: dict[str, list[str]] = {thread: [] for thread in share.threads}
    taken = []
    for step in range(share.checkpoints):
        for thread, saved in names.items():
            state = state_of(thread, step)
            start = time.perf_counter()
            name = store.save(thread, state)
            taken.append(time.perf_counter() - start)
            saved.append(name)
    return Saved(names, taken)


def missing_of(store: Store, names: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the threads that do not hold exactly what was acknowledged, in its order."""
    return [thread for thread, saved in names.items() if store.names(thread) != list(saved)]


class Workers:
    """Some processes, each of which opens every store that it is asked about.

    Args:
        count: how many.
        openers: how to open the stores.
    """

    def __init__(self, count: int, openers: Mapping[str, Opener]) -> None:
        context = multiprocessing.get_context("spawn")  # nothing of this process comes along
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, number, dict(openers)))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def each(
        self, name: str, act: Callable[..., Any], given: Iterable[Any], *, anew: bool = False
    ) -> list[Any]:
        """Let every worker do the same at the same time, and return what each of them says.

        Args:
            name: with which store.
            act: what to do; called with the store, and with what the worker is given.
            given: something for each worker.
            anew: open the store for this alone, so that nothing of it is remembered.

        Raises:
            RuntimeError: a worker failed.
        """
        for pipe, one in zip(self._pipes, given, strict=True):
            pipe.send((name, act, one, anew))
        answers = [pipe.recv() for pipe in self._pipes]
        for error, _ in answers:
            if error:
                raise RuntimeError(f"A worker failed.\n{error}")
        return [answer for _, answer in answers]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(_SECONDS)
            process.kill()
            process.join()


def _serve(pipe: Connection, number: int, openers: Mapping[str, Opener]) -> None:
    stores: dict[str, Store] = {}
    try:
        while True:
            name, act, given, anew = pipe.recv()
            try:
                if anew and name in stores:
                    stores.pop(name).close()
                if name not in stores:
                    stores[name] = openers[name].open(number)
                answer = act(stores[name], given)
            except Exception:  # noqa: BLE001  whatever it is, the one who asked must hear of it
                pipe.send((traceback.format_exc(), None))
            else:
                pipe.send(("", answer))
    except EOFError:
        for store in stores.values():
            store.close()
