"""What MkDocs calls while it builds. It runs this file by its path.

The other modules are imported when they are needed: while the site is served they change, and so
does the package that they read.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page as MkDocsPage

    from publish.project import Project

ROOT: Final = str(Path(__file__).resolve().parents[1])
_LOG: Final = logging.getLogger("mkdocs.plugins.publish")
_CHANGES: Final = frozenset({"publish", "safepoint", "tests"})
_P = ParamSpec("_P")
_R = TypeVar("_R")


class _State:
    project: Project
    is_served = False


def _plain_errors(event: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a mistake in a source end the build with one line."""

    @functools.wraps(event)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return event(*args, **kwargs)
        except ValueError as error:  # BrokenPage is one; so is TOML that cannot be read
            raise PluginError(str(error)) from None

    return call


def on_startup(command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:  # noqa: ARG001  MkDocs calls it so
    """Remember whether a person is looking while they write."""
    _State.is_served = command == "serve"


@_plain_errors
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Look at the project anew: while it is served, it changes."""
    # MkDocs knows where this file is; Python has to be told where its neighbours are.
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)
    if _State.is_served:
        for name in [name for name in sys.modules if name.partition(".")[0] in _CHANGES]:
            del sys.modules[name]
    from publish.project import Project

    _State.project = Project(Path(config.config_file_path).resolve().parent)
    return config


@_plain_errors
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Check the sources, add what is drawn, and name what programs read: pages link to it."""
    from publish.charts import generated
    from publish.fill import check
    from publish.machine import served

    check(_State.project)
    for name, content in generated(_State.project).items():
        files.append(File.generated(config, name, content=content))
    for name in served(_State.project):
        files.append(File.generated(config, name, content=""))  # `finish` writes it
    return files


@_plain_errors
def on_page_markdown(markdown: str, page: MkDocsPage, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Fill a page in."""
    from publish.fill import fill

    return fill(markdown, _State.project)


@_plain_errors
def on_post_build(config: MkDocsConfig) -> None:
    """Finish the pages, and say what they rest on."""
    from publish.finish import finish

    finish(Path(config.site_dir), _State.project, policy=not _State.is_served)
    _LOG.info(_State.project.evidence.said)
