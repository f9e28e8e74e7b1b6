"""An advance that is cut short at any instant, that fails at any step, and several at once."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from safepoint.anchor import FileAnchor
from safepoint.errors import AnchorUnavailable
from safepoint.names import Head


def head(sequence: int) -> Head:
    return Head(sequence, f"sha256:{sequence:064x}")


def python(code: str, *arguments: str) -> str:
    """Run code in a process of its own, with `head` as above; its output comes back."""
    start = "from safepoint.names import Head\nhead = lambda n: Head(n, f'sha256:{n:064x}')\n"
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(code), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "anchor"


@pytest.fixture
def anchor(path: Path) -> FileAnchor:
    anchor = FileAnchor(path, create=True)
    anchor.advance("s", "t", head(5))
    return anchor


def tree(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


# Counts each call into the system, and kills its own process with SIGKILL right after the n-th.
# One driver forks a child per step, so that this costs a fork and not a start of Python.
EACH_STEP = """
    import fcntl, json, os, signal, sys
    from safepoint.anchor import FileAnchor

    NAMES = ["open", "mkdir", "fchmod", "write", "fsync", "rename", "unlink", "close", "scandir"]
    ground, before, last = sys.argv[1], int(sys.argv[2]), 0

    def run(path, kill_after, log):
        def hook(module, name):
            real = getattr(module, name)
            def step(*args, **kwargs):
                if name == "write":
                    args = (args[0], args[1][:40])
                try:
                    return real(*args, **kwargs)
                finally:
                    log.append(name)
                    if len(log) == kill_after:
                        os.kill(os.getpid(), signal.SIGKILL)
            setattr(module, name, step)
        for name in NAMES:
            hook(os, name)
        hook(fcntl, "flock")
        FileAnchor(path, create=not before).advance("s", "t", head(before + 1))
        return log

    outcomes = []
    while True:
        last += 1
        path = f"{ground}/{last}"
        if before:
            FileAnchor(path, create=True).advance("s", "t", head(before))
        pid = os.fork()
        if not pid:
            try:
                log = run(path, last, [])
                with open(f"{ground}/log", "w") as file:
                    json.dump(log, file)
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
                os._exit(99)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        outcomes.append(code)
        if code != -signal.SIGKILL:
            break
    print(json.dumps(outcomes))
"""


@pytest.mark.parametrize("before", [0, 5], ids=["first head of a new anchor", "sixth head"])
def test_sigkill_after_each_step(tmp_path: Path, before: int) -> None:
    """The head is the old one or the new one, no alarm is raised, and the next advance works."""
    outcomes = json.loads(python(EACH_STEP, str(tmp_path), str(before)))
    assert outcomes[-1] == 0
    assert set(outcomes[:-1]) == {-signal.SIGKILL}
    steps = json.loads((tmp_path / "log").read_text())
    assert len(steps) == len(outcomes) - 1
    assert Counter(steps)["rename"] == (1 if before else 3)
    renamed = len(steps) - steps[::-1].index("rename")
    left = 0
    for killed_after in range(1, len(outcomes) + 1):
        path = tmp_path / str(killed_after)
        left += (path / ".next").exists()
        anchor = FileAnchor(path, create=not before)
        old = head(before) if before else None
        assert anchor.read("s", "t") == (head(before + 1) if killed_after >= renamed else old)
        assert anchor.read("s", "u") is None
        assert anchor.threads("s") == (["t"] if before or killed_after >= renamed else [])
        anchor.advance("s", "t", head(before + 1))
        anchor.advance("s", "t", head(before + 2))
        assert FileAnchor(path).read("s", "t") == head(before + 2)
        assert sorted(tree(path)) == [".lock", "store", "t.head"]
    assert left >= 6


RANDOM = """
    import os, random, signal, struct, sys, time
    from safepoint.anchor import FileAnchor

    path = sys.argv[1]
    random.seed(7)
    anchor = FileAnchor(path, create=True)
    before = 0
    for number in range(100):
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                sequence = before
                while True:
                    sequence += 1
                    FileAnchor(path).advance("s", "t", head(sequence))
                    os.write(theirs, struct.pack(">Q", sequence))
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
            os._exit(99)
        os.close(theirs)
        told = os.read(ours, 8) if number % 2 else b""
        time.sleep(random.uniform(0, 0.008))
        os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == -signal.SIGKILL, code
        told += os.read(ours, 1 << 16)
        os.close(ours)
        acknowledged = struct.unpack(">Q", told[-8:])[0] if told else before
        found = FileAnchor(path).read("s", "t")
        sequence = found.sequence if found else 0
        assert acknowledged <= sequence <= acknowledged + 1, (acknowledged, found)
        assert found is None or found == head(sequence)
        before = sequence
    anchor.advance("s", "t", head(before + 1))
    assert anchor.read("s", "t") == head(before + 1)
    assert sorted(os.listdir(path)) == [".lock", "store", "t.head"]
    print(before)
