"""Files done right, once: who may write them, what is said of them, and how they appear."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint.core import files
from safepoint.core.errors import CheckpointError, Unavailable, shell
from safepoint.stores import disk
from tests.unit.storage_helpers import fail


def info(kind: int, mode: int, uid: int = 1000, nlink: int = 1) -> os.stat_result:
    return os.stat_result((kind | mode, 1, 1, nlink, uid, 1000, 0, 0, 0, 0))


@pytest.mark.parametrize("way", ["deep/deeper", "link/deeper"])
def test_whoever_can_replace_a_folder_or_a_link_on_the_way_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Above the path as it is named, and above the one that it leads to."""
    (tmp_path / "deep/deeper").mkdir(parents=True)
    (tmp_path / "link").symlink_to("deep")
    for folder in ("deep", "deep/deeper"):
        (tmp_path / folder).chmod(0o755)
    assert list(files.replaceable_refusals(str(tmp_path / way))) == []
    (tmp_path / "deep").chmod(0o777)
    [refusal, *_] = files.replaceable_refusals(str(tmp_path / way))
    assert refusal.do == f"Run: chmod o-w {tmp_path}/deep"
    theirs = (tmp_path / way).parent
    if os.geteuid() == 0:
        os.lchown(theirs, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    said = [refusal.what for refusal in files.replaceable_refusals(str(tmp_path / way))]
    owner = theirs.lstat().st_uid
    assert f"{theirs} belongs to user {owner}, who can replace what is inside it." in said


@pytest.mark.parametrize("mode", [0o775, 0o755, 0o1775])
def test_a_folder_that_another_group_can_write_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """Of a group that is not this user's own: under umask 002 each new folder has that bit."""
    folder = tmp_path / "shared"
    folder.mkdir()
    if folder.stat().st_gid == 0:
        os.chown(folder, -1, 12345)
    folder.chmod(mode)
    group = folder.stat().st_gid
    for own in (group, group + 1):
        monkeypatch.setattr(os, "getegid", lambda own=own: own)
        said = [refusal.do for refusal in files.replaceable_refusals(str(folder))]
        assert (f"Run: chmod g-w {folder}" in said) == (mode == 0o775 and own != group)


def test_a_second_name_is_refused_unless_it_is_of_what_is_on_its_way_in(tmp_path: Path) -> None:
    record, temp = tmp_path / "r", tmp_path / ".next"
    record.touch()
    refusals = [*disk.hard_link_refusals("/r", record.stat, temp.lstat)]
    temp.hardlink_to(record)
    refusals += disk.hard_link_refusals("/r", record.stat, temp.lstat)
    counts: Iterator[int] = iter([2, 1])  # a publish that ends meanwhile
    refusals += disk.hard_link_refusals("/r", lambda: info(stat.S_IFREG, 0o600, nlink=next(counts)))
    assert refusals == []
    assert len([*disk.hard_link_refusals("/r", record.stat)]) == 1
    temp.rename(tmp_path / "planted")
    assert len([*disk.hard_link_refusals("/r", record.stat, temp.lstat)]) == 1


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "storage_path is '', which cannot be the path of a folder. Fix"),
        (b"/store", "storage_path is b'/store', which cannot be the path of a folder."),
        ("a\0b", "storage_path is 'a\\x00b', which cannot be the path of a folder."),
        ("a\ud800", "storage_path is 'a\\ud800', which cannot be the path of a folder."),
        ("loop/store", "cannot be reached ("),
        ("file/x/store", "cannot be reached (Not a directory)."),
        ("none/store", "such file or directory). Run: mkdir -p -m 700 {}/none"),
    ],
)
def test_what_is_not_the_path_of_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("file").touch()
    with pytest.raises(Unavailable) as caught:
        disk.absolute(path)
    assert message.format(tmp_path, tmp_path) in str(caught.value)


def test_links_are_resolved_above_the_folder_and_not_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "store").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "direct").symlink_to("real/store")
    monkeypatch.chdir(tmp_path)
    for spelling, found in {
        "link/store/../store/.": "/real/store",
        "link/store/..": "/real",
        "./direct//": "/direct",
    }.items():
        assert disk.absolute(spelling) == f"{tmp_path}{found}"


