"""check_journal: journals that are not as they should be, each with what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileAnchor, InMemoryAnchor, Keyring, SigningKey
from safepoint.audit import check_journal
from safepoint.errors import InvalidId
from safepoint.journal import Actor, Event, FileJournal

KEYS = Keyring(SigningKey.generate())


def fill(path: Path, count: int, anchor: Any = None, keys: Keyring = KEYS) -> None:
    journal = FileJournal(path, keys=keys, anchor=anchor, create=True)
    for number in range(count):
        journal.record(
            Event("save", "done", Actor("ana", "login"), "invoices", "order-7", number + 1)
        )


def looked(path: Path, anchor: Any, keys: Keyring = KEYS, **options: Any) -> list[str]:
    found = check_journal(path, keys, anchor=anchor, **options)
    assert {finding.rule for finding in found} <= {"SP20"}
    return [f"{each.severity} {each.what}".replace(f"{path}", "J") for each in found]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def anchor(path: Path) -> InMemoryAnchor:
    """The anchor of a journal with three entries."""
    made = InMemoryAnchor()
    fill(path, 3, made)
    return made


def entry(path: Path, number: int) -> Path:
    return path / f"journal/{number:010}.checkpoint"


def linked(path: Path) -> None:
    entry(path, 1).rename(path.parent / "elsewhere")
    entry(path, 1).symlink_to(path.parent / "elsewhere")


def opened(path: Path) -> None:
    path.chmod(0o755)
    entry(path, 1).chmod(0o640)


def replaced(path: Path) -> None:
    path.rename(path.parent / "aside")
    path.touch()


E1 = "J/journal/0000000001.checkpoint"
ZOO: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "as it should be": (lambda path: None, ()),
    "ahead by two, as a writer that died": (lambda path: fill(path, 2), ()),
    "ahead by three": (
        lambda path: fill(path, 3),
        ("warning The journal J is at entry 6, and its anchor at 3: what is newer could be",),
    ),
    "missing": (lambda path: path.rename(path.parent / "aside"), ("error ",)),
    "a file": (replaced, ("error ",)),
    "edited": (
        lambda path: entry(path, 1).write_bytes(
            entry(path, 1).read_bytes().replace(b"ana", b"ben")
        ),
        ("error ",),
    ),
    "cut": (lambda path: entry(path, 3).unlink(), ("error ",)),
    "written by others": (
        lambda path: entry(path, 1).chmod(0o666),
        (f"error {E1} can be written by others (mode 0666).",),
    ),
    "folder written by others": (
        lambda path: path.chmod(0o770),
        ("error J can be written by others (mode 0770).",),
    ),
    "read by others": (
        opened,
        (
            "warning Others can read J (mode 0755), and with it who did what.",
            f"warning Others can read {E1} (mode 0640), and with it who did what.",
        ),
    ),
    "a link": (linked, (f"error {E1} is a symbolic link.",)),
}


@pytest.mark.parametrize("name", ZOO)
def test_each_journal_has_its_findings(path: Path, anchor: InMemoryAnchor, name: str) -> None:
    spoil, expected = ZOO[name]
    spoil(path)
    found = looked(path, anchor)
    assert len(found) == len(expected), found
    for line, begins in zip(found, expected, strict=True):
        assert line.startswith(begins)


def test_no_anchor_and_a_strange_key_are_said(path: Path, anchor: InMemoryAnchor) -> None:
    (line,) = looked(path, None)
    assert line.startswith("warning The journal J has no anchor, so nobody notices when its newest")
    (line,) = looked(path, anchor, Keyring(SigningKey.generate()))
    assert line.startswith("error ")
    assert "keyring" in line


@pytest.mark.parametrize(
    ("storage", "how"), [("journal", "inside"), (".", "inside"), ("journal/state", "around")]
)
def test_a_journal_that_is_not_apart_from_the_storage_is_an_error(
    path: Path, anchor: InMemoryAnchor, storage: str, how: str
) -> None:
    kept = path.parent / storage
    kept.mkdir(exist_ok=True, mode=0o700)
    (path.parent / "link").symlink_to(kept)
    for named in (kept, path.parent / "link"):
        found = looked(path, anchor, storage=named)
        assert found[0].startswith(f"error The journal J is {how} the storage folder ")
    (path.parent / "state").mkdir()
    assert looked(path, anchor, storage=path.parent / "state") == [] or storage == "journal/state"


def test_a_key_in_the_folder_of_the_journal_is_an_error(path: Path) -> None:
    anchor = InMemoryAnchor()
    path.mkdir(mode=0o700)
    keys = Keyring(SigningKey.from_file(path / "own.key", create=True))
    fill(path, 1, anchor, keys)
    assert looked(path, anchor, keys)[0] == (
        "error The key J/own.key is inside the folder of the journal that it signs."
    )


def test_an_anchor_of_another_store_is_an_error(path: Path, anchor: InMemoryAnchor) -> None:
    other = FileAnchor(path.parent / "anchor", create=True)
    other.advance("other", "journal", anchor.read("journal", "journal"))  # type: ignore[arg-type]
    (line,) = looked(path, other)
    assert line.startswith("error ")


def test_a_name_outside_the_grammar_is_refused(path: Path, anchor: InMemoryAnchor) -> None:
    with pytest.raises(InvalidId, match="is not a journal name"):
        check_journal(path, KEYS, name="../x", anchor=anchor)
