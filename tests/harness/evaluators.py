"""Evaluate a block: run it, compare what it does with what the page says, write it down."""

from __future__ import annotations

import ast
import configparser
import doctest
import importlib.util
import inspect
import io
import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import tokenize
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Any, Final, NamedTuple

import yaml

from tests.harness.blocks import TAB, Block
from tests.harness.evidence import PACKAGES, Evidence, Outcome, imported_by
from tests.harness.page import Page

TIMEOUT = 600.0  # a machine may be slow, and busy besides
"""Seconds that a program has."""
ENOUGH: Final = 12
"""Characters of a message that no other message is likely to have."""
_SCRIPT_COMMENT: Final = re.compile(r"(?:^|[\s;])#.*$", re.MULTILINE)


class Failure(AssertionError):
    """A block did not do what the page says. The text is for the writer of the page."""


def evaluate(page: Page, block: Block, evidence: Evidence) -> Outcome:
    """Evaluate a block and record it.

    Raises:
        Failure: it does not do what the page says.
    """
    outcome: Outcome = "failed"
    if not needed(block):
        page.imported |= imported_by(block)
    started = time.perf_counter()
    try:
        outcome = _evaluate(page, block)
    finally:
        evidence.record(block, outcome, time.perf_counter() - started, page.imported)
    return outcome


def needed(block: Block) -> str:
    """Return what a block needs and is not installed, or ""."""
    name = block.attributes.get("data-needs", "json")
    return "" if importlib.util.find_spec(name) else name


def _evaluate(page: Page, block: Block) -> Outcome:
    is_checked, is_kept = "data-check" in block.attributes, "data-write" in block.attributes
    if block.language != "text" or is_checked:
        page.output = ""
    if needed(block):
        return "skipped"
    name = block.attributes.get("data-check", block.language)
    if name == "python" and is_kept:
        name = "python kept"
    elif name == "python" and "unsafe" in block.classes:
        name = "python unsafe"
    # Alone is in a new module and an empty folder, as a file that stands by itself.
    where = page
    if "alone" in block.classes:
        where = Page(page.name, page.blocks, page.root, page.postgres)
    try:
        with where.entered():
            output = EVALUATORS[name](where, block)
    finally:
        if where is not page:
            where.close()
    if is_kept:
        _keep(page, block)
    if output.strip() and page.checker(block) is None:
        how = "#> lines or a text block" if block.language == "python" else "a text block"
        raise Failure(f"prints what nothing checks; add {how} below\n{output}")
    page.output = output
    return "checked" if is_checked else "ran"


def _keep(page: Page, block: Block) -> None:
    """Keep a block as a file in the page's folder, for a block below that uses it."""
    name = block.attributes["data-write"]
    below = page.blocks[page.blocks.index(block) + 1 :]
    runs = [
        b for b in below if b.language in ("python", "bash") and "data-check" not in b.attributes
    ]
    used = re.compile(rf"{re.escape(name)}|\b{Path(name).stem}:\w")  # or as a module: store:Store
    if name == "safepoint.toml":
        used = re.compile(r"\bsafepoint \w")  # which each command reads
    if not any(used.search(_SCRIPT_COMMENT.sub("", later.text)) for later in runs):
        raise Failure(f"nothing below uses {name}; add a block that does")
    (page.folder / name).write_text(f"{block.text}\n", encoding="utf-8")


# Python: in the page's module, or in a process of its own if it is unsafe.


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
    with _captured() as output:
        try:
            exec(_compiled(block), page.module.__dict__)  # noqa: S102
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001
            frames = traceback.extract_tb(error.__traceback__)
            here = [n for n, frame in enumerate(frames) if frame.filename == str(block.file)]
            trace = traceback.TracebackException.from_exception(error)
            trace.stack = traceback.StackSummary.from_list(frames[here[0] :] if here else frames)
            line = frames[here[0]].lineno if here else None
            message = page.shown(str(error))
            raised = Raised(type(error).__name__, message, "".join(trace.format()), line)
    return _checked(page, block, page.shown("".join(output)), raised)


def _compiled(block: Block) -> CodeType:
    """Compile with the name of the page and its line numbers, so that tracebacks point there."""
    lines_above = "\n" * (block.first - 1)
    return compile(lines_above + block.text, str(block.file), "exec", dont_inherit=True)


