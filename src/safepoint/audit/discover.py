"""What is at a path: stores, databases, state, models and code, in one walk over it.

What a file is, its bytes tell, and never its name; Python alone has no mark, so code goes by name.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from safepoint.audit.contents import KEY_FILE, File, has_pickle, of_state
from safepoint.audit.finding import (
    NO_FILE,
    Closed,
    Finding,
    content,
    files,
    finding,
    guarded,
    listed,
    refused,
)
from safepoint.audit.folder import around, key_file, location
from safepoint.audit.models import judged, loads, loads_models, safety_test
from safepoint.audit.profiles import Recognised, recognise_database, recognise_folder
from safepoint.core.errors import (
    CheckpointError,
    NotFound,
    Unavailable,
    quoted,
    shell,
)
from safepoint.core.keys import Hidden, parse_key
from safepoint.core.names import DEFAULT_LIMITS
from safepoint.core.record import Header, read_line
from safepoint.core.storage import is_thread
from safepoint.models import Inspection, Kind, Verdict, inspect
from safepoint.models.lint import check_paths, is_code
from safepoint.models.look import is_harmless
from safepoint.models.seals import STORE
from safepoint.settings import is_beside, is_database
from safepoint.shared.terminal import counted
from safepoint.stores.disk import absolute
from safepoint.stores.sqlite import SQLiteAnchor

_ANCHOR: Final = b"SFPA"  # the application_id of the file
# History, and what tools keep for themselves. What is linked from elsewhere is looked at.
_NOT_ENTERED: Final = frozenset(
    (".git", ".hg", ".svn", ".mypy_cache", ".pytest_cache", ".ruff_cache")
)
_ENVIRONMENT: Final = frozenset(
    (
        *("bin", "etc", "include", "lib", "lib64", "man", "share"),
        *("pyvenv.cfg", ".gitignore", ".lock", "CACHEDIR.TAG"),
    )
)
_TEXTS: Final = (Kind.JSON, Kind.UNKNOWN, Kind.EMPTY)
_TORCH: Final = (Kind.TORCH_ZIP, Kind.TORCH_SCRIPT, Kind.TORCH_LEGACY)
_MOST: Final = DEFAULT_LIMITS.record_bytes
_NAMED: Final = 3
# How an entry of a journal begins, behind the two lines of its record.
_ENTRY: Final = re.compile(rb'\A[^\n]+\n[^\n]+\n\{"actor":\{"how":"')
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

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Walk over it, and look at each file that belongs to no store.

        Raises:
            Unavailable: there is nothing at that path, or no path is written like that.
        """
        self.path = absolute(path, "PATH")
        self.stores: list[str] = []
        self.code: list[str] = []
        self.texts: list[str] = []
        self.counts = Counter[str]()
        self.findings: list[Finding] = []
        self.has_torch = False
        self._real = os.path.realpath(self.path)
        self._closed, self._state = Closed(), list[str]()
        self._left_out, self._skipped, self._unread = list[str](), list[str](), list[Finding]()
        self._judged, self._said, self._linked = set[str](), set[str](), list[str]()
        if not os.path.lexists(self.path):
            raise Unavailable(f"{shell(self.path)} does not exist.", "Check the path.")
        if os.path.isdir(self.path):  # noqa: PTH112  that of Path may raise
            found = files(self.path, self._closed, self._enters)
        else:
            found = iter([self.path])
        is_empty = True
        for file in found:
            is_empty = False
            with self._guarded(file):
                if file not in self._judged:
                    self._look(file)
        self.findings += self._closed.findings("SP03")
        left = self._left_out or self._unread or self._closed
        is_empty = is_empty and not (self.stores or left or self.counts)
        self.findings += self._whole(is_empty=is_empty)

    def __str__(self) -> str:
        kinds = ", ".join(_counted(kind, n) for kind, n in self.counts.items() if n)
        return f"{shell(self.path)} ({kinds})" if kinds else shell(self.path)

    def _enters(self, folder: str) -> bool:
        """Tell whether to walk into a folder, which may be a store, or known to a profile."""
        if folder != self.path and _is_left_out(folder):
            self._left_out.append(quoted(os.path.relpath(folder, self.path)))
            return False
        if folder != self.path and os.path.basename(folder) == "node_modules":  # noqa: PTH119
            self._unread.append(finding("SP25.not-entered", folder))
            return False
        if is_storage(folder):
            self.stores.append(folder)
            return False
        known = None
        with self._guarded(folder):
            known = recognise_folder(folder, without=self._judged | self._said)
        if known is not None:
            self._foreign(known)
            self._judged |= known.files
            self._said |= known.said
        return True

    @contextmanager
    def _guarded(self, path: str) -> Iterator[None]:
        """Keep why something could not be looked at: it must never hide the others."""
        try:
            yield
        except (FileNotFoundError, NotFound):
            if os.path.lexists(path):
                self._closed[path] = "what it leads to is not there"
        except OSError as error:
            self._closed.add(path, error)
        except CheckpointError as error:
            self._closed[path] = error.what.rstrip(".")
        except Exception as error:  # noqa: BLE001  whoever wrote it may have meant it to
            self._closed[path] = f"{type(error).__name__}, which is a defect of safepoint"

    def _foreign(self, known: Recognised) -> None:
        self.findings += known.findings
        self.counts[known.name] += 1

    def _look(self, file: str) -> None:
        info = os.stat(file)  # noqa: PTH116  a loop of links is an OSError, too
        if os.path.islink(file) and file != self.path:  # noqa: PTH114
            target = Path(os.path.realpath(file))
            above = [each for each in (target, *target.parents) if each.is_relative_to(self._real)]
            if above and not any(_is_left_out(str(each)) for each in above[:-1]):
                if stat.S_ISDIR(info.st_mode):
                    self._linked.append(quoted(os.path.relpath(file, self.path)))
                return  # what it leads to is looked at under its own name
            if stat.S_ISDIR(info.st_mode):
                self._closed[file] = "it leads to a folder elsewhere"
                return
        if not stat.S_ISREG(info.st_mode):
            self._closed[file] = NO_FILE
        elif is_database(file):
            self._database(file)
        elif not is_beside(file):
            self._file(file, inspect(file))

    def _database(self, file: str) -> None:
        with Path(file).open("rb") as opened:  # nobody has it open in this process yet
            is_anchor = opened.read(72)[68:] == _ANCHOR
        if is_anchor:
            self.counts["anchor"] += 1
            self.findings += guarded("SP04", file, around(file, file))
            try:
                SQLiteAnchor(file, read_only=True).close()
            except CheckpointError as refusal:
                self.findings.append(refused("SP15", refusal, file))
        elif (known := recognise_database(file)) is not None:
            self._foreign(known)
        else:
            self.stores.append(file)  # also one that somebody gave another number

    def _file(self, file: str, found: Inspection) -> None:
        before = len(self.findings)
        is_text = found.kind in _TEXTS
        begins = None
        if is_text or found.kind in (Kind.SEALED, Kind.UNCLEAR):
            begins = content(os.path.realpath(file), _MOST if is_text else 1024)
        data, size = begins or (b"", 0)
        key = KEY_FILE.match(data[:128])
        if key is not None:
            self.counts["key"] += 1
            self.findings += key_file("keys", File(file, data, size))
            if parse_key(Hidden(data)) is not None:
                return  # and nothing else
        if found.kind is Kind.SEALED and not _is_seal_of_model(data):
            self.counts["record"] += 1
            said = {"place": shell(file), "options": "--store and --key"}
            self.findings.append(finding("SP02.no-key", file, **said))
        if is_text:
            text = File(file, data, size, found)
            self.texts.append(file)
            self.findings += of_state(text, tagged=found.kind is Kind.JSON or not is_code(file))
            if len(self.findings) > before:
                self._state.append(file)
                self.counts["state file"] += 1
        if not (is_text and has_pickle(found)):
            self.findings += judged(file, found)
        if is_text and (size > len(data) or not is_harmless(data)):
            self._unread.append(finding("SP25.opaque", file))
        elif len(self.findings) == before and found.verdict is Verdict.NOT_A_MODEL:
            if not (is_code(file) or key or file in self._said or found.kind is Kind.SEALED):
                self._skipped.append(quoted(os.path.relpath(file, self.path)))
        elif not is_text and found.kind is not Kind.SEALED:
            self.counts["model"] += 1
            self.has_torch = self.has_torch or found.kind in _TORCH
        if (is_text or found.kind is Kind.SEALED) and is_code(file):
            self.code.append(file)
            self.counts["Python file"] += 1

    def _whole(self, *, is_empty: bool) -> Iterator[Finding]:
        """Yield what concerns the path as a whole, and what nobody looked at."""
        folders = [os.path.dirname(each) for each in self._state]  # noqa: PTH120
        for folder in [self.path] if is_empty else _topmost(folders):
            yield from location(folder)
            yield from () if is_empty else [finding("SP02.unsealed", folder)]
        if is_empty:
            self.counts["empty folder"] += 1
            yield finding("SP02.empty", self.path)
        elif not (self.stores or +self.counts or self.findings):
            yield finding("SP02.unrecognised", self.path)
        yield from self._unread
        for which, names in {
            "SP25.left-out": self._left_out,
            "SP25.linked": self._linked,
            "SP25.skipped": self._skipped,
        }.items():
            if names:
                said = {"count": len(names), "names": listed(names, _NAMED)}
                yield finding(which, self.path, **said)


