"""Actor: who did something, and how we know."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import Final

from safepoint.errors import ConfigurationError, quoted

MAX_TEXT: Final = 256
_PART: Final = 64


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and how that was established.

    ```python
    from safepoint.journal import Actor

    print(Actor("ana@example.org", how="token of the identity provider"))
    #> 'ana@example.org' (by 'token of the identity provider')
    ```

    A journal says what it was told. A name that the acting person could choose freely proves
    nothing, so `how` names what stands behind it: a login, a certificate, a signature.

    Attributes:
        name: who, as a text of at most 256 characters.
        how: what established that, likewise.

    Raises:
        ConfigurationError: one of them is no such text.
    """

    name: str
    how: str

    def __post_init__(self) -> None:
        _check("name", self.name)
        _check("how", self.how)

    @classmethod
    def process(cls) -> Actor:
        """Return the user of the operating system as whom this process runs."""
        host = _part(platform.node()) or "an unnamed host"
        return cls(f"{_user()} on {host}", "operating system")

    def __str__(self) -> str:
        return f"{self.name!a} (by {self.how!a})"


def _user() -> str:
    try:
        import pwd

        uid = os.geteuid()
    except (ImportError, AttributeError):  # not POSIX
        return f"process {os.getpid()}"
    try:
        return f"uid {uid} ({_part(pwd.getpwuid(uid).pw_name)})"
    except (KeyError, OSError):
        return f"uid {uid}"


def _part(text: str) -> str:
    """Keep what a system may call a user or a host within bounds, and valid text."""
    return text.encode("utf-8", "backslashreplace").decode()[:_PART]


def _check(field: str, text: object) -> None:
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_TEXT or not is_text(text):
        raise ConfigurationError(
            f"{quoted(text)} cannot be the {field} of an actor.",
            f"Give a text of 1 to {MAX_TEXT} characters, without lone surrogates.",
        )


def is_text(text: str) -> bool:
    """Tell whether there are no lone surrogates in it: half a character has no one spelling."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
