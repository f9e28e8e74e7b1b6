"""A key file that is being made: cut short at any instant, taken for a left-over, or raced for."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from safepoint import KeyRefused, SigningKey
from safepoint.keys import VerifyingKey

LEFT = ".safepoint-key-" + "0" * 32


def python(code: str, *arguments: str) -> str:
    """Run code in a process of its own; its output comes back."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Counts each call into the system, and kills its own process with SIGKILL right after the n-th.
# One driver forks a child per step, so that this costs a fork and not a start of Python.
EACH_STEP = """
    import fcntl, json, os, signal, sys
    from safepoint import SigningKey

    NAMES = ["open", "mkdir", "fchmod", "fdopen", "fsync", "link", "unlink", "close", "scandir"]
    ground, last = sys.argv[1], 0

    def run(path, kill_after, log):
        def hook(module, name):
            real = getattr(module, name)
            def step(*args, **kwargs):
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
        SigningKey.from_file(path, create=True)
        return log

    outcomes = []
    while True:
        last += 1
        pid = os.fork()
        if not pid:
            try:
                log = run(f"{ground}/{last}/key", last, [])
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


def test_sigkill_after_each_step(tmp_path: Path) -> None:
    """The key is absent or whole, the next start has one, and nothing else is left then."""
    outcomes = json.loads(python(EACH_STEP, str(tmp_path)))
    assert outcomes[-1] == 0
    assert set(outcomes[:-1]) == {-signal.SIGKILL}
    steps = json.loads((tmp_path / "log").read_text())
    assert len(steps) == len(outcomes) - 1
    assert Counter(steps)["link"] == 1
    linked = steps.index("link") + 1
    left = 0
    for killed_after in range(1, len(outcomes) + 1):
        folder = tmp_path / str(killed_after)
        folder.mkdir(mode=0o700, exist_ok=True)
        left += any(name != "key" for name in names(folder))
        before = SigningKey.from_file(folder / "key") if killed_after >= linked else None
        assert (folder / "key").exists() == (before is not None)
        after = SigningKey.from_file(folder / "key", create=True)
        assert before in (None, after)
        assert SigningKey.from_file(folder / "key") == after
        assert names(folder) == ["key"]
        assert (folder / "key").stat().st_nlink == 1
    assert left >= 6


RACE = """
    import os, sys
    from safepoint import SigningKey

    ground = sys.argv[1]
    for attempt in range(20):
        ours, theirs = os.pipe()
        answers, answer = os.pipe()
        children = []
        for _ in range(6):
            pid = os.fork()
            if not pid:
                try:
                    os.close(theirs)
                    os.read(ours, 1)
                    key = SigningKey.from_file(f"{ground}/{attempt}/key", create=True)
                    os.write(answer, key.id.encode())
                except BaseException as error:
                    sys.excepthook(type(error), error, error.__traceback__)
                    os._exit(99)
                os._exit(0)
            children.append(pid)
        for fd in (ours, theirs, answer):
            os.close(fd)
        for pid in children:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        told = os.read(answers, 4096)
        os.close(answers)
        assert len(told) == 6 * 16 and told == told[:16] * 6, told
        assert os.listdir(f"{ground}/{attempt}") == ["key"]
    print("one key each")
"""


def test_of_several_processes_that_start_at_once_one_makes_the_key(tmp_path: Path) -> None:
    """And each of the others reads that one, whatever it sees of the file on its way in."""
    assert python(RACE, str(tmp_path)) == "one key each"


def test_each_step_is_on_disk_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes, then the name that leads to them, then the folder; the first name goes last."""
    log: list[str] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            folder = name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode)
            log.append("fsync of the folder" if folder else name)
            return result

        monkeypatch.setattr(os, name, step)

    for name in ("fsync", "link", "unlink"):
        watch(name)
    SigningKey.generate().to_file(tmp_path / "key")
    assert log == ["fsync", "link", "fsync of the folder", "unlink"]


