"""A handler that raises at a chosen place of a module."""

from __future__ import annotations

import opcode
from collections.abc import Callable
from types import ModuleType
from typing import Any


class Late(Exception):
    """What the handler raises."""


def interrupt_at(module: ModuleType, number: int) -> Callable[..., Any]:
    """Return a function for `sys.settrace` that raises at the n-th place of a module.

    Python runs the handler of a signal after a call, and where a function begins.
    """
    left, before = number, dict[int, str]()

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != module.__file__ or frame.f_code.co_name == "__del__":
            return None  # in a __del__, which may be of any other test, Python drops what is raised
        frame.f_trace_opcodes = True
        if event == "opcode" or (event == "call" and frame.f_lasti <= 0):
            code = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
            if event == "call" or before.get(id(frame), "").startswith("CALL"):
                left -= 1
                if left < 0:
                    raise Late
            before[id(frame)] = code
        elif event == "exception":
            before[id(frame)] = ""  # no handler runs after a call that raised
        return trace

    return trace
