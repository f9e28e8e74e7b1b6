"""Lease: which worker writes a thread, and the token that fences off the ones before it.

A lease ends by itself, so that a worker that died does not block its thread for ever. But a worker
that was only slow does not notice that its lease ended: it sleeps through it, wakes up, and saves.
So each lease has a token, higher than all before it, and the storage compares it with the present
one at the moment of the save. What the clock says decides who may take a thread over, and never
whose save counts.

A lease keeps honest workers out of each other's way. It is no defence against a hostile one: the
token is a number that anybody can guess, the owner is a name that anybody can give, and whoever can
write the storage can change what it says of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from safepoint.errors import ConfigurationError, NotOwner, StorageUnavailable, quoted
from safepoint.ids import check_name
from safepoint.times import spelled

MAX_SECONDS: Final = 86_400
MAX_TOKEN: Final = 10**18 - 1
_LEAST = 0.001
_SKEW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a thread, as a storage gave it.

    ```python
    from safepoint import InMemoryCheckpointStorage
    from safepoint.errors import NotOwner

    storage = InMemoryCheckpointStorage()
    first = storage.acquire("order-7", "worker-a", 60)
    # worker-a sleeps for too long, and worker-b takes over
    second = storage.acquire_at_time(
        "order-7", "worker-b", 60, now=first.expires
    )
    storage.append("order-7", 1, b"...", fence=second.token)
    try:
        storage.append("order-7", 2, b"...", fence=first.token)
    except NotOwner as refusal:
        print(refusal.do)
        #> Nothing was saved. Stop this run: another one took it over.
    ```

    Args:
        thread: the thread.
        owner: the worker that holds it.
        token: its number. Each later lease of the thread has a higher one.
        expires: from when on another worker may take the thread over.

    Raises:
        InvalidId: the thread or the owner is outside the grammar.
        ConfigurationError: the token is no token, or the time has no time zone.
    """

    thread: str
    owner: str
    token: int
    expires: datetime

    def __post_init__(self) -> None:
        check_name("thread", self.thread)
        check_name("worker", self.owner)
        check_token(self.token)
        check_moment(self.expires)

    def __str__(self) -> str:
        return (
            f"{self.owner} owns {self.thread} with token {self.token} until {spelled(self.expires)}"
        )


