"""People at a terminal: what waits, a signed yes or no, a hold, a release, and who may.

An approver runs none of the worker's code: a question is read from verified records. It is shown in
full before it is signed, then the thread's name is typed, then the passphrase of the key, and the
question is looked for once more before it is signed. Where there is no terminal to show it on,
whoever signs names the digest of what they saw. The default answer is no.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safepoint import settings
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    NotFound,
    ThreadDeleted,
    Unsafe,
    shell,
)
from safepoint.core.keys import ROUNDS, SigningKey, VerifyingKey
from safepoint.core.names import check_name, with_tenant
from safepoint.places import REVOKED, people_in
from safepoint.resume.approval import Approver, Approvers, shown
from safepoint.shared.desk import Desk, Verb, Wait
from safepoint.shared.terminal import add, flag, keyring_of, own_id, rows, typed, unlock
from safepoint.stores import disk


def commands(sub: Any) -> None:
    """Add the commands for people who approve, deny, hold and release."""
    what = "list the runs that wait for people"
    flag(add(sub, "waiting", what, _waiting, "NAME", "THREAD?"), "--full", "all of each question")
    approving = _signing(sub, "approve", _answer, "sign a yes to what a run asks, with your key")
    denying = _signing(sub, "deny", _answer, "sign a no to what a run asks, with your key")
    denying.add_argument("--reason", default="", metavar="TEXT", help="why, for people")
    for each, verb in ((approving, "approve"), (denying, "deny")):
        each.add_argument("--digest", metavar="SHA256", help="of the question: waiting --full")
        each.set_defaults(verb=verb)
    holding = _signing(sub, "hold", _order, "hold a run: no worker goes on with it")
    holding.add_argument("--reason", required=True, metavar="TEXT", help="why, for people")
    releasing = _signing(sub, "release", _order, "end the hold of a run")
    releasing.add_argument("--digest", metavar="SHA256", help="which hold, if there are several")
    people = add(sub, "people", "list, add or remove who may approve or hold", _people, "NAME")
    changing = people.add_mutually_exclusive_group()
    what = "let somebody approve, by their public key"
    changing.add_argument("--add", nargs=2, metavar=("PERSON", "FILE"), help=what)
    what = "end what somebody may do: their key is revoked"
    changing.add_argument("--remove", metavar="PERSON", help=what)
    flag(people, "--operator", "as one who holds runs, and not as one who approves")


def _signing(sub: Any, name: str, run: Any, what: str) -> argparse.ArgumentParser:
    parser = add(sub, name, what, run, "NAME", "THREAD")
    parser.add_argument("--as", dest="person", required=True, metavar="PERSON", help="your name")
    parser.add_argument("--key", required=True, metavar="FILE", help="your own secret key")
    return parser


def _opened(options: argparse.Namespace, stack: ExitStack, *, write: bool = False) -> Desk:
    store = settings.read(options.config).store(options.name)
    return Desk.open(store, stack, write=write).of(options.tenant)


# --- look


def _waiting(options: argparse.Namespace) -> int:
    waits, alarms = list[Wait](), list[str]()
    with ExitStack() as stack:
        for desk in _opened(options, stack).scopes():
            for thread in desk.ledger.threads():
                if options.thread not in (None, thread):
                    continue
                try:
                    waits += desk.waits(thread)
                except ThreadDeleted:
                    continue
                except CheckpointError as error:
                    named = with_tenant(desk.ledger.tenant_name, thread)
                    alarms.append(f"ALARM: {named}: {type(error).__name__}: {error}")
    for wait in sorted(waits, key=lambda each: (each.question.until or "9999", each.since)):
        for line in wait.lines(full=options.full):
            print("\n".join(rows(line, 1)))
    for alarm in alarms:
        print("\n".join(rows(alarm, 1)))
    if not waits:
        print(f"Nothing {'else ' * bool(alarms)}waits in {options.name}.")
    return 1 if alarms else 0


# --- sign


def _answer(options: argparse.Namespace) -> int:
    """Show a question, ask, look again, sign, and put it with the answers."""
    verb: Verb = options.verb
    with ExitStack() as stack:
        desk = _opened(options, stack, write=True)
        thread = desk.thread(options.thread)
        desk.check(verb, options.person)
        if desk.ledger.anchor is None:
            print("No anchor: this may be an old question. A no to it is safe.", file=sys.stderr)
        wait = desk.choose(thread, options.digest)
        desk.check_open(wait, verb, options.person)
        if not _is_meant(wait, verb, options.digest):
            print("Nothing was signed.", file=sys.stderr)
            return 1
        approver, warning = _signer(options)
        signed = desk.answer(wait.question, verb, approver, why=getattr(options, "reason", ""))
        print(warning, end="", file=sys.stderr)
        if desk.answers is None:
            print(signed.text, end="")
            print("Signed. There is no place for answers: carry it to a worker.", file=sys.stderr)
            return 0
    print(f"{approver.name} {signed.verdict} {shown(wait.question.action)} in {thread}.")
    print(f"The question was {wait.digest}.")
    if verb == "approve":
        print(f"A worker has to find it before {signed.expires:%Y-%m-%d %H:%M} UTC.")
    return 0


def _signer(options: argparse.Namespace) -> tuple[Approver, str]:
    """Load somebody's own key, right before they sign with it. It is loaded nowhere else.

    With it comes a line to print once that is done, if the key has no passphrase. To refuse such a
    key would end what signs without a person.
    """
    if own_id(options.key) is not None:
        return Approver(options.person, unlock(options.key, f"{options.person} signs.")), ""
    named = shell(options.key)
    line = f"The key {named} has no passphrase. Give it one: ssh-keygen -p -a {ROUNDS} -f {named}\n"
    return Approver(options.person, SigningKey.from_file(options.key)), line


def _is_meant(wait: Wait, verb: Verb, digest: str | None) -> bool:
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
    lines = (*wait.said, *wait.question.described)
    all_rows = [row for line in lines for row in rows(line, 2)]
    height = max(os.get_terminal_size(2).lines - 2, 5)
    for begin in range(0, len(all_rows), height):
        print("\n".join(all_rows[begin : begin + height]), file=sys.stderr)
        if begin + height < len(all_rows) and typed("Enter shows what follows, all else ends it: "):
            return False
    name = wait.question.thread
    what = "yes" if verb == "approve" else "no"
    return typed(f"Type the thread's name to sign this {what}; all else signs nothing: ") == name


# --- hold and release


def _order(options: argparse.Namespace) -> int:
    """Hold a run, if a reason is given; otherwise release it."""
    with ExitStack() as stack:
        desk = _opened(options, stack, write=True)
        thread = desk.thread(options.thread)
        desk.check_operator(options.person)
        operator, warning = _signer(options)
        which = f"by {options.person}: {with_tenant(desk.ledger.tenant_name, thread)}."
        if "reason" in options:
            order = desk.hold(thread, operator, why=options.reason)
            said = f"Held {which} No step runs until it is released.\nThe hold is {order.hold}."
        else:
            desk.release(thread, operator, options.digest)
            said = f"Released {which} Holds that are left: {len(desk.holds(thread))}."
    print(warning, end="", file=sys.stderr)
    print(said)
    return 0


# --- who may


def _people(options: argparse.Namespace) -> int:
    """List them; or add a public key to those that count; or move it to those that are revoked."""
    store = settings.read(options.config).store(options.name)
    if not (options.add or options.remove):
        for role, folder in (("approver", store.approvers), ("operator", store.operators)):
            people = people_in(folder)
            for number, (name, _) in people.keys.items():
                print(f"{role} {name} {number}{' revoked' * (number in people.revoked)}")
        return 0
    what, folder = (
        ("hold runs", store.operators) if options.operator else ("approve", store.approvers)
    )
    if folder is None:
        raise ConfigurationError(
            f"Store {options.name} has no folder for their keys.",
            f"Make it: safepoint init {options.name}. Or name it in the settings: approvers,"
            " operators.",
        )
    if options.add:
        name, file = options.add
        key = VerifyingKey.from_file(file)
        Approvers({name: key}).check_apart(keyring_of(store.key))
        for each in (store.approvers, store.operators):
            if known := people_in(each).keys.get(key.id):
                raise Unsafe(
                    f"Key {key.id} is that of {known[0]} already.",
                    "Nothing was added. Each person has a key of their own for each task.",
                )
        key.to_file(Path(folder, f"{name}.pub"))
        print(f"{name} may {what} in {options.name}, with key {key.id}.")
        return 0
    name = check_name("approver", options.remove)
    file, gone = Path(folder, f"{name}.pub"), Path(folder, REVOKED)
    if not os.path.lexists(file):
        look = f"Look who is: safepoint people {options.name}"
        raise NotFound(f"{name} is not among those.", look)
    key = VerifyingKey.from_file(file)
    disk.create_root(str(gone))
    file.rename(gone / f"{name}.{key.id}.pub")
    print(f"{name} may no longer {what} in {options.name}: key {key.id} is revoked.")
    left = "What they held stays held" if options.operator else "What they approved counts no more"
    print(f"{left}. Restart each worker, so that it knows.")
    return 0
