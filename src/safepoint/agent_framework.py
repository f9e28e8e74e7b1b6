"""Microsoft Agent Framework checkpoints in a ledger: sealed, anchored and without pickle.

One workflow name is one thread of the ledger, each checkpoint is a state, and its id is the label.
A note with the same label marks a deleted checkpoint. So the newest record of a label says whether
the checkpoint still exists, and a walk from the verified end of the thread finds that record first.
A note, `spent/`, holds signed answers; the journal says whether they were used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import MISSING, fields, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, takewhile
from typing import Any, Final, get_args, get_origin
from uuid import uuid4

from safepoint.aio import Tenanted, for_one, half_moved, in_thread, remember
from safepoint.core.codec import Codec, Converter
from safepoint.core.errors import (
    ApprovalRefused,
    ConfigurationError,
    EncodeError,
    NotFound,
    NotOwner,
    SealBroken,
    missing,
    quoted,
)
from safepoint.core.ledger import Ledger, Link, with_codec
from safepoint.core.names import Head, thread_name, thread_text
from safepoint.resume.approval import QUESTION, Question, Reason, end_of, signable
from safepoint.resume.asking import Approved, Asking, check_askable, check_held, check_wait
from safepoint.resume.gate import Gate, ToolSet

try:
    import agent_framework as af
except ImportError as _missing:
    raise missing(
        "This needs agent-framework-core, 1.19 or newer.", "agent-framework"
    ) from _missing

__all__ = ["NotCheckpointed", "SealedCheckpointStorage"]

_DICTS: Final = {"messages", "pending_request_info_events"}
_APP: Final = "agent-framework"
_REOPENED: Final = 16  # questions that a checkpoint carries on after their answers were refused
_STATES: Final = "_executor_state"  # the key of the executors' data in a checkpoint's state


class NotCheckpointed(BaseException):
    """A checkpoint was not saved, so the run stops. Its cause says why.

    It is not an Exception or a CheckpointError, because the framework only logs an Exception of
    `save` and continues a run that cannot be resumed. Catch it where you call `Workflow.run`.
    """


class SealedCheckpointStorage(Tenanted):
    """Keeps Agent Framework's checkpoints in a ledger, as its `CheckpointStorage`.

    ```python
    import asyncio

    from agent_framework import WorkflowCheckpoint

    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.agent_framework import SealedCheckpointStorage

    keys = Keyring(SigningKey.generate())
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
    storage = SealedCheckpointStorage(ledger)


    async def main():
        one = WorkflowCheckpoint("payments", "graph", state={"amount": 42})
        await storage.save(one)
        latest = await storage.get_latest(workflow_name="payments")
        print(latest.state)
        #> {'amount': 42}


    asyncio.run(main())
    ```

    A refused read raises a `CheckpointError`. `Workflow.run` wraps it into the framework's
    `WorkflowCheckpointException`, as its cause.

    Args:
        ledger: the ledger. Of its codec, only the limits are used.
        types: your dataclasses, Enums and pydantic models that a checkpoint may contain, as for
            `Codec`. The framework's own types are known.
        gate: who may answer when an executor calls `ask`.
        tenant: returns the tenant whose request is being served, such as the `get` of a ContextVar
            that you set where you authenticate requests. Each operation calls it and sees only that
            tenant's workflows.

    Raises:
        ConfigurationError: a type could not be restored faithfully, or two have one name; or there
            is a `tenant`, and the ledger is of one already.
        Unsafe: an approver's key is on the keyring of the ledger.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        types: Iterable[type] | Mapping[str, type] = (),
        gate: Gate | None = None,
        tenant: Callable[[], str] | None = None,
    ) -> None:
        own = types if isinstance(types, Mapping) else list(types)
        codec = Codec(own, converters=_converters(own), limits=ledger.codec.limits)
        self.types: Final = list(own.values() if isinstance(own, Mapping) else own)
        super().__init__(with_codec(ledger, codec), tenant)
        self.gate: Final = gate or Gate()
        self.gate.check_apart(ledger.keys)
        self._workflow: str | None = None
        # Ids of questions by tenant and by the checkpoint that asks: those that each run answered
        # there, and those that are carried on to it.
        self._answered: Final[dict[tuple[str, str], list[list[str]]]] = {}
        self._open: Final[dict[tuple[str, str], list[str]]] = {}

    def scope(self, workflow_name: str) -> SealedCheckpointStorage:
        """Return this storage for one workflow: no id finds another workflow's checkpoint.

        `load` and `delete` get only an id, so without a scope they search every workflow of the
        ledger. Use it for a workflow whose checkpoint ids come from outside or that asks people.
        """
        scoped = copy(self)
        scoped._workflow = workflow_name  # noqa: SLF001 - the same class
        return scoped

    # --- the framework's protocol

    async def save(self, checkpoint: af.WorkflowCheckpoint) -> str:
        """Seal a checkpoint and return its id. When this returns, it is durable.

        A checkpoint that delivers the answer to an `ask` is not saved: this returns the id of the
        previous one, which still asks. Otherwise a forged answer would block the run for good.

        Raises:
            NotCheckpointed: it was refused; or it is saved, but an operator holds the thread.
        """
        try:
            return await self._aside(partial(self._save, checkpoint))
        except Exception as error:
            raise NotCheckpointed(f"The run stops here. {error}") from error

    @for_one
    def _save(self, checkpoint: af.WorkflowCheckpoint) -> str:
        before = checkpoint.previous_checkpoint_id or ""
        whose = self.ledger.tenant_name, before
        thread = self._thread(checkpoint.workflow_name)
        if whose[0] and before and not self._has(thread, before):
            raise ConfigurationError(
                f"The tenant {whose[0]} has no checkpoint that this one follows.",
                "Build a workflow for each request: Agent Framework keeps what one run of it did"
                " for the next.",
            )
        answered = [
            str(event.request_id)
            for message in chain.from_iterable(checkpoint.messages.values())
            if (event := getattr(message, "original_request_info_event", None))
            and isinstance(event.data, Question)
        ]
        if before and answered:
            runs = [each for each in self._answered.get(whose, ()) if each != answered]
            remember(self._answered, whose, [*runs, answered][-_REOPENED:])
            return before
        checkpoint = self._reopen(checkpoint, whose)
        if not before:  # not after an incomplete move, which could not finish then
            next(self._links(thread), None)
        label = thread_name(checkpoint.checkpoint_id)
        self.ledger.save(thread, _flatten(checkpoint), app=_APP, label=label)
        check_held(self.gate, self.ledger, thread)  # it is saved, but no other step starts
        return checkpoint.checkpoint_id

    def _reopen(
        self, checkpoint: af.WorkflowCheckpoint, before: tuple[str, str]
    ) -> af.WorkflowCheckpoint:
        """Return a checkpoint with the questions that the framework has dropped.

        It drops a request once it is answered, even if the answer is then refused. If a run starts
        again in the same process, its answer was refused; if it continues, the answer counted. Of
        two runs that answer one checkpoint, one may have continued: what it no longer asks is over.
        Only the last questions are carried on, or each run whose answer was refused would add one.
        """
        runs, pending = self._answered.get(before, []), checkpoint.pending_request_info_events
        names = dict.fromkeys([*self._open.get(before, ()), *chain.from_iterable(runs)])
        if not names or (asked := self._find(before[1])) is None:
            return checkpoint
        past, events = {*pending}, _read(asked).pending_request_info_events
        if checkpoint.iteration_count:  # it continues after the last answer that it asks no more
            counted = [each for each in runs if past.isdisjoint(each)]
            past.update(*counted[-1:])
        since = takewhile(lambda link: link.label != asked.label, self._links(asked.header.thread))
        for found in map(_read, since):
            if found.previous_checkpoint_id == before[1]:
                past.update(events.keys() - found.pending_request_info_events)
        waiting = [name for name in names if name in events.keys() - past][-_REOPENED:]
        remember(self._open, (before[0], checkpoint.checkpoint_id), waiting)
        opened = {name: events[name] for name in waiting}
        return replace(checkpoint, pending_request_info_events=pending | opened)

    @in_thread
    @for_one
    def load(self, checkpoint_id: str) -> af.WorkflowCheckpoint:
        """Return the checkpoint with an id, after verifying each link from the newest one to it.

        Raises:
            WorkflowCheckpointException: there is none, or an operator holds the workflow. Its lists
                and `get_latest` still show it.
            CheckpointError: the checkpoint, or a record on the way to it, does not verify.
        """
        if (link := self._find(checkpoint_id)) is None:
            raise af.WorkflowCheckpointException(
                f"No checkpoint has the id {quoted(checkpoint_id)}. Check the id. It may"
                " have been deleted, or be another workflow's."
            )
        try:
            check_held(self.gate, self.ledger, link.header.thread)
        except NotOwner as error:
            raise af.WorkflowCheckpointException(str(error)) from error
        return _read(link)

    @in_thread
    @for_one
    def list_checkpoints(self, *, workflow_name: str) -> list[af.WorkflowCheckpoint]:
        """Return each checkpoint of a workflow, verified, oldest first."""
        return [_read(link) for link in self._links(self._thread(workflow_name))][::-1]

    @in_thread
    @for_one
    def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return their ids, oldest first."""
        links = self._links(self._thread(workflow_name))
        # The label is the id, unless the id is too long for one.
        return [thread_text(link.label) or _read(link).checkpoint_id for link in links][::-1]

    @in_thread
    @for_one
    def get_latest(self, *, workflow_name: str) -> af.WorkflowCheckpoint | None:
        """Return the newest checkpoint of a workflow, verified; None if there is none.

        It never falls back to an older one. It takes as long for many checkpoints as for few.

        Raises:
            CheckpointError: it does not verify, or does not extend what the anchor has seen.
        """
        return next(map(_read, self._links(self._thread(workflow_name))), None)

    @in_thread
    @for_one
    def delete(self, checkpoint_id: str) -> bool:
        """Mark a checkpoint as deleted with a sealed note; False if there is none.

        From then on it is not found, but it is not erased: anyone who can read the store can read
        it. Erase old ones with `Ledger.prune`, a workflow with `Ledger.delete` and `Ledger.erase`.

        Raises:
            NotOwner: an operator holds the workflow.
        """
        if (link := self._find(checkpoint_id)) is not None:
            check_held(self.gate, self.ledger, link.header.thread)
            self.ledger.note(link.header.thread, {"deleted": link.sequence}, label=link.label)
        return link is not None

    # --- ask people

    async def ask(
        self,
        executor: af.Executor,
        ctx: af.WorkflowContext[Any, Any],
        action: str,
        arguments: Mapping[str, Any],
        *,
        within: timedelta | None = None,
    ) -> None:
        """Ask people in an executor, like `ctx.request_info`, with a question that they sign.

        The data of the request is a `Question`. Answer it with the result of `Approver.approve`, or
        with a list of such texts; or with "", if the gate knows where people put their answers.
        Always answer from the checkpoint that asks:
        `Workflow.run(checkpoint_id=..., responses={request.request_id: text})`.

        Args:
            executor: the executor that asks: `self`. It has a response handler for
                `(Question, object)`, which calls `answered` and acts.
            ctx: the handler's context.
            action: what will be done, as one word.
            arguments: a few plain values for the action.
            within: how long people may take, from the newest checkpoint on. After that `answered`
                raises ResumeRefused.

        Raises:
            NotOwner: an operator holds the thread.
            ConfigurationError: nobody may approve, or nothing is written down; or this is not the
                storage, in the `scope` of the workflow, that its checkpoints are saved in.
        """
        question = await self._aside(partial(self._question, executor, action, arguments, within))
        await ctx.request_info(question, object, request_id=question.scope)

    @in_thread
    @for_one
    def answered(self, executor: af.Executor, question: Question, answer: object) -> Approved:
        """Spend signed answers in the response handler, and return what people approved.

        When this returns, the answer is spent: sealed and anchored. Act in the same handler, with
        the returned arguments. If the handler runs again after a crash, it gets the same arguments
        and the same idempotency key.

        Args:
            executor: the executor that asked and acts: `self`.
            question: the handler's request.
            answer: the handler's response.

        Raises:
            ResumeRefused: somebody said no, or the wait has ended. Catch it, if the workflow goes
                on without.
            NotOwner: an operator holds the thread.
            ApprovalNeeded: more people have to approve it.
            ApprovalRefused: the answer does not count, or the run continued since. If not, the
                checkpoint that asks still waits for one that does.
        """
        place, asked, left = self._place(executor), question.checkpoint, set[str | None]()
        since = takewhile(lambda link: link.sequence > asked.sequence, self._links(place["thread"]))
        if replace(question, **place) != question or not any(
            _asks(_read(link), question) for link in since
        ):
            raise ApprovalRefused(
                f"No checkpoint of the workflow {quoted(self._workflow)} has this question of"
                f" {executor.id}.",
                "Nothing was done. Make the executor ask again: storage.ask(self, ctx, ...).",
            )

        def is_over(link: Link) -> bool:
            """Tell whether the run continued from a checkpoint that asks to one that does not.

            Links come newest first, so `left` has a checkpoint before its own link comes.
            """
            if link.kind != "state" or link.header.app != _APP:
                return False
            found = _read(link)
            is_asked = _asks(found, question)
            if not is_asked:
                left.add(found.previous_checkpoint_id)
            return is_asked and found.checkpoint_id in left

        return Asking(self.ledger, self.gate, question, is_over).use(answer)

    def _place(self, executor: af.Executor) -> dict[str, Any]:
        """Return the fields that all questions of an executor share."""
        if self._workflow is None:
            raise ConfigurationError(
                f"{executor.id} asks people, and this storage is for any workflow.",
                'Write storage = storage.scope("payments"), with the name of the workflow that has'
                " the checkpoints, and use that for it and for its executors.",
            )
        return {
            "store": self.ledger.store,
            "tenant": self.ledger.tenant_name,
            "thread": thread_name(self._workflow),
            "app": _APP,
            "tools": ToolSet().digest,
            "reasons": (Reason.ASKED.value,),
            "next": executor.id,
        }

    @for_one
    def _question(
        self,
        executor: af.Executor,
        action: str,
        arguments: Mapping[str, Any],
        within: timedelta | None,
    ) -> Question:
        place = self._place(executor)
        check_askable(self.gate, self.ledger, "An executor")
        if not executor.is_request_supported(Question, object):
            raise ConfigurationError(
                f"{executor.id} asks people but has no handler for what they answer.",
                "Write @response_handler async def pay(self, question: Question, answer: object,"
                " ctx: WorkflowContext).",
            )
        try:
            link = next(self.ledger.back(place["thread"]))
        except NotFound:
            raise ConfigurationError(
                f"{executor.id} asks people, but no checkpoint of the workflow"
                f" {quoted(self._workflow)} is saved.",
                "Write WorkflowBuilder(name=..., checkpoint_storage=storage), with this very"
                " storage and the name of its scope.",
            ) from None
        check_wait(within)
        check_held(self.gate, self.ledger, place["thread"])
        at, asked = Head(link.sequence, link.digest), signable(action, dict(arguments))
        self.ledger.log.write("pause", "done", place["thread"], at, action)
        return Question(
            **place,
            checkpoint=at,
            head=at,
            action=action,
            arguments=asked,
            scope=str(uuid4()),  # so that two runs that ask the same have different questions
            until=end_of(datetime.fromisoformat(link.header.created), within) if within else "",
        )

    @for_one
    def unsigned(self, checkpoint: af.WorkflowCheckpoint) -> dict[str, Any]:
        """Return another storage's checkpoint in this format, as fields of an `Unsigned`."""
        thread, state = self._thread(checkpoint.workflow_name), _flatten(checkpoint)
        label = thread_name(checkpoint.checkpoint_id)
        return {"thread": thread, "state": state, "app": _APP, "label": label}

    # --- threads and links

    def _thread(self, workflow_name: str) -> str:
        if self._workflow not in (None, workflow_name):
            raise ConfigurationError(
                f"This storage belongs to the workflow {quoted(self._workflow)}, not to"
                f" {quoted(workflow_name)}.",
                "Give each workflow the storage.scope() of its own name.",
            )
        return thread_name(workflow_name)

    def _has(self, thread: str, checkpoint_id: str) -> bool:
        """Tell whether a checkpoint was saved here, even if it was deleted later.

        It may be in another thread: Agent Framework names a workflow without a name again each
        time.
        """
        label = thread_name(checkpoint_id)
        with suppress(NotFound):
            if any(link.label == label for link in self.ledger.back(thread)):
                return True
        return self._find(checkpoint_id) is not None

    def _links(self, thread: str) -> Iterator[Link]:
        """Yield the checkpoints that are not deleted, newest first, each verified by the walk."""
        seen: set[str] = set()
        try:
            for number, link in enumerate(self.ledger.back(thread)):
                ours = link.kind == "state" and link.header.app == _APP
                if ours and not number and link.state.get("left"):
                    raise half_moved(thread)
                if ours and link.label not in seen:
                    yield link
                seen.add(link.label)
        except NotFound:
            if seen:  # a race with a prune; otherwise the thread does not exist
                raise

    def _find(self, checkpoint_id: str) -> Link | None:
        """Return the link with an id. Only the walk can show that it was not deleted later."""
        label, scope = thread_name(checkpoint_id), self._workflow
        names = self.ledger.threads() if scope is None else [thread_name(scope)]
        found = (link for name in names for link in self._links(name) if link.label == label)
        return next(found, None)


