"""What a thread waits for, read from its verified records alone.

Anyone who approves does not run the worker's code and has none of its types. So a question is built
again from what the worker sealed when it asked: by our own workflow, or by an adapter. It is the
same as the worker's, to the byte.

If another version or other tools are to run it by now, the worker's gate asks for more than the
records say: it refuses the answer and asks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from safepoint.core.chain import plain_of
from safepoint.core.errors import CheckpointError, DecodeError, LimitExceeded, ResumeRefused
from safepoint.core.ledger import Ledger, Link
from safepoint.core.names import Head, with_tenant
from safepoint.core.record import Checkpoint
from safepoint.resume.approval import QUESTION, Question, Reason
from safepoint.resume.asking import SPENT, Asking
from safepoint.resume.gate import Gate
from safepoint.resume.workflow import Payload, question_of, without_state
from safepoint.shared.states import read_as_json

_ELSE: Final = "Find out what else has the writer's key."
_RECORDS: Final = 5_000  # that are walked for a thread among many; a graph has tens in a step
_BYTES: Final = 128 * 1024 * 1024
_TEXTS: Final = 2_000  # of questions, those that are over among them
_QUESTIONS: Final = 100


class _Summary(NamedTuple):
    """What counts of a verified record. The values of the application are not kept.

    Attributes:
        head: its place and digest.
        asks: the texts that a node of LangGraph waits with.
        graph: the checkpoint of a graph, by its names of it, or nothing.
        agents: a checkpoint of Agent Framework, or nothing.
        ended: the tasks of LangGraph that wrote what they return.
    """

    head: Head
    asks: tuple[str, ...] = ()
    graph: dict[str, Any] = {}  # noqa: RUF012  nothing writes it
    agents: dict[str, Any] = {}  # noqa: RUF012
    ended: tuple[str, ...] = ()

    @classmethod
    def of(cls, head: Head, plain: dict[str, Any], *, is_last: bool) -> _Summary:
        """Take from a record what counts. Tags stand for types that need not be known."""
        asks = tuple(_search(plain, QUESTION))
        graph, agents = dict[str, Any](), dict[str, Any]()
        if "checkpoint" in plain:
            inner = plain.get("metadata")
            parents = inner.get("parents") if isinstance(inner, dict) else None
            graph = {name: plain[name] for name in ("ns", "id") if name in plain}
            graph["parents"] = parents
        if "checkpoint_id" in plain:
            names = ("checkpoint_id", "previous_checkpoint_id")
            named = {name: plain[name] for name in names if name in plain}
            asks, agents = (), {**named, "asks": asks} if is_last else {}
        wrote = [plain, *plain.get("early", ())] if {"thread", "ns", "id"} <= plain.keys() else []
        wrote = [each for each in wrote if any(row[0] >= 0 for row in each.get("writes", ()))]
        return cls(head, asks, graph, agents, tuple(each["task"] for each in wrote))


def open_questions(ledger: Ledger, thread: str, gate: Gate | None = None) -> list[Question]:
    """Return what a thread waits for, oldest first: a graph may ask several things at once.

    ```python
    from safepoint import Approvers, Ask, Gate, InMemoryAnchor, InMemoryCheckpointStorage
    from safepoint import InMemoryJournal, Keyring, Ledger, SigningKey, Workflow
    from safepoint.shared.questions import open_questions


    def ask(state):
        return Ask("pay", {"amount": 42})


    def pay(state, call):
        return {"paid": call.approved.arguments["amount"]}


    gate = Gate(approvers=Approvers({"dana": SigningKey.generate().public}))
    keys, journal = Keyring(SigningKey.generate()), InMemoryJournal()
    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=keys,
        anchor=InMemoryAnchor(),
        journal=journal,
    )
    run = Workflow("invoice", [ask, pay], gate=gate).start(ledger, thread="order-7")
    print(open_questions(ledger, "order-7") == [run.question])
    #> True
    ```

    Args:
        ledger: the store, with its keys and its anchor; for a tenant's thread, that of the tenant.
        thread: the thread.
        gate: who may answer. A question is open until there is an answer that counts, and without a
            gate none does.

    Raises:
        CheckpointError: what was read on the way does not verify, or cannot be looked into.
    """
    return [each[0] for each in find_asked(ledger, thread, gate or Gate()) if not each[-1]]


def find_asked(
    ledger: Ledger, thread: str, gate: Gate, *, bounded: bool = False
) -> list[tuple[Question, datetime, bool]]:
    """Return the same, each with when the worker asked it, and whether it is approved.

    What is approved is there until its step has ended: the step runs, or its worker died.

    Args:
        ledger: as in `open_questions`.
        thread: the thread.
        gate: who may answer.
        bounded: refuse a thread that takes long, for anyone who looks at many.

    Raises:
        LimitExceeded: what it asks is behind too many records, or it asks too many things.
        CheckpointError: as `open_questions`.
    """
    kept, labels, times, notes = list[_Summary](), set[str](), dict[Head, str](), list[Link]()
    roots, size, is_newest = 0, 0, True
    try:
        for link in ledger.back(thread):
            data = plain_of(link.opened, ledger.cipher)
            size += len(data)
            if bounded and (len(times) >= _RECORDS or size > _BYTES):
                raise _too_much(ledger, thread, f"is behind more than {len(times):,} records")
            if link.kind == "state" and is_newest:
                is_newest = False
                found = link.opened.checkpoint(without_state(data, ledger.codec.limits))
                with suppress(ResumeRefused):
                    return [
                        (question, found.created, verdict != "")
                        for question in _of_workflow(found, Payload.unpack(found))
                        for verdict in [Asking(ledger, gate, question).verdict_in(notes)]
                        if verdict in ("", "approved")  # and its step has not ended
                    ]
            if link.kind == "note" and link.label == SPENT:
                notes.append(link)
            head, label = link.opened.head, link.label
            times[head] = link.header.created
            plain, is_last = _parse(link, data, ledger), label not in labels
            kept.append(_Summary.of(head, plain, is_last=is_last))
            roots += kept[-1].graph.get("ns") == ""
            labels.add(label)
            if roots > 1:  # a graph went on, and what it asked before that is over
                break
        texts = {text for each in kept for text in (*each.asks, *each.agents.get("asks", ()))}
        if bounded and len(texts) > _TEXTS:
            raise _too_much(ledger, thread, f"is among {len(texts):,} questions")
        place = ledger.store, ledger.tenant_name, thread
        ended = {task for each in kept for task in each.ended}
        questions = [
            (question, datetime.fromisoformat(times[question.head]), verdict != "")
            for question in dict.fromkeys(_of_adapters(kept[::-1]))
            if (question.store, question.tenant, question.thread) == place
            and question.checkpoint == question.head
            and question.head in times
            and question.reasons == (Reason.ASKED,)
            for verdict in [Asking(ledger, gate, question).verdict_in(notes)]
            if not verdict or (verdict == "approved" and not any(map(question.scope.count, ended)))
        ]
    except CheckpointError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise DecodeError(
            f"{thread} holds records that look like an adapter's but are not.", _ELSE
        ) from None
    if bounded and len(questions) > _QUESTIONS:
        raise _too_much(ledger, thread, f"is {len(questions):,} things at once")
    return questions


def _too_much(ledger: Ledger, thread: str, why: str) -> LimitExceeded:
    named = with_tenant(ledger.tenant_name, thread)
    return LimitExceeded(
        f"What {thread} asks {why}: too much to look into among many threads.",
        f"It may wait. Look only at that thread: safepoint waiting {ledger.store} {named}",
    )


def _of_workflow(checkpoint: Checkpoint, payload: Payload) -> list[Question]:
    """Return what the end of a workflow's thread asks: as `Workflow.question` of the same code."""
    if payload.asked is None:
        return []
    head, app, tools = Head(checkpoint.sequence, checkpoint.digest), checkpoint.app, payload.tools
    said = Gate().decide(checkpoint, head, had=tools, has=tools, app=app, asked=True)
    return [question_of(checkpoint, head, said, payload, app=app)]


