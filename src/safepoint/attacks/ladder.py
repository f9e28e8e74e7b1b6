"""Every attack, and how it ends on a rung: in a folder and a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, TypeVar
from warnings import catch_warnings, simplefilter

from safepoint.attacks import location, payload, records, resuming, thief
from safepoint.attacks.kit import EVERY, Attack
from safepoint.attacks.outcome import Outcome
from safepoint.attacks.target import Victim

MODULES: Final = (records, location, payload, thief, resuming)
"""Where attacks on a store are defined, by what they touch."""

_ALL = sorted(EVERY.values(), key=lambda attack: attack.rule)

ATTACKS: dict[str, Attack] = {each.id: each for each in _ALL if not each.residue}
"""Every attack by its id, in the order of the rules."""

RESIDUE: dict[str, Attack] = {each.id: each for each in _ALL if each.residue}
"""What nothing in a store can detect, by its id."""

_PATIENCE: Final = 60.0
_T = TypeVar("_T")


def outcome_of(attack: Attack, target: Callable[[str], Victim]) -> Outcome:
    """Run an attack on what is opened in a folder, in a process and a folder of its own."""
    return in_a_process(lambda folder: attack.run(target(folder)), Outcome.CRASHED)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder for one attack, in memory where the system has such a place.

    What a save costs is to wait for the disk and no attack asks whether it did.
    """
    quick = Path("/dev/shm")  # noqa: S108  the folder in it is made by tempfile
    usable = quick.is_dir() and os.access(quick, os.W_OK | os.X_OK)
    return tempfile.TemporaryDirectory(prefix="safepoint-attack-", dir=quick if usable else None)


def in_a_process(strike: Callable[[str], _T], died: _T) -> _T:
    """Run something in a process of its own, with a temporary folder, and return what it returns.

    Where the system cannot fork, it runs in this process.

    Args:
        strike: what to run in that folder.
        died: what to return if the process dies, or does not come to an end.
    """
    with scratch() as folder:
        if "fork" not in multiprocessing.get_all_start_methods():
            return strike(folder)
        context = multiprocessing.get_context("fork")
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=_run, args=(send, folder, strike))
        with _undisturbed(), catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # of threads, which no child waits for
            child.start()
        send.close()
        ended = died
        try:
            with receive, suppress(EOFError):  # it died without a word
                if receive.poll(_PATIENCE):
                    ended = receive.recv()
        finally:
            child.kill()  # it has said all that it will say, or nobody waits for that
            child.join()
        return ended


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait until a fork is over, which would drop it. The child never hears of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(send: Connection, folder: str, strike: Callable[[str], object]) -> None:
    """Run as the child: say how it ended and nothing else."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    send.send(strike(folder))
