"""SQL on a real PostgreSQL, as a login, through `psql`."""

from __future__ import annotations

import re

from tests.harness.blocks import Block
from tests.harness.languages.process import run
from tests.harness.page import Failure, Page

_ERROR = re.compile(r"^ERROR:  ", re.MULTILINE)


def run_login(page: Page, block: Block) -> str:
    """Run a block as its login, and return what a reader sees in `psql`.

    A refused block goes on after an error, so that it can show several; each of its results is
    stated below it. Any other one ends with the first error.
    """
    if ("unsafe" in block.classes) != block.text.startswith("-- UNSAFE: "):
        raise Failure(
            "an .unsafe block starts with -- UNSAFE: and what it shows, and no other does"
        )
    refused = "refused" in block.classes and "data-exit" not in block.attributes
    psql = ["psql", "-X", "-q", "-w", "-U", block.attributes["data-login"]]
    psql += ["-v", f"ON_ERROR_STOP={0 if refused else 1}"]
    code, output, _ = run(
        page, psql, merge=True, text=f"{block.text}\n", environ=page.postgres.client_environ()
    )
    wanted = int(block.attributes.get("data-exit", "0"))
    if code != wanted:
        raise Failure(f"exit code {code} instead of {wanted} from psql\n{output}")
    if refused and not _ERROR.search(output):
        raise Failure(f".refused, and PostgreSQL does it; remove the class\n{output}")
    if code == 0 and not refused:
        page.postgres.remember(block.text)
    # An aligned table fills its last column with spaces, and ends with an empty line.
    lines = [line.rstrip() for line in output.rstrip().split("\n")]
    return "\n".join(lines) + "\n" if any(lines) else ""
