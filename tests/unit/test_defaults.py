"""Where state lives by default, how its folders are made, and what one folder for all costs."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import (
    AnchorUnavailable,
    Codec,
    ConfigurationError,
    FileAnchor,
    FileCheckpointStorage,
    InvalidId,
    JournalBroken,
    JournalUnavailable,
    KeyRefused,
    Ledger,
    RolledBack,
    StorageFull,
    StorageUnavailable,
    UnsafeLocation,
)
from safepoint import _files as _posix
from safepoint import places as folders
from safepoint import places as platform
from safepoint.attacks import Disk, NaiveTarget, Outcome, SealedTarget
from safepoint.attacks.defaults import EverythingInOneFolder
from safepoint.attacks.medium import Medium
from safepoint.attacks.rungs import MacPlaceTarget, SignedChainTarget
from safepoint.keys import Keyring, SigningKey
from safepoint.places import Locations, default_locations
from tests.unit.storage_helpers import descriptors, fail, tree

USER = os.geteuid()
SYSTEMD = {
    "STATE_DIRECTORY": "/var/lib/app:/var/lib/app-anchor",
    "LOGS_DIRECTORY": "/var/log/app",
    "CONFIGURATION_DIRECTORY": "/etc/app",
}


def places(found: Locations) -> list[str]:
    return [str(path) for path in (found.storage, found.keys, found.anchor, found.journal)]


def at_home(home: Path, **environ: str) -> Locations:
    return default_locations("invoices", service=False, environ={"HOME": str(home), **environ})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home"
    found.mkdir(mode=0o700)
    return found


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


# Where.


def test_a_user_has_state_and_keys_in_two_places() -> None:
    found = at_home(Path("/h"))
    assert places(found) == [
        "/h/.local/state/safepoint/invoices/storage",
        "/h/.local/share/safepoint-keys/invoices",
        "/h/.local/state/safepoint-anchor/invoices",
        "/h/.local/state/safepoint/invoices/journal",
    ]
    assert found.key_file == Path("/h/.local/share/safepoint-keys/invoices/signing.key")
    assert found.journal_anchor == Path("/h/.local/state/safepoint-anchor/invoices.journal")


def test_a_user_says_where_state_and_data_are() -> None:
    found = at_home(Path("/h"), XDG_STATE_HOME="/s:1", XDG_DATA_HOME="/d", XDG_CONFIG_HOME="/c")
    assert places(found) == [
        "/s:1/safepoint/invoices/storage",
        "/d/safepoint-keys/invoices",
        "/s:1/safepoint-anchor/invoices",
        "/s:1/safepoint/invoices/journal",
    ]


@pytest.mark.parametrize("value", ["", "state", "./state", "~/state", "..", "~"])
def test_a_relative_or_empty_variable_counts_as_not_set(value: str) -> None:
    """The XDG specification: such a path is invalid, and is ignored."""
    found = at_home(Path("/h"), XDG_STATE_HOME=value, XDG_DATA_HOME=value)
    assert found == at_home(Path("/h"))
    environ = dict.fromkeys(SYSTEMD, value)
    plain = default_locations("invoices", service=True, environ={})
    assert default_locations("invoices", service=True, environ=environ) == plain


def test_a_user_of_macos_has_all_below_application_support() -> None:
    library = Path("/h/Library/Application Support")
    found = platform.of_a_user({"HOME": "/h", "XDG_STATE_HOME": "/s"}, "darwin")
    assert found == platform.Bases(library, library, library, library, Path("/h"))


def test_a_service_has_what_every_system_has() -> None:
    assert places(default_locations("invoices", service=True, environ={"HOME": "/h"})) == [
        "/var/lib/safepoint/invoices/storage",
        "/etc/safepoint-keys/invoices",
        "/var/lib/safepoint-anchor/invoices",
        "/var/log/safepoint/invoices/journal",
    ]


def test_a_service_of_systemd_has_what_that_made_for_it() -> None:
    assert places(default_locations("invoices", environ=SYSTEMD)) == [
        "/var/lib/app/safepoint/invoices/storage",
        "/etc/app/safepoint-keys/invoices",
        "/var/lib/app-anchor/safepoint-anchor/invoices",
        "/var/log/app/safepoint/invoices/journal",
    ]


def test_of_several_folders_of_systemd_the_first_counts() -> None:
    """And of those for state the second, for the anchors."""
    environ = {name: f"{value}:/var/lib/other" for name, value in SYSTEMD.items()}
    assert default_locations("a", environ=environ) == default_locations("a", environ=SYSTEMD)


@pytest.mark.parametrize(
    "second", ["", ":", ":anchor", ":/var/lib/app", ":/var/lib/app/anchor", ":/var/lib", "::/x"]
)
def test_a_service_of_systemd_whose_anchor_would_be_restored_with_its_storage_is_refused(
    second: str,
) -> None:
    environ = {**SYSTEMD, "STATE_DIRECTORY": f"/var/lib/app{second}"}
    for service in (None, True):
        with pytest.raises(StorageUnavailable) as caught:
            default_locations("a", service=service, environ=environ)
        assert str(caught.value) == (
            "systemd gave one folder for state, /var/lib/app, so that the storage and its anchor"
            " would be restored together. Name two in the unit:"
            " StateDirectory=invoices invoices-anchor"
        )
    assert default_locations("a", service=False, environ={"HOME": "/h", **environ}).home


def test_the_folders_of_systemd_are_restored_one_by_one(tmp_path: Path) -> None:
    """What happened: the backup of the state folder took the anchor back as well."""
    environ = {name: str(tmp_path / name) for name in SYSTEMD}
    environ["STATE_DIRECTORY"] = f"{tmp_path}/state:{tmp_path}/anchor"
    for path in ":".join(environ.values()).split(":"):
        Path(path).mkdir(mode=0o700)
    found = default_locations("a", environ=environ)
    ledger = found.ledger(create=True)
    ledger.save("order-7", "approved")
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    ledger.save("order-7", "cancelled")
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    with pytest.raises(RolledBack):
        found.ledger().latest("order-7")


@pytest.mark.parametrize(
    ("user", "environ", "service"),
    [
        (1000, {"HOME": "/h"}, False),
        (1000, {"HOME": "/h", "STATE_DIRECTORY": ""}, False),
        (1000, {"HOME": "/h", "LOGS_DIRECTORY": "/var/log/app"}, False),
        (1000, {"HOME": "/h", "STATE_DIRECTORY": "/var/lib/app:/var/lib/b"}, True),
        (0, {"HOME": "/h"}, True),
    ],
)
def test_root_or_systemd_make_a_service_unless_you_say(
    user: int, environ: Mapping[str, str], service: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    chosen = default_locations("invoices", environ=environ)
    assert chosen == default_locations("invoices", service=service, environ=environ)
    assert chosen != default_locations("invoices", service=not service, environ=environ)


def test_the_environment_of_the_process_counts_if_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    found = default_locations("invoices", service=False)
    assert str(found.storage) == "/s/safepoint/invoices/storage"


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "somewhere"}])
def test_a_user_without_home_in_the_environment_has_the_one_of_the_system(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [Path("/known")]
    monkeypatch.setattr(pwd, "getpwuid", lambda _: type("", (), {"pw_dir": known[0]}))
    assert default_locations("a", service=False, environ=environ).home == Path("/known")


@pytest.mark.parametrize("known", ["", "relative", None])
def test_a_user_without_any_home_is_told(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def getpwuid(user: int) -> object:
        if known is None:
            raise KeyError(user)
        return type("", (), {"pw_dir": known})

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    with pytest.raises(StorageUnavailable) as caught:
        default_locations("a", service=False, environ={})
    assert str(caught.value) == (
        f"User {USER} has no home folder. Set HOME to an absolute path, or pass service=True."
    )


FOLDERS = st.sampled_from(
    ["", "x", "/", "/a", "/a/safepoint", "/a/safepoint/s/storage", "/a/safepoint-anchor/s", "/a/.."]
)
LISTS = st.lists(FOLDERS, max_size=3).map(":".join)
VARIABLES = ["HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", *SYSTEMD]


@given(st.dictionaries(st.sampled_from(VARIABLES), FOLDERS | LISTS), st.booleans())
def test_no_environment_puts_one_folder_into_another(
    environ: dict[str, str], service: bool
) -> None:
    try:
        found = default_locations("s", service=service, environ=environ)
    except (ConfigurationError, StorageUnavailable):
        return
    folders = [*map(Path, places(found)), found.journal_anchor]
    assert all(path.is_absolute() for path in folders)
    for one, other in combinations(folders, 2):
        assert not one.is_relative_to(other)
        assert not other.is_relative_to(one)


def test_an_environment_that_puts_the_keys_into_the_storage_is_refused() -> None:
    environ = {**SYSTEMD, "CONFIGURATION_DIRECTORY": "/var/lib/app/safepoint/a/storage"}
    with pytest.raises(ConfigurationError) as caught:
        default_locations("a", environ=environ)
    assert str(caught.value) == (
        "The folder for the storage /var/lib/app/safepoint/a/storage is in one place with that for"
        " the keys /var/lib/app/safepoint/a/storage/safepoint-keys/a. Whoever can write one could"
        " write the other. Give each a folder of its own."
    )


@pytest.mark.parametrize("store", ["../x", "", "A", "a/b", "a.journal", None])
def test_the_name_of_a_store_never_leads_elsewhere(store: Any) -> None:
    """Nor to the place of another store's journal anchor."""
    with pytest.raises(InvalidId, match="is not a store name"):
        default_locations(store, environ={"HOME": "/h"})


