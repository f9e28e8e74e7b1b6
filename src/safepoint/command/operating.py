"""What an operator types about a store: init, verify, history, journal, keys.

Each command takes the name of a store, which `safepoint.toml` or the default places know. What
cannot be undone is said first, and done with `--yes`. Nothing of a record is printed before it
was verified.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from safepoint.core.chain import plain_of
from safepoint.core.errors import CheckpointError, ConfigurationError, NotFound, shell
from safepoint.core.keys import SigningKey, read_key_file
from safepoint.core.ledger import Ledger
from safepoint.core.names import check_sequence, stamp, thread_name, with_tenant
from safepoint.core.record import Opened
from safepoint.core.storage import is_thread
from safepoint.places import (
    PLACES,
    Store,
    default_places,
    key_files,
    open_answers,
    open_journal,
    open_ledger,
)
from safepoint.settings import Settings, read
from safepoint.shared.desk import Desk
from safepoint.shared.states import read_as_json, view_of
from safepoint.shared.terminal import (
    add,
    add_format,
    alarm_of,
    counted,
    flag,
    print_json,
    progress,
    say,
    status_of,
    tick,
)
from safepoint.stores import disk

_AFTER: Final = """
Back up storage, journal and answers together, the storage first.
Back up the keys separately. Encrypt that backup, and give it to somebody else.
Keep the anchors out of both backups. Never restore one over the anchor in use.

In your application, with safepoint.langgraph (safepoint.agent_framework has the same):
  saver = SealedSaver.from_settings("{name}")
or, with safepoint.settings:
  ledger, gate = open_store("{name}")"""
_SAID: Final = ("created", "kind", "app", "label", "tools", "previous")


def commands(sub: Any) -> None:
    """Add the commands to argparse's subparsers."""
    add(sub, "init", "create a sealed, anchored store in the default places", _init, "NAME")
    looks = "verify every record of a store, its links, its anchor, its journal and its answers"
    add_format(add(sub, "verify", looks, _verify, "NAME", "THREAD?"))
    lists = "list the threads of a store, or the records of one, or show a record, each verified"
    add_format(add(sub, "history", lists, _history, "NAME", "THREAD?", "SEQUENCE?"))
    said = "say who did what to a store, and when"
    add_format(add(sub, "journal", said, _journal, "NAME", "THREAD?"))
    keys = add(sub, "keys", "list the keys of a store, or replace one", _keys, "NAME")
    what = "replace the key that signs the records, or the journal, in two steps"
    keys.add_argument("--rotate", choices=("records", "journal"), help=what)
    add(sub, "new-key", "make a key for a process, and the half for others", _new_key, "FILE")
    flag(keys, "--yes", "take the second step")


# --- stores and threads


def _store(options: argparse.Namespace) -> Store:
    store = read(options.config).store(options.name)
    if (named := getattr(options, "thread", None)) is not None and not is_thread(named):
        options.thread = thread_name(named)  # a framework's id
    return replace(store, tenant=getattr(options, "tenant", "") or store.tenant)


def _init(options: argparse.Namespace) -> int:
    """Begin a store. Each part has its own order of being made, so that a kill leaves no half."""
    name, settings = options.name, read(options.config)
    places = _default_places(settings, name, "Make its parts there, or remove its table first.")
    parts = _parts(places)
    before = [each for each in parts if os.path.lexists(parts[each])]
    logging.getLogger("safepoint").addHandler(logging.NullHandler())  # said below
    with ExitStack() as stack:
        ledger: Any = open_ledger(name)
        stack.enter_context(ledger.storage)
        stack.enter_context(ledger.anchor)
        stack.enter_context(open_journal(name, create=True))
        answers: Any = open_answers(name, create=True)
        stack.enter_context(answers.storage)
        stack.enter_context(answers.anchor)
    made = [each for each in parts if each not in before]
    if not made:
        print(f"Store {name} already exists. Nothing was changed:")
    else:
        print(f"Store {name} was {'completed' if before else 'created'}. Made: {', '.join(made)}.")
    for each, path in parts.items():
        print(f"  {_mode(path)} {each:<14} {shell(path)}")
    print(_AFTER.format(name=name))
    return 0


def _default_places(settings: Settings, name: str, do: str) -> Store:
    if settings.says(name, "storage", "key"):
        raise ConfigurationError(
            f"{shell(str(settings.file))} names places of store {name}, and this command uses the"
            " default ones.",
            do,
        )
    return default_places(name)


def _parts(places: Store) -> dict[str, str]:
    """Return the file or folder of each part, by its name in settings."""
    keys = {each: getattr(places, each)[0] for each in ("key", "journal_key")}
    parts = {each: getattr(places, each) for each in (*PLACES, "approvers", "operators")}
    parts |= {each: (key_files(key) or [key])[0] for each, key in keys.items()}
    return {each.replace("_", "-"): path for each, path in parts.items()}


