"""StorageSuite: what every storage must do, as tests that you run on your own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safepoint.errors import CheckpointError, ConfigurationError, quoted
from safepoint.testing._fences import FenceClaims
from safepoint.testing._leases import LeaseClaims
from safepoint.testing._ledgers import LedgerClaims
from safepoint.testing._races import RaceClaims
from safepoint.testing._records import REQUIRED, RecordClaims
from safepoint.testing._report import FAILED, NOT_OFFERED, PASSED, Claim, Report
from safepoint.testing._retention import RetentionClaims, ScanClaims
from safepoint.testing._suite import NotOffered


class StorageSuite(
    RecordClaims,
    RaceClaims,
    RetentionClaims,
    ScanClaims,
    LeaseClaims,
    FenceClaims,
    LedgerClaims,
):
    """The claims that every storage keeps, one `test_` method each.

    Write a class whose name begins with `Test`, and pytest runs them all:

    ```python
    from safepoint import FileCheckpointStorage
    from safepoint.testing import StorageSuite


    class TestMyStorage(StorageSuite):
        def open(self, folder):
            return FileCheckpointStorage(folder / "store")


    report = TestMyStorage.check()  # without pytest
    print([claim.name for claim in report.failed])
    #> []
    ```

    `open` is called again for another opening of the same records. What a storage does not have,
    such as `prune` or leases, is skipped, with a reason; the four methods are required.

    Three attributes say what else a storage does not offer. Set `shared` to False if it lives in
    one process, `threadsafe` if an opening belongs to one thread, and `guarded` if it leaves it to
    the ledger to refuse names, sequences and values that are none.
    """

    @classmethod
    def check(cls) -> Report:
        """Try each claim in a temporary folder of its own.

        Raises:
            ConfigurationError: `open` raises, or what it returns is no storage.
        """
        cls._check_opening()
        return Report(tuple(cls._tried(name) for name in claims()))

    @classmethod
    def _check_opening(cls) -> None:
        suite = cls()
        suite.setup_method()
        try:
            storage = suite.storage()
            lacking = [name for name in REQUIRED if not callable(getattr(storage, name, None))]
        except CheckpointError as error:
            raise ConfigurationError(
                f"The storage could not be opened. {_line(error.what)}", _line(error.do)
            ) from error
        except Exception as error:
            raise ConfigurationError(
                f"The storage could not be opened: it raised {type(error).__name__}.",
                "Write a function that takes a folder and returns a storage.",
            ) from error
        finally:
            suite.teardown_method()
        if lacking:
            raise ConfigurationError(
                f"{type(storage).__name__} is no storage: it has no {', no '.join(lacking)}.",
                f"Write a class with the methods {', '.join(REQUIRED)}.",
            )

    @classmethod
    def _tried(cls, name: str) -> Claim:
        suite = cls()
        suite.setup_method()
        method = getattr(suite, f"test_{name}")
        sentence = _line(getattr(StorageSuite, f"test_{name}").__doc__ or "")
        try:
            try:
                method()
            finally:
                suite.teardown_method()
        except NotOffered as lack:
            return Claim(name, sentence, NOT_OFFERED, _line(str(lack)))
        except AssertionError as error:
            return Claim(name, sentence, FAILED, _line(str(error)) or sentence)
        except Exception as error:  # noqa: BLE001  the storage is yours, and may raise anything
            said = f"{type(error).__name__} came: {_line(str(error))}"
            return Claim(name, sentence, FAILED, said)
        return Claim(name, sentence, PASSED)


def check_storage(
    open: Callable[[Path], Any],  # noqa: A002  as the suite calls it
    *,
    shared: bool = True,
    threadsafe: bool = True,
    guarded: bool = True,
) -> Report:
    """Try each claim of `StorageSuite` on a storage, without a test runner.

    ```python
    from safepoint import InMemoryCheckpointStorage
    from safepoint.testing import check_storage

    report = check_storage(
        lambda folder: InMemoryCheckpointStorage(), shared=False
    )
    print(report.exit_code)
    #> 0
    ```

    Args:
        open: takes a folder, and returns the storage; again, another opening of the same records.
        shared: whether another opening sees the same records.
        threadsafe: whether several threads may use one opening.
        guarded: whether it refuses names, sequences and values that are none by itself.

    Raises:
        ConfigurationError: `open` cannot be called or raises, or what it returns is no storage.
    """
    if not callable(open):
        raise ConfigurationError(
            f"{quoted(open)} cannot be called.",
            "Write a function that takes a folder and returns a storage.",
        )

    class Checked(StorageSuite):
        def open(self, folder: Path) -> Any:
            return opening(folder)

    opening = open
    Checked.shared, Checked.threadsafe, Checked.guarded = shared, threadsafe, guarded
    return Checked.check()


def claims() -> list[str]:
    """Return the name of each claim, in order."""
    return [
        name.removeprefix("test_")
        for part in StorageSuite.__bases__
        for name in vars(part)
        if name.startswith("test_")
    ]


def _line(text: str) -> str:
    """Return a text on one line, in ASCII, at most 300 characters of it."""
    return re.sub(r"\s+", " ", text.encode("ascii", "backslashreplace").decode())[:300].strip()
