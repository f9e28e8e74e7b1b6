"""The pickles of a model file, followed to the end without building anything of PyTorch.

PyTorch's restricted reader knows few instructions. A pickle with another one is refused here too,
so the two readers cannot take different ways through the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from safepoint.errors import LimitExceeded, ModelMalformed, PickleRefused
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.machine import run_at
from safepoint.pickles.opcodes import named, read_opcodes
from safepoint.pickles.scanning import scan
from safepoint.weights.limits import ModelLimits
from safepoint.weights.names import names_for, unsafe, unsafe_named
from safepoint.weights.rebuilding import Rebuilder
from safepoint.weights.refusals import malformed

# Those of torch._weights_only_unpickler in 2.13.0, without NEWOBJ: torch.save does not need it.
_INSTRUCTIONS: Final = frozenset(
    [
        "APPEND",
        "APPENDS",
        "BINFLOAT",
        "BINGET",
        "BININT",
        "BININT1",
        "BININT2",
        "BINPERSID",
        "BINPUT",
        "BINUNICODE",
        "BUILD",
        "EMPTY_DICT",
        "EMPTY_LIST",
        "EMPTY_SET",
        "EMPTY_TUPLE",
        "GLOBAL",
        "LONG1",
        "LONG_BINGET",
        "LONG_BINPUT",
        "MARK",
        "NEWFALSE",
        "NEWTRUE",
        "NONE",
        "PROTO",
        "REDUCE",
        "SETITEM",
        "SETITEMS",
        "SHORT_BINSTRING",
        "STOP",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
    ]
)
# What one tensor of five dimensions takes, with room to spare; an ordinary one takes two thirds.
_OPCODES: Final = 60
_NODES: Final = 40
_OTHER_VALUES: Final = 500_000
_AS_TENSORS: Final = "Save long lists of numbers as tensors. Nothing was loaded."
_RAISED: Final = {
    "opcodes": "tensors",
    "memo": "tensors",
    "text_bytes": "pickle_bytes",
    "data_bytes": "pickle_bytes",
}


class Reciter:
    """Reads the pickles of one file.

    Args:
        rebuilder: plans what they describe.
        limits: how large they may be.
    """

    def __init__(self, rebuilder: Rebuilder, limits: ModelLimits) -> None:
        self._names = names_for(rebuilder)
        self._limits = _pickle_limits(limits)
        self._wants: set[str] = set()
        self.rebuilder = rebuilder

    @property
    def wants(self) -> tuple[str, ...]:
        """The names that the pickles use, sorted."""
        return tuple(sorted(self._wants))

    def whole(self, data: bytes) -> Any:
        """Return what the pickle in an archive describes.

        Raises:
            UnsafeModel: it wants a name that is not on the list.
            ModelMalformed: it is damaged, or not as `torch.save` writes it.
            LimitExceeded: it is too large.
        """
        value, end = self.next(data, 0, lambda pid: self.rebuilder.storage(pid, 5))
        if end != len(data):
            raise malformed("The pickle in the archive is followed by more.")
        return value

    def next(
        self, data: bytes, start: int, persistent: Callable[[Any], Any] | None
    ) -> tuple[Any, int]:
        """Return what the pickle that begins there describes, and where it ends.

        Raises:
            UnsafeModel: it wants a name that is not on the list.
            ModelMalformed: it is damaged, or not as `torch.save` writes it.
            LimitExceeded: it is too large.
        """
        problem: Exception
        try:
            strange, storages = self._looked_over(data, start)
            if not strange:
                nodes = storages * _NODES + self._limits.nodes
                limits = replace(self._limits, nodes=nodes)
                return run_at(
                    data, start, functions=self._names, persistent=persistent, limits=limits
                )
            problem = ModelMalformed(
                f"The pickle in the file uses {strange}, which a file of tensors does not need.",
                "Save it again with torch.save, without pickle_protocol. Nothing was loaded.",
            )
        except PickleRefused as error:
            problem = malformed(error.what)
        except LimitExceeded as error:
            raise _over_limit(error) from None
        # What it wants says more than how it is damaged: most readers run it up to there.
        found = scan(data, start, limits=self._limits)
        wanted = [(name.module, name.name) for name in found.asked]
        if unlisted := [name for name in wanted if name not in self._names]:
            problem = unsafe(unlisted)
        elif found.unclear:
            problem = unsafe_named(list(found.unclear))
        raise problem

    def _looked_over(self, data: bytes, start: int) -> tuple[str, int]:
        """Return the first instruction that is not allowed, and how many storages there are."""
        storages = count = 0
        for op in read_opcodes(data, self._limits, start):
            count += 1
            if op.name == "GLOBAL":
                if op.argument not in self._names:
                    return "GLOBAL", 0
                self._wants.add(named(*op.argument))
            elif op.name == "BINPERSID":
                storages += 1
            elif op.name not in _INSTRUCTIONS:
                return op.name, 0
        if count > _OPCODES * storages + 2 * _OTHER_VALUES:
            raise LimitExceeded(
                f"The pickle has {count} instructions, and {storages} tensors.", _AS_TENSORS
            )
        return "", storages


def _over_limit(error: LimitExceeded) -> LimitExceeded:
    """Return the error with the limit that the caller can raise in the place of the inner one."""
    if "PickleLimits" not in error.do:
        return error
    before, _, limit = error.do.partition(", or raise PickleLimits.")
    limit = limit.rstrip(".")
    if limit == "nodes":
        return LimitExceeded(error.what, _AS_TENSORS)
    raised = _RAISED.get(limit)
    if raised:
        return LimitExceeded(error.what, f"{before}, or raise ModelLimits.{raised}.")
    if limit:
        return LimitExceeded(error.what, f"{before}. Nothing was loaded.")
    return LimitExceeded(error.what, "Load it where there is more memory. Nothing was loaded.")


def _pickle_limits(limits: ModelLimits) -> PickleLimits:
    """Return limits for a pickle of that many tensors, and of half a million other values."""
    return PickleLimits(
        data_bytes=limits.pickle_bytes,
        opcodes=_OPCODES * limits.tensors + 2 * _OTHER_VALUES,
        memo=_OPCODES * limits.tensors + _OTHER_VALUES,
        nodes=_OTHER_VALUES,
        text_bytes=limits.pickle_bytes,
    )
