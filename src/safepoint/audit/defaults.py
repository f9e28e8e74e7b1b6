"""Has each part of a store a place of its own, with the right owner and mode?"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Final

from safepoint._files import absolute, location_refusals, require_posix
from safepoint.audit.files import Closed, content, files, guarded
from safepoint.audit.finding import Finding, worst_first
from safepoint.audit.location import ancestors, readable, temporary, work_tree
from safepoint.errors import StorageError, shell
from safepoint.keys import SECRET

_PEM: Final = b"-----BEGIN "
_LONGEST: Final = 128


def check_places(
    storage: str | os.PathLike[str],
    *,
    keys: str | os.PathLike[str] | None = None,
    anchor: str | os.PathLike[str] | None = None,
    journal: str | os.PathLike[str] | None = None,
    journal_anchor: str | os.PathLike[str] | None = None,
) -> list[Finding]:
    """Look at the folders of a store: at each, and at how they lie to each other.

    Nothing is created, opened for writing or changed.

    ```python
    from pathlib import Path

    from safepoint.audit.defaults import check_places

    for name in ("state", "state/keys"):
        Path(name).mkdir(mode=0o700)
    for finding in check_places("state", keys="state/keys"):
        if finding.severity == "error":
            print(finding.what)
            #> The keys /home/you/state/keys and the storage /home/you/state are in one place.
    ```

    Args:
        storage: the folder of the storage.
        keys: the folder of the key files.
        anchor: the folder of the anchor.
        journal: the folder of the journal.
        journal_anchor: the folder of the journal's own anchor.

    Returns:
        Under SP22, an error if one folder is inside another, for a folder that is missing, that
        others can write or replace, for a secret key that others can read, that is not with the
        keys, or that is in a git work tree; a warning for a folder that others can read, that is
        temporary, in a git work tree, in the current folder, or below somebody else's. Keys in
        the storage are for `check_keys`.

    Raises:
        StorageUnavailable: the system is not POSIX.
    """
    require_posix()
    named = {
        "storage": storage,
        "keys": keys,
        "anchor": anchor,
        "journal": journal,
        "journal's anchor": journal_anchor,
    }
    places: dict[str, str] = {}
    findings: list[Finding] = []
    for part, path in named.items():
        if path is None:
            continue
        try:
            places[part] = absolute(path, f"The folder of the {part}")
        except StorageError as refusal:
            findings.append(_error(refusal.what, refusal.do, str(path)))
    findings += guarded("SP22", os.fspath(storage), _together(places))
    for part, place in places.items():
        findings += guarded("SP22", place, _place(part, place))
    return findings


def _error(what: str, do: str, where: str) -> Finding:
    return Finding("SP22", "error", what, do, where)


def _together(places: dict[str, str]) -> Iterator[Finding]:
    for (one, first), (other, second) in combinations(places.items(), 2):
        if _same_place(Path(first).resolve(), Path(second).resolve()):
            yield _error(
                f"The {other} {shell(second)} and the {one} {shell(first)} are in one place.",
                "Whoever can write one can write the other. Give each a folder of its own, such as"
                " those of default_locations.",
                second,
            )


def _same_place(first: Path, second: Path) -> bool:
    """Tell whether one is inside the other, also where a mount gives a folder a second name."""
    return _is_inside(first, second) or _is_inside(second, first)


def _is_inside(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder) or any(
        above.exists() and folder.exists() and above.samefile(folder)
        for above in (path, *path.parents)
    )


def _place(part: str, path: str) -> Iterator[Finding]:
    if not os.path.lexists(path):
        yield _error(
            f"The folder of the {part} {shell(path)} does not exist.",
            f"Correct the path, or make it: mkdir -m 700 {shell(path)}",
            path,
        )
        return
    for refusal in location_refusals(path):
        yield _error(refusal.what, refusal.do, path)
    for finding in (*readable(path), *temporary(path), *work_tree(path), *ancestors(path)):
        yield replace(finding, rule="SP22")
    yield from _current(path)
    if part != "storage" and stat.S_ISDIR(Path(path).lstat().st_mode):
        yield from _secrets(part, path)


def _current(path: str) -> Iterator[Finding]:
    """Look whether the place depends on where the process was started.

    Whoever is at home, or above it, has everything of theirs below the current folder.
    """
    current = Path.cwd()
    if Path(path).is_relative_to(current) and not _home().is_relative_to(current):
        yield Finding(
            "SP22",
            "warning",
            f"{shell(path)} is inside the current folder {shell(str(current))}, where people keep"
            " code and run programs.",
            "Name a folder of the platform's for state, such as those of default_locations.",
            path,
        )


def _home() -> Path:
    return Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111  Path.home may raise


def _secrets(part: str, path: str) -> Iterator[Finding]:
    closed = Closed()
    committed = part == "keys" and any(work_tree(path))
    found: list[Finding] = []
    for file in files(path, closed):
        try:
            begins = content(file, _LONGEST)
            mode = stat.S_IMODE(os.lstat(file).st_mode)
        except FileNotFoundError:
            continue  # gone by now
        except OSError as error:
            closed.add(file, error)
            continue
        if begins is not None and _is_secret(begins[0]):
            found += _secret(part, file, mode, committed=committed)
    yield from worst_first(found)
    yield from closed.findings("SP22")


def _is_secret(text: bytes) -> bool:
    return text.lstrip().startswith(SECRET.magic + b" ") or (
        text.lstrip().startswith(_PEM) and b"PRIVATE KEY-----" in text
    )


def _secret(part: str, file: str, mode: int, *, committed: bool) -> Iterator[Finding]:
    shown = shell(file)
    if part != "keys":
        yield _error(
            f"The key {shown} is in the folder of the {part}.",
            "Move it to a folder for keys alone, and replace it if anyone may have read it.",
            file,
        )
    if mode & 0o077:
        yield _error(
            f"The key {shown} can be reached by other users (mode {mode:04o}).",
            f"Run: chmod 600 {shown}, and replace the key if anyone may have read it.",
            file,
        )
    if committed:
        yield _error(
            f"The key {shown} is inside a git work tree, so it could be committed.",
            "Move it to a folder outside of it, and replace it if it was ever committed.",
            file,
        )
