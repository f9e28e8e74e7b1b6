"""The console's pages: what each path shows, and what each form asks for.

Each request opens the store anew, as the commands do: so it sees the live anchor and those who may
approve now, and no connection is shared between threads. What a page shows was verified for that
page. A form makes a task for the terminal, and signs nothing itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
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

from safepoint._command import counted, status_of
from safepoint.command.desk import Desk, Verb, Wait, beside, where
from safepoint.console import charts, pages
from safepoint.console.html import Html, address, joined, run_address, tag
from safepoint.console.index import Alarm, Filter, Index
from safepoint.console.record import record_of
from safepoint.console.run_page import Form, run_page
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
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    DecodeError,
    InvalidId,
    JournalError,
    NotFound,
    ResumeRefused,
)
from safepoint.core.journal import Entry
from safepoint.core.names import check_name, check_tenant
from safepoint.resume.answers import MAX_WHY, Order
from safepoint.resume.approval import Approver, shown
from safepoint.settings import Store, database_in, is_database

_STYLE: Final = files("safepoint.console").joinpath("style.css").read_bytes()
_ASK: Final = "Ask whoever runs this console: safepoint verify says more there."
_SHORT: Final = 2000  # characters of a question that a terminal shows at once
_FIELDS: Final = 10  # more than any form or address of ours has


class _Asked(NamedTuple):
    """A request, as far as a page needs it: names of its path, its fields, and who asks."""

    path: Mapping[str, str]
    fields: Mapping[str, str]
    user: str


_Handler = Callable[[_Asked], Response]


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
        self._verified: dict[str, pages.Verification] = {}
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
            return self._refused(_told(error, user), _status(error), user)
        except FormUsed as used:
            return self._refused(used.error, _status(used.error), user, used=used)
        except Exception as error:  # noqa: BLE001  whatever it is, the browser is not told
            self._tell(f"A page could not be made: {type(error).__name__}. That is a defect.")
            what = "The console could not make this page."
            failed = ConfigurationError(what, "Look at its terminal, and load the page again.")
            return self._refused(failed, 500, user)

    def _refused(
        self,
        error: CheckpointError,
        status: int,
        user: str,
        about: Subject | None = None,
        used: FormUsed | None = None,
    ) -> Response:
        title = "Nothing is here" if status == 404 else "Refused"
        body = pages.refusal(self._home, status, title, error.what, error.do)
        if about:
            run = run_address(self._home, *about[1:4])
            body = joined(body, tag("p", tag("a", "Back to the run", href=run)))
        if used:
            store, tenant, thread = used.subject[1:4]
            came = run_address(self._home, store, tenant, thread)
            if used.signature or not thread:
                page = ("signature", used.signature) if thread else ("store", store)
                came = address(self._home, *page)
            body = joined(body, tag("p", tag("a", "See what came of it", href=came)))
        return self._page(user, title, body, status=status)

    def _page(
        self, user: str, title: str, body: Html, status: int = 200, **options: Any
    ) -> Response:
        stores = list(self._stores)
        signers = (self._approver, "approves"), (self._operator, "holds")
        who = "; ".join(f"{each.name}, {does}" for each, does in signers if each)
        page = pages.layout(self._home, title, body, user=user, who=who, stores=stores, **options)
        return Response(page, status, media_type="text/html")

    def _named(self, asked: _Asked) -> Subject:
        """Return what a path names, if it is one of the stores."""
        name = asked.path["store"]
        if name not in self._stores:
            raise NotFound(f"This console shows no store {shown(name)}.", "Go back to what waits.")
        tenant = asked.path.get("tenant", self._stores[name].tenant)
        return Subject("verify", name, tenant, asked.path.get("thread", ""))

    @contextmanager
    def _desk(self, subject: Subject, *, write: bool = False) -> Iterator[tuple[Desk, ExitStack]]:
        """Open a store as it is now, in the scope of a tenant."""
        with ExitStack() as stack:
            desk = Desk.open(self._stores[subject.store], stack, write=write)
            yield desk.of(subject.tenant), stack

    # --- look

    def _nothing(self, _: _Asked) -> Response:
        raise NotFound("There is no such page.", "Go back to what waits.")

    def _style(self, _: _Asked) -> Response:
        return Response(_STYLE, media_type="text/css")

    def _waiting(self, asked: _Asked) -> Response:
        """Show what waits, by a filter of values that the index knows."""
        index, choices = self._index, self._index.choices()
        stores, apps, reasons = choices
        known = {"store": stores, "app": apps, "reason": reasons, "state": pages.STATES}
        given = {name: each for name, each in asked.fields.items() if each in known.get(name, ())}
        wanted, refresh = Filter(**given), pages.REFRESH * bool(asked.fields.get("refresh"))
        page = index.page(wanted, _number(asked))
        alarms = [_without_places(each) if asked.user else each for each in index.alarms()]
        told = wanted, index.counts(), alarms, index.status(), choices
        body = pages.waiting(self._home, page, *told, refresh=refresh)
        return self._page(asked.user, "Waiting", body, active="waiting", refresh=refresh or None)

    def _run(self, asked: _Asked) -> Response:
        """Show one run, with a form for each thing that somebody may sign about it."""
        subject = self._named(asked)
        with self._desk(subject) as (desk, stack):
            journal = self._stores[subject.store].journal_of(stack, write=False)
            record = record_of(desk, subject.thread, journal)
            if asked.user:
                record.hide(_placeless)
            names = [each and each.name for each in (self._approver, self._operator)]
            form = self._former(subject) if self._signing else None
            body = run_page(self._home, record, form, *names)
        return self._page(asked.user, f"Run {subject.thread}", body)

    def _journal(self, asked: _Asked) -> Response:
        name = self._named(asked).store
        thread, what = (asked.fields.get(each, "") for each in ("thread", "what"))
        entries: list[Entry] | CheckpointError | None = None
        with ExitStack() as stack:
            try:
                store = self._stores[name]
                journal = store.journal_of(stack, write=False)
                if journal is not None:
                    only, tenant = _filter(thread, store.tenant)
                    entries = list(journal.show(thread=only, what=what or None, tenant=tenant))
            except (JournalError, InvalidId) as error:
                entries = _told(error, asked.user)
        given = self._home, list(self._stores), name, entries
        body = pages.journal(*given, thread=thread, what=what, number=_number(asked))
        return self._page(asked.user, f"Journal of {name}", body, active="journal")

    def _store(self, asked: _Asked) -> Response:
        subject, store = self._named(asked), self._stores[asked.path["store"]]
        last = self._verified.get(subject.store)
        runs = last is not None and last.finished is None
        form = self._forms.hold(subject) if self._signing and not runs else None
        refused: Mapping[str, int] | CheckpointError | None = None
        away: CheckpointError | None = None
        with ExitStack() as stack:
            try:
                Desk.open(store, stack)
            except CheckpointError as error:
                away = _told(error, asked.user)
            try:
                told = store.journal_of(stack, write=False)
                if told is not None:
                    refused = charts.reasons(told.show(tenant=store.tenant))
            except CheckpointError as error:
                refused = _told(error, asked.user)
        store = _by_kind(store) if asked.user else store
        given = store, last, form, self._index.over_time(subject.store), refused, away
        body = pages.store(self._home, list(self._stores), *given)
        title, refresh = f"Health of {subject.store}", 2 if runs else None
        return self._page(asked.user, title, body, active="store", refresh=refresh)

    # --- verify

    def _verify(self, asked: _Asked) -> Response:
        """Begin to verify a store, unless somebody is at it."""
        subject = self._forms.take(asked.fields.get("form", ""), "verify")
        with self._lock:
            last = self._verified.get(subject.store)
            if last is None or last.finished is not None:
                self._verified[subject.store] = pages.Verification(0, 0, 0, datetime.now(UTC))
                Thread(target=self._verify_all, args=(subject,), daemon=True).start()
        return RedirectResponse(f"{self._home}/store/{subject.store}", 303)

    def _verify_all(self, subject: Subject) -> None:
        """Verify each thread of a store, with each signature, its journal and its answers."""
        name, done, of, also, alarms, found = subject.store, 0, 0, "", 0, list[Alarm]()

        def tell(finished: datetime | None = None) -> None:
            told = self._verified[name]._replace(done=done, of=of, alarms=alarms, beside=also)
            self._verified[name] = told._replace(finished=finished, found=tuple(found))

        def refuse(error: Exception, tenant: str = "", thread: str = "") -> None:
            nonlocal alarms
            alarms += 1
            if alarms <= pages.ALARMS:
                is_ours = isinstance(error, CheckpointError)
                text = str(error) if is_ours else "It could not be verified."
                found.append(Alarm(name, tenant, thread, type(error).__name__, text))

        try:
            with self._desk(subject) as (whole, stack):
                threads = [
                    (desk, each) for desk in whole.scopes() for each in desk.ledger.threads()
                ]
                of = len(threads)
                for desk, thread in threads:
                    tell()
                    if self._closed.is_set():
                        return
                    try:
                        desk.ledger.verify(thread, every_signature=True)
                    except CheckpointError as refused:
                        refuse(refused, desk.ledger.tenant_name, thread)
                    done += 1
                for part, told in beside(self._stores[name], stack):
                    if isinstance(told, CheckpointError):
                        refuse(told)
                    else:
                        count = counted(told, "entry").replace("ys", "ies")
                        also += f", {part.lower()} with {count}"
        except Exception as failed:  # noqa: BLE001  of a thread that nobody waits for
            refuse(failed)
        tell(datetime.now(UTC))

    # --- sign

    def _former(self, run: Subject) -> Form:
        """Return what makes forms about a run: each for one thing that its page shows."""

        def form(about: Wait | Order | str, act: str) -> str:
            subject = run._replace(act=cast(Act, act))
            if isinstance(about, Wait):
                subject = subject._replace(question=about.question)
            elif isinstance(about, Order):
                subject = subject._replace(hold=about.hold)
            return self._forms.hold(subject)

        return form

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
        if verb == "hold" and not why.strip():
            raise InvalidId("A hold needs a reason.", "Nothing was signed. Go back, and say why.")
        subject = self._forms.take(form, verb)._replace(why=why)
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
        try:
            task.check()
        except CheckpointError as error:
            return self._refused(error, _status(error), asked.user, about=subject)
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
            desk.standing(subject.question, cast(Verb, subject.act), name)

    def _signed(self, subject: Subject, person: Approver, why: str) -> Signed:
        """Verify once more, sign the very question that was shown, and put it with the answers."""
        with self._desk(subject, write=True) as (desk, _):
            run, name = where(desk.ledger, subject.thread), person.name
            because = f" The reason: {shown(why)}." if why else ""
            put = " It was put with the answers, where workers look."
            if desk.answers is None:
                put = " There is no place for answers: carry the signed text to a worker."
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
        self._index.look_again(subject.store, subject.tenant, subject.thread)
        return done

    def _signature(self, asked: _Asked) -> Response:
        """Show how far a signature is, until it is done."""
        found = self._signing and self._signing.state(asked.path["id"])
        if not found:
            raise NotFound("This console knows no such signature.", "Go back to what waits.")
        body = pages.signature(self._home, found)
        refresh = 2 if found.state in ("waiting", "asked") else None
        return self._page(asked.user, "Signature", body, refresh=refresh)


def _filter(given: str, tenant: str) -> tuple[str | None, str]:
    """Return the thread and the tenant that somebody typed, `order-7` or `@acme/order-7`.

    Raises:
        InvalidId: it is no such name, or that of another tenant than the store is shown for.
    """
    owner, slash, thread = given.rpartition("/")
    try:
        if slash and (owner[:1] != "@" or tenant not in ("", check_tenant(owner[1:]))):
            check_name("thread", given)  # which it is not
        return check_name("thread", thread) if given else None, owner[1:] or tenant
    except InvalidId:
        what = f"That is no thread's name: {shown(given)}."
        raise InvalidId(what, "Write order-7, or @acme/order-7 for a tenant's.") from None


def _number(asked: _Asked) -> int:
    """Return the number of the page that is asked for, or the first."""
    given = asked.fields.get("page", "")
    return int(given) if given.isdecimal() and len(given) < 7 else 1


def _about(subject: Subject, signer: Signer, why: str) -> Iterator[str]:
    """Say in lines what is to be signed: all of a short question. None can pass for another."""
    yield f"{subject.act.upper()}, as {signer.name}"
    described = subject.question.described if subject.question else []
    if 0 < len("\n".join(described)) <= _SHORT:
        yield from described
    else:
        if subject.question is not None:
            yield f"action: {shown(subject.question.action)}"
            yield f"arguments: {len(subject.question.arguments)}, too long for here: see the page"
        yield f"thread: {subject.thread}"
        yield f"tenant: {subject.tenant or '(none)'}"
        yield f"store: {subject.store}"
    if subject.hold:
        yield f"hold: {subject.hold}"
    if why:
        yield f"reason: {shown(why)}"


# --- for those who come through a proxy: no path of this machine, no host of a database


def _told(error: CheckpointError, user: str) -> CheckpointError:
    """Return an error as a page tells it. What is not possible now names places."""
    if not user or (_status(error) != 503 and _placeless(str(error)) == str(error)):
        return error
    what, do = f"It could not be looked at ({type(error).__name__}).", _ASK
    return ConfigurationError(what, do)


def _without_places(alarm: Alarm) -> Alarm:
    if alarm.thread or alarm.error == DecodeError.__name__:
        return alarm._replace(text=_placeless(alarm.text))
    return alarm._replace(text=f"{alarm.store} could not be looked at. {_ASK}")


def _placeless(text: str) -> str:
    """Return a text, unless it names a path."""
    return f"It could not be looked at. {_ASK}" if "/" in text else text


def _by_kind(store: Store) -> Store:
    given = {name: getattr(store, name) for name in ("storage", "anchor", "answers", "journal")}
    kinds: dict[str, Any] = {
        name: "SQLite" if is_database(database_in(path)) else "files"
        for name, path in given.items()
        if path
    }
    return replace(store, **kinds)


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
    """Return what HTTP calls an error: asked for wrongly, refused, or not possible now."""
    if isinstance(error, InvalidId | NotFound):
        return 404 if isinstance(error, NotFound) else 400
    return 409 if status_of(error) == 1 else 503
