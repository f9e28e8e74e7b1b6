"""Make the failing skeleton of a rule: its entry, its page, and a stub for each of its four legs.

`make new-rule TITLE="…" SEVERITY=danger THEME=Storage PAGE=short-name`

Whatever it makes fails until it is written: each place says TODO and the rule's id, the tests fail
with what to write, and `make new-rule ARGS=--left` lists what is left. It writes all of it or
nothing, and never over a file that is there.
"""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from publish.skeleton import (
    NewRule,
    Skeleton,
    Unfit,
    class_name,
    rules_of,
    skeleton,
    taken_names,
)
from safepoint.cli import Parser

ROOT: Final = Path(__file__).resolve().parents[1]
SEVERITIES: Final = ("danger", "warning", "info")
LONGEST_TITLE: Final = 72
LONGEST_PAGE: Final = 24

_TYPED: Final = 'make new-rule TITLE="…" SEVERITY=danger THEME=Storage PAGE=name'
_ID: Final = re.compile(r"SP\d\d")
_PAGE: Final = re.compile(r"[a-z]+(?:-[a-z]+)*")
_TITLE: Final = re.compile(r"[A-Z][\w ,;:()'-]+[\w)]", re.ASCII)
_ATTACK: Final = re.compile(r'^    id(?:: [^=]+)? = "([^"]+)"$|\bid="([^"]+)"', re.MULTILINE)
_LEFT: Final = re.compile(r"TODO\(SP\d\d\)")
_WRITTEN: Final = ("docs", "snippets", "src", "tests/attacks")
_TEXT: Final = frozenset({".conf", ".md", ".py", ".sh", ".sql", ".toml"})


def checked(
    root: Path, *, title: str, severity: str, theme: str, page: str, named: str | None = None
) -> NewRule:
    """Return the rule, or say what cannot be.

    Raises:
        Unfit: with one line.
    """
    rules = rules_of(root)
    last = max(int(rule["id"][2:]) for rule in rules)
    following = f"SP{last + 1:02d}"
    themes = list(dict.fromkeys(rule["theme"] for rule in rules))
    if named is not None and not _ID.fullmatch(named):
        raise Unfit(f"{named!r} is no id. Write SP and two digits, or leave it out: {following}.")
    if named in {rule["id"] for rule in rules}:
        raise Unfit(f"{named} is taken, and an id keeps its meaning. Leave it out: {following}.")
    if named not in (None, following):
        raise Unfit(f"{named} would leave a gap. Leave it out: {following}.")
    if not _ID.fullmatch(following):
        raise Unfit("There are no ids left below SP99. Teach publish/new_rule.py a third digit.")
    if severity not in SEVERITIES:
        raise Unfit(f"{severity!r} is no severity. Choose from {', '.join(SEVERITIES)}.")
    if theme not in themes:
        raise Unfit(f"{theme!r} is no theme. Choose from {', '.join(themes)}.")
    if not _TITLE.fullmatch(title) or len(title) > LONGEST_TITLE:
        raise Unfit(
            f"{title!r} is no title. Write one line of at most {LONGEST_TITLE} letters, digits and"
            " common punctuation, with a capital first and no period at its end."
        )
    if _ID.search(title):
        raise Unfit(f"{title!r} names a rule by its id. Say in words what it is about.")
    if title.lower() in {rule["title"].lower() for rule in rules}:
        raise Unfit(f"There is a rule {title!r} already. Write there what you would add.")
    _check_page(root, page)
    return NewRule(following, title, severity, theme, page)


def _check_page(root: Path, page: str) -> None:
    module = page.replace("-", "_")
    if not _PAGE.fullmatch(page) or len(page) > LONGEST_PAGE:
        raise Unfit(
            f"{page!r} is no name of a page. Write at most {LONGEST_PAGE} lower-case letters, with"
            " single hyphens between words."
        )
    name = class_name(page)
    if keyword.iskeyword(module) or keyword.issoftkeyword(module) or keyword.iskeyword(name):
        raise Unfit(f"{page} is a word of Python. Take another name.")
    if "_" not in module and importlib.util.find_spec(module) is not None:
        raise Unfit(f"{page} is a module that others import. Take another name.")
    files = (root / "src/safepoint/attacks").rglob("*.py")
    ids = {first or second for file in files for first, second in _ATTACK.findall(file.read_text())}
    if page in ids:
        raise Unfit(f"There is an attack {page} already. Take another name.")
    if name in taken_names(root):
        raise Unfit(f"The class of {page} would be {name}, which is taken. Take another name.")


