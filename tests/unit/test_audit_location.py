from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safepoint._files import file_system
from safepoint.audit import Finding, check_location, location
from safepoint.errors import StorageUnavailable, UnsafeLocation
from safepoint.storage import FileCheckpointStorage
from tests.unit.commands import audit as main


@pytest.fixture(autouse=True)
def _no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, which is a finding of its own."""
    monkeypatch.setattr(location, "temp_folders", list)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    storage = FileCheckpointStorage(tmp_path / "store")
    storage.append("a", 1, b"one")
    storage.append("a", 2, b"two")
    return tmp_path / "store"


def lines(path: Path) -> list[str]:
    return [str(finding) for finding in check_location(path)]


def test_a_folder_that_the_storage_made_has_no_findings(root: Path) -> None:
    assert check_location(root) == []
    assert check_location(str(root)) == []


def test_a_finding_reads_as_one_line() -> None:
    finding = Finding("SP04", "error", "This is so.", "Do that.", "/x")
    assert str(finding) == "SP04 error: This is so. Do that."


def test_nothing_is_created_or_changed(root: Path, tmp_path: Path) -> None:
    root.chmod(0o777)
    before = [(path, path.lstat()) for path in sorted(tmp_path.rglob("*"))]
    assert check_location(root)
    with pytest.raises(StorageUnavailable) as caught:
        check_location(tmp_path / "missing")
    assert str(caught.value) == (
        f"{tmp_path}/missing does not exist. Run: mkdir -m 700 {tmp_path}/missing"
    )
    after = [(path, path.lstat()) for path in sorted(tmp_path.rglob("*"))]
    assert [(p, s.st_mode, s.st_mtime_ns, s.st_ctime_ns) for p, s in before] == [
        (p, s.st_mode, s.st_mtime_ns, s.st_ctime_ns) for p, s in after
    ]


def spoil_mode(root: Path, _: pytest.MonkeyPatch) -> None:
    root.chmod(0o720)


def spoil_link(root: Path, _: pytest.MonkeyPatch) -> None:
    root.rename(root.parent / "moved")
    root.symlink_to(root.parent / "moved")


def spoil_file(root: Path, _: pytest.MonkeyPatch) -> None:
    root.rename(root.parent / "moved")
    root.touch()


def spoil_above(root: Path, _: pytest.MonkeyPatch) -> None:
    root.parent.chmod(0o707)


def spoil_owner(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(root, 65534, -1)
    else:
        somebody = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: somebody)


@pytest.mark.parametrize("spoil", [spoil_mode, spoil_link, spoil_file, spoil_above, spoil_owner])
def test_what_the_storage_refuses_is_an_error_in_the_same_words(
    root: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any
) -> None:
    spoil(root, monkeypatch)
    with pytest.raises(UnsafeLocation) as caught:
        FileCheckpointStorage(root)
    findings = check_location(root)
    assert (findings[0].rule, findings[0].severity) == ("SP04", "error")
    assert (findings[0].what, findings[0].do) == (caught.value.what, caught.value.do)
    assert findings[0].where == str(root)
    root.parent.chmod(0o700)


def test_every_problem_of_the_folder_is_listed_at_once(root: Path) -> None:
    root.chmod(0o777)
    root.parent.chmod(0o777)
    assert lines(root) == [
        f"SP04 error: {root} can be written by others (mode 0777). Run: chmod 700 {root}",
        (
            f"SP04 error: Every user can rename and replace what is inside {root.parent}"
            f" (mode 0777). Run: chmod o-w {root.parent}"
        ),
        f"SP01 warning: {root} can be read by others (mode 0777). Run: chmod 700 {root}",
        (
            f"SP01 warning: The group {root.parent.stat().st_gid} can replace what is inside"
            f" {root.parent} (mode 0777). Run: chmod g-w {root.parent}"
        ),
    ]
    root.parent.chmod(0o700)


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o710, 0o755])
def test_a_folder_that_others_can_read_is_a_warning(root: Path, mode: int) -> None:
    root.chmod(mode)
    FileCheckpointStorage(root)
    assert lines(root) == [
        f"SP01 warning: {root} can be read by others (mode {mode:04o}). Run: chmod 700 {root}"
    ]


def test_a_temporary_folder_is_a_warning(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "temp_folders", lambda: ["/elsewhere", str(root.parent)])
    assert lines(root) == [
        (
            f"SP01 warning: {root} is inside the temporary folder {root.parent}: other users can"
            " create names there, and the system may empty it."
            " Name a folder that is kept, such as one below /var/lib."
        )
    ]


def test_the_temporary_folders_are_those_of_the_system_and_of_the_environment(
    tmp_path: Path,
) -> None:
    """The real function, in another process, as the fixture replaces it here."""
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to("t")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from safepoint.audit.location import temp_folders; print(*temp_folders())",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "link"), "TEMP": "", "TMP": ""},
    )
    assert done.stdout.split() == [
        os.path.realpath("/tmp"),  # noqa: S108
        os.path.realpath("/var/tmp"),  # noqa: S108
        str(tmp_path / "t"),
    ]


@pytest.mark.parametrize("marker", ["folder", "file"])
def test_a_git_work_tree_is_a_warning(root: Path, marker: str) -> None:
    """In a clone `.git` is a folder; in a worktree or a submodule it is a file."""
    git = root.parent / ".git"
    git.mkdir() if marker == "folder" else git.touch()
    assert lines(root) == [
        (
            f"SP01 warning: {root} is inside the git work tree {root.parent}, so state could be"
            " committed. Name a folder outside of it."
        )
    ]


def test_a_folder_above_of_another_user_is_a_warning(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        found = list(real(path))
        if path == root.parent:
            found[4] = 4321
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", lstat)
    assert lines(root) == [
        (
            f"SP01 warning: {root.parent} belongs to user 4321, who can replace what is inside it."
            " Name a folder that has only root and your own user above it."
        )
    ]


def test_a_link_of_another_user_in_the_path_is_a_warning(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(root.parent)
    assert check_location(link / root.name) == []
    owner = os.geteuid()
    if owner == 0:
        owner = 12345
        os.chown(link, owner, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    (finding,) = [f for f in check_location(link / root.name) if f.where == str(link)]
    assert str(finding) == (
        f"SP01 warning: {link} is a symbolic link of user {owner}, who decides where it leads. "
        "Name the path without that link."
    )


def test_a_folder_above_that_its_group_can_write_is_a_warning(root: Path) -> None:
    root.parent.chmod(0o770)
    assert lines(root) == [
        (
            f"SP01 warning: The group {root.parent.stat().st_gid} can replace what is inside"
            f" {root.parent} (mode 0770). Run: chmod g-w {root.parent}"
        )
    ]
    root.parent.chmod(0o1770)
    assert lines(root) == []


MOUNTS = r"""21 1 254:0 / / rw - ext4 /dev/vda rw
22 21 0:40 / /mnt rw,relatime shared:5 - nfs4 server:/x rw
23 22 0:41 / /mnt/my\040disk rw - xfs /dev/vdb rw
24 21 0:42 / /over rw - ext4 /dev/vdc rw
25 24 0:43 / /over rw - fuse.sshfs host: rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/x", "ext4"),
        ("/mnt/x", "nfs4"),
        ("/mnt", "nfs4"),
        ("/mntx", "ext4"),
        ("/mnt/my disk/x", "xfs"),
        ("/over/x", "fuse.sshfs"),
    ],
)
def test_the_file_system_is_that_of_the_closest_mount(path: str, kind: str) -> None:
    assert file_system(path, MOUNTS) == kind


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "9p", "fuse.sshfs", "ceph", "lustre", "virtiofs", "fuse.rclone"]
)
def test_a_network_file_system_is_a_note(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"1 0 0:1 / / rw - {kind} s rw\n")
    [finding] = check_location(root)
    assert str(finding) == (
        f"SP01 note: {root} is on a network file system ({kind}): whether link and flock hold"
        " there depends on the server, and so does who can write."
        " Prefer a local disk, or test both with two machines that write at once."
    )
    assert main([str(root)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(finding)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk"])
def test_a_local_file_system_is_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"1 0 0:1 / / rw - {kind} s rw\n")
    assert lines(root) == []


def test_without_a_list_of_mounts_nothing_is_said(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert lines(root) == []


def test_records_and_threads_that_others_could_change_are_errors(
    root: Path, tmp_path: Path
) -> None:
    first, second = (root / f"a/000000000{n}.checkpoint" for n in (1, 2))
    first.chmod(0o644)
    second.chmod(0o666)
    third = root / "a/0000000003.checkpoint"
    third.symlink_to("/etc/passwd")
    fourth = root / "a/0000000004.checkpoint"
    fourth.touch(mode=0o600)
    (tmp_path / "second").hardlink_to(fourth)
    (root / "b").symlink_to("a")
    (root / "c").mkdir()
    (root / "c").chmod(0o777)
    (root / "a/stranger.txt").touch(mode=0o666)
    assert sorted(lines(root)) == sorted(
        [
            (
                f"SP04 error: {root}/b is a symbolic link. Whoever owns the link decides where it"
                f" leads. See where, and name that folder instead: readlink -f {root}/b"
            ),
            f"SP04 error: {root}/c can be written by others (mode 0777). Run: chmod 700 {root}/c",
            f"SP04 error: {first} can be read by others (mode 0644). Run: chmod 600 {first}",
            f"SP04 error: {second} can be written by others (mode 0666). Run: chmod 600 {second}",
            (
                f"SP04 error: {third} is a symbolic link. This store never makes one."
                f" See who did, then remove it: ls -l {third}"
            ),
            (
                f"SP04 error: {fourth} has a second name (hard link). Whoever holds it may change"
                f" the record. Find it, and remove it: find / -samefile {fourth}"
            ),
        ]
    )


def test_a_record_of_another_user_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, record = Path.lstat, root / "a/0000000002.checkpoint"

    def lstat(path: Path) -> os.stat_result:
        found = list(real(path))
        if path == record:
            found[4] = 4321
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", lstat)
    assert lines(root) == [
        (
            f"SP04 error: {record} belongs to user 4321, and this process is user {os.geteuid()}."
            f" Run: sudo chown {os.geteuid()} {record}"
        )
    ]


def test_a_publish_that_a_crash_cut_short_is_no_finding(root: Path) -> None:
    (root / "a/.next").hardlink_to(root / "a/0000000001.checkpoint")
    assert lines(root) == []


def test_of_many_bad_records_twenty_are_shown_and_the_rest_counted(root: Path) -> None:
    for sequence in range(3, 31):
        (root / f"a/{sequence:010d}.checkpoint").touch()
        (root / f"a/{sequence:010d}.checkpoint").chmod(0o646)
    found = lines(root)
    assert len(found) == 21
    assert found[-1] == (
        f"SP04 error: There are 8 more findings like these about {root}."
        " Mend those above, and run the audit again."
    )


def unseen(path: Path) -> str:
    return (
        f"SP04 warning: {path} could not be looked at as a whole (Permission denied). Look at it"
        " yourself, as a user who can read it."
    )


def close(monkeypatch: pytest.MonkeyPatch, *closed: Path) -> None:
    """Let folders be closed, as they would be for a user who is not root."""

    def closing(real: Any) -> Any:
        def refuse(path: Any = ".") -> Any:
            if Path(path) in closed:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        return refuse

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, closing(getattr(os, name)))


def test_a_folder_that_cannot_be_listed_is_a_warning(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(monkeypatch, root)
    assert lines(root) == [unseen(root)]


def test_one_closed_folder_hides_nothing_of_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "0").mkdir(mode=0o700)
    (root / "c").mkdir()
    (root / "c").chmod(0o777)
    (root / "a/0000000002.checkpoint").chmod(0o666)
    before = lines(root)
    assert len(before) == 2
    close(monkeypatch, root / "0")
    assert sorted(lines(root)) == sorted([*before, unseen(root / "0")])


def run(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "safepoint", "audit", *arguments],
        check=False,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=20,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_says_that_all_is_well(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for record in sorted(root.glob("a/*")):
        record.write_bytes(b"safepoint/1 x\n")
    assert main([str(root)]) == 0
    assert capsys.readouterr() == (
        f"No findings: {root} (records not verified: give --key and --store)\n",
        "",
    )


def test_the_command_prints_a_line_per_finding_and_fails(root: Path) -> None:
    root.chmod(0o770)
    code, out, err = run(str(root))
    assert (code, err) == (1, "")
    assert out.splitlines()[0] == (
        f"SP04 error: {root} can be written by others (mode 0770). Run: chmod 700 {root}"
    )


def test_a_warning_alone_fails_too(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root.chmod(0o750)
    assert main([str(root)]) == 1
    assert capsys.readouterr().out.startswith("SP01 warning: ")


def test_the_command_says_that_the_path_is_missing(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert run(str(missing)) == (2, "", f"{missing} does not exist. Run: mkdir -m 700 {missing}\n")


@pytest.mark.parametrize("arguments", [[], ["a", "b\n"], ["--odd"], ["-x", "\udcff"]])
def test_wrong_usage_is_one_line(arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("safepoint audit: ")
    assert err.endswith(". Try: safepoint audit --help\n")


@pytest.mark.parametrize(
    "path", ["", "a\0b", "\ud800", "no\nsuch", "x\udcff", "x" * 300, "x/" * 5000, "/dev/null/x"]
)
def test_odd_paths_give_one_line_and_no_traceback(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([path]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.isascii()) == ("", 1, True)


def test_an_odd_name_that_exists_is_shown_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "a\nb\udcff"
    odd.mkdir(mode=0o700)
    assert main([str(odd)]) == 0
    assert capsys.readouterr().out.startswith(f"No findings: $'{tmp_path}/a\\x0ab\\xff' (")
