"""Shell: scripts, and sessions with prompts."""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

from tests.harness.blocks import TAB, Block
from tests.harness.languages.output import check_dots, difference
from tests.harness.languages.process import run
from tests.harness.page import Failure, Page


class Exchange(NamedTuple):
    """A command of a session, and the lines below it."""

    command: str
    expected: str


def run_bash(page: Page, block: Block) -> str:
    """Run a script to its end, or to the failure that it announces; return what it printed."""
    # The mark cannot be in anyone's output.
    mark = f"<{secrets.token_hex(16)}>"
    script = f"{block.text}\nprintf '{mark}%s\\n' \"$?\""
    code, output, _ = run(page, ["bash", "-euo", "pipefail", "-c", script], merge=True)
    output, *end = re.split(rf"{mark}(\d+)\n", output)
    if end:
        code, output = int(end[0]), output + end[1]
    _check_exit("the script", code, block, output)
    if not end and "data-exit" not in block.attributes:
        raise Failure(f"the script ended before its last line; let it reach that\n{output}")
    return output


def run_console(page: Page, block: Block) -> str:
    """Run a session, command by command in one shell, and compare what each prints."""
    exchanges = parse_session(block.text)
    # One shell keeps `cd` and variables. The mark cannot be in anyone's output.
    mark = f"<{secrets.token_hex(16)}>"
    script = "\n".join(f"{exchange.command}\nprintf '{mark}%s\\n' \"$?\"" for exchange in exchanges)
    _, output, _ = run(page, ["bash", "-uo", "pipefail", "-c", script], merge=True)
    parts = re.split(rf"{mark}(\d+)\n", output)
    for index, exchange in enumerate(exchanges):
        got = parts[2 * index]
        if 2 * index + 1 >= len(parts):
            raise Failure(f"the shell ended in: {exchange.command}\n{got}")
        last = index == len(exchanges) - 1
        _check_exit(exchange.command, int(parts[2 * index + 1]), block if last else None, got)
        if not matches(exchange.expected, got):
            headline = f"does not print what stands below $ {exchange.command}"
            raise Failure(difference(headline, exchange.expected, got))
        check_dots(exchange.expected, got)
    return ""


def parse_session(text: str) -> list[Exchange]:
    """Split a session at its `$ ` prompts."""
    exchanges: list[Exchange] = []
    command: list[str] = []
    output: list[str] = []
    for line in [*text.split("\n"), "$ "]:
        if line.startswith("$ "):
            if command:
                exchanges.append(Exchange("\n".join(command), "\n".join(output)))
            elif output:
                raise Failure("output before the first command; start with $ command")
            command, output = [line[2:]], []
        elif line.startswith("> ") and command and not output:
            command.append(line[2:])
        else:
            output.append(line)
    if not exchanges:
        raise Failure("no command; start with $ command")
    return exchanges


def matches(expected: str, got: str) -> bool:
    """Compare line by line: three dots stand for a part of a line, or alone for any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n"
        for line in expected.rstrip("\n").split("\n")
    )
    text = got.expandtabs(TAB).rstrip("\n") + "\n"
    return re.fullmatch(pattern, text) is not None


def _check_exit(what: str, code: int, block: Block | None, output: str) -> None:
    wanted = int(block.attributes.get("data-exit", "0")) if block else 0
    if code != wanted:
        raise Failure(f"exit code {code} instead of {wanted} from: {what}\n{output}")
