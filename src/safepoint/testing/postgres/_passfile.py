"""The passwords of a server's logins in a file, as `PGPASSFILE` wants them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from safepoint.errors import ConfigurationError, quoted

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FIELD: Final = re.compile(r"((?:[^\\:]|\\.)*)(?::|$)")


class Passfile:
    """Passwords by login, each good for every address and database of one server.

    Attributes:
        path: the file, which is for its owner alone.
        passwords: what it holds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passwords: dict[str, str] = {}

    def read(self) -> None:
        """Take what the file says."""
        for line in self.path.read_text("utf-8").splitlines():
            fields = [_plain(field) for field in _FIELD.findall(line)[:5]]
            if len(fields) == 5 and not line.startswith("#"):  # libpq skips what is none, too
                self.passwords[fields[3]] = fields[4]

    def add(self, user: str, password: str) -> None:
        """Add a password, or change it.

        Raises:
            ConfigurationError: a line of the file cannot hold the two.
        """
        check_line("login", user)
        check_line("password", password)
        self.passwords[user] = password
        new = self.path.with_name(f"{self.path.name}.new")
        new.unlink(missing_ok=True)
        write_secret(
            new,
            "".join(f"*:*:*:{_escaped(u)}:{_escaped(p)}\n" for u, p in self.passwords.items()),
        )
        new.replace(self.path)


def write_secret(path: Path, text: str) -> None:
    """Write a new file that is for its owner alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def check_line(kind: str, word: str) -> None:
    """Refuse what would end a line of the file, or cannot be written in it.

    Args:
        kind: "login" or "password". The second is not shown.
        word: what is to be written.

    Raises:
        ConfigurationError: it holds such a character.
    """
    if _CONTROL.search(word):
        shown = f" {quoted(word)}" if kind == "login" else ""
        raise ConfigurationError(
            f"The {kind}{shown} holds a control character, which a passfile cannot hold.",
            "Choose one without line breaks and the like.",
        )


def identifier(name: str) -> str:
    """Write a name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def conninfo(**words: str) -> str:
    """Write what libpq wants to know to connect."""
    return " ".join(f"{name}={_word(value)}" for name, value in words.items())


def _word(value: str) -> str:
    if re.fullmatch(r"[\w./-]+", value):
        return value
    return "'" + value.replace("\\", r"\\").replace("'", r"\'") + "'"


def _escaped(word: str) -> str:
    return word.replace("\\", r"\\").replace(":", r"\:")


def _plain(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word)