def _mode(path: str) -> str:
    return f"{stat.S_IMODE(os.stat(path).st_mode):04o}"  # noqa: PTH116


def _verify(options: argparse.Namespace) -> int:
    wrong, alarms, lines = Counter[int](), list[dict[str, str]](), list[str]()

    @contextmanager
    def looking(name: str) -> Iterator[None]:
        """Say what does not verify in this block, and continue."""
        try:
            yield
        except CheckpointError as error:
            wrong[status_of(error)] += 1
            alarms.append(alarm_of(name, error))
            lines.append(": ".join(alarms[-1].values()))

    with ExitStack() as stack:
        store, records, one = _store(options), list[int](), options.thread
        ledger = store.opened(stack)
        scopes = [ledger, *map(ledger.tenant, () if one else ledger.tenants())]
        threads = [(each, name) for each in scopes for name in ([one] if one else each.threads())]
        if not threads:
            raise NotFound(
                f"Store {options.name} has no thread, so nothing was verified.",
                "Check its name, and where it is.",
            )
        with progress(f"of {counted(len(threads), 'thread')}"):
            for each, thread in threads:
                tick()
                with looking(with_tenant(each.tenant_name, thread)):
                    if not (count := each.verify(thread)):
                        _newest(each, thread)  # which says that there is none
                    records.append(count)
        verified = counted(len(records), "thread"), counted(sum(records), "record")
        lines.append("{} verified, with {}.".format(*verified))
        if ledger.anchor is None:
            lines.append("No anchor: nobody would see that the newest records were cut off.")
        for status, what in enumerate(("does not verify", "could not be looked at"), 1):
            line = f"{counted(wrong[status], 'thread')} {what}.".replace("s does", "s do")
            lines += [line] * bool(wrong[status])
        with looking("Journal"):
            if not one and (journal := store.journal_of(stack, write=False)):
                entries = (journal.tenant(store.tenant) if store.tenant else journal).verify()
                lines.append(f"Journal: {counted(entries, 'entry').replace('ys', 'ies')}.")
        with looking("Answers"):
            if not one and store.answers is not None:
                desk = Desk.open(store, stack)
                people = desk.gate.approvers, desk.gate.operators
                if entries := desk.answers.verify(*people, tenant=store.tenant):
                    lines.append(f"Answers: {counted(entries, 'entry').replace('ys', 'ies')}.")
        found = {"threads": len(records), "records": sum(records), "alarms": alarms}
        say(options, "\n".join(lines), found)
        return 1 if wrong[1] else 2 * bool(wrong[2])


def _newest(ledger: Ledger, thread: str) -> Opened:
    """Return the newest record, a tombstone as well."""
    view = view_of(ledger)
    return next(view.back(thread), None) or view.at(thread)  # which says that there is none


