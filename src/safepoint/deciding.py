"""People at a terminal: what waits, a signed yes or no, a hold, a release, and who may.

An approver runs none of the worker's code: a question is read from verified records. It is shown in
full before it is signed, and looked for once more right before that. Where there is no terminal to
show it on, whoever signs names the digest of what they saw. The default answer is no.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from safepoint import _files, settings
from safepoint._command import keyring_of
from safepoint.answers import Answers, held
from safepoint.approval import Approval, Approver, Approvers, Question, Reason, shown
from safepoint.errors import (
    ApprovalError,
    ApprovalMismatch,
    ApprovalSpent,
    ApprovalUntrusted,
    CheckpointError,
    ConfigurationError,
    KeyRefused,
    NotFound,
    ResumeRefused,
    ThreadDeleted,
    WaitEnded,
    quoted,
    shell,
)
from safepoint.gate import Gate
from safepoint.keys import SigningKey, VerifyingKey
from safepoint.ledger import Ledger
from safepoint.names import check_name, digest_of, thread_name
from safepoint.places import default_locations
from safepoint.questions import open_questions

_NO_ANSWERS: Final = "Name them in its settings: answers and answers-anchor."
_MORE: Final = "    | "  # before what goes on from the row above, so that it passes for no other


def commands(sub: Any) -> None:
    """Add the commands for people who approve, deny, hold and release."""
    listing = _parser(sub, "waiting", _waiting, "list the runs that wait for people")
    listing.add_argument("--tenant", metavar="NAME", default="", help="those of this tenant alone")
    listing.add_argument("thread", metavar="THREAD", nargs="?", help="that of one thread alone")
    listing.add_argument("--full", action="store_true", help="show all of each question")
    for name, what in (("approve", "a yes to"), ("deny", "a no to")):
        run = _approve if name == "approve" else _deny
        one = _parser(sub, name, run, f"sign {what} what a run asks, with your own key")
        _person(one)
        one.add_argument("--digest", metavar="SHA256", help="of the question: waiting --full")
        if name == "deny":
            one.add_argument("--reason", default="", metavar="TEXT", help="why, for people")
    holding = _parser(sub, "hold", _hold, "hold a run: no worker goes on with it")
    _person(holding)
    holding.add_argument("--reason", required=True, metavar="TEXT", help="why, for people")
    releasing = _parser(sub, "release", _release, "end the hold of a run")
    _person(releasing)
    releasing.add_argument("--digest", metavar="SHA256", help="which hold, if there are several")
    who = "list or add those who may approve, or hold runs"
    people = sub.add_parser("people", help=who, description=f"{who.capitalize()}.")
    inner = people.add_subparsers(metavar="COMMAND", required=True)
    _parser(inner, "list", _people, "list those who may, with the ids of their keys")
    adding = _parser(inner, "add", _add, "let somebody approve, by their public key")
    adding.add_argument("person", metavar="PERSON", help="their name")
    adding.add_argument("file", metavar="FILE", help="their public key")
    adding.add_argument("--operator", action="store_true", help="let them hold runs instead")
    removing = _parser(inner, "remove", _remove, "end what somebody may do: their key is revoked")
    removing.add_argument("person", metavar="PERSON", help="their name")
    removing.add_argument("--operator", action="store_true", help="as one who holds runs")


def _parser(sub: Any, name: str, run: Callable[[Any], int], what: str) -> argparse.ArgumentParser:
    about = f"{what[:1].upper()}{what[1:]}."
    parser: argparse.ArgumentParser = sub.add_parser(name, help=what, description=about)
    parser.add_argument("store", metavar="NAME", help="the name of the store")
    parser.add_argument("--config", metavar="FILE", help="settings, in place of those found")
    parser.set_defaults(run=run, tenant="")
    return parser


def _person(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenant", metavar="NAME", default="", help="whose thread it is")
    parser.add_argument("thread", metavar="THREAD", help="the thread, as waiting lists it")
    parser.add_argument("--as", dest="person", required=True, metavar="PERSON", help="your name")
    parser.add_argument("--key", required=True, metavar="FILE", help="your own secret key")


class _Wait(NamedTuple):
    """A question that waits, in the ledger of its tenant, since when, and what people said."""

    ledger: Ledger
    question: Question
    since: datetime
    said: list[str]

    @property
    def digest(self) -> str:
        return digest_of(self.question.text.encode())

    def lines(self, *, full: bool) -> Iterator[str]:
        asked = self.question
        left = asked.left()
        until = datetime.fromisoformat(asked.until) if asked.until else None
        end = f"until {until:%Y-%m-%d %H:%M} UTC" if until else "for as long as nobody answers"
        late = left is not None and left <= timedelta(0)
        yield f"{_where(self.ledger, asked.thread)} wants {shown(asked.action)}"
        yield f"    since {self.since:%Y-%m-%d %H:%M} UTC, {end}{', which is over' * late}"
        yield from (f"    {each}" for each in self.said)
        if full:
            yield from (f"    {each}" for each in asked.described)
            yield f"    digest: {self.digest}"


@dataclass(frozen=True, slots=True)
class _Desk:
    """A store that is open for reading, and the place of its answers, which may be for writing.

    Attributes:
        ledger: the store.
        answers: where people put what they sign, or None.
        gate: who may approve and hold.
        settings: a line that says which file says so, if one does.
    """

    ledger: Ledger
    answers: Answers | None
    gate: Gate
    settings: str

    @classmethod
    def open(cls, options: argparse.Namespace, stack: ExitStack, *, write: bool = False) -> _Desk:
        told = settings.read(options.config, "change" if write else "look")
        store = told.to_change(options.store) if write else told.store(options.store)
        ledger, answers = store.opened(stack), store.answers_of(stack, write=write)
        gate = store.gate_of(answers) or Gate()
        gate.check_apart(ledger.keys)
        if options.tenant and options.tenant != ledger.tenant_name:
            ledger = ledger.tenant(options.tenant)
        return cls(ledger, answers, gate, told.line(options.store))

    def thread(self, named: str) -> str:
        """Return a thread that there is, by its name here or by its id in a framework."""
        for name in dict.fromkeys((named, thread_name(named))):
            if name in self.ledger.threads():
                return name
        raise NotFound(
            f"There is no thread {quoted(named)} in {_where(self.ledger)}.",
            "Name it as safepoint waiting lists it, and --tenant if it is a tenant's.",
        )

    def waits(self, thread: str) -> list[_Wait]:
        """Return what a thread waits for, once all of it was verified, with its live anchor."""
        questions = open_questions(self.ledger, thread)
        if not questions:
            return []
        self.ledger.verify(thread, every_signature=True)
        times = {link.opened.head: link.header.created for link in self.ledger.back(thread)}
        return [
            _Wait(
                self.ledger,
                each,
                datetime.fromisoformat(times[each.checkpoint]),
                [*self._said(each), *self._holds(thread)],
            )
            for each in questions
        ]

    def _said(self, question: Question) -> Iterator[str]:
        """Say how many people approved, and who said no."""
        needed = self.gate.policy.needs(Reason.ASKED)
        if self.answers is None:
            yield f"{needed} yes needed, and there is no place for answers to look into"
            return
        answers = self.answers.about(question, self.gate.people)
        yes = sorted({each.approver for each in answers if self._counts(each)})
        by = f", of {', '.join(yes)}" if yes else ""
        yield f"{len(yes)} of {needed} yes{by}"
        for each in answers:
            if each.verdict == "denied":
                yield f"denied by {each.approver}{f': {shown(each.why)}' if each.why else ''}"

    def _counts(self, answer: Approval) -> bool:
        with suppress(ApprovalError):
            answer.check_time(datetime.now(answer.issued.tzinfo), self.gate.policy.lifetime)
            return answer.verdict == "approved" and answer.key not in self.gate.people.revoked
        return False

    def _holds(self, thread: str) -> Iterator[str]:
        if self.answers is not None:
            store, tenant, people = self.ledger.store, self.ledger.tenant_name, self.gate.operators
            orders = self.answers.orders(store, thread, people, tenant=tenant)
            yield from (f"held by {each.by}: {shown(each.why)}" for each in held(orders, people))


def _where(ledger: Ledger, thread: str = "") -> str:
    tenant = f" of the tenant {ledger.tenant_name}" if ledger.tenant_name else ""
    return f"{thread or ledger.store}{tenant}"


# --- look


def _waiting(options: argparse.Namespace) -> int:
    waits, alarms = list[_Wait](), list[str]()
    with ExitStack() as stack:
        desk = _Desk.open(options, stack)
        scopes = [desk.ledger, *map(desk.ledger.tenant, desk.ledger.tenants())]
        for ledger in scopes:
            for thread in ledger.threads():
                if options.thread not in (None, thread):
                    continue
                try:
                    waits += replace(desk, ledger=ledger).waits(thread)
                except ThreadDeleted:
                    continue
                except CheckpointError as error:
                    kind = type(error).__name__
                    alarms.append(f"ALARM: {_where(ledger, thread)}: {kind}: {error}")
    for wait in sorted(waits, key=lambda each: (each.question.until or "9999", each.since)):
        for line in wait.lines(full=options.full):
            print("\n".join(_rows(line, 1)))
    for alarm in alarms:
        print("\n".join(_rows(alarm, 1)))
    if not waits:
        print(f"Nothing {'else ' * bool(alarms)}waits in {options.store}.")
    return 1 if alarms else 0


# --- sign


def _approve(options: argparse.Namespace) -> int:
    return _answer(options, "approve")


def _deny(options: argparse.Namespace) -> int:
    return _answer(options, "deny")


def _answer(options: argparse.Namespace, verdict: str) -> int:
    """Show a question, ask, look again, sign, and put it with the answers."""
    with ExitStack() as stack:
        desk = _Desk.open(options, stack, write=True)
        thread = desk.thread(options.thread)
        _check_public(desk.ledger)
        _check_anchored(desk.ledger, verdict)
        _check_listed(options.person, desk.gate.people, "approver", options.store)
        wait = _chosen(desk.waits(thread), options.digest, thread)
        left = wait.question.left()
        if verdict == "approve" and left is not None and left <= timedelta(0):
            raise WaitEnded(
                f"The wait of {thread} ended at {wait.question.until}.",
                "Nothing was signed. No approval counts any more.",
            )
        if not _is_meant(wait, verdict, options.digest, desk.settings):
            print("Nothing was signed.", file=sys.stderr)
            return 1
        approver = _signer(options.person, options.key, desk.gate.people, "approver")
        if wait.question not in [each.question for each in desk.waits(thread)]:
            raise ApprovalSpent(
                f"{thread} has moved on since it was shown.",
                "Nothing was signed. Look at what it asks now.",
            )
        sign = approver.approve if verdict == "approve" else approver.deny
        signed = desk.gate.people.open(sign(wait.question))
        if desk.answers is None:
            print(signed.text, end="")
            print(desk.settings, end="", file=sys.stderr)
            print("Signed. There is no place for answers: carry it to a worker.", file=sys.stderr)
            return 0
        desk.answers.put(approver, signed.text, why=getattr(options, "reason", ""))
    print(desk.settings, end="")
    print(f"{approver.name} {signed.verdict} {shown(wait.question.action)} in {thread}.")
    print(f"The question was {wait.digest}.")
    if verdict == "approve":
        print(f"A worker has to find it before {signed.expires:%Y-%m-%d %H:%M} UTC.")
    return 0


def _check_public(ledger: Ledger) -> None:
    for key in ledger.keys:
        if key.algorithm != "ed25519":
            raise KeyRefused(
                f"Key {key.id} of {ledger.store} is for {key.algorithm}: whoever can verify what a"
                " run asks could have written it.",
                "Nothing was signed. Seal the store with an Ed25519 key, and verify with its public"
                " half.",
            )


def _check_anchored(ledger: Ledger, verdict: str) -> None:
    if ledger.anchor is None and verdict == "approve":
        raise ConfigurationError(
            f"{ledger.store} has no anchor, so nobody could tell an old question from today's.",
            "Nothing was signed. Name it in its settings: anchor. A no can be signed without it.",
        )
    if ledger.anchor is None:
        print("No anchor: this may be an old question. A no to it does no harm.", file=sys.stderr)


def _check_listed(name: str, people: Approvers, what: str, store: str) -> None:
    if name not in people.names:
        raise ApprovalUntrusted(
            f"{quoted(name)} is no {what} of {store}, or their key is revoked.",
            f"Nothing was signed. Those who are: {', '.join(people.names) or 'nobody'}.",
        )


def _signer(name: str, file: str, people: Approvers, what: str) -> Approver:
    """Load somebody's own key, right before they sign with it. It is loaded nowhere else."""
    person = Approver(name, SigningKey.from_file(file))
    if people.keys.get(person.key.id, ("",))[0] != name or person.key.id in people.revoked:
        raise ApprovalUntrusted(
            f"{shell(file)} is not the key that {name} is known by as {what}.",
            "Nothing was signed. Name the secret half of the public key that is listed.",
        )
    return person


