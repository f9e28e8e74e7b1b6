from __future__ import annotations

import errno
import os
import shlex
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint._files import (
    absolute,
    ancestor_refusals,
    folder_refusals,
    group_refusals,
    hard_link_refusals,
    location_refusals,
    record_refusals,
    replaceable_refusals,
    translate,
)
from safepoint.errors import StorageFull, StorageUnavailable, UnsafeLocation, shell

OF_YOUR_OWN = "Name a folder of your own, such as /s/checkpoints: mkdir -m 700 /s/checkpoints"
FOLDER, FILE, LINK, FIFO = stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO


def info(kind: int, mode: int, uid: int = 1000, nlink: int = 1) -> os.stat_result:
    return os.stat_result((kind | mode, 1, 1, nlink, uid, 1000, 0, 0, 0, 0))


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return 1000


@pytest.mark.usefixtures("user")
@pytest.mark.parametrize(
    ("found", "messages"),
    [
        (info(FOLDER, 0o700), []),
        (info(FOLDER, 0o755), []),
        (info(FOLDER, 0o770), ["/s can be written by others (mode 0770). Run: chmod 700 /s"]),
        (info(FOLDER, 0o702), ["/s can be written by others (mode 0702). Run: chmod 700 /s"]),
        (
            info(FOLDER, 0o1777, uid=7),
            [f"/s belongs to user 7, and this process is user 1000. {OF_YOUR_OWN}"],
        ),
        (info(FOLDER, 0o1777), [f"/s is shared by all users. {OF_YOUR_OWN}"]),
        (info(FOLDER, 0o1700), []),
        (
            info(FOLDER, 0o755, uid=0),
            [f"/s belongs to user 0, and this process is user 1000. {OF_YOUR_OWN}"],
        ),
        (
            info(LINK, 0o777),
            [
                (
                    "/s is a symbolic link. Whoever owns the link decides where it leads."
                    " See where, and name that folder instead: readlink -f /s"
                )
            ],
        ),
        (
            info(FILE, 0o600),
            ["/s is not a folder. Name another path; see what is there: ls -ld /s"],
        ),
    ],
)
def test_what_is_said_of_a_folder(found: os.stat_result, messages: list[str]) -> None:
    assert [str(refusal) for refusal in folder_refusals("/s", found)] == messages


@pytest.mark.usefixtures("user")
@pytest.mark.parametrize(
    ("found", "messages"),
    [
        (info(FILE, 0o600), []),
        (info(FILE, 0o620), ["/r can be written by others (mode 0620). Run: chmod 600 /r"]),
        (
            info(FILE, 0o600, uid=0),
            ["/r belongs to user 0, and this process is user 1000. Run: sudo chown 1000 /r"],
        ),
        (
            info(FIFO, 0o600),
            [
                (
                    "/r is not a regular file."
                    " This store never makes one. See who did, then remove it: ls -l /r"
                )
            ],
        ),
        (
            info(LINK, 0o777),
            [
                (
                    "/r is a symbolic link."
                    " This store never makes one. See who did, then remove it: ls -l /r"
                )
            ],
        ),
    ],
)
def test_what_is_said_of_a_record(found: os.stat_result, messages: list[str]) -> None:
    assert [str(refusal) for refusal in record_refusals("/r", found)] == messages


@pytest.mark.parametrize(
    ("mode", "messages"),
    [
        (0o755, []),
        (0o1777, []),
        (0o775, []),
        (
            0o777,
            ["Every user can rename and replace what is inside /a (mode 0777). Run: chmod o-w /a"],
        ),
    ],
)
def test_what_is_said_of_a_folder_above(mode: int, messages: list[str]) -> None:
    """World-writable is refused without the sticky bit alone."""
    found = [str(refusal) for refusal in ancestor_refusals("/a", info(FOLDER, mode))]
    assert found == messages


def test_every_folder_above_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/c").chmod(0o700)  # whatever the umask
    (tmp_path / "a").chmod(0o777)
    [refusal] = location_refusals(str(tmp_path / "a/b/c"))
    assert refusal.do == f"Run: chmod o-w {tmp_path}/a"
    assert [str(r) for r in location_refusals(str(tmp_path / "a/b/new"))] == [str(refusal)]


