"""What a file that may hold pickles would do, told without doing it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import BinaryIO

from safepoint.errors import CheckpointError
from safepoint.pickles.framework import FRAMEWORK
from safepoint.pickles.kinds import Kind
from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits, out_of_memory
from safepoint.pickles.reading import read_pickle
from safepoint.pickles.scanning import scan
from safepoint.pickles.taking import opened, take_from
from safepoint.pickles.unzipping import Piece, Taken


@dataclass(frozen=True, slots=True)
class Inspected:
    """One pickle.

    Attributes:
        where: its place in the file, empty if it is the whole file.
        imports: what it asks for, such as `os.system`, sorted. A name that is only known when it
            runs is told as such.
        opcodes: how many instructions it has.
        protocol: the one that it names, 0 if it names none.
        calls: whether it would call something.
        plain: whether it is data, so that it can be read without running anything.
        reason: why it is not.
        trailing: how many bytes follow it. In an old PyTorch file, those are the tensors.
        broken: why it cannot be read to its end. What comes before would have run.
    """

    where: str
    imports: tuple[str, ...]
    opcodes: int
    protocol: int
    calls: bool
    plain: bool
    reason: str
    trailing: int
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is in a file.

    Attributes:
        kind: what the file is, by its content.
        size: its bytes.
        pickles: each pickle in it.
        unseen: what was not looked into, each as a sentence.
    """

    kind: Kind
    size: int
    pickles: tuple[Inspected, ...]
    unseen: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether all of it was seen, and is data."""
        return not self.unseen and all(pickle.plain for pickle in self.pickles)


def inspect(
    source: str | os.PathLike[str] | bytes, *, limits: PickleLimits = DEFAULT_PICKLE_LIMITS
) -> Inspection:
    r"""Say what a file is, and what the pickles in it would import and call. Nothing of it runs.

    It goes into PyTorch archives, zip archives, NumPy arrays of objects, and JSON with pickles in
    base64. An archive in an archive, or what is compressed, is told and not entered.

    ```python
    from safepoint.pickles.inspection import inspect

    found = inspect(b"cos\nsystem\n(S'id'\ntR.")
    print(found.kind.sentence, found.pickles[0].imports, found.plain)
    #> a pickle ('os.system',) False
    ```

    Args:
        source: a path, or the bytes of a file.
        limits: how much is looked at.

    Raises:
        ConfigurationError: it is neither a path nor bytes.
        NotFound: there is no such file.
        StorageUnavailable: it is a folder, a pipe or a device, or cannot be read.
        PickleRefused: it is two things at once, or a damaged archive.
        LimitExceeded: there is more of it than the limits.
    """
    try:
        return _inspect(source, limits)
    except MemoryError:
        problem = out_of_memory()
    raise problem


def _inspect(source: str | os.PathLike[str] | bytes, limits: PickleLimits) -> Inspection:
    with opened(source) as file:
        taken = take_from(file, limits)
        model = _model_refusal(file, taken.kind)
    holding = _of_the_model(taken) if model is not None else set()
    pickles = tuple(
        _inspected(piece, taken, model if number in holding else None, limits)
        for number, piece in enumerate(taken.pieces)
    )
    if pickles and taken.trailing:
        pickles = (*pickles[:-1], replace(pickles[-1], trailing=taken.trailing))
    unseen = list(taken.unseen)
    if model and not holding:
        unseen.append(model)
    if taken.kind is Kind.TORCH_SCRIPT:
        unseen.append("It holds code of TorchScript, which is not looked into.")
    return Inspection(taken.kind, taken.size, pickles, tuple(unseen))


def _inspected(piece: Piece, taken: Taken, model: str | None, limits: PickleLimits) -> Inspected:
    found = scan(piece.data, limits=limits)
    reason = ""
    if found.broken is not None:
        reason = found.broken.what
    elif model is not None:
        reason = model
    else:
        try:
            types = FRAMEWORK if taken.kind is Kind.JSON else ()
            read_pickle(piece.data, types=types, limits=limits)
        except CheckpointError as error:
            reason = error.what
    return Inspected(
        where=piece.where,
        imports=found.imports,
        opcodes=found.opcodes,
        protocol=found.protocol,
        calls=found.calls,
        plain=not reason,
        reason=reason,
        trailing=len(piece.data) - found.end,
        broken=found.broken.what if found.broken is not None else "",
    )


def _of_the_model(taken: Taken) -> set[int]:
    """Return which pickles describe the tensors: of an old file the fourth, or what is left."""
    if taken.kind is Kind.TORCH_LEGACY:
        return {min(len(taken.pieces), 4) - 1} if taken.pieces else set()
    return {n for n, piece in enumerate(taken.pieces) if piece.where.endswith("/data.pkl")}


def _model_refusal(file: BinaryIO, kind: Kind) -> str | None:
    """Return why a PyTorch file is more than tensors, nothing if it is not, None if it is none."""
    if kind not in (Kind.TORCH_ZIP, Kind.TORCH_LEGACY):
        return None
    from safepoint.weights.plan import read_plan  # which builds on this package

    file.seek(0)
    try:
        read_plan(file, kind)
    except CheckpointError as error:
        return error.what
    return ""
