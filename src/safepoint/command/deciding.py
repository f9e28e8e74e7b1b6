"""People at a terminal: what waits, a signed yes or no, a hold, a release, and who may.

An approver runs none of the worker's code: a question is read from verified records. It is shown in
full before it is signed, then the thread's name is typed, then the passphrase of the key, and the
question is looked for again before it is signed. Where there is no terminal to show it on,
anyone who signs names the digest of what they saw. The default answer is no.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from safepoint import settings
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    NotFound,
    ThreadDeleted,
    Unsafe,
    shell,
)
from safepoint.core.keys import ROUNDS, SigningKey, VerifyingKey, read_key_file
from safepoint.core.names import check_name, thread_name, thread_text, with_tenant
from safepoint.places import REVOKED, people_in
from safepoint.resume.approval import Approver, Approvers, shown
from safepoint.shared.desk import Desk, Verb, Wait, thread_shown
from safepoint.shared.states import brief
from safepoint.shared.terminal import (
    add,
    add_format,
    alarm_of,
    flag,
    keyring_of,
    own_id,
    print_json,
    rows,
    table,
    typed,
    unlock,
    when,
)
from safepoint.stores import disk


def commands(sub: Any) -> None:
    """Add the commands for people who approve, deny, hold and release."""
    what = "list the runs that wait for people, or show everything that one run asks"
    add_format(add(sub, "waiting", what, _waiting, "NAME", "THREAD?"))
    approving = _signing(sub, "approve", _answer, "approve what a run asks: sign it with your key")
    denying = _signing(sub, "deny", _answer, "deny what a run asks: sign it with your key")
    denying.add_argument("--reason", default="", metavar="TEXT", help="why, for people")
    for each, verb in ((approving, "approve"), (denying, "deny")):
        each.add_argument("--digest", metavar="SHA256", help="from the list of safepoint waiting")
        each.set_defaults(verb=verb)
    holding = _signing(sub, "hold", _order, "hold a run: no worker continues it")
    holding.add_argument("--reason", required=True, metavar="TEXT", help="why, for people")
    releasing = _signing(sub, "release", _order, "end the hold of a run")
    releasing.add_argument("--digest", metavar="SHA256", help="which hold, if there are several")
    people = add(sub, "people", "list, add or remove who may approve or hold", _people, "NAME")
    add_format(people)
    changing = people.add_mutually_exclusive_group()
    what = "add somebody, by their public key"
    changing.add_argument("--add", nargs=2, metavar=("PERSON", "FILE"), help=what)
    what = "remove somebody: their key is revoked"
    changing.add_argument("--remove", metavar="PERSON", help=what)
    flag(people, "--operator", "as an operator, who holds runs, instead of an approver")


def _signing(sub: Any, name: str, run: Any, what: str) -> argparse.ArgumentParser:
    parser = add(sub, name, what, run, "NAME", "THREAD")
    what = "your own secret key, which says who you are"
    parser.add_argument("--key", required=True, metavar="FILE", help=what)
    return parser


def _opened(options: argparse.Namespace, stack: ExitStack, *, write: bool = False) -> Desk:
    store = settings.read(options.config).store(options.name)
    return Desk.open(store, stack, write=write).of(options.tenant)


# --- look


def _waiting(options: argparse.Namespace) -> int:
    waits, alarms, seen = list[Wait](), list[dict[str, str]](), 0
    framework = options.thread and thread_name(options.thread)  # its id there
    with ExitStack() as stack:
        for desk in _opened(options, stack).scopes():
            for thread in desk.ledger.threads():
                if options.thread is not None and thread not in (options.thread, framework):
                    continue
                seen += 1
                try:
                    waits += desk.waits(thread, approved=True)
                except ThreadDeleted:
                    continue
                except CheckpointError as error:
                    alarms.append(alarm_of(with_tenant(desk.ledger.tenant_name, thread), error))
    waits.sort(key=lambda each: (each.question.until or "9999", each.since))
    if options.format == "json":
        print_json({"waiting": [*map(_plain, waits)], "alarms": alarms})
        return 1 if alarms else 0
    if options.thread is not None:
        lines = [line for wait in waits for line in wait.lines]
    else:
        cells = [[*_HEAD], *map(_row, waits)]
        if _remember(options.name, waits):
            cells = [[str(number or "#"), *each] for number, each in enumerate(cells)]
        lines = table(cells) if waits else []
    lines += [f"ALARM: {each['thread']}: {each['error']}: {each['message']}" for each in alarms]
    for line in lines:
        print("\n".join(rows(line, 1)))
    if not seen:
        do = "Check the names, and on PostgreSQL the login's tenant."
        print(f"No run was found in {options.name}. {do}")
    elif not waits:
        print(f"Nothing {'else ' * bool(alarms)}waits in {options.name}.")
    return 1 if alarms else 0


_LARGEST: Final = 1 << 24
_HEAD: Final = ("run", "asks", "approved", "until", "since", "asked by")


def _row(wait: Wait) -> list[str]:
    """Return what a person decides by: the rest of the question is shown before they sign it."""
    asked, people = wait.question, [*(no.approver for no in wait.no), *(o.by for o in wait.holds)]
    state = f"{len(wait.yes)} of {wait.needed}" if wait.state == "waiting" else wait.state
    given = ", ".join(f"{brief(name)} {brief(each)}" for name, each in asked.arguments.items())
    return [
        thread_shown(wait.ledger, asked.thread),
        f"{brief(asked.action)}{': ' * bool(given)}{given}",
        " ".join([state, *people]),
        when(datetime.fromisoformat(asked.until)) if asked.until else "-",
        when(wait.since),
        asked.app or "-",
    ]


def _plain(wait: Wait) -> dict[str, Any]:
    """Return a wait for programs: the question as it is signed, and what people said to it."""
    return {
        **json.loads(wait.question.text),
        "state": wait.state,
        "since": wait.since,
        "needed": wait.needed,
        "approved": wait.yes,
        "denied": [{"by": each.approver, "why": each.why} for each in wait.no],
        "held": [{"by": each.by, "why": each.why} for each in wait.holds],
        "digest": wait.digest,
    }


# --- the list that this terminal printed last


def _last_list() -> tuple[str, disk.opened]:
    """Return the file that has it, and its folder. A terminal has a session of its own."""
    disk.require_posix()
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    folder = str((runtime if runtime.is_absolute() else Path.home() / ".cache") / "safepoint")
    disk.create_root(folder)
    return f"{folder}/list-{os.getsid(0)}", disk.folder(folder, folder)


def _remember(store: str, waits: list[Wait]) -> bool:
    """Write down what each row asks, if a terminal shows the list. If not, no row has a number."""
    if not os.isatty(1):
        return False
    asked = [(each.ledger.tenant_name, each.question.thread, each.digest) for each in waits]
    with suppress(OSError, RuntimeError, CheckpointError):
        file, folder = _last_list()
        with folder as fd:
            data = json.dumps([store, asked]).encode()
            disk.put(file, fd, data, over=True, temp=f".{os.getpid()}")
            return True
    return False


def _row_asked(store: str, number: str) -> tuple[str, str, str]:
    """Return the tenant, the thread and the digest of a row."""
    with suppress(OSError, RuntimeError, ValueError, TypeError, KeyError, CheckpointError):
        file, folder = _last_list()
        with folder as fd:
            listed, asked = json.loads(disk.read(file, Path(file).name, fd, _LARGEST))
        if listed == store:
            tenant, thread, digest = dict(enumerate(asked, 1))[int(number)]
            return tenant, thread, digest
    raise NotFound(
        f"The list that this terminal printed last has no row {number} of {store}.",
        f"Print it: safepoint waiting {store}",
    )


# --- sign


def _answer(options: argparse.Namespace) -> int:
    """Show a question, ask, look again, sign and put it with the answers."""
    verb, digest = options.verb, options.digest
    if digest is None and options.thread.isdecimal() and not options.tenant:
        options.tenant, options.thread, digest = _row_asked(options.name, options.thread)
    with ExitStack() as stack:
        desk = _opened(options, stack, write=True)
        person, thread = desk.owner(_key_id(options), "approver"), _begun(desk, options.thread)
        if desk.ledger.anchor is None and verb == "deny":
            print("No anchor: this may be an old question. Denying it is safe.", file=sys.stderr)
        wait = desk.choose(thread, digest)
        desk.check_open(wait, verb, person)
        if not _is_meant(wait, verb, options.digest):
            print("Nothing was signed.", file=sys.stderr)
            return 1
        approver = _signer(options, person)
        signed = desk.answer(wait.question, verb, approver, why=getattr(options, "reason", ""))
    _warn(options)
    did = f"{person} {signed.verdict} {shown(wait.question.action)} in {_row(wait)[0]}."
    print(f"{did}\nThe question was {wait.digest}.")
    if verb == "approve":
        print(f"It counts if a worker uses it before {when(signed.expires)}.")
    return 0


def _begun(desk: Desk, named: str) -> str:
    """Return the one thread whose name begins like that, or the one that is named in full.

    All of its question is shown before it is signed, or the digest of it was named.
    """
    names = {each: thread_text(each) or each for each in desk.ledger.threads()}
    found = [each for each, text in names.items() if text.startswith(named)]
    return found[0] if named and named not in names and len(found) == 1 else desk.thread(named)


def _key_id(options: argparse.Namespace) -> str:
    """Return the id of somebody's key as its file has it. Once unlocked, it is looked at again."""
    return own_id(options.key) or read_key_file(options.key).public.id


