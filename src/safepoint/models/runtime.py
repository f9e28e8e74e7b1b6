"""Can this PyTorch keep the promise of `weights_only=True`? If not, nothing is loaded.

The promise is "no code of the file runs". It needs a `torch.load` that has the flag, a release in
which the flag holds, and a process in which nobody has made holes into it.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final

from safepoint.core.errors import Unsafe, quoted
from safepoint.models.opcodes import named

_BROKEN: Final = (
    ((2, 6), "CVE-2025-32434 (a file runs code in spite of it; fixed in 2.6.0)"),
    ((2, 10), "CVE-2026-24747 (a file corrupts memory in spite of it; fixed in 2.10.0)"),
)
_VARIABLE: Final = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_OFF: Final = frozenset(["", "0", "n", "no", "false", "off"])
_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?(?P<early>a|b|rc|\.?dev)?")
# What torch and its own library put on the list. None of it can be in a file that is read as data.
_TORCH_OWN: Final = ("torch._dynamo.", "torch.distributed.", "torch.nested.", "torchao.")
_UPGRADE: Final = "Upgrade: pip install 'torch>=2.10'"


def check_runtime(torch: Any) -> None:
    """Go on if `torch.load(…, weights_only=True)` keeps its promise here.

    Args:
        torch: the module.

    Raises:
        Unsafe: `torch.load` has no such flag, is not PyTorch's own, or is of a release
            that is known to break the promise; or an environment variable or the process-wide
            list of safe globals weakens it.
    """
    release = str(getattr(torch, "__version__", "of an unknown version"))
    if not has_flag(torch):
        raise Unsafe(f"The torch.load of PyTorch {release} has no weights_only.", _UPGRADE)
    _check_around(release)
    if not _genuine(torch):
        raise Unsafe(
            "torch.load is not PyTorch's own: something in this process replaced it.",
            "Find who assigns torch.load, or load in another process.",
        )
    allowed = sorted(_allowed(torch))
    if allowed:
        raise Unsafe(
            f"In this process torch.load may also build {', '.join(allowed)}, for every file.",
            "Find who calls torch.serialization.add_safe_globals, or load in another process.",
        )


def check_installed() -> bool:
    """Look at a PyTorch without importing it, which takes seconds: at its release, and around it.

    What a process does to it shows in that process alone.

    Returns:
        False if nothing says which release it is.

    Raises:
        Unsafe: as `check_runtime`.
    """
    from importlib import metadata  # it takes long, and most commands do not ask

    try:
        release = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False
    _check_around(release)
    return True


def _check_around(release: str) -> None:
    """Refuse a release, or a variable, that breaks the promise."""
    if why := _broken(release):
        raise Unsafe(f"PyTorch {why}.", _UPGRADE)
    setting = os.environ.get(_VARIABLE, "")
    if setting.strip().lower() not in _OFF:
        raise Unsafe(
            f"{_VARIABLE} is set, so every load that does not name the flag runs code.",
            f"Run: unset {_VARIABLE}",
        )


def has_flag(torch: Any) -> bool:
    """Tell whether `torch.load` has the flag as a parameter of its own.

    By its signature. Trying it out and catching `TypeError` would be a hole: a file can raise
    that as well, and then gets loaded without the flag.
    """
    try:
        return "weights_only" in inspect.signature(torch.load).parameters
    except (AttributeError, TypeError, ValueError):
        return False


def _broken(version: str) -> str:
    """Return what is wrong with a release, as the end of a sentence, or nothing."""
    found = _VERSION.match(version)
    if found is None:
        return f"{quoted(version)} does not say which release it is"
    release = int(found[1]), int(found[2]) - bool(found["early"])  # what 2.10.0rc1 is not yet
    broken = [why for fixed, why in _BROKEN if release < fixed]
    kept = f"{version} does not keep the promise of weights_only: "
    return kept + " and ".join(broken) if broken else ""


def _genuine(torch: Any) -> bool:
    # A wrapper can copy the name and the module of what it wraps; an object that stands in for a
    # function shows even its code. Only a function is its code.
    load = torch.load
    home = getattr(getattr(torch, "serialization", None), "__file__", None)
    return (
        type(load) is FunctionType
        and load.__code__.co_filename == home
        and load.__code__.co_name == "load"
    )


def _allowed(torch: Any) -> Iterator[str]:
    """Name what others have put on the process-wide list."""
    for entry in torch.serialization.get_safe_globals():
        allowed = entry[0] if isinstance(entry, tuple) else entry
        module = str(getattr(allowed, "__module__", None))
        name = getattr(allowed, "__qualname__", None) or type(allowed).__qualname__
        if not module.startswith(_TORCH_OWN):
            yield named(module, str(name))
