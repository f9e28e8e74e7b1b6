"""check_places: has each part of a store a place of its own?"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from safepoint import _files as _posix
from safepoint.audit import location
from safepoint.audit.defaults import check_places
from safepoint.audit.finding import Finding
from safepoint.errors import StorageUnavailable
from safepoint.keys import SigningKey
from safepoint.places import Locations, default_locations, open_ledger

PARTS = ["storage", "keys", "anchor", "journal", "journal_anchor"]
COMMITTED = "so state could be committed. Name a folder outside of it."


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, and whoever runs them may be anywhere."""
    monkeypatch.setattr(location, "temp_folders", list)
    monkeypatch.chdir("/")


@pytest.fixture
def found(tmp_path: Path) -> Locations:
    """A store as the defaults set it up, with its key and one checkpoint."""
    made = default_locations("invoices", service=False, environ={"HOME": str(tmp_path)})
    open_ledger("invoices", places=made).save("order-7", {"amount": 42})
    return made


def named(found: Locations, **moved: Any) -> dict[str, Any]:
    return {part: getattr(found, part) for part in PARTS} | moved


def check(found: Locations, **moved: Any) -> list[Finding]:
    return check_places(**named(found, **moved))


def lines(found: Locations, **moved: Any) -> list[str]:
    return [str(finding) for finding in check(found, **moved)]


def test_what_the_defaults_set_up_has_no_finding(found: Locations) -> None:
    assert check(found) == []
    assert check_places(found.storage) == []
    assert check_places(str(found.storage), keys=str(found.keys)) == []


def test_nothing_is_created_or_changed(found: Locations, tmp_path: Path) -> None:
    found.keys.chmod(0o777)
    before = [(path, path.lstat()) for path in sorted(tmp_path.rglob("*"))]
    assert check(found, journal=tmp_path / "missing")
    after = [(path, path.lstat()) for path in sorted(tmp_path.rglob("*"))]
    assert [(p, s.st_mode, s.st_mtime_ns, s.st_ctime_ns) for p, s in before] == [
        (p, s.st_mode, s.st_mtime_ns, s.st_ctime_ns) for p, s in after
    ]


@pytest.mark.parametrize("part", PARTS[1:])
@pytest.mark.parametrize("where", ["", "inside", ".."])
def test_a_part_in_one_place_with_the_storage_is_an_error(
    found: Locations, part: str, where: str
) -> None:
    path = found.storage.parent if where == ".." else found.storage / where
    path.mkdir(mode=0o700, exist_ok=True)
    named_part = part.replace("journal_", "journal's ")
    assert (
        f"SP22 error: The {named_part} {path} and the storage {found.storage} are in one place."
        " Whoever can write one can write the other. Give each a folder of its own, such as those"
        " of default_locations."
    ) in lines(found, **{part: path})


def test_the_other_parts_are_apart_from_each_other(found: Locations) -> None:
    (only,) = lines(found, journal=found.anchor)
    assert only.startswith(
        f"SP22 error: The journal {found.anchor} and the anchor {found.anchor} are in one place."
    )