def _chosen(waits: list[_Wait], digest: str | None, thread: str) -> _Wait:
    fitting = [each for each in waits if digest in (None, each.digest)]
    if len(fitting) == 1:
        return fitting[0]
    if not waits:
        raise ResumeRefused(f"{thread} waits for nobody.", "Nothing was signed.")
    if not fitting:
        raise ApprovalMismatch(
            f"{thread} asks something else than {quoted(digest)}.",
            f"Nothing was signed. Look again: safepoint waiting {waits[0].ledger.store} --full",
        )
    raise ConfigurationError(
        f"{thread} asks {len(waits)} things.",
        f"Look at them with safepoint waiting {waits[0].ledger.store} --full, and name one by its"
        " --digest.",
    )


def _is_meant(wait: _Wait, verdict: str, digest: str | None, settings: str) -> bool:
    """Show the whole question, and return whether they typed what means yes.

    Without a terminal nothing can be shown, so the digest of what they saw stands for that.
    """
    if not (os.isatty(0) and os.isatty(2)):
        if digest is None:
            raise ConfigurationError(
                "There is no terminal to show the question on.",
                f"Look at it with safepoint waiting {wait.ledger.store} --full, and name its"
                " --digest.",
            )
        return True
    lines = (*settings.splitlines(), *wait.said, *wait.question.described)
    rows = [row for line in lines for row in _rows(line, 2)]
    height = max(os.get_terminal_size(2).lines - 2, 5)
    for begin in range(0, len(rows), height):
        print("\n".join(rows[begin : begin + height]), file=sys.stderr)
        if begin + height < len(rows) and _typed("Enter shows what follows, all else ends it: "):
            return False
    name = wait.question.thread
    what = "yes" if verdict == "approve" else "no"
    return _typed(f"Type the thread's name to sign this {what}; all else signs nothing: ") == name


