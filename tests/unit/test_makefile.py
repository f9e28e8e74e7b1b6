"""`make` sets itself up, repairs itself, and says in one line what is wrong.

All of it happens in a copy with a stand-in for pip that writes down each call, so that no test
reaches the network or touches the `.venv` it runs from.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parents[2]
OF_MAKE = re.compile(r"MAKE|MFLAGS$|(PYTHON|HOST|PORT|ARGS)$")

PIP = """
    import os, sys, time
    from pathlib import Path

    with Path("pip.log").open("a") as log:
        print(os.getppid(), *sys.argv[1:], file=log)
    if "-r" in sys.argv and "torch==" in Path(sys.argv[-1]).read_text():
        info = Path(__file__).parents[1] / "torch-2.dist-info"
        info.mkdir(exist_ok=True)
        info.joinpath("METADATA").write_text("Name: torch\\nRequires-Dist: " + os.environ["WANTS"])
    with Path("parts.log").open("a") as log:
        log.write(Path(sys.argv[-1]).read_text() if "-r" in sys.argv else "")
    while Path("pip.slow").exists():
        time.sleep(0.02)
    if Path("pip.fails").exists():
        sys.exit("no route to the index")
"""

PYTHON = """\
    #!/bin/sh
    case "$1 $2" in
    "bootstrap.py "*)
        exec "{real}" -c '
    import os, runpy, sys
    sys.executable = sys.argv[1]
    sys.modules.update(dict.fromkeys(os.environ.get("WITHOUT", "").split()))
    runpy.run_path("bootstrap.py", run_name="__main__")' "$0" ;;
    "-m venv")
        "{real}" -m venv --without-pip "$3"
        for packages in "$3"/lib/python*/site-packages; do
            mkdir "$packages/pip" && cp stub_pip "$packages/pip/__main__.py"
        done ;;
    *) exec "{real}" "$@" ;;
    esac
"""


LOCK = """# One
a==1 \\
    --hash=sha256:00
# Two
torch==2
# Three
triton==3 \\
    --hash=sha256:11
"""


@dataclass
class Clone:
    """A copy of the machinery, with a package of nothing."""

    path: Path

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        inherited = {name: value for name, value in os.environ.items() if not OF_MAKE.match(name)}
        return subprocess.Popen(
            ["make", *arguments],
            cwd=self.path,
            env=inherited | {"PYTHON": str(self.path / "python")} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def make(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Return the exit status, and what was said and complained."""
        process = self.start(*arguments, **environment)
        said, complained = process.communicate(timeout=300)
        # The last line of a failure is make's own, and cannot be turned off.
        complained = re.sub(r"^make: .*\n", "", complained, flags=re.MULTILINE)
        return process.returncode, said, complained

    def set_up(self, **environment: str) -> str:
        code, said, complained = self.make(".venv/.ready", **environment)
        assert (code, complained) == (0, "")
        return said

    @property
    def pip_calls(self) -> list[str]:
        log = self.path / "pip.log"
        return log.read_text().splitlines() if log.exists() else []


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("Makefile", "bootstrap.py"):
        shutil.copy(ROOT / name, folder)
    (folder / "requirements.txt").touch()
    (folder / "pyproject.toml").touch()
    (folder / "stub_pip").write_text(dedent(PIP))
    script(folder / "python", dedent(PYTHON).format(real=sys.executable))
    return Clone(folder)


def test_help_is_the_default_and_no_file_switches_a_target_off(clone: Clone) -> None:
    listed = clone.make()[1]
    assert listed == clone.make("help")[1]
    targets = re.findall(r"^  make ([\w-]+) +\S", listed, re.MULTILINE)
    text = (ROOT / "Makefile").read_text()
    [phony] = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert sorted([*targets, "always"]) == sorted(phony.split())
    assert {"serve", "test", "deep", "check", "fix", "attacks", "bench"} <= {*targets}