def check_syntax(_: Page, block: Block) -> str:
    """Compile a block that runs later, as a file."""
    try:
        _compiled(block)
    except SyntaxError as error:
        raise Failure(f"raises SyntaxError: {error}") from None
    return ""


def _checked(page: Page, block: Block, stdout: str, raised: Raised | None) -> str:
    """Compare with what the block says about itself; return what it leaves to a text block."""
    _check_raised(page, block, raised)
    expected = stated_output(block.text)
    if expected is not None:
        if not stdout:
            raise Failure("prints nothing, though it has #> lines")
        if stdout.rstrip("\n") != expected:
            raise Failure(_difference("does not print what its #> lines say", expected, stdout))
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
                source = ast.get_source_segment(code, statement) or ""
                if isinstance(statement, ast.Expr) and source.startswith(('"""\n', "'''\n")):
                    indent = " " * statement.col_offset
                    lines = source[4:-3].rstrip(" ").removesuffix("\n").split("\n")
                    text = "\n".join(line.removeprefix(indent) for line in lines)
                    found.append((statement.lineno, text))
    return "\n".join(text for _, text in sorted(found)) if found else None


@contextmanager
def _captured() -> Iterator[list[str]]:
    """Capture what this process and its children write to standard output."""
    result: list[str] = []
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
            result.append(file.read().decode("utf-8", "backslashreplace"))


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
        said = f"write {ENOUGH} characters or more of it, or the whole message"
        raise Failure(f"{part!r} could be in many messages; {said}")
    if not part and page.checker(block) is None:
        said = f'write data-raises="{name}: part of it", or a text block below'
        raise Failure(f"the message of {name} is unchecked; {said}")


def _last_statement(block: Block) -> int:
    """Return the line of the file on which the last statement starts."""
    last = ast.parse(block.text).body[-1]
    decorators: list[ast.expr] = getattr(last, "decorator_list", [])
    return min([last.lineno, *(node.lineno for node in decorators)]) + block.first - 1


# The block becomes __main__, as it would in a reader's own file, and the folder it runs in is the
# first entry of sys.path.
_CHILD: Final = """
import sys
_source, _file, _first, _report, _packages = sys.argv[1:]
sys.argv = [_file]
def _main(report, packages, source, file, first):
    import __main__, json, sys, traceback
    space = {k: v for k, v in vars(__main__).items() if k.startswith("__")}
    vars(__main__).clear()
    vars(__main__).update(space)
    raised = None
    try:
        with open(source, encoding="utf-8") as stream:
            text = "\\n" * (int(first) - 1) + stream.read()
        exec(compile(text, file, "exec"), vars(__main__))
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in frames if frame.filename == file), None)
        raised = [type(error).__name__, str(error), traceback.format_exc(), line]
    imported = [name for name in packages.split(",") if name in sys.modules]
    with open(report, "w", encoding="utf-8") as stream:
        json.dump({"raised": raised, "imported": imported}, stream)
_main(_report, _packages, _source, _file, _first)
"""


def run_unsafe(page: Page, block: Block) -> str:
    """Run an unsafe block and return the output that is still unchecked."""
    if not block.text.startswith("# UNSAFE: "):
        raise Failure("an unsafe block starts with # UNSAFE: and what it shows; add that line")
    name = block.attributes.get("data-marker")
    marker = page.folder / name if name else None
    if marker and marker.exists():
        raise Failure(f"the marker {name} is there before the block runs; choose another name")
    with tempfile.TemporaryDirectory() as folder:
        source, report = Path(folder, "block.py"), Path(folder, "report.json")
        source.write_text(block.text, encoding="utf-8")
        where = [str(source), str(block.file), str(block.first), str(report)]
        command = [sys.executable, "-c", _CHILD, *where, ",".join(PACKAGES)]
        code, stdout, stderr = _run(page, command, merge=False)
        if not report.exists():
            raise Failure(f"ended with exit code {code} before its last line\n{stderr}")
        result = json.loads(report.read_text(encoding="utf-8"))
    page.imported |= set(result["imported"])
    raised = Raised(*result["raised"]) if result["raised"] else None
    rest = _checked(page, block, stdout, raised)
    if marker and not marker.exists():
        raise Failure(f"the marker {name} is not there afterwards: the payload did not run")
    if not (marker or raised or rest or stated_output(block.text)):
        raise Failure('shows no effect; add data-marker="file", printed output or data-raises')
    return rest


# Programs: scripts, and SQL through `psql`.


