"""Does the journal verify, and is it kept where those who act cannot change it?"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from safepoint._files import SUPPORTED, as_named, folder_refusals, record_refusals
from safepoint.anchor import Anchor
from safepoint.audit.finding import Finding, worst_first
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    JournalError,
    UnsafeLocation,
    shell,
)
from safepoint.journal import THREAD, FileJournal
from safepoint.keys import Keyring
from safepoint.names import check_name
from safepoint.verify import Progress

# A writer that recovers writes two entries, and may die before the anchor has seen either.
_LAG = 2


def check_journal(
    path: str | os.PathLike[str],
    keys: Keyring,
    *,
    name: str = "journal",
    anchor: Anchor | None = None,
    storage: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """Verify a journal, and look at where it is kept. Nothing is changed.

    ```python
    from pathlib import Path

    from safepoint import InMemoryAnchor, Keyring, SigningKey
    from safepoint.audit import check_journal
    from safepoint.journal import Actor, Event, FileJournal

    keys, anchor = Keyring(SigningKey.generate()), InMemoryAnchor()
    journal = FileJournal("journal", keys=keys, anchor=anchor, create=True)
    journal.record(Event("resume", "done", Actor("ana", "login"), "invoices", "order-7"))
    print(check_journal("journal", keys, anchor=anchor))
    #> []
    Path("journal/journal/0000000001.checkpoint").unlink()
    print(check_journal("journal", keys, anchor=anchor)[0].severity)
    #> error
    ```

    Args:
        path: the folder of the journal.
        keys: the keys that sign or signed it.
        name: the journal's name.
        anchor: its anchor, if it has one.
        storage: the folder of the storage whose events it holds, to see that the two are apart.
        progress: called with how many entries are verified and how many there are.

    Returns:
        Under SP20, an error if the journal is missing, does not verify, can be changed by others,
        or lies in the storage folder or around it, and for a key that lies in the journal; a
        warning if others can read it, if it has no anchor, and if that is far behind.

    Raises:
        InvalidId: the name is outside the grammar.
        ConfigurationError: `keys` is not a keyring, or the anchor is none.
        StorageUnavailable: `path` is not a path.
    """
    if not isinstance(keys, Keyring):
        raise ConfigurationError(
            f"check_journal was given {type(keys).__name__} as keys.", "Give it a Keyring."
        )
    check_name("journal", name)
    shown = str(as_named(path, "The path of the journal"))
    found = [*_modes(shown), *_apart(shown, storage), *_keys_inside(shown, keys)]
    try:
        count = FileJournal(path, keys=keys, name=name, anchor=anchor).verify(progress)
    except (UnsafeLocation, JournalError) as refusal:
        if not any(refusal.what.endswith(finding.what) for finding in found):
            found.append(_error(refusal, shown))
    else:
        found += _lag(shown, name, count, anchor)
    return worst_first([*found, *_no_anchor(shown, anchor)])


def _error(refusal: CheckpointError, where: str) -> Finding:
    return Finding("SP20", "error", refusal.what, refusal.do, where)


def _modes(path: str) -> Iterator[Finding]:
    """Look at the folder and its files by what they are, links included."""
    if not SUPPORTED or not Path(path).is_dir():
        return
    for file in (Path(path), *sorted(Path(path, THREAD).glob("*"))):
        where, info = str(file), file.lstat()
        refusals = folder_refusals if file == Path(path) else record_refusals
        changed = [_error(refusal, where) for refusal in refusals(where, info)]
        yield from changed
        if not changed and info.st_mode & 0o077:
            yield Finding(
                "SP20",
                "warning",
                f"Others can read {shell(where)} (mode {stat.S_IMODE(info.st_mode):04o}), and with"
                " it who did what.",
                f"Run: chmod go= {shell(where)}",
                where,
            )


def _apart(path: str, storage: str | os.PathLike[str] | None) -> Iterator[Finding]:
    if storage is None:
        return
    journal, kept = Path(os.path.realpath(path)), Path(os.path.realpath(storage))
    if journal == kept or journal.is_relative_to(kept) or kept.is_relative_to(journal):
        how = "around" if kept.is_relative_to(journal) and kept != journal else "inside"
        yield Finding(
            "SP20",
            "error",
            f"The journal {shell(str(journal))} is {how} the storage folder {shell(str(kept))}.",
            "Whoever writes the storage could remove both what was done and that it was. Move the"
            " journal to a folder of its own.",
            path,
        )


def _keys_inside(path: str, keys: Keyring) -> Iterator[Finding]:
    real = Path(os.path.realpath(path))
    for key in keys:
        if key.path is not None and key.path.is_relative_to(real):
            yield Finding(
                "SP20",
                "error",
                f"The key {shell(str(key.path))} is inside the folder of the journal that it"
                " signs.",
                "Whoever takes the folder could write the journal anew. Move the key to a folder"
                " of its own, and replace it if anyone may have read it.",
                str(key.path),
            )


def _no_anchor(path: str, anchor: Anchor | None) -> Iterator[Finding]:
    if anchor is None:
        yield Finding(
            "SP20",
            "warning",
            f"The journal {shell(path)} has no anchor, so nobody notices when its newest lines are"
            " cut off.",
            "Keep its head where its writer cannot write: FileJournal(...,"
            " anchor=FileAnchor(path)).",
            path,
        )


def _lag(path: str, name: str, count: int, anchor: Anchor | None) -> Iterator[Finding]:
    """Compare how far the anchor has come with what was verified before."""
    if anchor is None:
        return
    known = anchor.read(name, THREAD)
    seen = 0 if known is None else known.sequence
    if count - seen > _LAG:
        yield Finding(
            "SP20",
            "warning",
            f"The journal {shell(path)} is at entry {count}, and its anchor at {seen}: what is"
            " newer could be cut off unnoticed.",
            "Find out which writer does not use the anchor. The next entry that one does use it"
            " for moves it.",
            path,
        )
