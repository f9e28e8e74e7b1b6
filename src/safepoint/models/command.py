"""The commands on models and pickles: scan, convert, seal-model, verify-model."""

from __future__ import annotations

import argparse
import os
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from safepoint.audit.finding import Finding, files, listed
from safepoint.core.errors import CheckpointError, NotFound, quoted, shell
from safepoint.core.keys import Keyring, SigningKey
from safepoint.models.limits import DEFAULT_MODEL_LIMITS
from safepoint.models.loading import MODEL_NAMES, open_model
from safepoint.models.look import Format, Verdict, inspect
from safepoint.models.saving import convert, seal_model
from safepoint.models.seals import seal_beside
from safepoint.shared.terminal import add, counted, flag, keyring_of

_SHOWN: Final = 20


def commands(sub: Any) -> None:
    """Add the commands to argparse's subparsers."""
    scan = add(sub, "scan", "say what files are, and what code they can run", _scan)
    scan.add_argument("paths", metavar="PATH", nargs="+", help="a file or a folder")
    turn = add(sub, "convert", "turn a PyTorch file into sealed safetensors", _convert)
    seal = add(sub, "seal-model", "write a seal for a model file", _seal)
    look = add(sub, "verify-model", "verify the seal of a model file", _verify)
    for command in (turn, seal, look):
        command.add_argument("file", metavar="FILE", help="the model file")
        command.add_argument("--name", metavar="NAME", help="the name in the seal (FILE)")
        command.add_argument("--key", metavar="FILE", required=True, help="the key of the seal")
    for command in (turn, seal):
        flag(command, "--create", "make the key, and its public half, if there is none")
    turn.add_argument("target", metavar="NEW", help="the new file: its name ends in .safetensors")


def _scan(options: argparse.Namespace) -> int:
    closed = list[Finding]()
    ends: tuple[list[str], ...] = [], [], []
    for path in chain.from_iterable(_files_of(each, closed) for each in options.paths):
        try:
            end = _scanned(path)
        except CheckpointError as error:
            print(error, file=sys.stderr)
            end = 2
        ends[end].append(shell(path))
    for each in closed:
        print(each.what, file=sys.stderr)
        ends[2].append(shell(each.where))
    if (count := sum(map(len, ends))) > 1:
        found = f"{len(ends[1])} with findings, {len(ends[2])} not read"
        print(f"Looked at {counted(count, 'file')}: {found}.")
        for name, paths in (("With findings", ends[1]), ("Not read", ends[2])):
            if paths:
                print(f"{name}: {listed(paths, _SHOWN)}.")
    return max(end for end, paths in enumerate(ends) if paths)


def _files_of(path: str, closed: list[Finding]) -> list[str]:
    """Return each file of a folder once, by its link in a hub's cache, or what is not a folder."""
    if not os.path.isdir(path):  # noqa: PTH112  that of Path may raise
        return [path]
    named = sorted(files(path, closed), key=os.path.islink)  # which then replace what they lead to
    found = {os.path.realpath(each): each for each in named if not os.path.isdir(each)}  # noqa: PTH112
    return sorted(found.values()) or ([] if closed else [path])


def _scanned(path: str) -> int:
    if os.path.isdir(path):  # noqa: PTH112  that of Path may raise
        raise NotFound(f"{shell(path)} contains no file.", "Check the path.")
    found = inspect(path)
    is_none = found.verdict is Verdict.NOT_A_MODEL and Path(path).suffix.lower() in MODEL_NAMES
    is_none = is_none or found.kind is Format.POINTER
    if is_none or found.verdict is Verdict.SAFETENSORS:
        with open_model(path, DEFAULT_MODEL_LIMITS, load=is_none):  # which says what it is
            pass
    other = "Python code" if path.endswith(".py") else "no known kind of model"
    what = other if found.kind is Format.UNKNOWN and found.plain else found.kind.sentence
    lines = [f"{shell(path)} is {what} ({found.size:,} bytes)."]
    for each in found.pickles:
        where = f"{each.where}: " if each.where else ""
        wants = f"It asks for {listed([*each.imports], _SHOWN)}. " if each.imports else ""
        said = f"{each.verdict.capitalize()}: {each.reason}" if each.reason else "Plain data."
        lines.append(f"{where}{wants}{said}")
    if found.code:
        lines.append(found.what)
    lines += found.unseen if found.wants else [*(why for why, _ in found.refused), *found.unseen]
    if found.tensors:
        lines.append(counted(len(found.tensors), "tensor"))
    for name, tensor in islice(found.tensors.items(), _SHOWN):
        shown = name if name.isprintable() else quoted(name)
        lines.append(f"  {shown} {tensor.dtype} {tuple(tensor.shape)}")
    if len(found.tensors) > _SHOWN:
        lines.append(f"  and {len(found.tensors) - _SHOWN:,} more")
    print("\n  ".join(filter(None, (*lines, found.do))))
    return int(not found.plain)


def _key(options: argparse.Namespace) -> SigningKey:
    is_new = not os.path.lexists(options.key)
    if is_new and not options.create:
        options.refuse(f"{shell(options.key)} does not exist; to make a key there, add --create")
    key = SigningKey.from_file(options.key, create=options.create)
    if is_new:
        key.public.to_file(f"{options.key}.pub")
    return key


def _convert(options: argparse.Namespace) -> int:
    key = _key(options)
    keys = Keyring(key) if seal_beside(options.file) else None
    done = convert(options.file, options.target, key=key, name=options.name, keys=keys)
    size = f"{counted(done.tensors, 'tensor')}, {done.size:,} bytes"
    print(f"{shell(done.path)}: {size}, equal to the last bit\n{done.digest}")
    return 0


def _seal(options: argparse.Namespace) -> int:
    found = inspect(options.file)  # which says that there is none, before a key is made for it
    print(seal_model(options.file, key=_key(options), name=options.name))
    if found.wants:
        print(f"A seal does not make a file safe. {found.what}", file=sys.stderr)
    return 0


def _verify(options: argparse.Namespace) -> int:
    keys = keyring_of([options.key], signs=False)
    with open_model(options.file, DEFAULT_MODEL_LIMITS, keys, options.name, load=False):
        print(f"{shell(options.file)} is the file that was sealed.")
    return 0
