"""Helpers for the harness's own tests: tiny projects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Final

from tests.harness.blocks import ROOT

MKDOCS: Final = """\
site_name: Tiny
theme:
  name: material
  font: false
validation:
  omitted_files: ignore
markdown_extensions:
  - admonition
  - attr_list
  - md_in_html
  - tables
  - toc
  - pymdownx.superfences
  - pymdownx.highlight:
      anchor_linenums: false
  - pymdownx.inlinehilite
  - pymdownx.snippets:
      base_path: [snippets, docs/assets]
      check_paths: true
  - pymdownx.tabbed:
      alternate_style: true
  - pymdownx.details
plugins:
  - search
  - mkdocstrings:
      handlers:
        python:
          paths: [src]
          options:
            separate_signature: true
            show_source: true
"""


def page(text: str) -> str:
    """Write Markdown in a test: dedented, with ''' for the backticks of a fence."""
    return dedent(text).strip("\n").replace("'''", "```") + "\n"


def make_project(root: Path, files: dict[str, str]) -> Path:
    """Lay out a project with this repository's conftest, a site and the given files."""
    contents = {
        "mkdocs.yml": MKDOCS,
        "conftest.py": (ROOT / "conftest.py").read_text(encoding="utf-8"),
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["-p", "no:cacheprovider"]\n'
        'junit_family = "xunit1"\n',
        "snippets/.keep": "",
        "docs/assets/.keep": "",
    }
    for name, text in {**contents, **files}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(text) if name.endswith(".md") else text, encoding="utf-8")
    return root


def run_tests(root: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest in a project of its own and return its exit code and output."""
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    environ |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--color=no", *arguments],
        cwd=root,
        env=environ,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr
