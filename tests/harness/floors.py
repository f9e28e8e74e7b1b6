"""The adapters on the oldest releases that their extras allow, each in an environment for once.

`make floors` runs it. The versions are those of pyproject.toml, where each `>=` is read as `==`.
Python is the one that runs this, and what only the tests need is as new as may be.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
NETS: Final = {
    "langgraph": ["test_langgraph_saver.py", "test_langgraph_approvals.py"],
    "agent-framework": ["test_agent_framework_storage.py", "test_agent_framework_approvals.py"],
}
TOOLS: Final = re.compile(r"(hypothesis|langgraph-checkpoint-conformance|pydantic|pytest)\b(?!-)")


def floors(name: str) -> list[str]:
    """Return what an adapter is installed with: each requirement at the oldest that it allows."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras[name], *extras["postgres"]]
    return [re.sub(r">=([^,]+).*", r"==\1", requirement) for requirement in wanted]


def main() -> None:
    """Install and run one after the other. What fails, fails all."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tools = filter(TOOLS.match, extras["optional-dependencies"]["test"])
    given = [".[try-postgres]", "numpy", *tools]
    for name, nets in NETS.items():
        print("==", *floors(name), flush=True)
        tests = [f"tests/integrations/{net}" for net in nets]
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=True)
            python = [f"{folder}/bin/python", "-m"]
            run([*python, "pip", "install", "-qq", *given, *floors(name)])
            run([*python, "pytest", "-q", *tests])


def run(command: list[str]) -> None:
    """Run one step, in which nothing is skipped, and end with it if it fails."""
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "CI": "true"}, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
