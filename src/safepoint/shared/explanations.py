"""What each error means, read from `errors.toml`: for the command, the audit and the site."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from safepoint.core import errors
from safepoint.core.errors import CheckpointError
from safepoint.rules import package_toml


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one error of the package means.

    Attributes:
        error: its class.
        says: what its docstring says.
        means: what that tells you.
        causes: what may be behind it, the harmless first. An attack begins with `Attack:`.
        first: what to do first, and what not to do.
        pages: the pages that show it, below `docs/`, each with its section.
        rules: the ids of the rules that it holds up.
    """

    error: type[CheckpointError]
    says: str
    means: str
    causes: tuple[str, ...]
    first: str
    pages: tuple[str, ...]
    rules: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the error, as a message has it."""
        return self.error.__name__

    @property
    def address(self) -> str:
        """Where the site explains it, from its root."""
        return f"errors/#{self.name.lower()}"

    @property
    def parent(self) -> str | None:
        """The error right above it in the tree."""
        above = [base for base in self.error.__bases__ if issubclass(base, CheckpointError)]
        return above[0].__name__ if above else None


def _read() -> Mapping[str, Explanation]:
    data = package_toml("core/errors.toml")
    found = {}
    for kind in _tree(CheckpointError):
        said: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value.strip()
            for name, value in data[kind.__name__].items()
        }
        says = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]
        found[kind.__name__] = Explanation(kind, says, **said)
    return MappingProxyType(found)


def _tree(kind: type[CheckpointError]) -> Iterator[type[CheckpointError]]:
    """Yield an error and those below it, without what applications built on them."""
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below)


EXPLANATIONS: Final = _read()
"""Every explanation, by the name of its error."""
