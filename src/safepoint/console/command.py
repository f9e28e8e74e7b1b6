"""The command `safepoint console`: a page on this machine, and the terminal that signs for it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from socket import socket
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, Literal

from safepoint import settings
from safepoint._command import add, ended_by, flag, key_of, own_id
from safepoint.command.desk import Desk
from safepoint.core.errors import (
    ApprovalUntrusted,
    CheckpointError,
    ConfigurationError,
    KeyRefused,
    missing,
    shell,
)
from safepoint.core.keys import ROUNDS, Hidden, SigningKey
from safepoint.core.names import check_name

if TYPE_CHECKING:
    from safepoint.console.app import Console
    from safepoint.console.door import Door, SharedDoor
    from safepoint.console.signing import Signer

_PEOPLE: Final = ("approver", "revoked_approver", "operator", "revoked_operator", "people", "app")
_SHARED: Final = ("listen", "host", "proxy_secret", "user_header")
_OWN: Final = ("key", "operator_key", "person", "port")


def commands(sub: Any) -> None:
    """Add the command."""
    what = "show what waits on a page of your own, and sign it on this terminal"
    about = f"{what.capitalize()}. It prints a link: open it in a browser."
    parser = add(sub, "console", what, _console, description=about)
    stores = "stores to show (default: all in the settings)"
    parser.add_argument("names", metavar="NAME", nargs="*", help=stores)
    parser.add_argument("--as", dest="person", metavar="PERSON", help="your name")
    parser.add_argument("--key", metavar="FILE", help="your own key, to approve and deny")
    holds = "your own key, to hold and release"
    parser.add_argument("--operator-key", metavar="FILE", help=holds)
    port = "port on 127.0.0.1 (default: a free one)"
    parser.add_argument("--port", metavar="N", type=int, help=port)
    parser.add_argument("--config", metavar="FILE", help="settings, in place of those found")
    share = parser.add_argument_group("for a team, behind a proxy, to look and sign nothing")
    flag(share, "--share", "show it to those whom a proxy lets in")
    share.add_argument("--listen", metavar="ADDRESS:PORT", help="where the proxy reaches it")
    share.add_argument("--host", metavar="NAME", help="the name under which people open it")
    share.add_argument("--proxy-secret", metavar="FILE", help="what the proxy proves itself with")
    share.add_argument("--user-header", metavar="NAME", help="the header that names the user")


def _console(options: argparse.Namespace) -> int:
    _check(options)
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise missing(
            "safepoint console needs Starlette and uvicorn, which are not installed.", "console"
        ) from None
    told = _read(options)
    names = dict.fromkeys(options.names or told.stores)
    if not names:
        raise ConfigurationError("No settings name a store.", "Name one: safepoint console NAME")
    stores = _Stores({each: _store(options, told, each) for each in names}, options)
    print(end="".join(dict.fromkeys(map(told.line, names))), file=sys.stderr)
    _warn(stores)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended_by)
    return _shared(options, stores) if options.share else _own(options, stores)


def _signs(options: argparse.Namespace) -> bool:
    return bool(options.key or options.operator_key)


def _read(options: argparse.Namespace) -> settings.Settings:
    return settings.read(options.config, "change" if _signs(options) else "look")


def _store(options: argparse.Namespace, told: settings.Settings, name: str) -> settings.Store:
    return told.to_change(name) if _signs(options) else told.store(name)


class _Stores(Mapping[str, settings.Store]):
    """The stores as the settings say them now: who may approve is who may at this moment.

    Where a store is, and which files have its keys, stays as it was at the start.
    """

    def __init__(self, first: Mapping[str, settings.Store], options: argparse.Namespace) -> None:
        self._first, self._options = first, options

    def __getitem__(self, name: str) -> settings.Store:
        first = self._first[name]
        now = _store(self._options, _read(self._options), name)
        if replace(now, **{each: getattr(first, each) for each in _PEOPLE}) != first:
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


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    if (options.key or options.operator_key) and not options.person:
        options.refuse("--key and --operator-key need --as")
    given = [name for name in _SHARED if getattr(options, name) is not None]
    spelled = {name: f"--{name.replace('_', '-')}" for name in (*_SHARED, *_OWN)}
    spelled["person"] = "--as"
    if options.share:
        for name in _SHARED:
            if name not in given:
                options.refuse(f"--share needs {spelled[name]}")
        for name in _OWN:
            if getattr(options, name) is not None:
                options.refuse(f"--share takes no {spelled[name]}: a page for many is nobody's own")
    elif given:
        options.refuse(f"{spelled[given[0]]} is for --share")
    elif not (os.isatty(0) and os.isatty(2)):
        raise ConfigurationError(
            "There is no terminal to print the link on, and to sign on.",
            "Run it on one. To show it to others, behind a proxy, use --share.",
        )


def _warn(stores: Mapping[str, settings.Store]) -> None:
    """Say of which stores this machine has what writes them. It is not used here, and not kept."""
    for name, store in stores.items():
        if any(isinstance(key, SigningKey) for key in map(key_of, store.key)):
            print(
                f"The key that writes {name} is on this machine, so whoever has this account could"
                " write what it then approves. Give an approver the public half alone.",
                file=sys.stderr,
            )


def _signer(
    options: argparse.Namespace,
    stores: Mapping[str, settings.Store],
    file: str | None,
    what: Literal["approver", "operator"],
) -> Signer | None:
    """Name whose key signs. Its file has a passphrase and stays where it is; its name is listed.

    Raises:
        KeyRefused: it has no passphrase.
        ApprovalUntrusted: it counts in none of the stores. Where else it does not is printed.
    """
    from safepoint.console.signing import Signer

    if file is None:
        return None
    key, person, refused = own_id(file), check_name("approver", options.person), list[str]()
    if key is None:
        raise KeyRefused(
            f"The key {shell(file)} has no passphrase, and the console signs with no such key.",
            f"Give it one: ssh-keygen -p -a {ROUNDS} -f {shell(file)}",
        )
    for each in stores.values():
        try:
            with ExitStack() as stack:
                Desk.open(each, stack).check_key(person, key, what)
        except ApprovalUntrusted as error:
            refused.append(error.what)
            if len(refused) == len(stores):
                raise
        except CheckpointError:
            pass  # its page says why it cannot be looked at
    print(end="".join(f"{line}\n" for line in refused), file=sys.stderr)
    return Signer(person, file)


# --- for one person, on their own machine


def _own(options: argparse.Namespace, stores: Mapping[str, settings.Store]) -> int:
    from safepoint.console.app import Console
    from safepoint.console.door import Door, listening
    from safepoint.console.index import Index
    from safepoint.console.signing import Signing

    approver = _signer(options, stores, options.key, "approver")
    operator = _signer(options, stores, options.operator_key, "operator")
    signing, index = Signing(), Index(stores)
    console = Console(stores, index, signing.tell, signing, approver, operator)
    with listening(("127.0.0.1", options.port or 0)) as listener:
        door = Door(console, f"127.0.0.1:{listener.getsockname()[1]}")
        console.move(door.home)

        def greet() -> None:
            print("Open this link within 60 seconds, once. Enter prints another.", file=sys.stderr)
            print(f"  {door.link()}", file=sys.stderr)

        who = (
            f"{options.person} signs on this terminal"
            if approver or operator
            else "Nothing is signed"
        )
        print(f"The console of {', '.join(stores)}. {who}. Ctrl-C ends it.", file=sys.stderr)
        with _serving(door, listener, console, signing.end):
            greet()
            signing.serve(greet)
    return 0


# --- for a team, behind its proxy


def _shared(options: argparse.Namespace, stores: Mapping[str, settings.Store]) -> int:
    from safepoint.console.app import Console
    from safepoint.console.door import SharedDoor, listening
    from safepoint.console.index import Index

    address, _, port = options.listen.rpartition(":")
    if not address or not port.isdecimal():
        options.refuse("--listen is ADDRESS:PORT, such as 127.0.0.1:8421")
    # Whoever can read it could name any user, so root's own is no exception.
    told = settings.secret_in("--proxy-secret", options.proxy_secret, mounted=False)
    secret = Hidden(told.encode())
    ended = Event()
    console = Console(stores, Index(stores), lambda line: print(line, file=sys.stderr))
    door = SharedDoor(console, frozenset([options.host]), secret, options.user_header)
    _warn_of(address.strip("[]"))
    with listening((address.strip("[]"), int(port))) as listener:
        print(
            f"The console of {', '.join(stores)} for https://{options.host}, to look alone, is at"
            f" {address}:{listener.getsockname()[1]}. In the proxy, once it knows who comes:",
            f"  set {options.user_header} to the user's name, and X-Safepoint-Proxy to what"
            f" {shell(options.proxy_secret)} holds, in place of what came with the request;",
            "  pass on Host and all Sec-Fetch headers as they came.",
            sep="\n",
            file=sys.stderr,
        )
        with _serving(door, listener, console, ended.set):
            ended.wait()
    return 0


def _warn_of(address: str) -> None:
    """Say what goes over a network."""
    with suppress(ValueError):  # of a name
        if address == "localhost" or ip_address(address).is_loopback:
            return
    print(
        f"Others reach {address}: pages and the proxy's secret go there in clear. Let nobody but"
        " the proxy be on the way.",
        file=sys.stderr,
    )


# --- the server


@contextmanager
def _serving(
    door: Door | SharedDoor, listener: socket, console: Console, ended: Callable[[], object]
) -> Iterator[None]:
    """Answer requests in a thread of its own while the block runs."""
    from safepoint.console.door import serving

    server = serving(door, listener)

    def serve() -> None:
        try:
            server.run()
        finally:
            ended()

    thread = Thread(target=serve, name="console", daemon=True)
    console.start()
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
        console.close()
