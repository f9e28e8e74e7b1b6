"""What a model's tensors have to be: names, types and shapes, checked before anything is built."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from safepoint.errors import ConfigurationError, ModelMismatch, quoted
from safepoint.weights.dtypes import KNOWN, name_of

_LARGEST: Final = 64 * 1024 * 1024


class HasDtypeShape(Protocol):
    """A tensor, or what a file says of one."""

    @property
    def dtype(self) -> Any:
        """`torch.float32` or `"float32"`."""

    @property
    def shape(self) -> Any:
        """Its dimensions."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The type and the shape of a tensor.

    Attributes:
        dtype: `float32`; `torch.float32` is understood.
        shape: its dimensions. None stands for any size.

    Raises:
        ConfigurationError: that is no type or no shape.
    """

    dtype: str
    shape: tuple[int | None, ...]

    def __post_init__(self) -> None:
        dtype = name_of(self.dtype)
        if dtype not in KNOWN:
            raise ConfigurationError(
                f"{quoted(dtype)} is not a type of elements.", 'Write dtype="float32".'
            )
        try:
            shape = tuple(self.shape)
        except TypeError:
            shape = (-1,)
        if not all(size is None or (type(size) is int and size >= 0) for size in shape):
            raise ConfigurationError(
                "A shape is made of sizes, and None for any size.", "Write shape=(None, 768)."
            )
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", shape)

    def __str__(self) -> str:
        return _shown(self.dtype, self.shape)

    def allows(self, tensor: HasDtypeShape) -> bool:
        """Tell whether a tensor is of this type and shape."""
        shape = tuple(tensor.shape)
        return (
            name_of(tensor.dtype) == self.dtype
            and len(shape) == len(self.shape)
            and all(
                want is None or want == size for want, size in zip(self.shape, shape, strict=True)
            )
        )


class Schema(Mapping[str, TensorSpec]):
    """Which tensors a model has.

    ```python
    from safepoint.errors import ModelMismatch
    from safepoint.weights.schema import Schema, TensorSpec

    schema = Schema({"weight": TensorSpec("float32", (None, 3))})
    schema.check({"weight": TensorSpec("float32", (8, 3))})
    try:
        schema.check({"weight": TensorSpec("float16", (8, 3))})
    except ModelMismatch as error:
        print(error.what)
        #> The tensor 'weight' is float16 (8, 3), and the schema says float32 (None, 3).
    ```

    Args:
        tensors: by name.
        extra: whether there may be others.

    Raises:
        ConfigurationError: that is not a mapping from names to `TensorSpec`.
    """

    __slots__ = ("_extra", "_tensors")

    def __init__(self, tensors: Mapping[str, TensorSpec], *, extra: bool = False) -> None:
        if not isinstance(tensors, Mapping) or not all(
            isinstance(name, str) and isinstance(spec, TensorSpec) for name, spec in tensors.items()
        ):
            raise ConfigurationError(
                "A schema takes a TensorSpec for each name.",
                'Write Schema({"weight": TensorSpec("float32", (None, 768))}).',
            )
        self._tensors = dict(tensors)
        self._extra = bool(extra)

    @classmethod
    def of(cls, tensors: Mapping[str, HasDtypeShape], *, extra: bool = False) -> Schema:
        """Return the schema of a flat state dict, or of the table of a file: exactly its shapes.

        Raises:
            ConfigurationError: a value in it is no tensor.
        """
        specs = {}
        for name, tensor in tensors.items():
            if not (hasattr(tensor, "dtype") and hasattr(tensor, "shape")):
                raise ConfigurationError(
                    f"{quoted(name)} is {type(tensor).__name__}, not a tensor.",
                    "Give Schema.of a flat dict of tensors, such as model.state_dict().",
                )
            specs[name] = TensorSpec(name_of(tensor.dtype), tuple(tensor.shape))
        return cls(specs, extra=extra)

    @property
    def extra(self) -> bool:
        """Whether there may be tensors that are not listed."""
        return self._extra

    def __getitem__(self, name: str) -> TensorSpec:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def check(self, tensors: Mapping[str, HasDtypeShape]) -> None:
        """Refuse tensors that are not what this says.

        Raises:
            ModelMismatch: one is missing, is one too many, or is of another type or shape. The
                message names it.
        """
        for name, spec in self._tensors.items():
            if name not in tensors:
                raise ModelMismatch(
                    f"The tensor {quoted(name)} is missing.",
                    "Load the file that belongs to this model.",
                )
            tensor = tensors[name]
            if not (hasattr(tensor, "dtype") and hasattr(tensor, "shape")):
                raise ModelMismatch(
                    f"{quoted(name)} is {type(tensor).__name__}, not a tensor.",
                    "Load the file that belongs to this model.",
                )
            if not spec.allows(tensor):
                raise ModelMismatch(
                    f"The tensor {quoted(name)} is {_shown(name_of(tensor.dtype), tensor.shape)},"
                    f" and the schema says {spec}.",
                    "Load the file that belongs to this model.",
                )
        if self._extra:
            return
        for name in tensors:
            if name not in self._tensors:
                raise ModelMismatch(
                    f"The tensor {quoted(name)} is not in the schema.",
                    "Load the file that belongs to this model, or write Schema(…, extra=True).",
                )

    def to_json(self) -> str:
        """Return the schema as text, to keep beside your code."""
        tensors = {
            name: {"dtype": spec.dtype, "shape": list(spec.shape)}
            for name, spec in self._tensors.items()
        }
        return json.dumps({"extra": self._extra, "tensors": tensors}, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Return the schema that `to_json` wrote.

        Raises:
            ConfigurationError: the text is something else.
        """
        wrong = ConfigurationError(
            "This text is not a schema.", "Write one with Schema.of(model.state_dict()).to_json()."
        )
        if not isinstance(text, str) or len(text) > _LARGEST:
            raise wrong
        try:
            found = json.loads(text, object_pairs_hook=_unique)
        except (ValueError, RecursionError):
            raise wrong from None
        match found:
            case {"extra": bool(extra), "tensors": dict(tensors)} if len(found) == 2:
                return cls(
                    {name: _spec(spec, wrong) for name, spec in tensors.items()}, extra=extra
                )
        raise wrong


def _spec(found: Any, wrong: ConfigurationError) -> TensorSpec:
    match found:
        case {"dtype": str(dtype), "shape": list(shape)} if len(found) == 2:
            return TensorSpec(dtype, tuple(shape))
    raise wrong


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _shown(dtype: str, shape: Any) -> str:
    return f"{dtype} {quoted(tuple(shape))}"
