"""The file anchor: what it writes, where it refuses to be, and what a crash or a disk leaves."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint import _files
from safepoint.anchor import FileAnchor
from safepoint.errors import AnchorMismatch, AnchorUnavailable, UnsafeLocation
from safepoint.names import Head
from tests.harness.crash import failed, killed
from tests.unit.storage_helpers import planted, tree

DIGEST = "sha256:" + "a" * 64
LINE = f"safepoint-anchor/1 invoices order-7 57 {DIGEST}\n"
RESTORE = (
    "Nothing is loaded without it. Put the file back from a copy of the anchor, and find out what"
    " happened to the disk."
)


def head(sequence: int) -> Head:
    return Head(sequence, DIGEST)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "anchor"


@pytest.fixture
def anchor(path: Path) -> FileAnchor:
    anchor = FileAnchor(path, create=True)
    anchor.advance("invoices", "order-7", head(57))
    return anchor


CALLS: dict[str, Callable[[FileAnchor], object]] = {
    "read": lambda anchor: anchor.read("invoices", "order-7"),
    "advance": lambda anchor: anchor.advance("invoices", "order-7", head(58)),
    "read of a new thread": lambda anchor: anchor.read("invoices", "new"),
    "advance of a new thread": lambda anchor: anchor.advance("invoices", "new", head(1)),
    "threads": lambda anchor: anchor.threads("invoices"),
    "rewind": lambda anchor: anchor.rewind("invoices", "order-7", head(1)),
    "rewind to none": lambda anchor: anchor.rewind("invoices", "order-7", None),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.mark.parametrize("mask", [0, 0o022, 0o777])
def test_the_files_are_private_lines_that_a_person_can_read(path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        anchor = FileAnchor(path, create=True)
        assert (path / "store").read_text() == "safepoint-anchor/1\n"
        anchor.advance("invoices", "order-7", head(57))
    finally:
        os.umask(before)
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.iterdir()}
    assert modes == dict.fromkeys([".lock", "order-7.head", "store"], 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert (path / "store").read_text() == "safepoint-anchor/1 invoices\n"
    assert (path / "order-7.head").read_text() == LINE
    assert FileAnchor(str(path)).read("invoices", "order-7") == head(57)
    assert (FileAnchor(path, create=True).path, repr(anchor)) == (path, f"FileAnchor('{path}')")
    for name in ("README", "Order-8.head", "order-7.head.bak", ".head"):
        (path / name).write_text(LINE)
    assert anchor.threads("invoices") == ["order-7"]


def test_a_frozen_copy_is_an_anchor(
    anchor: FileAnchor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even on a volume that is mounted for reading alone: reading needs no lock."""
    frozen = path.parent / "frozen"
    shutil.copytree(path, frozen)
    (frozen / ".lock").unlink()
    real = os.open

    def reading(name: str, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "read-only")
        return real(name, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", reading)
    for copy in (FileAnchor(frozen, create=True), FileAnchor(frozen)):
        assert copy.read("invoices", "order-7") == head(57)
        assert (copy.read("invoices", "new"), copy.threads("invoices")) == (None, ["order-7"])
        with pytest.raises(AnchorUnavailable, match="is on a read-only file system"):
            copy.advance("invoices", "order-7", head(58))


# --- where it is


def test_a_place_without_an_anchor_is_never_one_that_has_seen_nothing(path: Path) -> None:
    """A typo in the path, or a volume that is not mounted."""
    said = []
    for create in (False, True):
        with pytest.raises(AnchorUnavailable) as caught:
            FileAnchor(path / "deep", create=create)
        assert str(caught.value) == f"{path} does not exist. Run: mkdir -p -m 700 {path}"
    for there in (False, True):
        if there:
            path.mkdir(mode=0o700)
        with pytest.raises(AnchorUnavailable) as caught:
            FileAnchor(path)
        said.append(str(caught.value))
    (path / "notes.txt").touch()
    with pytest.raises(AnchorUnavailable) as caught:
        FileAnchor(path, create=True)
    assert [*said, str(caught.value)] == [
        (
            f"{path} does not exist, so no rollback would be noticed. Correct the path, or"
            " mount the volume. To begin a new anchor there, pass create=True once."
        ),
        (
            f"{path} holds no anchor: its file 'store' is missing. Correct the path, mount the"
            " volume, or put the file back from a copy. To begin a new anchor, in an empty folder,"
            " pass create=True once."
        ),
        (
            f"{path} holds files but no anchor, so none is begun there. Name a folder that is empty"
            " or does not exist. If it did hold an anchor, put its file 'store' back from a copy."
        ),
    ]
    assert tree(path) == [".lock", "notes.txt"]


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("link", "is a symbolic link"),
        ("file", "is not a folder"),
        ("mode", r"can be written by others \(mode 0770\)"),
        ("above", "Every user can rename and replace what is inside"),
        ("stranger", "could be replaced by an older copy. .* belongs to user"),
        ("link above", "could be replaced by an older copy. .* belongs to user"),
        ("group", "could be replaced by an older copy. The group 12345 can replace"),
    ],
)
def test_a_place_that_others_could_replace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, said: str, create: bool
) -> None:
    """An older copy of an anchor is as genuine as the present one."""
    above = tmp_path / "above"
    above.mkdir(mode=0o755)
    path = named = above / "anchor"
    FileAnchor(path, create=True).advance("invoices", "order-7", head(57))
    (tmp_path / "link").symlink_to("above")
    assert FileAnchor(tmp_path / "link/anchor").path == path
    if kind == "link":
        named = tmp_path / "direct"
        named.symlink_to(path)
    elif kind == "file":
        named = path / "store"
    elif kind == "mode":
        path.chmod(0o770)
    elif kind == "above":
        above.chmod(0o777)
    elif kind == "group":
        if os.geteuid():
            pytest.skip("only root can give a folder to another group")
        os.chown(above, -1, 12345)
        above.chmod(0o775)
    else:
        named = tmp_path / "link/anchor" if kind == "link above" else path
        theirs = tmp_path / "link" if kind == "link above" else above
        if os.geteuid():
            pytest.skip("only root can give a folder to somebody else")
        os.lchown(theirs, 12345, -1)
    with pytest.raises(UnsafeLocation, match=said):
        FileAnchor(named, create=create)


