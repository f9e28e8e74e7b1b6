"""`python -m safepoint.weights`: look into a model file, convert it, seal it, verify it."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Final

from safepoint._command import Parser, keyring_of, print_lines
from safepoint.cli import Bar
from safepoint.errors import (
    CheckpointError,
    LimitExceeded,
    ModelError,
    SealError,
    UnsafeRuntime,
    shell,
)
from safepoint.keys import Keyring, SigningKey
from safepoint.pickles.kinds import Kind
from safepoint.weights.converting import convert
from safepoint.weights.files import about, open_model
from safepoint.weights.limits import DEFAULT_MODEL_LIMITS
from safepoint.weights.loading import UnrestrictedLoad, verified
from safepoint.weights.plan import read_plan
from safepoint.weights.reading import check_kind
from safepoint.weights.saving import seal_model
from safepoint.weights.seals import has_seal
from safepoint.weights.tensorfile import open_tensorfile

_SHOWN: Final = 20
_REFUSALS: Final = (ModelError, SealError, LimitExceeded)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status."""
    options = _options(arguments)
    try:
        print_lines(options.do(options))
    except CheckpointError as error:
        print(error, file=sys.stderr)
        refused = isinstance(error, _REFUSALS) and not isinstance(error, UnsafeRuntime)
        return 1 if refused else 2
    except KeyboardInterrupt:
        print("Interrupted. The original is as it was.", file=sys.stderr)
        return 130
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m safepoint.weights",
        description="Look into a model file, convert it, seal it, verify it. No code of it runs,"
        " unless you say --trusted.",
        epilog="exit status: 0 done, 1 the file is refused, 2 it cannot be done",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    inspect = commands.add_parser("inspect", help="say what a file is and which tensors it holds")
    inspect.set_defaults(do=_inspect)

    turn = commands.add_parser("convert", help="turn a PyTorch file into sealed safetensors")
    turn.set_defaults(do=_convert)

    sealing = commands.add_parser("seal", help="put a seal beside a model file")
    sealing.set_defaults(do=_seal)

    verify = commands.add_parser("verify", help="verify the seal beside a model file")
    verify.set_defaults(do=_verify)

    for command in (inspect, turn, sealing, verify):
        command.add_argument("file", metavar="FILE", help="the model file")
    turn.add_argument("target", metavar="NEW", help="the new file: its name ends in .safetensors")
    turn.add_argument(
        "--trusted",
        action="store_true",
        help="you made FILE: load it without restriction, so that it can run code, with your rights"
        " and in a process of its own",
    )
    for command in (turn, sealing):
        command.add_argument("--key", metavar="KEY", required=True, help="the key to seal it with")
    verify.add_argument(
        "--key", metavar="KEY", action="append", required=True, help="a key; again for older ones"
    )
    for command in (turn, sealing, verify):
        command.add_argument("--name", metavar="NAME", help="the name that the seal is bound to")
    return parser.parse_args(arguments)


def _inspect(options: argparse.Namespace) -> Iterator[str]:
    limits = DEFAULT_MODEL_LIMITS
    with open_model(options.file, limits) as model:
        if model.kind is Kind.SAFETENSORS:
            table = open_tensorfile(model.file, limits, private=model.private).table()
            tensors = {name: (each.dtype, each.shape) for name, each in table.tensors.items()}
        else:
            check_kind(model)
            with about(model.shown):
                plan = read_plan(model.file, model.kind, limits)
            tensors = {name: (each.dtype, each.shape) for name, each in plan.tensors.items()}
        size = f"{model.size:,} bytes, {_counted(len(tensors))}"
        yield f"{model.shown} is {model.kind.sentence}: {size}"
    for name, (dtype, shape) in list(tensors.items())[:_SHOWN]:
        yield f"  {shell(name)} {dtype} {tuple(shape)}"
    if len(tensors) > _SHOWN:
        yield f"  and {len(tensors) - _SHOWN} more"


def _counted(tensors: int) -> str:
    return f"{tensors:,} tensor{'s' if tensors != 1 else ''}"


def _convert(options: argparse.Namespace) -> Iterator[str]:
    key = SigningKey.from_file(options.key)
    with warnings.catch_warnings(), Bar("Converting") as bar:
        warnings.simplefilter("ignore", UnrestrictedLoad)  # --trusted said it
        done = convert(
            options.file,
            options.target,
            key=key,
            name=options.name,
            safe=not options.trusted,
            keys=Keyring(key) if has_seal(options.file) else None,
            progress=bar,
        )
    size = f"{_counted(done.tensors)}, {done.size:,} bytes"
    yield f"{shell(done.path)}: {size}, equal to the last bit"
    yield done.digest


def _seal(options: argparse.Namespace) -> Iterator[str]:
    yield seal_model(options.file, key=SigningKey.from_file(options.key), name=options.name)


def _verify(options: argparse.Namespace) -> Iterator[str]:
    keys = keyring_of(options.key)
    with open_model(options.file, DEFAULT_MODEL_LIMITS) as model:
        sealed = verified(model, keys, options.name)
        if sealed is not None:
            yield f"{model.shown} is the model that was sealed as {sealed.name}"
            yield sealed.digest


if __name__ == "__main__":
    sys.exit(main())