def test_a_set_up_is_made_kept_updated_and_made_anew_when_it_is_not_whole(clone: Clone) -> None:
    """Not whole: pip failed, the interpreter is broken or another one, the folder was moved."""
    said = clone.set_up()
    assert said.startswith("Setting up .venv with Python 3.")
    assert said.count("\n") == 1
    [lock, package] = clone.pip_calls
    assert " --require-hashes -r " in lock
    assert package.endswith(" --no-build-isolation -e .")
    assert all(" --no-deps " in call for call in (lock, package))
    assert clone.set_up() == ""
    assert len(clone.pip_calls) == 2

    for name in ("requirements.txt", "pyproject.toml"):
        kept = clone.path / ".venv" / "kept"
        kept.touch()
        (clone.path / name).write_text("# changed")
        assert clone.set_up() == "Updating .venv to the current requirements.\n"
        assert kept.exists()

    (clone.path / "requirements.txt").write_text("# changed again")
    (clone.path / "pip.fails").touch()
    code, _, complained = clone.make(".venv/.ready")
    assert code == 2
    [reason, line] = complained.splitlines()
    assert reason == "no route to the index"
    assert line.startswith("Set-up failed while installing requirements.txt; the reason is above.")
    (clone.path / "pip.fails").unlink()
    assert clone.set_up().startswith("Setting up .venv")

    python = clone.path / ".venv" / "bin" / "python"
    python.unlink()
    script(python, "#!/bin/sh\nexit 1\n")
    assert clone.set_up().startswith("Setting up .venv")
    stamp = clone.path / ".venv" / ".ready"
    stamp.write_text(re.sub(r" 3 \d+\n", " 3 10\n", stamp.read_text()))
    assert clone.set_up().startswith("Setting up .venv")
    moved = Clone(clone.path.rename(clone.path.with_name("moved")))
    assert moved.set_up().startswith("Setting up .venv")
    assert str(moved.path) in (moved.path / ".venv" / ".ready").read_text()

    for folder in ("site", "build", "src/__pycache__", ".mypy_cache", ".venv/lib/__pycache__"):
        (moved.path / folder).mkdir(parents=True)
    moved.make("clean")
    assert not {"site", "build", ".mypy_cache"} & {path.name for path in moved.path.iterdir()}
    assert not (moved.path / "src" / "__pycache__").exists()
    assert (moved.path / ".venv" / "lib" / "__pycache__").exists()
    moved.make("distclean")
    assert not (moved.path / ".venv").exists()


@pytest.mark.parametrize("wants", ["filelock", "triton==3"])
def test_pytorch_gets_what_its_build_needs_and_only_what_is_locked(
    clone: Clone, wants: str
) -> None:
    """A build for GPUs does not import without packages that one without them never needs."""
    (clone.path / "requirements.txt").write_text(LOCK)
    clone.set_up(WANTS=wants)
    installed = (clone.path / "parts.log").read_text()
    calls = [call for call in clone.pip_calls if " -r " in call]
    assert all(" --no-deps " in call for call in calls)
    hashed = [True, False, True] if "triton" in wants else [True, False]
    assert [" --require-hashes " in call for call in calls] == hashed
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert installed.splitlines() == lines[: None if "triton" in wants else 3]


def test_two_at_once_set_up_once(clone: Clone) -> None:
    slow = clone.path / "pip.slow"
    slow.touch()
    first = clone.start(".venv/.ready")
    while not clone.pip_calls:
        assert first.poll() is None
        time.sleep(0.02)
    second = clone.start(".venv/.ready")
    assert second.stdout is not None
    assert second.stdout.readline() == "Waiting for another make to finish setting up .venv.\n"
    slow.unlink()
    assert second.communicate(timeout=300)[0] == ""
    assert first.communicate(timeout=300)[0].startswith("Setting up .venv")
    assert len(clone.pip_calls) == 2


