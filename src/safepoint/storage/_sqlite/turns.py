"""Turns: writers take turns by a lock on a file beside the database.

SQLite asks again and again whether the database is free, and sleeps in between, longer each time:
whoever waited longest asks least often. Here, too, one asks for a moment, since whoever writes
already does it fastest, and can do more than one record while the others sleep. But after that
moment one waits in the kernel's queue, and gets the next turn. Nobody has a turn while it does not
write. The lock only keeps order. That one writes at a time is still for SQLite, also where there is
no such lock.
"""

from __future__ import annotations

import _thread
import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from threading import Lock
from time import monotonic, sleep

from safepoint import _files as _posix
from safepoint._files import enforce, record_refusals
from safepoint.errors import StorageUnavailable, shell

if sys.platform != "win32":
    import fcntl

_KNOWN = 5  # of what lstat tells: the mode, the number, the device, the links and the owner
_OPEN = _posix.READ | os.O_RDWR | os.O_CREAT
_SHORTEST, _LONGEST = 0.0005, 0.005
_ASKING = 0.025
"""How many seconds one asks before one waits in the queue."""
_NO_LOCKS = frozenset([errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS])


class Turns:
    """One turn at a time, among the threads and processes that share the path.

    Args:
        path: the file to lock. It is made with mode 0600 if it is missing.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._mutex = Lock()
        self._file: FileIO | None = None  # in the turn that is under way
        self._idle: FileIO | None = None  # open, for the next turn
        self._known: tuple[float, ...] = ()
        self._waiter: _Waiter | None = None  # in the queue
        self._closed = False

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Be alone in this block, after at most so many seconds of waiting.

        The handler of a signal may raise at any moment, and the turn is given back all the same.

        Raises:
            UnsafeLocation: the file is a link, not a regular file, or others can write it.
            StorageUnavailable: somebody else had the turn for all of that time.
            OSError: the file cannot be opened.
        """
        end = monotonic() + seconds
        mutex, got = self._mutex, list[bool]()
        try:
            # One call: between two of them a handler could raise, and nobody would know who has it.
            got.extend(map(mutex.acquire, [True], [seconds]))
            if not got[0]:
                raise held(self._path, seconds)
            try:
                if _posix.SUPPORTED:
                    self._take(end, seconds)
                yield
                self._pass_on()
            finally:
                try:
                    self._give_back()
                finally:
                    self._give_back()  # if a handler raised in the first
        finally:
            if got and got[0]:
                mutex.release()
            if self._closed:
                self.close()

    def close(self) -> None:
        """Close the file as soon as nobody in this process has a turn."""
        self._closed = True
        if self._mutex.acquire(blocking=False):
            try:
                if self._idle is not None:
                    _let_go(self._idle)
            finally:
                self._mutex.release()

    def forget(self) -> None:
        """Begin anew in a forked child, where the threads that wait and hold do not exist."""
        for file in (self._file, self._idle, self._waiter.file if self._waiter else None):
            if file is not None:
                with suppress(OSError):
                    file.close()  # and no unlock: the lock is the parent's
        self._mutex, self._file, self._idle, self._waiter = Lock(), None, None, None

    def _pass_on(self) -> None:
        """End a turn in which nothing failed: the next one needs the file again."""
        if self._file is not None:
            with suppress(OSError):
                _posix.unlock(self._file.fileno())
            self._idle, self._file = self._file, None

    def _give_back(self) -> None:
        waiter = self._waiter
        # If its turn has not come, it stays in the queue, for whoever asks next.
        if waiter is not None and not waiter.leave():
            _let_go(waiter.file)
            self._waiter = None
        if self._file is not None:
            _let_go(self._file)
            self._file = None

    def _take(self, end: float, seconds: float) -> None:
        """Lock the file. At each moment an attribute has it, for a fork in another thread."""
        self._give_back()  # what two signals in a row have left
        if self._waiter is None or not self._waiter.want():
            self._waiter = None
            file = self._opened()
            try:
                if _soon(file.fileno(), end):
                    return
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    return
                raise
            self._waiter, self._file = _Waiter(file), None
        if not self._waiter.wait(end - monotonic()):
            raise held(self._path, seconds)
        self._file, self._waiter = self._waiter.file, None

    def _opened(self) -> FileIO:
        """Return the file. It is opened again if its name means another one by now."""
        file = self._file = self._idle
        self._idle = None
        if file is not None and not file.closed:
            with suppress(FileNotFoundError):
                if os.lstat(self._path)[:_KNOWN] == self._known:
                    return file
            self._give_back()
        file = self._file = self._open()
        self._known = os.fstat(file.fileno())[:_KNOWN]
        return file

    def _open(self) -> FileIO:
        try:
            file = FileIO(self._path, "r+", opener=lambda path, _: os.open(path, _OPEN, 0o600))
        except OSError:
            with suppress(FileNotFoundError):
                enforce(record_refusals(self._path, os.lstat(self._path)))
            raise
        try:
            info = os.fstat(file.fileno())
            if not _posix.private(info, stat.S_IFREG):
                enforce(record_refusals(self._path, info))
            if stat.S_IMODE(info.st_mode) != 0o600:
                # It is new, and the umask took bits that the next one needs.
                os.fchmod(file.fileno(), 0o600)
        except BaseException:
            file.close()
            raise
        return file


class _Waiter:
    """Waits in the kernel's queue, in a thread, for one that must not wait for ever."""

    def __init__(self, file: FileIO) -> None:
        self.file = file
        self._mutex = Lock()
        self._bell = Lock()
        self._bell.acquire()
        self._came, self._wanted = False, True
        _thread.start_new_thread(self._run, ())  # a Thread would wait until it has started

    def _run(self) -> None:
        with suppress(OSError, ValueError):  # of a file that is closed
            fcntl.flock(self.file.fileno(), fcntl.LOCK_EX)
        with self._mutex:
            self._came = True
            self._bell.release()
            if not self._wanted:
                _let_go(self.file)

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


def _soon(fd: int, end: float) -> bool:
    """Ask for the lock for a moment, and return whether it came: a thread takes more time."""
    if _posix.try_lock(fd):
        return True
    pause, end = _SHORTEST, min(end, monotonic() + _ASKING)
    while monotonic() < end:
        sleep(pause)
        if _posix.try_lock(fd):
            return True
        pause = min(2 * pause, _LONGEST)
    return False


def _let_go(file: FileIO) -> None:
    """Unlock and close a file. To do it twice does nothing."""
    with suppress(OSError, ValueError):  # of a file that is closed
        _posix.unlock(file.fileno())
    with suppress(OSError):
        file.close()


def held(path: str, seconds: float) -> StorageUnavailable:
    """Say that another program has the database, and how to find it."""
    return StorageUnavailable(
        f"Another program has held {shell(path)} for {seconds:g} s.",
        f"Nothing was saved. Find it, let it end, and try again: fuser -v {shell(path)}",
    )
