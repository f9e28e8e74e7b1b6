"""Write the lock: every package that the tests and the site need, with the digests of its files.

`make lock` runs it with a pip that has just chosen the versions: the output of `pip freeze` comes
in, and requirements.txt comes out, what the site needs first. It asks the index that pip is set up
for, in pip's own way, and takes the files that Linux and macOS need, on x86-64 and arm64, for
Python 3.11 to 3.13.

PyTorch stands by itself and without digests, because indexes serve different builds of one
version. What its builds for GPUs need besides is locked, too, and installed for those alone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

MACHINES: Final = ("x86_64", "aarch64")
PYTHONS: Final = {"py3", "cp311", "cp312", "cp313"}
SITE: Final = "# Each package that the site needs, pinned. Written by `make lock`."
TESTS: Final = "# What the tests need besides."
TORCH: Final = "# By itself and without digests: indexes serve different builds of it."
GPU: Final = "# What a build of it for GPUs needs besides."


def is_wanted(file: str) -> bool:
    """Tell whether a file is a wheel for one of the machines and Pythons."""
    if not file.endswith(".whl"):
        return False
    pythons, abi, platforms = (tags.split(".") for tags in file[: -len(".whl")].split("-")[-3:])
    stable = "abi3" in abi and any(re.fullmatch("cp3[0-9]|cp31[0-3]", tag) for tag in pythons)
    runs = stable or (PYTHONS.intersection(pythons) and not abi[0].endswith("t"))
    place = re.compile(r"any|(many)?linux.*_(x86_64|aarch64)|macosx_.*")
    return bool(runs) and any(map(place.fullmatch, platforms))


class File(NamedTuple):
    """A file of a package, its SHA-256, and the Pythons that it is for."""

    name: str
    digest: str
    pythons: str = ""


def locked(name: str, version: str, links: Iterable[File]) -> str:
    """Return the pin of a release, with the digests of its wheels, or of its source.

    Raises:
        SystemExit: there is none.
    """
    start = re.escape(canonical(name)).replace(r"\-", "[-_.]") + "-" + re.escape(version)
    files = [file for file in links if re.match(rf"{start}(-|\.tar)", file.name, re.I)]
    wheels = [file for file in files if is_wanted(file.name)]
    found = wheels or [file for file in files if file.name.endswith(".tar.gz")]
    if not found:
        raise SystemExit(f"The index has no file of {name} {version} with a digest.")
    pin = f"{name}=={version}{marker({file.pythons for file in found})}"
    return " \\\n".join([pin, *sorted(f"    --hash=sha256:{file.digest}" for file in found)])


def marker(pythons: Iterable[str]) -> str:
    """Return what keeps a package from the Pythons that it is not for; for most, nothing."""
    from pip._vendor.packaging.specifiers import SpecifierSet

    missing = [
        f'python_version != "{version}"'
        for version in ("3.11", "3.12", "3.13")
        if not any(SpecifierSet(each).contains(f"{version}.9") for each in pythons)
    ]
    return f" ; {' and '.join(missing)}" if missing else ""


class Index:
    """The index that pip is set up for."""

    def __init__(self) -> None:
        from pip._internal.commands import create_command

        command: Any = create_command("download")
        self._options, _ = command.parse_args([])
        session = command._build_session(self._options)
        self._collector = command._build_package_finder(self._options, session)._link_collector

    def links(self, name: str) -> Iterator[File]:
        """Yield each file of a package."""
        from pip._internal.index.collector import parse_links
        from pip._internal.models.link import Link

        page = self._collector.fetch_response(Link(f"{self._options.index_url}/{name}/"))
        for link in parse_links(page) if page else ():
            if link.hash_name == "sha256" and link.hash:
                yield File(link.filename, link.hash, link.requires_python or "")


def for_gpus(torch: str, locked: set[str]) -> dict[str, str]:
    """Return what PyTorch needs, on any of the machines, and the lock does not have yet."""
    found: dict[str, str] = {}
    for machine in MACHINES:
        with tempfile.TemporaryDirectory() as nowhere:
            options = ["--dry-run", "--ignore-installed", "--quiet", "--report=-"]
            options += ["--use-feature=fast-deps", "--only-binary=:all:", f"--target={nowhere}"]
            options += [f"--platform=manylinux_2_{minor}_{machine}" for minor in range(34, 4, -1)]
            options += [f"--platform=manylinux2014_{machine}", "--python-version=3.11"]
            command = [sys.executable, "-m", "pip", "install", *options, torch]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for each in json.loads(said)["install"]:
            name = canonical(each["metadata"]["name"])
            if name not in locked:
                found[name] = each["metadata"]["version"]
    return found


def canonical(name: str) -> str:
    """Return a name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main(frozen: str, for_site: str) -> str:
    """Return the lock for what pip froze, before and after it had what the tests need."""
    index, pins = Index(), _pins(frozen)
    first = {name: pins.pop(name) for name in _pins(for_site)}
    torch = f"torch=={pins.pop('torch')}"
    known = {canonical(name) for name in (*first, *pins)} | {"torch"}
    parts = [SITE, *_locked(index, first), TESTS, *_locked(index, pins), TORCH, torch, GPU]
    return "\n".join([*parts, *_locked(index, for_gpus(torch, known))]) + "\n"


def _pins(frozen: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([\w.!]+)", frozen, re.MULTILINE))


def _locked(index: Index, pins: dict[str, str]) -> Iterator[str]:
    for name, version in sorted(pins.items(), key=lambda pin: pin[0].lower()):
        yield locked(name, version, index.links(canonical(name)))


if __name__ == "__main__":
    sys.stdout.write(main(sys.stdin.read(), Path(sys.argv[1]).read_text()))