def check_code(found: Found) -> list[Finding]:
    """Look at the loads in the code that a walk met."""
    return loads(check_paths(found.code))


def check_tested(found: Found) -> list[Finding]:
    """Look at the tests of code that loads models; of other code there is nothing to say."""
    return safety_test(found.path, found.texts) if loads_models(found.code) else []


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


def is_journal(storage: Any) -> bool:
    """Tell whether a storage is that of a journal: the end of each thread holds an entry."""
    with suppress(CheckpointError):
        scopes = [storage, *map(storage.tenant, storage.tenants())]
        chains = [(scope, thread) for scope in scopes for thread in scope.threads()]
        ends = (scope.read(thread, scope.head(thread)) for scope, thread in chains)
        return bool(chains) and all(map(_ENTRY.match, ends))
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
    """Tell history, what a tool keeps, and an environment that has nothing else in it."""
    name, inside = os.path.basename(folder), _names(folder)  # noqa: PTH119
    if name == "__pycache__":
        return all(each.endswith(".pyc") for each in inside)
    if name in _NOT_ENTERED or "pyvenv.cfg" not in inside:
        return name in _NOT_ENTERED
    with suppress(OSError):
        told = content(f"{folder}/pyvenv.cfg", 4096) or (b"", 0)
        has_home = re.search(rb"(?m)^home *= *\S", told[0]) is not None
        is_one = has_home and os.path.lexists(f"{folder}/bin/python")
        return is_one and _ENVIRONMENT.issuperset(inside)
    return False


def _is_seal_of_model(data: bytes) -> bool:
    line_1, line_2, _ = (*data.split(b"\n", 2), b"", b"")[:3]
    header = Header.parse(line_2)
    return read_line(line_1) is not None and header is not None and header.store == STORE


def _topmost(folders: Iterable[str]) -> list[str]:
    found: list[str] = []
    for each in sorted(set(folders), key=len):
        if not any(Path(each).is_relative_to(above) for above in found):
            found.append(each)
    return found