def test_a_second_name_is_refused_unless_it_is_a_temp(tmp_path: Path) -> None:
    record, temps = tmp_path / "r", tmp_path / "temps"
    temps.mkdir()
    record.touch()
    assert list(hard_link_refusals("/r", record.stat, str(temps))) == []
    (temps / "t").hardlink_to(record)
    assert list(hard_link_refusals("/r", record.stat, str(temps))) == []
    (tmp_path / "planted").hardlink_to(record)
    [refusal] = hard_link_refusals("/r", record.stat, str(temps))
    assert str(refusal) == (
        "/r has a second name (hard link)."
        " Whoever holds it may change the record. Find it, and remove it: find / -samefile /r"
    )
    assert len(list(hard_link_refusals("/r", record.stat, None))) == 1


def test_a_publish_that_ends_meanwhile_raises_no_alarm(tmp_path: Path) -> None:
    """The temp's name is gone when the temps are listed, and then the count is 1 again."""
    counts: Iterator[int] = iter([2, 1])
    refusals = hard_link_refusals(
        "/r", lambda: info(FILE, 0o600, nlink=next(counts)), str(tmp_path)
    )
    assert list(refusals) == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (None, "storage_path is NoneType, not a path. Pass a str or a pathlib.Path"),
        (b"/x", "storage_path is bytes, not a path. Pass a str or a pathlib.Path"),
        (7, "storage_path is int, not a path. Pass a str or a pathlib.Path"),
        ("", "storage_path is empty. Name a folder: there is no default."),
        ("a\0b", "'a\\x00b' cannot be the path of a folder. Use at most 4095 bytes, no NUL"),
        ("a\ud800", "'a\\ud800' cannot be the path of a folder. Use at most 4095 bytes, no NUL"),
        ("a" * 4096, f"'{'a' * 56}... cannot be the path of a folder. Use at most 4095 bytes"),
    ],
)
def test_what_is_not_a_path_is_refused(path: Any, message: str) -> None:
    with pytest.raises(StorageUnavailable) as caught:
        absolute(path)
    assert str(caught.value).startswith(message)


def test_a_path_like_that_gives_bytes_is_refused() -> None:
    class Odd:
        def __fspath__(self) -> bytes:
            return b"/x"

    with pytest.raises(StorageUnavailable, match=r"storage_path is Odd, not a path\."):
        absolute(Odd())


def test_missing_parents_are_refused_with_the_command_that_makes_them(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable) as caught:
        absolute(tmp_path / "no such" / "deep" / "store")
    parent = shlex.quote(f"{tmp_path}/no such/deep")
    assert str(caught.value) == f"{parent} does not exist. Run: mkdir -p -m 700 {parent}"
    command = caught.value.do.removeprefix("Run: ")
    subprocess.run(command, shell=True, check=True)  # noqa: S602 - the message says to run it
    assert absolute(tmp_path / "no such" / "deep" / "store")


@pytest.mark.parametrize("below", ["file/store", "file/deep/store"])
def test_a_parent_that_is_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnsafeLocation) as caught:
        absolute(tmp_path / below)
    parent = (tmp_path / below).parent
    assert str(caught.value) == (
        f"{parent} is not a folder, so nothing can be inside it."
        f" Name another path; see what is there: ls -ld {parent}"
    )


def test_a_loop_of_links_above_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        absolute(tmp_path / "loop" / "store")


def test_links_are_resolved_above_the_folder_and_not_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "store").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "direct").symlink_to("real/store")
    monkeypatch.chdir(tmp_path)
    assert absolute("link/store") == f"{tmp_path}/real/store"
    assert absolute("link/store/../store/.") == f"{tmp_path}/real/store"
    assert absolute("link/store/..") == f"{tmp_path}/real"
    assert absolute(".") == str(tmp_path)
    for spelling in ("direct", "direct/", "direct/.", "./direct//"):
        assert absolute(spelling) == f"{tmp_path}/direct"


def test_a_relative_path_in_a_folder_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StorageUnavailable) as caught:
        absolute("store")
    assert str(caught.value) == (
        "storage_path is relative, and the current folder is gone. Pass an absolute path."
    )
    with pytest.raises(StorageUnavailable, match=r"The path of it is relative, and the current"):
        absolute("store", "The path of it")


def test_an_absolute_path_does_not_need_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert absolute(tmp_path / "store") == f"{tmp_path}/store"