def _history(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        ledger, thread = _store(options).opened(stack), options.thread
        if thread is None:
            scopes = [ledger, *map(ledger.tenant, ledger.tenants())]
            return _threads(options, [(each, name) for each in scopes for name in each.threads()])
        view = view_of(ledger)
        if options.sequence is not None:
            return _show(options, ledger)
        for number, opened in enumerate(view.forward(thread), 1):
            if number == 1 and opened.header.sequence > 1 and options.format == "text":
                print(f"It begins at #{opened.header.sequence}: a seal says the rest was pruned.")
            record = _record(ledger, opened)
            say(options, _line(record), record)
        view.at(thread)  # which says that there is none
        return 0


def _threads(options: argparse.Namespace, threads: list[tuple[Ledger, str]]) -> int:
    """List the newest record of each thread."""
    worst = 0
    for ledger, thread in threads:
        named = with_tenant(ledger.tenant_name, thread)
        try:
            record = _record(ledger, _newest(ledger, thread))
            say(options, f"{named} {_line(record)}", record)
        except CheckpointError as error:
            worst = max(worst, status_of(error))
            say(options, f"{named} {type(error).__name__}: {error}", alarm_of(named, error))
    if not threads:
        print("No thread.", file=sys.stderr)
    return worst


def _record(ledger: Ledger, opened: Opened) -> dict[str, Any]:
    """Return a verified record for programs."""
    header = opened.header
    place = {"thread": with_tenant(ledger.tenant_name, header.thread), "sequence": header.sequence}
    said = {each: getattr(header, each) for each in _SAID}
    return {**place, **said, "digest": opened.digest, "key": opened.key}


def _line(record: dict[str, Any]) -> str:
    shown = {each: value or "-" for each, value in record.items()}
    return "#{sequence} {created} {kind} {app} {label} key {key} {digest:.19}".format_map(shown)


def _show(options: argparse.Namespace, ledger: Ledger) -> int:
    view, thread = view_of(ledger), options.thread
    found = view.at(thread, check_sequence(options.sequence))
    anchored, record = view.anchored(thread), _record(ledger, found)
    if found.header.kind in ("state", "note"):
        record["state"] = read_as_json(plain_of(found, None), ledger.codec.limits)
    if options.format == "json":
        print_json(record)
        return 0
    print(f"{found.header.place} of store {found.header.store}")
    for what, value in {
        "seal": f"verified, by key {found.key}",
        "chain": "verified, from its end back to here",
        "anchor": f"has seen {anchored}" if anchored else "none: nobody would see a cut",
        **{each: record[each] for each in (*_SAID, "digest")},
    }.items():
        print(f"  {what:<8} {value or '-'}")
    if "state" in record:
        print(json.dumps(record["state"], separators=(",", ":")).replace("\x7f", "\\u007f"))
    return 0


def _journal(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        store = _store(options)
        journal = store.journal_of(stack, write=False)
        if journal is None:
            raise ConfigurationError(
                f"Store {options.name} has no journal.",
                "safepoint init adds one in the default places; settings name it with journal.",
            )
        scope = journal.tenant(store.tenant) if store.tenant else journal
        entries = [*scope.show(thread=options.thread)]
        for entry in entries:
            say(options, str(entry), asdict(entry))
        if not entries:
            print("No entry.", file=sys.stderr)
        return 0


# --- keys


def _keys(options: argparse.Namespace) -> int:
    """List the keys of a store; or replace one."""
    if options.rotate:
        return _rotate(options)
    store, worst = _store(options), 0
    listed = {"records": store.key, "journal": store.journal_key}
    for what, files in listed.items():
        for file in files:
            try:
                found = read_key_file(file)
            except CheckpointError as error:
                print(f"{what}: {error}", file=sys.stderr)
                worst = 2
                continue
            does = "verifies, will sign next" if Path(file).stem.endswith("-next") else "verifies"
            if found.kind == "key with a passphrase":
                does = "has a passphrase"
            elif file == files[0] and found.kind != "public key":
                does = "signs"
            print(f"{what:<8} {found.public.id} {_mode(file)} {shell(file)} {does}")
    return worst


def _new_key(options: argparse.Namespace) -> int:
    key, file, public = SigningKey.generate(), options.file, f"{options.file}.pub"
    key.public.to_file(public)
    try:
        key.to_file(file)
    except CheckpointError:
        Path(public).unlink()
        raise
    print(f"Key {key.id} is in {shell(file)}, for you only; its public half is next to it.")
    return 0


def _rotate(options: argparse.Namespace) -> int:
    """Make the next key; or, if it is there, sign with it from now on."""
    name, settings = options.name, read(options.config)
    do = "Make one with safepoint new-key, and name it last; once all verify it, name it first."
    places = _default_places(settings, name, do)
    first = (places.journal_key if options.rotate == "journal" else places.key)[0]
    of, store, there = Path(first).stem, settings.store(name), key_files(first) or [first]
    coming = Path(first).with_name(f"{of}-next.key")
    again = f"safepoint keys {name} --rotate {options.rotate}"
    signs = SigningKey.from_file(there[0])
    if not os.path.lexists(coming):
        SigningKey.generate().to_file(coming)
        print(f"Key {SigningKey.from_file(coming).id} is made, in {shell(str(coming))}.")
        print(f"Key {signs.id} still signs. Restart each worker, one after another, so that all")
        print(f"verify the new one. Then: {again}")
        return 0
    key, made = SigningKey.from_file(coming), datetime.fromtimestamp(coming.stat().st_mtime, UTC)
    if not options.yes:
        raise ConfigurationError(
            f"Key {key.id} would sign from now on, in place of {signs.id}, which verifies. It was"
            f" made at {stamp(made)}, and a worker that was not restarted since then refuses what"
            " it seals.",
            f"Nothing was done. Do it: {again} --yes",
        )
    folder = str(coming.parent)
    with (
        ExitStack() as stack,
        disk.translated("write to", folder),
        disk.opened(folder, disk.FOLDER) as fd,
        disk.locked(fd, folder),  # whoever makes a key there waits
    ):
        newest = Path(key_files(first)[0])
        now = [SigningKey.from_file(each).id for each in (newest, coming) if os.path.lexists(each)]
        if now != [signs.id, key.id]:  # while somebody read what is above
            raise ConfigurationError(
                f"The keys of store {name} changed meanwhile.",
                f"Nothing was done. Look at what is there now: {again}",
            )
        number = int(newest.stem.removeprefix(of).removeprefix("-") or 1) + 1
        following = newest.with_name(f"{of}-{number}.key")
        detail = f"{of}: from {signs.id} to {key.id}"
        with store.opened(stack, write=True).log.doing("rotate", detail=detail):
            coming.rename(following)
            os.fsync(fd)
    print(f"It is {shell(str(following))} now. Restart each worker,")
    print("one after another: from then on it signs. The old key stays, to verify what it sealed.")
    return 0
