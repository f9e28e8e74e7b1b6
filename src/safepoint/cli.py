"""The command `safepoint`: what its parts share, and how each of them ends.

A part that has commands offers `commands(sub)`, which adds their parsers to argparse's `sub` with
`set_defaults(run=function)`. The function takes the options, prints, and returns the exit status:
0 nothing to do, 1 findings, or something is refused, 2 it could not look, or was asked for what it
cannot do. It raises a CheckpointError for the rest, which `main` says on one line; and
`options.refuse(why)` ends it as argparse would.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.util
import io
import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, Final, NoReturn, Self, TextIO

from safepoint.anchor import FileAnchor
from safepoint.errors import (
    AnchorError,
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    ModelError,
    PickleRefused,
    SealError,
    StorageRefused,
    UnsafeRuntime,
    quoted,
)
from safepoint.keys import PUBLIC, Key, Keyring, Revoked, SigningKey, VerifyingKey

COMMANDS: Final = {
    "attack": "safepoint.attacks.command",
    "audit": "safepoint.audit.command",
    "convert": "safepoint.models.command",
    "explain": "safepoint.explain",
    "lint": "safepoint.models.lint",
    "migrate-pickles": "safepoint.models.command",
    "postgres": "safepoint.cli",
    "scan": "safepoint.models.command",
    "seal-model": "safepoint.models.command",
    "test-storage": "safepoint.testing.storages",
    "try-postgres": "safepoint.testing.postgres",
    "verify-model": "safepoint.models.command",
}
"""Each command, and the module that has it: imported when the command is typed."""

_STATUS: Final = "exit status: 0 nothing to do, 1 findings or refused, 2 it could not look"
# It was looked at, and the answer is no. Any other error means that nothing was looked at.
_REFUSED: Final = (
    *(PickleRefused, LimitExceeded, SealError, AnchorError),
    *(StorageRefused, ModelError),
)
_COULD_NOT: Final = (AnchorUnavailable, UnsafeRuntime)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status."""
    out, problems = _Screen(sys.stdout), _Screen(sys.stderr)
    with redirect_stdout(out), redirect_stderr(problems):
        status = _run(sys.argv[1:] if arguments is None else list(arguments))
        out.flush()
        if out.failed is not None and not isinstance(out.failed, BrokenPipeError):
            why = f"The output cannot be written ({out.failed.strerror})."
            print(why, "Make room, or write it elsewhere.", file=sys.stderr)
            status = 2
    return status


def _run(arguments: list[str]) -> int:
    try:
        parser = _parser(arguments)
        options = parser.parse_args(arguments)
        if "run" not in options:
            parser.print_help()
            return 2
        return int(options.run(options))
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1 if isinstance(error, _REFUSED) and not isinstance(error, _COULD_NOT) else 2
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except SystemExit as end:  # of argparse, which has said why
        return int(end.code or 0)


class Parser(argparse.ArgumentParser):
    """A parser whose refusal is one line of ASCII, with exit status 2."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"epilog": _STATUS, **named})
        self.set_defaults(refuse=self.error)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what it does not know, under the name of the command that was given it."""
        options, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return options, rest

    def error(self, message: str) -> NoReturn:
        """End with a line that says what is wrong."""
        line = ascii(message)[1:-1]
        self.exit(2, f"{self.prog}: {line}. Try: {self.prog} --help\n")


def _parser(arguments: list[str]) -> Parser:
    parser = Parser(prog="safepoint", description="Checkpoint security that you can run.")
    sub = parser.add_subparsers(title="commands", metavar="COMMAND")
    wanted = COMMANDS.get(arguments[0] if arguments else "")
    for module in [wanted] if wanted else dict.fromkeys(COMMANDS.values()):
        importlib.import_module(module).commands(sub)
    return parser


