"""The commands on models and pickles: scan, convert, seal-model, verify-model, migrate-pickles."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from safepoint._command import imported, keyring_of
from safepoint.anchor import FileAnchor
from safepoint.codec import Codec
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    PickleRefused,
    shell,
)
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.models import fickled
from safepoint.models.limits import DEFAULT_MODEL_LIMITS
from safepoint.models.loading import UnrestrictedLoad, open_model, planned, verified
from safepoint.models.look import Inspected, Verdict, inspect, pickles_in
from safepoint.models.migration import REFUSED, migrate_pickles
from safepoint.models.saving import convert, seal_model
from safepoint.models.seals import seal_beside
from safepoint.storage import FileCheckpointStorage, InMemoryCheckpointStorage

_SHOWN: Final = 20
_FOLDER: Final = "Nothing in the files is run or imported."


def commands(sub: Any) -> None:
    """Add the commands to argparse's subparsers."""
    scan = _added(
        sub,
        "scan",
        "say what files are, which tensors they hold, and what the pickles in them would import and"
        " call",
        _scan,
    )
    scan.add_argument("paths", metavar="PATH", nargs="+", help="a file")
    scan.add_argument(
        "--decompile",
        action="store_true",
        help="print the pickles as Python code as well, as fickling reads them",
    )
    turn = _added(sub, "convert", "turn a PyTorch file into sealed safetensors", _convert)
    seal = _added(sub, "seal-model", "put a seal beside a model file", _seal)
    verify = _added(sub, "verify-model", "verify the seal beside a model file", _verify)
    for command in (turn, seal, verify):
        command.add_argument("file", metavar="FILE", help="the model file")
        command.add_argument("--name", metavar="NAME", help="the name that the seal is bound to")
    turn.add_argument("target", metavar="NEW", help="the new file: its name ends in .safetensors")
    turn.add_argument(
        "--trusted",
        action="store_true",
        help="you made FILE: load it without restriction, so that it can run code, with your rights"
        " and in a process of its own",
    )
    for command in (turn, seal):
        command.add_argument("--key", metavar="KEY", required=True, help="the key to seal it with")
        command.add_argument("--create", action="store_true", help="make the key if there is none")
    verify.add_argument(
        "--key", metavar="KEY", action="append", required=True, help="a key; again for older ones"
    )
    _add_migrate(sub)


