"""The vetted examples: copy one, and hear later what became of it. `safepoint examples`.

A copy begins with a line that names the example, its version, and the digest of all the rest. So
the file that you copied is known for ever, and what you changed in it can be told apart from what
changed in the example. Nothing of this needs a network.

The examples are `snippets/` of the repository, and `_examples` in a package that is installed.
`examples.toml` lists what was released of each. Contents that are no longer current are in
`.earlier`, by their digests.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import os
import re
import secrets
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from safepoint._command import add, flag
from safepoint.core.errors import ConfigurationError, Conflict, NotFound, quoted, shell
from safepoint.rules import RULES, package_toml
from safepoint.stores import disk

KINDS: Final = frozenset({".conf", ".py", ".sh", ".toml"})
"""How the name of an example ends. All of these know `#` comments."""
EARLIER: Final = ".earlier"
_LARGEST: Final = 256 * 1024
_MARK: Final = re.compile(rb"^ *# --8<-- \[(?:start|end):\w+\]\n", re.MULTILINE)
# Behind it may stand what somebody added for a linter.
_LINE: Final = re.compile(
    rb"^# safepoint example (?P<name>\S+) (?P<version>\S+) sha256:(?P<sha256>\S+)(?:[ \t].*)?\n",
    re.MULTILINE,
)
_OPENING: Final = re.compile(r"(?:#!.*\n)?(?P<lines>(?:#.*\n)*)")


class Release(NamedTuple):
    """An example as it once was, or is.

    Attributes:
        name: the name of its file.
        version: the version of safepoint that first had it so.
        sha256: the digest of its content.
        reason: why nobody should use it any more, if it was withdrawn.
        successor: the example to take instead.
    """

    name: str
    version: str
    sha256: str
    reason: str = ""
    successor: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Found(NamedTuple):
    """What became of a copy.

    Attributes:
        base: what was copied, if that is known.
        yours: the content that the copy has now.
        state: what became of it, as a few words.
        said: what else there is to say, as sentences.
        fine: whether nobody has to do anything.
    """

    base: Release | None
    yours: bytes
    state: str
    said: str
    fine: bool


def plain(content: bytes) -> bytes:
    """Return a text as it is digested, however git or an editor ends its lines and the file."""
    return content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").rstrip() + b"\n"


def without_marks(content: bytes) -> bytes:
    """Return a file of `snippets/` without the marks by which pages find parts of it."""
    return _MARK.sub(b"", plain(content))


def digest(content: bytes) -> str:
    """Return the digest by which a content is known."""
    return hashlib.sha256(plain(content)).hexdigest()


def marked(content: bytes, release: Release) -> bytes:
    """Return a content with the line that says what it is: the first, or behind a `#!` line."""
    line = f"# safepoint example {release} sha256:{release.sha256}\n".encode()
    at = content.find(b"\n") + 1 if content.startswith(b"#!") else 0
    return content[:at] + line + content[at:]


def opening(name: str, text: str) -> str:
    """Return what an example says about itself: its docstring, or the comment at its beginning.

    Raises:
        SyntaxError: it is no Python, although it is called so.
    """
    if name.endswith(".py"):
        return ast.get_docstring(ast.parse(text)) or ""
    found = _OPENING.match(text)
    return re.sub("^# ?", "", found["lines"], flags=re.MULTILINE) if found else ""


def rules_of(name: str) -> list[str]:
    """Return the ids of the rules that an example defends."""
    return [rule.id for rule in RULES.values() if f"snippets/{name}" in rule.legs["defence"]]


class Catalogue:
    """The examples that there are, and all that were released.

    Args:
        folder: where they are, if not those of this package.
        told: what `examples.toml` says, if not that of this package.
        version: of what was never released, if not that of this package.

    Attributes:
        current: the content of each, by its name.
        releases: of each that ever was, by its name, oldest first. The last one is the current one,
            or is withdrawn.
    """

    def __init__(
        self,
        folder: Path | None = None,
        told: Mapping[str, Any] | None = None,
        version: str | None = None,
    ) -> None:
        self.folder = _folder() if folder is None else folder
        told = package_toml("command/examples.toml") if told is None else told
        version = metadata.version("safepoint") if version is None else version
        self.current = {
            file.name: without_marks(file.read_bytes())
            for file in sorted(self.folder.glob("[!.]*"))
            if file.suffix in KINDS and file.is_file() and not file.is_symlink()
        }
        self.releases = {
            name: [Release(name, **each) for each in entries] for name, entries in told.items()
        }
        for name, content in self.current.items():
            past = self.releases.setdefault(name, [])
            if not past or past[-1].sha256 != digest(content):
                past.append(Release(name, version, digest(content)))
        self._known: dict[str, list[Release]] = {}
        for each in (each for past in self.releases.values() for each in past):
            self._known.setdefault(each.sha256, []).append(each)

    def newest(self, name: str) -> Release:
        """Return the current release of an example.

        Raises:
            NotFound: there is none, or it was withdrawn.
        """
        if name in self.current:
            return self.releases[name][-1]
        do = "List them: safepoint examples list"
        if name in self.releases:
            last = self.releases[name][-1]
            raise NotFound(f"{last} was withdrawn. {last.reason}", _instead(last) or do)
        near = difflib.get_close_matches(name[:100], self.current)
        do = f"Near it: {', '.join(near)}." if near else do
        raise NotFound(f"There is no example {quoted(name)}.", do)

    def copy_of(self, name: str) -> bytes:
        """Return the current content of an example, with its line.

        Raises:
            NotFound: there is none, or it was withdrawn.
        """
        newest = self.newest(name)
        return marked(self.current[name], newest)

    def content(self, release: Release) -> bytes | None:
        """Return what a release held, or None if this installation does not have it."""
        current = self.current.get(release.name)
        if current is not None and digest(current) == release.sha256:
            return current
        try:
            return (self.folder / EARLIER / release.sha256).read_bytes()
        except OSError:
            return None

    def look(self, content: bytes) -> Iterator[Found]:
        """Yield what became of each example of which this file is a copy, or says so."""
        text = plain(content)
        lines = [*_LINE.finditer(text)]
        for line in lines:
            said = Release(*(part.decode("utf-8", "replace") for part in line.groups()))
            yield self._found(text[: line.start()] + text[line.end() :], said)
        if not lines and digest(text) in self._known:
            yield self._found(text, None)

    def _found(self, yours: bytes, said: Release | None) -> Found:
        # What is there counts more than what the line says: a line is easily edited.
        known = self._known.get(digest(yours)) or self._known.get(said.sha256 if said else "", [])
        if not known:
            why = f"Its first line says {quoted(str(said))}, and no release has that digest."
            do = "Update safepoint if the copy is newer, or copy it anew."
            return Found(None, yours, "unknown", f"{why} {do}", fine=False)
        honest = [each for each in known if said and said[:3] == each[:3]]
        base = [*known, *honest][-1]
        last = self.releases[base.name][-1]
        gone = next((each for each in (base, last) if each.reason), None)
        words = ["changed by you"] if digest(yours) != base.sha256 else []
        notes = []
        if gone:
            words.append("withdrawn")
            notes.append(f"{gone.reason} {_instead(gone)}".strip())
        elif last.sha256 != base.sha256:
            words.append("outdated")
            notes.append(f"The newest is {last.version}.")
        if said and not honest:
            notes.append(f"Its first line says {quoted(str(said))}, which is wrong: copy it anew.")
        fine = not gone and (said is None or bool(honest))
        return Found(base, yours, " and ".join(words) or "current", " ".join(notes), fine)

    def differences(self, found: Found, path: str) -> Iterator[str]:
        """Yield the lines of what you changed, and of what changed in the example since then."""
        if found.base is None:
            return
        base, last = self.content(found.base), self.releases[found.base.name][-1]
        if base is None:
            yield f"The content of {found.base} is not in this installation."
            return
        yield from _difference(base, found.yours, str(found.base), path)
        if last.name in self.current:
            yield from _difference(base, self.current[last.name], str(found.base), str(last))


def _folder() -> Path:
    package = Path(__file__).parents[1]
    for folder in (package / "_examples", package.parents[1] / "snippets"):
        if folder.is_dir():
            return folder
    raise ConfigurationError("This installation has no examples.", "Install safepoint again.")


def _instead(gone: Release) -> str:
    return f"Instead: safepoint examples copy {gone.successor}" if gone.successor else ""


def _difference(old: bytes, new: bytes, before: str, after: str) -> Iterator[str]:
    one, two = (plain(each).decode("utf-8", "replace").split("\n")[:-1] for each in (old, new))
    yield from difflib.unified_diff(one, two, before, after, lineterm="")


# --- the command --------------------------------------------------------------------------------


def commands(sub: Any) -> None:
    """Add `safepoint examples`."""
    what = "copy a vetted example, and see whether a copy is still current"
    inner = add(sub, "examples", what).add_subparsers(metavar="COMMAND", required=True)
    add(inner, "list", "list the examples, with the rules that they defend", _list)
    what, about = "print one, as copy would write it", "Print an example, as copy would write it."
    showing = add(inner, "show", what, _show, description=about)
    what = "write one to a file that begins with its digest"
    about = "Write an example to a file that begins with its digest."
    copying = add(inner, "copy", what, _copy, description=about)
    for each in (showing, copying):
        each.add_argument("name", metavar="NAME", help="the name of an example: anchored.py")
    copying.add_argument(
        "target", metavar="TARGET", nargs="?", default="", help="a file or a folder (this one)"
    )
    flag(copying, "--force", "replace what is there")
    looking = add(
        inner,
        "status",
        "say what became of copies: current, outdated, changed by you, withdrawn",
        _status,
        epilog="exit status: 0 if all are current, outdated or changed by you; 1 if one is"
        " withdrawn or unknown, or its first line is wrong; 2 if a folder has none, or something"
        " could not be read",
    )
    looking.add_argument("paths", metavar="PATH", nargs="*", help="a file or a folder (this one)")
    flag(looking, "--diff", "show what you changed, and what we did")


def _list(_: argparse.Namespace) -> int:
    current = Catalogue().current
    width = max(map(len, current), default=0)
    for name, content in current.items():
        title = opening(name, content.decode()).partition("\n")[0]
        print(f"{name:{width}}  {' '.join(rules_of(name)) or '-':9}  {title}")
    return 0


def _show(options: argparse.Namespace) -> int:
    print(Catalogue().copy_of(options.name).decode(), end="")
    return 0


def _copy(options: argparse.Namespace) -> int:
    catalogue, name, into = Catalogue(), options.name, options.target
    content = catalogue.copy_of(name)
    is_folder = into == "" or into.endswith("/") or os.path.isdir(into)  # noqa: PTH112
    path = str(Path(into, name) if is_folder else Path(into))
    folder = str(Path(path).parent)
    gone = (f"There is no folder {shell(folder)}.", f"Make it: mkdir -p {shell(folder)}")
    mode = 0o755 if content.startswith(b"#!") else 0o644
    temp = f".safepoint-{secrets.token_hex(16)}"
    if options.force and _is_special(path):
        raise Conflict(f"{shell(path)} is no file, and nothing was copied.", "Name another.")
    with (
        disk.translated("save to", path, gone=gone),
        disk.opened(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)) as fd,
    ):
        try:
            disk.put(path, fd, content, over=options.force, mode=mode, temp=temp)
        except FileExistsError:
            raise Conflict(
                f"{shell(path)} exists, and nothing was copied.",
                "Name another file, or give --force to replace it.",
            ) from None
    print(f"Copied {catalogue.newest(name)} to {shell(path)}.")
    return 0


def _is_special(path: str) -> bool:
    """Tell whether a device, a FIFO or a socket has the name: to replace one breaks others."""
    with suppress(OSError):
        mode = os.lstat(path).st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode))
    return False


def _status(options: argparse.Namespace) -> int:
    from safepoint.models.lint import Walk

    catalogue, walk, states, fine = Catalogue(), Walk(), Counter[str](), True
    for path in options.paths or ["."]:
        for file in walk.files(path):
            try:
                content = _read(file)
            except OSError as error:
                walk.failed.append((file, str(error.strerror)))
                continue
            for found in catalogue.look(content):
                states[found.state] += 1
                fine &= found.fine
                print(" ".join(filter(None, (f"{shell(file)}: {_of(found)}", found.said))))
                for line in catalogue.differences(found, file) if options.diff else ():
                    print(line)
    for file, why in walk.failed:
        print(f"{shell(file)} was not looked at ({why}). Mend that.", file=sys.stderr)
    # A hook names files, of which none has to be a copy.
    of_files = bool(options.paths) and not any(map(os.path.isdir, options.paths))
    if not (states or of_files or walk.failed):
        print("No copy of an example was found. Name where they are.", file=sys.stderr)
    elif not states and not walk.failed:
        print("None of these is a copy of an example.")
    elif states:
        print("In all:", ", ".join(f"{count} {state}" for state, count in states.items()) + ".")
    if walk.left_out:
        print(f"Left out, as no code of yours: {', '.join(map(shell, walk.left_out))}.")
    return 2 if walk.failed or not (states or of_files) else int(not fine)


def _of(found: Found) -> str:
    return f"{found.state} ({found.base})." if found.base else f"{found.state}."


def _read(path: str) -> bytes:
    # O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        return file.read(_LARGEST) or b""  # None, from a FIFO that says nothing
