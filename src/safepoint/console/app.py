"""The console's pages: what each path shows, and what each form asks for.

Every request opens the store anew, as the commands do, so that it sees the live anchor and those
who may approve now, and no connection is shared between threads. What a page shows was verified for
that page. A form makes a task for the terminal, and signs nothing itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from threading import Event, Lock, Thread
from typing import Any, Final, cast
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router, request_response

from safepoint._command import status_of
from safepoint.answers import MAX_WHY, Order
from safepoint.approval import Approver, shown
from safepoint.console import pages
from safepoint.console.html import Html
from safepoint.console.index import Filter, Index
from safepoint.console.record import record_of
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
from safepoint.desk import Desk, Verb, Wait
from safepoint.errors import (
    ApprovalSpent,
    CheckpointError,
    ConfigurationError,
    InvalidId,
    NotFound,
    quoted,
)
from safepoint.settings import Store

Fields = Mapping[str, str]
_MOST_FIELDS: Final = 10
_STYLE: Final = files("safepoint.console").joinpath("style.css").read_text(encoding="utf-8")


@dataclass
class Verification:
    """A store that is being verified, or was: how far that is, and what it found."""

    of: int = 0
    done: int = 0
    alarms: list[tuple[str, str]] = field(default_factory=list)
    finished: datetime | None = None


class Console:
    """What the pages share: the stores, the index, the forms, and who signs.

    Args:
        stores: each store, by its name.
        index: what waits in them.
        signing: the terminal, None if nothing is signed here.
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
        self._approver, self._operator = approver, operator
        self._forms, self._home = Forms(), ""
        self._verified: dict[str, Verification] = {}
        self._lock, self._closed = Lock(), Event()

    def routes(self, home: str) -> Router:
        """Return the paths below the home."""
        self._home = home
        return Router(
            [
                self._route("/", self._waiting),
                self._route("/run/{store}/{thread}", self._run),
                self._route("/run/{store}/@{tenant}/{thread}", self._run),
                self._route("/sign", self._sign, "POST"),
                self._route("/signature/{id}", self._signature),
                self._route("/journal/{store}", self._journal),
                self._route("/store/{store}", self._store),
                self._route("/store/{store}/verify", self._verify, "POST"),
                self._route("/style.css", self._style),
            ],
            redirect_slashes=False,
            default=request_response(self._endpoint(self._nothing)),
        )

    def close(self) -> None:
        """End what works in the background."""
        self._closed.set()

    def _route(self, path: str, act: _Handler, method: str = "GET") -> Route:
        return Route(self._home + path, self._endpoint(act), methods=[method])

    def _endpoint(self, act: _Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            given = await request.body() if request.method == "POST" else request.url.query.encode()
            return await run_in_threadpool(self._answered, act, request, given)

        return endpoint

    def _answered(self, act: _Handler, request: Request, given: bytes) -> Response:
        """Return a page in any case: what is wrong inside is said on the terminal alone."""
        user = request.scope.get("state", {}).get("user", "")
        try:
            return act(_Asked(request.path_params, _fields(given), user))
        except FormUsed as error:
            again = self._path_of(error.subject)
            if error.signature:
                again = f"{self._home}/signature/{error.signature}"
            return self._refused(error, 409, user, again)
        except CheckpointError as error:
            return self._refused(error, _status(error), user)
        except Exception as error:
            self._signing.tell(f"A page failed: {type(error).__name__}. {_DEFECT}")
            failed = ConfigurationError("The console could not make this page.", "Look again.")
            return self._refused(failed, 500, user)

    def _page(self, title: str, body: Html, user: str, status: int = 200, **options: Any) -> Response:
        page = pages.layout(self._home, title, body, user=user, **options)
        return Response(page, status, media_type="text/html")

    # --- look

    def _waiting(self, asked: _Asked) -> Response:
        choices = self._index.choices()
        wanted = Filter(**{n: v for n, v in asked.fields.items() if n in Filter._fields})
        page = self._index.page(wanted, _number(asked.fields.get("page", "")))
        ...

    @contextmanager
    def _desk(self, subject: Subject, *, write: bool = False) -> Iterator[Desk]:
        """Open a store as it is now, in the scope of a tenant."""
        with ExitStack() as stack:
            opened = Desk.open(self._stores[subject.store], stack, write=write)
            yield opened.of(subject.tenant)

    # --- sign

    def _sign(self, asked: _Asked) -> Response:
        """Make a task for the terminal, of a form that was taken now."""
        form, act, why = (asked.fields.get(name, "") for name in ("form", "verb", "why"))
        if len(why) > MAX_WHY:
            ...
        subject = self._forms.take(form, act)
        task = self._task(subject, why)
        task.check()
        made = self._signing.ask(task)
        self._forms.led_to(form, made)
        return RedirectResponse(f"{self._home}/signature/{made}", 303)
