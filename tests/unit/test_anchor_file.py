"""The file anchor: what it writes, and each thing that it refuses."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import _files as _posix
from safepoint.anchor import FileAnchor, _folder, _text
from safepoint.errors import (
    AnchorError,
    AnchorMismatch,
    AnchorUnavailable,
    ConfigurationError,
    UnsafeLocation,
)
from safepoint.names import Head
from safepoint.storage import FileCheckpointStorage

DIGEST = "sha256:" + "a" * 64
LINE = f"safepoint-anchor/1 invoices order-7 57 {DIGEST}\n"
RESTORE = (
    "Nothing is loaded without it. Put the file back from a copy of the anchor, and find out what"
    " happened to the disk."
)
IN_DOUBT = (
    "What it says may be somebody else's. Put the file back from a copy of the anchor, as a file"
    f" of user {os.geteuid()} with mode 600."
)


def head(sequence: int, digit: str = "a") -> Head:
    return Head(sequence, f"sha256:{digit * 64}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "anchor"


@pytest.fixture
def anchor(path: Path) -> FileAnchor:
    anchor = FileAnchor(path, create=True)
    anchor.advance("invoices", "order-7", head(57))
    return anchor


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def tree(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


CALLS: dict[str, Callable[[FileAnchor], object]] = {
    "read": lambda anchor: anchor.read("invoices", "order-7"),
    "advance": lambda anchor: anchor.advance("invoices", "order-7", head(58)),
}
ALL_CALLS: dict[str, Callable[[FileAnchor], object]] = {
    **CALLS,
    "read of a new thread": lambda anchor: anchor.read("invoices", "new"),
    "advance of a new thread": lambda anchor: anchor.advance("invoices", "new", head(1)),
    "threads": lambda anchor: anchor.threads("invoices"),
    "rewind": lambda anchor: anchor.rewind("invoices", "order-7", head(1)),
    "rewind to none": lambda anchor: anchor.rewind("invoices", "order-7", None),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
every_call = pytest.mark.parametrize("call", ALL_CALLS.values(), ids=ALL_CALLS)


# What it writes


def test_the_files_are_lines_that_a_person_can_read(path: Path) -> None:
    anchor = FileAnchor(path, create=True)
    assert (path / "store").read_text() == "safepoint-anchor/1\n"
    anchor.advance("invoices", "order-7", head(57))
    assert tree(path) == [".lock", "order-7.head", "store"]
    assert (path / "store").read_text() == "safepoint-anchor/1 invoices\n"
    assert (path / "order-7.head").read_text() == LINE


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777], ids=["000", "022", "777"])
def test_only_the_owner_can_touch_them_whatever_the_umask(
    path: Path, umask: Callable[[int], int], mask: int
) -> None:
    umask(mask)
    anchor = FileAnchor(path, create=True)
    anchor.advance("invoices", "order-7", head(57))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.iterdir()}
    assert modes == dict.fromkeys([".lock", "order-7.head", "store"], 0o600)


def test_the_longest_line_fits(path: Path) -> None:
    anchor = FileAnchor(path, create=True)
    longest = Head(9_999_999_999, DIGEST)
    anchor.advance("s" * 64, "t" * 64, longest)
    assert anchor.read("s" * 64, "t" * 64) == longest
    assert (path / f"{'t' * 64}.head").stat().st_size <= _text.LIMIT


def test_it_is_found_again_by_another_process(anchor: FileAnchor, path: Path) -> None:
    assert FileAnchor(str(path)).read("invoices", "order-7") == head(57)
    assert FileAnchor(path, create=True).read("invoices", "order-7") == head(57)


def test_path_and_repr_name_the_folder(
    anchor: FileAnchor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    assert anchor.path == FileAnchor("anchor").path == path
    assert repr(anchor) == f"FileAnchor('{path}')"


def test_files_of_others_are_no_threads(anchor: FileAnchor, path: Path) -> None:
    for name in ("README", "Order-8.head", "order-7.head.bak", ".head", "order-9.head~"):
        (path / name).write_text(LINE)
    assert anchor.threads("invoices") == ["order-7"]


def test_no_file_stays_open(anchor: FileAnchor) -> None:
    lowest = os.dup(0)
    os.close(lowest)
    for call in ALL_CALLS.values():
        call(anchor)
    with pytest.raises(AnchorMismatch):
        anchor.advance("orders", "order-7", head(1))
    again = os.dup(0)
    os.close(again)
    assert again == lowest


def test_reading_writes_nothing_and_needs_no_lock(
    anchor: FileAnchor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen copy is an anchor, even on a volume that is mounted for reading alone."""
    frozen = path.parent / "frozen"
    shutil.copytree(path, frozen)
    (frozen / ".lock").unlink()
    frozen.chmod(0o500)
    real = os.open

    def reading(name: str, flags: int, *args: object, **kwargs: object) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "read-only")
        return real(name, flags, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", reading)
    copy = FileAnchor(frozen, create=True)
    anchor = FileAnchor(frozen)
    assert copy.read("invoices", "order-7") == head(57)
    assert anchor.read("invoices", "new") is None
    assert anchor.threads("invoices") == ["order-7"]
    with pytest.raises(AnchorUnavailable, match="is on a read-only file system"):
        anchor.advance("invoices", "order-7", head(58))
    frozen.chmod(0o700)


# Where it is


def test_a_missing_folder_is_refused(path: Path) -> None:
    """A typo in the path must not pass for an anchor that has seen nothing."""
    with pytest.raises(AnchorUnavailable) as caught:
        FileAnchor(path)
    assert str(caught.value) == (
        f"{path} does not exist, so no rollback would be noticed. Correct the path, or mount the"
        " volume. To begin a new anchor there, pass create=True once."
    )
    assert not path.exists()


def test_a_missing_parent_is_refused_with_create_too(path: Path) -> None:
    for create in (False, True):
        with pytest.raises(AnchorUnavailable) as caught:
            FileAnchor(path / "deep", create=create)
        assert str(caught.value) == f"{path} does not exist. Run: mkdir -p -m 700 {path}"
    assert not path.exists()


def test_an_empty_folder_is_no_anchor_until_one_is_begun(path: Path) -> None:
    """An empty folder is what the mount point of a volume looks like that is not mounted."""
    path.mkdir(mode=0o700)
    with pytest.raises(AnchorUnavailable) as caught:
        FileAnchor(path)
    assert str(caught.value) == (
        f"{path} holds no anchor: its file 'store' is missing. Correct the path, mount the volume,"
        " or put the file back from a copy. To begin a new anchor, in an empty folder, pass"
        " create=True once."
    )
    assert tree(path) == []
    FileAnchor(path, create=True)
    assert FileAnchor(path).threads("invoices") == []


@pytest.mark.parametrize("other", ["notes.txt", "order-7.head", ".profile"])
def test_no_anchor_is_begun_among_other_files(path: Path, other: str) -> None:
    path.mkdir(mode=0o700)
    (path / other).write_text(LINE)
    with pytest.raises(AnchorUnavailable) as caught:
        FileAnchor(path, create=True)
    assert str(caught.value) == (
        f"{path} holds files but no anchor, so none is begun there. Name a folder that is empty or"
        " does not exist. If it did hold an anchor, put its file 'store' back from a copy."
    )
    assert not (path / "store").exists()


def test_no_anchor_is_begun_in_the_folder_of_a_storage(path: Path) -> None:
    FileCheckpointStorage(path).append("order-7", 1, b"record")
    with pytest.raises(AnchorUnavailable, match="holds files but no anchor"):
        FileAnchor(path, create=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (7, "The path of the anchor is int, not a path. Pass a str or a pathlib.Path"),
        (None, "The path of the anchor is NoneType, not a path."),
        (b"/tmp", "The path of the anchor is bytes, not a path."),
        ("", "The path of the anchor is empty. Name a folder: there is no default."),
        ("a\0b", r"'a\x00b' cannot be the path of a folder."),
        ("x" * 5000, "cannot be the path of a folder."),
    ],
    ids=["int", "None", "bytes", "empty", "NUL", "too long"],
)
@pytest.mark.parametrize("create", [False, True], ids=["", "create"])
def test_what_is_no_path_is_refused(wrong: str, message: str, create: bool) -> None:
    with pytest.raises(AnchorUnavailable) as caught:
        FileAnchor(wrong, create=create)
    assert message in str(caught.value)


