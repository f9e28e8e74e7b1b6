"""The arguments of what is asked: copied in and out, and kept as the bytes that are signed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from safepoint.codec import Codec
from safepoint.errors import ConfigurationError, EncodeError, LimitExceeded, quoted
from safepoint.header import digest_of
from safepoint.limits import Limits

# The rest of an approval has its own bounds, so that what fits in here fits in there.
LIMITS: Final = Limits(state_bytes=48 * 1024, depth=32, items=4096)
MAX_SHOWN: Final = 2000
_MAX_NAME: Final = 128
_CODEC: Final = Codec(limits=LIMITS)
_SPACES: Final = re.compile(" {2,}")


def checked_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the arguments, equal to them at every level and of the same types.

    Raises:
        ConfigurationError: they are not a dict, or a name in it is no text of 1 to 128 characters.
        EncodeError: a value could not be restored faithfully, so nobody could sign it.
        LimitExceeded: they are more than a person could read.
    """
    copy: dict[str, Any] = decoded(encoded(arguments))
    return copy


def encoded(arguments: object) -> bytes:
    """Return the bytes of the arguments: equal bytes mean equal values of equal types.

    Raises:
        ConfigurationError: they are not a dict, or a name in it is no text of 1 to 128 characters.
        EncodeError: a value could not be restored faithfully.
        LimitExceeded: they are more than a person could read.
    """
    if type(arguments) is not dict:
        raise ConfigurationError(
            f"The arguments of a question are a dict, and not {type(arguments).__name__}.",
            'Write arguments={"amount": 42}, or {} if there are none.',
        )
    for name in arguments:
        if type(name) is not str or not 0 < len(name) <= _MAX_NAME:
            raise ConfigurationError(
                f"{quoted(name)} is not the name of an argument.",
                f"Name each argument with a text of 1 to {_MAX_NAME} characters.",
            )
    problem: EncodeError | LimitExceeded
    try:
        return _CODEC.encode(arguments)
    except EncodeError as error:
        # The codec says where in a "state" it stopped.
        problem = EncodeError(
            error.what.replace("state", "arguments", 1),
            "Ask with plain values: text, numbers, Decimals, dates, bytes, and lists and dicts of"
            " them.",
        )
    except LimitExceeded:
        problem = LimitExceeded(
            "The arguments of a question are more than a person could read.",
            f"Keep them within {LIMITS.state_bytes} bytes, {LIMITS.depth} levels and"
            f" {LIMITS.items} values: ask about a digest of what is larger.",
        )
    raise problem


def decoded(data: bytes) -> Any:
    """Return a fresh copy of what `encoded` was given."""
    return _CODEC.decode(data)


def digest_of_value(value: object) -> str:
    """Return the digest of a value's canonical bytes: equal if value and types are."""
    return digest_of(_CODEC.encode(value))


def shown(value: object) -> str:
    """Return the whole value in ASCII, on one line, with everything escaped that could hide.

    Spaces are escaped where several stand together: a terminal would wrap the line there, and
    what follows them could pass for a line of its own.
    """
    try:
        text = ascii(value)
    except ValueError:  # an int of more digits than Python prints
        text = f"JSON {_CODEC.encode(value).decode('ascii')}"
    return _SPACES.sub(lambda found: r"\x20" * len(found.group()), text)


def line_of(name: str, value: object) -> str:
    """Return the line of one argument for a person to read. If it is cut, it says so first."""
    text = shown(value)
    if len(text) <= MAX_SHOWN:
        return f"argument {shown(name)}: {text}"
    # Said before the value, so that a value cannot end in words that look like these.
    return (
        f"argument {shown(name)}, of which these are {MAX_SHOWN} of {len(text)} characters, in"
        f" full {digest_of_value(value)}: {text[:MAX_SHOWN]}"
    )


class Arguments:
    """A field that keeps bytes: what goes in is copied, and so is what comes out."""

    def __get__(self, instance: object | None, owner: type) -> dict[str, Any]:
        if instance is None:  # asked for a default when the class is made; there is none
            raise AttributeError("arguments")
        copy: dict[str, Any] = decoded(vars(instance)["_arguments"])
        return copy

    def __set__(self, instance: object, value: dict[str, Any]) -> None:
        vars(instance)["_arguments"] = encoded(value)