def write(root: Path, made: Skeleton) -> None:
    """Write all of it, or leave everything as it was.

    Raises:
        Unfit: a file is there already, or was changed since it was read.
        OSError: it cannot be written.
    """
    done: list[tuple[Path, str | None]] = []
    try:
        for name, text in made.made.items():
            done.append((_created(root, name), None))
            done[-1][0].write_text(text, encoding="utf-8", newline="\n")
        for name, (old, new) in made.changed.items():
            _check_unchanged(root, name, old)
            done.append((root / name, old))
            _replace(root / name, new)
    except BaseException:
        for path, before in reversed(done):
            if before is None:
                path.unlink(missing_ok=True)
            else:
                _replace(path, before)
        raise


def _created(root: Path, name: str) -> Path:
    try:
        (root / name).touch(exist_ok=False)
    except FileExistsError:
        raise Unfit(f"{name} is there already. Take another name, or edit it.") from None
    return root / name


def _check_unchanged(root: Path, name: str, text: str) -> None:
    if (root / name).read_bytes().decode() != text:
        raise Unfit(f"{name} was changed at the same time. Run this again.")


def _replace(path: Path, text: str) -> None:
    """Put another text in the place of a file, which is never half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        Path(temporary).chmod(path.stat().st_mode & 0o7777)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def left(root: Path) -> list[str]:
    """Return each place of a skeleton that nobody has written yet, as `file:line: what`."""
    files = [file for folder in _WRITTEN for file in sorted((root / folder).rglob("*"))]
    return [
        f"{file.relative_to(root).as_posix()}:{number}: {line.strip()}"
        for file in files
        if file.suffix in _TEXT and file.is_file()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if _LEFT.search(line)
    ]


def _next(rule: NewRule) -> list[str]:
    return [
        "Next, until all four are green:",
        "  make fix    # the callout, the list of rules, the ladder",
        f'  make test ARGS="tests/attacks/test_{rule.module}.py"    # attack, test, check',
        f'  make test ARGS="docs/security/{rule.page}.md"    # the page, with its snippet',
        "  make test    # everything; it also names the numbers that are published",
        "What is left to write: make new-rule ARGS=--left",
    ]


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Make a skeleton, or list what is left of one; return 2 if it is refused."""
    parser = Parser(
        prog="python -m publish.new_rule",
        description="Make the failing skeleton of a rule.",
    )
    parser.add_argument("--title", help="the rule, as one line without a period")
    parser.add_argument("--severity", help=f"one of {', '.join(SEVERITIES)}")
    parser.add_argument("--theme", help="one that rules.toml has")
    parser.add_argument("--page", help="a short name: lost-update makes security/lost-update.md")
    parser.add_argument("--id", help="the next one, if you want to be sure of it")
    parser.add_argument("--left", action="store_true", help="list what is not written yet")
    options = parser.parse_args(arguments)
    if options.left:
        lines = left(root)
        sys.stdout.write("".join(f"{line}\n" for line in lines) or "Nothing is left to write.\n")
        return 1 if lines else 0
    for name in ("title", "severity", "theme", "page"):
        if not getattr(options, name):
            sys.stderr.write(f"{name.upper()} (--{name}) is missing. Try: {_TYPED}\n")
            return 2
    try:
        rule = checked(
            root,
            title=options.title,
            severity=options.severity,
            theme=options.theme,
            page=options.page,
            named=options.id,
        )
        made = skeleton(root, rule)
        write(root, made)
    except Unfit as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}. Nothing was changed.\n")
        return 2
    lines = [f"{rule.id}, which fails until you write it:"]
    lines += [f"  made     {path}" for path in made.made]
    lines += [f"  changed  {path}" for path in made.changed]
    sys.stdout.write("\n".join([*lines, *_next(rule)]) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
