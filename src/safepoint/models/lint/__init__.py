"""Find the loads that can run what a file says, and what an agent keeps without a seal.

It closes what Bandit and Ruff leave open about PyTorch and pickle and is not a replacement for
them. `safepoint audit` makes findings of what this finds.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

from safepoint.core.errors import quoted
from safepoint.models.lint.loads import Finder
from safepoint.models.lint.names import DATA, Tangled

__all__ = ["IDS", "Id", "Load", "check_source"]

_NOT_PARSED: Final = (SyntaxError, ValueError, RecursionError, MemoryError)


class Id(NamedTuple):
    """One kind of finding.

    Attributes:
        rule: the rule that it breaks, for example "SP23".
        title: what it looks for, as a few words.
        fix: what to do, as one or two sentences.
    """

    rule: str
    title: str
    fix: str


IDS: Final = {name: Id(**each) for name, each in DATA["ids"].items()}
"""What is looked for."""


class Load(NamedTuple):
    """One load that a reviewer should not miss, or code that was not looked at.

    Attributes:
        cell: the cell of a notebook, from 1, and 0 elsewhere.
        line: the line, from 1.
        column: the column, from 1, in characters.
        id: the kind of finding, for example "SL01".
        what: what is there, as one sentence on one line.
        last: the last line of what was found.
    """

    cell: int
    line: int
    column: int
    id: str
    what: str
    last: int = 0


def _unseen(why: str, line: int = 1, column: int = 1, cell: int = 0) -> Load:
    return Load(cell, max(line, 1), max(column, 1), "SL90", f"This was not looked at: {why}.")


# --- one file -----------------------------------------------------------------------------------


def check_source(data: bytes | str, path: str = "<text>") -> list[Load]:
    r"""Look at the Python code of one file.

    ```python
    from safepoint.models.lint import check_source

    code = 'import torch as th\nth.load("model.pt", weights_only=False)\n'
    for load in check_source(code, "train.py"):
        print(load.line, load.column, load.id)
        #> 2 1 SL02
    ```

    Returns:
        What was found, from top to bottom. A file that cannot be parsed is a finding of its own.
    """
    check = _check_notebook if PurePath(path).suffix == ".ipynb" else _check_python
    return sorted(check(_encoded(data)))


def _encoded(text: bytes | str) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _parse(data: bytes | str) -> ast.Module:
    """Parse a file in its own encoding. Nothing in it runs and nothing warns of its style."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(_encoded(data))


def _check_python(data: bytes) -> Iterator[Load]:
    try:
        findings = [*_visit(_parse(data), data)]
    except SyntaxError as error:
        why = ascii(error.msg)[1:-1][:80]  # it may quote the file
        yield _unseen(f"it is not Python ({why})", error.lineno or 1, error.offset or 1)
    except (ValueError, RecursionError, MemoryError, Tangled) as error:
        why = "too tangled" if isinstance(error, Tangled) else type(error).__name__
        yield _unseen(f"it is not Python that can be followed ({why})")
    else:
        yield from _allowed(findings, _comments(data))


def _visit(tree: ast.Module, data: bytes) -> Iterator[Load]:
    lines = data.splitlines()
    found = {(node, kind): what for node, kind, what in Finder(tree).find()}
    for (node, kind), what in found.items():
        line, last = node.lineno, node.end_lineno or node.lineno
        before = b"".join(lines[line - 1 : line])[: node.col_offset]
        yield Load(0, line, len(before.decode("utf-8", "replace")) + 1, kind, what, last)


# --- notebooks: their code cells as one module, since a name of one cell reaches the next -------

# A line that goes on with an operator, such as `% 3` or `!= 3`, is none.
_PYTHON: Final = ("%%time", "%%capture", "%%prun")
_MAGIC: Final = re.compile(r"\s*(?:%{1,2}[A-Za-z_]|!(?!=)|\?).*|.*\?\s*")