@dataclass(frozen=True, slots=True)
class Ownership:
    """All that a storage keeps of the leases of a thread. It changes nothing and asks no clock.

    Attributes:
        thread: the thread.
        token: the highest token that was handed out, or 0.
        holder: the lease that counts, also if it has expired; None if the thread is free.
    """

    thread: str
    token: int = 0
    holder: Lease | None = None

    def acquired(self, owner: str, seconds: float, now: datetime) -> Ownership:
        """Return what is to be kept once `owner` has the thread.

        Raises:
            NotOwner: another worker owns it until later than `now`.
            StorageUnavailable: there is no higher token.
        """
        holder = self.holder
        if holder is not None and holder.owner != owner and now < holder.expires <= _latest(now):
            raise NotOwner(
                f"Thread '{self.thread}' is owned by worker '{holder.owner}' until"
                f" {spelled(holder.expires)}.",
                "Wait until then, or let that worker release it. If it is dead for certain, own the"
                " thread under its name: what it saves is refused from then on.",
            )
        if self.token >= MAX_TOKEN:
            raise StorageUnavailable(
                f"Thread '{self.thread}' has handed out its last token.",
                "Somebody edited its lease. Go on in a new thread.",
            )
        lease = Lease(self.thread, owner, self.token + 1, now + timedelta(seconds=seconds))
        return Ownership(self.thread, lease.token, lease)

    def renewed(self, lease: Lease, seconds: float, now: datetime) -> Ownership:
        """Return what is to be kept once `lease` ends so many seconds after `now`.

        Raises:
            NotOwner: the lease was released, or another one took its place.
        """
        self._check_holder(lease)
        return replace(self, holder=replace(lease, expires=now + timedelta(seconds=seconds)))

    def released(self, lease: Lease) -> Ownership:
        """Return what is to be kept once the thread is free: its highest token.

        Raises:
            NotOwner: another lease took its place.
        """
        if self.holder is not None or self.token != lease.token:
            self._check_holder(lease)
        return replace(self, holder=None)

    def check_fence(self, fence: int | None) -> None:
        """Refuse a save by anybody but the holder.

        Raises:
            NotOwner: the thread has a holder with another token, or the token is of no holder.
        """
        holder = self.holder
        if holder is None:
            if fence is not None:
                raise NotOwner(
                    f"Thread '{self.thread}' has no owner, and this save carries token {fence}.",
                    "Nothing was saved. The lease was released: acquire the thread, load its latest"
                    " checkpoint, and decide again from there.",
                )
        elif fence is None:
            raise NotOwner(
                f"Thread '{self.thread}' is owned by worker '{holder.owner}', and this save carries"
                " no token.",
                "Nothing was saved. Acquire the thread before you write to it.",
            )
        elif fence != holder.token:
            raise NotOwner(
                f"Thread '{self.thread}' is owned by worker '{holder.owner}' with token"
                f" {holder.token}, and this save carries token {fence}.",
                "Nothing was saved. Stop this run: another one took it over.",
            )

    def _check_holder(self, lease: Lease) -> None:
        holder = self.holder
        if holder is None:
            raise NotOwner(
                f"Thread '{self.thread}' has no owner, and this lease has token {lease.token}.",
                "It was released: acquire the thread, load its latest checkpoint, and decide again"
                " from there.",
            )
        if (holder.token, holder.owner) != (lease.token, lease.owner):
            raise NotOwner(
                f"Thread '{self.thread}' is owned by worker '{holder.owner}' with token"
                f" {holder.token}, and this lease of worker '{lease.owner}' has token"
                f" {lease.token}.",
                "Stop this run: another one took it over.",
            )


def _latest(now: datetime) -> datetime:
    """Return the latest end that a lease can have. One that ends later has a clock that is wrong.

    Its holder loses the thread, as one whose lease has ended: the token keeps the two apart.
    """
    try:
        return now + timedelta(seconds=MAX_SECONDS) + _SKEW
    except OverflowError:
        return now


def check_token(token: object) -> int:
    """Return `token` if it is a number that a lease can have.

    Raises:
        ConfigurationError: it is anything else, `True` included.
    """
    if type(token) is not int or not 1 <= token <= MAX_TOKEN:
        raise ConfigurationError(
            f"{quoted(token)} is not the token of a lease.",
            "Pass the token of the Lease that acquire returned.",
        )
    return token


def check_lease(lease: object) -> Lease:
    """Return `lease` if it is one.

    Raises:
        ConfigurationError: it is anything else.
    """
    if not isinstance(lease, Lease):
        raise ConfigurationError(
            f"{quoted(lease)} is not a lease.", "Pass the Lease that acquire returned."
        )
    return lease


def check_span(seconds: object, now: object) -> datetime:
    """Return `now` in UTC if a lease can run from then on for so many seconds.

    Raises:
        ConfigurationError: the seconds are no number that a lease can have, `True` included, or
            the time has no time zone or none so late exists.
    """
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not number or not _LEAST <= cast("float", seconds) <= MAX_SECONDS:
        raise ConfigurationError(
            f"{quoted(seconds)} is not how many seconds a lease can last.",
            f"Write a number from {_LEAST} to {MAX_SECONDS}, and renew the lease in good time.",
        )
    moment = check_moment(now)
    try:
        moment + timedelta(seconds=cast("float", seconds))
    except OverflowError:
        raise _no_moment() from None
    return moment


def check_moment(moment: object) -> datetime:
    """Return a time in UTC.

    Raises:
        ConfigurationError: it is not a time, or has no time zone.
    """
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise _no_moment()
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise _no_moment() from None


def _no_moment() -> ConfigurationError:
    return ConfigurationError(
        "A lease needs a time that has a time zone, and an end within the calendar.",
        "Write datetime.now(UTC).",
    )