def test_a_system_without_posix_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_posix, "SUPPORTED", False)
    with pytest.raises(AnchorUnavailable) as caught:
        FileAnchor(path, create=True)
    assert str(caught.value) == (
        "FileAnchor needs a POSIX system."
        " Keep the heads in a database: an Anchor of your own takes ten lines."
    )


@pytest.mark.parametrize("create", [False, True], ids=["", "create"])
def test_an_unsafe_place_is_refused(anchor: FileAnchor, path: Path, create: bool) -> None:
    link = path.parent / "link"
    link.symlink_to(path)
    with pytest.raises(UnsafeLocation, match="is a symbolic link"):
        FileAnchor(link, create=create)
    with pytest.raises(UnsafeLocation, match="is not a folder"):
        FileAnchor(path / "store", create=create)
    path.chmod(0o770)
    with pytest.raises(UnsafeLocation, match=r"can be written by others \(mode 0770\)"):
        FileAnchor(path, create=create)
    path.chmod(0o700)
    path.parent.chmod(0o777)
    with pytest.raises(UnsafeLocation, match="Every user can rename and replace what is inside"):
        FileAnchor(path, create=create)
    path.parent.chmod(0o700)


def to_a_stranger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a folder or a link to somebody else; who is not root becomes somebody else."""
    if os.geteuid() == 0:
        os.lchown(path, 12345, -1)
    else:
        user = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: user)


def test_a_place_below_the_folder_of_a_stranger_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could rename the anchor away and last night's copy of it in."""
    shared = tmp_path / "shared"
    (shared / "ours").mkdir(parents=True, mode=0o755)
    to_a_stranger(shared, monkeypatch)
    owner = shared.stat().st_uid
    for place in (shared / "anchor", shared / "ours/anchor"):
        with pytest.raises(UnsafeLocation) as caught:
            FileAnchor(place, create=True)
        assert not place.exists()
        if owner == 12345:
            assert str(caught.value) == (
                f"The anchor {place} could be replaced by an older copy. {shared} belongs to user"
                " 12345, who can replace what is inside it. Name a folder that has only root and"
                " your own user above it."
            )


