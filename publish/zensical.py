"""Build the same site with Zensical, the theme's successor, which runs no hooks.

`python -m publish.zensical [FOLDER]` lays out the filled-in pages, has Zensical build them, and
finishes the HTML as the hook does after MkDocs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from publish.charts import generated
from publish.evidence import counted
from publish.fill import check, fill
from publish.finish import finish
from publish.project import Project

SITE: Final = "build/site-zensical"
_STAGE: Final = "build/zensical"
_SEARCH: Final = re.compile(r"^.*assets/search\.js.*\n", re.MULTILINE)


class BuildFailed(RuntimeError):
    """Zensical does not build the site; the message is what it said."""


def build(project: Project, site: Path) -> Counter[str]:
    """Build the site into `site`, and return what was counted.

    Raises:
        BuildFailed: with what Zensical said.
    """
    stage = project.root / _STAGE
    _lay_out(project, stage)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean"],
        cwd=stage,
        env={**os.environ, "PYTHONPATH": str(project.root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed((done.stderr or done.stdout).strip())
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(stage / "site", site)
    return finish(site, project, policy=True, styles="'self' 'unsafe-inline'")


def _lay_out(project: Project, stage: Path) -> None:
    """Copy what Zensical reads, with everything filled in that a hook would have filled in."""
    check(project)
    shutil.rmtree(stage, ignore_errors=True)
    shutil.copytree(project.docs, stage / "docs")
    for folder in ("snippets", "overrides", "src"):
        shutil.copytree(project.root / folder, stage / folder)
    # It stands in for a part of the other theme.
    template = stage / "overrides" / "main.html"
    template.write_text(_SEARCH.sub("", template.read_text(encoding="utf-8")), encoding="utf-8")
    for name, content in generated(project).items():
        (stage / "docs" / name).write_text(content, encoding="utf-8")
    for src in project.pages:
        file = stage / "docs" / src
        text = file.read_text(encoding="utf-8")
        file.write_text(fill(text, project), encoding="utf-8")
    settings = {
        name: value
        for name, value in project.settings.items()
        if name not in ("hooks", "watch", "strict")
    }
    settings["site_url"] = os.environ.get("SITE_URL", "")
    (stage / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, and print the count."""
    parser = argparse.ArgumentParser(prog="python -m publish.zensical", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=SITE, help="where (%(default)s)")
    folder: Path = parser.parse_args(arguments).folder
    try:
        print(counted(build(Project(), folder.resolve())))
    except (BuildFailed, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
