"""Turns: writers wait for each other in the kernel's queue, and not in SQLite's.

SQLite asks again and again whether the database is free, and sleeps in between, longer each time:
whoever waited longest asks least often. A lock on a file beside it is handed on to who waits. It
only keeps order. That one writes at a time is still for SQLite, also where there is no such lock.
"""

from __future__ import annotations

import _thread
import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from time import monotonic, sleep

from safepoint.errors import StorageUnavailable, shell
from safepoint.location import enforce, record_refusals
from safepoint.storage import _posix

if sys.platform != "win32":
    import fcntl

_OPEN = _posix.READ | os.O_RDWR | os.O_CREAT
_TRIES, _PAUSE = 5, 0.0001
_NO_LOCKS = frozenset([errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS])


class Turns:
    """One turn at a time, among the threads and processes that share the path.

    Args:
        path: the file to lock. It is made with mode 0600 if it is missing.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._mutex = Lock()
        self._fd: int | None = None
        self._waiter: _Waiter | None = None

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Be alone in this block, after at most so many seconds of waiting.

        Raises:
            UnsafeLocation: the file is a link, not a regular file, or others can write it.
            StorageUnavailable: somebody else had the turn for all of that time.
            OSError: the file cannot be opened.
        """
        end = monotonic() + seconds
        if not self._mutex.acquire(timeout=seconds):
            raise held(self._path, seconds)
        mutex = self._mutex
        try:
            fd = self._fd = self._take(end, seconds) if _posix.SUPPORTED else None
            try:
                yield
            finally:
                if fd is not None and fd == self._fd:  # in a forked child it is closed already
                    self._fd = None
                    _let_go(fd)
        finally:
            mutex.release()

    def forget(self) -> None:
        """Begin anew in a forked child, where the threads that wait and hold do not exist."""
        for fd in (self._fd, self._waiter.fd if self._waiter else None):
            if fd is not None:
                with suppress(OSError):
                    os.close(fd)  # and no unlock: the lock is the parent's
        self._mutex, self._fd, self._waiter = Lock(), None, None

    def _take(self, end: float, seconds: float) -> int | None:
        waiter, self._waiter = self._waiter, None
        if waiter is None or not waiter.want():
            fd = self._open()
            try:
                if _soon(fd):
                    return fd
            except OSError as error:
                os.close(fd)
                if error.errno in _NO_LOCKS:
                    return None
                raise
            waiter = _Waiter(fd)
        came = False
        try:
            came = waiter.wait(end - monotonic())
        finally:
            # If it has not come, the waiter stays in the queue, for whoever asks next.
            if not came and waiter.leave():
                self._waiter = waiter
            elif not came:
                _let_go(waiter.fd)
        if not came:
            raise held(self._path, seconds)
        return waiter.fd

    def _open(self) -> int:
        try:
            fd = os.open(self._path, _OPEN, 0o600)
        except OSError:
            with suppress(FileNotFoundError):
                enforce(record_refusals(self._path, os.lstat(self._path)))
            raise
        try:
            info = os.fstat(fd)
            if not _posix.private(info, stat.S_IFREG):
                enforce(record_refusals(self._path, info))
            if stat.S_IMODE(info.st_mode) != 0o600:
                os.fchmod(fd, 0o600)  # it is new, and the umask took bits that the next one needs
        except BaseException:
            os.close(fd)
            raise
        return fd


class _Waiter:
    """Waits in the kernel's queue, in a thread, for one that must not wait for ever."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._mutex = Lock()
        self._bell = Lock()
        self._bell.acquire()
        self._came, self._wanted = False, True
        _thread.start_new_thread(self._run, ())  # a Thread would wait until it has started

    def _run(self) -> None:
        with suppress(OSError):
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        with self._mutex:
            self._came = True
            self._bell.release()
            if not self._wanted:
                _let_go(self.fd)

    def want(self) -> bool:
        """Ask for the turn again. Return False if it came meanwhile, and was let go."""
        with self._mutex:
            self._wanted = not self._came
            return self._wanted

    def wait(self, seconds: float) -> bool:
        """Return whether the turn came within so many seconds."""
        return self._bell.acquire(timeout=max(seconds, 0))

    def leave(self) -> bool:
        """Let the turn go as soon as it comes. Return False if it has come by now."""
        with self._mutex:
            self._wanted = self._came
            return not self._wanted


def _soon(fd: int) -> bool:
    """Hold the file if it is free, or will be in a moment: that takes less time than a thread."""
    for _ in range(_TRIES):
        if _posix.try_lock(fd):
            return True
        sleep(_PAUSE)
    return _posix.try_lock(fd)


def _let_go(fd: int) -> None:
    with suppress(OSError):
        _posix.unlock(fd)
    with suppress(OSError):
        os.close(fd)


def held(path: str, seconds: float) -> StorageUnavailable:
    """Say that another program has the database, and how to find it."""
    return StorageUnavailable(
        f"Another program has held {shell(path)} for {seconds:g} s.",
        f"Nothing was saved. Find it, let it end, and try again: fuser -v {shell(path)}",
    )