def test_a_place_behind_the_link_of_a_stranger_is_refused(
    anchor: FileAnchor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could let it lead to last night's copy."""
    link = path.parent / "link"
    link.symlink_to(path.parent)
    assert FileAnchor(link / "anchor").path == anchor.path
    to_a_stranger(link, monkeypatch)
    with pytest.raises(UnsafeLocation, match="belongs to user"):
        FileAnchor(link / "anchor")


@pytest.mark.parametrize("named", ["shared/anchor", "link/anchor", "shared/link/anchor"])
def test_a_place_that_another_group_could_replace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "link").symlink_to("shared")
    (shared / "link").symlink_to("..")
    FileAnchor(tmp_path / named, create=True)
    group = shared.stat().st_gid
    if group == 0:
        group = 12345
        os.chown(shared, -1, group)
    else:
        monkeypatch.setattr(os, "getegid", lambda: group + 1)
    shared.chmod(0o775)
    with pytest.raises(UnsafeLocation) as caught:
        FileAnchor(tmp_path / named)
    assert caught.value.what.endswith(
        f"older copy. The group {group} can replace what is inside {shared} (mode 0775)."
    )
    assert caught.value.do == f"Run: chmod g-w {shared}"


def test_a_place_that_the_umask_opened_to_our_own_group_is_no_alarm(
    path: Path, umask: Callable[[int], int]
) -> None:
    umask(0o002)
    path.mkdir()
    FileAnchor(path / "deep", create=True).advance("invoices", "order-7", head(57))
    assert FileAnchor(path / "deep").read("invoices", "order-7") == head(57)


def test_a_place_in_a_folder_with_the_sticky_bit_is_no_alarm(path: Path) -> None:
    """As in /tmp: there nobody else can rename what is ours."""
    path.mkdir()
    path.chmod(0o1777)
    FileAnchor(path / "deep", create=True)