def test_a_link_on_the_way_hides_nothing(found: Locations, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(found.storage.parent)
    (only,) = lines(found, anchor=tmp_path / "link" / "storage", journal=None)
    assert f"SP22 error: The anchor {found.storage} and the storage {found.storage}" in only


def test_a_part_that_is_a_link_into_the_storage_is_in_one_place_with_it(
    found: Locations, tmp_path: Path
) -> None:
    (tmp_path / "anchor").symlink_to(found.storage / "order-7")
    assert lines(found, anchor=tmp_path / "anchor")[0].startswith(
        f"SP22 error: The anchor {tmp_path}/anchor and the storage {found.storage} are in one place"
    )


def test_a_second_name_of_a_folder_hides_nothing(
    found: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount gives a folder a second name, and no path tells."""
    real = Path.samefile

    def samefile(one: Path, other: Path) -> bool:
        return {str(one), str(other)} == {str(found.storage), str(found.anchor)} or real(one, other)

    monkeypatch.setattr(Path, "samefile", samefile)
    assert any("anchor" in line and "in one place" in line for line in lines(found))


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_missing_is_an_error(found: Locations, part: str) -> None:
    path = Path(f"{found.storage}-gone")
    name = part.replace("journal_", "journal's ")
    assert lines(found, **{part: path}) == [
        (
            f"SP22 error: The folder of the {name} {path} does not exist. Correct the path, or"
            f" make it: mkdir -m 700 {path}"
        )
    ]


def test_a_part_whose_parent_is_missing_is_an_error(found: Locations, tmp_path: Path) -> None:
    assert lines(found, keys=tmp_path / "no" / "keys") == [
        f"SP22 error: {tmp_path}/no does not exist. Run: mkdir -p -m 700 {tmp_path}/no"
    ]
    assert lines(found, keys="") == [
        "SP22 error: The folder of the keys is empty. Name a folder: there is no default."
    ]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("mode", "severity", "what"),
    [
        (0o770, "error", "can be written by others (mode 0770)"),
        (0o750, "warning", "can be read by others (mode 0750)"),
    ],
)
def test_a_part_that_others_can_reach_is_found(
    found: Locations, part: str, mode: int, severity: str, what: str
) -> None:
    path = getattr(found, part)
    path.chmod(mode)
    assert f"SP22 {severity}: {path} {what}. Run: chmod 700 {path}" in lines(found)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_a_link_is_an_error(found: Locations, part: str, tmp_path: Path) -> None:
    path = getattr(found, part)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    (only,) = lines(found)
    assert only.startswith(f"SP22 error: {path} is a symbolic link.")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_another_user_is_an_error(
    found: Locations, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    path = getattr(found, part)
    assert any(
        line.startswith(f"SP22 error: {path} belongs to user {path.stat().st_uid}, and this")
        for line in lines(found)
    )


def test_a_folder_above_that_others_can_write_is_found(found: Locations, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert (
        f"SP22 error: Every user can rename and replace what is inside {tmp_path} (mode 0777)."
        f" Run: chmod o-w {tmp_path}"
    ) in lines(found)
    tmp_path.chmod(0o770)
    group = tmp_path.stat().st_gid
    assert (
        f"SP22 warning: The group {group} can replace what is inside {tmp_path} (mode 0770)."
        f" Run: chmod g-w {tmp_path}"
    ) in lines(found)
    tmp_path.chmod(0o700)


def test_a_temporary_folder_is_a_warning(
    found: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "temp_folders", lambda: [str(tmp_path)])
    assert lines(found) == [
        f"SP22 warning: {path} is inside the temporary folder {tmp_path}: other users can create"
        " names there, and the system may empty it. Name a folder that is kept, such as one below"
        " /var/lib."
        for path in named(found).values()
    ]


def test_a_repository_is_a_warning_and_a_key_in_it_an_error(
    found: Locations, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    assert lines(found, anchor=None, journal=None, journal_anchor=None) == [
        f"SP22 warning: {found.storage} is inside the git work tree {tmp_path}, {COMMITTED}",
        f"SP22 warning: {found.keys} is inside the git work tree {tmp_path}, {COMMITTED}",
        *(
            f"SP22 error: The key {key} is inside a git work tree, so it could be committed. Move"
            " it to a folder outside of it, and replace it if it was ever committed."
            for key in [found.key_file]
        ),
    ]


def test_the_current_folder_is_a_warning(
    found: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.chdir(tmp_path)
    assert lines(found, keys=None, anchor=None, journal=None, journal_anchor=None) == [
        (
            f"SP22 warning: {found.storage} is inside the current folder {tmp_path}, where people"
            " keep code and run programs. Name a folder of the platform's for state, such as those"
            " of default_locations."
        )
    ]


@pytest.mark.parametrize("home", [".", "home/you"])
def test_who_is_at_home_or_above_it_is_not_warned(
    found: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / home))
    monkeypatch.chdir(tmp_path)
    assert lines(found) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610])
def test_a_key_that_others_can_reach_is_an_error(found: Locations, mode: int) -> None:
    found.key_file.chmod(mode)
    assert lines(found) == [
        (
            f"SP22 error: The key {found.key_file} can be reached by other users (mode {mode:04o})."
            f" Run: chmod 600 {found.key_file}, and replace the key if anyone may have read it."
        )
    ]


def test_a_public_key_may_be_read(found: Locations) -> None:
    SigningKey.generate("ed25519").public.to_file(found.keys / "reader.key")
    assert stat.S_IMODE((found.keys / "reader.key").stat().st_mode) == 0o644
    assert lines(found) == []


@pytest.mark.parametrize("part", ["anchor", "journal", "journal_anchor"])
@pytest.mark.parametrize("pem", [False, True])
def test_a_key_in_another_part_is_an_error(found: Locations, part: str, pem: bool) -> None:
    file = getattr(found, part) / "copy.key"
    if pem:
        file.write_text("\n-----BEGIN EC PRIVATE KEY-----\n")
        file.chmod(0o600)
    else:
        SigningKey.generate().to_file(file)
    name = part.replace("journal_", "journal's ")
    assert lines(found) == [
        (
            f"SP22 error: The key {file} is in the folder of the {name}. Move it to a folder for"
            " keys alone, and replace it if anyone may have read it."
        )
    ]


def test_a_folder_that_cannot_be_listed_is_a_warning(
    found: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path) == str(found.keys):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert lines(found) == [
        (
            f"SP22 warning: {found.keys} could not be looked at as a whole (Permission denied)."
            " Look at it yourself, as a user who can read it."
        )
    ]


def test_a_key_that_cannot_be_read_is_a_warning(
    found: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def closed(path: Any, *args: Any, **options: Any) -> int:
        if str(path) == str(found.key_file):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", closed)
    (only,) = lines(found)
    assert only.startswith(f"SP22 warning: {found.key_file} could not be looked at as a whole")


def test_elsewhere_than_on_posix_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_posix, "SUPPORTED", False)
    with pytest.raises(StorageUnavailable, match="needs a POSIX system"):
        check_places("state")
