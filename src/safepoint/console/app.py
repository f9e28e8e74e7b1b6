"""The console's pages: what each path shows, and what each form asks for.

Each request opens the store anew, as the commands do: so it sees the live anchor and those who may
approve now, and no connection is shared between threads. What a page shows was verified for that
page. A form makes a task for the terminal, and signs nothing itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple, cast
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router, request_response
from starlette.types import Receive, Scope, Send

from safepoint._command import status_of
from safepoint.answers import MAX_WHY
from safepoint.approval import Approver, shown
from safepoint.console import pages
from safepoint.console.html import Html, run_address
from safepoint.console.index import Filter, Index
from safepoint.console.record import Record, record_of
from safepoint.console.run_page import run_page
from safepoint.console.signing import (
    Act,
    Forms,
    FormUsed,
    Signed,
    Signer,
    Signing,
    Subject,
    Task,
)
from safepoint.desk import Desk, Verb, where
from safepoint.errors import (
    ApprovalSpent,
    CheckpointError,
    ConfigurationError,
    InvalidId,
    NotFound,
    ResumeRefused,
)
from safepoint.names import digest_of
from safepoint.settings import Store

_STYLE: Final = files("safepoint.console").joinpath("style.css").read_bytes()
_FIELDS: Final = 10  # more than any form or address of ours has


class _Asked(NamedTuple):
    """A request, as far as a page needs it: names of its path, its fields, and who asks."""

    path: Mapping[str, str]
    fields: Mapping[str, str]
    user: str


_Handler = Callable[[_Asked], Response]


class Verification(NamedTuple):
    """A store that is being verified, or was: how far that is, and what it found."""

    begun: datetime
    of: int = 0
    done: int = 0
    records: int = 0
    alarms: tuple[str, ...] = ()
    finished: datetime | None = None


class Console:
    """The pages, and what they share: the stores, the index, the forms, and who signs.

    Args:
        stores: each store, by its name.
        index: what waits in them.
        tell: prints a line for whoever started the console.
        signing: the terminal, None if nothing is signed here.
        approver: whose key answers, None if nobody's.
        operator: whose key holds and releases, None if nobody's.
    """

    def __init__(
        self,
        stores: Mapping[str, Store],
        index: Index,
        tell: Callable[[str], None],
        signing: Signing | None = None,
        approver: Signer | None = None,
        operator: Signer | None = None,
    ) -> None:
        self._stores, self._index, self._tell = stores, index, tell
        self._signing, self._approver, self._operator = signing, approver, operator
        self._forms, self._lock, self._closed = Forms(), Lock(), Event()
        self._verified: dict[str, Verification] = {}
        self.move("")

    def move(self, home: str) -> None:
        """Put all paths below a home."""
        self._home = home
        paths: list[tuple[str, _Handler, str]] = [
            ("/", self._waiting, "GET"),
            ("/run/{store}/{thread}", self._run, "GET"),
            ("/run/{store}/@{tenant}/{thread}", self._run, "GET"),
            ("/sign", self._sign, "POST"),
            ("/signature/{id}", self._signature, "GET"),
            ("/journal/{store}", self._journal, "GET"),
            ("/store/{store}", self._store, "GET"),
            ("/store/{store}/verify", self._verify, "POST"),
            ("/style.css", self._style, "GET"),
        ]
        self._routes = Router(
            [Route(home + path, self._endpoint(act), methods=[how]) for path, act, how in paths],
            redirect_slashes=False,
            default=request_response(self._endpoint(self._nothing)),
        )

    def start(self) -> None:
        """Begin to look for what waits."""
        self._index.start()

    def close(self) -> None:
        """End what works in the background."""
        self._closed.set()
        self._index.close()

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
        user = request.scope.get("state", {}).get("user", "")
        try:
            return act(_Asked(request.path_params, _fields(given), user))
        except CheckpointError as error:
            return self._refused(error, _status(error), user)
        except Exception as error:
            self._tell(f"A page could not be made: {type(error).__name__}. That is a defect.")
            what = "The console could not make this page."
            error = ConfigurationError(what, "Look at its terminal, and load the page again.")
            return self._refused(error, 500, user)

    def _refused(self, error: CheckpointError, status: int, user: str) -> Response:
        ...

    def _page(self, user: str, title: str, body: Html, **options: Any) -> Response:
        status = options.pop("status", 200)
        page = pages.layout(self._home, title, body, user=user, **options)
        return Response(page, status, media_type="text/html")

    def _named(self, asked: _Asked) -> Subject:
        """Return what a path names, if it is one of the stores."""
        name = asked.path["store"]
        if name not in self._stores:
            raise NotFound(f"This console shows no store {shown(name)}.", "Go back to what waits.")
        tenant = asked.path.get("tenant", "")
        return Subject("verify", name, tenant, asked.path.get("thread", ""))

    @contextmanager
    def _desk(self, subject: Subject, *, write: bool = False) -> Iterator[tuple[Desk, ExitStack]]:
        """Open a store as it is now, in the scope of a tenant."""
        with ExitStack() as stack:
            desk = Desk.open(self._stores[subject.store], stack, write=write)
            yield desk.of(subject.tenant), stack

    # --- sign

    def _form(self, subject: Subject) -> str | None:
        """Return the id of a form for something that this console may be asked for."""
        signer = self._signer(subject.act)
        return None if signer is None else self._forms.hold(subject)

    def _signer(self, act: Act) -> Signer | None:
        return self._approver if act in ("approve", "deny") else self._operator

    def _sign(self, asked: _Asked) -> Response:
        """Take a form, look whether it may be signed, and let it wait for the terminal."""
        form, verb, why = (asked.fields.get(each, "") for each in ("form", "verb", "why"))
        if len(why) > MAX_WHY:
            raise InvalidId(
                f"The reason has {len(why)} characters, and {MAX_WHY} are allowed.",
                "Nothing was signed. Go back, and say it in fewer words.",
            )
        subject = self._forms.take(form, verb)
        signer = self._signer(subject.act)
        if self._signing is None or signer is None:
            raise ConfigurationError("Nothing is signed here.", "Start it with --key.")
        task = Task(
            subject,
            tuple(_about(subject, signer, why)),
            signer,
            lambda: self._check(subject, signer.name),
            lambda person: self._signed(subject, person, why),
        )
        task.check()
        made = self._signing.ask(task)
        self._forms.led_to(form, made)
        return RedirectResponse(f"{self._home}/signature/{made}", 303)

    def _check(self, subject: Subject, name: str) -> None:
        """Refuse what must not be signed, or would mean nothing.

        Raises:
            ApprovalSpent: the run has moved on since, or they said so before.
            CheckpointError: another reason.
        """
        with self._desk(subject) as (desk, _):
            if subject.question is None:
                holds = [each.hold for each in desk.holds(desk.thread(subject.thread))]
                desk.ordering(name)
                if subject.act == "release" and subject.hold not in holds:
                    raise ResumeRefused(
                        f"That hold of {subject.thread} has been released already.",
                        "Nothing was signed. Look at the run again.",
                    )
                return
            verb = cast(Verb, subject.act)
            wait = desk.standing(subject.question, verb, name)
            if why := Record(desk, subject.thread, [], {}).stops(wait, verb, name):
                raise ApprovalSpent(why, "Nothing was signed. Look at the run again.")

    def _signed(self, subject: Subject, person: Approver, why: str) -> Signed:
        """Verify once more, sign the very question that was shown, and put it with the answers."""
        with self._desk(subject, write=True) as (desk, _):
            run, name = where(desk.ledger, subject.thread), person.name
            if subject.question is not None:
                question, verb = subject.question, cast(Verb, subject.act)
                signed = desk.answer(question, verb, person, why=why)
                said = [f"{name} {signed.verdict} {shown(question.action)} in {run}."]
                if desk.answers is None:
                    said.append("There is no place for answers: carry the signed text to a worker.")
                elif verb == "approve":
                    said.append(
                        f"A worker has to find it before {signed.expires:%Y-%m-%d %H:%M} UTC."
                    )
                text = signed.text
            elif subject.act == "hold":
                text = desk.hold(subject.thread, person, why=why).text
                said = [f"Held by {name}: {run}. No step runs until it is released."]
            else:
                left = desk.release(subject.thread, person, subject.hold)
                said, text = [f"Released by {name}: {run}. Holds that are left: {len(left)}."], ""
        self._index.look_again(subject.store, subject.tenant, subject.thread)
        return Signed(tuple(said), text)


def _about(subject: Subject, signer: Signer, why: str) -> Iterator[str]:
    """Say in lines what is to be signed. None of them can pass for another."""
    yield f"{subject.act.upper()}, as {signer.name}"
    if subject.question is not None:
        yield f"action: {shown(subject.question.action)}"
    yield f"thread: {subject.thread}"
    yield f"tenant: {subject.tenant or '(none)'}"
    yield f"store: {subject.store}"
    if subject.question is not None:
        yield f"digest: {digest_of(subject.question.text.encode())}"
    if subject.hold:
        yield f"hold: {subject.hold}"
    if why:
        yield f"reason: {shown(why)}"


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
        raise InvalidId("That is no form of this console.", "Nothing was done. Go back.")
    return dict(pairs)


def _status(error: CheckpointError) -> int:
    """Return what HTTP calls an error."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, InvalidId):
        return 400
    return 409 if status_of(error) == 1 else 503