def _run(
    page: Page,
    command: list[str],
    *,
    merge: bool = True,
    text: str = "",
    environ: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str, str]:
    """Return the exit code, the output and, unless merged into it, the errors.

    Raises:
        Failure: it did not end in time. What it started was ended with it.
    """
    with subprocess.Popen(
        command,
        cwd=page.folder,
        env={**page.child_environ(), **environ},
        stdin=subprocess.PIPE if text else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merge else subprocess.PIPE,
        encoding="utf-8",
        errors="backslashreplace",
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(text or None, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failure(f"still running after {TIMEOUT:g} s; make it end") from None
    return process.returncode, page.shown(output), page.shown(errors or "")


def _check_exit(block: Block, code: int, output: str) -> None:
    wanted = int(block.attributes.get("data-exit", "0"))
    if code != wanted:
        raise Failure(f"exit code {code} instead of {wanted}\n{output}")


def run_bash(page: Page, block: Block) -> str:
    """Run a script to its end, or to the failure that it announces; return what it printed."""
    # The mark cannot be in anyone's output.
    mark = f"<{secrets.token_hex(16)}>"
    script = f"{block.text}\nprintf '{mark}%s\\n' \"$?\""
    code, output, _ = _run(page, ["bash", "-euo", "pipefail", "-c", script])
    output, *end = re.split(rf"{mark}(\d+)\n", output)
    if end:
        code, output = int(end[0]), output + end[1]
    _check_exit(block, code, output)
    if not end and "data-exit" not in block.attributes:
        raise Failure(f"the script ended before its last line; let it reach that\n{output}")
    return output


def run_login(page: Page, block: Block) -> str:
    """Run a block as its login, and return what a reader sees in `psql`.

    A refused block goes on after an error, so that it can show several; each of its results is
    stated below it. Any other one ends with the first error.
    """
    if ("unsafe" in block.classes) != block.text.startswith("-- UNSAFE: "):
        said = "starts with -- UNSAFE: and what it shows, and no other does"
        raise Failure(f"an .unsafe block {said}")
    refused = "refused" in block.classes and "data-exit" not in block.attributes
    psql = ["psql", "-X", "-q", "-w", "-U", block.attributes["data-login"]]
    psql += ["-v", f"ON_ERROR_STOP={0 if refused else 1}"]
    code, output, _ = _run(
        page, psql, text=f"{block.text}\n", environ=page.postgres.client_environ()
    )
    _check_exit(block, code, output)
    if refused and not re.search(r"^ERROR:  ", output, re.MULTILINE):
        raise Failure(f".refused, and PostgreSQL does it; remove the class\n{output}")
    if code == 0 and not refused:
        page.postgres.remember(block.text)
    # An aligned table fills its last column with spaces, and ends with an empty line.
    lines = [line.rstrip() for line in output.rstrip().split("\n")]
    return "\n".join(lines) + "\n" if any(lines) else ""


# What is compared with what is there: output, data, maps, trees, commands.

_DRAWING: Final = re.compile(r"^[\s│├└─|`+-]*")


def _difference(headline: str, expected: str, got: str) -> str:
    return f"{headline}\n--- the page\n{expected}\n+++ the run\n{got}"


def run_text(page: Page, block: Block) -> str:
    """Compare with what the block before printed. Three dots may stand for less than half of it."""
    got, page.output = page.output.expandtabs(TAB), ""
    if not got:
        raise Failure("nothing before it printed this; remove it, or print it")
    if not doctest.OutputChecker().check_output(f"{block.text}\n", got, doctest.ELLIPSIS):
        raise Failure(_difference("is not what the block above printed", block.text, got))
    literal = len("".join(block.text.replace("...", "").split()))
    if 2 * literal < len("".join(got.split())):
        raise Failure("... stands for more than half of the output; show more of it")
    return ""


def check_paths(page: Page, block: Block) -> str:
    """Check a map of files: each name exists, below the last name that was less indented."""
    folders: list[tuple[int, str]] = []
    for line in block.text.split("\n"):
        indent = len(_DRAWING.match(line)[0])  # type: ignore[index]
        names = re.split(r" {2,}|\t", line[indent:])[0].split()
        while folders and folders[-1][0] >= indent:
            folders.pop()
        base = page.root.joinpath(*(name for _, name in folders))
        for name in names:
            if not (base / name).exists():
                raise Failure(f"{name} is not there; correct the map")
        if names and names[-1].endswith("/"):
            folders.append((indent, names[-1]))
    return ""


def check_record(page: Page, block: Block) -> str:
    """Check a record: it is one of the published vectors, and one that opens."""
    file = page.root / "docs" / "vectors" / "records.json"
    vectors = json.loads(file.read_text(encoding="ascii"))["vectors"]
    opens = [v["record"].encode("latin-1") for v in vectors if "opens" in v]
    if block.text not in [record.decode("ascii", "backslashreplace") for record in opens]:
        raise Failure("is no record that opens; make it again: python -m tests.vectors")
    return ""


def check_subclasses(_: Page, block: Block) -> str:
    """Check a drawn tree of classes: who is below whom, and that none is left out."""
    module = importlib.import_module(block.attributes["data-module"])
    above: list[tuple[int, type]] = []
    drawn: set[type] = set()
    for line in filter(str.strip, block.text.split("\n")):
        indent = len(_DRAWING.match(line)[0])  # type: ignore[index]
        name = line[indent:].split()[0]
        found = getattr(module, name, None)
        if not inspect.isclass(found):
            raise Failure(f"{module.__name__} has no class {name}; correct the tree")
        while above and above[-1][0] >= indent:
            above.pop()
        if above and above[-1][1] not in found.__bases__:
            raise Failure(f"{name} is not below {above[-1][1].__name__}; correct the tree")
        above.append((indent, found))
        drawn.add(found)
    kinds = [kind for kind in vars(module).values() if inspect.isclass(kind)]
    missing = [k.__name__ for k in kinds if k not in drawn and set(k.__mro__) & drawn]
    if missing:
        raise Failure(f"the tree leaves out {', '.join(sorted(missing))}; add it")
    return ""


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(items)) < len(items):
        raise ValueError("a key stands twice")
    return dict(items)


def _parsed(name: str, parse: Callable[[str], object]) -> Callable[[Page, Block], str]:
    def run(_: Page, block: Block) -> str:
        try:
            parse(block.text)
        except (ValueError, configparser.Error) as error:
            raise Failure(f"not {name}: {error}") from None
        return ""

    return run


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)


