"""A terminal of its own, to type to `safepoint` on."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, Signals
from typing import Final

from tests.unit.commands import settled

Step = tuple[str, str | Signals | Callable[[], str | None]]
"""What to wait for on the screen; and then what to type, to send, or to do before it is typed."""
LAST: Final = "anything else signs nothing: "
MORE: Final = "anything else stops: "
PHRASE: Final = "or Enter to give up: "
# Whoever runs the tests may ignore signals. With "session", it has the terminal and reads nothing.
_BEGIN: Final = """
import os, signal, sys
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, signal.SIG_DFL)
if sys.argv[1] == "session":
    os.login_tty(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.execv(sys.executable, [sys.executable, "-m", "safepoint", *sys.argv[2:]])
"""


def talk(
    folder: Path,
    arguments: Sequence[str],
    *steps: Step,
    rows: int = 60,
    columns: int = 100,
    session: bool = False,
    shown: bool = False,
) -> tuple[int, str, str]:
    """Type to `safepoint` on a terminal of its own; return its status, the screen, the output.

    What is typed as a passphrase is not shown, and what comes after it is.

    Args:
        folder: where it runs.
        arguments: those of the command.
        steps: what is typed, and when.
        rows: of the terminal.
        columns: of the terminal.
        session: the terminal is that of its session alone, and not its standard input.
        shown: its output is on the terminal, too.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    command = [sys.executable, "-c", _BEGIN, "session" if session else "streams", *arguments]
    with subprocess.Popen(
        command,
        stdin=theirs,
        stderr=theirs,
        stdout=theirs if shown else subprocess.PIPE,
        cwd=folder,
        env=settled(folder),
        text=True,
    ) as process:
        os.close(theirs)
        screen, seen = "", 0

        def more() -> str:
            assert select.select([ours], [], [], 120)[0], screen
            with suppress(OSError):  # of a terminal that nobody has any more
                return os.read(ours, 65536).decode()
            return ""

        try:
            for prompt, typed in steps:
                while prompt not in screen[seen:]:
                    if MORE in screen[seen:]:  # on the way to the last page
                        os.write(ours, b"\n")
                        seen = len(screen)
                    screen += (new := more())
                    if not new:
                        break
                seen = len(screen)
                assert is_shown(ours) != (prompt == PHRASE), screen
                if isinstance(typed, Signals):
                    if typed is SIGCONT:
                        show(ours)
                    process.send_signal(typed)
                elif text := typed if isinstance(typed, str) else typed():
                    os.write(ours, text.encode("utf-8", "surrogateescape"))
            while new := more():
                screen += new
        except BaseException:
            process.kill()  # or it would be waited for
            raise
        out, _ = process.communicate(timeout=600)
    assert is_shown(ours), screen
    os.close(ours)
    return process.returncode, screen.replace("\r\n", "\n"), out or ""


def show(terminal: int) -> None:
    """Show what is typed, as a shell does that stops a command, and before that goes on."""
    before = termios.tcgetattr(terminal)
    termios.tcsetattr(
        terminal, termios.TCSANOW, [*before[:3], before[3] | termios.ECHO, *before[4:]]
    )


def is_shown(terminal: int) -> bool:
    """Tell whether the terminal shows what is typed on it."""
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)
