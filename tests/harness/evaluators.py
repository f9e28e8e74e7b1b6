"""Evaluate a block: run it, compare what it printed, write down what happened."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable
from typing import Final

from tests.harness import checks, programs, python
from tests.harness.blocks import Block
from tests.harness.evidence import Evidence, Outcome
from tests.harness.page import Failure, Page
from tests.harness.versions import imported_by

Evaluator = Callable[[Page, Block], str]
"""Runs a block, raises Failure, and returns the output that a text block has yet to check."""

EVALUATORS: Final[dict[str, Evaluator]] = {
    "python": python.run_python,
    "python .unsafe": programs.run_unsafe,
    "bash": programs.run_bash,
    "text": checks.run_text,
    "sql": programs.run_login,
    "json": checks.run_json,
    "toml": checks.run_toml,
    "ini": checks.run_ini,
}
CHECKERS: Final[dict[str, Evaluator]] = {
    "make": checks.check_make,
    "paths": checks.check_paths,
    "record": checks.check_record,
    "subclasses": checks.check_subclasses,
}

_CAN_USE_FILES: Final = frozenset({"python", "bash"})
_COMMENT = re.compile(r"(?:^|[\s;])#.*$", re.MULTILINE)


def evaluate(page: Page, block: Block, evidence: Evidence | None = None) -> Outcome:
    """Evaluate a block and record it.

    Raises:
        Failure: it does not do what the page says.
    """
    outcome: Outcome = "failed"
    if skipped_for(block) is None:
        page.imported |= imported_by(block)
    started = time.perf_counter()
    try:
        outcome = _evaluate(page, block)
    finally:
        if evidence is not None:
            seconds = time.perf_counter() - started
            evidence.record(block, outcome, seconds, page.imported)
    return outcome


def skipped_for(block: Block) -> str | None:
    """Return why a block is left out, or None for one that runs."""
    needs = block.attributes.get("data-needs")
    if needs is not None and importlib.util.find_spec(needs) is None:
        return f"needs {needs}, which is not installed"
    return block.attributes.get("data-skip")


def _evaluate(page: Page, block: Block) -> Outcome:
    if skipped_for(block) is not None:
        page.output = ""
        return "skipped"
    evaluator = _evaluator(block)
    if evaluator is not checks.run_text:
        page.output = ""
    if "alone" in block.classes:
        output = _evaluate_alone(page, block, evaluator)
    else:
        with page.entered():
            output = evaluator(page, block)
    if "data-write" in block.attributes:
        _keep(page, block)
    if output.strip() and page.checker(block) is None:
        how = "#> lines or a text block" if block.language == "python" else "a text block"
        raise Failure(f"prints what nothing checks; add {how} below\n{output}")
    page.output = output
    return "checked" if "data-check" in block.attributes else "ran"


def _evaluator(block: Block) -> Evaluator:
    if "data-check" in block.attributes:
        return CHECKERS[block.attributes["data-check"]]
    if block.language == "python" and "data-write" in block.attributes:
        return python.check_syntax
    unsafe_python = block.language == "python" and "unsafe" in block.classes
    return EVALUATORS["python .unsafe" if unsafe_python else block.language]


def _evaluate_alone(page: Page, block: Block, evaluator: Evaluator) -> str:
    """Evaluate in a new module and an empty folder, as a file that stands by itself."""
    alone = Page(page.name, page.blocks, page.root, page.postgres)
    try:
        with alone.entered():
            return evaluator(alone, block)
    finally:
        alone.close()


def _keep(page: Page, block: Block) -> None:
    """Keep a block as a file in the page's folder, for a block below that uses it."""
    name = block.attributes["data-write"]
    below = page.blocks[page.blocks.index(block) + 1 :]
    if not any(name in _COMMENT.sub("", later.text) for later in below if _runs(later)):
        raise Failure(f"nothing below uses {name}; add a block that does")
    (page.folder / name).write_text(f"{block.text}\n", encoding="utf-8")


def _runs(block: Block) -> bool:
    left_out = skipped_for(block) is not None or "data-check" in block.attributes
    return block.language in _CAN_USE_FILES and not left_out