@pytest.mark.parametrize("service", ["no", 0, 1])
def test_service_is_a_bool(service: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        default_locations("a", service=service)
    assert str(caught.value) == (
        f"service is {service!r}. Write service=True, service=False, or nothing."
    )


def test_elsewhere_than_on_posix_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = at_home(Path("/h"))
    monkeypatch.setattr(_posix, "SUPPORTED", False)
    for use in (lambda: default_locations("a"), found.create):
        with pytest.raises(StorageUnavailable, match="needs a POSIX system"):
            use()


# Locations of one's own.


def test_a_folder_can_be_moved(home: Path, tmp_path: Path) -> None:
    moved = replace(at_home(home), anchor=tmp_path / "witness")
    assert moved.anchor == tmp_path / "witness"
    assert moved.journal_anchor == tmp_path / "witness.journal"
    moved.create()
    assert stat.S_IMODE(moved.anchor.stat().st_mode) == 0o700


def test_of_a_folder_of_your_own_the_parent_is_not_made(home: Path, tmp_path: Path) -> None:
    """It may be a volume that is not mounted."""
    with pytest.raises(StorageUnavailable) as caught:
        replace(at_home(home), anchor=tmp_path / "mnt" / "witness").create()
    assert str(caught.value) == (
        f"{tmp_path}/mnt does not exist. Run: mkdir -p -m 700 {tmp_path}/mnt"
    )
    assert not (tmp_path / "mnt").exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "state",
            (
                "The folder for the journal is a relative path, which leads elsewhere as soon as"
                " the process starts elsewhere. Name an absolute path."
            ),
        ),
        (
            "/x/..",
            (
                "The folder for the journal is '/x/..', which is no folder of its own."
                " Name one that is for this store alone."
            ),
        ),
        (
            "/",
            (
                "The folder for the journal is '/', which is no folder of its own."
                " Name one that is for this store alone."
            ),
        ),
    ],
)
def test_a_folder_is_absolute_and_has_a_name(path: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        replace(at_home(Path("/h")), journal=path)
    assert str(caught.value) == message


@pytest.mark.parametrize("path", ["", "/a\0b", b"/a", None])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(StorageUnavailable):
        replace(at_home(Path("/h")), anchor=path)


@pytest.mark.parametrize("part", ["keys", "anchor", "journal"])
@pytest.mark.parametrize("where", ["", "inside", ".."])
def test_nothing_lies_in_the_storage_or_around_it(part: str, where: str) -> None:
    found = at_home(Path("/h"))
    path = found.storage.parent if where == ".." else found.storage / where
    with pytest.raises(ConfigurationError, match="is in one place with"):
        replace(found, **{part: path})  # type: ignore[arg-type]


def test_a_link_that_leads_into_the_storage_is_refused_before_anything_is_made(
    home: Path, tmp_path: Path
) -> None:
    found = at_home(home)
    (tmp_path / "mnt").symlink_to(found.storage)
    with pytest.raises(ConfigurationError) as caught:
        replace(found, anchor=tmp_path / "mnt" / "anchor").create()
    assert str(caught.value) == (
        f"The folder for the storage {found.storage} is in one place with that for the anchor"
        f" {found.storage}/anchor. Whoever can write one could write the other. Give each a folder"
        " of its own."
    )
    assert tree(home) == []


# Making them.

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
    with umask(mask):
        at_home(home).create()
    assert tree(home) == MADE
    assert {stat.S_IMODE((home / name).stat().st_mode) for name in MADE} == {0o700}


def test_choosing_makes_nothing(home: Path) -> None:
    at_home(home)
    assert tree(home) == []


def test_making_them_again_changes_nothing(home: Path) -> None:
    at_home(home).create()
    before = [(home / name).stat() for name in MADE]
    at_home(home).create()
    after = [(home / name).stat() for name in MADE]
    assert [(s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for s in before] == [
        (s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for s in after
    ]


def test_what_was_above_stays_as_it_is(home: Path) -> None:
    (home / ".local").mkdir(mode=0o755)
    (home / ".local").chmod(0o755)
    at_home(home).create()
    assert stat.S_IMODE((home / ".local").stat().st_mode) == 0o755


def test_many_processes_may_make_them_at_once(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for made in [pool.submit(at_home(home).create) for _ in range(16)]:
            made.result()
    assert tree(home) == MADE


def test_state_may_be_on_another_disk_by_a_link_of_ones_own(home: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    (home / ".local").mkdir(mode=0o700)
    (home / ".local/state").symlink_to(disk)
    at_home(home).create()
    assert (disk / "safepoint/invoices/storage").is_dir()


@pytest.mark.parametrize("name", [*PARENTS, *OWN])
def test_no_link_is_followed_below_that(home: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (home / name).parent.mkdir(mode=0o700, parents=True)
    (home / name).symlink_to(outside)
    before = descriptors()
    with pytest.raises(UnsafeLocation) as caught:
        at_home(home).create()
    assert str(caught.value) == (
        f"{home}/{name} is a symbolic link. Whoever owns the link decides where it leads. See"
        f" where, and name that folder instead: readlink -f {home}/{name}"
    )
    assert tree(outside) == []
    assert descriptors() == before


@pytest.mark.parametrize("name", [*PARENTS, *OWN])
def test_a_file_in_the_place_of_a_folder_is_refused(home: Path, name: str) -> None:
    (home / name).parent.mkdir(mode=0o700, parents=True)
    (home / name).touch()
    with pytest.raises(UnsafeLocation) as caught:
        at_home(home).create()
    assert str(caught.value) == (
        f"{home}/{name} is not a folder. Name another path; see what is there: ls -ld {home}/{name}"
    )


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o710, 0o701, 0o1777, 0o500])
def test_a_folder_of_the_store_has_no_other_mode(home: Path, name: str, mode: int) -> None:
    at_home(home).create()
    (home / name).chmod(mode)
    before = descriptors()
    with pytest.raises(UnsafeLocation) as caught:
        at_home(home).create()
    assert str(caught.value) == (
        f"{home}/{name} has mode {mode:04o}, and should have 0700. Run: chmod 700 {home}/{name}"
    )
    assert descriptors() == before
    assert stat.S_IMODE((home / name).stat().st_mode) == mode


@pytest.mark.parametrize("name", PARENTS)
def test_a_folder_around_them_may_be_read_and_not_written(home: Path, name: str) -> None:
    at_home(home).create()
    (home / name).chmod(0o755)
    at_home(home).create()
    (home / name).chmod(0o775)
    with pytest.raises(UnsafeLocation) as caught:
        at_home(home).create()
    assert str(caught.value) == (
        f"{home}/{name} has mode 0775, and should have 0700. Run: chmod 700 {home}/{name}"
    )


def info(mode: int, user: int) -> os.stat_result:
    return os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, user, 1000, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("refusals", "user", "messages"),
    [
        (folders._own_refusals, 1000, []),
        (
            folders._own_refusals,
            0,
            [
                (
                    "/s belongs to user 0, and this process is user 1000. If what is inside is"
                    " yours, run: sudo chown 1000 /s"
                )
            ],
        ),
        (folders._parent_refusals, 1000, []),
        (folders._parent_refusals, 0, []),
        (
            folders._parent_refusals,
            7,
            [
                (
                    "/s belongs to user 7, who can replace what is inside it. Name a folder that"
                    " has only root and your own user above it."
                )
            ],
        ),
    ],
)
def test_a_folder_of_the_store_is_ours_and_one_around_it_ours_or_roots(
    refusals: Any, user: int, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert [str(refusal) for refusal in refusals("/s", info(0o700, user))] == messages


@pytest.mark.parametrize("name", [*PARENTS, *OWN])
def test_a_folder_of_somebody_else_is_refused(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(home).create()
    real, given = os.fstat, (home / name).stat().st_ino

    def fstat(fd: int) -> os.stat_result:
        found = real(fd)
        return info(0o700, USER + 1) if found.st_ino == given else found

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(UnsafeLocation, match=f"{name} belongs to user {USER + 1}"):
        at_home(home).create()


def test_a_folder_that_everybody_can_write_is_no_place_to_begin(home: Path) -> None:
    home.chmod(0o777)
    with pytest.raises(UnsafeLocation) as caught:
        at_home(home).create()
    assert str(caught.value) == (
        f"Every user can rename and replace what is inside {home} (mode 0777)."
        f" Run: chmod o-w {home}"
    )
    assert tree(home) == []


def test_a_folder_that_another_group_can_write_is_no_place_to_begin(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if USER == 0:
        os.chown(home, -1, 12345)
    monkeypatch.setattr(os, "getegid", lambda: 12346)
    home.chmod(0o770)
    with pytest.raises(UnsafeLocation) as caught:
        at_home(home).create()
    assert str(caught.value) == (
        f"The group {home.stat().st_gid} can replace what is inside {home} (mode 0770)."
        f" Run: chmod g-w {home}"
    )


def test_a_home_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable) as caught:
        at_home(tmp_path / "gone").create()
    assert str(caught.value) == (
        f"{tmp_path}/gone does not exist. Run: mkdir -p -m 700 {tmp_path}/gone"
    )


@pytest.mark.parametrize("name", ["XDG_STATE_HOME", "XDG_DATA_HOME"])
def test_a_folder_that_a_variable_names_outside_of_home_is_not_made(
    home: Path, tmp_path: Path, name: str
) -> None:
    with pytest.raises(StorageUnavailable, match="mnt does not exist"):
        at_home(home, **{name: str(tmp_path / "mnt")}).create()


def test_the_folder_of_a_service_is_not_made(tmp_path: Path) -> None:
    environ = {"STATE_DIRECTORY": f"{tmp_path}/lib:{tmp_path}/anchor"}
    with pytest.raises(StorageUnavailable, match="lib does not exist"):
        default_locations("a", environ=environ).create()


def test_a_service_has_its_folders_made_in_those_of_systemd(tmp_path: Path) -> None:
    environ = {name: str(tmp_path / name) for name in SYSTEMD}
    environ["STATE_DIRECTORY"] += f":{tmp_path}/SECOND"
    for path in ":".join(environ.values()).split(":"):
        Path(path).mkdir()
        Path(path).chmod(0o755)
    default_locations("a", environ=environ).create()
    assert tree(tmp_path) == [
        "CONFIGURATION_DIRECTORY",
        "CONFIGURATION_DIRECTORY/safepoint-keys",
        "CONFIGURATION_DIRECTORY/safepoint-keys/a",
        "LOGS_DIRECTORY",
        "LOGS_DIRECTORY/safepoint",
        "LOGS_DIRECTORY/safepoint/a",
        "LOGS_DIRECTORY/safepoint/a/journal",
        "SECOND",
        "SECOND/safepoint-anchor",
        "SECOND/safepoint-anchor/a",
        "SECOND/safepoint-anchor/a.journal",
        "STATE_DIRECTORY",
        "STATE_DIRECTORY/safepoint",
        "STATE_DIRECTORY/safepoint/a",
        "STATE_DIRECTORY/safepoint/a/storage",
    ]


def test_who_may_not_make_a_folder_is_told_how_root_does(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "mkdir", errno.EACCES)
    storage = at_home(home).storage
    with pytest.raises(StorageUnavailable) as caught:
        at_home(home).create()
    assert str(caught.value) == (
        f"This process may not create {storage}. Run: sudo install -d -m 700 -o {USER} {storage}"
    )


def test_what_root_made_that_way_is_taken(home: Path) -> None:
    """Its parents have the mode that `install` gives them."""
    for name in [*OWN, ".local/state/safepoint-anchor/invoices"]:
        (home / name).mkdir(parents=True)
        (home / name).chmod(0o700)
    for name in PARENTS:
        (home / name).chmod(0o755)
    at_home(home).create()


def test_who_may_not_look_into_a_folder_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where root made the first store of a machine, and this user would add another."""
    at_home(home).create()
    real = os.open

    def closed(name: Any, *args: Any, **options: Any) -> int:
        if name == "safepoint":
            raise PermissionError(errno.EACCES, "closed")
        return real(name, *args, **options)

    monkeypatch.setattr(os, "open", closed)
    with pytest.raises(StorageUnavailable) as caught:
        at_home(home).create()
    path = f"{home}/.local/state/safepoint"
    assert str(caught.value) == (
        f"This process may not look into {path}. Run: sudo chmod go+rx {path}"
    )


def test_a_full_disk_is_said_and_leaves_no_descriptor(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    fail(monkeypatch, "mkdir", errno.ENOSPC, on=3)
    with pytest.raises(StorageFull, match=r"no room left for .*/storage \(ENOSPC\)"):
        at_home(home).create()
    assert descriptors() == before


def test_a_folder_is_on_disk_when_it_was_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    at_home(home).create()
    assert set(synced) == {(home / name).parent.stat().st_ino for name in MADE}


# Opening them.


def test_a_store_is_set_up_and_opened_again(home: Path) -> None:
    found = at_home(home)
    found.ledger(create=True).save("order-7", {"amount": 42})
    ledger = found.ledger()
    assert ledger.latest("order-7").state == {"amount": 42}
    assert (ledger.store, ledger.anchor_every) == ("invoices", 1)
    storage, anchor, journal = ledger.storage, ledger.anchor, ledger.journal
    parts: Any = (storage, anchor, journal)
    assert [part.path for part in parts] == [found.storage, found.anchor, found.journal]
    assert ledger.keys.signing.path == found.key_file
    assert [entry.what for entry in parts[2].show()] == ["save"]
    assert (found.journal_anchor / "journal.head").exists()
    assert [file.name for file in found.journal.glob("*.jsonl")] == ["invoices.000001.jsonl"]


def test_a_store_is_not_begun_without_a_word(home: Path) -> None:
    with pytest.raises(KeyRefused):
        at_home(home).ledger()
    at_home(home).create()
    with pytest.raises(KeyRefused):
        at_home(home).ledger()
    assert tree(home) == MADE


@pytest.mark.parametrize(
    ("part", "refusal"),
    [
        ("keys", KeyRefused),
        ("anchor", AnchorUnavailable),
        ("journal", JournalUnavailable),
        ("journal_anchor", AnchorUnavailable),
    ],
)
def test_what_is_gone_later_is_refused(home: Path, part: str, refusal: Any) -> None:
    found = at_home(home)
    found.ledger(create=True).save("order-7", 1)
    shutil.rmtree(getattr(found, part))
    with pytest.raises(refusal):
        found.ledger()


def test_a_backup_of_the_storage_that_is_restored_shows(home: Path, tmp_path: Path) -> None:
    found = at_home(home)
    ledger = found.ledger(create=True)
    ledger.save("order-7", "approved")
    shutil.copytree(found.storage.parent, tmp_path / "backup")  # the storage and the journal
    ledger.save("order-7", "cancelled")
    shutil.rmtree(found.storage.parent)
    shutil.copytree(tmp_path / "backup", found.storage.parent)
    journal: Any = found.ledger().journal
    with pytest.raises(JournalBroken, match="the anchor has seen"):
        journal.verify()
    unheard = Ledger(
        FileCheckpointStorage(found.storage),
        store="invoices",
        keys=Keyring(SigningKey.from_file(found.key_file)),
        anchor=FileAnchor(found.anchor),
    )
    with pytest.raises(RolledBack):
        unheard.latest("order-7")


def test_a_ledger_takes_types_of_ones_own(home: Path) -> None:
    codec = Codec()
    assert at_home(home).ledger(create=True, codec=codec).codec is codec


# The attack.


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
    assert EverythingInOneFolder().run(victim) is outcome
    if outcome is Outcome.DETECTED:
        rolled_back, forged = victim.refused
        assert rolled_back.startswith("RolledBack: victim ends at #1")
        assert forged.startswith("UnknownKey: ")


def test_the_story_of_the_attack_is_short() -> None:
    assert len(EverythingInOneFolder.story) <= 90