"""


def test_100_kills_at_random_instants(path: Path) -> None:
    """What was acknowledged is there, what is there is whole, and at most one step ahead."""
    assert int(python(RANDOM, str(path))) >= 50


RACE = """
    import os, random, sys
    from safepoint.anchor import FileAnchor

    path = sys.argv[1]
    anchor = FileAnchor(path, create=True)
    ours, theirs = os.pipe()
    children = []
    for writer in range(4):
        pid = os.fork()
        if not pid:
            try:
                os.close(theirs)
                os.read(ours, 1)
                order = list(range(1, 101))
                random.Random(writer).shuffle(order)
                own, highest = FileAnchor(path), 0
                for sequence in order:
                    own.advance("s", "t", head(sequence))
                    highest = max(highest, sequence)
                    if own.read("s", "t").sequence < highest:
                        raise SystemExit("the anchor is behind what it took")
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
                os._exit(99)
            os._exit(0)
        children.append(pid)
    os.close(ours)
    os.close(theirs)
    seen = []
    while children:
        found = anchor.read("s", "t")
        seen.append(found.sequence if found else 0)
        assert found is None or found == head(found.sequence)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) == 0
            children.remove(pid)
    assert seen == sorted(seen), "the anchor moved back"
    print(anchor.read("s", "t").sequence)
"""


def test_several_processes_never_move_a_head_back(path: Path) -> None:
    """Four processes advance by the same 100 heads in any order, and a reader looks on."""
    assert python(RACE, str(path)) == "100"
    assert FileAnchor(path).read("s", "t") == head(100)
    assert sorted(tree(path)) == [".lock", "store", "t.head"]


FORK = """
    import os, signal, sys
    from safepoint.anchor import FileAnchor, _folder

    anchor = FileAnchor(sys.argv[1])
    real, children = os.fsync, []

    def fsync(fd):
        pid = os.fork()
        if not pid:
            signal.pause()
        children.append(pid)
        real(fd)

    os.fsync = fsync
    anchor.advance("s", "t", head(6))
    os.fsync = real
    _folder._PATIENCE = 0.1
    anchor.advance("s", "t", head(7))
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    print(len(children))
"""


@pytest.mark.usefixtures("anchor")
def test_a_child_forked_during_an_advance_does_not_keep_the_lock(path: Path) -> None:
    assert python(FORK, str(path)) == "2"
    assert FileAnchor(path).read("s", "t") == head(7)


def fail(
    monkeypatch: pytest.MonkeyPatch, name: str, code: int, on: int = 1, *, times: int = 1
) -> list[str]:
    """Let the n-th call of a function of `os` fail, and `times` of them in a row."""
    real, seen = getattr(os, name), []

    def failing(*args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        if on <= len(seen) < on + times:
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, failing)
    return seen


STEPS = {
    "making the file": ("open", errno.ENOSPC, 5),
    "its mode": ("fchmod", errno.EPERM, 1),
    "its bytes": ("write", errno.ENOSPC, 1),
    "its sync": ("fsync", errno.EIO, 1),
    "its name": ("rename", errno.EIO, 1),
    "the sync of the folder": ("fsync", errno.EIO, 2),
}
MEANS = {
    errno.ENOSPC: "There is no room left for {} (ENOSPC). Free some space, or raise the quota or"
    " the file size limit, and try again.",
    errno.EPERM: "This process may not write the anchor in {0}. Run: chmod -R u+rwX {0}",
    errno.EIO: "The system could not write the anchor in {} (EIO). Look at the system's log for"
    " the cause before you try again.",
}


@pytest.mark.parametrize("thread", ["t", "new"])
@pytest.mark.parametrize(("name", "code", "on"), STEPS.values(), ids=STEPS)
def test_a_step_that_fails_leaves_the_old_head(
    anchor: FileAnchor,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    thread: str,
    name: str,
    code: int,
    on: int,
) -> None:
    before = tree(path)
    with monkeypatch.context() as patch:
        seen = fail(patch, name, code, on)
        with pytest.raises(AnchorUnavailable) as caught:
            anchor.advance("s", thread, head(6))
        assert len(seen) >= on
    assert str(caught.value) == MEANS[code].format(path)
    assert tree(path) == before
    assert anchor.read("s", thread) == (head(5) if thread == "t" else None)
    anchor.advance("s", thread, head(6))
    assert FileAnchor(path).read("s", thread) == head(6)


def test_a_write_of_nothing_is_a_failure(
    anchor: FileAnchor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(path)
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(AnchorUnavailable, match="EIO"):
        anchor.advance("s", "t", head(6))
    assert tree(path) == before


def test_a_disk_that_neither_confirms_nor_takes_back_says_so(
    anchor: FileAnchor, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "fsync", errno.EIO, 2, times=2)
    with pytest.raises(AnchorUnavailable) as caught:
        anchor.advance("s", "t", head(6))
    assert str(caught.value) == (
        f"{path}/t.head was written, but the disk neither confirmed it nor let it go."
        " Look at the system's log, and take a copy of the anchor, before you go on."
    )
    assert anchor.read("s", "t") == head(6)


@pytest.mark.parametrize("late", [3, 5], ids=["older", "same"])
def test_what_is_ignored_is_on_disk_too(
    anchor: FileAnchor, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """The writer of the head that is known may have died between the rename and its sync."""
    seen = fail(monkeypatch, "fsync", errno.EIO)
    with pytest.raises(AnchorUnavailable, match="EIO"):
        anchor.advance("s", "t", head(late))
    anchor.advance("s", "t", head(late))
    assert len(seen) == 2
    assert anchor.read("s", "t") == head(5)


def test_each_step_is_on_disk_before_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes, then the name that leads to them, then the folder that holds the name."""
    anchor = FileAnchor(path, create=True)
    log: list[str] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            folder = name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode)
            log.append("fsync of the folder" if folder else name)
            return result

        monkeypatch.setattr(os, name, step)

    for name in ("write", "fsync", "rename", "unlink"):
        watch(name)
    once = ["write", "fsync", "rename", "fsync of the folder"]
    anchor.advance("s", "t", head(5))
    assert log == [*once, *once], "first the name of the store, and then the head"
    log.clear()
    anchor.advance("s", "t", head(6))
    assert log == once
    log.clear()
    anchor.rewind("s", "t", head(2))
    assert log == once
    log.clear()
    anchor.rewind("s", "t", None)
    assert log == ["unlink", "fsync of the folder"]


