"""Signed answers and holds, stored where workers find them, so that nobody can drop one unnoticed.

Each key has its own chains in a storage only for answers: one for each question that its owner
answered, and one for each thread that they held. The end of each chain is anchored, under a login
that no worker has. A worker knows the names of the chains, so it reads only the chains about its
question. It believes that a chain does not exist only if the anchor has not seen it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from safepoint.core.anchor import Anchor
from safepoint.core.chain import View, check_apart, storage_errors
from safepoint.core.codec import read_json, write_json
from safepoint.core.errors import (
    ApprovalRefused,
    CheckpointError,
    ConfigurationError,
    InvalidId,
    LimitExceeded,
    SealBroken,
    Unavailable,
    Unsafe,
    quoted,
)
from safepoint.core.keys import Key, Keyring, SigningKey
from safepoint.core.names import ANSWERS, Limits, check_name, is_digest
from safepoint.core.record import Opened, Place, open_sealed, seal
from safepoint.core.storage import CheckpointStorage
from safepoint.resume.approval import MAX_BYTES, Answer, Approver, Approvers, Question

MOST: Final = 16
"""How often one key answers one question. The last time is reserved for a denial."""
ORDERS: Final = 1000
"""How many orders one key gives about one thread. No longer chain is read."""
MAX_WHY: Final = 1000
_ID: Final = 16  # hex digits of a key's id
_NONSENSE: Final = (CheckpointError, KeyError, TypeError, AttributeError)
_LIMITS: Final = Limits(state_bytes=MAX_BYTES * 3 // 2)  # a text as JSON, with its quotes escaped


class Order(NamedTuple):
    """An operator's signed order: a hold on a thread, or the release of a hold.

    Attributes:
        what: "hold" or "release".
        by: the name of the operator.
        key: the id of their key.
        at: when they signed it, by their clock.
        why: their reason, or "".
        hold: the digest of the hold that a release ends, or a hold's own digest.
        text: the sealed record.
    """

    what: Literal["hold", "release"]
    by: str
    key: str
    at: datetime
    why: str
    hold: str
    text: str

    def __str__(self) -> str:
        why = f": {self.why!a}" if self.why else ""
        return f"{self.what} {self.hold[:19]} by {self.by}{why}"


class Answers:
    """A place for signed answers and holds, which workers read before they continue.

    ```python
    from safepoint import Approver, Approvers, InMemoryAnchor, InMemoryCheckpointStorage, SigningKey
    from safepoint.resume.answers import Answers
    from safepoint.resume.approval import Question
    from safepoint.core.names import Head

    answers = Answers(InMemoryCheckpointStorage(), InMemoryAnchor())
    key = SigningKey.generate()
    dana, approvers = Approver("dana", key), Approvers({"dana": key.public})
    head, tools = Head(3, "sha256:" + "a" * 64), "sha256:" + "b" * 64
    question = Question("invoices", "order-7", head, head, "invoice", tools, ("asked",), "pay", {})

    answers.put(dana, dana.deny(question))
    print([f"{each.approver} {each.verdict}" for each in answers.about(question, approvers)])
    #> ['dana denied']
    ```

    If the place is gone, does not reach its anchor or does not verify, every read raises. So an
    attacker with write access to the storage can stop runs, but cannot drop a denial.

    Args:
        storage: where the records are, only for answers.
        anchor: keeps the end of each chain. Nobody who writes the storage or the checkpoints should
            be able to set it back.
    """

    def __init__(self, storage: CheckpointStorage, anchor: Anchor) -> None:
        self.storage: Final = storage
        self.anchor: Final = anchor
        self._apart = set[tuple[str, Path | None]]()  # the keys that are known to lie elsewhere

    # --- what people do

    def put(self, approver: Approver, text: str, *, why: str = "") -> None:
        """Store a signed approval or denial. When this returns, it is durable.

        If you put the same text again after a crash, it is stored once.

        Args:
            approver: the person who signed it.
            text: the result of their `approve` or `deny`.
            why: a reason, for people. It is sealed with their key, but is not part of the answer.

        Raises:
            ApprovalRefused: this person did not sign it.
            InvalidId: the reason is too long.
            LimitExceeded: they have answered that question too often.
            Unavailable: it could not be put. The message says whether it is there.
        """
        try:
            said = Approvers({approver.name: approver.key.public}).open(text)
        except ApprovalRefused as error:
            raise ApprovalRefused(
                f"{approver.name} did not sign that with this key. {error.what}",
                "Nothing was stored. Each person puts what they signed themselves.",
            ) from None
        question = said.question
        _check_why(why)
        self._append(
            approver,
            question.tenant,
            _chain("answer", approver.key, question.subject),
            {"answer": said.text, **({"why": why} if why else {})},
            MOST if said.verdict == "denied" else MOST - 1,
        )

    def hold(
        self, operator: Approver, store: str, thread: str, *, tenant: str = "", why: str = ""
    ) -> Order:
        """Hold a thread: no worker runs another step of it until the hold is released.

        Several holds on a thread are released separately.

        Args:
            operator: the operator, whose key the workers' gate must know.
            store: the name of the thread's store.
            thread: the thread.
            tenant: the thread's tenant, or "".
            why: a reason, for people.

        Raises:
            InvalidId: a name is outside its grammar, or the reason is too long.
            Unavailable: it could not be put. The message says whether it is there.
        """
        _check_why(why)
        return self._order(operator, Place(store, tenant, thread, 1), {"order": "hold", "why": why})

    def release(
        self, operator: Approver, store: str, thread: str, hold: str, *, tenant: str = ""
    ) -> Order:
        """Release one hold. Other holds on the thread stay.

        Args:
            operator: the operator, who need not be the one who held it.
            store: the name of the store.
            thread: the thread.
            hold: the digest of the hold, as `Order.hold` has it.
            tenant: the tenant of the thread, or "".

        Raises:
            InvalidId: a name is outside its grammar, or `hold` is not a digest.
            Unavailable: it could not be put. The message says whether it is there.
        """
        if not is_digest(hold):
            raise InvalidId(
                f"{quoted(hold)} is not the digest of a hold.", "Give the hold of an Order."
            )
        said = {"order": "release", "hold": hold}
        return self._order(operator, Place(store, tenant, thread, 1), said)

    def _order(self, operator: Approver, place: Place, said: dict[str, str]) -> Order:
        check_name("store", place.store)
        check_name("thread", place.thread)
        value = {**said, "store": place.store, "tenant": place.tenant, "thread": place.thread}
        chain = _chain("order", operator.key, f"{place.store}/{place.thread}")
        record, opened = self._append(operator, place.tenant, chain, value, ORDERS)
        return _parse(operator.name, place, record.decode(), opened)

    def _append(
        self, person: Approver, tenant: str, chain: str, value: dict[str, Any], most: int
    ) -> tuple[bytes, Opened]:
        """Append to a chain of one key, unless it ends with the same, and anchor the end.

        A hold is always a new one: one like it may have been released, in another's chain.
        """
        view, payload = self._view(person.key, tenant), write_json(value, _LIMITS.state_bytes)

        def write(place: Place, previous: str | None) -> tuple[bytes, Opened]:
            if place.sequence > most:
                raise LimitExceeded(
                    f"{person.name} has signed {most} times about this: no more are kept.",
                    "Nothing was stored. Look at what is there already.",
                )
            now, key = datetime.now(UTC), person.key
            return seal(payload, place, key, created=now, previous=previous, use="order")

        with _answers_errors():
            last = next(view.back(chain), None)
            if last is None or last.payload != payload or value.get("order") == "hold":
                last = view.append(chain, write)
            else:  # a crash may have come before the anchor
                view.verify(chain, anchor=True)
            return view.storage.read(chain, last.header.sequence), last

    # --- what workers do

    def about(self, question: Question, approvers: Approvers) -> list[Answer]:
        """Return each stored answer of these approvers to a question, verified.

        Check with `check_time` whether an approval counts now. A denial counts for every version
        that asks for the same. Answers of revoked keys are left out.

        Raises:
            SealBroken: the place does not verify.
        """
        found = []
        for key_id, (name, key) in approvers.keys.items():
            if key_id in approvers.revoked:
                continue
            chain = _chain("answer", key, question.subject)
            for opened in self._walk(self._view(key, question.tenant), chain, MOST):
                with suppress(*_NONSENSE):  # a person cannot stop a run with anything else
                    stored = read_json(opened.payload, _LIMITS.state_bytes)
                    said = approvers.open(stored["answer"])
                    is_no = said.verdict == "denied" and said.question.subject == question.subject
                    if said.approver == name and (is_no or said.question == question):
                        found.append(replace(said, why=str(stored.get("why", ""))))
        return found

    def is_settled(self, question: Question, key: Key) -> bool:
        """Tell whether the anchor has seen every answer of a key to a question.

        Raises:
            SealBroken: the place does not verify.
        """
        with _answers_errors():
            view, chain = self._view(key, question.tenant), _chain("answer", key, question.subject)
            end = next(view.back(chain), None)
            return end is None or view.anchored(chain) == end.head

    def orders(
        self, store: str, thread: str, operators: Approvers, *, tenant: str = ""
    ) -> list[Order]:
        """Return every verified order of these operators about a thread: holds and releases.

        A revoked key's chain that does not verify is passed over, or its owner could stop the run
        forever: hold the run again with another key before you revoke one.

        Raises:
            SealBroken: the place does not verify.
        """
        place, found = Place(store, tenant, thread, 1), []
        for name, key in operators.keys.values():
            chain, walk = _chain("order", key, f"{store}/{thread}"), list[Opened]()
            view = self._view(key, tenant)
            try:
                walk.extend(self._walk(view, chain, ORDERS))
            except SealBroken:
                if key.id not in operators.revoked:
                    raise
            for opened in walk:
                with _answers_errors():
                    record = view.storage.read(chain, opened.header.sequence)
                    # What is copied is what was verified.
                    again = open_sealed(record, opened.header.place, view.keys, use="order")
                with suppress(*_NONSENSE):
                    found.append(_parse(name, place, record.decode(), again))
        return found

    def verify(self, *people: Approvers, tenant: str = "") -> int:
        """Verify every record, and return how many there are.

        A revoked key's chain that does not verify is passed over: its owner stops nothing any more.

        Args:
            people: the approvers and operators who may have stored records.
            tenant: only records about this tenant's threads; all records by default.

        Raises:
            SealBroken: something was changed or removed, or is of nobody among them.
        """
        count, revoked = 0, frozenset[str]().union(*(each.revoked for each in people))
        for chain, of in self._chains(tenant):
            try:
                with _answers_errors():
                    count += self._owners_view(chain, of, people).verify(chain)
            except SealBroken:
                if chain[:_ID] not in revoked:
                    raise
        return count

    def every(
        self, approvers: Approvers, operators: Approvers, *, tenant: str = ""
    ) -> Iterator[Answer | CheckpointError]:
        """Yield each verified approval and denial, those of revoked keys as well.

        For a record that does not verify, or that no listed person signed, it yields the error,
        unless its key is revoked.

        Raises:
            Unavailable: the place cannot be asked.
        """
        people = approvers, operators
        for chain, of in self._chains(tenant):
            try:
                with _answers_errors():
                    for opened in self._walk(self._owners_view(chain, of, people), chain, ORDERS):
                        stored = read_json(opened.payload, _LIMITS.state_bytes)
                        if "answer" not in stored:
                            continue
                        said = approvers.open(stored["answer"], revoked=True)
                        _, key = approvers.keys[said.key]
                        if chain != _chain("answer", key, said.question.subject):
                            raise _misplaced(chain)
                        yield replace(said, why=str(stored.get("why", "")))
            except CheckpointError as error:
                if chain[:_ID] not in approvers.revoked | operators.revoked:
                    yield error

    def _chains(self, tenant: str) -> list[tuple[str, str]]:
        """Return the name of each chain, with the tenant that it is of."""
        nobody = Keyring(SigningKey.generate())
        with _answers_errors():
            whole = View(self.storage, ANSWERS, nobody, self.anchor, _LIMITS).for_tenant(tenant)
            views = [whole, *map(whole.for_tenant, whole.tenants())]
            return [(chain, view.tenant) for view in views for chain in view.threads()]

    def _owners_view(self, chain: str, tenant: str, people: Iterable[Approvers]) -> View:
        """Return the view with the key that a chain is named after."""
        for each in people:
            if chain[:_ID] in each.keys:
                return self._view(each.keys[chain[:_ID]][1], tenant)
        raise SealBroken(
            f"The answers hold the chain {chain}, of a key that is not listed.",
            "It begins with the id of a key. If you know that key, list it as revoked. If not, find"
            " out who can write their storage.",
            "answers",
        )

    def _walk(self, view: View, chain: str, most: int) -> list[Opened]:
        """Return the first records of a chain, up to the maximum that this package stores.

        Further records, which the owner or a thief of the key wrote by hand, do not count.
        """
        with _answers_errors():
            with storage_errors("find the latest of", chain):
                length = view.storage.head(chain)
            if length > ORDERS:  # nobody makes a worker read for ever
                raise _broken(f"The chain {chain} has {length} records, too many for one person.")
            return list(view.back(chain))[: -most - 1 : -1]

    def _view(self, key: Key, tenant: str) -> View:
        ring = Keyring(verify=key)
        if (key.id, key.path) not in self._apart:
            check_apart(self.storage, ring, self.anchor)
            self._apart.add((key.id, key.path))
        return View(self.storage, ANSWERS, ring, self.anchor, _LIMITS, "order").for_tenant(tenant)


def in_force(orders: list[Order], operators: Approvers) -> list[Order]:
    """Return the holds that are not released. A release by a revoked key does not count."""
    releases = {
        each.hold for each in orders if each.what == "release" and each.key not in operators.revoked
    }
    return [each for each in orders if each.what == "hold" and each.hold not in releases]


def _check_why(why: str) -> None:
    if len(why) > MAX_WHY:
        raise InvalidId(
            f"The reason has {len(why)} characters.",
            f"Say it in {MAX_WHY}, and keep the rest where people can read it.",
        )


def _chain(kind: str, key: Key, about: str) -> str:
    """Return the name of a key's chain about one thing, so that a worker can find it."""
    return f"{key.id}-{sha256(f'{kind} {about}'.encode()).hexdigest()[:47]}"