def test_bash_reads_the_word_back_as_the_path() -> None:
    path = "/a b\n$HOME `id`\t'\"\\\u0416\udcff;*"
    echo = subprocess.run(
        ["bash", "-c", f"printf %s {shell(path)}"], capture_output=True, check=True
    )
    assert echo.stdout == os.fsencode(path)
    assert shell(path).isascii()
    assert shell(path).isprintable()


REPORTED: list[tuple[int | None, str, str]] = [
    (errno.ENOSPC, "save to", "No room is left for /s (ENOSPC), so nothing was saved. Fix"),
    (errno.EROFS, "save to", "/s is on a read-only file system, so nothing was saved. Fix"),
    (errno.EACCES, "read from", "This process may not read from /s. Run: chmod -R u+rwX /s"),
    (errno.ENOENT, "read from", "/s is gone. Mount its volume, or restore its backup."),
    (errno.EIO, "open", "The system could not open /s (EIO). Fix what"),
    (None, "open", "The system could not open /s (unknown). Fix what"),
]


@pytest.mark.parametrize(("code", "doing", "message"), REPORTED)
def test_what_the_system_reports_is_said_in_our_words(
    code: int | None, doing: str, message: str
) -> None:
    """And in those of whoever keeps the file, where it went."""
    raised = OSError(code, "canary") if code else OSError("canary")
    with pytest.raises(CheckpointError) as caught, disk.translated(doing, "/s"):
        raise raised
    assert type(caught.value) is Unavailable
    assert message in str(caught.value)
    gone = ("It went.", "Look.")
    with pytest.raises(CheckpointError) as theirs, disk.translated(doing, "/s", gone):
        raise raised
    assert ("It went. Look." if code == errno.ENOENT else message) in str(theirs.value)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_a_file_that_the_disk_neither_confirms_nor_lets_go_is_said_to_be_so(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "fsync", errno.EIO, 2)
    fail(monkeypatch, "unlink", errno.EIO)
    with pytest.raises(Unavailable) as caught:
        disk.put(f"{tmp_path}/a", folder, b"new")
    assert caught.value.what == (
        f"{tmp_path}/a was written but not confirmed by the disk, and could not be removed."
    )


def test_a_file_system_without_links_or_locks_is_refused(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise OSError(errno.EOPNOTSUPP, "no")

    fail(monkeypatch, "link", errno.EPERM)
    with pytest.raises(Unavailable, match="has no hard links, so nothing was saved"):
        disk.put(f"{tmp_path}/a", folder, b"")
    monkeypatch.setattr(disk, "try_lock", refuse)
    with pytest.raises(Unavailable, match="cannot lock a"), disk.locked(folder, "/s"):
        pass


def test_nobody_waits_for_ever_for_a_lock(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "PATIENCE", 0.02)
    held = "Another process has held the lock on /s for 0.02 s"
    with (
        disk.opened(str(tmp_path), os.O_RDONLY) as other,
        disk.locked(other, "/s"),
        pytest.raises(Unavailable, match=held),
        disk.locked(folder, "/s"),
    ):
        pass
    with disk.locked(folder, "/s"):
        pass


def test_a_file_is_read_to_its_end_or_to_what_was_asked_for(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"0123456789")
    file.chmod(0o600)
    real = os.read
    for most in (10, 3):
        monkeypatch.setattr(os, "read", lambda fd, size, most=most: real(fd, min(size, most)))
        for asked in (7, 10, 1000):
            assert disk.read(str(file), "a", folder, asked) == b"0123456789"[:asked]


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "ext4"])
def test_a_file_system_that_machines_share_is_known_by_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    device = tmp_path.stat().st_dev
    here = f"30 22 {os.major(device)}:{os.minor(device)} / /mnt/a\\040b rw - {kind} server:/x rw\n"
    mounts = f"22 1 999:9 / / rw - nfs /dev/sda1 rw\n{here}odd line\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: mounts)
    found = None if kind == "ext4" else kind
    for path in (tmp_path, tmp_path / "not there yet"):
        assert disk.network_file_system(str(path)) == found