def _added(sub: Any, name: str, what: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = sub.add_parser(
        name, help=what, description=f"{what[:1].upper()}{what[1:]}."
    )
    parser.set_defaults(run=run)
    return parser


def _scan(options: argparse.Namespace) -> int:
    worst = 0
    for path in options.paths:
        try:
            worst = max(worst, _scanned(path, options.decompile))
        except (PickleRefused, LimitExceeded) as error:
            print(f"{shell(path)}: {error}", file=sys.stderr)
            worst = max(worst, 1)
        except CheckpointError as error:
            print(error, file=sys.stderr)
            worst = 2
    return worst


def _scanned(path: str, decompile: bool) -> int:
    found = inspect(path)
    print(f"{shell(path)} is {found.kind.sentence} ({found.size:,} bytes).")
    for line in (*map(_told, found.pickles), *found.unseen):
        print(f"  {line}")
    if not found.size:
        print("  There is nothing in it.")
    if found.verdict in (Verdict.TORCH, Verdict.SAFETENSORS):
        for line in _tensors(path):
            print(f"  {line}")
    for where, data in pickles_in(path) if decompile else ():
        severity, code = fickled.decompile(data)
        print(f"# {where or shell(path)}: {severity}\n{code}")
    return int(not found.plain or not found.size)


def _told(pickle: Inspected) -> str:
    where = f"{pickle.where}: " if pickle.where else ""
    wants = f"It asks for {', '.join(pickle.imports)}. " if pickle.imports else ""
    return f"{where}{wants}{f'Not plain data: {pickle.reason}' if pickle.reason else 'Plain data.'}"


def _tensors(path: str) -> Iterator[str]:
    try:
        with open_model(path, DEFAULT_MODEL_LIMITS) as model:
            tensors = planned(model, DEFAULT_MODEL_LIMITS)
    except CheckpointError as error:
        yield error.what  # as of a name that says otherwise
        return
    yield _counted(len(tensors))
    for name, tensor in list(tensors.items())[:_SHOWN]:
        yield f"  {shell(name)} {tensor.dtype} {tuple(tensor.shape)}"
    if len(tensors) > _SHOWN:
        yield f"  and {len(tensors) - _SHOWN:,} more"


def _counted(tensors: int) -> str:
    return f"{tensors:,} tensor{'s' if tensors != 1 else ''}"


def _convert(options: argparse.Namespace) -> int:
    key = _key(options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnrestrictedLoad)  # --trusted said it
        done = convert(
            options.file,
            options.target,
            key=key,
            name=options.name,
            safe=not options.trusted,
            keys=Keyring(key) if seal_beside(options.file) else None,
        )
    size = f"{_counted(done.tensors)}, {done.size:,} bytes"
    print(f"{shell(done.path)}: {size}, equal to the last bit\n{done.digest}")
    return 0


def _key(options: argparse.Namespace) -> SigningKey:
    return SigningKey.from_file(options.key, create=options.create)


def _seal(options: argparse.Namespace) -> int:
    print(seal_model(options.file, key=_key(options), name=options.name))
    return 0


def _verify(options: argparse.Namespace) -> int:
    keys = keyring_of(options.key)
    with open_model(options.file, DEFAULT_MODEL_LIMITS, load=False) as model:
        sealed = verified(model, keys, options.name)
        if sealed is not None:
            print(f"{model.shown} is the model that was sealed as {sealed.name}\n{sealed.digest}")
    return 0


def _add_migrate(sub: Any) -> None:
    what = "seal the pickled checkpoints of a folder as new threads"
    migrate = _added(sub, "migrate-pickles", what, _migrate)
    migrate.description = (
        f"{what[:1].upper()}{what[1:]}. The files stay as they are. Interrupted, run it again with"
        f" the same report. {_FOLDER}"
    )
    migrate.add_argument("folder", metavar="FOLDER", help="the folder of the old files")
    for name, metavar, needed, meaning in (
        ("--to", "PATH", True, "the folder of the new store"),
        ("--store", "NAME", True, "the name of the store"),
        ("--key", "FILE", True, "the key that seals them"),
        ("--anchor", "PATH", False, "the folder of the store's anchor"),
        ("--report", "FILE", True, "where to write down what was done"),
        ("--app", "NAME", False, "what wrote the old files"),
    ):
        migrate.add_argument(name, metavar=metavar, required=needed, help=meaning)
    migrate.add_argument(
        "--type",
        metavar="MODULE:CLASS",
        action="append",
        default=[],
        help="a dataclass, an Enum or a pydantic model of yours that is in the files; its module is"
        " imported, and so runs; again for each",
    )
    for name, meaning in (
        ("--dry-run", "write nothing, and say what would happen"),
        ("--allow-missing-past", "take a checkpoint for the first if the one before it is gone"),
        (
            "--allow-unsigned-migration",
            (
                "that you vouch for these files: nobody signed them, so whoever could write them"
                " decides what they say"
            ),
        ),
    ):
        migrate.add_argument(name, action="store_true", help=meaning)


def _migrate(options: argparse.Namespace) -> int:
    if not (options.dry_run or options.allow_unsigned_migration):
        raise ConfigurationError(
            "These files carry no seal, so whoever could write them decides what they say.",
            "Look at them first, with --dry-run. If you vouch for them, add"
            " --allow-unsigned-migration",
        )
    types = [imported(each, "--type app.models:Invoice") for each in options.type]
    summary = migrate_pickles(
        options.folder,
        _ledger(options, types),
        report=options.report,
        types=types,
        app=options.app or "",
        dry_run=options.dry_run,
        allow_unsigned_migration=options.allow_unsigned_migration,
        allow_missing_past=options.allow_missing_past,
    )
    for each in summary.outcomes:
        if each.outcome == REFUSED:
            print(
                f"{shell(str(Path(options.folder, each.source)))}: {each.reason}", file=sys.stderr
            )
        elif summary.dry_run:
            done = "is there already as" if each.outcome != "sealed" else "would be sealed as"
            print(f"{shell(each.source)} {done} {each.thread} #{each.sequence}.")
    would, found = "would be " if summary.dry_run else "", len(summary.outcomes)
    print(
        f"{found:,} file{'s' * (found != 1)}: {summary.sealed:,} {would}sealed,"
        f" {summary.there_already:,} sealed before, {summary.refused:,} refused."
        + (" Nothing was written." if summary.dry_run else "")
    )
    return int(summary.refused > 0)


def _ledger(options: argparse.Namespace, types: list[type]) -> Ledger:
    """Open the ledger that the states go to. For a dry run, one that cannot be written."""
    storage: Any
    if not options.dry_run:
        storage = FileCheckpointStorage(options.to)
    elif os.path.lexists(options.to):
        storage = FileCheckpointStorage(options.to, read_only=True)
    else:
        storage = InMemoryCheckpointStorage()  # where nothing is yet
    return Ledger(
        storage,
        store=options.store,
        keys=Keyring(SigningKey.from_file(options.key)),
        codec=Codec(types),
        anchor=None if options.anchor is None else FileAnchor(options.anchor),
    )
