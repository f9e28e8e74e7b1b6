"""What is signed: forms that are for one use, and the terminal where a key is unlocked for each.

A page carries the id of a form and nothing else. What it stands for, the very question that was
shown, stays here. Anyone who sends the form back makes a task; the terminal that started the
console says what is to be signed, asks for the passphrase and signs. The key is unlocked for that
one signature and nothing keeps it.
"""

from __future__ import annotations

import os
import secrets
import select
import sys
import termios  # before there are threads: a Ctrl-C in an import can stop those of others for ever
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from threading import Lock
from typing import Final, Literal, NamedTuple

from safepoint.core.errors import ApprovalRefused, CheckpointError, LimitExceeded, ResumeRefused
from safepoint.core.names import digest_of, with_tenant
from safepoint.resume.approval import Approver, Question
from safepoint.shared.terminal import no_echo, rows, unlock

Act = Literal["approve", "deny", "hold", "release"]
MOST: Final = 1000
"""How many forms are kept, and how many signatures."""
PER_RUN: Final = 128
"""How many forms of one run are kept, so that a run that asks much leaves those of others."""
KEPT: Final = 30 * 60
"""For how many seconds a form may be sent."""
QUEUE: Final = 20
"""How many tasks may wait for the terminal."""
PATIENCE: Final = 120
"""For how many seconds the terminal waits for a passphrase, at each of three tries."""


def new_id() -> str:
    """Return 128 random bits, as a path may spell them."""
    return secrets.token_hex(16)


class Subject(NamedTuple):
    """What a form stands for: what was shown, and the one thing that it may ask for.

    Attributes:
        act: what may be done with it.
        store: the name of the store.
        tenant: whose thread it is, or "".
        thread: the thread.
        question: the very question that the page showed, for an answer to it.
        hold: the digest of the hold that the page showed, for its release.
        why: the reason that was given, once the form was sent.
    """

    act: Act
    store: str
    tenant: str
    thread: str
    question: Question | None = None
    hold: str = ""
    why: str = ""

    @property
    def digest(self) -> str:
        """The digest of what was shown, "" if there is none."""
        return digest_of(self.question.text.encode()) if self.question else self.hold


class _Form(NamedTuple):
    subject: Subject
    until: float
    is_used: bool = False
    signature: str = ""


class FormUsed(Exception):
    """A form that was sent before.

    Attributes:
        subject: what it stands for.
        signature: the id of what it asked for, or "".
        error: the same for people.
    """

    def __init__(self, form: _Form) -> None:
        self.subject, self.signature = form.subject, form.signature
        self.error = ResumeRefused(
            "This form was sent before: by a double click, from another tab, or from an old page.",
            "It counted once. Look at the run again.",
        )


class Forms:
    """The forms that pages carry by their ids. Each is taken once."""

    def __init__(self) -> None:
        self._kept: dict[str, _Form] = {}
        self._lock = Lock()

    def hold(self, subject: Subject) -> str:
        """Keep what a page shows, and return the id to take it by."""
        made, now = new_id(), time.monotonic()
        with self._lock:
            for old in [each for each, form in self._kept.items() if form.until < now]:
                del self._kept[old]
            run = [each for each, form in self._kept.items() if form.subject[1:4] == subject[1:4]]
            for old in run[: max(0, len(run) + 1 - PER_RUN)] or list(self._kept)[: 1 - MOST]:
                del self._kept[old]
            self._kept[made] = _Form(subject, now + KEPT)
        return made

    def take(self, form: str, act: str) -> Subject:
        """Return what a form stands for. It is used from now on, whatever comes of it.

        Raises:
            FormUsed: it was taken before.
            ResumeRefused: there is none, or it is for something else.
        """
        with self._lock:
            found = self._kept.get(form)
            if found is None or found.until < time.monotonic() or found.subject.act != act:
                raise ResumeRefused(
                    "This console knows no such form: it is from before a restart, older than"
                    f" {KEPT // 60} minutes, or from before its run was opened many times more.",
                    "Nothing was signed. Look at the run again.",
                )
            if found.is_used:
                raise FormUsed(found)
            self._kept[form] = found._replace(is_used=True)
            return found.subject

    def led_to(self, form: str, signature: str) -> None:
        """Say which signature a form that was taken has asked for."""
        with self._lock:
            if form in self._kept:
                self._kept[form] = self._kept[form]._replace(signature=signature)


class Signer(NamedTuple):
    """A key that signs: its id, the file where it stays locked, and whose it is in each store."""

    key: str
    file: str
    names: Mapping[str, str]


class Signed(NamedTuple):
    """What came of a task.

    Attributes:
        line: a sentence about it.
        text: what was signed, or "".
        before: when a worker has to have found it, or None.
    """

    line: str = ""
    text: str = ""
    before: datetime | None = None


_NOTHING: Final = Signed()


class Task(NamedTuple):
    """Something to sign.

    Attributes:
        subject: what it is about.
        about: the same for people, in lines: the terminal shows them.
        by: who signs, as the store calls them.
        file: where their key stays locked.
        check: refuses what must not be signed, before anybody is asked for a passphrase.
        sign: verifies, signs and puts it.
    """

    subject: Subject
    about: tuple[str, ...]
    by: str
    file: str
    check: Callable[[], object]
    sign: Callable[[Approver], Signed]


