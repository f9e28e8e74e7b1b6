"""What is at a path: stores, databases, state, models and code, in one walk over it.

What a file is, its bytes tell and never its name; Python alone has no mark, so code goes by name.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from safepoint.audit.contents import KEY_FILE, File, has_pickle, is_seal_of_model, of_state
from safepoint.audit.finding import (
    NO_FILE,
    Finding,
    content,
    files,
    finding,
    guard,
    guarded,
    listed,
    refused,
    unseen,
)
from safepoint.audit.folder import around, key_file, location, record_file
from safepoint.audit.models import is_code, judged
from safepoint.audit.profiles import KEPT, kept_by_others, recognise_database
from safepoint.core.errors import CheckpointError, Unavailable, quoted, shell
from safepoint.core.keys import Hidden, parse_key
from safepoint.core.names import DEFAULT_LIMITS
from safepoint.core.storage import is_thread
from safepoint.models import Format, Inspection, Verdict, inspect
from safepoint.models.look import is_harmless
from safepoint.places import is_beside, is_database
from safepoint.shared.terminal import counted
from safepoint.stores.disk import absolute
from safepoint.stores.sqlite import SQLiteAnchor

_PROJECT: Final = (".git", "pyproject.toml", "safepoint.toml")
# Tests, and what runs them.
_TESTS: Final = re.compile(r"(test_.+|.+_test|conftest)\.py|.+\.(ya?ml|toml|ini|cfg)|Makefile")
_ANCHOR: Final = b"SFPA"  # the application_id of the file
# What others keep or have installed. Git itself never checks out a folder of its own name.
_OTHERS: Final = frozenset((".git", ".hg", ".svn", "node_modules"))
# What tools keep for themselves: pickles and models in it are looked for, and nothing else.
_CACHES: Final = frozenset(("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"))
_TEXTS: Final = (Format.JSON, Format.UNKNOWN, Format.EMPTY)
_TORCH: Final = (Format.TORCH_ZIP, Format.TORCH_SCRIPT, Format.TORCH_LEGACY)
_COMPILED: Final = re.compile(r"\.(pyx|so|pyd)\Z|(?<!/__pycache__)/[^/]*\.pyc\Z")
_MOST: Final = DEFAULT_LIMITS.record_bytes
_NAMED: Final = 3
_MANY: Final = 100_000  # files of one project
_RECORD: Final = re.compile(r"[0-9]{10}\.checkpoint\Z")


class Found:
    """What a walk over a path met.

    Attributes:
        path: the path, absolute.
        stores: the folder of each file storage, and each SQLite file of ours.
        code: the files that may hold a load.
        texts: all files that hold text.
        counts: how many there are of each kind of thing that was looked at.
        findings: what was found in all other files.
        has_torch: whether one is a file of PyTorch.
    """

    def __init__(self, path: str | os.PathLike[str], *, is_code: bool = False) -> None:
        """Walk over it, and look at each file that belongs to no store.

        Args:
            path: the path.
            is_code: whether only code is looked for. A file that is named is taken for it.

        Raises:
            Unavailable: there is nothing at that path, or no path is written like that.
        """
        if not os.path.lexists(path):
            raise Unavailable(f"{shell(os.fspath(path))} does not exist.", "Check the path.")
        self.path, self._is_code = absolute(path, "PATH"), is_code
        self.stores: list[str] = []
        self.code: list[str] = []
        self.texts: list[str] = []
        self.counts = Counter[str]()
        self.findings: list[Finding] = []
        self.has_torch = False
        self._real = os.path.realpath(self.path)
        self._state, self._skipped, self._unread = list[str](), list[str](), list[Finding]()
        self._kept: dict[tuple[str, str], list[str]] = {}
        if os.path.isdir(self.path):  # noqa: PTH112  that of Path may raise
            found = files(self.path, self.findings, self._enters)
        else:
            found = iter([self.path])
        is_empty = True
        for file in found:
            is_empty = False
            with guard("SP03", file, self.findings):
                self._look(file)
        left = self._skipped or self._unread or self.findings
        is_empty = is_empty and not (self.stores or left or self.counts or self._is_code)
        self.findings += self._whole(is_empty=is_empty)

    def __str__(self) -> str:
        kinds = ", ".join(_counted(kind, n) for kind, n in self.counts.items() if n)
        return f"{shell(self.path)} ({kinds})" if kinds else shell(self.path)

    def tests(self) -> Iterator[str]:
        """Yield each text, and the tests of the project around the path, with what may run them."""
        yield from self.texts
        for root in (Path(self._real), *Path(self._real).parents):
            if any(os.path.lexists(root / name) for name in _PROJECT):
                found = islice(files(str(root), [], lambda each: not _is_left_out(each)), _MANY)
                yield from (each for each in found if _TESTS.fullmatch(Path(each).name))
                return

    def _enters(self, folder: str) -> bool:
        """Tell whether to walk into a folder, which may be a store, or known to a profile."""
        if folder != self.path and _is_left_out(folder):
            if Path(folder).name == ".git" or os.path.realpath(folder) == sys.prefix:
                self._leave(folder)
            else:
                self._unread.append(finding("SP25.not-entered", folder))
            return False
        if self._is_code:
            return True
        if is_storage(folder):
            self.stores.append(folder)
            return False
        return True

    def _look(self, file: str) -> None:
        info = os.stat(file)  # noqa: PTH116  a loop of links is an OSError, too
        if os.path.islink(file) and file != self.path:  # noqa: PTH114
            target = Path(os.path.realpath(file))
            above = [each for each in (target, *target.parents) if each.is_relative_to(self._real)]
            if above and not any(_is_left_out(str(each)) for each in above[:-1]):
                if not is_code(str(target)):  # as in a cache of Hugging Face, by its digest
                    self._add_code(file)
                return  # what it leads to is looked at under its own name
            if stat.S_ISDIR(info.st_mode):
                self.findings.append(unseen("SP03", file, "it leads to a folder elsewhere"))
                return
        if not stat.S_ISREG(info.st_mode):
            self.findings.append(unseen("SP03", file, *NO_FILE))
        elif self._is_code:
            self._add_code(file)
        elif not _CACHES.isdisjoint(file.removeprefix(self.path).split("/")):
            found = inspect(file)
            if found.verdict is not Verdict.NOT_A_MODEL:
                self._file(file, found)
            else:
                self._leave(file)
        elif is_database(file):
            self._database(file)
        elif not is_beside(file):
            self._file(file, inspect(file))

    def _add_code(self, file: str) -> None:
        if is_code(file) or (self._is_code and file == self.path):
            self.code.append(file)
            self.counts["Python file"] += 1
        elif self._is_code and _COMPILED.search(file):
            self._leave(file)

    def _leave(self, path: str) -> None:
        if not path.endswith("/safepoint.toml"):  # the settings of the audit
            self._skipped.append(quoted(os.path.relpath(path, self.path)))

    def _database(self, file: str) -> None:
        begins = content(os.path.realpath(file), 72)  # nobody has it open in this process yet
        is_anchor = begins is not None and begins[0][68:] == _ANCHOR
        known = None if is_anchor else recognise_database(file)
        if known is None and not is_anchor:
            self.stores.append(file)  # also one that somebody gave another number
            return
        self.findings += guarded("SP04", file, around(file))
        self.counts["anchor" if known is None else known.name] += 1
        if known is not None:
            self.findings += known.findings
            return
        try:
            SQLiteAnchor(file, read_only=True).close()
        except CheckpointError as refusal:
            self.findings.append(refused("SP15", refusal, file))

    def _file(self, file: str, found: Inspection) -> None:
        before = len(self.findings)
        is_text = found.kind in _TEXTS
        data, size = b"", 0
        if is_text or found.kind in (Format.SEALED, Format.UNCLEAR):
            data, size = content(os.path.realpath(file), _MOST if is_text else 1024) or (data, 0)
        key = KEY_FILE.match(data[:128])
        if key is not None:
            self.counts["key"] += 1
            self.findings += key_file(os.path.realpath(file))
            if parse_key(Hidden(data)) is not None:
                return  # and nothing else
        if found.kind is Format.SEALED and not is_seal_of_model(data):
            self.counts["record"] += 1
            self.findings.append(finding("SP02.no-key", file, place=shell(file)))
        kept = kept_by_others(data) if is_text else None
        if kept is not None:
            self.counts[kept] += 1
            self._kept.setdefault((kept, os.path.dirname(file)), []).append(file)  # noqa: PTH120
        if is_text:
            text = File(file, data, size, found)
            self.texts.append(file)
            self.findings += of_state(text, tagged=found.kind is Format.JSON or not is_code(file))
            if len(self.findings) > before:
                self._state.append(file)
                self.counts["state file"] += 1
        if not (is_text and has_pickle(found)):
            self.findings += judged(file, found)
        if is_text and (size > len(data) or not is_harmless(data)):
            self._unread.append(finding("SP25.opaque", file))
        elif len(self.findings) == before and found.verdict is Verdict.NOT_A_MODEL:
            if not (is_code(file) or key or kept or found.kind is Format.SEALED):
                self._leave(file)
        elif not is_text and found.kind is not Format.SEALED:
            self.counts["model"] += 1
            self.has_torch = self.has_torch or found.kind in _TORCH
        self._add_code(file)

    def _whole(self, *, is_empty: bool) -> Iterator[Finding]:
        """Yield what concerns the path as a whole, and what nobody looked at."""
        for (kind, folder), found in self._kept.items():
            said = {"name": "a folder of Agent Framework", "said": counted(len(found), kind)}
            do = "Seal them: safepoint init NAME, then safepoint move FOLDER NAME."
            yield finding(KEPT[kind], folder, count=len(found), do=do, **said)
            if Path(folder).stat().st_mode & 0o077:  # in one that is closed, nobody gets to them
                for each in found:
                    yield from guarded("SP04", each, record_file(Path(each), None))
        state = [os.path.dirname(each) for each in self._state]  # noqa: PTH120
        kept = [folder for _, folder in self._kept]
        for folder in [self.path] if is_empty else _topmost([*state, *kept]):
            yield from location(folder)
        for folder in _topmost(state):
            yield finding("SP02.unsealed", folder)
        if self._is_code and not self.code:
            yield finding("SP26.no-code", self.path)
        elif is_empty:
            self.counts["empty folder"] += 1
            yield finding("SP02.empty", self.path)
        elif not (self.stores or +self.counts or self.findings):
            yield finding("SP02.unrecognised", self.path)
        yield from self._unread
        if self._skipped:
            names = listed(self._skipped, _NAMED)
            yield finding("SP25.skipped", self.path, count=len(self._skipped), names=names)


def is_storage(folder: str) -> bool:
    """Tell whether a folder is that of a file storage: one of its threads has a record.

    Its name makes it one: what the record holds is for the checks to tell.
    """
    folder = os.path.realpath(folder)
    for name in _names(folder):
        threads = [f"{folder}/{name}"]
        if name[:1] == "@" and is_thread(name[1:]):
            threads = [f"{folder}/{name}/{each}" for each in _names(threads[0]) if is_thread(each)]
        elif not is_thread(name):
            continue
        if any(_RECORD.match(each) for thread in threads for each in _names(thread)):
            return True
    return False


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder) if not os.path.islink(folder) else []  # noqa: PTH114, PTH208
    except OSError:
        return []  # which the walk says


def _counted(kind: str, count: int) -> str:
    if kind.startswith(("a ", "an ", "the ")):  # as a profile names it
        return kind if count == 1 else f"{count} times {kind}"
    return counted(count, kind)


def _is_left_out(folder: str) -> bool:
    """Tell history, and what others have installed, from what is to be looked at."""
    return Path(folder).name in _OTHERS or os.path.lexists(f"{folder}/pyvenv.cfg")


def _topmost(folders: Iterable[str]) -> list[str]:
    found: list[str] = []
    for each in sorted(set(folders), key=len):
        if not any(Path(each).is_relative_to(above) for above in found):
            found.append(each)
    return found
