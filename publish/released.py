"""What was released of the examples, written down: `python -m publish.released`, for `make fix`.

A version is released once CHANGELOG.md says its day. Then
`src/safepoint/command/examples.toml` gets what is new in it. When an example
changes after that, or goes, what it was is fetched from git, by its
digest, into `snippets/.earlier`. With `--check` nothing is written.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from publish.changes import versions
from publish.git import git
from publish.project import ROOT, Project
from safepoint.command.examples import EARLIER, Catalogue, Release, digest, without_marks

TOLD: Final = "src/safepoint/command/examples.toml"


@dataclass
class Work:
    """What is to be written down, and what only a person can mend."""

    add: list[Release]
    keep: dict[Path, bytes]
    problems: list[str]


def work(root: Path) -> Work:
    """Compare the examples with what was released of them."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    told = tomllib.loads((root / TOLD).read_text())
    catalogue = Catalogue(root / "snippets", told, version)
    was = {name: len(entries) for name, entries in told.items()}
    new = [past[-1] for name, past in catalogue.releases.items() if len(past) > was.get(name, 0)]
    released = any(each.name == version and each.day for each in versions(Project(root)))
    found = Work(new if released else [], {}, [*_problems(catalogue, new)])
    for each in (each for past in catalogue.releases.values() for each in past):
        file = catalogue.folder / EARLIER / each.sha256
        content = catalogue.content(each) or _in_history(root, each)
        if content is None or digest(content) != each.sha256:
            found.problems.append(f"{TOLD}: {each}: neither git nor {EARLIER} has this content")
        elif each != catalogue.releases[each.name][-1] or each.name not in catalogue.current:
            found.keep |= {} if file.exists() else {file: content}
    return found


def _problems(catalogue: Catalogue, new: list[Release]) -> Iterator[str]:
    for name, past in catalogue.releases.items():
        last = past[-1]
        if (name in catalogue.current) == bool(last.reason):
            yield f"{TOLD}: {last}: give it a reason and remove its file, or do neither"
        if last in new and last.version in [each.version for each in past[:-1]]:
            yield f"snippets/{name}: {last.version} is released; raise the version, then change it"
        for each in past:
            if each.successor and each.successor not in catalogue.current:
                yield f"{TOLD}: {each}: its successor is no example"
            if each.reason and not each.reason.endswith("."):
                yield f"{TOLD}: {each}: its reason is no sentence"


def _in_history(root: Path, release: Release) -> bytes | None:
    file = f"./snippets/{release.name}"
    for commit in (git(root, "log", "--format=%H", "--", file) or "").split():
        text = git(root, "show", f"{commit}:{file}")
        content = without_marks((text or "").encode(errors="surrogateescape"))
        if digest(content) == release.sha256:
            return content
    return None


def main(*, check: bool, root: Path = ROOT) -> int:
    """Write it down, or check that it is; return 1 if something is left to do."""
    found = work(root)
    left = [f"{TOLD}: {each} is not there. Run make fix" for each in found.add]
    left += [f"{file.relative_to(root)} is not there. Run make fix" for file in found.keep]
    if not check and not found.problems:
        left = []
        with (root / TOLD).open("a", encoding="utf-8") as file:
            for each in found.add:
                head = f'\n[["{each.name}"]]\nversion = "{each.version}"\n'
                file.write(f'{head}sha256 = "{each.sha256}"\n')
        for place, content in found.keep.items():
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(content)
    for line in (*found.problems, *left):
        print(line)
    return int(bool(found.problems or left))


if __name__ == "__main__":
    raise SystemExit(main(check="--check" in sys.argv))
