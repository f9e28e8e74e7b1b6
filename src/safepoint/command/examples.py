"""The vetted examples: list them, and copy one. `safepoint examples`.

They are `snippets/` of the repository, and `_examples` in a package that is installed. A copy
begins with a line that names the example, the version of safepoint that it was copied from, and
the digest of all the rest.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from safepoint.core.errors import ConfigurationError, Conflict
from safepoint.core.files import publish
from safepoint.rules import RULES
from safepoint.shared.terminal import add, unknown
from safepoint.stores import disk

KINDS: Final = frozenset({".conf", ".py", ".sh", ".toml"})
"""How the name of an example ends. All of these know `#` comments."""
_MARK: Final = re.compile(rb"^ *# --8<-- \[(?:start|end):\w+\]\n", re.MULTILINE)
_OPENING: Final = re.compile(r"(?:#!.*\n)?(?P<lines>(?:#.*\n)*)")


def read_examples(folder: Path | None = None) -> dict[str, bytes]:
    """Return the content of each example by its name, without the marks that pages use.

    Args:
        folder: where they are, if not those of this package.
    """
    return {
        file.name: _MARK.sub(b"", file.read_bytes())
        for file in sorted((folder or _folder()).glob("[!.]*"))
        if file.suffix in KINDS and file.is_file() and not file.is_symlink()
    }


def digest(content: bytes) -> str:
    """Return the digest of an example, as the line of a copy has it."""
    return hashlib.sha256(content).hexdigest()


def mark(name: str, content: bytes) -> bytes:
    """Return an example with the line that says what it is: the first, or behind a `#!` line."""
    version = metadata.version("safepoint")
    line = f"# safepoint example {name} {version} sha256:{digest(content)}\n".encode()
    at = content.find(b"\n") + 1 if content.startswith(b"#!") else 0
    return content[:at] + line + content[at:]


def opening(name: str, text: str) -> str:
    """Return what an example says about itself: its docstring, or the comment at its beginning.

    Raises:
        SyntaxError: it is not Python, although it is called so.
    """
    if name.endswith(".py"):
        return ast.get_docstring(ast.parse(text)) or ""
    found = _OPENING.match(text)
    return re.sub("^# ?", "", found["lines"], flags=re.MULTILINE) if found else ""


def rules_of(name: str) -> list[str]:
    """Return the ids of the rules that an example defends."""
    return [rule.id for rule in RULES.values() if f"snippets/{name}" in rule.legs["defence"]]


def _folder() -> Path:
    package = Path(__file__).parents[1]
    for folder in (package / "_examples", package.parents[1] / "snippets"):
        if folder.is_dir():
            return folder
    raise ConfigurationError("This installation has no examples.", "Install safepoint again.")


# --- the command --------------------------------------------------------------------------------


def commands(sub: Any) -> None:
    """Add `safepoint examples`."""
    what = "list the vetted examples, or copy one to this folder, with its digest"
    parser = add(sub, "examples", what, _examples)
    parser.add_argument("name", metavar="NAME", nargs="?", help="which to copy: anchored.py")


def _examples(options: argparse.Namespace) -> int:
    examples, name = read_examples(), options.name
    if name is None:
        width = max(map(len, examples), default=0)
        for each, content in examples.items():
            title = opening(each, content.decode()).partition("\n")[0]
            print(f"{each:{width}}  {' '.join(rules_of(each)) or '-':9}  {title}")
        return 0
    if name not in examples:
        raise unknown("example", name, examples, "List them: safepoint examples")
    content = mark(name, examples[name])
    with disk.translated("save to", name):
        try:
            publish(name, memoryview(content), 0o755 if content.startswith(b"#!") else 0o644)
        except FileExistsError:
            what = f"{name} already exists here. Nothing was copied."
            raise Conflict(what, "Copy it into another folder, or remove that one.") from None
    print(f"Copied {name} {metadata.version('safepoint')}.")
    return 0