def _parse(name: str, place: Place, record: str, opened: Opened) -> Order:
    """Return the order in a verified record."""
    said = read_json(opened.payload, _LIMITS.state_bytes)
    what = said["order"]
    is_here = (said["store"], said["tenant"], said["thread"]) == place[:3]
    if not is_here or what not in ("hold", "release"):
        raise _misplaced(opened.header.thread)
    at = datetime.fromisoformat(opened.header.created)
    hold = said["hold"] if what == "release" else opened.digest
    return Order(what, name, opened.key, at, said.get("why", ""), hold, record)


def _misplaced(chain: str) -> SealBroken:
    return SealBroken(
        f"The chain {chain} of the answers holds something that is not about it.",
        "Nothing is resumed. It was not stored with this release: ask the person who signed it.",
        "answers",
    )


@contextmanager
def _answers_errors() -> Iterator[None]:
    """Turn an error of a record into an error of the place of the answers."""
    try:
        yield
    except (LimitExceeded, ConfigurationError, Unsafe):
        raise
    except Unavailable as error:
        raise Unavailable(
            f"The answers cannot be used. {error.what}",
            f"{error.do} Until then nothing is resumed.",
            "answers",
        ) from error
    except CheckpointError as error:
        if error.kind == "answers":
            raise
        raise _broken(error.what) from error
    except (KeyError, TypeError) as error:
        raise _broken("A record has other fields.") from error


def _broken(what: str) -> SealBroken:
    return SealBroken(
        f"The answers do not verify. {what}",
        "Find out who wrote it. If it was a person who answers, list their key as revoked: then it"
        " stops no run. If not, restore a copy that verifies.",
        "answers",
    )