def _asks(checkpoint: af.WorkflowCheckpoint, question: Question) -> bool:
    """Tell whether a question is open in a checkpoint, or in a nested workflow's checkpoint."""
    events = checkpoint.pending_request_info_events.values()
    inner = chain.from_iterable(map(dict.values, checkpoint.state.get(_STATES, {}).values()))
    return any(question == event.data for event in events) or any(
        _asks(each, question) for each in inner if isinstance(each, af.WorkflowCheckpoint)
    )


# --- values


def _read(link: Link) -> af.WorkflowCheckpoint:
    """Return the checkpoint in a record, if it belongs to the record's place."""
    data = {name: each for name, each in link.state.items() if name != "left"}  # from a move
    checkpoint = af.WorkflowCheckpoint.from_dict(data)
    name, thread = thread_name(checkpoint.workflow_name), link.header.place.thread
    if name != thread or thread_name(checkpoint.checkpoint_id) != link.label:
        raise SealBroken(
            f"{thread} #{link.sequence} holds a checkpoint of another workflow or id.",
            "It was not written by this storage. Find out what else has the key.",
        )
    return checkpoint


def _flatten(checkpoint: af.WorkflowCheckpoint) -> dict[str, Any]:
    """Return its fields, some as dicts, because the framework does not check their types."""
    data = _take_fields(checkpoint)
    return data | {name: dict(data[name]) for name in _DICTS & data.keys()}