def test_who_comes_second_waits_for_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that made the key may die before its own sync; a sealed record needs the key."""
    first = SigningKey.generate()
    synced: list[int] = []
    link, sync = os.link, os.fsync

    def late(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        first.to_file(tmp_path / "key")
        synced.clear()
        link(*args, **kwargs)

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "link", late)
    monkeypatch.setattr(os, "fsync", fsync)
    assert SigningKey.from_file(tmp_path / "key", create=True) == first
    assert synced == [tmp_path.stat().st_ino]
    (tmp_path / LEFT).hardlink_to(tmp_path / "key")
    synced.clear()
    assert SigningKey.from_file(tmp_path / "key", create=True) == first
    assert synced == [tmp_path.stat().st_ino]


def test_a_file_that_was_taken_for_a_left_over_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who cleans came between its making and its lock, or removed it by hand."""
    key, lost = SigningKey.generate(), 2
    real = os.link

    def link(temp: str, *args: Any, **kwargs: Any) -> None:
        nonlocal lost
        if lost:
            lost -= 1
            (tmp_path / temp).unlink()
        real(temp, *args, **kwargs)

    monkeypatch.setattr(os, "link", link)
    key.to_file(tmp_path / "key")
    assert SigningKey.from_file(tmp_path / "key") == key
    lost = 100
    with pytest.raises(KeyRefused, match=re.escape(os.strerror(errno.EBUSY))):
        key.to_file(tmp_path / "other")
    assert names(tmp_path) == ["key"]
    lost = 0
    with monkeypatch.context() as patch:
        held = iter([BlockingIOError(), None, None])

        def flock(descriptor: int, operation: int) -> None:
            problem = next(held)
            if problem:
                raise problem

        patch.setattr(fcntl, "flock", flock)
        key.to_file(tmp_path / "other")
    assert names(tmp_path) == ["key", "other"]


def test_left_overs_go_and_nothing_else_does(tmp_path: Path) -> None:
    """Of a living writer, who holds a lock, nothing is taken; nor what only looks alike."""
    other = f"{LEFT[:-1]}1"
    kept = [LEFT[:-1], f"{LEFT}.bak", ".safepoint-key-" + "g" * 32, "0" * 32]
    for name in (LEFT, other, *kept):
        (tmp_path / name).touch(mode=0o600)
    pipe, hidden = f"{LEFT[:-1]}2", f"{LEFT[:-1]}3"
    os.mkfifo(tmp_path / pipe)
    (tmp_path / hidden).touch(mode=0o000)
    with (tmp_path / other).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        SigningKey.from_file(tmp_path / "key", create=True)
        assert names(tmp_path) == sorted([*kept, other, pipe, "key"])
    SigningKey.from_file(tmp_path / "key", create=True)
    assert names(tmp_path) == sorted([*kept, pipe, "key"])


def test_a_left_over_that_its_umask_hid_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / LEFT).touch(mode=0o600)
    real = os.open

    def hidden(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == LEFT:
            raise PermissionError(errno.EACCES, "hidden")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", hidden)
    SigningKey.generate().to_file(tmp_path / "key")
    assert names(tmp_path) == ["key"]


def test_a_key_has_two_names_while_it_is_published_and_is_read_all_the_same(tmp_path: Path) -> None:
    """After a crash at that moment, too, and by readers who can remove nothing."""
    key = SigningKey.generate("ed25519")
    key.to_file(tmp_path / "key")
    key.public.to_file(tmp_path / "public")
    (tmp_path / LEFT).hardlink_to(tmp_path / "key")
    (tmp_path / f"{LEFT[:-1]}1").hardlink_to(tmp_path / "public")
    assert SigningKey.from_file(tmp_path / "key") == key
    assert VerifyingKey.from_file(tmp_path / "public") == key.public
    assert len(names(tmp_path)) == 4
    (tmp_path / "planted").hardlink_to(tmp_path / "key")
    with pytest.raises(KeyRefused, match=r"has a second name \(hard link\)"):
        SigningKey.from_file(tmp_path / "key")


def test_a_key_that_is_published_meanwhile_raises_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first name is gone when the folder is listed, or goes while it is."""
    key = SigningKey.generate()
    key.to_file(tmp_path / "key")
    real = os.scandir
    for before in (True, False):
        (tmp_path / LEFT).hardlink_to(tmp_path / "key")

        def scandir(path: Any, before: bool = before) -> Any:
            if before:
                (tmp_path / LEFT).unlink()
                return real(path)
            entries = real(path)

            class Late:
                def __enter__(self) -> Any:
                    listed = list(entries)
                    (tmp_path / LEFT).unlink()
                    return iter(listed)

                def __exit__(self, *_: object) -> None:
                    entries.close()

            return Late()

        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", scandir)
            assert SigningKey.from_file(tmp_path / "key") == key
        assert names(tmp_path) == ["key"]


def test_a_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(KeyRefused) as refusal:
        SigningKey.generate().to_file(tmp_path / "key")
    assert str(refusal.value) == (
        f"The key file {tmp_path}/key cannot be made (Operation not permitted). "
        "Name a file in a folder that you can write, on a file system with hard links."
    )
    assert names(tmp_path) == []


def test_no_name_at_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyRefused, match=r"cannot be made \(No such file or directory\)"):
        SigningKey.generate().to_file("")
    assert names(tmp_path) == []