def _signer(options: argparse.Namespace, person: str) -> Approver:
    """Load somebody's own key, right before they sign with it. It is loaded nowhere else.

    A key without a passphrase signs as well: to refuse it would end what signs without a person.
    """
    if own_id(options.key) is not None:
        return Approver(person, unlock(options.key, f"{person} signs."))
    return Approver(person, SigningKey.from_file(options.key))


def _warn(options: argparse.Namespace) -> None:
    named = shell(options.key)
    if own_id(options.key) is None:
        do = f"Give it one: ssh-keygen -p -a {ROUNDS} -f {named}"
        print(f"The key {named} has no passphrase. {do}", file=sys.stderr)


def _is_meant(wait: Wait, verb: Verb, digest: str | None) -> bool:
    """Show the whole question, and return whether they typed what means yes.

    Without a terminal nothing can be shown, so the digest of what they saw stands for that.
    """
    if not (os.isatty(0) and os.isatty(2)):
        if digest is None:
            raise ConfigurationError(
                "The question has to be shown on a terminal.",
                f"Look at it with safepoint waiting {wait.ledger.store} {wait.name}, and name its"
                " --digest.",
            )
        return True
    lines = (*wait.said, *wait.question.described)
    all_rows = [row for line in lines for row in rows(line, 2)]
    height = max(os.get_terminal_size(2).lines - 2, 5)
    for begin in range(0, len(all_rows), height):
        print("\n".join(all_rows[begin : begin + height]), file=sys.stderr)
        if begin + height < len(all_rows) and typed("Enter shows more, anything else stops: "):
            return False
    name, what = wait.question.thread, "yes" if verb == "approve" else "no"
    text = thread_text(name) or ""  # as a framework has it; a client may have chosen it
    names = [name, wait.name, *([text] if text.strip() and text.isprintable() else [])]
    prompt = f"Type the thread's name to sign this {what}; anything else signs nothing: "
    return typed(prompt) in names


