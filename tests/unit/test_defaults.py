"""Where state lives by default, how its folders are made, and when a store is begun."""

from __future__ import annotations

import errno
import logging
import os
import pwd
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import Codec, FileAnchor, FileCheckpointStorage, InMemoryJournal, open_ledger
from safepoint import _files as files
from safepoint.attacks import Disk, NaiveTarget, Outcome, SealedTarget
from safepoint.attacks.home_made import MacPlaceTarget
from safepoint.attacks.location import everything_in_one_folder
from safepoint.attacks.medium import Medium
from safepoint.attacks.rungs import SignedChainTarget
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    InvalidId,
    RolledBack,
    StorageFull,
    StorageUnavailable,
    UnsafeLocation,
)
from safepoint.keys import Keyring, SigningKey
from safepoint.places import Locations, default_locations
from tests.harness.crash import killed
from tests.unit.storage_helpers import tree

PARTS = ("storage", "keys", "anchor", "journal")
SYSTEMD = {
    "STATE_DIRECTORY": "/var/lib/app:/var/lib/app-anchor",
    "LOGS_DIRECTORY": "/var/log/app",
    "CONFIGURATION_DIRECTORY": "/etc/app",
}


def at_home(home: Path | str, **environ: str) -> Locations:
    return default_locations("invoices", service=False, environ={"HOME": str(home), **environ})


