"""Tools: what a run can reach, described so that two descriptions can be compared.

A tool set has one spelling, canonical JSON, and so one digest. The digest is sealed into every
checkpoint; the description says, at the next resume, what became more and what became less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from safepoint.codec import Codec
from safepoint.errors import CheckpointError, ConfigurationError, quoted
from safepoint.names import digest_of, is_digest

NAMES: Final = ("name", "permissions", "schema", "version")
_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_VERSION = re.compile(r"[A-Za-z0-9._:/+-]{0,128}")
_CODEC = Codec()


def check_names(described: object) -> None:
    """Refuse a mapping that has a field which no tool has, or no name.

    Raises:
        ConfigurationError: it does, or it is no mapping.
    """
    if not isinstance(described, Mapping):
        raise ConfigurationError(
            f"A tool is described by a mapping, and this is {type(described).__name__}.",
            'Write {"name": "mail", "permissions": ["send"]}.',
        )
    for field in described:
        if field not in NAMES:
            raise ConfigurationError(
                f"A tool has no field {quoted(field)}.",
                f"The fields of a tool are {', '.join(NAMES)}.",
            )
    if "name" not in described:
        raise ConfigurationError(
            "The description of a tool has no name.",
            'Write {"name": "mail", "permissions": ["send"]}.',
        )


def name_of(what: str, value: object) -> str:
    """Return `value` if it is a name, of what the message then says.

    Raises:
        ConfigurationError: it is not.
    """
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ConfigurationError(
            f"{quoted(value)} is not the name of {what}.",
            "Use 1 to 128 of A-Z, a-z, 0-9 and . _ : / -",
        )
    return str.__str__(value)  # of a member of an Enum, its value


def version_of(name: str, value: object) -> str:
    """Return `value` if it is a version.

    Raises:
        ConfigurationError: it is not.
    """
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise ConfigurationError(
            f"{quoted(value)} is not a version of the tool {name}.",
            "Use up to 128 of A-Z, a-z, 0-9 and . _ : / + - in a text.",
        )
    return str.__str__(value)


def permissions_of(name: str, value: object) -> tuple[str, ...]:
    """Return `value` as sorted words, each once.

    Raises:
        ConfigurationError: it is something else than a collection of words.
    """
    # A text is its letters and a mapping its keys, {"send": False} included: neither was meant.
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise ConfigurationError(
            f"The permissions of the tool {name} are {type(value).__name__}, and must be a list.",
            'Write permissions=["read", "send"].',
        )
    return tuple(sorted({name_of(f"a permission of the tool {name}", word) for word in value}))


def schema_of(name: str, value: object) -> str:
    """Return the digest of a schema.

    Raises:
        ConfigurationError: it has no canonical form.
    """
    try:
        return digest_of(_CODEC.encode(value))
    except CheckpointError as error:
        raise ConfigurationError(
            f"The schema of the tool {name} cannot be encoded.",
            "Give it as plain values, for example a JSON schema as a dict.",
        ) from error


_CODEC_TOOLS = Codec()


class Tool:
    """One tool: its name, its version, what it is allowed, and the arguments it takes.

    ```python
    from safepoint.tools import Tool

    mail = Tool("mail", version="2", permissions=["send", "read"])
    print(mail.described)
    #> {'name': 'mail', 'permissions': ['read', 'send'], 'schema': None, 'version': '2'}
    ```

    Args:
        name: 1 to 128 of A-Z, a-z, 0-9 and `. _ : / -`.
        version: up to 128 of the same and `+`.
        permissions: what the tool is allowed, each spelled like a name. They are compared as
            words: nothing in them is a wildcard.
        schema: the arguments that it takes, as any value that a plain `Codec` encodes. Only its
            digest is kept.

    Raises:
        ConfigurationError: an argument is outside its grammar or of another kind.
    """

    __slots__ = ("_name", "_permissions", "_schema", "_version")

    def __init__(
        self,
        name: str,
        *,
        version: str = "",
        permissions: Iterable[str] = (),
        schema: Any = None,
    ) -> None:
        self._name = name_of("a tool", name)
        self._version = version_of(self._name, version)
        self._permissions = permissions_of(self._name, permissions)
        self._schema = None if schema is None else schema_of(self._name, schema)

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Tool:
        """Return the tool that a mapping describes, for example one out of a settings file.

        Raises:
            ConfigurationError: it has a field that no tool has, or lacks the name, or one is not
                what `Tool` takes.
        """
        check_names(described)
        return cls(**described)

    @classmethod
    def from_described(cls, value: object) -> Tool:
        """Return the tool whose `described` is `value`, exactly.

        Raises:
            ConfigurationError: there is none.
        """
        if type(value) is not dict or set(value) != set(NAMES):
            _refuse_described()
        digest = value["schema"]
        if digest is not None and not is_digest(digest):
            _refuse_described()
        try:
            tool = cls(value["name"], version=value["version"], permissions=value["permissions"])
        except ConfigurationError:
            _refuse_described()
        tool._schema = digest  # it is one already, and is not digested a second time
        if tool.described != value:
            _refuse_described()
        return tool

    @property
    def name(self) -> str:
        """What the tool is called."""
        return self._name

    @property
    def version(self) -> str:
        """Its version, or the empty string."""
        return self._version

    @property
    def permissions(self) -> tuple[str, ...]:
        """What it is allowed, sorted, each once."""
        return self._permissions

    @property
    def schema(self) -> str | None:
        """The digest of the schema, or None if the tool has none."""
        return self._schema

    @property
    def described(self) -> dict[str, Any]:
        """The tool as plain values, a new dict each time."""
        return {
            "name": self._name,
            "permissions": list(self._permissions),
            "schema": self._schema,
            "version": self._version,
        }

    def __repr__(self) -> str:
        return f"<Tool {self._name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tool) and self.described == other.described

    def __hash__(self) -> int:
        return hash((self._name, self._version, self._permissions, self._schema))


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of a tool set. It is true if anything did.

    Attributes:
        added: the names of tools that were not there.
        removed: the names of tools that are gone.
        changed: the names of tools with another version or schema.
        widened: name and new permissions of each tool that is allowed more.
        narrowed: name and lost permissions of each tool that is allowed less.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    widened: tuple[tuple[str, tuple[str, ...]], ...] = ()
    narrowed: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.widened or self.narrowed)


class ToolSet:
    """The tools of a run, each name once. It does not change after it was made.

    Going through it gives the tools by name; `"mail" in tools` and `tools["mail"]` find one.

    ```python
    from safepoint.tools import Tool, ToolSet

    before = ToolSet([Tool("mail", permissions=["read"])])
    now = ToolSet([Tool("bank"), Tool("mail", permissions=["read", "send"])])
    print(now.changes_from(before).added)
    #> ('bank',)
    print(now.changes_from(before).widened)
    #> (('mail', ('send',)),)
    ```

    Raises:
        ConfigurationError: it is not made of tools, or two have one name.
        LimitExceeded: there are more than a state could hold.
    """

    __slots__ = ("_digest", "_tools")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        found: dict[str, Tool] = {}
        if not isinstance(tools, Iterable):
            _refuse_tool(tools)
        for tool in tools:
            if not isinstance(tool, Tool):
                _refuse_tool(tool)
            if tool.name in found:
                raise ConfigurationError(
                    f"Two tools are named {tool.name}.", "Give each tool a name of its own."
                )
            found[tool.name] = tool
        self._tools = dict(sorted(found.items()))
        self._digest = digest_of(_CODEC_TOOLS.encode(self.described))

    @classmethod
    def from_described(cls, value: object) -> ToolSet:
        """Return the tool set whose `described` is `value`, exactly.

        Raises:
            ConfigurationError: there is none.
        """
        if type(value) is not list:
            _refuse_described()
        tools = [Tool.from_described(entry) for entry in value]
        names = [tool.name for tool in tools]
        if names != sorted(set(names)):
            _refuse_described()
        return cls(tools)

    @property
    def described(self) -> list[dict[str, Any]]:
        """The tools as plain values, sorted by name, a new list each time."""
        return [tool.described for tool in self]

    @property
    def digest(self) -> str:
        """The digest of the canonical description: equal for equal tool sets, and only those."""
        return self._digest

    def changes_from(self, before: ToolSet) -> Changes:
        """Say what is different here from what it was before."""
        mine, theirs = self._tools, before._tools
        both = [(tool, theirs[name]) for name, tool in mine.items() if name in theirs]
        return Changes(
            added=tuple(name for name in mine if name not in theirs),
            removed=tuple(name for name in theirs if name not in mine),
            changed=tuple(
                new.name
                for new, old in both
                if (new.version, new.schema) != (old.version, old.schema)
            ),
            widened=_more(both),
            narrowed=_more((old, new) for new, old in both),
        )

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __contains__(self, item: object) -> bool:
        if isinstance(item, Tool):
            return self._tools.get(item.name) == item
        return item in self._tools

    def __repr__(self) -> str:
        return f"<ToolSet {', '.join(self._tools) or 'empty'}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolSet) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


def _more(pairs: Iterable[tuple[Tool, Tool]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """List what the first tool of each pair is allowed and the second is not."""
    found = (
        (one.name, tuple(sorted(set(one.permissions).difference(other.permissions))))
        for one, other in pairs
    )
    return tuple((name, words) for name, words in found if words)


def _refuse_tool(value: object) -> NoReturn:
    raise ConfigurationError(
        f"ToolSet takes tools, and was given {type(value).__name__}.",
        'Write ToolSet([Tool("mail", permissions=["send"])]).',
    )


def _refuse_described() -> NoReturn:
    raise ConfigurationError(
        "This is not the description of a tool set.",
        "Give from_described what ToolSet.described gave.",
    )
