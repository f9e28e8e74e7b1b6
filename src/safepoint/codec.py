"""State to bytes and back, without a way for the bytes to choose what happens.

The bytes are canonical JSON: ASCII, sorted keys, no spaces. None, bool, int, float, str, list and
dict are what they are in JSON. Everything else is an object with one key that begins with `$`:

| type | example |
|---|---|
| datetime, date, time | `{"$datetime":"2026-01-31T09:30:00+00:00"}` |
| timedelta | `{"$timedelta":[1,3600,0]}`: days, seconds, microseconds |
| Decimal, UUID, bytes | `{"$decimal":"12.50"}`, `{"$uuid":"…"}`, `{"$bytes":"aGk="}` |
| tuple, set, frozenset | `{"$tuple":[1,2]}` |
| Path | `{"$path":"a/b"}`; PurePosixPath and PureWindowsPath are `$posixpath`, `$windowspath` |
| int beyond 64 bits | `{"$int":"0x10000000000000000"}` |
| dict with other keys | `{"$dict":[[1,"one"]]}`: keys that are not str, or that begin with `$` |
| a type that you registered | `{"$Invoice":{"number":7}}`, `{"$Colour":"RED"}`, `{"$Rights":3}` |

A tag is a key into the list of types that the reader gave to its codec. It is never imported, and
an unknown one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from safepoint._codec.containers import CONTAINER_REVIVERS, CONTAINER_WRITERS
from safepoint._codec.reader import FROM_HERE, Reader
from safepoint._codec.registry import register
from safepoint._codec.scalars import SCALAR_REVIVERS, SCALAR_WRITERS
from safepoint._codec.shape import check_shape
from safepoint._codec.writer import Refusal, Revive, Write, Writer, out_of_resources
from safepoint.errors import (
    CheckpointError,
    CodecError,
    ConfigurationError,
    DecodeError,
    EncodeError,
)
from safepoint.limits import DEFAULT_LIMITS, Limits


class Codec:
    """Turns state into canonical JSON, and back into equal values of the same types.

    What it saves it can restore: each value comes back equal and of the same type, at every
    level. What could not come back is refused when you save it, not when you need it. Two things
    are not part of a value and are not kept: the order of a dict, and which fields of a pydantic
    model were set explicitly.

    ```python
    from dataclasses import dataclass
    from datetime import date
    from decimal import Decimal

    from safepoint.codec import Codec


    @dataclass
    class Invoice:
        number: int
        total: Decimal
        due: date


    codec = Codec([Invoice])
    data = codec.encode([Invoice(7, Decimal("12.50"), date(2026, 1, 31))])
    print(data.decode())
    #> [{"$Invoice":{"due":{"$date":"2026-01-31"},"number":7,"total":{"$decimal":"12.50"}}}]
    print(codec.decode(data)[0].total)
    #> 12.50
    ```

    Types are exact. A subclass that you did not register is refused, on save and on load:

    ```python
    from collections import OrderedDict

    from safepoint.codec import Codec
    from safepoint.errors import DecodeError, EncodeError

    try:
        Codec().encode({"cart": [OrderedDict(apples=2)]})
    except EncodeError as error:
        print(error.what)
        #> state['cart'][0] is of the type collections.OrderedDict, which this codec does not know.
        print(error.do)
        #> Convert it first: dict(value) is kept, a subclass of dict is not.

    try:
        Codec().decode(b'{"$os.system":"id"}')
    except DecodeError as error:
        print(error.what)
        #> The encoded state holds the tag 'os.system', which this codec does not know.
    ```

    Dataclasses and pydantic models are rebuilt through their own constructor, so their
    validation runs on what was stored. It also runs on save, once, as the proof that it accepts
    what it will be given.

    An instance does not change after it was made, and threads may share it.

    Args:
        types: dataclasses, Enums, Flags and pydantic models that may occur in a state. Each is
            stored under its name; give a mapping to choose the names, which is what you do
            before you rename a class: `Codec({"Invoice": BillingInvoice})`.
        limits: what is too large, too deep or too many, on save and on load.

    Raises:
        ConfigurationError: `limits` are no limits.
        CodecError: a type could not be restored faithfully, or two have one name.
    """

    __slots__ = ("_fields", "_limits", "_reader", "_types", "_writers")

    def __init__(
        self,
        types: Iterable[type] | Mapping[str, type] = (),
        *,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if not isinstance(limits, Limits):
            raise ConfigurationError(
                f"Codec takes limits, and was given {type(limits).__name__}.",
                "Write limits=Limits(state_bytes=...), or leave it out.",
            )
        revivers: dict[str, Revive] = {**SCALAR_REVIVERS, **CONTAINER_REVIVERS}
        writers: dict[type, Write] = {**SCALAR_WRITERS, **CONTAINER_WRITERS}
        entries = register(types, revivers)
        revivers.update({tag: entry.revive for tag, entry in entries.items()})
        writers.update({entry.cls: entry.write for entry in entries.values()})
        self._writers = writers
        self._reader = Reader(revivers)
        self._fields = {tag: entry.fields for tag, entry in entries.items()}
        self._types = MappingProxyType({tag: entry.cls for tag, entry in entries.items()})
        self._limits = limits

    @property
    def limits(self) -> Limits:
        """The limits that hold on save and on load."""
        return self._limits

    @property
    def types(self) -> Mapping[str, type]:
        """The registered types by tag."""
        return self._types

    def encode(self, value: Any) -> bytes:
        """Return the canonical bytes of a state.

        Raises:
            EncodeError: a value in it could not be restored faithfully. The message says where it
                is and of which type, and not what it is. A key on the way to it is shown if it is
                a short word of letters alone: another may be a token or an address.
            LimitExceeded: it is too large, too deep or has too many values.
        """
        text, rebuilt = self._write(value, EncodeError)
        if rebuilt:
            self._prove(text)
        return text.encode("ascii")

    def decode(self, data: bytes) -> Any:
        """Return the state that was encoded.

        Size, depth and count are checked before anything is parsed. What was decoded is encoded
        once more: unless that gives the same bytes, it is refused.

        Raises:
            DecodeError: the bytes are not what `encode` writes, or hold a type that is not
                registered, or a registered type refuses them.
            LimitExceeded: they are too large, too deep or have too many values.
        """
        if not isinstance(data, bytes):
            raise DecodeError("The encoded state is not bytes.", "Give decode what encode gave.")
        check_shape(data, self._limits)
        text = data.decode("ascii")
        value = self._reader.read(text)
        if self._write(value, DecodeError)[0] != text:
            raise DecodeError("The encoded state is not in canonical form.", FROM_HERE)
        return value

    def _write(self, value: object, error: type[CodecError]) -> tuple[str, bool]:
        """Return the text of a state, and whether a class of the caller is needed to rebuild it."""
        writer = Writer(self._writers, self._limits)
        # Raised after the handlers, so that no other exception hangs on to it with its values.
        problem: CheckpointError
        try:
            text = writer.run(value)
        except Refusal as refusal:
            problem = error(refusal.sentence, refusal.do if error is EncodeError else FROM_HERE)
        except (RecursionError, MemoryError):
            problem = out_of_resources()
        except CheckpointError:
            raise
        except Exception as failed:  # noqa: BLE001  a property, a hash, another thread's edit
            problem = error(
                f"The state could not be read: it raised {type(failed).__name__}.",
                "Save a state that nothing else changes meanwhile.",
            )
        else:
            return text, writer.rebuilt
        raise problem

    def _prove(self, text: str) -> None:
        """Restore what is about to be saved.

        Raises:
            EncodeError: that fails, or gives another value.
        """
        try:
            again, _ = self._write(self._reader.read(text), DecodeError)
        except CheckpointError as error:
            why = error.what
        else:
            if again == text:
                return
            why = self._changed(text)
        raise EncodeError(
            f"The state could not be restored. {why}",
            "Let the class accept, unchanged, the fields of its own instances.",
        )

    def _changed(self, text: str) -> str:
        """Say which class gives a field another value than it had."""
        found: list[str] = []

        def watch(tag: str, saved: Any, value: Any) -> None:
            for name in self._fields.get(tag, ()):
                before, _ = self._write(saved[name], DecodeError)
                after, _ = self._write(getattr(value, name), DecodeError)
                if before != after:
                    found.append(f"{tag} changes its field {name} when it is rebuilt.")

        self._reader.read_watched(text, watch)
        return found[0] if found else "A registered type changes when it is rebuilt."
