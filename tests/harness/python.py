"""Python: in the page's module, or in a process of its own if it is unsafe."""

from __future__ import annotations

import ast
import io
import os
import sys
import tempfile
import tokenize
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Final, NamedTuple

from tests.harness.blocks import Block
from tests.harness.checks import difference
from tests.harness.page import Failure, Page

ENOUGH: Final = 12
"""Characters of a message that no other message is likely to have."""


class Raised(NamedTuple):
    """An exception that ended a block, and the line of the statement that raised it."""

    name: str
    message: str
    details: str
    line: int | None

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


def run_python(page: Page, block: Block) -> str:
    """Run a block in the page's module and return the output that is still unchecked."""
    if block.text.startswith("# UNSAFE:"):
        raise Failure("starts with # UNSAFE: but is not marked; write ```{ .python .unsafe … }")
    raised = None
    with captured() as output:
        try:
            exec(compile_block(block), page.module.__dict__)  # noqa: S102
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001
            message = page.shown(str(error))
            details = _page_traceback(error, block)
            raised = Raised(type(error).__name__, message, details, _line(error, block))
    return check_python(page, block, page.shown(output.text), raised)


def compile_block(block: Block) -> CodeType:
    """Compile with the name of the page and its line numbers, so that tracebacks point there."""
    lines_above = "\n" * (block.first - 1)
    return compile(lines_above + block.text, str(block.file), "exec", dont_inherit=True)


def check_syntax(_: Page, block: Block) -> str:
    """Compile a block that runs later, as a file."""
    try:
        compile_block(block)
    except SyntaxError as error:
        raise Failure(f"raises SyntaxError: {error}") from None
    return ""


def check_python(page: Page, block: Block, stdout: str, raised: Raised | None) -> str:
    """Compare with what the block says about itself; return what it leaves to a text block."""
    _check_raised(page, block, raised)
    expected = stated_output(block.text)
    if expected is not None:
        if not stdout:
            raise Failure("prints nothing, though it has #> lines")
        if stdout.rstrip("\n") != expected:
            raise Failure(difference("does not print what its #> lines say", expected, stdout))
        stdout = ""
    if raised and page.checker(block):
        stdout += f"{raised}\n"
    return stdout


def stated_output(code: str) -> str | None:
    """Return what the `#>` lines say, or None if there are none.

    pytest-examples writes several lines from one `print` as a bare triple-quoted string; that
    counts too.
    """
    found: list[tuple[int, str]] = []
    try:
        found += (
            (token.start[0], token.string[2:].removeprefix(" "))
            for token in tokenize.generate_tokens(io.StringIO(code).readline)
            if token.type == tokenize.COMMENT and token.string.startswith("#>")
        )
        tree = ast.parse(code)
    except (SyntaxError, tokenize.TokenError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            continue
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for statement in body[1:] if isinstance(body, list) else ():
                text = _bare_string(code, statement)
                if text is not None:
                    found.append((statement.lineno, text))
    return "\n".join(text for _, text in sorted(found)) if found else None


@contextmanager
def captured() -> Iterator[Captured]:
    """Capture what this process and its children write to standard output."""
    result = Captured()
    outer, saved = sys.stdout, os.dup(1)
    with tempfile.TemporaryFile() as file:
        outer.flush()
        os.dup2(file.fileno(), 1)
        sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
        try:
            yield result
        finally:
            ours, sys.stdout = sys.stdout, outer
            ours.close()
            os.dup2(saved, 1)
            os.close(saved)
            file.seek(0)
            result.text = file.read().decode("utf-8", "backslashreplace")


class Captured:
    """What was written, once the capture has ended."""

    text = ""


def _check_raised(page: Page, block: Block, raised: Raised | None) -> None:
    wanted = block.attributes.get("data-raises")
    if wanted is None:
        if raised:
            raise Failure(f"raises {raised}\n{raised.details}")
        return
    name, _, part = wanted.partition(": ")
    if raised is None:
        raise Failure(f"raises nothing, though the page says {name}")
    if raised.name != name:
        raise Failure(f"raises {raised.name}, though the page says {name}\n{raised.details}")
    if raised.line is not None and raised.line < _last_statement(block):
        raise Failure(f"raises {name} before its last statement; end the block there")
    if part and part not in raised.message:
        raise Failure(f"raises {name} with another message\n--- the page\n{part}\n+++ {raised}")
    if part and len(part) < ENOUGH and part != raised.message:
        raise Failure(
            f"{part!r} could be in many messages; "
            f"write {ENOUGH} characters or more of it, or the whole message"
        )
    if not part and page.checker(block) is None:
        raise Failure(
            f'the message of {name} is unchecked; write data-raises="{name}: part of it", '
            "or a text block below"
        )


def _last_statement(block: Block) -> int:
    """Return the line of the file on which the last statement starts."""
    try:
        last = ast.parse(block.text).body[-1]
    except (SyntaxError, IndexError):
        return 0
    decorators: list[ast.expr] = getattr(last, "decorator_list", [])
    return min([last.lineno, *(node.lineno for node in decorators)]) + block.first - 1


def _line(error: BaseException, block: Block) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in frames if frame.filename == str(block.file)), None)


def _bare_string(code: str, statement: ast.stmt) -> str | None:
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
        return None
    source = ast.get_source_segment(code, statement) or ""
    if not source.startswith(('"""\n', "'''\n")):
        return None
    indent = " " * statement.col_offset
    lines = source[4:-3].rstrip(" ").removesuffix("\n").split("\n")
    return "\n".join(line.removeprefix(indent) for line in lines)


def _page_traceback(error: BaseException, block: Block) -> str:
    trace = traceback.TracebackException.from_exception(error)
    frames = list(trace.stack)
    for index, frame in enumerate(frames):
        if frame.filename == str(block.file):
            trace.stack = traceback.StackSummary.from_list(frames[index:])
            break
    return "".join(trace.format())
