"""Attacks on where checkpoints are stored: by the names of threads, and by default places."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from safepoint.attacks.kit import Look, attacks, loads, saved, unnoticed
from safepoint.attacks.medium import Disk
from safepoint.attacks.outcome import HONEST, WANTED, step
from safepoint.attacks.target import Target

location = attacks("Attacks on where checkpoints are stored. They need a disk.", needs=Disk)
names = attacks(
    "Attacks by the name of a thread. They need a disk, and what it makes of a name.", needs=Disk
)
defaults = attacks(
    "The attack on where a store keeps its parts when nobody says where.", needs=Disk
)


@location("plant-symlink", "SP04")
def plant_symlink(target: Target) -> Iterator[Look]:
    """A record becomes a symbolic link, and the store reads a file from somewhere else."""
    file = target.path / saved(target)
    file.rename(target.folder / "elsewhere")
    file.symlink_to(target.folder / "elsewhere")
    yield unnoticed(lambda: target.latest("victim"))


@location("plant-hard-link", "SP04")
def plant_hard_link(target: Target) -> Iterator[Look]:
    """A record has a second name outside the store, under which it can be changed."""
    (target.folder / "elsewhere").hardlink_to(target.path / saved(target))
    yield unnoticed(lambda: target.latest("victim"))


@location("open-folder", "SP04")
def open_folder(target: Target) -> Iterator[Look]:
    """The store's folder is open to every user of the machine, without a warning."""
    target.save("victim", HONEST)
    target.path.chmod(0o777)
    yield unnoticed(lambda: target.latest("victim"))


@location("plant-temp", "SP04")
def plant_temp(target: Target) -> Iterator[Look]:
    """The next save follows a planted link, and overwrites a file outside the store."""

    def content(path: Path) -> object:
        return list(path.iterdir()) if path.is_dir() else path.read_bytes()

    def save(outside: Path) -> bool:
        before = content(outside)
        target.save("victim", {"amount": 43})
        return content(outside) != before

    target.save("victim", HONEST)
    for number, name in enumerate(target.ahead("victim")):
        snapshot = target.medium.copy()
        planted = target.path / name
        outside = target.folder / f"outside-{number}"
        if planted.is_dir():
            planted.rename(target.folder / f"moved-{number}")
            outside.mkdir()
        else:
            outside.write_bytes(b"precious")
        planted.symlink_to(outside)
        yield partial(save, outside)
        target.medium.restore(snapshot)


@location("traverse-id", "SP04")
def traverse_id(target: Target) -> Iterator[Look]:
    """A thread named ../outside writes a file next to the store's folder."""

    def save() -> bool:
        before = set(target.folder.iterdir())
        target.save("../outside", {"amount": 42})
        return set(target.folder.iterdir()) != before

    target.save("victim", HONEST)
    yield save


def _named(
    target: Target, threads: Iterable[str], fooled: Callable[[list[str]], bool]
) -> Iterator[Look]:
    """Let the victim save under names, and see what became of them on the disk."""

    def save() -> bool:
        for thread in threads:
            target.save(thread, WANTED)
        return fooled(target.medium.names())

    target.save("victim", HONEST)
    yield save


@names("case-fold-id", "SP04")
def case_fold_id(target: Target) -> Iterator[Look]:
    """On a disk that does not tell capitals apart, VICTIM and victim are one file."""
    return _named(target, ["VICTIM"], lambda found: len({*map(str.casefold, found)}) < len(found))


@names("unicode-id", "SP04")
def unicode_id(target: Target) -> Iterator[Look]:
    """Two spellings of one accented name are two threads here, and one file elsewhere."""
    composed = partial(unicodedata.normalize, "NFC")
    spellings = [unicodedata.normalize(form, "café") for form in ("NFC", "NFD")]
    return _named(target, spellings, lambda found: len({*map(composed, found)}) < len(found))


@names("device-name-id", "SP04")
def device_name_id(target: Target) -> Iterator[Look]:
    """A thread named con or nul is saved here, but on Windows it goes to a device."""

    def is_device(part: str) -> bool:
        return part.partition(".")[0] in ("con", "nul")

    return _named(
        target, ["con", "nul"], lambda found: any(map(is_device, "/".join(found).split("/")))
    )


@names("newline-id", "SP04")
def newline_id(target: Target) -> Iterator[Look]:
    """A line break in a name writes a second line into every log that shows the name."""
    return _named(target, ["victim\npaid by alice"], lambda found: "\n" in "".join(found))


@defaults("everything-in-one-folder", "SP22")
def everything_in_one_folder(target: Target) -> Iterator[Look]:
    """By default the key and the anchor are stored with the records: one writer has them all."""
    victim = target.by_default()
    victim.save("victim", step(1))
    before = victim.medium.copy()
    victim.save("victim", step(2))
    after = victim.medium.copy()
    victim.medium.restore(before)
    yield loads(victim, step(1))
    # The same application on a copy of the folder: it has the key if that lies there.
    thief = target.by_default(after)
    try:
        thief.save("victim", WANTED)
    except target.refusals:  # another past under a key of one's own is the best that is left
        for name in thief.records("victim"):
            thief.medium.delete(name)
        for state in (step(1), step(2), WANTED):
            thief.save("victim", state)
    victim.medium.restore(thief.medium)
    yield loads(victim, WANTED)