def _ini(text: str) -> None:
    configparser.RawConfigParser(strict=True).read_string(text)


def _yaml(text: str) -> None:
    try:
        waiting = [yaml.compose(text)]
        yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from None
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value]
            if len(keys) != len({*keys}):
                raise ValueError(f"{max(keys, key=keys.count)} stands twice")
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def check_make(page: Page, block: Block) -> str:
    """Check that each `make` target exists, and the syntax of lines that install something.

    One simple command per line: what stands behind a `&&` would not be looked at.
    """
    for line in block.text.split("\n"):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        more = re.search(r"\$\(|[;&|<>`]", re.sub(r"(?:^|\s)#[^'\"]*$", "", line))
        if more:
            raise Failure(f"{more[0]} in {line}; write one simple command per line")
        if words[0] == "make":
            rules = re.findall(r"^([\w .-]+):(?!=)", (page.root / "Makefile").read_text(), re.M)
            defined = {name for rule in rules for name in rule.split()}
            for target in words[1:]:
                if "=" not in target and target not in defined:
                    raise Failure(f"the Makefile has no target {target}; correct the command")
            command = ["make", "-n", *words[1:]]
        elif words[0] in {"git", "cd", "pip", "."} or words[:3] == ["python3", "-m", "venv"]:
            command = ["bash", "-n", "-c", line]
        else:
            raise Failure(f"{words[0]} can run here; move it to a block of its own")
        dry = subprocess.run(command, cwd=page.root, capture_output=True, text=True, check=False)
        if dry.returncode:
            raise Failure(f"{line} would fail\n{dry.stderr}")
    return ""


EVALUATORS: Final[dict[str, Callable[[Page, Block], str]]] = {
    "python": run_python,
    "python kept": check_syntax,
    "python unsafe": run_unsafe,
    "bash": run_bash,
    "text": run_text,
    "sql": run_login,
    "json": _parsed("JSON", _json),
    "toml": _parsed("TOML", tomllib.loads),
    "ini": _parsed("INI", _ini),
    "yaml": _parsed("YAML", _yaml),
    "make": check_make,
    "paths": check_paths,
    "record": check_record,
    "subclasses": check_subclasses,
}
"""What runs a block, raises Failure, and returns the output that a text block has yet to check."""
