"""`make` sets itself up, repairs itself, and says in one line what is wrong.

All of it happens in a copy with a stand-in for pip that writes down each call, so that no test
reaches the network or touches the `.venv` it runs from. One test at the end uses the real pip.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = [
    "help",
    "serve",
    "site",
    "test",
    "deep",
    "check",
    "fix",
    "new-rule",
    "attacks",
    "demo",
    "fuzz",
    "bench",
    "lock",
    "clean",
    "distclean",
]
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

BACKEND = """
    from zipfile import ZipFile

    METADATA = "Metadata-Version: 2.1\\nName: safepoint\\nVersion: 0"

    def build_editable(folder, config_settings=None, metadata_directory=None):
        with ZipFile(folder + "/safepoint-0-py3-none-any.whl", "w") as wheel:
            info = "safepoint-0.dist-info/"
            wheel.writestr("safepoint_works.py", "")
            wheel.writestr(info + "METADATA", METADATA)
            wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any")
            wheel.writestr(info + "RECORD", "")
        return "safepoint-0-py3-none-any.whl"
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
        )

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **environment)
        said, complained = process.communicate(timeout=60)
        # The last line of a failure is make's own, and cannot be turned off.
        complained = re.sub(r"^make: .*\n", "", complained, flags=re.MULTILINE)
        return subprocess.CompletedProcess(arguments, process.returncode, said, complained)

    def set_up(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.make(".venv/.ready", **environment)

    @property
    def pip_calls(self) -> list[str]:
        log = self.path / "pip.log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return copy_into(tmp_path / "a clone")


@pytest.fixture
def ready(clone: Clone) -> Clone:
    assert clone.set_up().returncode == 0
    return clone


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """One that is set up, for the tests that leave it as it is."""
    shared = copy_into(tmp_path_factory.mktemp("shared") / "a clone")
    assert shared.set_up().returncode == 0
    return shared


def copy_into(folder: Path) -> Clone:
    folder.mkdir()
    for name in ("Makefile", "bootstrap.py"):
        shutil.copy(ROOT / name, folder)
    (folder / "requirements.txt").touch()
    (folder / "pyproject.toml").touch()
    (folder / "stub_pip").write_text(dedent(PIP))
    script(folder / "python", dedent(PYTHON).format(real=sys.executable))
    return Clone(folder)


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_help_is_the_default_and_lists_every_target(clone: Clone) -> None:
    listed = clone.make().stdout
    assert listed == clone.make("help").stdout
    assert re.findall(r"^  make ([\w-]+) +\S", listed, re.MULTILINE) == TARGETS
    assert len({len(line) - len(line.split(maxsplit=2)[2]) for line in listed.splitlines()}) == 1


def test_every_listed_target_is_phony() -> None:
    """A file named like a target would otherwise switch the target off."""
    [phony] = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(TARGETS) <= set(phony.split())


def test_first_run_installs_the_lock_and_then_the_package(clone: Clone) -> None:
    done = clone.set_up()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Setting up .venv with Python 3.")
    assert done.stdout.count("\n") == 1
    [lock, package] = clone.pip_calls
    assert " --require-hashes -r " in lock
    assert package.endswith(" --no-build-isolation -e .")
    assert all(" --no-deps " in call for call in (lock, package))


LOCK = """# One
a==1 \\
    --hash=sha256:00
# Two
torch==2
# Three
triton==3 \\
    --hash=sha256:11
"""


@pytest.mark.parametrize("wants", ["filelock", "triton==3"])
def test_pytorch_gets_what_its_build_needs_and_only_what_is_locked(
    clone: Clone, wants: str
) -> None:
    """A build for GPUs does not import without packages that one without them never needs."""
    (clone.path / "requirements.txt").write_text(LOCK)
    assert clone.set_up(WANTS=wants).returncode == 0
    installed = (clone.path / "parts.log").read_text()
    calls = [call for call in clone.pip_calls if " -r " in call]
    assert all(" --no-deps " in call for call in calls)
    assert [" --require-hashes " in call for call in calls] == (
        [True, False, True] if "triton" in wants else [True, False]
    )
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert installed.splitlines() == lines[: None if "triton" in wants else 3]


def test_second_run_is_silent_and_calls_no_pip(unchanged: Clone) -> None:
    before = unchanged.pip_calls
    done = unchanged.set_up()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert unchanged.pip_calls == before


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
def test_changed_requirements_update_what_is_there(ready: Clone, name: str) -> None:
    kept = ready.path / ".venv" / "kept"
    kept.touch()
    (ready.path / name).write_text("# changed")
    assert ready.set_up().stdout == "Updating .venv to the current requirements.\n"
    assert len(ready.pip_calls) == 4
    assert kept.exists()


def test_failed_pip_is_shown_and_the_next_run_starts_afresh(ready: Clone) -> None:
    (ready.path / "requirements.txt").write_text("# changed")
    (ready.path / "pip.fails").touch()
    failed = ready.set_up()
    assert failed.returncode == 2
    [reason, line] = failed.stderr.splitlines()
    assert reason == "no route to the index"
    assert line.startswith("Set-up failed while installing requirements.txt; the reason is above.")
    (ready.path / "pip.fails").unlink()
    repaired = ready.set_up()
    assert repaired.returncode == 0
    assert repaired.stdout.startswith("Setting up .venv")


def test_broken_interpreter_is_replaced(ready: Clone) -> None:
    python = ready.path / ".venv" / "bin" / "python"
    python.unlink()
    script(python, "#!/bin/sh\nexit 1\n")
    assert ready.set_up().stdout.startswith("Setting up .venv")
    assert subprocess.run([python, "-c", ""], check=False).returncode == 0


def test_environment_of_another_python_version_is_replaced(ready: Clone) -> None:
    """An upgrade of the system's Python leaves a `.venv` that runs and finds no package."""
    stamp = ready.path / ".venv" / ".ready"
    stamp.write_text(re.sub(r" 3 \d+\n", " 3 10\n", stamp.read_text()))
    assert ready.set_up().stdout.startswith("Setting up .venv")


def test_moved_folder_is_set_up_again(ready: Clone) -> None:
    """Scripts and the editable install hold the old path, so nothing of it may stay."""
    moved = Clone(ready.path.rename(ready.path.with_name("moved")))
    assert moved.set_up().stdout.startswith("Setting up .venv")
    assert str(moved.path) in (moved.path / ".venv" / ".ready").read_text()
    assert moved.set_up().stdout == ""


def start_slowly(clone: Clone) -> subprocess.Popen[str]:
    """Begin a set-up whose pip goes on for as long as the file pip.slow is there."""
    (clone.path / "pip.slow").touch()
    process = clone.start(".venv/.ready")
    while not clone.pip_calls:
        assert process.poll() is None
        time.sleep(0.02)
    return process


def wait_for_it(clone: Clone) -> subprocess.Popen[str]:
    """Begin another set-up, see that it waits, and let the slow pip end."""
    process = clone.start(".venv/.ready")
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first == "Waiting for another make to finish setting up .venv.\n"
    (clone.path / "pip.slow").unlink()
    return process


def test_two_at_once_set_up_once(clone: Clone) -> None:
    first = start_slowly(clone)
    second = wait_for_it(clone)
    assert first.communicate(timeout=60)[0].startswith("Setting up .venv")
    assert second.communicate(timeout=60)[0] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(clone.pip_calls) == 2


def test_killed_set_up_blocks_nobody_and_is_made_anew(clone: Clone) -> None:
    """The next run waits for the orphaned pip, so that nothing is deleted under it."""
    killed = start_slowly(clone)
    os.kill(int(clone.pip_calls[0].split()[0]), signal.SIGKILL)
    killed.wait(timeout=60)
    second = wait_for_it(clone)
    assert second.communicate(timeout=60)[0].startswith("Setting up .venv")
    assert second.returncode == 0
    assert len(clone.pip_calls) == 3
    killed.communicate(timeout=60)


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_python_without_venv_gets_one_line(clone: Clone, module: str) -> None:
    done = clone.set_up(WITHOUT=module)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"has no module {module}. Install it (on Debian and Ubuntu: apt install" in done.stderr


def test_old_python_makes_way_for_a_newer_one(clone: Clone, tmp_path: Path) -> None:
    script(tmp_path / "old", "#!/bin/sh\nexit 1\n")
    (clone.path / "python").rename(tmp_path / "python3.12")
    script(tmp_path / "python3.13", "#!/bin/sh\nexit 1\n")
    done = clone.set_up(PYTHON=str(tmp_path / "old"), PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(clone.pip_calls) == 2


def test_no_new_python_gets_one_line(clone: Clone, tmp_path: Path) -> None:
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        script(tmp_path / name, "#!/bin/sh\nexit 1\n")
    done = clone.set_up(PYTHON="python3", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 2
    assert done.stderr == (
        "No Python 3.11 or newer found. Install one, or name it: make PYTHON=/path/to/python3\n"
    )


def test_busy_port_gets_one_line(unchanged: Clone) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        done = unchanged.make("serve", f"PORT={port}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (f"Port {port} is in use. Try: make serve PORT={port % 65535 + 1}\n")


@pytest.mark.parametrize("port", ["abc", "", "0", "-1", "65536", "80.5"])
def test_impossible_port_gets_one_line(unchanged: Clone, port: str) -> None:
    done = unchanged.make("serve", f"PORT={port}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "PORT is a number from 1 to 65535. Try: make serve PORT=8001\n"


def test_host_of_another_machine_gets_one_line(unchanged: Clone) -> None:
    done = unchanged.make("serve", "HOST=192.0.2.1", "PORT=8765")
    assert done.returncode == 2
    assert re.fullmatch(r"Cannot listen on 192\.0\.2\.1:8765 \(.+\)\. Try: .+\n", done.stderr)


@pytest.mark.parametrize("flags", [[], ["-e"]], ids=["", "-e"])
def test_a_host_in_the_environment_does_not_open_the_site_to_others(
    unchanged: Clone, flags: list[str]
) -> None:
    """Only one that is typed as an argument of make counts."""
    plan = unchanged.make("-n", *flags, "serve", HOST="192.0.2.9", PORT="8765").stdout
    assert '"127.0.0.1:8765"' in plan
    assert "192.0.2.9" not in plan
    assert '"192.0.2.1:8765"' in unchanged.make("-n", "serve", "HOST=192.0.2.1", "PORT=8765").stdout


def test_test_runs_everything_in_order(clone: Clone) -> None:
    plan = clone.make("-n", "test").stdout
    steps = ["ruff check", "ruff format --check", "mypy", "mypy", "callouts --check", "pytests"]
    found = re.findall(rf"^\S*python -m (?:\S+harness\.)?({'|'.join(steps)})", plan, re.MULTILINE)
    assert found == steps
    typed = clone.make("-n", "test", "ARGS=-k codec").stdout
    assert typed == plan.replace("harness.pytests ", "harness.pytests -k codec")
    deep = clone.make("-n", "deep").stdout
    for step in ("pytests -m deep", "--hypothesis-profile=fuzz", "census --both"):
        assert step in deep


@pytest.mark.parametrize("title", ["", 'Two "writers" cannot; both $win'])
def test_new_rule_takes_what_is_typed_and_needs_none_of_it(clone: Clone, title: str) -> None:
    (clone.path / "publish").mkdir()
    (clone.path / "publish/new_rule.py").write_text("import sys; print(sys.argv[1:])")
    typed = [f"TITLE={title.replace('$', '$$')}", "PAGE=x"] if title else []
    said = clone.make("new-rule", *typed, "ARGS=--left").stdout.splitlines()[-1]
    given = {"--title": title, "--severity": "", "--theme": "", "--page": "x" if title else ""}
    assert said == repr([each for pair in given.items() for each in pair] + ["--left"])


def test_clean_keeps_the_environment_and_distclean_does_not(ready: Clone) -> None:
    for folder in ("site", "build", "src/__pycache__", ".mypy_cache", ".venv/lib/__pycache__"):
        (ready.path / folder).mkdir(parents=True)
    ready.make("clean")
    assert not {"site", "build", ".mypy_cache"} & {path.name for path in ready.path.iterdir()}
    assert not (ready.path / "src" / "__pycache__").exists()
    assert (ready.path / ".venv" / "lib" / "__pycache__").exists()
    ready.make("distclean")
    assert not (ready.path / ".venv").exists()


@pytest.mark.deep
def test_real_pip_accepts_what_it_is_told(clone: Clone) -> None:
    """The one slow test: a whole set-up, with a package that needs nothing from outside."""
    (clone.path / "backend.py").write_text(dedent(BACKEND))
    (clone.path / "pip.py").write_text("raise SystemExit('a file that happens to be called pip')")
    (clone.path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "safepoint"\nversion = "0"\n'
    )
    done = clone.set_up(PYTHON=sys.executable)
    assert (done.returncode, done.stderr) == (0, "")
    python = clone.path / ".venv" / "bin" / "python"
    subprocess.run([python, "-c", "import safepoint_works"], check=True)


def ci(tmp_path: Path, *programs: str, outcome: int) -> tuple[int, list[str]]:
    """Run `.ci/run` where make, apt-get and sudo only write down how they were called."""
    log, tried = tmp_path / "log", tmp_path / "tried"
    for name in ("bash", "dirname", "id", "env"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    script(tmp_path / "make", f'#!/bin/sh\necho "make $* $CI $PWD" >>"{log}"\nexit {outcome}\n')
    script(
        tmp_path / "apt-get",
        f'#!/bin/sh\necho "apt-get $DEBIAN_FRONTEND $*" >>"{log}"\n'
        f'[ "$1" = update ] || [ -e "{tried}" ] || {{ : >"{tried}"; exit 100; }}\n',
    )
    script(tmp_path / "sudo", '#!/bin/sh\nshift\nexec "$@"\n')
    script(tmp_path / "sleep", "#!/bin/sh\n")
    for name in programs:
        script(tmp_path / name, "#!/bin/sh\n")
    done = subprocess.run(
        [ROOT / ".ci" / "run"], cwd=tmp_path, env={"PATH": str(tmp_path)}, check=False
    )
    return done.returncode, log.read_text().splitlines()


@pytest.mark.parametrize("outcome", [0, 3])
def test_ci_runs_make_test_from_anywhere_and_ends_as_it_does(tmp_path: Path, outcome: int) -> None:
    code, calls = ci(tmp_path, "chromium", "java", outcome=outcome)
    assert code == outcome
    assert calls == [f"make test true {ROOT}"]


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ("java", "chromium fonts-dejavu-core"),
        ("chromium", "default-jre-headless"),
        ("git", "chromium fonts-dejavu-core default-jre-headless"),
    ],
)
def test_ci_installs_what_is_missing_and_tries_twice(
    tmp_path: Path, there: str, missing: str
) -> None:
    code, calls = ci(tmp_path, there, outcome=0)
    assert code == 0
    assert calls == [
        "apt-get  update -qq",
        f"apt-get noninteractive install -y -qq --no-install-recommends {missing}",
    ] * 2 + [f"make test true {ROOT}"]
