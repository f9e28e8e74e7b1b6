"""What a model's tensors have to be: names, types and shapes, checked before anything is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from safepoint.errors import ConfigurationError, ModelMismatch, quoted
from safepoint.models.plan import SIZES
from safepoint.models.tensors import dtype_name


class HasDtypeShape(Protocol):
    """A tensor, or what a file says of one."""

    @property
    def dtype(self) -> Any:
        """`torch.float32` or `"float32"`."""

    @property
    def shape(self) -> Any:
        """Its dimensions."""


class TensorSpec:
    """The type and the shape of a tensor.

    Attributes:
        dtype: `float32`; `torch.float32` is understood.
        shape: its dimensions. None stands for any size.

    Raises:
        ConfigurationError: that is no type or no shape.
    """

    __slots__ = ("dtype", "shape")

    def __init__(self, dtype: Any, shape: Any) -> None:
        self.dtype = dtype_name(dtype)
        if self.dtype not in SIZES:
            raise ConfigurationError(
                f"{quoted(self.dtype)} is not a type of elements.", 'Write dtype="float32".'
            )
        self.shape = tuple(shape) if isinstance(shape, (tuple, list)) else (-1,)
        if not all(size is None or (type(size) is int and size >= 0) for size in self.shape):
            raise ConfigurationError(
                "A shape is made of sizes, and None for any size.", "Write shape=(None, 768)."
            )

    def __str__(self) -> str:
        return f"{self.dtype} {quoted(self.shape)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    def allows(self, tensor: HasDtypeShape) -> bool:
        """Tell whether a tensor is of this type and shape."""
        shape = tuple(tensor.shape)
        return (
            dtype_name(tensor.dtype) == self.dtype
            and len(shape) == len(self.shape)
            and all(
                want is None or want == size for want, size in zip(self.shape, shape, strict=True)
            )
        )


class Schema(Mapping[str, TensorSpec]):
    """Which tensors a model has.

    ```python
    from safepoint.errors import ModelMismatch
    from safepoint.models import Schema, TensorSpec

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

    __slots__ = ("_tensors", "extra")

    def __init__(self, tensors: Mapping[str, TensorSpec], *, extra: bool = False) -> None:
        if not isinstance(tensors, Mapping) or not all(
            isinstance(name, str) and isinstance(spec, TensorSpec) for name, spec in tensors.items()
        ):
            raise ConfigurationError(
                "A schema takes a TensorSpec for each name.",
                'Write Schema({"weight": TensorSpec("float32", (None, 768))}).',
            )
        self._tensors = dict(tensors)
        self.extra = extra

    @classmethod
    def of(cls, tensors: Mapping[str, HasDtypeShape], *, extra: bool = False) -> Schema:
        """Return the schema of a flat state dict, or of the table of a file: exactly its shapes.

        Raises:
            ConfigurationError: a value in it is no tensor.
        """
        specs = {}
        for name, tensor in tensors.items():
            if not _is_tensor(tensor):
                raise ConfigurationError(
                    f"{quoted(name)} is {type(tensor).__name__}, not a tensor.",
                    "Give Schema.of a flat dict of tensors, such as model.state_dict().",
                )
            specs[name] = TensorSpec(tensor.dtype, tuple(tensor.shape))
        return cls(specs, extra=extra)

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
        belongs = "Load the file that belongs to this model"
        for name, spec in self._tensors.items():
            tensor = tensors.get(name)
            if tensor is None or not _is_tensor(tensor):
                raise ModelMismatch(f"The tensor {quoted(name)} is missing.", f"{belongs}.")
            if not spec.allows(tensor):
                shown = f"{dtype_name(tensor.dtype)} {quoted(tuple(tensor.shape))}"
                raise ModelMismatch(
                    f"The tensor {quoted(name)} is {shown}, and the schema says {spec}.",
                    f"{belongs}.",
                )
        for name in () if self.extra else tensors:
            if name not in self._tensors:
                raise ModelMismatch(
                    f"The tensor {quoted(name)} is not in the schema.",
                    f"{belongs}, or write Schema(…, extra=True).",
                )


def _is_tensor(value: object) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")
