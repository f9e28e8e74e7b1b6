"""The console's pages: what each path shows, and what each form asks for.

Each request opens the store again, as the commands do: so it sees the live anchor and those who may
approve now and no connection is shared between threads. What a page shows was verified for that
page. A form makes a task for the terminal and signs nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.resources import files
from typing import Any, Final, NamedTuple, cast, get_args
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router, request_response
from starlette.types import Receive, Scope, Send

from safepoint.console.index import Index, Sort, Spot
from safepoint.console.pages import as_shown, render, run_address
from safepoint.console.record import record_of
from safepoint.console.signing import Act, Forms, FormUsed, Signed, Signer, Signing, Subject, Task
from safepoint.core.errors import (
    ApprovalRefused,
    CheckpointError,
    ConfigurationError,
    InvalidId,
    NotFound,
    ResumeRefused,
)
from safepoint.core.names import with_tenant
from safepoint.places import Store
from safepoint.resume.answers import MAX_WHY, Order
from safepoint.resume.approval import Approver, shown
from safepoint.shared.desk import Desk, Role, State, Verb, Wait
from safepoint.shared.terminal import status_of

_STYLE: Final = files("safepoint.console").joinpath("style.css").read_bytes()
_SHORT: Final = 2000  # characters of a question that a terminal shows at once
_FIELDS: Final = 10  # more than any form or address of ours has
_FIND: Final = 200  # characters of a search
_REFRESH: Final = 30
_SORTS: Final[tuple[Sort, ...]] = get_args(Sort)


class _Input(NamedTuple):
    """A request, as far as a page needs it: names of its path, and its fields."""

    path: Mapping[str, str]
    fields: Mapping[str, str]


_Handler = Callable[[_Input], Response]


class Console:
    """The pages, and what they share: the stores, the index, the forms, and who signs.

    Args:
        stores: each store, by its name.
        index: what waits in them.
        signing: the terminal.
        approver: whose key answers, None if nobody's.
        operator: whose key holds and releases, None if nobody's.
    """

    def __init__(
        self,
        stores: Mapping[str, Store],
        index: Index,
        signing: Signing,
        approver: Signer | None = None,
        operator: Signer | None = None,
    ) -> None:
        self._stores, self._index, self._signing = stores, index, signing
        self._approver, self._operator, self._forms = approver, operator, Forms()
        self.move("")

    def move(self, home: str) -> None:
        """Put all paths below a home."""
        self._home = home
        paths: list[tuple[str, _Handler, str]] = [
            ("/", partial(self._listed, "waiting"), "GET"),
            ("/held", partial(self._listed, "held"), "GET"),
            ("/done", self._done, "GET"),
            ("/run/{store}/{thread}", self._run, "GET"),
            ("/run/{store}/@{tenant}/{thread}", self._run, "GET"),
            ("/sign", self._sign, "POST"),
            ("/signature/{id}", self._signature, "GET"),
            ("/style.css", self._style, "GET"),
        ]
        self._routes = Router(
            [Route(home + path, self._endpoint(act), methods=[how]) for path, act, how in paths],
            redirect_slashes=False,
            default=request_response(self._endpoint(self._nothing)),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that a door let in."""
        await self._routes(scope, receive, send)

    # --- how each request is answered

    def _endpoint(self, act: _Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            is_form = request.method == "POST"
            given = await request.body() if is_form else request.scope["query_string"]
            return await run_in_threadpool(self._answered, act, request, given)

        return endpoint

    def _answered(self, act: _Handler, request: Request, given: bytes) -> Response:
        """Return a page in any case. What is wrong inside is said on the terminal alone."""
        try:
            return act(_Input(request.path_params, _fields(given)))
        except FormUsed as used:
            came = run_address(self._home, *used.subject[1:4])
            if used.signature:
                came = f"{self._home}/signature/{used.signature}"
            return self._refused(used.error, came=came)
        except CheckpointError as error:
            return self._refused(error)
        except Exception as error:  # noqa: BLE001  whatever it is, the browser is not told
            what = f"A page could not be made: {type(error).__name__}. That is a defect."
            self._signing.tell(what)
            what = "The console could not make this page."
            failed = ConfigurationError(what, "Look at its terminal, and load the page again.")
            return self._refused(failed, 500)

    def _refused(self, error: CheckpointError, status: int = 0, **links: str) -> Response:
        """Return a page that says why something is not shown or not done."""
        number = status or _status(error)
        title, given = "Nothing is here" if number == 404 else "Refused", {"run": "", "came": ""}
        return self._page("refusal", title, number, error=error, **{**given, **links})

    def _page(self, name: str, title: str, status: int = 200, **given: Any) -> Response:
        """Return a page, with who signs here, and how many runs wait and are held."""
        signers = (self._approver, "approves"), (self._operator, "holds")
        named = [(dict.fromkeys(key.names.values()), does) for key, does in signers if key]
        who = "; ".join(f"{' or '.join(names)}, {does}" for names, does in named)
        frame = {"signers": who, "counts": self._index.counts(), "status": status}
        page = render(name, self._home, title, **{**frame, **given})
        return Response(page, status, media_type="text/html")

    def _named(self, asked: _Input) -> Subject:
        """Return what a path names, if it is one of the stores."""
        name = asked.path["store"]
        if name not in self._stores:
            raise NotFound(f"This console shows no store {shown(name)}.", "Go back to what waits.")
        tenant = asked.path.get("tenant", self._stores[name].tenant)
        return Subject("hold", name, tenant, asked.path["thread"])

    @contextmanager
    def _desk(self, subject: Subject, *, write: bool = False) -> Iterator[Desk]:
        """Open a store as it is now, in the scope of a tenant."""
        with ExitStack() as stack:
            yield Desk.open(self._stores[subject.store], stack, write=write).of(subject.tenant)

    # --- look

    def _nothing(self, _: _Input) -> Response:
        raise NotFound("This page does not exist.", "Go back to what waits.")

    def _style(self, _: _Input) -> Response:
        return Response(_STYLE, media_type="text/css")

    def _listed(self, state: State, asked: _Input) -> Response:
        """Show what waits or is held, below what does not verify."""
        number, find = asked.fields.get("page", ""), _find(asked)
        order = next((each for each in _SORTS if each == asked.fields.get("order")), _SORTS[0])
        number = number if re.fullmatch("[0-9]{1,6}", number) else "1"
        page = self._index.page(state, int(number), find, order)
        alarms, status = self._index.alarms(), self._index.status()
        dark = [each for each in alarms if not each.spot.thread or each.error == "LimitExceeded"]
        return self._page(
            *("waiting", state.capitalize()),
            active=state,
            page=page,
            find=find,
            order=order,
            looked=status,
            dark=dark,
            broken=[each for each in alarms if each not in dark],
            is_calm=status.finished is not None and not alarms,
            refresh=_REFRESH * bool(asked.fields.get("refresh")),
        )

    def _done(self, asked: _Input) -> Response:
        """Show what was answered, or ended."""
        find = _find(asked)
        rows, unread = self._index.done(find)
        return self._page(
            *("done", "Done"),
            active="done",
            rows=rows,
            unread=unread,
            find=find,
            looked=self._index.status(),
            mine=dict.fromkeys(self._approver.names.values()) if self._approver else {},
        )

    def _run(self, asked: _Input) -> Response:
        """Show one run, with a form for each thing that somebody may sign about it."""
        subject = self._named(asked)
        with self._desk(subject) as desk:
            return self._page(
                *("run", f"Run {subject.thread}"),
                record=record_of(desk, subject.thread),
                form=self._former(subject),
                who=self._named_in(desk, self._approver, "approver"),
                operator=self._named_in(desk, self._operator, "operator"),
                next=self._next(subject),
            )

    def _named_in(self, desk: Desk, signer: Signer | None, what: Role) -> str:
        """Return what a store calls anyone who signs here, "" if they may not."""
        with suppress(ApprovalRefused):
            return desk.owner(signer.key, what) if signer else ""
        return ""

    def _next(self, subject: Subject) -> Spot | None:
        """Return the run to answer after another."""
        names = self._approver.names if self._approver else {}
        return self._index.next(Spot(*subject[1:4]), names)

    # --- sign

    def _former(self, run: Subject) -> Callable[[Wait | Order | str, Act], str]:
        """Return what makes forms about a run: each for one thing that its page shows."""

        def form(about: Wait | Order | str, act: Act) -> str:
            subject = run._replace(act=act)
            if isinstance(about, Wait):
                subject = subject._replace(question=about.question)
            elif isinstance(about, Order):
                subject = subject._replace(hold=about.hold)
            return self._forms.hold(subject)

        return form

    def _sign(self, asked: _Input) -> Response:
        """Take a form, look whether it may be signed, and let it wait for the terminal."""
        form, verb, why = (asked.fields.get(each, "") for each in ("form", "verb", "why"))
        if len(why) > MAX_WHY:
            raise InvalidId(
                f"The reason has {len(why)} characters, but only {MAX_WHY} are allowed.",
                "Nothing was signed. Go back and say it in fewer words.",
            )
        if verb == "hold" and not why.strip():
            raise InvalidId("A hold needs a reason.", "Nothing was signed. Go back and say why.")
        subject = self._forms.take(form, verb)._replace(why=why)
        what: Role = "operator" if subject.question is None else "approver"
        signer = self._operator if what == "operator" else self._approver
        if signer is None:
            raise ConfigurationError("Nothing is signed here.", f"Start it with the {what}'s key.")
        with self._desk(subject) as desk:
            name = desk.owner(signer.key, what)
        acts = partial(self._check, subject, signer.key), partial(self._signed, subject)
        task = Task(subject, tuple(_about(subject, name)), name, signer.file, *acts)
        try:
            task.check()
        except CheckpointError as error:
            return self._refused(error, run=run_address(self._home, *subject[1:4]))
        made = self._signing.ask(task)
        self._forms.led_to(form, made)
        return RedirectResponse(f"{self._home}/signature/{made}", 303)

    def _check(self, subject: Subject, key: str) -> None:
        """Refuse what must not be signed, or would mean nothing.

        Raises:
            ApprovalRefused: they may not any more, the run has moved on, or they said so before.
            CheckpointError: another reason.
        """
        with self._desk(subject) as desk:
            if subject.question is None:
                desk.owner(key, "operator")
                holds = [each.hold for each in desk.holds(desk.thread(subject.thread))]
                if subject.act == "release" and subject.hold not in holds:
                    raise ResumeRefused(
                        f"That hold of {subject.thread} has been released already.",
                        "Nothing was signed. Look at the run again.",
                    )
                return
            name = desk.owner(key, "approver")
            desk.recheck(subject.question, cast(Verb, subject.act), name)

    def _signed(self, subject: Subject, person: Approver) -> Signed:
        """Verify again, sign the very question that was shown and put it with the answers."""
        with self._desk(subject, write=True) as desk:
            run = with_tenant(subject.tenant, subject.thread)
            name, why = person.name, subject.why
            because = f" The reason: {shown(why)}." if why else ""
            put = " It was put with the answers, where workers look."
            if subject.question is not None:
                question, verb = subject.question, cast(Verb, subject.act)
                signed = desk.answer(question, verb, person, why=why)
                said = f"{name} {signed.verdict} {shown(question.action)} in {run}."
                before = signed.expires if verb == "approve" else None
                done = Signed(said + because + put, signed.text, before)
            elif subject.act == "hold":
                order = desk.hold(subject.thread, person, why=why)
                said = f"Held by {name}: {run}. No step runs until it is released."
                done = Signed(said + because + put, order.text)
            else:
                order = desk.release(subject.thread, person, subject.hold)
                said = f"Released by {name}: {run}."
                with suppress(CheckpointError):  # it is released, whatever this says
                    said += f" Holds that are left: {len(desk.holds(subject.thread))}."
                done = Signed(said + put, order.text)
        self._index.look_again(Spot(*subject[1:4]))
        return done

    def _signature(self, asked: _Input) -> Response:
        """Show how far a signature is, until it is done."""
        found = self._signing.state(asked.path["id"])
        if found is None:
            raise NotFound("This console knows no such signature.", "Go back to what waits.")
        refresh = 2 if found.state in ("waiting", "asked") else 0
        follows = None if refresh else self._next(found.subject)
        return self._page("signature", "Signature", found=found, refresh=refresh, next=follows)


def _about(subject: Subject, name: str) -> Iterator[str]:
    """Say in lines what is to be signed: all of a short question. None can pass for another."""
    yield f"{subject.act.upper()}, as {name}"
    described = subject.question.described if subject.question else []
    if 0 < len("\n".join(described)) <= _SHORT:
        yield from described
    else:
        if subject.question is not None:
            yield f"action: {shown(subject.question.action)}"
            yield f"arguments: {len(subject.question.arguments)}, see the page"
        yield f"thread: {subject.thread}"
        yield f"tenant: {subject.tenant or '(none)'}"
        yield f"store: {subject.store}"
    if subject.hold:
        yield f"hold: {subject.hold}"
    if subject.why:
        yield f"reason: {shown(subject.why)}"


def _fields(given: bytes) -> dict[str, str]:
    """Return the fields of a form or an address, each once.

    Raises:
        InvalidId: it is no such text.
    """
    try:
        pairs = parse_qsl(
            given.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(given),
            errors="strict",
            max_num_fields=_FIELDS,
        )
    except ValueError:
        pairs = [("", ""), ("", "")]
    if len(dict(pairs)) != len(pairs):
        raise InvalidId("That is not a form of this console.", "Nothing was done. Go back.")
    return dict(pairs)


def _find(asked: _Input) -> str:
    """Return what somebody searches for, as lists show it."""
    return as_shown(asked.fields.get("find", "")[:_FIND])


def _status(error: CheckpointError) -> int:
    """Return what HTTP calls an error: asked for wrongly, refused, or not possible now."""
    if isinstance(error, InvalidId | NotFound):
        return 404 if isinstance(error, NotFound) else 400
    return 409 if status_of(error) == 1 else 503
