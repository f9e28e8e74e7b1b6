"""Run a program in the page's folder, with a clean environment and an end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.harness.page import Failure, Page

TIMEOUT: Final = 60.0


def run(
    page: Page,
    command: list[str],
    *,
    merge: bool,
    timeout: float = TIMEOUT,
    text: str = "",
    environ: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str, str]:
    """Return the exit code, the output and, unless merged into it, the errors.

    Args:
        page: where it runs.
        command: the program and its arguments.
        merge: whether errors stand where they happen in the output.
        timeout: how many seconds it has.
        text: its input.
        environ: what it sees instead of what blocks of the page do.

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
            output, errors = process.communicate(text or None, timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failure(f"still running after {timeout:g} s; make it end") from None
    return process.returncode, page.shown(output), page.shown(errors or "")
