"""What the command lines of this package share: how they refuse, print, and load keys."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from safepoint.anchor import FileAnchor
from safepoint.keys import PUBLIC, Key, Keyring, Revoked, SigningKey, VerifyingKey


class Parser(argparse.ArgumentParser):
    """A parser whose refusal is one line of ASCII, with exit status 2."""

    def error(self, message: str) -> NoReturn:
        """End the process with a line that says what is wrong."""
        line = ascii(message)[1:-1]
        self.exit(2, f"{self.prog}: {line}. Try: {self.prog} --help\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print, and stop in silence where nobody reads any more.

    Raises:
        SystemExit: it cannot be written, which a line on the other stream says.
    """
    for line in lines:
        if not _printed(f"{line}\n"):
            return
    _printed("", flush=True)


def _printed(text: str, *, flush: bool = False) -> bool:
    try:
        print(text, end="", flush=flush)
    except OSError as error:
        # What is left in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # whoever reads has seen enough
            return False
        line = f"The output cannot be written ({error.strerror}). Make room, or write it elsewhere."
        print(line, file=sys.stderr)
        sys.exit(2)
    return True


def keyring_of(paths: Sequence[str], revoked: Sequence[str] = ()) -> Keyring:
    """Load the keys, newest first. The first signs if it can, and is one that verifies if not.

    Args:
        paths: their files.
        revoked: files of stolen keys, each with `=` and the folder of an anchor from before.

    Raises:
        KeyRefused: one is no key.
    """
    keys = [key_of(path) for path in reversed(paths)]
    gone = [_revoked(named) for named in revoked]
    if keys and isinstance(keys[-1], SigningKey):
        return Keyring(keys[-1], verify=keys[:-1], revoked=gone)
    return Keyring(verify=keys, revoked=gone)


def key_of(path: str) -> Key:
    """Load a key, secret or public, by what its file says it is.

    Raises:
        KeyRefused: it is none.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            begins = file.read(len(PUBLIC.magic))
    except (OSError, ValueError):
        begins = b""  # which the key's own reading says better
    if begins == PUBLIC.magic:
        return VerifyingKey.from_file(path)
    return SigningKey.from_file(path)


def _revoked(named: str) -> Revoked:
    file, copied, until = named.partition("=")
    return Revoked(key_of(file), FileAnchor(until) if copied else None)
