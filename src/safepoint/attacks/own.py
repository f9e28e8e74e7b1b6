"""A store of your own as a target: it saves and loads, and the adversary has its folder."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Final

from safepoint.attacks.kit import runs, works
from safepoint.attacks.ladder import ATTACKS, in_a_process
from safepoint.attacks.medium import Rows
from safepoint.attacks.outcome import Miss, Outcome
from safepoint.attacks.target import Target, Trick
from safepoint.core.errors import ConfigurationError
from safepoint.places import is_database

Factory = Callable[[Path], Any]
"""Opens your store in a folder: what it returns has `save(thread, state)` and `load(thread)`."""

# These take your key, your format, a history, an index, a second store, a tenant or a replica.
_BEYOND: Final = {
    *("retired-key", "thief-prunes", "stolen-key-undelete", "stolen-key-rewrite", "fork"),
    *("edit-and-rehash", "key-substitution", "algorithm-downgrade", "strip-signature"),
    *("fast-forward", "forged-base", "cut-oldest", "plant-temp", "freeze", "time-of-check"),
    *("reorder", "delete-middle", "splice-branches", "undelete-by-number", "point-elsewhere"),
    *("swap-stores", "swap-tenants", "guess-thread", "everything-in-one-folder", "aliasing"),
}
_OTHER: Final = "load returned something else than what was saved"
_THREADS: Final = ("victim", "attacker")  # of most attacks

_STATE: Final = re.compile(
    rb'\{\s*"amount":\s*42,\s*"payee":\s*"alice"\s*\}|\x82\xa6amount\x2a\xa5payee\xa5alice'
)
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05].*payee.*", re.DOTALL)
_VICTIM: Final = re.compile(r"victim(-\w+)?")
_HARMLESS: Final = b"cdatetime\ntimedelta\n(I1\ntR."
# What ends a worker. Whatever else stops a load counts as a refusal.
_DEADLY: Final = (RecursionError, MemoryError, SystemExit, KeyboardInterrupt)


class StoreRefusal(Exception):
    """What a store raised while somebody used it.

    Attributes:
        during: what it was asked to do.
    """

    def __init__(self, during: str, why: str) -> None:
        super().__init__(why)
        self.during = during


class OwnTarget(Target):
    """Your store, which saves and loads and keeps its bytes in the folder that it is given.

    It is opened again for each use, as another process would. If it is a context manager, it is
    entered and left; else it is closed, if it can be. An error that stops a load counts as a
    refusal, whatever it was meant for, and so does None where there was a state. The record of a
    save is what then differs in the folder: the longest that has the state in the open, or the
    longest of all.

    Args:
        factory: opens the store in a folder, which the adversary can write. What is next to that
            folder they cannot: keep a key or an anchor there, or in your module.
        folder: a temporary folder.
    """

    name = "yours"
    refusals: ClassVar[tuple[type[Exception], ...]] = (StoreRefusal,)

    def __init__(self, factory: Factory, folder: str | Path) -> None:
        super().__init__(folder)
        self._factory, self._store = factory, self.path
        self._records: dict[str, list[str]] = {}

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Save, and see what differs. What a victim begins is loaded at once, as a control."""
        before = self.medium.everything()
        self._use("save", thread, dict(state))
        after = self.medium.everything()
        changed = [name for name in after if before.get(name) != after[name]]
        if changed:
            record = max(changed, key=lambda name: (b"payee" in after[name], len(after[name])))
            is_new = _VICTIM.fullmatch(thread) is not None and thread not in self._records
            known = self._records.setdefault(thread, [])
            known += [] if record in known else [record]
            if is_new and self.latest(thread) != state:  # nobody has attacked it yet
                raise StoreRefusal("load", _OTHER)

    def latest(self, thread: str) -> Any:
        """Load."""
        found = self._use("load", thread)
        if found is None:
            raise StoreRefusal("load", "None")
        return found

    def delete(self, thread: str) -> None:
        """Delete, if your store can.

        Raises:
            Miss: it cannot.
        """
        if not self._has("delete"):
            raise Miss
        self._use("delete", thread)

    def records(self, thread: str) -> list[str]:
        """Return what each save wrote, as far as it is there."""
        there = self.medium.names()
        return [name for name in self._records.get(thread, []) if name in there]

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Replace the state, where it is MessagePack, or JSON, however it is spaced."""
        if trick != "best" or not _STATE.search(record):
            raise Miss
        return _STATE.sub(lambda _: payload, record)

    def pickled(self, pickle: bytes, type_name: str) -> bytes | None:
        """Put a pickle where one is; or, in JSON, behind a mark that this store seems to know."""
        name = self.records("victim")[-1]
        record = self.medium.read(name)
        if _PICKLE.search(record):
            return _PICKLE.sub(lambda _: pickle, record)
        marked = self.forge(record, _mark(_HARMLESS, "datetime:timedelta"))
        self.medium.write(name, marked)
        try:
            is_plain = self.latest("victim") == json.loads(_mark(_HARMLESS, "datetime:timedelta"))
        except StoreRefusal:
            is_plain = False
        self.medium.write(name, record)
        return None if is_plain else self.forge(record, _mark(pickle, type_name))

    def settle(self) -> None:
        """See after a save where the records are: in files, or in rows of SQLite.

        Raises:
            Miss: they are elsewhere.
        """
        if any(is_database(str(self._store / name)) for name in self.medium.names()):
            self.medium, self._records = Rows(self._store), {}
            works(self)
        if not self.records("control"):
            raise Miss("save wrote nothing into the folder that it was given")

    def _has(self, method: str) -> bool:
        with ExitStack() as stack:
            return callable(getattr(self._opened(stack), method, None))

    def _opened(self, stack: ExitStack) -> Any:
        store = self._factory(self._store)
        if hasattr(store, "__enter__"):
            return stack.enter_context(store)
        if callable(close := getattr(store, "close", None)):
            stack.callback(close)
        return store

    def _use(self, method: str, *given: Any) -> Any:
        during = "factory"
        try:
            with ExitStack() as stack:
                store = self._opened(stack)
                during = method
                return getattr(store, method)(*given)
        except _DEADLY:
            raise
        except BaseException as error:  # a refusal may be none that an application handles
            raise StoreRefusal(during, f"{type(error).__name__}: {error}") from error


def _mark(pickle: bytes, type_name: str) -> bytes:
    wrapped = {"__pickled__": base64.b64encode(pickle).decode(), "__type__": type_name}
    return json.dumps(wrapped).encode()


def reaches(factory: Any, name: str) -> bool:
    """Tell whether an attack can be tried: many take more than a store with save and load."""
    return _is_target(factory) or not (ATTACKS[name].control is runs or name in _BEYOND)


def _is_target(factory: Any) -> bool:
    return isinstance(factory, type) and issubclass(factory, Target)


def strike(factory: Any, name: str) -> tuple[Outcome, str]:
    """Run one attack on a store of yours, in a process and a temporary folder of its own.

    Args:
        factory: a `Factory`, or a class of `Target`, on which more attacks can be run.
        name: the name of the attack.

    Returns:
        How it ended, and by which error it was refused.
    """
    if not reaches(factory, name):
        return Outcome.NOT_APPLICABLE, ""

    def struck(folder: str) -> tuple[Outcome, str]:
        target = _aimed(factory, folder)
        outcome = ATTACKS[name].run(target)
        if outcome is not Outcome.DETECTED:
            return outcome, ""
        said = target.refused[-1].removeprefix(f"{StoreRefusal.__name__}: ")
        return outcome, said.partition(":")[0]

    return in_a_process(struck, (Outcome.CRASHED, ""))


def check(named: str, factory: Any) -> None:
    """See that a store works while nobody attacks it: refusals of one that does not prove nothing.

    Raises:
        ConfigurationError: it does not.
    """

    def why_not(folder: str) -> str:
        try:
            target = _aimed(factory, folder)
            if not all(works(target, each) for each in _THREADS):
                return _OTHER
        except StoreRefusal as refusal:
            return f"{refusal.during} raised {refusal}"
        except Miss as miss:
            return f"{miss}"
        except Exception as error:  # noqa: BLE001  of a target that somebody wrote
            return f"it raised {type(error).__name__}: {error}"
        return ""

    why = "it cannot be called"
    if callable(factory):
        why = in_a_process(why_not, "its process died, or did not end")
    if why:
        raise ConfigurationError(
            f"{named} does not work while nobody attacks it: {' '.join(why.split())[:300]}.",
            "It must open a store in the folder that it is given, with save(thread, state) and"
            " load(thread).",
        )


def _aimed(factory: Any, folder: str) -> Target:
    """Return a target that works, with nobody attacking.

    Raises:
        Miss: it does not.
    """
    target: Target = factory(folder) if _is_target(factory) else OwnTarget(factory, folder)
    if not works(target):
        raise Miss(_OTHER)
    if isinstance(target, OwnTarget):
        target.settle()
    return target
