"""A store on disk: each flaw is planted, and found by its check; an honest store has no finding."""

from __future__ import annotations

import os
import pickle
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    Limits,
    SigningKey,
    SQLiteCheckpointStorage,
    _files,
)
from safepoint.audit import (
    Finding,
    check_append_only,
    check_database,
    check_location,
    check_ownership,
    check_places,
    finding,
    folder,
)
from safepoint.audit.finding import Closed, files, guarded
from safepoint.errors import StorageUnavailable, UnsafeLocation
from safepoint.places import Locations, default_locations, open_ledger

if not _files.SUPPORTED:
    pytest.skip("modes and owners are POSIX", allow_module_level=True)

KEYS = Keyring(SigningKey.generate())
Plant = Callable[[Path], object]


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, and whoever runs them may be anywhere."""
    monkeypatch.setattr(folder, "temp_folders", list)
    monkeypatch.chdir("/")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A store with six checkpoints in one thread, and one in another."""
    made = ledger(tmp_path / "state")
    for n in range(1, 7):
        made.save("a", n)
    made.save("b", 1)
    yield tmp_path / "state"
    tmp_path.chmod(0o700)


def ledger(root: Path) -> Ledger:
    return Ledger(FileCheckpointStorage(root), store="invoices", keys=KEYS)


def record(root: Path, sequence: int) -> Path:
    return root / f"a/{sequence:010d}.checkpoint"


