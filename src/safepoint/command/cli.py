"""The command `safepoint`: where its parts are, and how each of them ends.

A part that has commands offers `commands(sub)`, which adds their parsers to argparse's `sub` with
`set_defaults(run=function)`. The function takes the options, prints, and returns the exit status:
0 nothing to do, 1 findings, or something is refused, 2 it could not look, or was asked for what it
cannot do. It raises a CheckpointError for the rest, which `main` says on one line; and
`options.refuse(why)` ends it as argparse would.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import signal
import sys
import textwrap
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any, Final, NoReturn

from safepoint.core.errors import CheckpointError, RolledBack, SealBroken
from safepoint.shared.terminal import Screen, add, ended_by, flag, status_of
from safepoint.stores.disk import translate

GROUPS: Final = {
    "to begin": {
        "init": "safepoint.command.operating",
        "move": "safepoint.moving",
        "examples": "safepoint.command.examples",
    },
    "to look": {
        "audit": "safepoint.audit.command",
        "verify": "safepoint.command.operating",
        "history": "safepoint.command.operating",
        "journal": "safepoint.command.operating",
        "explain": "safepoint.command.explain",
    },
    "to decide": {
        "waiting": "safepoint.command.deciding",
        "approve": "safepoint.command.deciding",
        "deny": "safepoint.command.deciding",
        "hold": "safepoint.command.deciding",
        "release": "safepoint.command.deciding",
        "people": "safepoint.command.deciding",
        "console": "safepoint.console.command",
    },
    "to keep it": {
        "keys": "safepoint.command.operating",
        "new-key": "safepoint.command.operating",
        "postgres": "safepoint.command.cli",
    },
    "models and code": {
        "scan": "safepoint.models.command",
        "convert": "safepoint.models.command",
        "seal-model": "safepoint.models.command",
        "verify-model": "safepoint.models.command",
        "lint": "safepoint.audit.command",
    },
    "to try": {"attack": "safepoint.attacks.command"},
}
COMMANDS: Final = {name: module for group in GROUPS.values() for name, module in group.items()}
"""Each command, and the module that has it: imported when the command is typed."""

_PARTS: Final = ("store", "anchor", "journal", "answers")  # of safepoint.stores.postgres, an extra
_BEGIN: Final = """\
What have I got?     safepoint audit PATH
Secure a new one:    safepoint init NAME
What does it mean?   safepoint explain SP12"""
_INTERRUPTED: Final = 130
_DEFECT: Final = (
    "This is a bug in safepoint, not something that you did. Run the same line with python -X dev"
    " -m safepoint in place of safepoint, and report what that prints."
)
_STATUS: Final = (
    "exit status: 0 done, or nothing to do; 1 findings, or refused; 2 it could not be done"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status."""
    out, problems = Screen(sys.stdout), Screen(sys.stderr)
    if arguments is None:  # the process is ours
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(number) is signal.SIG_DFL:  # else somebody wants it ignored
                signal.signal(number, ended_by)
    with redirect_stdout(out), redirect_stderr(problems):
        status = _run(sys.argv[1:] if arguments is None else list(arguments))
        if arguments is None and status == _INTERRUPTED:
            with suppress(ValueError):  # of a thread
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more has nothing left to end
        out.flush()
        if out.failed is not None and not isinstance(out.failed, BrokenPipeError):
            why = f"The output cannot be written ({out.failed.strerror})."
            print(why, "Make room, or write it elsewhere.", file=sys.stderr)
            status = 2
    return status


def _run(arguments: list[str]) -> int:
    try:
        # Wherever it stands: each command reads the same settings.
        options, arguments = argparse.ArgumentParser.parse_known_args(_settings(), arguments)
        parser = _parser(arguments)
        parser.parse_args(arguments, options)
        if "run" not in options:
            parser.print_help()
            return 2
        return int(options.run(options))
    except CheckpointError as error:
        status = status_of(error)
        # What does not verify has a name, which `safepoint explain` takes.
        named = isinstance(error, SealBroken | RolledBack)
        print(f"{type(error).__name__}: {error}" if named else error, file=sys.stderr)
        return status
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return _INTERRUPTED
    except SystemExit as end:  # of argparse, which has said why
        return int(end.code or 0)
    except OSError as error:
        print(translate(error, "use", str(error.filename or "the current folder")), file=sys.stderr)
        return 2
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        print(f"{type(error).__name__}: {_DEFECT}", file=sys.stderr)
        return 2


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