def said(error: type[CheckpointError], act: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        act()
    assert type(caught.value) is error
    return str(caught.value)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home"
    found.mkdir(mode=0o700)
    return found


# --- where


@pytest.mark.parametrize(
    ("service", "environ", "platform", "expected"),
    [
        (None, {"HOME": "/h"}, "linux", "/h/.local/state /h/.local/share /h/.local/state"),
        (
            False,
            {"HOME": "/h", "XDG_STATE_HOME": "/s:1", "XDG_DATA_HOME": "/d", **SYSTEMD},
            "linux",
            "/s:1 /d /s:1",
        ),
        (
            None,
            {"HOME": "/h", "XDG_STATE_HOME": "s", "XDG_DATA_HOME": "", "STATE_DIRECTORY": "~/x"},
            "linux",
            "/h/.local/state /h/.local/share /h/.local/state",
        ),
        (False, {"HOME": "/h", "XDG_STATE_HOME": "/s"}, "darwin", "/h/L /h/L /h/L"),
        (True, {"HOME": "/h"}, "linux", "/var/lib /etc /var/log"),
        (None, SYSTEMD, "linux", "/var/lib/app /etc/app /var/log/app"),
    ],
)
def test_the_platform_says_where(
    monkeypatch: pytest.MonkeyPatch,
    service: bool | None,
    environ: dict[str, str],
    platform: str,
    expected: str,
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    found = default_locations("invoices", service=service, environ=environ)
    expanded = expected.replace("/h/L", "/h/Library/Application Support")
    names = [
        str(each).replace(suffix, "")
        for each, suffix in (
            (found.storage, "/safepoint/invoices/storage"),
            (found.keys, "/safepoint-keys/invoices"),
            (found.journal, "/safepoint/invoices/journal"),
        )
    ]
    assert " ".join(names) == expanded
    assert found.anchor.parts[-2:] == ("safepoint-anchor", "invoices")
    assert found.journal_anchor == found.anchor.with_name("invoices.journal")
    assert found.key_file == found.keys / "signing.key"


def test_the_environment_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert default_locations("a").storage == Path("/s/safepoint/a/storage")
    known = pwd.getpwuid(os.geteuid()).pw_dir
    assert default_locations("a", environ={}).home == Path(known)
    monkeypatch.setattr(pwd, "getpwuid", dict[int, Any]().__getitem__)
    assert "has no home folder." in said(
        StorageUnavailable, lambda: default_locations("a", environ={"HOME": "~"})
    )


@pytest.mark.parametrize("given", ["/a", "/a:/a", "/a:/a/b", "/a/b:/a", "/a:b"])
def test_a_service_whose_anchor_would_be_restored_with_its_storage_is_refused(given: str) -> None:
    environ = {**SYSTEMD, "STATE_DIRECTORY": given}
    assert "systemd gave one folder for state" in said(
        StorageUnavailable, lambda: default_locations("a", environ=environ)
    )


FOLDERS = st.sampled_from(["", "x", "/", "/a", "/a/b", "/a/safepoint", "/a/safepoint/s/storage"])
LISTS = st.lists(FOLDERS, min_size=2, max_size=3).map(":".join)
VARIABLES = ["HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", *SYSTEMD]


@given(st.dictionaries(st.sampled_from(VARIABLES), FOLDERS | LISTS), st.booleans())
def test_no_environment_puts_one_folder_into_another(
    environ: dict[str, str], service: bool
) -> None:
    try:
        found = default_locations("s", service=service, environ=environ)
    except (ConfigurationError, StorageUnavailable):
        return
    folders = [*(getattr(found, part) for part in PARTS), found.journal_anchor]
    assert all(path.is_absolute() for path in folders)
    for one, other in combinations(folders, 2):
        assert not one.is_relative_to(other)
        assert not other.is_relative_to(one)


@pytest.mark.parametrize("store", ["../x", "", "A", "a/b", "a.journal", None])
def test_the_name_of_a_store_never_leads_elsewhere(store: Any) -> None:
    for choose in (default_locations, open_ledger):
        said(InvalidId, lambda choose=choose: choose(store))  # type: ignore[misc]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("where", ["{0}", "{0}/x", "{1}", "{1}/x"])
def test_nothing_lies_in_the_storage_or_around_it(part: str, where: str) -> None:
    found = at_home("/h")
    others = [getattr(found, each) for each in PARTS if each != part]
    moved: Any = Path(where.format(*others[:2]))
    assert "in one place with that for" in said(
        ConfigurationError, lambda: replace(found, **{part: moved})
    )


@pytest.mark.parametrize("path", ["x", "", "/", "/a/..", "a\0b", None])
def test_a_folder_is_absolute_and_has_a_name(path: Any) -> None:
    with pytest.raises((ConfigurationError, StorageUnavailable)):
        replace(at_home("/h"), anchor=path)


def test_elsewhere_than_on_posix_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = at_home("/h")
    monkeypatch.setattr(files, "SUPPORTED", False)
    for use in (lambda: default_locations("a"), found.create):
        assert "needs a POSIX system" in said(StorageUnavailable, use)


# --- the folders


MADE = [
    ".local",
    ".local/share",
    ".local/share/safepoint-keys",
    ".local/share/safepoint-keys/invoices",
    ".local/state",
    ".local/state/safepoint",
    ".local/state/safepoint-anchor",
    ".local/state/safepoint-anchor/invoices",
    ".local/state/safepoint-anchor/invoices.journal",
    ".local/state/safepoint/invoices",
    ".local/state/safepoint/invoices/journal",
    ".local/state/safepoint/invoices/storage",
]
PARENTS = [".local/state/safepoint", ".local/state/safepoint/invoices"]
OWN = [".local/state/safepoint/invoices/storage", ".local/share/safepoint-keys/invoices"]


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777])
def test_every_folder_is_for_its_owner_alone_whatever_the_umask(home: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        at_home(home).create()
    finally:
        os.umask(before)
    assert tree(home) == MADE
    assert {stat.S_IMODE((home / name).stat().st_mode) for name in MADE} == {0o700}
    numbers = [(home / name).stat().st_ctime_ns for name in MADE]
    at_home(home).create()
    assert [(home / name).stat().st_ctime_ns for name in MADE] == numbers


def test_many_may_make_them_at_once(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for made in [pool.submit(at_home(home).create) for _ in range(16)]:
            made.result()
    assert tree(home) == MADE


def test_links_are_followed_above_and_not_below(home: Path, tmp_path: Path) -> None:
    """State may be on another disk, by a link of one's own."""
    (home / ".local").mkdir(mode=0o755)
    (tmp_path / "disk").mkdir(mode=0o700)
    (home / ".local/state").symlink_to(tmp_path / "disk")
    at_home(home).create()
    assert (tmp_path / "disk/safepoint/invoices/storage").is_dir()
    (home / ".local/share/safepoint-keys/invoices").rmdir()
    (home / ".local/share/safepoint-keys/invoices").symlink_to(tmp_path / "disk/safepoint")
    assert "is in one place with" not in said(UnsafeLocation, at_home(home).create)


@pytest.mark.parametrize("name", [*PARENTS, *OWN])
@pytest.mark.parametrize("kind", ["link", "file", "mode", "others"])
def test_a_folder_that_is_not_as_it_should_be_is_refused(
    home: Path, tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / name
    at_home(home).create()
    if kind == "mode":
        folder.chmod(0o755)
        if name in PARENTS:
            at_home(home).create()  # those around may be read
            folder.chmod(0o775)
        what = "and should have 0700. Run: chmod 700"
    elif kind == "others":
        real, given = os.stat, folder.stat().st_ino

        def lstat(path: Any, **options: Any) -> os.stat_result:
            info = real(path, **options)
            return os.stat_result([*info[:4], 4321, *info[5:]]) if info.st_ino == given else info

        monkeypatch.setattr(os, "stat", lstat)
        what = "belongs to user 4321"
    else:
        shutil.rmtree(folder)
        (tmp_path / "outside").mkdir(mode=0o700)
        if kind == "link":
            folder.symlink_to(tmp_path / "outside")
        else:
            folder.touch()
        what = "is a symbolic link." if kind == "link" else "is not a folder."
    assert f"{folder} " in (refusal := said(UnsafeLocation, at_home(home).create))
    assert what in refusal
    assert kind != "link" or tree(tmp_path / "outside") == []


@pytest.mark.parametrize(("mode", "group"), [(0o777, False), (0o770, True)])
def test_a_place_where_others_can_replace_things_is_no_place_to_begin(
    home: Path, mode: int, group: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.chmod(mode)
    if group:
        monkeypatch.setattr(os, "getegid", lambda: 54321)
        if home.stat().st_gid == 0:
            os.chown(home, -1, 4242) if not os.geteuid() else pytest.skip("it is root's group")
    assert "can" in said(UnsafeLocation, at_home(home).create)
    assert tree(home) == []


def test_what_is_not_ours_to_make_is_not_made(home: Path, tmp_path: Path) -> None:
    """A home, a folder that a variable names, a volume that is not mounted."""
    for found in (
        at_home(tmp_path / "no"),
        at_home(home, XDG_STATE_HOME=str(tmp_path / "no")),
        replace(at_home(home), storage=tmp_path / "no/storage"),
    ):
        assert f"{tmp_path}/no does not exist." in said(StorageUnavailable, found.create)
    assert not (tmp_path / "no").exists()
    moved = replace(at_home(home), anchor=tmp_path / "witness")
    moved.create()
    assert (tmp_path / "witness").is_dir()


@pytest.mark.parametrize(
    ("code", "error", "what"),
    [
        (errno.EACCES, StorageUnavailable, "Run: sudo install -d -m 700 -o"),
        (errno.ENOSPC, StorageFull, "There is no room left"),
        (errno.EROFS, StorageUnavailable, "is on a read-only file system."),
    ],
)
def test_who_cannot_make_a_folder_is_told(
    home: Path, code: int, error: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(*_: Any, **__: Any) -> None:
        raise OSError(code, "")

    monkeypatch.setattr(os, "mkdir", mkdir)
    assert what in said(error, at_home(home).create)


# --- a store in one line


def test_a_store_is_begun_once_and_opened_ever_after(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = at_home(home)
    with caplog.at_level(logging.WARNING, "safepoint"):
        ledger = open_ledger("invoices", places=found)
    assert [record.name for record in caplog.records] == ["safepoint"]
    for path in (found.storage_file, found.anchor_file, found.key_file):
        assert str(path) in caplog.text
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ledger.places == found
    assert ledger.keys.signing.algorithm == "ed25519"
    ledger.save("order-7", {"amount": 42})
    caplog.clear()
    again = open_ledger("invoices", places=found)
    assert again.latest("order-7").state == {"amount": 42}
    assert again.anchor is not None
    assert not caplog.records
    said(ConfigurationError, lambda: open_ledger("other", places=found))


def test_the_default_places_are_those_of_the_user(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert open_ledger("invoices").places == at_home(home)


@dataclass
class Invoice:
    amount: int


def test_types_and_a_journal_of_ones_own_go_through(home: Path) -> None:
    journal = InMemoryJournal(keys=Keyring(SigningKey.generate()))
    ledger = open_ledger("invoices", places=at_home(home), codec=Codec([Invoice]), journal=journal)
    ledger.save("order-7", Invoice(42))
    assert ledger.latest("order-7").state == Invoice(42)
    assert [entry.what for entry in journal.show()] == ["save"]


FILES = {"storage": "storage_file", "anchor": "anchor_file", "key": "key_file"}


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    "lost",
    [list(some) for count in (1, 2) for some in combinations(FILES, count)],
    ids=" and ".join,
)
def test_a_loss_is_refused_and_nothing_is_made_in_its_place(
    home: Path, lost: list[str], used: bool
) -> None:
    """Unless nothing was ever saved, and what is there is what a killed first call leaves."""
    found = at_home(home)
    ledger = open_ledger("invoices", places=found)
    if used:
        ledger.save("order-7", {"amount": 42})
    del ledger
    for name in lost:
        getattr(found, FILES[name]).unlink()
    before = tree(home)
    if not used and lost in (["key"], ["anchor", "key"]):
        open_ledger("invoices", places=found).save("order-7", {"amount": 42})
        return
    refusal = said(StorageUnavailable, lambda: open_ledger("invoices", places=found))
    for name, file in FILES.items():
        assert (f"the {name} {getattr(found, file)}" in refusal) == (name in lost)
    assert tree(home) == before


def test_a_backup_of_the_storage_that_is_restored_shows(home: Path, tmp_path: Path) -> None:
    found = at_home(home)
    ledger = open_ledger("invoices", places=found)
    ledger.save("order-7", {"amount": 42})
    del ledger
    shutil.copytree(found.storage, tmp_path / "backup")
    open_ledger("invoices", places=found).save("order-7", {"amount": 43})
    shutil.rmtree(found.storage)
    shutil.copytree(tmp_path / "backup", found.storage)
    said(RolledBack, lambda: open_ledger("invoices", places=found).latest("order-7"))


def begin(folder: Path) -> None:
    """Begin a store, and save to it."""
    open_ledger("invoices", places=at_home(folder)).save("order-7", {"amount": 42})
    (folder / "told").touch()


def test_a_first_call_that_is_killed_anywhere_is_no_loss(tmp_path: Path) -> None:
    """After a kill at any step, the next call opens the store, with all that was told."""
    for left in killed(begin, tmp_path):
        ledger = open_ledger("invoices", places=at_home(left.folder))
        if (left.folder / "told").exists():
            assert ledger.latest("order-7").state == {"amount": 42}
        ledger.save("order-8", {"amount": 43})
        assert ledger.verify("order-8") == 1


FIRST = """
    import sys, time
    from safepoint import open_ledger
    from safepoint.places import default_locations

    places = default_locations("invoices", service=False, environ={"HOME": sys.argv[1]})
    while time.time() < float(sys.argv[2]):
        pass
    ledger = open_ledger("invoices", places=places)
    ledger.save(sys.argv[3], {"n": 1})
    print(ledger.keys.signing.id)
"""


def test_processes_that_begin_it_at_once_get_the_same_ledger(home: Path) -> None:
    import time

    command = [sys.executable, "-c", textwrap.dedent(FIRST), str(home), str(time.time() + 2)]
    workers = [
        subprocess.Popen([*command, f"t{number}"], stdout=subprocess.PIPE) for number in range(4)
    ]
    told = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert len(set(told)) == 1
    ledger = open_ledger("invoices", places=at_home(home))
    for number in range(4):
        assert ledger.latest(f"t{number}").state == {"n": 1}


# --- the attack


class NaiveHere(NaiveTarget):
    """Keeps everything in one folder. There is nothing else."""

    def by_default(self, medium: Medium | None = None) -> Self:
        return self.on(self.medium if medium is None else medium)


class MacHere(MacPlaceTarget):
    """Keeps its key with what it signs, as applications do."""

    def by_default(self, medium: Medium | None = None) -> Self:
        other = self.on(self.medium if medium is None else medium)
        if "secret.key" not in other.medium.names():
            other.medium.write("secret.key", self.keys[-1])
        other.keys = [other.medium.read("secret.key")]
        return other


def settled(target: Any, medium: Medium | None) -> Any:
    other = target.twin(target.medium if medium is None else medium)
    home = target.folder / ("home" if medium is None else "home-of-a-thief")
    home.mkdir(mode=0o700)
    found = default_locations(target.store, service=False, environ={"HOME": str(home)})
    found.create()
    if medium is None:
        other.medium = Disk(found.storage)
    other.keys = Keyring(SigningKey.from_file(found.key_file, create=True))
    if other.anchor is not None:
        other.anchor = FileAnchor(found.anchor, create=True)
    return other


class ChainHere(SignedChainTarget):
    def by_default(self, medium: Medium | None = None) -> Any:
        return settled(self, medium)


class SealedHere(SealedTarget):
    def by_default(self, medium: Medium | None = None) -> Any:
        return settled(self, medium)


class AllInOne(SealedTarget):
    """Our ledger, with its parts side by side in one folder that the adversary can write."""

    def by_default(self, medium: Medium | None = None) -> Self:
        other = self.on(self.medium if medium is None else medium)
        for name in ("storage", "keys"):
            (other.path / name).mkdir(mode=0o700, exist_ok=True)
        other.keys = Keyring(SigningKey.from_file(other.path / "keys/signing.key", create=True))
        other.anchor = FileAnchor(other.path / "anchor", create=True)
        return other

    def records(self, thread: str) -> list[str]:
        return [n for n in self.medium.names() if n.startswith(f"storage/{thread}/")]

    def use(self, act: Any) -> Any:
        if not (self.path / "storage").is_dir():
            return super().use(act)
        return act(self._ledger(FileCheckpointStorage(self.path / "storage")))


@pytest.mark.parametrize(
    ("target", "outcome"),
    [
        (NaiveHere, Outcome.ACCEPTED),
        (MacHere, Outcome.ACCEPTED),
        (ChainHere, Outcome.ACCEPTED),
        (AllInOne, Outcome.ACCEPTED),
        (SealedHere, Outcome.DETECTED),
    ],
)
def test_everything_in_one_folder(target: Any, outcome: Outcome, tmp_path: Path) -> None:
    victim = target(tmp_path)
    assert everything_in_one_folder.run(victim) is outcome
    if outcome is Outcome.DETECTED:
        rolled_back, forged = victim.refused
        assert rolled_back.startswith("RolledBack: victim ends at #1")
        assert forged.startswith("UnknownKey: ")
