"""Shell: scripts."""

from __future__ import annotations

import re
import secrets

from tests.harness.blocks import Block
from tests.harness.languages.process import run
from tests.harness.page import Failure, Page


def run_bash(page: Page, block: Block) -> str:
    """Run a script to its end, or to the failure that it announces; return what it printed."""
    # The mark cannot be in anyone's output.
    mark = f"<{secrets.token_hex(16)}>"
    script = f"{block.text}\nprintf '{mark}%s\\n' \"$?\""
    code, output, _ = run(page, ["bash", "-euo", "pipefail", "-c", script], merge=True)
    output, *end = re.split(rf"{mark}(\d+)\n", output)
    if end:
        code, output = int(end[0]), output + end[1]
    wanted = int(block.attributes.get("data-exit", "0"))
    if code != wanted:
        raise Failure(f"exit code {code} instead of {wanted} from: the script\n{output}")
    if not end and "data-exit" not in block.attributes:
        raise Failure(f"the script ended before its last line; let it reach that\n{output}")
    return output
