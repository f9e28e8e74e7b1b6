"""Settings: the parts of a store, written once in a file, so that commands need no options.

    [stores.invoices]             # a store by its name
    storage = "/srv/state/invoices.db"
    key = ["/etc/keys/invoices.pub"]
    anchor = "/srv/anchor/heads.db"

    [audit]                       # what `safepoint audit` checks if no path is named
    paths = ["models", "src"]
    fail-on = "warning"           # or error, or note

A store that the file names without a storage is in its default places, and so is a store that your
own file does not name; a file that you name must name it, if it names any. Paths are relative to
the file's folder. A part in PostgreSQL has a connection string in place of a path, as for psql:
`dbname=app`, or `postgresql://db/app`. Keep secrets in the environment, not in this file:
`storage = "env:DATABASE_URL"`; or in the file that PGPASSFILE names.

The author of the file decides where denials and holds are stored. So it must be named, by
`--config` or by SAFEPOINT_CONFIG, or be the user's own: `~/.config/safepoint/safepoint.toml`. A
`safepoint.toml` that the audit finds in this folder or above may only contain `[audit]`.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from safepoint.core.errors import ConfigurationError, quoted, shell
from safepoint.core.files import open_regular, replaceable_refusals
from safepoint.core.ledger import Ledger
from safepoint.core.names import check_name
from safepoint.places import (
    PLACES,
    Store,
    connection_string,
    in_default_places,
    is_connection,
    settings_file,
)
from safepoint.resume.gate import Gate

VARIABLE: Final = "SAFEPOINT_CONFIG"
FILE: Final = "safepoint.toml"
AUDIT: Final = ("paths", "fail-on", "accept")
SEVERITIES: Final = ("error", "warning", "note")
_MOST: Final = 64 * 1024
_DOTS: Final = 64  # in a line; the time to parse a dotted key grows with the square of the dots
_NAME_IT: Final = "If that file counts, name it by --config."
# The options whose values are paths.
_PLACES: Final = tuple(each.replace("_", "-") for each in PLACES)
_PATHS: Final = (*_PLACES, "key", "journal-key", "approvers", "operators")


class Settings:
    """The content of a settings file.

    Attributes:
        file: the file, or None if there is none.
        audit: its table `[audit]`.
    """

    def __init__(self, file: Path | None, tables: Mapping[str, Any]) -> None:
        self.file = file
        self.folder = _here() if file is None else file.parent
        unknown = [name for name in tables if name not in ("audit", "stores")]
        if unknown:
            raise self._refusal(f"says {quoted(unknown[0])}, which is not known", "audit, stores")
        self.audit: Mapping[str, Any] = self._table(tables, "audit")
        for name in self.audit:
            if name not in AUDIT:
                raise self._refusal(f"says {quoted(name)} of the audit", ", ".join(AUDIT))
        stores = self._table(tables, "stores")
        self._stores = {check_name("store", name): self._table(stores, name) for name in stores}

    @property
    def stores(self) -> list[str]:
        """The names of the stores in the file."""
        return list(self._stores)

    @property
    def paths(self) -> list[str]:
        """The paths that the audit checks in addition to the stores."""
        found = self.audit.get("paths", [])
        if not isinstance(found, list) or not all(map(_is_text, found)):
            raise self._refusal(f"has {quoted(found)} as the paths of the audit", "a list of paths")
        return [*map(self._path, found)]

    @property
    def fail_on(self) -> str:
        """The lowest severity of a finding that makes the audit fail."""
        found = self.audit.get("fail-on", "warning")
        if found not in SEVERITIES:
            raise self._refusal(f"has {quoted(found)} as fail-on", ", ".join(SEVERITIES))
        return str(found)

    def says(self, name: str, *options: str) -> bool:
        """Tell whether the file sets any of these options for a store."""
        return not self._stores.get(name, {}).keys().isdisjoint(options)

    def store(self, name: str) -> Store:
        """Return a store by its name: from the file, or from the default places.

        Raises:
            ConfigurationError: the file has an option that no store has, of another type, or with
                a password in it; or it was named, and names other stores alone.
            NotFound: the file does not name it, and it is not in the default places.
        """
        check_name("store", name)
        if name not in self._stores:
            if self._stores and self.file != settings_file():  # it was named, maybe for that store
                raise self._refusal(f"names other stores, but not {name}", f"[stores.{name}]")
            return in_default_places(name)
        known = {each.name.replace("_", "-"): each.default for each in fields(Store)[1:]}
        parts: dict[str, Any] = {"store": name}
        for option, value in self._stores[name].items():
            if option not in known:
                said = f"says {quoted(option)} of the store {name}"
                raise self._refusal(said, ", ".join(known))
            parts[option.replace("-", "_")] = self._part(option, value, known[option])
        if "storage" in parts:
            return Store(**parts)
        return replace(in_default_places(name), **parts)

    def _part(self, option: str, value: Any, default: Any) -> Any:
        """Return the value of an option, if it is of the type that its default has."""
        many = isinstance(default, tuple)
        values = value if many and isinstance(value, list) else [value]
        good, want = all(map(_is_text, values)), "a list of strings" if many else "a string"
        if option == "people":
            good, want = type(value) is int and value > 0, "1 or more"
        if not good:
            raise ConfigurationError(f"{option} is not {want}.", f"Write {want}.")
        found = tuple(self._meant(option, each) for each in values)
        return found if many else found[0]

    def _meant(self, option: str, value: Any) -> Any:
        """Return a path relative to the file's folder, a connection string, or what is neither."""
        if option not in _PATHS or not value:
            return value
        is_place = option in _PLACES and is_connection(value)
        return connection_string(option, value) if is_place else self._path(value)

    def _path(self, value: str) -> str:
        return str(self.folder / os.path.expanduser(value))  # noqa: PTH111 - of nobody, as it is

    def _table(self, tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        found = tables.get(name, {})
        if not isinstance(found, dict):
            raise self._refusal(f"has {quoted(name)} with a value that is not a table", "a table")
        return found

    def _refusal(self, what: str, instead: str) -> ConfigurationError:
        return ConfigurationError(f"{shell(str(self.file))} {what}.", f"It may say: {instead}.")


def read(named: str | os.PathLike[str] | None = None) -> Settings:
    """Read the settings of the named file, of the file in SAFEPOINT_CONFIG, or the user's own.

    Raises:
        ConfigurationError: it cannot be read, has an unknown entry, or is the user's own but others
            could have written it.
    """
    if named := named or os.environ.get(VARIABLE):
        return Settings(_here() / named, _parse(Path(named)))
    file = settings_file()
    if file is None or not os.path.lexists(file):
        return Settings(None, {})
    for refusal in replaceable_refusals(str(file.parent)):
        raise _distrusted(file, refusal.what, refusal.do)
    _check_owner(file, {0, os.geteuid()})
    if file.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _distrusted(file, "Others can write it.", f"Run: chmod go-w {shell(str(file))}")
    return Settings(file, _parse(file))


def open_store(name: str, **options: Any) -> tuple[Ledger, Gate | None]:
    """Open a store as the commands do: with its journal, and a gate of the people who may approve.

    ```python
    from safepoint import open_ledger
    from safepoint.settings import open_store

    open_ledger("invoices")  # safepoint init also makes its journal, and the place of answers
    ledger, gate = open_store("invoices")
    print(gate)  # of a workflow: nobody may approve yet
    #> None
    ```

    It is the one that `read` finds: in the named or the user's own settings, or in the default
    places. It stays open until the process ends.

    Args:
        name: the name of the store.
        options: other arguments of `Ledger`, such as `codec` and `worker`.

    Raises:
        NotFound: there is no such store.
        CheckpointError: the settings cannot be read, or a part of the store refuses.
    """
    found, stack = read().store(name), ExitStack()
    ledger = found.opened(stack, write=True, **options)
    return ledger, found.gate_of(found.answers_of(stack))


def read_for_audit(named: str | os.PathLike[str] | None = None) -> Settings:
    """Read the same; or, if no file is named, the table `[audit]` of a file in or above the folder.

    That file may belong to the owner of the current folder, because the audit checks that owner's
    files, and CI jobs run as root on another user's checkout.

    Raises:
        ConfigurationError: as for `read`; or the file is another user's, or names stores.
    """
    here = _here()
    found = [file for each in (here, *here.parents) if os.path.lexists(file := each / FILE)]
    if named or os.environ.get(VARIABLE) or not found:
        return read(named)
    _check_owner(found[0], {0, os.geteuid(), here.stat().st_uid})
    settings = Settings(found[0], _parse(found[0]))
    if settings.stores:
        raise _distrusted(found[0], "It says where stores are.", _NAME_IT)
    return settings


def _check_owner(file: Path, trusted: set[int]) -> None:
    """Refuse a stranger's file before it is read."""
    # The owner of a link decides where it leads.
    strangers = {file.lstat().st_uid, file.stat().st_uid if file.exists() else 0} - trusted
    if strangers:
        raise _distrusted(file, f"It belongs to user {min(strangers)}.", _NAME_IT)


def _distrusted(file: Path, why: str, do: str) -> ConfigurationError:
    what = f"{shell(str(file))} was found but not named: somebody else could have written it."
    return ConfigurationError(f"{what} {why}", f"Nothing was done. {do}")


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigurationError(
            f"The current folder cannot be used ({error.strerror}).", "Go to another: cd"
        ) from None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _read_text(file: Path) -> str:
    """Return the text of a regular file of at most 64 KiB."""
    with open_regular(os.path.realpath(file)) as opened:
        data = opened.read(_MOST + 1)
    if len(data) > _MOST:
        raise ValueError(f"more than {_MOST:,} bytes")
    text = data.decode()
    if any(line.count(".") > _DOTS for line in text.split("\n")):
        raise ValueError(f"a line with more than {_DOTS} dots")
    return text


def _parse(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or f"{error}".splitlines()[0]
        raise ConfigurationError(
            f"{shell(str(file))} cannot be read as settings ({why}).",
            "Correct it, or name another.",
        ) from None