def test_an_absolute_path_does_not_need_the_current_folder(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = path.parent / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    FileAnchor(path, create=True)
    with pytest.raises(AnchorUnavailable) as caught:
        FileAnchor("anchor")
    assert str(caught.value) == (
        "The path of the anchor is relative, and the current folder is gone. Pass an absolute path."
    )


def test_a_folder_that_may_not_be_made_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(*args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(AnchorUnavailable, match=f"This process may not create {path}"):
        FileAnchor(path, create=True)


@every_call
def test_a_folder_that_is_gone_is_not_an_empty_anchor(
    anchor: FileAnchor, path: Path, call: Callable[[FileAnchor], object]
) -> None:
    shutil.rmtree(path)
    with pytest.raises(AnchorUnavailable) as caught:
        call(anchor)
    assert str(caught.value) == (
        f"{path} is gone, and with it the anchor. Mount it again or put it back from a copy: until"
        " then no rollback would be noticed, so nothing is loaded."
    )


@every_call
def test_a_folder_that_was_emptied_is_not_an_empty_anchor(
    anchor: FileAnchor, path: Path, call: Callable[[FileAnchor], object]
) -> None:
    for entry in path.iterdir():
        entry.unlink()
    with pytest.raises(AnchorUnavailable, match="holds no anchor: its file 'store' is missing"):
        call(anchor)


@every_call
def test_a_folder_that_was_replaced_or_opened_to_others_is_refused(
    anchor: FileAnchor, path: Path, call: Callable[[FileAnchor], object]
) -> None:
    path.chmod(0o707)
    with pytest.raises(UnsafeLocation, match=r"can be written by others \(mode 0707\)"):
        call(anchor)
    path.chmod(0o700)
    path.rename(path.parent / "old")
    shutil.copytree(path.parent / "old", path)
    with pytest.raises(UnsafeLocation, match="is not the folder that this anchor was opened on"):
        call(anchor)


# Whose it is


@pytest.mark.parametrize("fresh", [False, True], ids=["same object", "opened again"])
@pytest.mark.parametrize("thread", ["order-7", "new"])
def test_an_anchor_of_another_store_is_refused(
    anchor: FileAnchor, path: Path, thread: str, fresh: bool
) -> None:
    anchor = FileAnchor(path) if fresh else anchor
    before = {name: (path / name).read_bytes() for name in tree(path)}
    calls: list[Callable[[], object]] = [
        lambda: anchor.read("orders", thread),
        lambda: anchor.advance("orders", thread, head(58)),
        lambda: anchor.rewind("orders", thread, None),
        lambda: anchor.rewind("orders", thread, head(1)),
        lambda: anchor.threads("orders"),
    ]
    for call in calls:
        with pytest.raises(AnchorMismatch) as caught:
            call()
        assert str(caught.value) == (
            f"{path} belongs to store invoices, and was asked about store orders."
            " Give each store an anchor of its own, in a folder of its own."
        )
    assert {name: (path / name).read_bytes() for name in tree(path)} == before
    assert anchor.read("invoices", "order-7") == head(57)


def test_two_that_began_together_do_not_share_a_folder(path: Path) -> None:
    one, two = FileAnchor(path, create=True), FileAnchor(path, create=True)
    assert two.read("two", "t") is None
    one.advance("one", "t", head(1))
    with pytest.raises(AnchorMismatch):
        two.advance("two", "t", head(1))
    with pytest.raises(AnchorMismatch):
        two.read("two", "t")
    assert two.read("one", "t") == head(1)


def test_one_that_begins_later_does_not_begin_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process begins, and anchors a head, while this one waits for the lock."""
    real = _folder.locked

    def late(root: int, shown: str) -> AbstractContextManager[None]:
        monkeypatch.setattr(_folder, "locked", real)
        FileAnchor(path, create=True).advance("invoices", "order-7", head(57))
        return real(root, shown)

    monkeypatch.setattr(_folder, "locked", late)
    anchor = FileAnchor(path, create=True)
    assert (path / "store").read_text() == "safepoint-anchor/1 invoices\n"
    assert anchor.read("invoices", "order-7") == head(57)


def test_a_call_that_is_refused_binds_the_anchor_to_no_store(path: Path) -> None:
    anchor = FileAnchor(path, create=True)
    with pytest.raises(ConfigurationError):
        anchor.advance("invoices", "order-7", 57)  # type: ignore[arg-type]
    assert anchor.threads("invoices") == []
    assert anchor.read("invoices", "order-7") is None
    anchor.advance("orders", "order-7", head(1))
    assert anchor.read("orders", "order-7") == head(1)


def test_a_file_from_the_anchor_of_another_store_is_refused(anchor: FileAnchor, path: Path) -> None:
    (path / "order-7.head").write_text(LINE.replace("invoices", "orders"))
    for call in CALLS.values():
        with pytest.raises(AnchorMismatch) as caught:
            call(anchor)
        assert caught.value.what == (
            f"{path}/order-7.head belongs to store orders, and was asked about store invoices."
        )


def test_a_file_copied_from_another_thread_is_refused(anchor: FileAnchor, path: Path) -> None:
    shutil.copyfile(path / "order-7.head", path / "order-8.head")
    (path / "order-8.head").chmod(0o600)
    for _ in range(2):
        with pytest.raises(AnchorUnavailable) as caught:
            anchor.read("invoices", "order-8")
        assert str(caught.value) == (
            f"{path}/order-8.head holds the head of thread order-7, not of order-8. Somebody copied"
            " or renamed it. Put the right file back from a copy of the anchor."
        )
        with pytest.raises(AnchorUnavailable):
            anchor.advance("invoices", "order-8", head(99))
    assert (path / "order-8.head").read_text() == LINE


# What is in it

DAMAGED = {
    "empty": ("", "is empty."),
    "cut short": (LINE[:-1], "is cut short."),
    "cut in the digest": (LINE[:70], "is cut short."),
    "too large": (LINE + "\n" * 300, "has more than 256 bytes."),
    "two lines": (LINE + "\n", "does not hold the head of a thread."),
    "no text": ("\0" * 60 + "\n", "does not hold the head of a thread."),
    "zero": (LINE.replace(" 57 ", " 0 "), "does not hold the head of a thread."),
    "leading zero": (LINE.replace(" 57 ", " 057 "), "does not hold the head of a thread."),
    "negative": (LINE.replace(" 57 ", " -57 "), "does not hold the head of a thread."),
    "too far": (LINE.replace(" 57 ", " 10000000000 "), "does not hold the head of a thread."),
    "another hash": (LINE.replace("sha256", "sha1"), "does not hold the head of a thread."),
    "upper case": (LINE.replace("aaaa\n", "AAAA\n"), "does not hold the head of a thread."),
    "two spaces": (LINE.replace(" 57 ", "  57 "), "does not hold the head of a thread."),
    "CRLF": (LINE.replace("\n", "\r\n"), "does not hold the head of a thread."),
    "a mark": ("safepoint-anchor/1 invoices\n", "does not hold the head of a thread."),
}


@each_call
@pytest.mark.parametrize(("text", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_head_is_never_no_head(
    anchor: FileAnchor,
    path: Path,
    call: Callable[[FileAnchor], object],
    text: str,
    message: str,
) -> None:
    (path / "order-7.head").write_bytes(text.encode())
    with pytest.raises(AnchorUnavailable) as caught:
        call(anchor)
    assert str(caught.value) == f"{path}/order-7.head {message} {RESTORE}"
    assert (path / "order-7.head").read_bytes() == text.encode()
    assert anchor.threads("invoices") == ["order-7"]


@pytest.mark.parametrize("version", ["2", "10", "0"])
def test_a_head_of_another_version_says_so(anchor: FileAnchor, path: Path, version: str) -> None:
    (path / "order-7.head").write_text(LINE.replace("/1 ", f"/{version} ") + "more")
    with pytest.raises(AnchorUnavailable) as caught:
        anchor.read("invoices", "order-7")
    assert str(caught.value) == (
        f"{path}/order-7.head was written by another version of safepoint."
        " This one reads safepoint-anchor/1. Use the version that wrote it."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty."),
        ("safepoint-anchor/1 invoices", "is cut short."),
        ("safepoint-anchor/1 \n", "does not hold the name of a store."),
        ("safepoint-anchor/1 invoices orders\n", "does not hold the name of a store."),
        ("safepoint-anchor/1 ../x\n", "does not hold the name of a store."),
        (LINE, "does not hold the name of a store."),
        ("safepoint-anchor/1 " + "x" * 300 + "\n", "has more than 256 bytes."),
    ],
)
def test_a_damaged_mark_is_never_an_anchor_of_no_store(
    anchor: FileAnchor, path: Path, text: str, message: str
) -> None:
    (path / "store").write_text(text)
    for call in (
        lambda: FileAnchor(path),
        lambda: FileAnchor(path, create=True),
        lambda: anchor.read("invoices", "new"),
        lambda: anchor.advance("invoices", "order-7", head(58)),
        lambda: anchor.threads("invoices"),
    ):
        with pytest.raises(AnchorUnavailable) as caught:
            call()
        assert str(caught.value) == f"{path}/store {message} {RESTORE}"
    assert (path / "store").read_text() == text
    assert (path / "order-7.head").read_text() == LINE


def test_a_damaged_head_is_replaced_by_rewind_alone(anchor: FileAnchor, path: Path) -> None:
    (path / "order-7.head").write_text("")
    anchor.rewind("invoices", "order-7", head(56))
    assert anchor.read("invoices", "order-7") == head(56)


def replaced(path: Path, how: str) -> None:
    file = path / "order-7.head"
    if how == "link":
        file.rename(path.parent / "elsewhere")
        file.symlink_to(path.parent / "elsewhere")
    elif how == "hard link":
        (path.parent / "elsewhere").hardlink_to(file)
    elif how == "writable":
        file.chmod(0o620)
    else:
        file.unlink()
        file.mkdir() if how == "folder" else os.mkfifo(file, 0o600)


@each_call
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("link", "is a symbolic link."),
        ("folder", "is not a regular file."),
        ("fifo", "is not a regular file."),
        ("writable", "can be written by others (mode 0620)."),
        ("hard link", "has a second name (hard link)."),
    ],
)
def test_a_file_that_others_may_have_written_is_refused(
    anchor: FileAnchor,
    path: Path,
    call: Callable[[FileAnchor], object],
    how: str,
    message: str,
) -> None:
    replaced(path, how)
    with pytest.raises(UnsafeLocation) as caught:
        call(anchor)
    assert str(caught.value) == f"{path}/order-7.head {message} {IN_DOUBT}"


@each_call
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            errno.EACCES,
            "This process may not read {0}/order-7.head. Run: chmod -R u+rwX {0}/order-7.head",
        ),
        (
            errno.EIO,
            (
                "The system could not read {0}/order-7.head (EIO)."
                " Look at the system's log for the cause before you try again."
            ),
        ),
    ],
    ids=["EACCES", "EIO"],
)
def test_a_file_that_cannot_be_read_is_never_no_head(
    anchor: FileAnchor,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[FileAnchor], object],
    code: int,
    message: str,
) -> None:
    real = os.open

    def failing(name: str, *args: object, **kwargs: object) -> int:
        if name == "order-7.head":
            raise OSError(code, os.strerror(code))
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(AnchorUnavailable) as caught:
        call(anchor)
    assert str(caught.value) == message.format(path)


def outcome(text: bytes) -> Head | AnchorError:
    try:
        return _text.read_head("/a/t.head", text, "s", "t")
    except AnchorError as refusal:
        return refusal


@given(
    sequence=st.integers(1, 9_999_999_999),
    digest=st.binary(min_size=32, max_size=32).map(bytes.hex),
    place=st.integers(0, 300),
    cut=st.integers(0, 3),
    put=st.binary(max_size=3),
)
def test_bytes_that_a_disk_changed_are_a_head_of_this_thread_or_refused(
    sequence: int, digest: str, place: int, cut: int, put: bytes
) -> None:
    """No signature is here: a digit that flips is seen because the store then disagrees."""
    text = _text.write_head("s", "t", Head(sequence, f"sha256:{digest}"))
    place %= len(text)
    changed = text[:place] + put + text[place + cut :]
    found = outcome(changed)
    if isinstance(found, Head):
        assert _text.write_head("s", "t", found) == changed
    else:
        assert str(found).isascii()
        assert str(found).isprintable()


@given(text=st.binary(max_size=300))
def test_any_other_bytes_are_refused(text: bytes) -> None:
    assert isinstance(outcome(text), AnchorUnavailable)


def test_a_lock_that_is_never_released_is_an_error(
    anchor: FileAnchor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_folder, "_PATIENCE", 0.02)
    other = os.open(path, os.O_RDONLY)
    try:
        with _folder.locked(other, str(path)), pytest.raises(AnchorUnavailable) as caught:
            anchor.advance("invoices", "order-7", head(58))
        assert str(caught.value) == (
            f"Another process has held the lock of {path} for 0.02 s."
            f" Find it, let it end, and try again: fuser -v {path}/.lock"
        )
        with _folder.locked(other, str(path)):
            assert anchor.read("invoices", "order-7") == head(57)
    finally:
        os.close(other)
    anchor.advance("invoices", "order-7", head(58))
    assert anchor.read("invoices", "order-7") == head(58)