@pytest.mark.parametrize("to", [head(2), None], ids=["older", "none"])
def test_a_rewind_that_the_disk_does_not_confirm_is_an_error(
    anchor: FileAnchor, monkeypatch: pytest.MonkeyPatch, to: Head | None
) -> None:
    fail(monkeypatch, "fsync", errno.EIO, 2 if to else 1)
    with pytest.raises(AnchorUnavailable, match="EIO"):
        anchor.rewind("s", "t", to)


@pytest.mark.parametrize(("name", "on"), [("rename", 1), ("write", 1), ("fsync", 2)])
def test_an_anchor_whose_beginning_fails_can_be_begun_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, on: int
) -> None:
    with monkeypatch.context() as patch:
        fail(patch, name, errno.EIO, on)
        with pytest.raises(AnchorUnavailable, match="could not open the anchor in"):
            FileAnchor(path, create=True)
    FileAnchor(path, create=True).advance("s", "t", head(1))
    assert FileAnchor(path).read("s", "t") == head(1)


@pytest.mark.parametrize(("name", "on"), [("rename", 1), ("fsync", 1), ("fsync", 2), ("rename", 2)])
def test_a_store_that_was_not_bound_can_be_bound_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, on: int
) -> None:
    """The first advance writes the store's name, and then the head."""
    anchor = FileAnchor(path, create=True)
    with monkeypatch.context() as patch:
        fail(patch, name, errno.EIO, on)
        with pytest.raises(AnchorUnavailable, match="EIO"):
            anchor.advance("s", "t", head(1))
    assert anchor.read("s", "t") is None
    anchor.advance("s", "t", head(1))
    assert FileAnchor(path).read("s", "t") == head(1)


def test_a_real_file_size_limit_leaves_the_old_head(anchor: FileAnchor, path: Path) -> None:
    """RLIMIT_FSIZE makes the kernel write 50 bytes of the line, then refuse."""
    before = tree(path)
    code = """
        import resource, sys
        from safepoint.anchor import FileAnchor
        from safepoint.errors import AnchorUnavailable
        anchor = FileAnchor(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
        for thread in ("t", "new"):
            try:
                anchor.advance("s", thread, head(6))
            except AnchorUnavailable as error:
                print(anchor.read("s", thread), error.what)
    """
    said = f"There is no room left for {path} (EFBIG)."
    assert python(code, str(path)) == f"#5 {said}\nNone {said}"
    assert tree(path) == before


@pytest.mark.parametrize("left", [b"", b"safepoint-anchor/1 s t 99 sha", b"x" * 5000])
def test_what_a_crash_left_is_never_read_and_goes_with_the_next_write(
    anchor: FileAnchor, path: Path, left: bytes
) -> None:
    (path / ".next").write_bytes(left)
    (path / ".next").chmod(0o000)
    assert FileAnchor(path).read("s", "t") == head(5)
    assert anchor.threads("s") == ["t"]
    anchor.advance("s", "t", head(6))
    assert not (path / ".next").exists()
    assert anchor.read("s", "t") == head(6)
