"""The outline of a state: what is left when its tensors are taken out.

Each tensor is replaced by a stand-in with its name, and a number that JSON has no word for by one
with a word. The codec encodes the outline, and knows these stand-ins and no other class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from safepoint.codec import Codec
from safepoint.errors import ModelMalformed, quoted
from safepoint.names import Limits
from safepoint.weights.limits import ModelLimits

if TYPE_CHECKING:
    import torch

DEPTH: Final = 64
NOT_OURS: Final = "Nothing was loaded. Load what save_checkpoint wrote, with its own files."
_WORDS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True, slots=True)
class TensorRef:
    """Stands where a tensor was.

    Attributes:
        name: its name in the file.
    """

    name: str


@dataclass(frozen=True, slots=True)
class TensorDict:
    """Stands where a dict of tensors was: ten thousand names are quicker than as many objects.

    Attributes:
        under: what comes before each key in the names, without the last `/`.
        keys: the keys, in their order.
        tied: the names of those that are stored under another name.
    """

    under: str
    keys: list[str]
    tied: dict[str, str]


@dataclass(frozen=True, slots=True)
class NotFinite:
    """Stands where a float was that JSON has no word for. The best loss so far often is one.

    Attributes:
        word: `nan`, `inf` or `-inf`.
    """

    word: str


STAND_INS: Final = (TensorRef, TensorDict, NotFinite)


def codec_for(limits: ModelLimits) -> Codec:
    """Return the codec of an outline."""
    most = Limits(state_bytes=limits.header_bytes, depth=DEPTH + 4, items=10 * limits.tensors)
    return Codec(STAND_INS, limits=most)


class Restorer:
    """Puts tensors back in the place of their stand-ins.

    Attributes:
        used: the names of the tensors that it put somewhere.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self.used: set[str] = set()

    def state(self, outline: Any) -> Any:
        """Return the state of an outline.

        Raises:
            ModelMalformed: it wants a tensor that is not there, or a stand-in is not as `pack`
                makes it.
        """
        kind = type(outline)
        if kind is dict:
            return {key: self.state(item) for key, item in outline.items()}
        if kind is list:
            return [self.state(item) for item in outline]
        if kind is tuple:
            return tuple([self.state(item) for item in outline])
        if kind is TensorRef:
            return self._tensor(outline.name)
        if kind is TensorDict:
            return self._dict(outline)
        if kind is NotFinite:
            return _number(outline.word)
        return outline

    def _dict(self, outline: TensorDict) -> dict[str, torch.Tensor]:
        under, keys, tied = outline.under, outline.keys, outline.tied
        if not (
            type(under) is str
            and type(keys) is list
            and type(tied) is dict
            and len(set(map(type, keys)) | {str}) == 1
            and len(set(keys)) == len(keys)
            and tied.keys() <= set(keys)
        ):
            raise ModelMalformed("The rest of the state lists tensors in another way.", NOT_OURS)
        before = f"{under}/" if under else ""
        return {key: self._tensor(tied.get(key) or before + key) for key in keys}

    def _tensor(self, name: Any) -> torch.Tensor:
        tensor = self._tensors.get(name) if type(name) is str else None
        if tensor is None:
            raise ModelMalformed(
                f"The state holds the tensor {quoted(name)}, which is not in the file.", NOT_OURS
            )
        self.used.add(name)
        return tensor


def _number(word: Any) -> float:
    number = _WORDS.get(word) if type(word) is str else None
    if number is None:
        raise ModelMalformed("The rest of the state holds an unknown number.", NOT_OURS)
    return number
