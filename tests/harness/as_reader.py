"""Build the site with what `make serve` installs: a package that only tests need is not there."""

from __future__ import annotations

import gc
import re
import sys
from importlib.metadata import packages_distributions
from typing import Final

from mkdocs.__main__ import cli

import bootstrap

_OURS: Final = {"pip", "safepoint", "setuptools"}


class ReadersPackages:
    """Finds no module of a package that a reader does not install."""

    def __init__(self) -> None:
        names = re.findall(r"^([\w.-]+)==", bootstrap.read_lock()[0], re.MULTILINE)
        self.installed = {_plain(name) for name in names} | _OURS
        self.packages = packages_distributions()

    def find_spec(self, name: str, *_: object) -> None:
        """Refuse a module as Python does when it is missing; leave the others to Python."""
        owners = {_plain(each) for each in self.packages.get(name, ())}
        if owners and not owners & self.installed:
            raise ModuleNotFoundError(f"`make serve` does not install {name!r}", name=name)


def _plain(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


if __name__ == "__main__":
    gc.set_threshold(100_000)  # nearly all that a build makes stays
    sys.meta_path.insert(0, ReadersPackages())
    cli(["build", *sys.argv[1:]])