# --- hold and release


def _order(options: argparse.Namespace) -> int:
    """Hold a run, if a reason is given; otherwise release it."""
    number = options.thread
    with suppress(NotFound):  # a client may have given its own run the number of a row
        listed = _row_asked(options.name, number)[1]
        if listed != number and not options.tenant:
            raise ConfigurationError(
                f"Row {number} of the list that this terminal printed last is {listed}.",
                f"Nothing was signed. Name the run. If it is {number}, use another terminal.",
            )
    with ExitStack() as stack:
        desk = _opened(options, stack, write=True)
        person, thread = desk.owner(_key_id(options), "operator"), desk.thread(options.thread)
        operator = _signer(options, person)
        which = f"by {person}: {thread_shown(desk.ledger, thread)}."
        if "reason" in options:
            order = desk.hold(thread, operator, why=options.reason)
            said = f"Held {which} No step runs until it is released.\nThe hold is {order.hold}."
        else:
            desk.release(thread, operator, options.digest)
            said = f"Released {which} Holds that are left: {len(desk.holds(thread))}."
    _warn(options)
    print(said)
    return 0


# --- who may


def _people(options: argparse.Namespace) -> int:
    """List them; or add a public key to those that count; or move it to those that are revoked."""
    store = settings.read(options.config).store(options.name)
    if not (options.add or options.remove):
        roles = {"approver": store.approvers, "operator": store.operators}
        found = [
            (role, name, key, key in people.revoked)
            for role, people in zip(roles, map(people_in, roles.values()), strict=True)
            for key, (name, _) in people.keys.items()
        ]
        if options.format == "json":
            names = ("role", "name", "key", "revoked")
            print_json({"people": [dict(zip(names, each, strict=True)) for each in found]})
            return 0
        for *who, revoked in found:
            print(*who, *["revoked"] * revoked)
        return 0
    approves = "approve", store.approvers
    what, folder = ("hold runs", store.operators) if options.operator else approves
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
                    f"Key {key.id} already belongs to {known[0]}.",
                    "Nothing was added. Each person has a key of their own for each task.",
                )
        key.to_file(Path(folder, f"{name}.pub"))
        print(f"{name} may {what} in {options.name}, with key {key.id}.")
        return 0
    name = check_name("approver", options.remove)
    file, gone = Path(folder, f"{name}.pub"), Path(folder, REVOKED)
    if not os.path.lexists(file):
        look = f"See who is: safepoint people {options.name}"
        raise NotFound(f"{name} is not on the list.", look)
    key = VerifyingKey.from_file(file)
    disk.create_root(str(gone))
    file.rename(gone / f"{name}.{key.id}.pub")
    print(f"{name} may no longer {what} in {options.name}: key {key.id} is revoked.")
    left = "Their holds stay" if options.operator else "Their approvals no longer count"
    print(f"{left}. Restart each worker, so that it knows.")
    return 0