class _Commands:
    """Where modules add their commands: it keeps what each does, for a list by group."""

    def __init__(self, parser: Parser) -> None:
        self._sub = parser.add_subparsers(prog="safepoint", help=argparse.SUPPRESS)
        self._does: dict[str, str] = {}

    def add_parser(self, name: str, *, help: str, **named: Any) -> Any:  # noqa: A002  argparse's
        self._does[name] = help
        return self._sub.add_parser(name, **named)

    def __str__(self) -> str:
        lines: list[str] = []
        for title, names in GROUPS.items():
            lines += ["", f"{title}:"]
            for name in names:
                rows = textwrap.wrap(self._does.get(name, ""), 62)
                lines += [f"  {name:14}  {rows[0]}", *(f"{'':18}{row}" for row in rows[1:])]
        return "\n".join(lines).strip()


def _settings() -> Parser:
    parser = Parser(prog="safepoint", add_help=False, allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", help="the settings, in place of your own")
    return parser


def _parser(arguments: list[str]) -> Parser:
    parser = Parser(
        parents=[_settings()],
        prog="safepoint",
        usage="safepoint COMMAND ...",
        description="Checkpoint security that you can run.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    named = arguments[0] if arguments else "-"
    if not (wanted := COMMANDS.get(named)):
        from importlib import metadata  # which takes a fifth of the start of a command

        parser.add_argument("--version", action="version", version=metadata.version("safepoint"))
    added = _Commands(parser)
    if not wanted and not named.startswith("-"):
        near = difflib.get_close_matches(named[:100], COMMANDS)
        parser.error(f"unknown command {named!r}{f'. Near it: {near[0]}' if near else ''}")
    for module in [wanted] if wanted else dict.fromkeys(COMMANDS.values()):
        importlib.import_module(module).commands(added)
    if not wanted:
        parser.epilog = f"{added}\n\n{_BEGIN}\n{_STATUS}"
    return parser


def commands(sub: Any) -> None:
    """Add `safepoint postgres`."""
    what = "make the schema of a PostgreSQL storage and its roles, or print the SQL"
    parser = add(sub, "postgres", what, _postgres)
    dsn = "a login that may create roles, as for psql, without a password; or env:NAME"
    parser.add_argument("dsn", metavar="DSN", nargs="?", help=f"{dsn} (prints the SQL)")
    only = "only this part; again for each (all)"
    parser.add_argument("--part", action="append", choices=_PARTS, help=only)
    prefix = "how the names of roles begin (safepoint)"
    parser.add_argument("--prefix", metavar="NAME", default="safepoint", help=prefix)
    what = "create nothing, but set which threads a login sees: those without a tenant"
    parser.add_argument("--assign", metavar="LOGIN", help=what)
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--tenant", metavar="NAME", default="", help="only this tenant's threads")
    flag(whose, "--every-tenant", "the threads of all tenants")


def _postgres(options: argparse.Namespace) -> int:
    from safepoint.places import connection_string
    from safepoint.stores.postgres.schema import PARTS, assign, create_schema, statements

    parts, prefix = tuple(options.part or PARTS), options.prefix
    if not options.assign and (options.tenant or options.every_tenant):
        options.refuse("--tenant and --every-tenant need --assign LOGIN")
    if options.dsn is None:
        if options.assign:
            options.refuse("--assign needs a DSN")
        print(statements(parts=parts, prefix=prefix))
        return 0
    dsn = connection_string("DSN", options.dsn)
    if options.assign:
        every = options.every_tenant
        done = assign(dsn, options.assign, options.tenant, every_tenant=every, prefix=prefix)
        print(f"Assigned in: {', '.join(done)}.")
        return 0
    made = create_schema(dsn, parts=parts, prefix=prefix)
    print(f"Made: {', '.join(made)}." if made else "Everything is there already.")
    return 0
