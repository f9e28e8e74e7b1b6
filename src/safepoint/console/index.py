"""What waits in all stores: found by an index in memory, and verified before it is shown.

A cheap listing of the storage says which threads moved, and these alone are opened. The listing is
a hint and is believed for nothing: each row of a page is opened again, with the live anchor and
with what people said so far, right when the page is made. A pass in the background verifies each
record of every thread that the storage lists or the anchor knows, so that a run that the storage
hides, or whose past was changed, becomes an alarm.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from threading import Event, Lock, Thread
from typing import Final, Literal, NamedTuple, TypeVar

from safepoint.core.chain import anchor_errors, storage_errors
from safepoint.core.errors import CheckpointError, DecodeError, ThreadDeleted, Unavailable
from safepoint.core.ledger import Ledger
from safepoint.core.names import ANSWERS, digest_of, thread_text
from safepoint.places import Store
from safepoint.resume.approval import Question
from safepoint.shared.desk import Desk, State, Wait
from safepoint.shared.states import brief
from safepoint.shared.terminal import counted

Sort = Literal["deadline", "newest", "amount"]
_T = TypeVar("_T")
PER_PAGE: Final = 50
_PAUSE: Final = 2.0  # seconds between two rounds, at least
_WHOLE: Final = 60.0  # seconds between two passes against the anchor, at least
_AGAIN: Final = 50  # how many of those that wait are looked at again in a round
_DONE: Final = 200  # how many answers of a store are kept: the newest
_PER_RUN: Final = 3  # rows of the list, whatever a run asks
_FOUND: Final = 200  # characters of a value that a search looks through
_LEAST: Final = Decimal("-Infinity")
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_DARK: Final = (
    "{} threads are encrypted, and the console has no cipher. They verify. Whether they wait is not"
    " known: look at them where the cipher is."
)


class Spot(NamedTuple):
    """A thread: its store, its tenant or "", and its name; without that, all of them."""

    store: str
    tenant: str = ""
    thread: str = ""


class Row(NamedTuple):
    """A run that waits, verified when it was put on this page; `more` is what else it asks."""

    spot: Spot
    wait: Wait
    more: int = 0


class Alarm(NamedTuple):
    """A run that does not verify or that the storage hides; without a thread, all of a store.

    Attributes:
        spot: which it is.
        error: the kind of the error.
        text: what is wrong, and what to do.
        is_hidden: whether the storage ends it before what the anchor has seen.
        is_known: whether the anchor knows it. Anyone who writes the storage can make up others.
    """

    spot: Spot
    error: str
    text: str
    is_hidden: bool = False
    is_known: bool = False


class Done(NamedTuple):
    """Something that was answered, or that ended with nobody's answer.

    Attributes:
        spot: the run.
        question: what it asked.
        result: "approved", "denied" or "expired".
        at: when somebody signed that, by their clock, or when the wait ended.
        by: who signed it, or "".
        why: the reason that they gave, or "".
        is_open: whether the run still asks that, or None if the index cannot tell.
    """

    spot: Spot
    question: Question
    result: str
    at: datetime
    by: str = ""
    why: str = ""
    is_open: bool | None = None


class Page(NamedTuple):
    """The rows of one page, and how many pages there are, as far as the index knows."""

    rows: list[Row]
    number: int
    pages: int


class Status(NamedTuple):
    """How far the pass is that verifies all, and when the last one ended.

    Attributes:
        looked: how many threads this pass has verified, or found to be wrong.
        threads: how many there are.
        passes: how many passes have ended.
        finished: when the last one did.
        unanchored: how many threads of that one no anchor knows.
    """

    looked: int = 0
    threads: int = 0
    passes: int = 0
    finished: datetime | None = None
    unanchored: int = 0


class _Clue(NamedTuple):
    """What the index keeps of a question, to find it again."""

    digest: str
    until: datetime
    since: datetime
    seen: State
    amount: Decimal
    yes: tuple[str, ...]
    words: str

    @classmethod
    def of(cls, spot: Spot, wait: Wait) -> _Clue:
        asked = wait.question
        ends = datetime.fromisoformat(asked.until) if asked.until else _NEVER
        people = *wait.yes, *(no.approver for no in wait.no), *(hold.by for hold in wait.holds)
        words = _words(spot, asked, *people)
        return cls(wait.digest, ends, wait.since, wait.state, _amount(asked), wait.yes, words)

    def state(self, now: datetime) -> State:
        """Where it belongs by now: its deadline may have passed since it was looked at."""
        return "expired" if self.until <= now and self.seen != "denied" else self.seen


class _Desks(ExitStack):
    """The stores as they are now, opened for one page or for one round."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        super().__init__()
        self._stores, self._open = stores, dict[Spot, Desk]()

    def of(self, store: str, tenant: str = "") -> Desk:
        """Return the desk of a store, or of a tenant, opened if it is not."""
        place = Spot(store, tenant)
        if place not in self._open:
            if tenant:
                self._open[place] = self.of(store).of(tenant)
            else:
                self._open[place] = Desk.open(self._stores[store], self)
        return self._open[place]


