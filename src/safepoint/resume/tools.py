"""Tools: what a run can reach, described so that two descriptions can be compared.

A tool set has one spelling, canonical JSON, and so one digest. The digest is sealed into every
checkpoint; the description says, at the next resume, what became more and what became less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from safepoint.core.codec import write_json
from safepoint.core.errors import CheckpointError, ConfigurationError, quoted
from safepoint.core.names import digest_of, is_digest

_NAME: Final = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_VERSION: Final = re.compile(r"[A-Za-z0-9._:/+-]{0,128}")
_MOST: Final = 16 * 1024 * 1024


@dataclass(init=False, repr=False)
class Tool:
    """One tool: its name, its version, what it is allowed, and the arguments it takes.

    ```python
    from safepoint import Tool

    mail = Tool("mail", version="2", permissions=["send", "read"])
    print(mail.described)
    #> {'name': 'mail', 'permissions': ['read', 'send'], 'schema': None, 'version': '2'}
    ```

    Args:
        name: 1 to 128 of A-Z, a-z, 0-9 and `. _ : / -`.
        version: up to 128 of the same and `+`.
        permissions: what the tool is allowed, each spelled like a name. They are compared as
            words: nothing in them is a wildcard.
        schema: the arguments that it takes, as JSON: dicts, lists, text and numbers. Only
            its digest is kept.

    Raises:
        ConfigurationError: an argument is outside its grammar or of another kind.
    """

    name: str
    permissions: tuple[str, ...]
    schema: str | None
    version: str

    def __init__(
        self, name: str, *, version: str = "", permissions: Iterable[str] = (), schema: Any = None
    ) -> None:
        _check("the name of a tool", name, _NAME)
        _check(f"a version of the tool {name}", version, _VERSION)
        # A text is its letters and a mapping its keys, {"send": False} included: neither was meant.
        if isinstance(permissions, (str, bytes, Mapping)):
            raise ConfigurationError(
                f"The permissions of the tool {name} are {type(permissions).__name__}, and must be"
                " a list.",
                'Write permissions=["read", "send"].',
            )
        words = list(permissions)
        for word in words:
            _check(f"the name of a permission of the tool {name}", word, _NAME)
        try:
            digest = None if schema is None else digest_of(write_json(schema, _MOST))
        except CheckpointError as error:
            raise ConfigurationError(
                f"The schema of the tool {name} cannot be encoded.",
                "Give it as plain values, for example a JSON schema as a dict.",
            ) from error
        self.name = str.__str__(name)
        self.permissions = tuple(sorted(set(map(str.__str__, words))))
        self.schema = digest
        self.version = str.__str__(version)

    @property
    def described(self) -> dict[str, Any]:
        """The tool as plain values, a new dict each time. Of the schema there is the digest."""
        return {**vars(self), "permissions": list(self.permissions)}

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


def _check(what: str, value: object, grammar: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not grammar.fullmatch(value):
        raise ConfigurationError(
            f"{quoted(value)} is not {what}.",
            "Use up to 128 of A-Z, a-z, 0-9 and . _ : / - in a text, and + in a version.",
        )


class ToolSet:
    """The tools of a run, each name once. It does not change after it was made.

    Going through it gives the tools by name; `"mail" in tools` and `tools["mail"]` find one.

    ```python
    from safepoint import Tool, ToolSet

    tools = ToolSet([Tool("mail", permissions=["read"]), Tool("bank")])
    print([tool.name for tool in tools], tools["mail"].permissions)
    #> ['bank', 'mail'] ('read',)
    ```

    Attributes:
        digest: of the canonical description: equal for equal tool sets, and only those.

    Raises:
        ConfigurationError: two tools have one name.
        LimitExceeded: there are more than a state could hold.
    """

    __slots__ = ("_tools", "digest")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in sorted(tools, key=lambda tool: tool.name):
            if tool.name in self._tools:
                raise ConfigurationError(
                    f"Two tools are named {tool.name}.", "Give each tool a name of its own."
                )
            self._tools[tool.name] = tool
        self.digest: Final = digest_of(write_json(self.described, _MOST))

    @classmethod
    def from_described(cls, value: Any) -> ToolSet:
        """Return the tool set whose `described` is `value`, exactly.

        Raises:
            ConfigurationError: there is none.
        """
        try:
            found = [Tool(**{**each, "schema": None}) for each in value]
            for tool, each in zip(found, value, strict=True):
                tool.schema = each["schema"]  # it is a digest already
            tools = cls(found)
            if tools.described == value and all(
                tool.schema is None or is_digest(tool.schema) for tool in tools
            ):
                return tools
        except (CheckpointError, TypeError, KeyError):
            pass
        raise ConfigurationError(
            "This is not the description of a tool set.",
            "Give from_described what ToolSet.described gave.",
        )

    @property
    def described(self) -> list[dict[str, Any]]:
        """The tools as plain values, sorted by name, a new list each time."""
        return [tool.described for tool in self]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"<ToolSet {', '.join(self._tools) or 'empty'}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolSet) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)
