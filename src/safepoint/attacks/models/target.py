"""What an attack on models is aimed at: how somebody saves, loads, reviews and tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from safepoint.attacks.outcome import Miss
from safepoint.errors import CheckpointError


class ModelTarget(ABC):
    """Somebody who saves and loads models.

    Two methods aim the attacks on files at a loader of your own. The others stand for what you do
    around it; an attack that needs one that you leave out is "not applicable", which proves
    nothing.

    Attributes:
        name: what the target is called in tables.
        refusals: the errors by which it refuses. Anything else counts as a crash.
        folder: a temporary folder.
        refused: what it said each time that it refused.
    """

    name: ClassVar[str]
    refusals: ClassVar[tuple[type[Exception], ...]] = (CheckpointError,)

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.refused: list[str] = []
        self.path.mkdir(mode=0o700, exist_ok=True)

    @property
    def path(self) -> Path:
        """The folder of the models, which the adversary can write."""
        return self.folder / "models"

    @abstractmethod
    def save(self, name: str, state: dict[str, Any]) -> Path:
        """The victim saves tensors."""

    @abstractmethod
    def load(self, file: Path) -> Any:
        """The victim loads what should be tensors, from a file that may be anybody's."""

    def keep(self, name: str, trusted: Any) -> Path:
        """The victim saves something of its own that only an unrestricted load brings back.

        Raises:
            Miss: it never does.
        """
        del name, trusted
        raise Miss

    def bring_back(self, file: Path) -> Any:
        """The victim loads it without restriction.

        Raises:
            Miss: it never does.
        """
        del file
        raise Miss

    def review(self, source: str) -> None:
        """The victim looks at a change of its code, and raises if it is not to be merged.

        Raises:
            Miss: nobody looks.
        """
        del source
        raise Miss

    def test(self, file: Path) -> None:
        """The victim runs a test file, and raises if a test in it fails.

        Raises:
            Miss: there are no tests.
        """
        del file
        raise Miss
