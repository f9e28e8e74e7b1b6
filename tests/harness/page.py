"""A page while its blocks run: one module, one folder, one environment, one server."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.harness.blocks import Block
from tests.harness.page_postgres import PagePostgres

SHOWN_FOLDER: Final = "/home/you"
"""What stands for the page's folder, which is another one each time, in what blocks print."""
SHOWN_TEMP: Final = "/tmp"  # noqa: S108  shown, not used
"""What stands for the system's temporary folder."""


class Failure(AssertionError):
    """A block did not do what the page says. The text is for the writer of the page."""


class Page:
    """What the blocks of a page share.

    While a block runs the module is `__main__`, as it is for a reader who copies the page into a
    file: classes pickle, and messages name them as the reader will see them. The folder is a new
    one below the system's temporary folder, whoever runs this and from wherever, so that the audit
    says the same about it on every machine.

    Attributes:
        root: the project.
        output: what the last block printed and a `text` block has yet to check.
        imported: the modules that blocks have imported so far, by their first names.
        postgres: the server of a page that has blocks for one.
    """

    def __init__(
        self, name: str, blocks: Sequence[Block], root: Path, postgres: PagePostgres | None = None
    ) -> None:
        self.name = name
        self.blocks = list(blocks)
        self.root = root
        self.output = ""
        self.imported: set[str] = set()
        self.module = ModuleType("__main__")
        self._temp = Path(tempfile.gettempdir()).resolve()
        self._folder = tempfile.TemporaryDirectory(
            dir=self._temp, prefix="page-", ignore_cleanup_errors=True
        )
        base = Path(self._folder.name)
        self.folder = base / "work"
        for new in (self.folder, base / "home"):
            new.mkdir(mode=0o700)
        self._own = {"HOME": str(base / "home"), "TMPDIR": str(self._temp)}
        self._environ = {**without_places(os.environ), **self._own}
        self._cwd = self.folder
        self._umask = 0o022
        self._owns_postgres = postgres is None
        self._knows_postgres = False
        self.postgres = postgres or PagePostgres(blocks)

    def checker(self, block: Block) -> Block | None:
        """Return the `text` block that states what `block` prints, if the next one does."""
        index = self.blocks.index(block) + 1
        if index < len(self.blocks):
            following = self.blocks[index]
            if following.language == "text" and "data-check" not in following.attributes:
                return following
        return None

    def shown(self, text: str) -> str:
        """Return output as a reader will see it: folders have names that stay."""
        text = self.postgres.shown(text)
        return text.replace(str(self.folder), SHOWN_FOLDER).replace(str(self._temp), SHOWN_TEMP)

    def child_environ(self) -> dict[str, str]:
        """The environment of a block that runs in a process of its own."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {**self._own, **self.postgres.environ, "PATH": path, "LANG": "C.UTF-8"}

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be in the page's folder, environment and module; afterwards be where we were."""
        if self.postgres.start(self.folder) and not self._knows_postgres:
            path = f"{self.postgres.bin}{os.pathsep}{self._environ.get('PATH', os.defpath)}"
            self._environ |= {**self.postgres.environ, "PATH": path}
            self._knows_postgres = True
        environ, cwd, tempdir = dict(os.environ), Path.cwd(), tempfile.tempdir
        main = sys.modules["__main__"]
        umask = os.umask(self._umask)
        _replace_environ(self._environ)
        os.chdir(self._cwd)
        tempfile.tempdir = None
        sys.modules["__main__"] = self.module
        try:
            yield
        finally:
            self._environ = dict(os.environ)
            self._cwd = _existing_cwd() or self.folder
            self._umask = os.umask(umask)
            _replace_environ(environ)
            os.chdir(cwd)
            tempfile.tempdir = tempdir
            sys.modules["__main__"] = main

    def close(self) -> None:
        """Stop the server and remove the folder."""
        if self._owns_postgres:
            self.postgres.close()
        self._folder.cleanup()


_PLACES = ("STATE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY")


def without_places(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out what says where a user's or a service's files belong: home is the temp folder."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("XDG_") and name not in _PLACES
    }


def _replace_environ(environ: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)


def _existing_cwd() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None
