"""Every gadget, by family."""

from __future__ import annotations

from typing import Final

from tests.corpus.gadget import Gadget
from tests.corpus.gadgets_arrays import NUMPY, TORCH
from tests.corpus.gadgets_code import CODE_OBJECTS
from tests.corpus.gadgets_files import FILES
from tests.corpus.gadgets_names import BUILTINS, INDIRECT
from tests.corpus.gadgets_opcodes import OPCODES
from tests.corpus.gadgets_processes import PROCESSES

GADGETS: Final[tuple[Gadget, ...]] = (
    *OPCODES,
    *BUILTINS,
    *PROCESSES,
    *CODE_OBJECTS,
    *FILES,
    *NUMPY,
    *TORCH,
    *INDIRECT,
)
