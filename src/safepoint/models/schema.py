"""What a model's tensors have to be: names, types and shapes, checked before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The type and the shape of a tensor.

    Attributes:
        dtype: `float32`; `torch.float32` is understood.
        shape: its dimensions. None stands for any size.

    Raises:
        ConfigurationError: that is no type or no shape.
    """

    dtype: Any
    shape: tuple[int | None, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        if self.dtype not in SIZES:
            raise ConfigurationError(
                f"{quoted(self.dtype)} is not a type of elements.", 'Write dtype="float32".'
            )
        if not isinstance(self.shape, tuple | list) or not all(
            size is None or (type(size) is int and size >= 0) for size in self.shape
        ):
            raise ConfigurationError(
                "A shape is made of sizes, and None for any size.", "Write shape=(None, 768)."
            )
        object.__setattr__(self, "shape", tuple(self.shape))

    def __str__(self) -> str:
        return f"{self.dtype} {quoted(self.shape)}"

    def allows(self, tensor: HasDtypeShape) -> bool:
        """Tell whether a tensor is of this type and shape."""
        shape = tuple(tensor.shape)
        sizes = zip(self.shape, shape, strict=False)
        same = all(want is None or want == size for want, size in sizes)
        return dtype_name(tensor.dtype) == self.dtype and len(shape) == len(self.shape) and same


class Schema(dict[str, TensorSpec]):
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
    """

    def __init__(self, tensors: Mapping[str, TensorSpec], *, extra: bool = False) -> None:
        super().__init__(tensors)
        self.extra = extra

    @classmethod
    def of(cls, tensors: Mapping[str, HasDtypeShape], *, extra: bool = False) -> Schema:
        """Return the schema of a flat state dict, or of the table of a file: exactly its shapes."""
        specs = {name: TensorSpec(each.dtype, tuple(each.shape)) for name, each in tensors.items()}
        return cls(specs, extra=extra)

    def check(self, tensors: Mapping[str, HasDtypeShape]) -> None:
        """Refuse tensors that are not what this says.

        Raises:
            ModelMismatch: one is missing, is one too many, or is of another type or shape. The
                message names it.
        """
        belongs = "Load the file that belongs to this model"
        for name, spec in self.items():
            tensor = tensors.get(name)
            if tensor is None:
                raise ModelMismatch(f"The tensor {quoted(name)} is missing.", f"{belongs}.")
            if not spec.allows(tensor):
                shown = f"{dtype_name(tensor.dtype)} {quoted(tuple(tensor.shape))}"
                raise ModelMismatch(
                    f"The tensor {quoted(name)} is {shown}, and the schema says {spec}.",
                    f"{belongs}.",
                )
        for name in () if self.extra else tensors:
            if name not in self:
                raise ModelMismatch(
                    f"The tensor {quoted(name)} is not in the schema.",
                    f"{belongs}, or write Schema(…, extra=True).",
                )