@pytest.mark.parametrize("way", ["deep/deeper", "link/deeper"])
def test_whoever_can_replace_a_folder_or_a_link_on_the_way_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Above the path as it is named, and above the one that it leads to."""
    (tmp_path / "deep/deeper").mkdir(parents=True)
    (tmp_path / "link").symlink_to("deep")
    assert list(replaceable_refusals(str(tmp_path / way))) == []
    (tmp_path / "deep").chmod(0o777)
    [refusal, *_] = replaceable_refusals(str(tmp_path / way))
    assert refusal.do == f"Run: chmod o-w {tmp_path}/deep"
    (tmp_path / "deep").chmod(0o1777)
    assert list(replaceable_refusals(str(tmp_path / way))) == []
    theirs = (tmp_path / way).parent
    if os.geteuid() == 0:
        os.lchown(theirs, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    said = [refusal.what for refusal in replaceable_refusals(str(tmp_path / way))]
    owner = theirs.lstat().st_uid
    assert f"{theirs} belongs to user {owner}, who can replace what is inside it." in said


@pytest.mark.parametrize(
    ("mode", "refused"), [(0o775, True), (0o755, False), (0o1775, False), (0o1777, False)]
)
def test_a_folder_that_another_group_can_write_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, refused: bool
) -> None:
    """Of a group that is not this user's own: under umask 002 each new folder has that bit."""
    folder = tmp_path / "shared"
    (folder / "inner").mkdir(parents=True)
    folder.chmod(mode)
    (folder / "inner").chmod(0o755)
    assert list(group_refusals(str(folder / "inner"))) == []
    group = folder.stat().st_gid
    if group == 0:
        group = 12345
        os.chown(folder, -1, group)
    else:
        monkeypatch.setattr(os, "getegid", lambda: group + 1)
    sentence = f"The group {group} can replace what is inside {folder} (mode {mode:04o})."
    expected = [f"{sentence} Run: chmod g-w {folder}"]
    said = [str(refusal) for refusal in group_refusals(str(folder / "inner"))]
    assert said == (expected if refused else [])
    monkeypatch.setattr(os, "getegid", lambda: group)
    assert list(group_refusals(str(folder / "inner"))) == []


def test_a_path_is_one_shell_word_on_one_line() -> None:
    assert shell("/var/lib/app") == "/var/lib/app"
    assert shell("/my files/it's") == """'/my files/it'"'"'s'"""
    assert shell("/a\n'b\\\udcff") == r"$'/a\x0a\x27b\x5c\xff'"
    assert shell("/caf\u00e9") == r"$'/caf\xc3\xa9'"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
def test_any_path_is_shown_as_ascii_on_one_line(text: str) -> None:
    assert shell(text).isascii()
    assert shell(text).isprintable()


def test_bash_reads_the_word_back_as_the_path() -> None:
    path = "/a b\n$HOME `id`\t'\"\\\u0416\udcff;*"
    echo = subprocess.run(
        ["bash", "-c", f"printf %s {shell(path)}"], capture_output=True, check=True
    )
    assert echo.stdout == os.fsencode(path)


@pytest.mark.parametrize(
    ("code", "doing", "kind", "message"),
    [
        (
            errno.ENOSPC,
            "save to",
            StorageFull,
            (
                "There is no room left for /s (ENOSPC), so nothing was saved."
                " Free some space, or raise the quota or the file size limit, and try again."
            ),
        ),
        (
            errno.EROFS,
            "save to",
            StorageUnavailable,
            (
                "/s is on a read-only file system, so nothing was saved."
                " Mount it for writing, or name another folder."
            ),
        ),
        (
            errno.EACCES,
            "read from",
            StorageUnavailable,
            "This process may not read from /s. Run: chmod -R u+rwX /s",
        ),
        (
            errno.ENOENT,
            "read from",
            StorageUnavailable,
            (
                "/s is gone. Put it back from a backup,"
                " or construct the storage again to begin an empty one."
            ),
        ),
        (
            errno.EIO,
            "open",
            StorageUnavailable,
            (
                "The system could not open /s (EIO)."
                " Look at the system's log for the cause before you try again."
            ),
        ),
        (
            None,
            "open",
            StorageUnavailable,
            (
                "The system could not open /s (unknown)."
                " Look at the system's log for the cause before you try again."
            ),
        ),
    ],
)
def test_what_the_system_reports_is_said_in_our_words(
    code: int | None, doing: str, kind: type[Exception], message: str
) -> None:
    error = translate(OSError(code, "canary") if code else OSError("canary"), doing, "/s")
    assert type(error) is kind
    assert str(error) == message
