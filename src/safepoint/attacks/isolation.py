"""A process for each attack, so that what a payload does, it does there."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import Final

from safepoint.attacks.ladder import run_in, scratch
from safepoint.attacks.outcome import Outcome

_PATIENCE: Final = 60.0
_LONGEST: Final = 64


def isolated_outcome_of(attack: str, target: str, *, in_memory: bool = False) -> Outcome:
    """Run one attack in a process and a temporary folder of its own.

    See `in_a_process`.
    """
    return in_a_process(lambda folder: run_in(folder, attack, target, in_memory=in_memory))


def in_a_process(strike: Callable[[str], Outcome]) -> Outcome:
    """Run something in a process of its own, with a temporary folder, and return what it returns.

    A process that dies, or does not come to an end, has crashed. Where the system cannot fork,
    it runs in this process.
    """
    with scratch() as folder:
        if not hasattr(os, "fork"):
            return strike(folder)
        receive, send = os.pipe()
        child = os.fork()
        if not child:
            _run(send, folder, strike)
        os.close(send)
        try:
            return _received(receive)
        finally:
            os.close(receive)
            _end(child)


def _run(send: int, folder: str, strike: Callable[[str], Outcome]) -> None:
    """Run as the child: say how it ended, and leave without a word or a farewell."""
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os.write(send, strike(folder).encode())
    finally:
        os._exit(0)


def _received(receive: int) -> Outcome:
    ready, _, _ = select.select([receive], [], [], _PATIENCE)
    said = os.read(receive, _LONGEST).decode() if ready else ""
    return Outcome(said) if said else Outcome.CRASHED


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)  # it has said all that it will say
    os.waitpid(child, 0)