def test_a_python_that_cannot_is_passed_over_or_gets_one_line(clone: Clone, tmp_path: Path) -> None:
    for module in ("venv", "ensurepip"):
        code, _, said = clone.make(".venv/.ready", WITHOUT=module)
        assert (code, said.count("\n")) == (2, 1)
        assert f"has no module {module}. Install it (on Debian and Ubuntu: apt install" in said
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        script(tmp_path / name, "#!/bin/sh\nexit 1\n")
    where = {"PYTHON": "python3", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert clone.make(".venv/.ready", **where) == (
        2,
        "",
        "No Python 3.11 or newer found. Install one, or name it: make PYTHON=/path/to/python3\n",
    )
    (clone.path / "python").rename(tmp_path / "python3.12")
    clone.set_up(**where)
    assert len(clone.pip_calls) == 2


def test_serve_is_for_this_machine_and_says_in_one_line_why_it_cannot(clone: Clone) -> None:
    """Only a host that is typed as an argument of make opens the site to others."""
    clone.set_up()
    for flags in ([], ["-e"]):
        plan = clone.make("-n", *flags, "serve", HOST="192.0.2.9", PORT="8765")[1]
        assert '"127.0.0.1:8765"' in plan
        assert "192.0.2.9" not in plan
    assert '"192.0.2.1:8765"' in clone.make("-n", "serve", "HOST=192.0.2.1", "PORT=8765")[1]
    code, _, said = clone.make("serve", "HOST=192.0.2.1", "PORT=8765")
    assert code == 2
    assert re.fullmatch(r"Cannot listen on 192\.0\.2\.1:8765 \(.+\)\. Try: .+\n", said)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        said = f"Port {port} is in use. Try: make serve PORT={port % 65535 + 1}\n"
        assert clone.make("serve", f"PORT={port}") == (2, "", said)
    said = "PORT is a number from 1 to 65535. Try: make serve PORT=8001\n"
    for wrong in ("abc", "", "0", "65536", "80.5"):
        assert clone.make("serve", f"PORT={wrong}") == (2, "", said), wrong


def test_what_is_typed_reaches_the_program(clone: Clone) -> None:
    clone.set_up()
    assert "harness.pytests -k codec" in clone.make("-n", "test", "ARGS=-k codec")[1]
    plans = {name: clone.make("-n", name)[1] for name in ("check", "deep")}
    for step in ("ruff check", "ruff format --check", "mypy", "lint src", "typos", "prose"):
        assert step in plans["check"]
    for step in ("mypy", "pytests -m deep", "--hypothesis-profile=fuzz", "census --both"):
        assert step in plans["deep"]


@pytest.mark.parametrize(
    ("there", "missing", "outcome"),
    [
        (("chromium", "java"), "", 3),
        (("java",), "chromium fonts-dejavu-core", 0),
        ((), "chromium fonts-dejavu-core default-jre-headless", 3),
    ],
)
def test_ci_installs_what_is_missing_and_ends_as_make_test_does(
    tmp_path: Path, there: tuple[str, ...], missing: str, outcome: int
) -> None:
    """From anywhere. Here make, apt-get and sudo only write down how they were called."""
    log, tried = tmp_path / "log", tmp_path / "tried"
    for name in ("bash", "dirname", "id", "env"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    fails_once = f'[ "$1" = update ] || [ -e "{tried}" ] || {{ : >"{tried}"; exit 100; }}'
    for name, does in {
        "make": f'echo "make $* $CI $PWD" >>"{log}"\n[ "$1" != test ] || exit {outcome}',
        "apt-get": f'echo "apt-get $DEBIAN_FRONTEND $*" >>"{log}"\n{fails_once}',
        "sudo": 'shift\nexec "$@"',
        **dict.fromkeys(("sleep", *there), ""),
    }.items():
        script(tmp_path / name, f"#!/bin/sh\n{does}\n")
    command = [ROOT / ".ci" / "run"]
    done = subprocess.run(command, cwd=tmp_path, env={"PATH": str(tmp_path)}, check=False)
    assert done.returncode == outcome
    installs = [
        "apt-get  update -qq",
        f"apt-get noninteractive install -y -qq --no-install-recommends {missing}",
    ]
    lines, beside = log.read_text().splitlines(), f"make .venv/.ready true {ROOT}"
    lines.remove(beside)
    assert lines == [*installs * (2 if missing else 0), f"make test true {ROOT}"]
