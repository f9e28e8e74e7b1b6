"""`safepoint audit`: read the settings, look and say what was found."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

from safepoint.audit.accepting import accept, entries
from safepoint.audit.finding import FAILED, Severity, worst_first
from safepoint.audit.formats import FORMATS
from safepoint.audit.looking import look
from safepoint.places import is_connection
from safepoint.settings import SEVERITIES, Settings, read, read_for_audit
from safepoint.shared.terminal import add


def commands(sub: Any) -> None:
    """Add `safepoint audit` and `safepoint lint`."""
    status = "exit status: 0 nothing to do, 1 findings, 2 it could not look."
    lint = add(
        sub,
        "lint",
        "find loads in code that can run what a file says",
        _audit,
        description="Find loads that can run what a file says: only the audit of code. Nothing is"
        " imported or run.",
        epilog=f"{status} Allow one on its line: # safepoint: allow SL02 REASON",
    )
    lint.add_argument("path", metavar="PATH", nargs="*", help="a file, or a folder of code")
    lint.add_argument("--format", choices=FORMATS, default="text", help="output format (text)")
    lint.set_defaults(is_code=True, store=None, fail_on=None)
    parser = add(
        sub,
        "audit",
        "check stores, state, models and code",
        _audit,
        description="Check stores, state of other frameworks, models and code: each path is"
        " identified by its content. Without any, what safepoint.toml names. Nothing is changed.",
        epilog=f"{status} --fail-on says which findings count.",
    )
    parser.set_defaults(is_code=False)
    what = "a folder or a file: a store, a database, models, code, or all of these"
    parser.add_argument("path", metavar="PATH", nargs="*", help=what)
    what = "a store of the settings, or of the default places"
    parser.add_argument("--store", metavar="NAME", help=what)
    what = "the lowest severity that fails the audit (warning)"
    parser.add_argument("--fail-on", choices=SEVERITIES, help=what)
    parser.add_argument("--format", choices=FORMATS, default="text", help="output format (text)")


def _audit(options: argparse.Namespace) -> int:
    """Look and say what was found in the format that was asked for."""
    settings = read_for_audit(options.config)
    accepted = entries(settings)
    fail_on = cast("Severity", options.fail_on or settings.fail_on)
    paths, stores = _named(options, settings)
    known = read(options.config) if options.store else settings
    opens = {name: partial(known.store, name) for name in stores}
    report = look(paths, opens, is_code=options.is_code)
    failed = [each for each in report.findings if each.id == FAILED]
    found = accept(report.findings, accepted, settings.folder, datetime.now(UTC).date())
    report = replace(report, findings=tuple(worst_first(found)), settings=settings.file)
    status = report.status(fail_on)
    if options.format == "text" and not report.looked and found == failed:
        print(*(f"{each.what} {each.do}" for each in failed), sep="\n", file=sys.stderr)
        return status  # there is nothing to report on but what was asked for
    for line in FORMATS[options.format](report, fail_on):
        print(line)
    return status


def _named(options: argparse.Namespace, settings: Settings) -> tuple[list[str], list[str]]:
    """Return the paths and the stores that the options name, or else those of the settings."""
    paths, names = options.path, [options.store] if options.store else []
    if any(is_connection(each) and not os.path.lexists(each) for each in paths):
        do = "name a store in PostgreSQL in a file of settings: safepoint audit --config FILE"
        options.refuse(f"a PATH is a file or a folder; {do}")
    if not paths and not names:
        paths, names = settings.paths, [] if options.is_code else settings.stores
    if not paths and not names:
        what = "PATH" if options.is_code else "PATH or --store NAME"
        options.refuse(f'name a {what}, or write safepoint.toml: [audit] with paths = ["src"]')
    return paths, names