@every_call
def test_a_folder_that_changed_is_never_an_empty_anchor(
    anchor: FileAnchor, path: Path, call: Callable[[FileAnchor], object]
) -> None:
    """Gone, opened to others, replaced, or emptied."""
    moved = path.with_name("moved")
    path.rename(moved)
    with pytest.raises(AnchorUnavailable) as caught:
        call(anchor)
    assert str(caught.value) == (
        f"{path} is gone, and with it the anchor. Mount it again or put it back from a copy: until"
        " then no rollback would be noticed, so nothing is loaded."
    )
    FileAnchor(path, create=True)
    with pytest.raises(UnsafeLocation, match="is not the folder that this anchor was opened on"):
        call(anchor)
    shutil.rmtree(path)
    moved.rename(path)
    path.chmod(0o770)
    with pytest.raises(UnsafeLocation, match="can be written by others"):
        call(anchor)
    path.chmod(0o700)
    for file in path.iterdir():
        file.unlink()
    with pytest.raises(AnchorUnavailable, match="holds no anchor: its file 'store' is missing"):
        call(anchor)


# --- whose it is, and what it says


DAMAGED = {
    "": "does not hold the head of a thread.",
    LINE[:-1]: "does not hold the head of a thread.",
    LINE.replace("57", "057"): "does not hold the head of a thread.",
    LINE.replace("57", "0"): "does not hold the head of a thread.",
    LINE.replace("57", "10000000000"): "does not hold the head of a thread.",
    LINE.replace("aa", "AA"): "does not hold the head of a thread.",
    LINE.replace("invoices ", "invoices  "): "does not hold the head of a thread.",
    LINE + LINE: "does not hold the head of a thread.",
    LINE.replace("\n", "\r\n"): "does not hold the head of a thread.",
    "safepoint-anchor/1 invoices\n": "does not hold the head of a thread.",
    LINE + " " * 300: "does not hold the head of a thread.",
    "\0" * 200: "does not hold the head of a thread.",
    LINE.replace("order-7", "order-8"): "holds the head of thread order-8, not of order-7.",
    LINE.replace("invoices", "orders"): "belongs to store orders, and was asked about",
    LINE.replace("/1", "/2"): "was written by another version of safepoint. This one reads",
}


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_head_is_never_no_head_and_goes_by_rewind_alone(
    anchor: FileAnchor, path: Path, text: str
) -> None:
    file = path / "order-7.head"
    file.write_bytes(text.encode())
    for name in ("read", "advance"):
        with pytest.raises((AnchorUnavailable, AnchorMismatch)) as caught:
            CALLS[name](anchor)
        assert str(caught.value).startswith(f"{file} {DAMAGED[text]}")
        if DAMAGED[text].startswith(("is ", "has", "does")):
            assert caught.value.do == RESTORE
    assert file.read_bytes() == text.encode()
    assert anchor.threads("invoices") == ["order-7"]
    anchor.rewind("invoices", "order-7", head(60))
    assert anchor.read("invoices", "order-7") == head(60)


