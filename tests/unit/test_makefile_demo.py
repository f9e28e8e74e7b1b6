"""`make demo` ends on Ctrl-C with a word and no traceback, and hides no other error."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from textwrap import dedent

from tests.unit.test_makefile import Clone, clone, ready

__all__ = ["clone", "ready"]  # fixtures

STUB = """
    import os, subprocess, sys, time
    from pathlib import Path

    if sys.argv[1:]:
        print(os.getcwd(), flush=True)
        time.sleep(60)
    subprocess.run([sys.executable, __file__, "worker"])
"""


def demo(ready: Clone, stub: str, tmp_path: Path) -> subprocess.Popen[str]:
    """Run it in a process group of its own, with a snippet that does little."""
    (ready.path / "snippets").mkdir()
    (ready.path / "snippets/two_workers.py").write_text(dedent(stub))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("M")}
    return subprocess.Popen(
        ["make", "demo"],
        cwd=ready.path,
        env=inherited | {"PYTHON": str(ready.path / "python"), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_ctrl_c_says_one_word(ready: Clone, tmp_path: Path) -> None:
    """To all of them, as a terminal sends it."""
    with demo(ready, STUB, tmp_path) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        os.killpg(process.pid, signal.SIGINT)
        said, complained = process.communicate(timeout=300)
    assert said == "Stopped.\n"
    assert re.fullmatch(r"(make: .*\n)?", complained)
    assert process.returncode not in (None, 0)
    assert not folder.exists()


def test_an_error_is_shown(ready: Clone, tmp_path: Path) -> None:
    with demo(ready, "import sys\nprint('one')\nsys.exit('it failed')", tmp_path) as process:
        said, complained = process.communicate(timeout=300)
    assert (said, complained.splitlines()[0]) == ("one\n", "it failed")
    assert process.returncode == 2
