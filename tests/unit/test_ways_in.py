"""The hook, the action and the job: each run as its tool runs it, as far as that needs no network.

The real pre-commit runs the hooks, in an environment that is there already. The scripts of the
action and of the job run as they are, and install this checkout with pip, whose build needs what
the tests have anyway.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.json_schemas import ACTION, GITLAB, SARIF, complaints

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent
UNSAFE = "import torch\ntorch.load('model.pt', weights_only=False)\n"


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of somebody else, with one file that fails."""
    folder = tmp_path / "a project"
    (folder / "src").mkdir(parents=True)
    (folder / "src/train.py").write_text(UNSAFE)
    (folder / "src/fine.py").write_text("x = 1\n")
    monkeypatch.chdir(folder)
    return folder


def run(command: list[str], folder: Path, **variables: object) -> subprocess.CompletedProcess[str]:
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
    told = {name: str(value) for name, value in variables.items()}
    environment = {**os.environ, "PATH": path, "PYTHONSAFEPATH": "1", **told}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]
    done = run(["git", *who, *arguments], folder)
    assert done.returncode == 0, done.stderr


# --- pre-commit ---------------------------------------------------------------------------------


def test_pre_commit_runs_the_hook_on_what_is_committed(project: Path, tmp_path: Path) -> None:
    """Instead of an environment of its own, for which it asks an index, it takes ours."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    text = (
        (ROOT / ".pre-commit-hooks.yaml")
        .read_text()
        .replace("language: python", "language: system")
    )
    (hooks / ".pre-commit-hooks.yaml").write_text(text)
    for folder in (hooks, project):
        git(folder, "init", "-q")
        git(folder, "add", "-A")
    git(hooks, "commit", "-qm", "Hooks")

    def hook(name: str, *files: str) -> subprocess.CompletedProcess[str]:
        command = [str(TOOLS / "pre-commit"), "try-repo", str(hooks), name, "--verbose"]
        chosen = ["--files", *files] if files else ["--all-files"]
        return run([*command, *chosen], project, PRE_COMMIT_HOME=tmp_path / "home")

    done = hook("safepoint-lint")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"src/train\.py'?:2:1'? has SL02", done.stdout)
    assert "1 warning" in done.stdout
    assert hook("safepoint-lint", "src/fine.py").returncode == 0
    (project / "safepoint.toml").write_text("")
    done = hook("safepoint-audit", "src/fine.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "exit code: 2" in done.stdout  # since the settings name nothing to look at


# --- the action of GitHub, and the job of GitLab ------------------------------------------------

OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # which is how pip spells it
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_NO_DEPS": "1",
    "PYTHONPATH": sysconfig.get_path("purelib"),
    "PYTHONSAFEPATH": "",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is needed to install this checkout, apart from it: a build may write beside it."""
    copy = tmp_path_factory.mktemp("source") / "safepoint"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def plant(project: Path) -> None:
    """Let the project have modules that nothing that looks at it may import."""
    for module in ("venv", "pip", "safepoint"):
        (project / f"{module}.py").write_text("raise SystemExit('code of the project ran')\n")


def test_schemas_take_the_action_and_the_job() -> None:
    assert complaints(ACTION, read("action.yml")) == []
    assert complaints(GITLAB, read("gitlab.yml")) == []


@pytest.mark.deep
def test_the_action_annotates_fails_and_leaves_sarif(
    project: Path, tmp_path: Path, source: Path
) -> None:
    plant(project)
    action = read("action.yml")
    steps = action["runs"]["steps"]
    inputs = {name: str(each["default"]) for name, each in action["inputs"].items()}
    assert {*inputs} == {"paths", "fail-on", "config"}
    runner = tmp_path / "runner temp"
    runner.mkdir()
    (project / "src" / "$(touch owned)").mkdir()

    def act(step: dict[str, Any], **given: str) -> subprocess.CompletedProcess[str]:
        assert "${{" not in step["run"]  # an input could be a command
        said = {**inputs, **{name.replace("_", "-"): value for name, value in given.items()}}
        told = {
            name: said[value.removeprefix("${{ inputs.").removesuffix(" }}")]
            for name, value in step.get("env", {}).items()
        }
        files = {"GITHUB_OUTPUT": runner / "output", "RUNNER_TEMP": runner}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        more: dict[str, object] = {**OFFLINE, **files, **told, "GITHUB_ACTION_PATH": source}
        return run(command, project, **more)

    install, audit = steps
    assert install["shell"] == audit["shell"] == "bash"
    done = act(install)
    assert done.returncode == 0, done.stdout + done.stderr
    done = act(audit, paths="\nsrc\n")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "::" in done.stdout
    assert "title=SP" in done.stdout
    assert (runner / "output").read_text() == f"sarif={runner}/safepoint.sarif\n"
    log = json.loads((runner / "safepoint.sarif").read_text())
    assert complaints(SARIF, log) == []
    assert log["runs"][0]["invocations"][0]["exitCode"] == 1
    assert act(audit, paths="$(touch owned)\n--help\n").returncode == 2
    assert act(audit, paths="src", config="nowhere.toml").returncode == 2
    assert act(audit, paths="src", fail_on="x; touch owned").returncode == 2
    assert not (project / "owned").exists()


@pytest.mark.deep
def test_the_job_says_it_and_leaves_sarif(project: Path, source: Path) -> None:
    plant(project)
    job = read("gitlab.yml")["safepoint-audit"]
    script = "\n".join(["set -e", *job["script"]])

    def work(**given: object) -> subprocess.CompletedProcess[str]:
        return run(["sh", "-c", script], project, **{**OFFLINE, **job["variables"], **given})

    done = work(SAFEPOINT_SOURCE=source, SAFEPOINT_ARGUMENTS="src")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("SP")
    (name,) = job["artifacts"]["paths"]
    assert complaints(SARIF, json.loads((project / name).read_text())) == []
    (project / name).unlink()
    (project / name).symlink_to(project / "src/fine.py")  # a file of the job's user
    before = (project / "src/fine.py").read_text()
    work(SAFEPOINT_SOURCE=source, SAFEPOINT_ARGUMENTS="src")
    assert (project / "src/fine.py").read_text() == before
    assert complaints(SARIF, json.loads((project / name).read_text())) == []
    done = work()
    assert done.returncode != 0
    assert "SAFEPOINT_SOURCE: says what pip installs" in done.stderr