Phase = Literal["waiting", "asked", "signed", "refused", "unknown"]
_BEFORE: Final = ApprovalRefused, ResumeRefused  # raised before it is signed
_UNKNOWN: Final = (
    "It may be signed. Look at the run: if what you said is not there, sign it again. The same"
    " answer, signed twice, counts once."
)


class Signature(NamedTuple):
    """A task, and how far it is.

    Attributes:
        subject: what it is about.
        by: who signs.
        state: whether it waits for the terminal, is asked for there, was signed, or was not; or
            it failed at a point where it may be signed.
        said: what came of it.
        place: how many are asked for until this one is, itself included.
    """

    subject: Subject
    by: str
    state: Phase = "waiting"
    said: Signed = _NOTHING
    place: int = 1


class Signing:
    """What waits to be signed on the terminal, one after the other."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tasks: deque[tuple[str, Task]] = deque()
        self._known: dict[str, Signature] = {}
        self._lines: deque[str] = deque(maxlen=QUEUE)
        self._ended = False
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    # --- for the pages

    def ask(self, task: Task) -> str:
        """Let a task wait for the terminal, and return its id.

        Raises:
            LimitExceeded: too many wait there.
        """
        with self._lock:
            if len(self._tasks) >= QUEUE:
                raise LimitExceeded(
                    f"{QUEUE} things wait to be signed on the terminal.",
                    "Nothing was signed. Type the passphrase there, or end them, and try again.",
                )
            made = new_id()
            while len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            self._known[made] = Signature(task.subject, task.by)
            self._tasks.append((made, task))
        self._rouse()
        return made

    def state(self, signature: str) -> Signature | None:
        """Return how far a task is, None if there is no such task."""
        with self._lock:
            found = self._known.get(signature)
            queue = [each for each, _ in self._tasks]
        if found is None or signature not in queue:
            return found
        return found._replace(place=queue.index(signature) + 2)

    def tell(self, line: str) -> None:
        """Print a line on the terminal, when nobody is being asked there."""
        self._lines.append(line)
        self._rouse()

    def end(self) -> None:
        """Let `serve` return."""
        self._ended = True
        self._rouse()

    def _rouse(self) -> None:
        with suppress(BlockingIOError):  # it is awake
            os.write(self._wake, b"!")

    # --- for the main thread, which has the terminal

    def serve(self, entered: Callable[[], object]) -> None:
        """Sign what pages ask for, until the terminal is closed or `end` is called.

        All that time the terminal shows nothing of what is typed: a passphrase that somebody types
        too early, or continues with when nobody waits for it any more, is one all the same.

        Args:
            entered: what to do when somebody presses Enter and was not asked.
        """
        with no_echo(0):
            self._serve(entered)

    def _serve(self, entered: Callable[[], object]) -> None:
        while not self._ended:
            # A signal may come to another thread: what it asks for is done after a look.
            ready, _, _ = select.select([0, self._woken], [], [], 1)
            if 0 in ready:
                if not _read_away():
                    return
                entered()
            if self._woken in ready:
                os.read(self._woken, 4096)
            while self._lines:
                _print(self._lines.popleft())
            while self._tasks and not self._ended:
                self._serve_one(*self._tasks.popleft())

    def _serve_one(self, made: str, task: Task) -> None:
        self._note(made, "asked")
        _print("", *task.about)
        state: Phase = "refused"  # what is wrong before it is signed
        try:
            task.check()
            person = self._unlocked(task)
            task.check()  # while somebody typed, much may have happened
            state = "unknown"
            said = task.sign(person)
            state = "signed"
        except Exception as error:  # noqa: BLE001  the next one is to be signed all the same
            line = f"It failed ({type(error).__name__})."
            if isinstance(error, CheckpointError):
                line = str(error)
            if isinstance(error, _BEFORE):
                state = "refused"
            said = Signed(f"{line} {_UNKNOWN}" if state == "unknown" else line)
        _print(said.line)
        self._note(made, state, said)

    def _unlocked(self, task: Task) -> Approver:
        """Unlock the key for one signature. Each prompt names what that is for."""
        act, _, tenant, thread, *_ = task.subject
        does = f"{act.upper()} {with_tenant(tenant, thread)}"
        lines = f"{task.by} signs: {does}", f"digest: {task.subject.digest or '(none)'}"
        what = "\n".join(row for line in lines for row in rows(line, 2))
        return Approver(task.by, unlock(task.file, what, within=PATIENCE))

    def _note(self, made: str, state: Phase, said: Signed = _NOTHING) -> None:
        with self._lock:
            if made in self._known:
                self._known[made] = self._known[made]._replace(state=state, said=said)


def _print(*lines: str) -> None:
    """Print lines of which none can pass for another."""
    print(*(row for line in lines for row in rows(line, 2)), sep="\n", file=sys.stderr)


def _read_away() -> bool:
    """Forget what was typed to nobody, and return whether there is still a terminal."""
    try:
        typed = os.read(0, 4096)
        termios.tcflush(0, termios.TCIFLUSH)
    except OSError:
        return False
    return bool(typed)