def _take_attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of a framework's message.

    Its `to_dict` would omit values without a JSON form and write times as text. The service's
    `raw_representation` is omitted, as in the framework's own storages.
    """
    return {
        name: each
        for name, each in vars(value).items()
        if each is not None and name[0] != "_" and name != "raw_representation"
    }


def _take_response(response: af.AgentResponse[Any]) -> dict[str, Any]:
    value = response.value
    return _take_attributes(response) | ({} if value is None else {"value": value})


def _take_fields(value: Any) -> dict[str, Any]:
    """Return the fields that differ from their default, so that a release may add one."""
    return {
        field.name: each
        for field in fields(value)
        if (each := getattr(value, field.name)) is not field.default
        and (field.default_factory is MISSING or each != field.default_factory())
    }


def _take_message(message: af.WorkflowMessage) -> dict[str, Any]:
    return {k: v for k, v in message.to_dict().items() if v is not None or k == "data"}


def _by_name(cls: type, to: Callable[[Any], Any] = _take_fields) -> Converter:
    return _converter(cls, to, lambda saved: cls(**saved))


def _converter(cls: type, to: Callable[[Any], Any], from_: Callable[[Any], Any]) -> Converter:
    return Converter(f"af.{cls.__name__}", cls, to, from_)


def _converters(types: list[type] | Mapping[str, type]) -> list[Converter]:
    """Return a converter for each type of the framework."""
    named = types if isinstance(types, Mapping) else {cls.__name__: cls for cls in types}
    plain = [
        *(_by_name(cls, _take_attributes) for cls in (af.Message, af.Content)),
        _by_name(af.AgentResponse, _take_response),
        *map(_by_name, (af.AgentExecutorRequest, af.AgentExecutorResponse)),
        *map(_by_name, (af.SubWorkflowRequestMessage, af.SubWorkflowResponseMessage)),
        _converter(af.WorkflowMessage, _take_message, af.WorkflowMessage.from_dict),
        Converter(QUESTION, Question, lambda question: question.text, Question.from_text),
    ]
    known: tuple[Any, ...] = (*Codec().types, object, Any)
    answers: dict[str, Any] = {cls.__name__: cls for cls in known} | {"...": ...} | dict(named)
    answers |= {each.tag: each.cls for each in plain}
    tags = {cls: tag for tag, cls in answers.items()}

    def tag_type(expected: Any) -> list[Any]:
        """Return the tag of a type, and the tags of its type arguments."""
        tag = tags.get(get_origin(expected) or expected)
        if tag is None:
            name = getattr(expected, "__name__", None)
            raise EncodeError(
                f"is a request for an answer of the type {quoted(expected)}, which is not listed.",
                f"Register it: types=[{name}]."
                if isinstance(expected, type)
                else "Ask for one type, such as bool, or a dataclass that you list.",
            )
        return [tag, *map(tag_type, get_args(expected))]

    def find_type(tag: str, *of: list[Any]) -> Any:
        return answers[tag][tuple(find_type(*each) for each in of)] if of else answers[tag]

    def take_event(event: af.WorkflowEvent[Any]) -> dict[str, Any]:
        """Return the fields of a pending request, with the tag of its answer's type."""
        return {
            "request_id": event.request_id,
            "source_executor_id": event.source_executor_id,
            "request_data": event.data,
            "response_type": tag_type(event.response_type),
        }

    def make_event(saved: dict[str, Any]) -> af.WorkflowEvent[Any]:
        expected = find_type(*saved["response_type"])
        return af.WorkflowEvent.request_info(**saved | {"response_type": expected})

    nested = _converter(af.WorkflowCheckpoint, _flatten, af.WorkflowCheckpoint.from_dict)
    return [*plain, _converter(af.WorkflowEvent, take_event, make_event), nested]
