"""Python that executes a payload: alone, in another process, with a marker to show for it."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.harness.blocks import Block
from tests.harness.languages.process import run
from tests.harness.languages.python import Raised, check_python, stated_output
from tests.harness.page import Failure, Page
from tests.harness.versions import PACKAGES

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
    stdout, raised = _run_child(page, block)
    rest = check_python(page, block, stdout, raised)
    if marker and not marker.exists():
        raise Failure(f"the marker {name} is not there afterwards: the payload did not run")
    if not (marker or raised or rest or stated_output(block.text)):
        raise Failure('shows no effect; add data-marker="file", printed output or data-raises')
    return rest


def _run_child(page: Page, block: Block) -> tuple[str, Raised | None]:
    with tempfile.TemporaryDirectory() as folder:
        source, report = Path(folder, "block.py"), Path(folder, "report.json")
        source.write_text(block.text, encoding="utf-8")
        where = [str(source), str(block.file), str(block.first), str(report)]
        command = [sys.executable, "-c", _CHILD, *where, ",".join(PACKAGES)]
        code, stdout, stderr = run(page, command, merge=False)
        if not report.exists():
            raise Failure(f"ended with exit code {code} before its last line\n{stderr}")
        result = json.loads(report.read_text(encoding="utf-8"))
    page.imported |= set(result["imported"])
    return stdout, Raised(*result["raised"]) if result["raised"] else None
