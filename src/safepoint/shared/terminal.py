"""What commands share: the screen, how far they are, and the keys and modules they are given.

It stands below the wings, so that a command imports nothing of `cli`, which finds it by name.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import io
import json
import math
import os
import pkgutil
import re
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

from safepoint.core.errors import (
    ApprovalNeeded,
    ApprovalRefused,
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    ModelRefused,
    NotFound,
    ResumeRefused,
    RolledBack,
    SealBroken,
    Unsafe,
    quoted,
    shell,
)
from safepoint.core.files import open_regular
from safepoint.core.keys import (
    ROUNDS,
    Hidden,
    Key,
    Keyring,
    SigningKey,
    VerifyingKey,
    read_key_file,
)
from safepoint.core.names import stamp

# It was looked at, and the answer is no. Any other error means that nothing was looked at.
_REFUSED: Final = (
    *(LimitExceeded, SealBroken, RolledBack, ModelRefused),
    *(ResumeRefused, ApprovalNeeded, ApprovalRefused),
)
_EVERY: Final = 0.2  # seconds


_GIVEN: Final = {
    "NAME": "the name of the store",
    "THREAD": "the thread's name; a tenant's is @TENANT/THREAD",
    "SEQUENCE": "which of its records",
    "FILE": "the file of the key",
}


class _Thread(argparse.Action):
    """Takes a thread as it is listed, and a tenant alone where a thread may be left out."""

    def __call__(self, _: Any, options: argparse.Namespace, given: Any, *__: object) -> None:
        named = given or ""
        tenant, _, thread = named[1:].partition("/") if named[:1] == "@" else ("", "", named)
        if named[:1] == "@" and not tenant:
            raise argparse.ArgumentError(self, "write a tenant's thread as @TENANT/THREAD")
        options.tenant, options.thread = tenant, thread or (None if self.nargs else "")


def add(
    sub: Any, name: str, what: str, run: Any = None, *given: str, **named: Any
) -> argparse.ArgumentParser:
    """Add a command: what it does is in the list, and as a sentence above its options.

    Args:
        sub: what `add_subparsers` returned, or what `cli` hands to a module.
        name: what people type.
        what: what it does, in a few words.
        run: the function that does it, None if the command has commands of its own.
        given: the names of its arguments; one that may be left out ends with `?`.
        named: more for argparse, such as a description that says more.
    """
    about = f"{what[:1].upper()}{what[1:]}."
    parser: argparse.ArgumentParser = sub.add_parser(
        name, help=what, **{"description": about, **named}
    )
    if run is not None:  # otherwise it has commands of its own
        parser.set_defaults(run=run)
    for each in given:
        shown = each.rstrip("?")
        more: dict[str, Any] = {"nargs": "?"} if each != shown else {}
        more |= {"type": int} if shown == "SEQUENCE" else {}
        more |= {"action": _Thread} if shown == "THREAD" else {}
        parser.add_argument(shown.lower(), metavar=shown, help=_GIVEN[shown], **more)
    return parser


def flag(parser: argparse._ActionsContainer, name: str, meaning: str) -> None:
    """Add an option that is given or not."""
    parser.add_argument(name, action="store_true", help=meaning)


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the option for output that a program reads."""
    what = "output format (text)"
    parser.add_argument("--format", choices=("text", "json"), default="text", help=what)


def print_json(found: Any) -> None:
    """Print one line of JSON. A moment is written as a record writes it, in UTC."""
    print(json.dumps(found, default=stamp).replace("\x7f", "\\u007f"))


def say(options: argparse.Namespace, text: str, found: Any) -> None:
    """Print a text for people, or what it says for programs."""
    print_json(found) if options.format == "json" else print(text)


def alarm_of(thread: str, error: CheckpointError) -> dict[str, str]:
    """Return why a thread does not verify, or cannot be looked at, for programs."""
    return {"thread": thread, "error": type(error).__name__, "message": str(error)}


def status_of(error: CheckpointError) -> int:
    """Return the exit status of a command that an error ends."""
    return 1 if isinstance(error, _REFUSED) or error.kind in ("refused", "held") else 2


