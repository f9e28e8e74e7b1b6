"""What MkDocs calls while it builds. It runs this file by its path."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Final, Literal

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page as MkDocsPage

# MkDocs knows where this file is; Python has to be told where its neighbours are.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from publish.fill import BrokenPage, check, fill
from publish.finish import finish
from publish.generated import generated
from publish.project import Project

_LOG: Final = logging.getLogger("mkdocs.plugins.publish")


class _State:
    project = Project()
    is_served = False


def on_startup(command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:  # noqa: ARG001  MkDocs calls it so
    """Remember whether a person is looking while they write."""
    _State.is_served = command == "serve"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Look at the project anew: while it is served, it changes."""
    _State.project = Project(Path(config.config_file_path).resolve().parent)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is drawn."""
    for name, content in generated(_State.project).items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: MkDocsPage, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Check a page, and fill it in."""
    src = page.file.src_uri
    try:
        check(src, page.file.content_string, _State.project)
        return fill(markdown, _State.project)
    except BrokenPage as error:
        raise PluginError(str(error)) from None


def on_post_build(config: MkDocsConfig) -> None:
    """Finish the pages, and say what they rest on."""
    project = _State.project
    finish(Path(config.site_dir), project, policy=not _State.is_served)
    _LOG.info(project.evidence.said)
