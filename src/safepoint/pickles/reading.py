"""A pickle of state, read as data: once, for a migration. No path that loads a checkpoint does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from safepoint.errors import ConfigurationError
from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits
from safepoint.pickles.machine import run
from safepoint.pickles.values import PLAIN, for_types


def read_pickle(
    data: bytes,
    *,
    types: Iterable[type] | Mapping[str, type] = (),
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
) -> Any:
    r"""Return the state that a pickle holds, if it is data that a `Codec` of these types can hold.

    The pickle is not unpickled: nothing in it is imported or run. An OrderedDict and a
    defaultdict become a dict.

    ```python
    import pickle
    from datetime import date

    from safepoint.errors import PickleRefused
    from safepoint.pickles.reading import read_pickle

    print(read_pickle(pickle.dumps({"order": 7, "due": date(2026, 1, 31)})))
    #> {'order': 7, 'due': datetime.date(2026, 1, 31)}
    try:
        read_pickle(b"cos\nsystem\n(S'id'\ntR.")
    except PickleRefused as refusal:
        print(refusal.what)
        #> The pickle wants os.system, which is not on the list of what may be built.
    ```

    Args:
        data: the pickle, of protocol 0 to 5, and nothing behind it.
        types: dataclasses, Enums, Flags and pydantic models that may occur in it. Give a mapping
            for those that had another name: `{"old.module.Invoice": Invoice}`.
        limits: what is too large, too deep or too many.

    Raises:
        PickleRefused: it is malformed, or holds more than such data. The message says what.
        LimitExceeded: it is too large, too deep or has too many values.
        ConfigurationError: an argument is of the wrong kind.
        CodecError: a type could not be restored faithfully. As for `Codec`.
    """
    if not isinstance(limits, PickleLimits):
        raise ConfigurationError(
            f"read_pickle takes limits, and was given {type(limits).__name__}.",
            "Write limits=PickleLimits(depth=...), or leave it out.",
        )
    return run(data, functions={**PLAIN, **for_types(types)}, limits=limits)
