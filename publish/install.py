"""How a reader gets the package, said once for all pages. It is on no index.

So it comes from a copy of the repository, or from the address that the build knows as REPO_URL.
"""

from __future__ import annotations

from publish.project import Project, repository


def command(extra: str = "", address: str = "") -> str:
    """Return the line for a shell: from an address, or in a copy of the repository."""
    named = f"[{extra}]" if extra else ""
    return (
        f"pip install 'safepoint{named} @ git+{address}'"
        if address
        else (f"pip install '.{named}'" if extra else "pip install .")
    )


def line(_: Project, extra: str = "") -> str:
    """Return a sentence with the command."""
    copied = f"`{command(extra)}` in a [copy of the repository](guide.md#install)"
    address = repository()
    return f"To install it: {f'`{command(extra, address)}`, or ' if address else ''}{copied}."


def guide(_: Project) -> str:
    """Return what stands above the commands of the guide, which install from a copy."""
    address = repository()
    if not address:
        return "There is no public address yet: ask whoever sent you this page for the folder."
    return (
        f"To have the package and no more: `{command(address=address)}`. To have the tests and"
        f" these pages, too, `git clone {address} safepoint`, and:"
    )