def _rows(line: str, screen: int) -> Iterator[str]:
    """Break a line for a terminal, so that no row of it can pass for another line."""
    columns = os.get_terminal_size(screen).columns if os.isatty(screen) else len(line)
    width = max(columns or 80, 20)
    yield line[:width]
    rest, step = line[width:], width - len(_MORE)
    yield from (f"{_MORE}{rest[at : at + step]}" for at in range(0, len(rest), step))


def _typed(prompt: str) -> str:
    """Return a line that was typed after it was asked for; a closed terminal counts as "no"."""
    with suppress(ImportError):
        import termios

        termios.tcflush(0, termios.TCIFLUSH)  # what was typed before was typed to something else
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.buffer.readline()
    return line.decode("ascii", "replace").removesuffix("\n") if line else "no"


# --- hold and release


def _hold(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        desk, answers, thread, operator = _ordering(options, stack)
        ledger = desk.ledger
        order = answers.hold(
            operator, ledger.store, thread, tenant=ledger.tenant_name, why=options.reason
        )
    print(desk.settings, end="")
    print(f"Held by {order.by}: {_where(ledger, thread)}. No step runs until it is released.")
    print(f"The hold is {order.hold}.")
    return 0


def _release(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        desk, answers, thread, operator = _ordering(options, stack)
        store, tenant, people = desk.ledger.store, desk.ledger.tenant_name, desk.gate.operators
        holds = held(answers.orders(store, thread, people, tenant=tenant), people)
        fitting = [each for each in holds if options.digest in (None, each.hold)]
        if len(fitting) != 1:
            shows = "; ".join(map(str, holds)) or "none"
            raise ResumeRefused(
                f"{thread} has {len(fitting)} such holds: {shows}.",
                "Nothing was released. Name one by its --digest, as hold printed it.",
            )
        answers.release(operator, store, thread, fitting[0].hold, tenant=tenant)
        left = len(holds) - 1
    print(desk.settings, end="")
    print(
        f"Released by {operator.name}: {_where(desk.ledger, thread)}. Holds that are left: {left}."
    )
    return 0


def _ordering(
    options: argparse.Namespace, stack: ExitStack
) -> tuple[_Desk, Answers, str, Approver]:
    desk = _Desk.open(options, stack, write=True)
    if desk.answers is None:
        raise ConfigurationError(f"{options.store} has no place for orders.", _NO_ANSWERS)
    thread, people = desk.thread(options.thread), desk.gate.operators
    _check_listed(options.person, people, "operator", options.store)
    return desk, desk.answers, thread, _signer(options.person, options.key, people, "operator")


# --- who may


def _people(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        gate = _Desk.open(options, stack).gate
    for what, people in (("approver", gate.people), ("operator", gate.operators)):
        for key, (name, _) in people.keys.items():
            print(f"{what} {name} {key}{' revoked' * (key in people.revoked)}")
    if not gate.people.keys and not gate.operators.keys:
        print(f"Nobody may approve or hold in {options.store}.")
    return 0


def _folder(options: argparse.Namespace) -> tuple[settings.Store, str, Path, str]:
    """Return a store of the default places, who, the folder of such keys, and the settings."""
    told = settings.read(options.config, "change")
    what = "operator" if options.operator else "approver"
    if told.says(options.store, "storage", "postgres", what):
        raise ConfigurationError(
            f"The settings say who may do what in {options.store}.",
            'Change a line there: approver = ["dana=dana.pub"], operator, or revoked-approver.',
        )
    places = default_locations(options.store)
    folder = places.operators if options.operator else places.approvers
    store, name = told.to_change(options.store), check_name("approver", options.person)
    return store, name, folder, told.line(options.store)


def _add(options: argparse.Namespace) -> int:
    """Copy a public key to where the default places have those who count."""
    store, name, folder, line = _folder(options)
    key = VerifyingKey.from_file(options.file)
    Approvers({name: key}).check_apart(keyring_of(store.key))
    for given in (store.approver, store.operator, store.revoked_approver):
        for owner, keys in settings.named_keys("approver", given).items():
            if key.id in [each.id for each in keys]:
                raise KeyRefused(
                    f"Key {key.id} is that of {owner} already.",
                    "Nothing was added. Each person has a key of their own for each task.",
                )
    _files.create_root(str(folder))
    key.to_file(folder / f"{name}.pub")
    what = "hold runs" if options.operator else "approve"
    print(line, end="")
    print(f"{name} may {what} in {options.store}, with key {key.id}.")
    return 0


def _remove(options: argparse.Namespace) -> int:
    """Move a public key to those that are revoked: what it signed before can still be told."""
    store, name, folder, line = _folder(options)
    if not os.path.lexists(folder / f"{name}.pub"):
        raise NotFound(
            f"{name} is not among those.", f"Look who is: safepoint people list {store.store}"
        )
    key, gone = VerifyingKey.from_file(folder / f"{name}.pub"), folder / settings.REVOKED
    _files.create_root(str(gone))
    (folder / f"{name}.pub").rename(gone / f"{name}.{key.id}.pub")
    print(line, end="")
    print(f"{name} may no longer do that in {store.store}: key {key.id} is revoked.")
    left = "What they held stays held" if options.operator else "What they approved counts no more"
    print(f"{left}. Restart each worker, so that it knows.")
    return 0
