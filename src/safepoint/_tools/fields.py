"""The fields of a tool: which there are, and what may stand in each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from safepoint.codec import Codec
from safepoint.errors import CheckpointError, ConfigurationError, quoted
from safepoint.header import digest_of

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
