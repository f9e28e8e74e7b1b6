"""Tests that need something optional: skipped on a person's machine, failed in CI, and late."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any


def need(what: str | Callable[[], bool], reason: str) -> None:
    """Go on if `what` is there. Use it in a test, a fixture, or at the top of a module.

    Args:
        what: the name of a module, or a function that says whether the thing is there.
        reason: what is missing and how to get it.
    """
    __tracebackhide__ = True
    if importlib.util.find_spec(what) is not None if isinstance(what, str) else what():
        return
    import pytest  # here: the site is made of the zoo, too, where nobody tests

    if os.environ.get("CI"):
        pytest.fail(f"missing in CI: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


class Late:
    """A module that is imported when a test uses it: each process collects every test."""

    def __init__(self, name: str) -> None:
        self.late = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what pytest asks of everything in a module
            raise AttributeError(name)
        return getattr(importlib.import_module(self.late), name)