def _check_notebook(data: bytes) -> Iterator[Load]:
    try:
        cells = [(each["cell_type"], "".join(each["source"])) for each in json.loads(data)["cells"]]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        yield _unseen(f"it is not a notebook ({type(error).__name__})")
        return
    whole: list[str] = []
    places: list[tuple[int, int]] = []  # of each line: its cell, and the lines before that
    for number, (kind, text) in enumerate(cells, 1):
        if kind in ("markdown", "raw"):
            continue  # and any other kind may be code to somebody
        code = _python_of(text)
        try:
            _parse(code)
        except _NOT_PARSED as error:
            line = getattr(error, "lineno", None) or 1
            yield _unseen("it is not Python", line, 1, number)
            continue
        places += [(number, len(whole))] * (code.count("\n") + 1)
        whole += code.split("\n")
    for found in _check_python(_encoded("\n".join(whole))):
        number, before = places[min(found.line, len(places)) - 1]
        yield found._replace(cell=number, line=found.line - before, last=found.last - before)


def _python_of(text: str) -> str:
    """Return what of a cell is Python: a line for the shell or for IPython does nothing."""
    lines, begins = text.split("\n"), text.lstrip()
    odd = [_MAGIC.fullmatch(line) is not None for line in lines]
    if begins.startswith("%%"):
        odd = [not begins.startswith(_PYTHON) or number == 0 for number, _ in enumerate(lines)]
    else:
        with contextlib.suppress(*_NOT_PARSED):
            _parse(text)
            return text
    pairs = zip(lines, odd, strict=True)
    return "\n".join(f"{line[: -len(line.lstrip())]}pass" if o else line for line, o in pairs)


# --- allowed on purpose, with `safepoint: allow SL02 made by our own nightly job` ---------------
# It stands on a line of what was found, or on a line of its own above it, and gives a reason. Each
# id in it is for one finding.

_MARK: Final = re.compile(
    r"#\s*safepoint\s*:\s*allow\b\s*([a-z]+\d+(?:\s*,\s*[a-z]+\d+)*)?[\s:,-]*(.*)", re.IGNORECASE
)
_Comment = tuple[str, int, int, str]  # its text, its line and column, and the whole line


def _comments(data: bytes) -> list[_Comment]:
    if b"allow" not in data.lower():
        return []
    found: list[_Comment] = []
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # the parser has the last word
        for each in tokenize.tokenize(io.BytesIO(data).readline):
            if each.type == tokenize.COMMENT:
                found += [(each.string, *each.start, each.line)]
    return found


def _allowed(findings: list[Load], comments: list[_Comment]) -> Iterator[Load]:
    """Leave out what is allowed with a reason, and add each allow that does not count."""
    # Of two calls around an allow, the one that ends first is the inner one.
    left = sorted(findings, key=lambda each: (max(each.line, each.last), -each.line, each.column))
    for text, line, column, whole in comments:
        mark = _MARK.search(text)
        if mark is None:
            continue
        ids = [name.strip().upper() for name in (mark[1] or "").split(",") if name.strip()]
        odd = [name for name in ids if name not in IDS or name in ("SL90", "SL91")]
        what = "" if ids else "It does not say what it allows."
        what = what or (f"{quoted(odd[0])} is not an id that can be allowed." if odd else "")
        if not what and len(mark[2].split()) < 2:
            what = f"It allows {', '.join(ids)} without a reason."
        idle = []
        for name in () if what else ids:
            above = None if whole[:column].strip() else line + 1  # where it stands alone
            for each in left:
                is_near = each.line == above or each.line <= line <= max(each.line, each.last)
                if each.id == name and is_near:
                    left.remove(each)
                    break
            else:
                idle.append(name)
        if idle:
            what = f"It allows {', '.join(idle)}, but nothing there needs it any more."
        if what:
            yield Load(0, line, column + 1 + mark.start(), "SL91", what)
    yield from left
