"""check_journal: does the journal verify, apart from what it tells about?"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    ConfigurationError,
    FileAnchor,
    InMemoryAnchor,
    InvalidId,
    Keyring,
    SigningKey,
    StorageUnavailable,
)
from safepoint.audit.finding import Finding
from safepoint.audit.journal import check_journal
from safepoint.journal import FileJournal
from tests.unit.journal_helpers import KEYS, RESTORE, files, fill, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def anchor() -> InMemoryAnchor:
    return InMemoryAnchor()


@pytest.fixture
def journal(path: Path, anchor: InMemoryAnchor) -> FileJournal:
    """Three entries in two files."""
    made = opened(path, anchor=anchor, create=True, max_bytes=800)
    fill(made, 3)
    assert len(files(path)) == 2
    return made


def looked(path: Path, anchor: Any = None, **options: Any) -> list[str]:
    found = check_journal(path, KEYS, anchor=anchor, **options)
    assert {finding.rule for finding in found} <= {"SP20"}
    return [str(finding) for finding in found]


def only(findings: list[Finding], severity: str) -> Finding:
    (finding,) = findings
    assert (finding.rule, finding.severity) == ("SP20", severity)
    return finding


@pytest.mark.usefixtures("journal")
def test_a_journal_that_verifies_apart_from_the_storage_has_no_finding(
    path: Path, anchor: InMemoryAnchor, tmp_path: Path
) -> None:
    before = files(path)
    (tmp_path / "state").mkdir()
    told: list[int] = []
    assert (
        looked(path, anchor, storage=tmp_path / "state", progress=lambda n, _: told.append(n)) == []
    )
    assert files(path) == before
    assert told[-1] == sum(map(len, before.values()))


def test_a_path_may_be_relative(
    journal: FileJournal, path: Path, anchor: InMemoryAnchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    assert looked(Path("journal"), anchor) == []
    path.chmod(0o770)
    assert looked(Path("journal"), anchor) == [
        (f"SP20 error: {path} can be written by others (mode 0770). Run: chmod 700 {path}")
    ]


@pytest.mark.usefixtures("journal")
def test_no_anchor_is_a_warning(path: Path) -> None:
    assert looked(path) == [
        (
            f"SP20 warning: The journal {path} has no anchor, so nobody notices when its newest"
            " lines are cut off. Keep its head where its writer cannot write: FileJournal(...,"
            " anchor=FileAnchor(path))."
        )
    ]


def test_a_missing_journal_is_an_error(path: Path, anchor: InMemoryAnchor) -> None:
    finding = only(check_journal(path, KEYS, anchor=anchor), "error")
    assert finding.what == f"{path} does not exist, so nothing could be written down."
    assert finding.where == str(path)
    assert not path.exists()


@pytest.mark.usefixtures("journal")
def test_an_edited_line_is_an_error(path: Path, anchor: InMemoryAnchor) -> None:
    file = path / "journal.000001.jsonl"
    file.write_bytes(file.read_bytes().replace(b"ana", b"ben"))
    assert looked(path, anchor) == [
        (
            f"SP20 error: The first line in {file} was changed after it was written, or somebody"
            f" else wrote it. {RESTORE}"
        )
    ]


@pytest.mark.usefixtures("journal")
def test_a_cut_tail_is_an_error(path: Path, anchor: InMemoryAnchor) -> None:
    (path / "journal.000002.jsonl").unlink()
    finding = only(check_journal(path, KEYS, anchor=anchor), "error")
    assert finding.what == ("The journal journal ends at entry 2, and the anchor has seen entry 3.")


@pytest.mark.usefixtures("journal")
def test_a_key_that_is_not_on_the_ring_is_an_error(path: Path, anchor: InMemoryAnchor) -> None:
    keys = Keyring(SigningKey.generate())
    finding = only(check_journal(path, keys, anchor=anchor), "error")
    assert "which is not on this keyring" in finding.what


@pytest.mark.usefixtures("journal")
def test_files_that_others_can_write_are_errors_each_said_once(
    path: Path, anchor: InMemoryAnchor
) -> None:
    for name in files(path):
        (path / name).chmod(0o666)
    assert looked(path, anchor) == [
        (
            f"SP20 error: {path}/{name} can be written by others (mode 0666)."
            f" Run: chmod 600 {path}/{name}"
        )
        for name in files(path)
    ]


@pytest.mark.usefixtures("journal")
def test_files_that_others_can_read_are_warnings(path: Path, anchor: InMemoryAnchor) -> None:
    path.chmod(0o755)
    (path / "journal.000002.jsonl").chmod(0o640)
    assert looked(path, anchor) == [
        (
            f"SP20 warning: Others can read {where} (mode {mode}), and with it who did what."
            f" Run: chmod go= {where}"
        )
        for where, mode in [(path, "0755"), (f"{path}/journal.000002.jsonl", "0640")]
    ]


def test_a_link_in_the_place_of_a_file_is_an_error(
    journal: FileJournal, path: Path, anchor: InMemoryAnchor
) -> None:
    file = path / "journal.000001.jsonl"
    file.rename(path.parent / "elsewhere")
    file.symlink_to(path.parent / "elsewhere")
    finding = only(check_journal(path, KEYS, anchor=anchor), "error")
    assert finding.what == f"{file} is a symbolic link."


def test_a_place_in_which_others_could_replace_it_is_an_error(
    tmp_path: Path, anchor: InMemoryAnchor
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    fill(opened(above / "journal", anchor=anchor, create=True), 1)
    above.chmod(0o777)
    finding = only(check_journal(above / "journal", KEYS, anchor=anchor), "error")
    assert finding.what == (
        f"Every user can rename and replace what is inside {above} (mode 0777)."
    )


PLACES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "the storage itself": (lambda path: path, "inside"),
    "in the storage": (lambda path: path.parent, "inside"),
    "around the storage": (lambda path: path / "state", "around"),
}


@pytest.mark.usefixtures("journal")
@pytest.mark.parametrize(("storage", "how"), PLACES.values(), ids=PLACES)
def test_a_journal_that_is_not_apart_from_the_storage_is_an_error(
    path: Path,
    anchor: InMemoryAnchor,
    tmp_path: Path,
    storage: Callable[[Path], Path],
    how: str,
) -> None:
    kept = storage(path)
    kept.mkdir(exist_ok=True)
    link = tmp_path.parent / f"link-{tmp_path.name}"
    link.symlink_to(kept)
    for named in (kept, link):
        assert looked(path, anchor, storage=named) == [
            (
                f"SP20 error: The journal {path} is {how} the storage folder {kept}. Whoever"
                " writes the storage could remove both what was done and that it was. Move the"
                " journal to a folder of its own."
            )
        ]


def test_a_key_in_the_folder_of_the_journal_is_an_error(path: Path, anchor: InMemoryAnchor) -> None:
    path.mkdir(mode=0o700)
    opened(path, create=True)
    keys = Keyring(SigningKey.from_file(path / "own.key", create=True))
    fill(opened(path, keys=keys, anchor=anchor), 1)
    finding = only(check_journal(path, keys, anchor=anchor), "error")
    assert finding.what == (
        f"The key {path}/own.key is inside the folder of the journal that it signs."
    )
    assert finding.where == f"{path}/own.key"


def test_an_anchor_that_is_far_behind_is_a_warning(
    journal: FileJournal, path: Path, anchor: InMemoryAnchor
) -> None:
    """A writer that died may be two entries ahead of it, so two are no finding."""
    fill(opened(path), 2)
    assert looked(path, anchor) == []
    fill(opened(path), 1)
    assert looked(path, anchor) == [
        (
            f"SP20 warning: The journal {path} is at entry 6, and its anchor at 3: what is newer"
            " could be cut off unnoticed. Find out which writer does not use the anchor. The next"
            " entry that one does use it for moves it."
        )
    ]
    assert "and its anchor at 0:" in looked(path, InMemoryAnchor())[0]
    fill(journal, 1)
    assert looked(path, anchor) == []


@pytest.mark.usefixtures("journal")
def test_an_anchor_of_another_store_is_an_error(path: Path, tmp_path: Path) -> None:
    other = FileAnchor(tmp_path / "anchor", create=True)
    fill(opened(tmp_path / "other", name="other", anchor=other, create=True), 1)
    finding = only(check_journal(path, KEYS, anchor=other), "error")
    assert finding.what == (
        f"The journal's anchor cannot be read. {tmp_path}/anchor belongs to store other, and was"
        " asked about store journal."
    )


@pytest.mark.usefixtures("journal")
def test_what_cannot_be_looked_for_is_refused(path: Path) -> None:
    with pytest.raises(InvalidId, match="is not a journal name"):
        check_journal(path, KEYS, name="../x")
    with pytest.raises(ConfigurationError, match="was given str as keys"):
        check_journal(path, "keys")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="which has no method read"):
        check_journal(path, KEYS, anchor=7)  # type: ignore[arg-type]
    with pytest.raises(StorageUnavailable, match="The path of the journal is int, not a path"):
        check_journal(7, KEYS)  # type: ignore[arg-type]


@pytest.mark.usefixtures("journal")
def test_a_journal_of_another_name_is_missing(path: Path, anchor: InMemoryAnchor) -> None:
    finding = only(check_journal(path, KEYS, name="other", anchor=anchor), "error")
    assert finding.what == f"{path} holds no journal: 'other.000001.jsonl' is missing."


def test_a_file_in_the_place_of_the_folder_is_an_error(path: Path, anchor: InMemoryAnchor) -> None:
    path.touch()
    assert os.path.isfile(path)  # noqa: PTH113
    finding = only(check_journal(path, KEYS, anchor=anchor), "error")
    assert finding.what == f"{path} is not a folder."
