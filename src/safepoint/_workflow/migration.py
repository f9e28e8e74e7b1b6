"""Migrations: how the state of one version of a workflow becomes that of the next."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from safepoint.errors import CheckpointError, ConfigurationError, MigrationFailed, quoted

_VERSION = re.compile(r"[A-Za-z0-9._+-]{0,40}\Z")
Change = Callable[[dict[str, Any]], Mapping[str, Any]]


def check_version(version: object) -> str:
    """Return `version` if it is one.

    Raises:
        ConfigurationError: it is not.
    """
    if not isinstance(version, str) or not _VERSION.match(version):
        raise ConfigurationError(
            f"{quoted(version)} is not a version.",
            'Use up to 40 of A-Z, a-z, 0-9 and . _ + -, such as version="2".',
        )
    return version


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from a version to a later one.

    ```python
    from safepoint import Migration

    def with_currency(state):
        return {**state, "currency": "EUR"}

    Migration("1", "2", with_currency, steps={"fetch": "load"})
    ```

    Args:
        before: the version that wrote the checkpoint.
        after: the version that it is for.
        change: takes the state and returns the whole state of the next version.
        steps: new names of steps that are done; None for one that is no more.

    Raises:
        ConfigurationError: an argument is of the wrong kind, or both versions are one.
    """

    before: str
    after: str
    change: Change
    steps: Mapping[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if check_version(self.before) == check_version(self.after):
            raise ConfigurationError(
                f"A migration leads from version {quoted(self.before)} to itself.",
                'Name two versions: Migration("1", "2", change).',
            )
        if (
            not callable(self.change)
            or not isinstance(self.steps, Mapping)
            or not all(isinstance(name, (str, type(None))) for name in self.steps.values())
        ):
            raise ConfigurationError(
                f"The migration from {quoted(self.before)} to {quoted(self.after)} needs a function"
                " and, if steps were renamed, a dict.",
                'Write Migration("1", "2", change, steps={"fetch": "load"}).',
            )

    def carry(self, state: dict[str, Any], done: tuple[str, ...]) -> _Carried:
        """Return the state and what is done, as the next version has it.

        Raises:
            MigrationFailed: the function raised, or returned something else than a state.
        """
        shown = f"The migration from {quoted(self.before)} to {quoted(self.after)}"
        try:
            returned = self.change(copy.deepcopy(state))
        except CheckpointError:
            raise
        except Exception as error:
            raise MigrationFailed(
                f"{shown} raised {type(error).__name__}.",
                "The checkpoint is as it was. Mend the migration, and resume again.",
            ) from error
        if not isinstance(returned, Mapping):
            raise MigrationFailed(
                f"{shown} returned {type(returned).__name__}.", "Return the whole state, as a dict."
            )
        names = (self.steps.get(name, name) for name in done)
        return dict(returned), tuple(name for name in names if name is not None)


_Carried = tuple[dict[str, Any], tuple[str, ...]]


class Migrations:
    """The ways that lead to one version.

    Args:
        listed: the migrations, in any order.
        version: the version that they lead to.

    Raises:
        ConfigurationError: one is no migration, two begin at one version, or one leads elsewhere.
    """

    def __init__(self, listed: Iterable[Migration], version: str) -> None:
        if isinstance(listed, (str, Mapping)) or not isinstance(listed, Iterable):
            raise ConfigurationError(
                f"The migrations are {type(listed).__name__}.",
                'Give a list: migrations=[Migration("1", "2", change)].',
            )
        self.version = check_version(version)
        self._next: dict[str, Migration] = {}
        for migration in listed:
            if not isinstance(migration, Migration):
                raise ConfigurationError(
                    f"A migration was given as {type(migration).__name__}.",
                    'Write Migration("1", "2", change).',
                )
            if migration.before in self._next:
                raise ConfigurationError(
                    f"Two migrations begin at version {quoted(migration.before)}.",
                    "Keep one: which of them to take would be a guess.",
                )
            self._next[migration.before] = migration
        for before in self._next:
            self.path(before)
        self.sources = frozenset(self._next)

    def path(self, before: str) -> list[Migration]:
        """Return the migrations from a version to this one, in order; none if it is this one.

        Raises:
            ConfigurationError: no chain of them leads there.
        """
        found: list[Migration] = []
        at = before
        while at != self.version:
            migration = self._next.get(at)
            if migration is None or len(found) > len(self._next):
                raise ConfigurationError(
                    f"The migrations from version {quoted(before)} do not lead to"
                    f" {quoted(self.version)}.",
                    "Register one for each version on the way.",
                )
            found.append(migration)
            at = migration.after
        return found

    def carry(self, before: str, state: dict[str, Any], done: tuple[str, ...]) -> _Carried:
        """Return the state and what is done, as this version has it.

        Raises:
            MigrationFailed: a migration failed.
        """
        for migration in self.path(before):
            state, done = migration.carry(state, done)
        return state, done
