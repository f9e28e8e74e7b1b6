"""Commands that would start this very run again: checked, not run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from tests.harness.blocks import Block
from tests.harness.page import Failure, Page

_COMMENT = re.compile(r"(?:^|\s)#[^'\"]*$")
_MORE_THAN_A_COMMAND = re.compile(r"\$\(|[;&|<>`]")


def check_make(page: Page, block: Block) -> str:
    """Check that each `make` target exists, and the syntax of `git`, `cd` and `pip` lines.

    One simple command per line: what stands behind a `&&` would not be looked at.
    """
    for line in block.text.split("\n"):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        more = _MORE_THAN_A_COMMAND.search(_COMMENT.sub("", line))
        if more:
            raise Failure(f"{more[0]} in {line}; write one simple command per line")
        if words[0] == "make":
            _check_target(page.root, words)
        elif words[0] in {"git", "cd", "pip"}:
            _check_syntax(line)
        else:
            raise Failure(f"{words[0]} can run here; move it to a block of its own")
    return ""


def _check_target(root: Path, words: list[str]) -> None:
    makefile = root / "Makefile"
    if not makefile.is_file():
        raise Failure("there is no Makefile; add it")
    rules = re.findall(r"^([\w .-]+):(?!=)", makefile.read_text(encoding="utf-8"), re.MULTILINE)
    defined = {name for rule in rules for name in rule.split()}
    for target in (word for word in words[1:] if "=" not in word):
        if target not in defined:
            raise Failure(f"the Makefile has no target {target}; correct the command")
    dry = subprocess.run(
        ["make", "-n", *words[1:]], cwd=root, capture_output=True, text=True, check=False
    )
    if dry.returncode:
        raise Failure(f"{shlex.join(words)} would fail\n{dry.stderr}")


def _check_syntax(line: str) -> None:
    result = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False)
    if result.returncode:
        raise Failure(f"the shell cannot read: {line}\n{result.stderr}")