def _of_adapters(kept: list[_Summary]) -> Iterator[Question]:
    """Yield what the records of an adapter ask, and did not continue from, oldest first."""
    states = {each.head: each.graph for each in kept if each.graph}
    for each in kept:
        for text in each.asks:
            yield from _of_graph(text, states)
    yield from _of_agents([each.agents for each in kept if each.agents])


def _of_graph(text: str, states: dict[Head, dict[str, Any]]) -> Iterator[Question]:
    """Yield what a node of LangGraph asks, unless its graph, or one around it, continued."""
    for question in _read(text):
        asks = states.get(question.checkpoint)
        if asks is None:
            return
        ran = {(asks["ns"], asks["id"]), *asks["parents"].items()}
        parts = question.scope.rpartition("#")[0].split("|")
        around = {"|".join(parts[:count]) for count in range(len(parts))}
        since = [
            (graph["ns"], graph["id"])
            for head, graph in states.items()
            if head.sequence > question.checkpoint.sequence
        ]
        if all(space not in around or (space, ident) in ran for space, ident in since):
            yield question


def _of_agents(states: list[dict[str, Any]]) -> Iterator[Question]:
    """Yield what checkpoints of Agent Framework ask, unless one that follows does not.

    Each is the last record of its label: once it is deleted, a note follows.
    """
    asks = {each["checkpoint_id"]: set(each["asks"]) for each in states}
    over = set[str]()
    for each in states:
        before = asks.get(each.get("previous_checkpoint_id", ""), set())
        over |= before - asks[each["checkpoint_id"]]
    for text in dict.fromkeys(text for each in states for text in each["asks"]):
        if text not in over:
            yield from _read(text)


def _search(plain: Any, tag: str) -> Iterator[Any]:
    """Yield what stands behind a tag, wherever that is. No value of an application looks like it.

    The depth was bounded before it was parsed.
    """
    if isinstance(plain, dict) and plain.keys() == {f"${tag}"}:
        yield plain[f"${tag}"]
    elif isinstance(plain, dict | list):
        for each in plain.values() if isinstance(plain, dict) else plain:
            yield from _search(each, tag)


def _read(text: str) -> Iterator[Question]:
    """Yield the question of a text, if it is one: a node may wait for other things as well."""
    with suppress(CheckpointError):
        yield Question.from_text(text)


def _parse(link: Link, data: bytes, ledger: Ledger) -> dict[str, Any]:
    try:
        found = read_as_json(data, ledger.codec.limits)
    except DecodeError:
        raise DecodeError(f"{link.header.place} is sealed but is not a state.", _ELSE) from None
    return found if isinstance(found, dict) else {}
