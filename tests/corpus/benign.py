"""What people store, pickled: honest files, on which a scanner should stay silent."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.corpus.assembler import pickled
from tests.corpus.benign_arrays import NUMPY, TORCH, TORCH_FILES
from tests.corpus.benign_objects import FOREIGN, OBJECTS
from tests.corpus.benign_values import COLLECTIONS, MESSAGES, PLAIN, STANDARD

PROTOCOLS: Final = range(6)


class Benign(NamedTuple):
    """An honest file.

    Attributes:
        name: what it is called in the output of a test.
        family: its class.
        make: returns its content.
        moves: whether moving in keeps it: `read_pickle`, or `load_checkpoint` for a model file.
            False means that it is refused, with a reason.
        suffix: .pkl, or .pt for a model file.
    """

    name: str
    family: str
    make: Callable[[], bytes]
    moves: bool
    suffix: str = ".pkl"


def _dump(value: Callable[[], Any], protocol: int) -> Callable[[], bytes]:
    return lambda: pickle.dumps(value(), protocol)


def _write(value: Any, protocol: int) -> Callable[[], bytes]:
    return lambda: pickled(value, protocol)


BENIGN: Final[tuple[Benign, ...]] = (
    *(
        Benign(f"{name}, protocol {protocol}", "plain data", _dump(value, protocol), moves)
        for name, value, moves in PLAIN
        for protocol in PROTOCOLS
    ),
    *(
        Benign(f"{name}, protocol {protocol}", family, _dump(value, protocol), moves)
        for family, values in (
            ("standard types", STANDARD),
            ("collections", COLLECTIONS),
            ("agents' messages", MESSAGES),
            ("classes", OBJECTS),
        )
        for name, value, moves in values
        for protocol in (2, 4)
    ),
    *(Benign(name, "other libraries", _write(value, 4), False) for name, value in FOREIGN),
    *(Benign(name, "numpy", _dump(value, 4), moves) for name, value, moves in NUMPY),
    *(Benign(name, "torch", _dump(value, 2), moves) for name, value, moves in TORCH),
    *(Benign(name, "torch", make, moves, ".pt") for name, make, moves in TORCH_FILES),
)
