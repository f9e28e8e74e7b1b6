"""Pickles, for a terminal: `python -m safepoint.pickles inspect PATH`. Nothing in a file is run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from safepoint._command import print_lines
from safepoint.cli import Bar
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    PickleRefused,
    shell,
)
from safepoint.pickles import fickled
from safepoint.pickles.command import complain, ledger_of, options_of, types_of
from safepoint.pickles.inspection import Inspected, inspect
from safepoint.pickles.migration import Outcome, migrate_pickles
from safepoint.pickles.moving import REFUSED

# Those that are about the file. The others are about the path, or about this installation.
_ABOUT_THE_FILE = (PickleRefused, LimitExceeded)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for.

    Returns:
        0 if all is fine, 1 if a file is refused or worth a look, 2 if something cannot be done.
    """
    options = options_of(arguments)
    if options.command == "migrate":
        return _migrate(options)
    commands: dict[str, Callable[[str], int]] = {
        "inspect": _inspect,
        "decompile": lambda path: _show(fickled.decompile(path)),
        "trace": lambda path: _show(fickled.trace(path)),
        "check": _check,
    }
    worst = 0
    for path in options.paths:
        try:
            if len(options.paths) > 1 and options.command in ("decompile", "trace"):
                print_lines([f"# {shell(path)}"])
            code = commands[options.command](path)
        except _ABOUT_THE_FILE as error:
            complain(f"{shell(path)}: {error}")
            code = 1
        except CheckpointError as error:
            complain(error)
            code = 2
        worst = max(worst, code)
    return worst


def _inspect(path: str) -> int:
    found = inspect(path)
    lines = [*map(_told, found.pickles), *found.unseen]
    if not found.size:
        lines.append("There is nothing in it.")
    what = f"{shell(path)} is {found.kind.sentence} ({found.size:,} bytes)."
    print_lines([what, *(f"  {line}" for line in lines)])
    return int(not found.plain or not found.size)


def _told(pickle: Inspected) -> str:
    where = f"{pickle.where}: " if pickle.where else ""
    size = f"{pickle.opcodes:,} instructions of protocol {pickle.protocol}"
    wants = f", asks for {', '.join(pickle.imports)}" if pickle.imports else ""
    calls = ", makes calls" if pickle.calls and not pickle.plain else ""
    follows = f", {pickle.trailing:,} bytes follow" if pickle.trailing else ""
    verdict = "Plain data." if pickle.plain else f"Not plain data: {pickle.reason}"
    return f"{where}{size}{wants}{calls}{follows}. {verdict}"


def _show(text: str) -> int:
    print_lines([text])
    return 0


def _check(path: str) -> int:
    verdict = fickled.check(path)
    reasons = (f"  {reason}" for reason in verdict.reasons)
    print_lines([f"{shell(path)}: {verdict.severity}", *reasons])
    return int(verdict.suspicious)


def _migrate(options: argparse.Namespace) -> int:
    try:
        if not (options.dry_run or options.allow_unsigned_migration):
            raise ConfigurationError(
                "These files carry no seal, so whoever could write them decides what they say.",
                "Look at them first, with --dry-run. If you vouch for them, add"
                " --allow-unsigned-migration",
            )
        types = types_of(options.type)
        with Bar("Migrating") as bar:
            summary = migrate_pickles(
                options.folder,
                ledger_of(options, types),
                report=options.report,
                types=types,
                app=options.app,
                dry_run=options.dry_run,
                progress=bar,
                allow_unsigned_migration=options.allow_unsigned_migration,
                allow_missing_past=options.allow_missing_past,
            )
    except CheckpointError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        complain("It was interrupted. Run it again with the same report: it goes on from there.")
        return 2
    for each in summary.outcomes:
        if each.outcome == REFUSED:
            complain(f"{shell(os.path.join(options.folder, each.source))}: {each.reason}")  # noqa: PTH118
        elif summary.dry_run:
            print_lines([_would(each)])
    would = "would be " if summary.dry_run else ""
    line = (
        f"{summary.found:,} file{'s' * (summary.found != 1)}: {summary.sealed:,} {would}sealed,"
        f" {summary.there_already:,} sealed before, {summary.refused:,} refused."
        + (" Nothing was written." if summary.dry_run else "")
    )
    print_lines([line])
    return int(summary.refused > 0)


def _would(each: Outcome) -> str:
    done = "is there already as" if each.outcome != "sealed" else "would be sealed as"
    return f"{shell(each.source)} {done} {each.thread} #{each.sequence}."


if __name__ == "__main__":
    sys.exit(main())
