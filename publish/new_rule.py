"""Begin a rule: its entry, its page, its example and its tests, all of which fail until written.

`make new-rule TITLE="…" SEVERITY=danger THEME=Storage PAGE=short-name`

Each place that is yours says TODO and the rule's id. It writes all of it or nothing, and never over
a file that is there.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Final

from publish.project import ROOT
from safepoint.rules import RULES

ENTRIES: Final = "src/safepoint/rules.toml"
_TEMPLATES: Final = Path(__file__).with_name("templates")
_MADE: Final = {
    "page.md.txt": "docs/security/{page}.md",
    "snippet.py.txt": "snippets/{module}.py",
    "test.py.txt": "tests/attacks/test_{module}.py",
}
_PAGE: Final = re.compile(r"(?=.{1,24}$)[a-z]+(?:-[a-z]+)*")
_TITLE: Final = re.compile(r"(?=.{1,72}$)[A-Z][\w ,;:()'-]+[\w)]", re.ASCII)
_NEXT: Final = """\
Write these as well; the tests name what is missing:
  the attack {page} and the check check_{module}, each a function beside its likes
  the page in mkdocs.yml, and a row for the example in docs/examples.md
Then run make fix, which copies the callout and the ladder, and make test."""


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Write the beginnings of a rule, and say what comes next."""
    parser = argparse.ArgumentParser(prog="make new-rule", description=__doc__)
    parser.add_argument("--title", required=True, type=_title, help="one line, no full stop")
    parser.add_argument("--page", required=True, type=_page, help="a name like lost-update")
    for name in ("severity", "theme"):
        known = dict.fromkeys(getattr(rule, name) for rule in RULES.values())
        parser.add_argument(f"--{name}", required=True, choices=list(known))
    options = parser.parse_args(arguments)
    words = {
        **vars(options),
        "id": f"SP{int(max(RULES)[2:]) + 1:02d}",
        "module": options.page.replace("-", "_"),
    }
    made: list[Path] = []
    try:
        for template, place in _MADE.items():
            path = root / place.format(**words)
            with path.open("x", encoding="utf-8") as file:
                made.append(path)
                file.write(_filled(template, words))
        with (root / ENTRIES).open("a", encoding="utf-8") as entries:
            entries.write(_filled("rule.toml.txt", words))
    except OSError as error:
        for path in made:
            path.unlink()
        print(f"{error.filename}: {error.strerror}. Nothing was changed.", file=sys.stderr)
        return 2
    print(f"{words['id']}, which fails until you write it:")
    for path in (*made, root / ENTRIES):
        print(f"  {path.relative_to(root).as_posix()}")
    print(_NEXT.format(**words))
    return 0


def _title(text: str) -> str:
    if not _TITLE.fullmatch(text):
        raise argparse.ArgumentTypeError(
            "one line of at most 72 letters, a capital first, no period"
        )
    return text


def _page(text: str) -> str:
    if not _PAGE.fullmatch(text):
        raise argparse.ArgumentTypeError(
            "at most 24 lower-case letters, single hyphens between words"
        )
    return text


def _filled(template: str, words: dict[str, str]) -> str:
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(words)


if __name__ == "__main__":
    raise SystemExit(main())