class Index:
    """Finds what waits, and vouches for what it shows.

    Several threads may ask it. `start` lets a thread of its own look at the stores, with
    connections of its own.

    Args:
        stores: what each store is made of, by the name it is shown under, whenever it is asked.
    """

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = stores
        self._paging, self._round, self._lock = Lock(), Lock(), Lock()
        self._entries: dict[Spot, tuple[_Clue, ...]] = {}
        self._failed: dict[Spot, Alarm] = {}  # what a look at the end found
        self._broken: dict[Spot, Alarm] = {}  # what a look at all of it found, and no other mends
        self._away: dict[str, Alarm] = {}
        self._encrypted = set[Spot]()
        self._ends: dict[Spot, int] = {}  # where the listing said that each ended, when looked at
        self._looks, self._looked = count(1), dict[Spot, int]()
        self._done: dict[str, list[Done]] = {}
        self._unread: dict[str, str] = {}  # what cannot be told of what people signed
        self._status = Status()
        self._again, self._wake = deque[Spot](), Event()
        self._stop, self._thread = Event(), Thread(target=self._work, name="index", daemon=True)

    # --- what it knows

    def page(
        self, wanted: State, number: int = 1, find: str = "", order: Sort = "deadline"
    ) -> Page:
        """Return a page of what is in a state, each row verified right now.

        A run that has moved on gives its place to the next. One that does not verify is an alarm.

        Args:
            wanted: the state.
            number: of the page, from 1.
            find: words that each row has, as `_words` spells it.
            order: what is first. Of what has expired, the newest is.
        """
        with self._paging, _Desks(self._stores) as desks:
            fresh = dict[Spot, list[Wait]]()
            while True:
                chosen = self._chosen(wanted, find, order)
                pages = max(1, -(-len(chosen) // PER_PAGE))
                number = min(max(1, number), pages)
                part = chosen[(number - 1) * PER_PAGE : number * PER_PAGE]
                new = dict.fromkeys(spot for spot, _, _ in part if spot not in fresh)
                if not new or len(fresh) > 4 * PER_PAGE:
                    break
                fresh |= {spot: self._verified(desks, spot) for spot in new}
        rows = [
            Row(spot, wait, more)
            for spot, entry, more in part
            for wait in fresh.get(spot, ())
            if wait.digest == entry.digest
        ]
        return Page(rows, number, pages)

    def counts(self) -> dict[State, int]:
        """Return how many wait, are held, were denied and have expired."""
        now = datetime.now(UTC)
        found = Counter(entry.state(now) for _, entry in self._known())
        states: tuple[State, ...] = ("waiting", "held", "denied", "expired")
        return {state: found[state] for state in states}

    def alarms(self) -> list[Alarm]:
        """Return what does not verify: stores that are away, then hidden runs, then others.

        Of these, those that the anchor knows come first: the rest may be made up to hide them.
        """
        with self._lock:
            found = list({**self._failed, **self._broken}.values())
            away = list(self._away.values())
            dark = Counter(spot._replace(thread="") for spot in self._encrypted)
        away += [Alarm(spot, "DecodeError", _DARK.format(many)) for spot, many in dark.items()]
        found.sort(key=lambda each: (not each.is_hidden, not each.is_known, each))
        return [*sorted(away), *found]

    def status(self) -> Status:
        """Tell how far the pass in the background is."""
        return self._status

    def next(self, after: Spot, names: Mapping[str, str]) -> Spot | None:
        """Return the run to answer next, in the order of the list; None if there is no other.

        Args:
            after: the run that somebody looks at.
            names: who answers, by store. What they approved already is left out.
        """
        spots = [
            spot
            for spot, entry, _ in self._chosen("waiting")
            if spot == after or names.get(spot.store) not in entry.yes
        ]
        at = spots.index(after) if after in spots else 0
        return next((each for each in (*spots[at:], *spots[:at]) if each != after), None)

    def done(self, find: str = "") -> tuple[list[Done], dict[str, str]]:
        """Return what was answered or ended, newest first, and by store what cannot be told.

        What people signed was verified by the last pass, and what expired right now.
        """
        expired = [
            Done(row.spot, row.wait.question, "expired", datetime.fromisoformat(until))
            for row in self.page("expired", find=find).rows
            if (until := row.wait.question.until)
        ]
        with self._lock:
            answered = [(name, each) for name, each in self._done.items() if name not in self._away]
            unread = {n: text for n, text in self._unread.items() if n not in self._away}
            told = {*self._looked}.difference(self._failed, self._broken, self._encrypted)
        open_ones = {(spot, entry.digest) for spot, entry in self._known()}
        found = [
            row._replace(is_open=(row.spot, digest_of(row.question.text.encode())) in open_ones)
            if row.spot in told
            else row
            for _, rows in answered
            for row in rows
            if has_words(_words(row.spot, row.question, *row.by.split(", ")), find)
        ]
        found = sorted([*expired, *found], key=lambda each: each.at, reverse=True)
        return found[:_DONE], unread

    def _known(self) -> list[tuple[Spot, _Clue]]:
        """Return the entries of the stores that are not away, but for runs that are broken."""
        with self._lock:
            return [
                (spot, entry)
                for spot, entries in self._entries.items()
                if spot[0] not in self._away and spot not in self._broken
                for entry in entries
            ]

    def _chosen(
        self, wanted: State, find: str = "", order: Sort = "deadline"
    ) -> list[tuple[Spot, _Clue, int]]:
        """Return the first rows of each run, the last of them with how many it has besides."""
        now, rows = datetime.now(UTC), list[tuple[Spot, _Clue, int]]()
        found = [
            (spot, entry)
            for spot, entry in self._known()
            if entry.state(now) == wanted and has_words(entry.words, find)
        ]
        left, shown = Counter(spot for spot, _ in found), Counter[Spot]()
        found.sort(key=lambda each: (each[1].until, each[1].since, each[0]))
        if order == "newest":
            found.sort(key=lambda each: each[1].since, reverse=True)
        elif order == "amount":
            found.sort(key=lambda each: each[1].amount, reverse=True)
        for spot, entry in found[::-1] if wanted == "expired" else found:
            shown[spot] += 1
            if shown[spot] <= _PER_RUN:
                more = left[spot] - _PER_RUN if shown[spot] == _PER_RUN else 0
                rows.append((spot, entry, more))
        return rows

    # --- look at threads

    def look_again(self, spot: Spot) -> None:
        """Have the background look at a thread soon: something was put with its answers."""
        self._again.append(spot)
        self._wake.set()

    def _verified(self, desks: _Desks, spot: Spot) -> list[Wait]:
        """Return what a thread waits for, for a page; nothing if its store is away."""
        if spot.store not in self._away:
            with self._losing(spot.store):
                return self._look(desks.of(spot.store, spot.tenant), spot)
        return []

    def _look(self, desk: Desk, spot: Spot, *, whole: bool = False) -> list[Wait]:
        """Open the end of a thread with the live anchor, and keep what it waits for.

        Args:
            desk: that of its tenant.
            spot: the thread.
            whole: verify each record first. The background alone does that.

        Raises:
            CheckpointError: the store as a whole is away.
        """
        number, waits, alarm, is_dark = next(self._looks), list[Wait](), None, False
        is_broken = whole
        try:
            if whole:
                desk.ledger.verify(spot.thread)
            is_broken = False
            waits = desk.waits(spot.thread, whole=False)
        except ThreadDeleted:
            pass
        except Exception as error:  # noqa: BLE001  whatever it is, it is one thread's
            if isinstance(error, Unavailable):
                _check_there(desk)
            is_dark = isinstance(error, DecodeError) and _is_encrypted(desk.ledger, spot.thread)
            if not is_dark:
                named = type(error).__name__, str(error)
                alarm = Alarm(spot, *named, *_is_known(desk.ledger, spot.thread))
        with self._lock:
            if whole:
                _put(self._broken, spot, alarm if is_broken else None)
            if self._looked.get(spot, 0) < number:  # or somebody looked later, and was faster
                self._looked[spot] = number
                _put(self._entries, spot, tuple(_Clue.of(spot, each) for each in waits) or None)
                _put(self._failed, spot, alarm)
                (self._encrypted.add if is_dark else self._encrypted.discard)(spot)
        return waits

    @contextmanager
    def _losing(self, store: str) -> Iterator[None]:
        """Say that a store is away, if this block fails: a round tries it again.

        Nothing of it is shown until then.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001  nothing ends the thread that looks
            text = f"{store} could not be looked at. {error}"
            with self._lock:
                self._away[store] = Alarm(Spot(store), type(error).__name__, text)

    # --- the background

    def start(self) -> None:
        """Begin to look at the stores, in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop that."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        due = 0.0
        while not self._stop.is_set():
            begun, is_whole = time.monotonic(), time.monotonic() >= due
            self.look(whole=is_whole)
            ended = time.monotonic()
            if is_whole:
                due = ended + max(_WHOLE, 5 * (ended - begun))
            pause = _PAUSE if is_whole else max(_PAUSE, 4 * (ended - begun))
            while self._wake.wait(max(0, ended + pause - time.monotonic())):
                self._wake.clear()
                if self._stop.is_set():
                    return
                with self._round, _Desks(self._stores) as desks:
                    self._catch_up(desks)

    def look(self, *, whole: bool) -> None:
        """Go through the stores now.

        Args:
            whole: verify each record of each thread that the storage lists or the anchor knows. If
                not, look at those that moved since, and at some of those that wait, for what people
                said.
        """
        with self._round, _Desks(self._stores) as desks:
            if whole:
                self._status = self._status._replace(looked=0, threads=0)
            self._catch_up(desks)
            tours = [
                tour for store in self._stores for tour in self._listed(desks, store, whole=whole)
            ]
            if whole:
                total = sum(len(tour.threads) for tour in tours)
                self._status = self._status._replace(threads=total)
            for tour in tours:
                self._tour(desks, tour, whole=whole)
            if whole and not self._stop.is_set():
                self._recall(desks, *self._stores)
                here = self._stores.keys() - self._away.keys()
                self._status = self._status._replace(
                    threads=self._status.looked,  # of those stores that are not away
                    passes=self._status.passes + 1,
                    finished=datetime.now(UTC),
                    unanchored=sum(each.unanchored for each in tours if each.store in here),
                )

    def _catch_up(self, desks: _Desks) -> None:
        """Look at the threads that somebody has put something about."""
        stores = dict[str, None]()
        while self._again:
            store, tenant, thread = self._again.popleft()
            stores[store] = None
            if store not in self._away:
                with self._losing(store):
                    desk = desks.of(store, tenant)
                    self._look(desk, Spot(store, desk.ledger.tenant_name, thread))
        self._recall(desks, *stores)

    def _recall(self, desks: _Desks, *stores: str) -> None:
        """Read everything that people signed about stores, and keep the newest."""
        for store in stores:
            if store in self._away:
                continue
            with self._losing(store):
                rows, unread = _answered(store, desks.of(store))
                with self._lock:
                    self._done[store] = heapq.nlargest(_DONE, rows, key=lambda each: each.at)
                    self._unread[store] = unread

    def _listed(self, desks: _Desks, store: str, *, whole: bool) -> list[_Tour]:
        """Return what there is to look at in each scope of a store, or say that it is away."""
        tours = list[_Tour]()
        with self._losing(store):
            desk = desks.of(store)
            scopes = [desk, *(desks.of(store, tenant) for tenant in desk.ledger.tenants())]
            tours = [self._planned(store, each, whole=whole) for each in scopes]
            _check_there(desk)
            with self._lock:
                self._away.pop(store, None)
        return tours

    def _planned(self, store: str, desk: Desk, *, whole: bool) -> _Tour:
        ends, tenant = _ends(desk.ledger), desk.ledger.tenant_name
        names = {*ends, *desk.ledger.threads()} if whole else ends.keys()
        spots = {spot for spot in self._ends if spot[:2] == (store, tenant)}
        spots |= {Spot(store, tenant, thread) for thread in names}
        if whole:
            threads, anchor = sorted(spot.thread for spot in spots), desk.ledger.anchor
            with anchor_errors("list", "the threads"):
                known = set(anchor.threads(desk.ledger.store)) if anchor else set[str]()
            return _Tour(store, desk, ends, threads, len({*threads} - known))
        moved = {spot for spot in spots if ends.get(spot.thread, 0) != self._ends.get(spot)}
        with self._lock:
            kept = self._entries.keys() | self._failed.keys() | self._broken.keys()
            open_ones = spots & kept - moved
        again = heapq.nsmallest(_AGAIN, open_ones, key=lambda spot: self._looked[spot])
        return _Tour(store, desk, ends, [spot.thread for spot in (*sorted(moved), *again)])

    def _tour(self, desks: _Desks, tour: _Tour, *, whole: bool) -> None:
        """Look at the threads of one scope."""
        store, desk = tour.store, tour.desk
        if store in self._away:
            return
        with self._losing(store):
            for thread in tour.threads:
                with self._paging:
                    pass  # whoever waits for a page goes first
                if self._stop.is_set():
                    return
                self._catch_up(desks)
                spot = Spot(store, desk.ledger.tenant_name, thread)
                self._look(desk, spot, whole=whole or spot in self._broken)
                self._ends[spot] = tour.ends.get(thread, 0)
                if whole:
                    self._status = self._status._replace(looked=self._status.looked + 1)


class _Tour(NamedTuple):
    """The threads of one scope that a round looks at, and where the storage says that all end."""

    store: str
    desk: Desk
    ends: dict[str, int]
    threads: list[str]
    unanchored: int = 0


def _ends(ledger: Ledger) -> dict[str, int]:
    """Return where the storage says that each thread ends: a hint."""
    storage = ledger.storage
    with storage_errors("list", "the threads"):
        found = dict.fromkeys(storage.threads(), 0)
        for thread in found:
            with suppress(CheckpointError):  # which shows when it is opened
                found[thread] = storage.head(thread)
    return found


def _answered(store: str, desk: Desk) -> tuple[list[Done], str]:
    """Return what people signed about the runs of a store, and what of it cannot be told."""
    rows, errors, ledger = list[Done](), list[CheckpointError](), desk.ledger
    people, tenant = (desk.gate.approvers, desk.gate.operators), ledger.tenant_name
    for said in desk.answers.every(*people, tenant=tenant):
        if isinstance(said, CheckpointError):
            errors.append(said)
        elif (asked := said.question).store == ledger.store:
            revoked = ", whose key is revoked by now" * (said.key in people[0].revoked)
            result = said.verdict, said.issued, f"{said.approver}{revoked}", said.why
            rows.append(Done(Spot(store, asked.tenant, asked.thread), asked, *result))
    return rows, f"{counted(len(errors), 'answer')} cannot be shown. {errors[0]}" if errors else ""


def _words(spot: Spot, asked: Question, *people: str) -> str:
    """Return what a search looks through, as in `tenant:acme action:refund amount:39.0`.

    A long value is cut, and hides no other.
    """
    run = thread_text(asked.thread) or asked.thread
    named = {"store": spot.store, "tenant": asked.tenant, "run": run, "action": asked.action}
    pairs = [*named.items(), ("app", asked.app or ""), *(("by", each) for each in people)]
    given = *pairs, *asked.arguments.items()
    return " ".join(f"{n[:_FOUND]}:{brief(value)[:_FOUND]}" for n, value in given).lower()


def has_words(text: str, find: str) -> bool:
    """Tell whether a text has each word of a search."""
    return all(word in text for word in find.lower().split())


def _amount(asked: Question) -> Decimal:
    """Return the number that an argument `amount` is, to sort by; of none, less than any other."""
    value = asked.arguments.get("amount")
    return Decimal(value) if isinstance(value, int | float | Decimal) else _LEAST


def _check_there(desk: Desk) -> None:
    """Refuse a store of which a part is away, whatever the thread.

    Raises:
        CheckpointError: it is.
    """
    desk.ledger.storage.head(ANSWERS)
    desk.ledger.anchored(ANSWERS)
    desk.answers.storage.head(ANSWERS)
    desk.answers.anchor.read(ANSWERS, ANSWERS)


def _is_known(ledger: Ledger, thread: str) -> tuple[bool, bool]:
    """Tell whether the storage ends a thread before what the anchor has seen, and if it has."""
    is_hidden = is_known = False
    with suppress(CheckpointError):
        head = ledger.anchored(thread)
        is_known = head is not None
        is_hidden = head is not None and ledger.storage.head(thread) < head.sequence
    return is_hidden, is_known


def _is_encrypted(ledger: Ledger, thread: str) -> bool:
    """Tell whether a thread verifies and takes a cipher that the ledger has not."""
    with suppress(CheckpointError):
        return ledger.cipher is None and next(ledger.back(thread)).header.cipher is not None
    return False


def _put(into: dict[Spot, _T], spot: Spot, value: _T | None) -> None:
    if value is None:
        into.pop(spot, None)
    else:
        into[spot] = value