@pytest.mark.parametrize(
    "text", ["", "safepoint-anchor/1", "safepoint-anchor/1 \n", "safepoint-anchor/1 A\n", LINE]
)
def test_a_damaged_mark_is_never_an_anchor_of_no_store(
    anchor: FileAnchor, path: Path, text: str
) -> None:
    (path / "store").write_text(text)
    for call in (lambda _: FileAnchor(path), *list(CALLS.values())[1:]):
        with pytest.raises(AnchorUnavailable, match=rf"{path}/store (is|does)"):
            call(anchor)


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "second name", "mode", "owner"])
@pytest.mark.parametrize("name", ["store", "order-7.head"])
def test_a_file_that_others_may_have_written_is_refused(
    anchor: FileAnchor, path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """No seal stands behind it, so nobody is told to correct the mode and go on."""
    (path / name).unlink()
    said = planted(kind, path / name, path.with_name("outside"), monkeypatch)
    with pytest.raises(UnsafeLocation, match=said) as caught:
        CALLS["advance"](anchor)
    assert caught.value.do == (
        "What it says may be somebody else's. Put the file back from a copy of the anchor, as a"
        f" file of user {os.geteuid()} with mode 600."
    )


# --- crashes, and disks that fail


def begin(folder: Path, sequence: int) -> None:
    FileAnchor(folder / "anchor", create=True).advance("invoices", "order-7", head(sequence))


@pytest.mark.parametrize("before", [0, 57])
def test_a_kill_after_each_step_leaves_the_old_head_or_the_new_one(
    tmp_path: Path, before: int
) -> None:
    start = tmp_path / "start"
    start.mkdir(mode=0o700)
    if before:
        begin(start, before)
    known = set()
    for left in killed(begin, tmp_path, 58, prepared=start):
        anchor = FileAnchor(left.folder / "anchor", create=True)
        found = anchor.read("invoices", "order-7")
        assert found in [head(before) if before else None, head(58)]
        assert found == head(58) or not left.whole
        known.add(found)
        anchor.advance("invoices", "order-7", head(59))
        assert anchor.read("invoices", "order-7") == head(59)
        assert sorted(os.listdir(anchor.path)) == [".lock", "order-7.head", "store"]  # noqa: PTH208
    assert len(known) == 2


def test_a_step_that_fails_leaves_the_old_head(tmp_path: Path) -> None:
    """Above all a sync: what the disk did not confirm must not pass for confirmed later."""
    start = tmp_path / "start"
    start.mkdir(mode=0o700)
    begin(start, 57)
    for left in failed(begin, tmp_path, 58, prepared=start):
        anchor = FileAnchor(left.folder / "anchor")
        assert anchor.read("invoices", "order-7") == head(58 if left.whole else 57)
        assert left.whole or left.error.startswith("AnchorUnavailable: There is no room left")


def test_each_step_is_on_disk_before_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the store before any head; and a head that is ignored is on disk too."""
    anchor = FileAnchor(path, create=True)
    steps: list[str] = []
    for name in ("fsync", "link", "rename"):
        real = getattr(os, name)

        def step(*args: Any, real: Any = real, name: str = name, **options: Any) -> Any:
            kind = "file" if name == "fsync" and stat.S_ISREG(os.fstat(args[0]).st_mode) else ""
            steps.append(f"{name} {kind or (args[1:2] and args[1]) or 'folder'}")
            return real(*args, **options)

        monkeypatch.setattr(os, name, step)
    anchor.advance("invoices", "order-7", head(57))
    bound = ["fsync file", "rename store", "fsync folder"]
    assert steps == [*bound, "fsync file", "link order-7.head", "fsync folder"]
    for sequence, expected in (
        (58, ["fsync file", "rename order-7.head", "fsync folder"]),
        (58, ["fsync folder"]),
    ):
        steps.clear()
        anchor.advance("invoices", "order-7", head(sequence))
        assert steps == expected
    steps.clear()
    anchor.rewind("invoices", "order-7", None)
    assert steps == ["fsync folder"]


def test_a_lock_that_is_never_released_is_an_error(
    anchor: FileAnchor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files, "PATIENCE", 0.01)
    with (
        _files.opened(str(path / ".lock"), os.O_RDONLY) as held,
        _files.locked(held, "it"),
    ):
        with pytest.raises(AnchorUnavailable) as caught:
            anchor.advance("invoices", "order-7", head(58))
        assert str(caught.value) == (
            f"Another process has held the lock on {path}/.lock for 0.01 s. Find it, let it end,"
            f" and try again: fuser -v {path}/.lock"
        )
        assert anchor.read("invoices", "order-7") == head(57)