def counted(count: int, what: str) -> str:
    """Return a number and a noun."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def unknown(what: str, name: str, known: Iterable[str], do: str) -> NotFound:
    """Return the error for a name that nothing has: it says what is near it, or else what to do."""
    names = {each.lower(): each for each in known}
    near = [names[each] for each in difflib.get_close_matches(name.lower()[:100], names)]
    do = f"Near it: {', '.join(near)}." if near else do
    return NotFound(f"There is no {what} {quoted(name)}.", do)


def _escaped(found: re.Match[str]) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in found[0])


class Screen(io.TextIOBase):
    """A stream for what people read: no control characters and no errors halfway.

    Attributes:
        failed: why nothing more can be written. The work continues, since its status counts.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._charset = getattr(stream, "encoding", None) or "ascii"
        self.failed: OSError | None = None

    def write(self, text: str) -> int:
        """Write it, with an escape for what a terminal or a CI job would obey or cannot show."""
        # A runner obeys ##[ anywhere in a line. JSON stays JSON.
        shown = re.sub(r"[^ -~\n\t]+", _escaped, text).replace("##[", r"##\u005b")
        if self._stream is None:
            self.failed = OSError(errno.EBADF, os.strerror(errno.EBADF))
        elif self.failed is None:
            try:
                encoded = shown.encode(self._charset, "backslashreplace")
                self._stream.write(encoded.decode(self._charset))
            except OSError as error:
                self._fail(self._stream, error)
        if "\n" in text:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Hand on what was written."""
        # Python flushes it once more when it is forgotten, which may be after the stream is closed.
        if self._stream is not None and self.failed is None and not self._stream.closed:
            try:
                self._stream.flush()
            except OSError as error:
                self._fail(self._stream, error)

    def _fail(self, stream: TextIO, error: OSError) -> None:
        self.failed = error
        # What is left in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Line:
    def __init__(self, stream: TextIO, what: str) -> None:
        self._stream, self._what = stream, what
        self._count, self._next, self._width = 0, time.monotonic() + 1, 0

    def tick(self) -> None:
        self._count += 1
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            # No names: whoever chose them would write on the terminal.
            self.write(f"Looked at {self._count:,} {self._what}")

    def write(self, text: str) -> None:
        """Put a text in the place of the one before it."""
        with suppress(OSError, ValueError):
            self._stream.write(f"\r{text.ljust(self._width)}\r{text}")
            self._stream.flush()
        self._width = len(text)


_SHOWN: Final[list[_Line]] = []


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show how far it is while this lasts: one line on a terminal, gone at the end."""
    stream = sys.__stderr__  # what commands print to hides control characters
    if stream is None or stream.closed or not stream.isatty():
        yield
        return
    _SHOWN.append(_Line(stream, what))
    try:
        yield
    finally:
        _SHOWN.pop().write("")


def tick() -> None:
    """Count one more of what is looked at."""
    if _SHOWN:
        _SHOWN[-1].tick()


def keyring_of(paths: Sequence[str], *, signs: bool = True) -> Keyring:
    """Load the keys, newest first. The first signs if it can and is one that verifies if not.

    Args:
        paths: their files.
        signs: whether the first may sign. If not, of each secret key the public half is kept.
    """
    keys = [key_of(path) for path in reversed(paths)]
    if not signs:
        keys = [key.public if isinstance(key, SigningKey) else key for key in keys]
    elif keys and isinstance(keys[-1], SigningKey):
        return Keyring(keys[-1], verify=keys[:-1])
    return Keyring(verify=keys)


def key_of(path: str) -> Key:
    """Load a key, secret or public, by what its file says it is."""
    if read_key_file(path).kind == "public key":
        return VerifyingKey.from_file(path)
    return SigningKey.from_file(path)


def beginning(path: str, most: int) -> bytes:
    """Return how a file begins; nothing if it cannot be read, which whoever opens it says."""
    with suppress(OSError, ValueError), open_regular(os.path.realpath(path)) as file:
        return file.read(most)
    return b""


def imported(named: str, example: str) -> Any:
    """Import what the user names as MODULE:NAME, from the current folder as well. The module runs.

    Args:
        named: the module and the name in it.
        example: what to write, for the refusal.

    Raises:
        ConfigurationError: it is written in another way, or cannot be imported.
    """
    if not all(named.partition(":")):
        raise ConfigurationError(f"{quoted(named)} is not MODULE:NAME.", f"Write {example}")
    sys.path.insert(0, "")
    try:
        return pkgutil.resolve_name(named)
    except Exception as error:
        raise ConfigurationError(
            f"{quoted(named)} cannot be imported: it raised {type(error).__name__}.",
            "Name what python -c 'import MODULE' finds.",
        ) from error
    finally:
        sys.path.remove("")


# --- what people read and type

_MORE: Final = "    | "  # before what goes on from the row above, so that it passes for no other
_TRIES: Final = 3
_LONGEST: Final = 4096  # of a line on a terminal


def rows(line: str, screen: int) -> Iterator[str]:
    """Break a line for a terminal, so that no row of it can pass for another line."""
    columns = os.get_terminal_size(screen).columns if os.isatty(screen) else len(line)
    width = max(columns or 80, 20)
    yield line[:width]
    rest, step = line[width:], width - len(_MORE)
    yield from (f"{_MORE}{rest[at : at + step]}" for at in range(0, len(rest), step))


