"""What stops the build."""

from __future__ import annotations


class BrokenPage(ValueError):
    """A page that cannot be built: its name, the line, what is wrong and what to do."""


def decoded(name: str, content: bytes, kind: str = "file") -> str:
    """Return the text of a file or a page.

    Raises:
        BrokenPage: it is no UTF-8, with the line.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BrokenPage(f"{name}:{line}: not UTF-8; save the {kind} as UTF-8") from None
