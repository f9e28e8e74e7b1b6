"""The optional packages: asked for when they are needed, with one clear error without them."""

from __future__ import annotations

import importlib
from typing import Any, Final

from safepoint.errors import MissingPackage, quoted

_INSTALL: Final = "Install it: pip install 'safepoint[torch]'"


def torch() -> Any:
    """Return the module `torch`.

    Raises:
        MissingPackage: it is not installed, or its installation is broken.
    """
    return _module("torch")


def safetensors() -> Any:
    """Return the module `safetensors`.

    Raises:
        MissingPackage: it is not installed, or its installation is broken.
    """
    return _module("safetensors")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            raise MissingPackage(
                f"safepoint.weights needs {name}, which is not installed.", _INSTALL
            ) from None
        broken: Exception = error
    except (ImportError, OSError) as error:  # a library that does not load is an OSError
        broken = error
    raise MissingPackage(
        f"safepoint.weights needs {name}, whose installation is broken ({quoted(str(broken))}).",
        f"Install it again: pip install --force-reinstall {name}",
    ) from None