class _Screen(io.TextIOBase):
    """A stream for what people read: no control characters, and no errors halfway.

    Attributes:
        failed: why nothing more can be written. The work goes on, since its status counts.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._charset = getattr(stream, "encoding", None) or "ascii"
        self.failed: OSError | None = None

    def write(self, text: str) -> int:
        """Write it, with an escape for what a terminal would obey or cannot show."""
        shown = "".join(
            each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text
        )
        self.draw(shown.encode(self._charset, "backslashreplace").decode(self._charset))
        if "\n" in text:
            self.flush()
        return len(text)

    def draw(self, text: str) -> None:
        """Write it as it is."""
        if self._stream is None:
            self.failed = OSError(errno.EBADF, os.strerror(errno.EBADF))
        elif self.failed is None:
            try:
                self._stream.write(text)
            except OSError as error:
                self._fail(self._stream, error)

    def flush(self) -> None:
        """Hand on what was written."""
        # Python flushes it once more when it is forgotten, which may be after the stream is closed.
        if self._stream is not None and self.failed is None and not self._stream.closed:
            try:
                self._stream.flush()
            except OSError as error:
                self._fail(self._stream, error)

    def isatty(self) -> bool:
        """Tell whether a person looks at it."""
        return self._stream is not None and self._stream.isatty()

    def _fail(self, stream: TextIO, error: OSError) -> None:
        self.failed = error
        # What is left in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Bar:
    """Shows how far long work of a command is, if standard error is a terminal.

    Args:
        label: what is being worked on.
    """

    def __init__(self, label: str) -> None:
        here = sys.stderr
        self._screen = here if isinstance(here, _Screen) and here.isatty() else None
        self._label = label
        self._next = time.monotonic() + 0.5  # short work shows nothing
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` are done, a few times a second."""
        if self._screen is None or (now := time.monotonic()) < self._next:
            return
        self._next = now + 0.1
        self._shown = True
        line = f"{self._label}: {done:,} of {total:,}"
        # A line that wraps could not be written over.
        self._screen.draw(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        self._screen.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._screen is not None and self._shown:
            self._screen.draw("\r\x1b[K")
            self._screen.flush()


def keyring_of(paths: Sequence[str], revoked: Sequence[str] = ()) -> Keyring:
    """Load the keys, newest first. The first signs if it can, and is one that verifies if not.

    Args:
        paths: their files.
        revoked: files of stolen keys, each with `=` and the folder of an anchor from before.
    """
    keys = [key_of(path) for path in reversed(paths)]
    gone = [_revoked(named) for named in revoked]
    if keys and isinstance(keys[-1], SigningKey):
        return Keyring(keys[-1], verify=keys[:-1], revoked=gone)
    return Keyring(verify=keys, revoked=gone)


def key_of(path: str) -> Key:
    """Load a key, secret or public, by what its file says it is."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            begins = file.read(len(PUBLIC.magic))
    except (OSError, ValueError):
        begins = b""  # which the key's own reading says better
    if begins == PUBLIC.magic:
        return VerifyingKey.from_file(path)
    return SigningKey.from_file(path)


def _revoked(named: str) -> Revoked:
    file, copied, until = named.partition("=")
    return Revoked(key_of(file), FileAnchor(until) if copied else None)


def imported(named: str, example: str) -> Any:
    """Import what the user names as MODULE:NAME, from the current folder too. The module runs.

    Args:
        named: the module and the name in it.
        example: what to write, for the refusal.

    Raises:
        ConfigurationError: it is written in another way, or cannot be imported.
    """
    module, colon, name = named.partition(":")
    if not (module and colon and name):
        raise ConfigurationError(f"{quoted(named)} is not MODULE:NAME.", f"Write {example}")
    sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigurationError(
            f"{quoted(named)} cannot be imported: it raised {type(error).__name__}.",
            "Name what python -c 'import MODULE' finds.",
        ) from error
    finally:
        sys.path.remove("")
    return found


def commands(sub: Any) -> None:
    """Add `safepoint postgres`."""
    from safepoint.postgres.schema import PARTS

    parser = sub.add_parser(
        "postgres",
        help="make the schema of a PostgreSQL storage and its roles, or print the SQL",
        description="Make the schema of a PostgreSQL storage and its roles, or print the SQL.",
    )
    inner = parser.add_subparsers(metavar="COMMAND", required=True)
    making = inner.add_parser("migrate", help="make the schema and the roles in a database")
    making.add_argument("dsn", metavar="DSN", help="a login that may create roles, as for psql")
    making.set_defaults(run=_migrate)
    printing = inner.add_parser("sql", help="print what migrate would run")
    printing.set_defaults(run=_sql)
    for each in (making, printing):
        each.add_argument(
            "--part",
            action="append",
            choices=PARTS,
            help="only this part; give it again for another (default: all)",
        )
        each.add_argument("--prefix", default="safepoint", help="how the names of roles begin")


def _migrate(options: argparse.Namespace) -> int:
    from safepoint.postgres.schema import PARTS, migrate

    made = migrate(options.dsn, parts=tuple(options.part or PARTS), prefix=options.prefix)
    print(f"Made: {', '.join(made)}." if made else "All of it is there already.")
    return 0


def _sql(options: argparse.Namespace) -> int:
    from safepoint.postgres.schema import PARTS, statements

    print(statements(parts=tuple(options.part or PARTS), prefix=options.prefix))
    return 0