def table(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose cells stand below one another."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def when(moment: datetime) -> str:
    """Return a moment in the zone of anyone who reads it, with UTC next to it."""
    here, utc = moment.astimezone(), f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return utc if not here.utcoffset() else f"{here:%Y-%m-%d %H:%M} {here.tzname()} ({utc[-9:]})"


def typed(prompt: str) -> str:
    """Return a line that was typed after it was asked for; a closed terminal gives a line break."""
    with suppress(ImportError):
        import termios

        termios.tcflush(0, termios.TCIFLUSH)  # what was typed before was typed to something else
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.buffer.readline()
    return line.decode("ascii", "replace").removesuffix("\n") if line else "\n"


def own_id(path: str) -> str | None:
    """Return the id that a person's key file names, or None if it has no passphrase.

    It is a hint, to ask for the right passphrase. What the file says counts once it is unlocked.

    Raises:
        Unsafe: as `read_key_file`. It names the command that makes a key.
    """
    try:
        file = read_key_file(path)
    except Unsafe as error:
        if os.path.lexists(path):
            raise
        do = f"Check the path, or make one: ssh-keygen -t ed25519 -a {ROUNDS} -f {shell(path)}"
        raise Unsafe(error.what, do) from None
    return file.public.id if file.kind == "key with a passphrase" else None


def unlock(path: str, prompt: str, *, within: float = math.inf) -> SigningKey:
    """Unlock the key of a person, who types its passphrase on the terminal.

    Args:
        path: the file of the key.
        prompt: a line that says what the key is for.
        within: seconds for each try.

    Raises:
        Unsafe: the key has no passphrase, there is no terminal, or three passphrases were
            wrong. An empty line gives up.
    """
    key_id = own_id(path)
    if key_id is None:
        return SigningKey.from_file(path, passphrase="")  # which says what it is
    asks = f"{prompt}\nPassphrase of key {key_id}, or Enter to give up: "
    given = passphrase(asks, within)
    for _ in range(_TRIES - 1):
        try:
            return SigningKey.from_file(path, passphrase=given)
        except Unsafe as refusal:
            given = passphrase(f"{refusal.what}\n{asks}", within)
    return SigningKey.from_file(path, passphrase=given)


def passphrase(prompt: str, within: float = math.inf) -> Hidden:
    """Return what was typed on the terminal after it was asked for, without showing it.

    Args:
        prompt: what to ask.
        within: seconds to wait.

    Raises:
        Unsafe: there is no terminal, or nothing was typed.
    """
    with _terminal() as (fd, screen), no_echo(fd) as woken:
        given, asked = Hidden(b""), -1
        try:
            deadline = time.monotonic() + within
            # A signal that came right before a look is heard after it, so none is long.
            while time.monotonic() < deadline:
                if asked != len(woken):  # not yet; or what is on the screen by now is the shell's
                    asked = len(woken)
                    print(prompt, end="", file=screen, flush=True)
                if select.select([fd], [], [], min(within, 1))[0]:
                    given = Hidden(os.read(fd, _LONGEST))
                    break
        except OSError:
            pass  # of a terminal that is gone
        finally:
            print(file=screen, flush=True)
    if given.reveal().endswith(b"\n") and given.reveal() != b"\n":
        return Hidden(given.reveal()[:-1])
    raise Unsafe("No passphrase was typed.", "Nothing was signed or written.")


@contextmanager
def _terminal() -> Iterator[tuple[int, TextIO | Screen]]:
    """Yield what to read from and where to write: where the question was shown, if that is one."""
    if os.isatty(0) and os.isatty(2):
        yield 0, sys.stderr
        return
    try:
        terminal = Path("/dev/tty").open("r+b", buffering=0)  # noqa: SIM115
    except OSError:
        raise Unsafe(
            "A passphrase has to be typed on a terminal.",
            "Nothing was signed or written. Run it on one, or use a key without a passphrase, in a"
            " file of its own.",
        ) from None
    with terminal, open(terminal.fileno(), "w", closefd=False) as screen:
        yield terminal.fileno(), Screen(screen)


@contextmanager
def no_echo(fd: int) -> Iterator[Sequence[float]]:
    """Show nothing of what is typed and show it again afterwards, whatever ends it.

    A shell that stopped the command has its own way with the terminal: it is silenced again
    when the command continues. Yields when that was.
    """
    import termios

    before = termios.tcgetattr(fd)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    woken: list[float] = []

    def silence(*_: object) -> None:
        with suppress(termios.error):  # stopped again in the midst of it, or the terminal is gone
            termios.tcsetattr(fd, termios.TCSAFLUSH, silent)  # with what was typed before
            woken.append(time.monotonic())

    continued = signal.getsignal(signal.SIGCONT)
    with suppress(ValueError):  # of a thread, where signals do not arrive
        signal.signal(signal.SIGCONT, silence)
    try:
        termios.tcsetattr(fd, termios.TCSAFLUSH, silent)
        yield woken
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGCONT, continued)
        with suppress(termios.error):  # of a terminal that is gone
            termios.tcsetattr(fd, termios.TCSANOW, before)


def ended_by(number: int, _: object) -> NoReturn:
    """End the command as a signal asks for, with what has to be done before."""
    raise SystemExit(128 + number)
