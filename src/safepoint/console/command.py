"""The command `safepoint console`: a page on this machine, and the terminal that signs for it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from safepoint import places, settings
from safepoint.core.errors import (
    ApprovalRefused,
    CheckpointError,
    ConfigurationError,
    Unsafe,
    missing,
    shell,
)
from safepoint.core.keys import ROUNDS, SigningKey
from safepoint.shared.desk import Desk, Role
from safepoint.shared.terminal import add, key_of, own_id

if TYPE_CHECKING:
    from safepoint.console.signing import Signer

_CHANGING: Final = ("approvers", "operators", "people")


def commands(sub: Any) -> None:
    """Add the command."""
    what = "show what waits on a page of your own; sign on this terminal"
    about = f"{what.capitalize()}. It prints a link: open it in a browser."
    parser = add(sub, "console", what, _console, description=about)
    stores = "stores to show (default: all in the settings)"
    parser.add_argument("names", metavar="NAME", nargs="*", help=stores)
    parser.add_argument("--key", metavar="FILE", help="your own key, to approve and deny")
    holds = "your own key, to hold and release"
    parser.add_argument("--operator-key", metavar="FILE", help=holds)
    port = "port on 127.0.0.1 (default: a free one)"
    parser.add_argument("--port", metavar="N", type=int, help=port)


def _console(options: argparse.Namespace) -> int:
    if not (os.isatty(0) and os.isatty(2)):
        raise ConfigurationError(
            "The console needs a terminal, for its link and for your signatures.",
            "Start it on one.",
        )
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise missing(
            "safepoint console needs Starlette, uvicorn and Jinja2, and one is missing.", "console"
        ) from None
    config = settings.read(options.config)
    names = dict.fromkeys(options.names or config.stores)
    if not names:
        raise ConfigurationError("No settings name a store.", "Name one: safepoint console NAME")
    stores = _Stores({each: config.store(each) for each in names}, options)
    _warn(stores)
    return _serve(options, stores)


class _Stores(Mapping[str, places.Store]):
    """The stores as the settings say them now: who may approve is who may at this moment.

    Where a store is, and which files have its keys, stays as it was at the start.
    """

    def __init__(self, first: Mapping[str, places.Store], options: argparse.Namespace) -> None:
        self._first, self._options = first, options

    def __getitem__(self, name: str) -> places.Store:
        first = self._first[name]
        now = settings.read(self._options.config).store(name)
        if replace(now, **{each: getattr(first, each) for each in _CHANGING}) != first:
            raise ConfigurationError(
                f"The settings of {name} have changed.", "Start the console again."
            )
        return now

    def __contains__(self, name: object) -> bool:
        return name in self._first

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)


def _warn(stores: Mapping[str, places.Store]) -> None:
    """Say of which stores this machine has what writes them. It is neither used here nor kept."""
    for name, store in stores.items():
        if any(isinstance(key, SigningKey) for key in map(key_of, store.key)):
            print(
                f"The key that writes {name} is on this machine, so anyone with this account could"
                " write what it then approves. Give approvers only the public half.",
                file=sys.stderr,
            )


def _signer(stores: Mapping[str, places.Store], file: str | None, what: Role) -> Signer | None:
    """Find whose key signs. Its file has a passphrase and stays where it is.

    Raises:
        Unsafe: it has no passphrase.
        ApprovalRefused: it counts in none of the stores. Where else it does not is printed.
    """
    from safepoint.console.signing import Signer

    if file is None:
        return None
    key, names, refused = own_id(file), dict[str, str](), list[str]()
    if key is None:
        raise Unsafe(
            f"The key {shell(file)} has no passphrase, and the console signs with no such key.",
            f"Give it one: ssh-keygen -p -a {ROUNDS} -f {shell(file)}",
        )
    for store, each in stores.items():
        try:
            with ExitStack() as stack:
                names[store] = Desk.open(each, stack).owner(key, what)
        except ApprovalRefused as error:
            refused.append(error.what)
            if len(refused) == len(stores):
                raise
        except CheckpointError:
            pass  # its page says why it cannot be looked at
    print(end="".join(f"{line}\n" for line in refused), file=sys.stderr)
    return Signer(key, file, names)


def _serve(options: argparse.Namespace, stores: Mapping[str, places.Store]) -> int:
    from safepoint.console.app import Console
    from safepoint.console.door import Door, listening, serving
    from safepoint.console.index import Index
    from safepoint.console.signing import Signing

    approver = _signer(stores, options.key, "approver")
    operator = _signer(stores, options.operator_key, "operator")
    signing, index = Signing(), Index(stores)
    console = Console(stores, index, signing, approver, operator)
    with listening(options.port or 0) as listener:
        door = Door(console, f"127.0.0.1:{listener.getsockname()[1]}")
        console.move(door.home)
        server = serving(door)

        def greet() -> None:
            print("Open this link within 60 seconds, once. Enter prints another.", file=sys.stderr)
            print(f"  {door.link()}", file=sys.stderr)

        def answer() -> None:
            try:
                server.run([listener])
            finally:
                signing.end()

        keys = [each for each in (approver, operator) if each]
        names = dict.fromkeys(name for each in keys for name in each.names.values())
        who = f"{' and '.join(names)} signs on this terminal" if names else "Nothing is signed"
        print(f"The console of {', '.join(stores)}. {who}. Ctrl-C ends it.", file=sys.stderr)
        thread = Thread(target=answer, name="console", daemon=True)
        index.start()
        thread.start()
        try:
            greet()
            signing.serve(greet)
        finally:
            server.should_exit = True
            thread.join()
            index.close()
    return 0
