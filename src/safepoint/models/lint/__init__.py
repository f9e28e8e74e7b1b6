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

from safepoint.models.lint.loads import Finder
from safepoint.models.lint.names import DATA

__all__ = ["IDS", "Id", "Load", "check_source"]

_NOT_FOLLOWED: Final = (SyntaxError, ValueError, RecursionError, MemoryError)


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
    """

    cell: int
    line: int
    column: int
    id: str
    what: str


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
    return sorted(check(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data))


def _parse(data: bytes | str) -> ast.Module:
    """Parse a file in its own encoding. Nothing in it runs and nothing warns of its style."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(data)


def _unseen(what: str, error: Exception, cell: int = 0) -> Load:
    why = ascii(getattr(error, "msg", type(error).__name__))[1:-1][:80]  # it may quote the file
    line = max(getattr(error, "lineno", None) or 1, 1)
    return Load(cell, line, 1, "SL90", f"This was not looked at: {what} ({why}).")


def _check_python(data: bytes) -> Iterator[Load]:
    try:
        found = {(node, kind): what for node, kind, what in Finder(_parse(data)).find()}
    except _NOT_FOLLOWED as error:
        yield _unseen("it is not Python that can be followed", error)
        return
    lines, allows = data.splitlines(), dict(_allows(data))
    used: set[tuple[int, str]] = set()
    for (node, kind), what in found.items():
        last = node.end_lineno or node.lineno
        allowed = allows.keys() & {(line, kind) for line in range(node.lineno, last + 1)}
        used |= allowed
        if not allowed:
            before = b"".join(lines[node.lineno - 1 : node.lineno])[: node.col_offset]
            yield Load(0, node.lineno, len(before.decode("utf-8", "replace")) + 1, kind, what)
    for key in allows.keys() - used:
        what = f"It allows {key[1]}, but nothing there needs it any more."
        vague = "It does not say what it allows, or why, in two words or more."
        yield Load(0, *allows[key], "SL91", what if key[1] else vague)


# --- notebooks: their code cells as one module, since a name of one cell reaches the next -------

_OTHER: Final = re.compile(r"\s*%%(?!time|capture|prun)")  # a whole cell that is not Python
# A line for IPython or a shell. One that goes on with an operator, such as `% 3`, is none.
_MAGIC: Final = re.compile(
    r"^([ \t]*)(?:(?:%{1,2}[a-z_]|!(?!=)|\?).*|[\w.]+\?+[ \t]*)$", re.I | re.M
)


def _check_notebook(data: bytes) -> Iterator[Load]:
    try:
        cells = [(each["cell_type"], "".join(each["source"])) for each in json.loads(data)["cells"]]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        yield _unseen("it is not a notebook", error)
        return
    whole: list[str] = []
    places: list[tuple[int, int]] = []  # of each line: its cell, and its line there
    for number, (kind, text) in enumerate(cells, 1):
        if kind in ("markdown", "raw") or _OTHER.match(text):
            continue  # and any other kind may be code to somebody
        code = _MAGIC.sub(r"\1pass", text)
        try:
            _parse(code)
        except _NOT_FOLLOWED as error:
            yield _unseen("it is not Python", error, number)
            continue
        whole.append(code)
        places += [(number, line) for line in range(1, code.count("\n") + 2)]
    for found in _check_python("\n".join(whole).encode()):
        cell, line = places[min(found.line, len(places)) - 1]
        yield found._replace(cell=cell, line=line)


# --- allowed on purpose, with `safepoint: allow SL02 made by our own nightly job` ---------------
# It stands on a line of what was found, or on a line of its own above it, and gives a reason.

_ALLOW: Final = re.compile(
    r"#\s*safepoint\s*:\s*allow\b(?:\s*([a-z]+\d+(?:\s*,\s*[a-z]+\d+)*)\b[\s:,-]*[^\s:,-]\S*\s+\S)?",
    re.IGNORECASE,
)


def _allows(data: bytes) -> Iterator[tuple[tuple[int, str], tuple[int, int]]]:
    """Yield each id that a comment allows, with the line that it is about, and where it stands."""
    if b"allow" not in data.lower():
        return
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # the parser has the last word
        for each in tokenize.tokenize(io.BytesIO(data).readline):
            mark = _ALLOW.search(each.string) if each.type == tokenize.COMMENT else None
            if mark:
                line, column = each.start
                is_above = not each.line[:column].strip()  # what it is about, on the next line
                for name in (mark[1] or "").upper().split(","):
                    yield (line + is_above, name.strip()), (line, column + 1 + mark.start())