def made(path: Path, content: bytes = b"", mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def holds(found: list[Finding], expected: list[str], **names: object) -> None:
    """Each finding begins as it should, whatever their order."""
    said = sorted(map(str, found))
    begins = sorted(line.format(**names) for line in expected)
    assert len(said) == len(begins), said
    for line, begin in zip(said, begins, strict=True):
        assert line.startswith(begin)


KEPT = Path(__file__).with_name("audit_disk.txt")


def kept(name: str, found: list[Finding], root: Path) -> None:
    """Compare what is said with what is kept. If a change is meant: KEEP=1 pytest, as root.

    It fails all the same, so that nothing passes because of a variable; the next run does.
    """
    said = "".join(sorted(f"{each}\n" for each in found)).replace(str(root), "<root>")
    said = re.sub(r"(group|user|chown) [0-9]+", r"\1 <n>", said)
    said = re.sub(r"[0-9]+ bytes|limit is [0-9]+", "<n>", said)
    text = f"# {name}\n{said}".strip()
    texts = {each.split("\n")[0]: each for each in KEPT.read_text("utf-8").strip().split("\n\n")}
    before = texts.get(f"# {name}")
    if os.environ.get("KEEP"):
        texts[f"# {name}"] = text
        KEPT.write_text("\n\n".join(texts.values()) + "\n", encoding="utf-8")
    assert text == before


def be_somebody(path: Path) -> None:
    """Give a file to another user, as far as this check sees it."""
    os.chown(path, 65534, -1, follow_symlinks=False)


def moved(root: Path) -> None:
    root.rename(root.parent / "moved")
    root.symlink_to(root.parent / "moved")


LOCATION: dict[str, Plant] = {
    "honest": lambda r: None,
    "written": lambda r: r.chmod(0o720),
    "read": lambda r: r.chmod(0o710),
    "read by all": lambda r: r.chmod(0o705),
    "a link": moved,
    "above, everybody": lambda r: r.parent.chmod(0o707),
    "above, the group": lambda r: r.parent.chmod(0o770),
    "above, sticky": lambda r: r.parent.chmod(0o1770),
    "a clone": lambda r: (r.parent / ".git").mkdir(),
    "a worktree": lambda r: (r.parent / ".git").touch(),
    "a record that others write": lambda r: record(r, 2).chmod(0o666),
    "a record that others read": lambda r: record(r, 2).chmod(0o604),
    "a record that is a link": lambda r: record(r, 7).symlink_to("/etc/passwd"),
    "a record with a second name": lambda r: (r.parent / "second").hardlink_to(record(r, 2)),
    "a publish that a crash cut short": lambda r: (r / "a/.next").hardlink_to(record(r, 6)),
    "a thread that is a link": lambda r: (r / "c").symlink_to("a"),
    "a thread that others write": lambda r: (r / "b").chmod(0o777),
    "what is no record": lambda r: made(r / "a/stranger.txt", mode=0o666),
}
OWNED: dict[str, Plant] = {
    "the folder": be_somebody,
    "a folder above": lambda r: be_somebody(r.parent),
    "a record": lambda r: be_somebody(record(r, 2)),
}


@pytest.mark.parametrize("name", LOCATION)
def test_a_location_that_is_not_private(root: Path, name: str) -> None:
    LOCATION[name](root)
    kept(f"location: {name}", check_location(str(root)), root.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", OWNED)
def test_a_location_of_somebody_else(root: Path, name: str) -> None:
    OWNED[name](root)
    kept(f"owner: {name}", check_location(root), root.parent)
    os.chown(root.parent, 0, -1)


def test_a_link_of_somebody_else_in_the_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = root.parent / "link"
    link.symlink_to(root.parent)
    assert check_location(link / "state") == []
    real = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        info = list(real(path))
        info[stat.ST_UID] = 4321 if path == link else info[stat.ST_UID]
        return os.stat_result(info)

    monkeypatch.setattr(Path, "lstat", lstat)
    [found] = check_location(link / "state")
    assert str(found).startswith(f"SP01 warning: {link} is a symbolic link of user 4321, who")


def test_where_it_lies(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In what the system empties, and on a network."""
    monkeypatch.setattr(folder, "temp_folders", lambda: ["/elsewhere", str(root.parent)])
    begins = f"SP01 warning: {root} is inside the temporary folder {root.parent}: other users"
    holds(check_location(root), [begins])
    monkeypatch.setattr(folder, "temp_folders", list)
    monkeypatch.setattr(folder, "network_file_system", lambda _: "nfs4")
    holds(check_location(root), [f"SP01 note: {root} is on a network file system (nfs4): "])


def test_the_temporary_folders_are_those_of_the_system_and_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    assert folder.temp_folders() == [
        *map(os.path.realpath, ("/tmp", "/var/tmp")),  # noqa: S108
        str(tmp_path),
    ]


def close(monkeypatch: pytest.MonkeyPatch, *closed: Path) -> None:
    """Let folders be closed, as they would be for a user who is not root."""

    def closing_(real: Any) -> Any:
        def refuse(path: Any = ".", *rest: Any, **more: Any) -> Any:
            if str(path) in map(str, closed):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *rest, **more)

        return refuse

    for name in ("scandir", "listdir", "open"):
        monkeypatch.setattr(os, name, closing_(getattr(os, name)))


@pytest.mark.parametrize(("check", "rule"), [(check_location, "SP04"), (check_append_only, "SP13")])
def test_a_closed_folder_is_said_and_hides_nothing_of_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch, check: Any, rule: str
) -> None:
    (root / "c").mkdir(mode=0o700)
    record(root, 2).unlink()
    record(root, 3).chmod(0o666)
    before = [str(each) for each in check(root)]
    assert len(before) == 1
    unseen = f"{rule} warning: {{}} could not be looked at as a whole (Permission denied)."
    with monkeypatch.context() as patch:
        close(patch, root / "c")
        holds(check(root), [*before, unseen.format(root / "c")])
    close(monkeypatch, root)
    holds(check(root), [unseen.format(root)])


def cut(root: Path, *sequences: int) -> list[Path]:
    """Remove records."""
    paths = [record(root, sequence) for sequence in sequences]
    for path in paths:
        path.unlink()
    return paths


def beheaded(root: Path) -> None:
    ledger(root).prune("a", keep=1)
    record(root, 6).unlink()


def put_back(root: Path) -> None:
    kept = record(root, 1).read_bytes()
    ledger(root).prune("a", keep=2)
    made(record(root, 1), kept)
    os.utime(root / "a/base", (0, 0))


def backwards(root: Path) -> None:
    for sequence in range(1, 7):
        os.utime(record(root, sequence), (1000 - sequence, 1000 - sequence))


def many_gaps(root: Path) -> None:
    for sequence in range(8, 30, 2):
        made(record(root, sequence))
    made(record(root, 9_999_999_999))


def old(path: Path) -> None:
    made(path)
    os.utime(path, (0, 0))


NAMES = ("notes", "a/7.checkpoint", "a/0000000000.checkpoint", "a/0000000007.checkpoint.bak")
ADDED: dict[str, Plant] = {
    "honest": lambda r: (ledger(r).prune("a", keep=2), ledger(r).delete("b")),
    "a gap": lambda r: record(r, 3).unlink(),
    "the first": lambda r: record(r, 1).unlink(),
    "gaps": lambda r: cut(r, 1, 2, 5),
    "many gaps": many_gaps,
    "a gap behind a base": lambda r: (ledger(r).prune("a", keep=3), cut(r, 5)),
    "beheaded": beheaded,
    "no base": lambda r: made(r / "a/base", b"0000000000\nsafepoint/1"),
    "a base that is a link": lambda r: (r / "a/base").symlink_to("0000000001.checkpoint"),
    "put back": put_back,
    "strange names": lambda r: [made(r / each) for each in NAMES],
    "a strange folder": lambda r: (r / "NOTES").mkdir(),
    "a link on its way": lambda r: (r / "a/.next").symlink_to("/etc/passwd"),
    "written late": backwards,
    "left by a crash": lambda r: old(r / "a/.next"),
    "on its way": lambda r: made(r / "a/.next"),
}


@pytest.mark.parametrize("name", ADDED)
def test_a_folder_that_was_not_only_added_to(root: Path, name: str) -> None:
    ADDED[name](root)
    kept(f"append-only: {name}", check_append_only(root), root.parent)


def test_a_change_that_hides_its_time_is_a_note(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its ctime tells, which a chmod moves too; within a second it is no finding."""
    info = record(root, 3).lstat()
    record(root, 3).write_bytes(b"edited")
    os.utime(record(root, 3), ns=(info.st_mtime_ns, info.st_mtime_ns))
    assert check_append_only(root) == []
    monkeypatch.setattr(folder, "_SLACK_NS", 0)
    begins = "SP13 note: Thread 'a' has records that were changed in some way after the next one:"
    holds(check_append_only(root), [f"{begins} #3. A restore does that"])


def test_a_prune_of_this_moment_may_still_be_at_it(root: Path) -> None:
    put_back(root)
    os.utime(root / "a/base", (time.time(), time.time()))
    assert check_append_only(root) == []


def test_a_folder_of_something_else_is_one_note(tmp_path: Path) -> None:
    assert check_append_only(tmp_path) == []
    for n in range(3):
        (tmp_path / f"{n}.json").touch()
    begins = f"SP13 note: {tmp_path} holds no record of a FileCheckpointStorage, so nothing here"
    holds(check_append_only(tmp_path), [begins])


def test_a_save_or_a_prune_during_the_listing_is_no_gap(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing may have the second of two new records; and what is pruned goes after the base."""
    real, calls = os.listdir, list[str]()

    def missed(path: Any) -> list[str]:
        calls.append(path)
        hidden = "0000000005.checkpoint" if len(calls) == 1 else ""
        return [name for name in real(path) if name != hidden]

    def pruned(path: Any) -> list[str]:
        names = real(path)
        ledger(root).prune("a", keep=1)
        return names

    for listdir in (missed, pruned):
        monkeypatch.setattr(os, "listdir", listdir)
        assert check_append_only(root) == []


# --- the parts of a store

PARTS = ["storage", "keys", "anchor", "journal", "journal_anchor"]


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Locations]:
    """A store as the defaults set it up, with its key and one checkpoint."""
    found = default_locations("invoices", service=False, environ={"HOME": str(tmp_path)})
    found.create()
    open_ledger("invoices", places=found).save("order-7", {"amount": 42})
    yield found
    tmp_path.chmod(0o700)


def looked(places: Locations, **changed: Any) -> list[Finding]:
    return check_places(**({part: getattr(places, part) for part in PARTS} | changed))


def test_what_the_defaults_set_up_has_no_finding(places: Locations) -> None:
    SigningKey.generate("ed25519").public.to_file(places.keys / "reader.key")
    assert looked(places) == []
    assert check_places(str(places.storage), keys=str(places.keys)) == []


def moved_part(places: Locations, part: str, *, link: bool = False) -> None:
    path = getattr(places, part)
    path.rename(path.with_name("moved"))
    if link:
        path.symlink_to("moved")


def astray(places: Locations, part: str) -> None:
    made(getattr(places, part) / "a.key", b"\n-----BEGIN EC PRIVATE KEY-----\n")
    SigningKey.generate().to_file(getattr(places, part) / "b.key")


PLACES: dict[str, Callable[[Locations, str], object]] = {
    "others write it": lambda p, part: getattr(p, part).chmod(0o770),
    "others read it": lambda p, part: getattr(p, part).chmod(0o750),
    "it is not there": moved_part,
    "it is a link": lambda p, part: moved_part(p, part, link=True),
    "keys in it": astray,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", PLACES)
def test_a_part_that_is_not_as_it_should_be(
    places: Locations, part: str, name: str, tmp_path: Path
) -> None:
    PLACES[name](places, part)
    kept(f"{part}: {name}", looked(places), tmp_path)


@pytest.mark.parametrize("part", PARTS[1:])
@pytest.mark.parametrize("where", ["", "inside", "..", "link", "nowhere/x"])
def test_parts_in_one_place(places: Locations, part: str, where: str, tmp_path: Path) -> None:
    path = places.storage.parent if where == ".." else places.storage / where
    if where == "link":
        path = tmp_path / "link"
        path.symlink_to(places.storage)
    if where != "nowhere/x":
        path.mkdir(mode=0o700, exist_ok=True)
    kept(f"{part} in one place: {where or '.'}", looked(places, **{part: path}), tmp_path)


def test_a_second_name_of_a_folder_hides_nothing(
    places: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount gives a folder a second name, and no path tells."""
    real = Path.samefile

    def samefile(one: Path, other: Any) -> bool:
        return {one, other} == {places.storage, places.anchor} or real(one, other)

    monkeypatch.setattr(Path, "samefile", samefile)
    assert any("are in one place" in each.what for each in looked(places))


def test_where_the_parts_lie(
    places: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the current folder, unless one is at home or above it; in a git work tree."""
    for home, expected in ((tmp_path, 0), (tmp_path / "home", 0), (Path("/nowhere"), 1)):
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.chdir(tmp_path)
        begins = [f"SP22 warning: {places.storage} is inside the current folder {tmp_path},"]
        holds(check_places(places.storage), begins * expected)
    monkeypatch.chdir("/")
    (tmp_path / ".git").mkdir()
    holds(
        check_places(places.storage, keys=places.keys),
        [
            f"SP22 warning: {places.storage} is inside the git work tree {tmp_path}",
            f"SP22 warning: {places.keys} is inside the git work tree {tmp_path}",
            f"SP22 error: The key {places.key_file} is inside a git work tree, so it could be",
        ],
    )


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610])
def test_a_key_that_others_can_reach(places: Locations, mode: int, tmp_path: Path) -> None:
    places.key_file.chmod(mode)
    kept(f"a key of mode {mode:04o}", looked(places), tmp_path)


def test_a_key_that_cannot_be_read_is_a_warning(
    places: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(monkeypatch, places.key_file)
    holds(looked(places), [f"SP22 warning: {places.key_file} could not be looked at as a whole"])


# --- owners


def test_threads_that_nobody_owns_or_that_nobody_released(tmp_path: Path) -> None:
    """A lease lasts a day; clocks may differ by an hour."""
    state = tmp_path / "state"
    store = ledger(state)
    store.save("order-7", {})
    note = "SP07 note: No worker ever owned thread 'order-7', so any worker may write it."
    holds(check_ownership(state), [note])
    lease = store.own("order-7", "worker-1", seconds=60)
    assert check_ownership(state) == []
    found = FileCheckpointStorage(state, read_only=True).lease("order-7")
    assert found is not None
    for hours, lines in ((24, 0), (25, 0), (26, 1)):
        assert len(check_ownership(state, found.expires - timedelta(hours=hours))) == lines
    later = "SP07 warning: Worker 'worker-1' owned thread 'order-7' until "
    holds(check_ownership(state, found.expires), [later])
    with lease:
        pass
    assert check_ownership(state) == []
    for text, begins in (
        (
            "safepoint-lease/1 5 mally 9999-12-31T23:59:59.999999Z\n",
            (
                "SP07 error: Worker 'mally' owns thread 'order-7' until"
                " 9999-12-31T23:59:59.999999Z, and no lease lasts longer than 24 hours."
            ),
        ),
        (
            "safepoint-lease/1 999999999999999999 - -\n",
            "SP07 error: Thread 'order-7' has handed out its last token, so no worker can own",
        ),
        ("worker-2\n", f"SP07 error: {state}/order-7/lease does not say who owns "),
    ):
        (state / "order-7/lease").write_text(text)
        holds(check_ownership(state), [begins])


# --- SQLite


def put(statement: str, *, record: bytes = b"") -> Callable[[Path], None]:
    """Do as somebody who can write the file: drop each trigger, edit, put them back."""

    def plant(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            listed = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
            triggers = connection.execute(listed).fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            given = (record,) if "?" in statement else ()
            connection.execute(statement.replace("{of}", OF), given)
            for _, sql in triggers:
                connection.execute(sql)

    return plant


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)


def bare(statement: str) -> Callable[[Path], None]:
    """Do as somebody who cares for nothing."""

    def plant(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)

    return plant


OF = "WHERE thread = 'order-7' AND"
SECOND = "UPDATE checkpoints SET record = ? {of} sequence = 2"
BEGINS = "INSERT INTO threads (thread, first, base) VALUES ('order-7', 3, x'00')"
DATABASE: dict[str, Plant] = {
    "honest": lambda p: None,
    "read": lambda p: p.chmod(0o640),
    "written": lambda p: p.chmod(0o606),
    "beside": lambda p: made(p.with_name("c.db-journal"), mode=0o644),
    "a second name": lambda p: (p.parent.parent / "second").hardlink_to(p),
    "the folder": lambda p: p.parent.chmod(0o755),
    "a folder that others write": lambda p: p.parent.chmod(0o777),
    "damaged": damage,
    "no rules": bare("DROP TRIGGER checkpoints_update"),
    "a gap": put("DELETE FROM checkpoints {of} sequence = 2"),
    "from before it begins": put(BEGINS),
    "no record": put(SECOND, record=b"\x80\x04\x95\x03"),
    "a pickle": put(SECOND, record=pickle.dumps([1])),
    "too large": put(SECOND, record=bytes(70000)),
    "a strange name": put("INSERT INTO checkpoints VALUES ('../../etc', 1, x'00')"),
}


@pytest.mark.parametrize("name", DATABASE)
def test_a_database_that_was_changed(tmp_path: Path, name: str) -> None:
    """The triggers are back in their place, so that nothing but the rows themselves tells."""
    path = tmp_path / "state/c.db"
    with SQLiteCheckpointStorage(path) as storage:
        store = Ledger(storage, store="invoices", keys=KEYS)
        for amount in range(4):
            store.save("order-7", {"amount": amount})
        store.save("order-8", 1)
        store.save("order-8", 2)
        store.prune("order-8", keep=1)
        storage.append("late", 9_999_999_999, b"safepoint/1 x")
    DATABASE[name](path)
    found = check_database(path, limits=Limits(state_bytes=1000))
    kept(f"database: {name}", found, tmp_path)


def test_a_database_in_use_that_is_no_database_or_not_there(tmp_path: Path) -> None:
    """Nothing is made, not even the files that SQLite puts beside a database to read it."""
    path = tmp_path / "state/c.db"
    with SQLiteCheckpointStorage(path) as storage:
        storage.append("order-7", 1, b"safepoint/1 x")
        storage.acquire("order-7", "worker-1", 60)
        assert check_database(path) == []
        assert check_ownership(path) == []
    later = datetime.now(UTC) + timedelta(seconds=120)
    [found] = check_ownership(path, later)
    assert (found.severity, found.where) == ("warning", "order-7")
    assert [each.name for each in path.parent.iterdir()] == ["c.db"]
    made(path, b"SQLite format 3\0" + bytes(4096))
    holds(check_database(path), [f"SP13 error: {path} does not hold what safepoint writes"])
    path.unlink()
    with pytest.raises(StorageUnavailable, match=r"does not exist\. Name the file of your SQLite"):
        check_database(path)


# --- what all of them share


def listing(root: Path) -> list[tuple[Any, ...]]:
    found = [(path, path.lstat()) for path in sorted(root.rglob("*"))]
    return [(p, s.st_mode, s.st_mtime_ns, s.st_ctime_ns, s.st_nlink) for p, s in found]


def test_nothing_is_created_or_changed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.chmod(0o777)
    before = listing(root.parent)
    for check in (check_location, check_append_only, check_ownership, check_places):
        check(root)
        if check is not check_places:
            with pytest.raises(StorageUnavailable):
                check(root / "missing")
    assert listing(root.parent) == before
    with pytest.raises(UnsafeLocation) as caught:
        FileCheckpointStorage(root)
    first = check_location(root)[0]
    assert (first.what, first.do, first.where) == (caught.value.what, caught.value.do, str(root))
    monkeypatch.setattr(_files, "SUPPORTED", False)
    for refuses in (check_location, check_places, check_database):
        with pytest.raises(StorageUnavailable, match="needs a POSIX system"):
            refuses(root)


def test_the_files_below_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted, files before folders, bounded, and no link to a folder is followed."""
    monkeypatch.setattr(finding, "DEEPEST", 2)
    for name in ("z", "a/2", "a/1", "b/y", "b/c/x", "b/c/d/w", "shut/v"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "self").symlink_to(tmp_path)
    close(monkeypatch, tmp_path / "shut")
    closed = Closed()
    found = [os.path.relpath(file, tmp_path) for file in files(str(tmp_path), closed)]
    assert found == ["self", "z", "a/1", "a/2", "b/y", "b/c/x"]
    assert closed == {
        f"{tmp_path}/b/c/d": "it lies 3 folders deep",
        f"{tmp_path}/shut": "Permission denied",
    }


def test_what_was_found_before_the_system_refused_is_kept() -> None:
    found = Finding("SP13", "error", "This is so.", "Do that.", "/x")
    assert str(found) == "SP13 error: This is so. Do that."

    def look(error: OSError) -> Iterator[Finding]:
        yield found
        raise error

    kept, warning = guarded("SP13", "/x", look(PermissionError(13, "Permission denied")))
    assert (kept, warning.severity) == (found, "warning")
    assert list(guarded("SP13", "/x", look(FileNotFoundError(2, "gone")))) == [found]
