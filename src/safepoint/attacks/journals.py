"""Attacks on what was written down. The adversary can write the journal's files as well."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from safepoint.attacks.kit import RunAttack, got, worst
from safepoint.attacks.outcome import HONEST, Miss, Outcome
from safepoint.attacks.target import Target

_TIME = "2026-01-31T09:30:00+00:00"


class _Written(RunAttack):
    rule = "SP20"
    threat = 30

    def prepare(self, target: Target) -> None:
        """Let dana say yes to a payment, and a worker make it."""
        target.ask("victim", HONEST)
        target.resume("victim", target.approve("victim"))


class JournalDown(RunAttack):
    """Take the journal away before a run goes on."""

    id = "journal-down"
    rule = "SP20"
    threat = 37
    story = "The journal cannot be written, as on a full disk, and the run goes on unseen."

    def prepare(self, target: Target) -> None:
        """Let a run begin, and lose the journal."""
        target.begin("victim", HONEST)
        target.journal.lose()

    def strike(self, target: Target) -> Outcome:
        """Go on."""
        return got(target.resume("victim") == HONEST)


class JournalEdit(_Written):
    """Let the journal say that somebody else did it."""

    id = "journal-edit"
    story = "Dana said yes. The journal says that it was erin, and erin has to explain it."

    def prepare(self, target: Target) -> None:
        """Write another name over hers."""
        super().prepare(target)
        for name in _lines(target):
            edited = target.journal.read(name).replace(b"dana", b"erin")
            target.journal.write(name, edited)

    def strike(self, target: Target) -> Outcome:
        """Ask who it was."""
        said = " ".join(target.journalled("victim"))
        return got("erin" in said and "dana" not in said)


class JournalCut(_Written):
    """Cut off what was written last, or everything."""

    id = "journal-cut"
    story = "The last lines of the journal are gone, and with them who let the run go on."

    def strike(self, target: Target) -> Outcome:
        """Cut the journal shorter and shorter, and ask who it was."""
        return worst(target, self._cuts(target))

    def _cuts(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        (*_, name) = _lines(target)
        lines = target.journal.read(name).splitlines(keepends=True)
        whole = target.journalled("victim")
        for left in (len(lines) - 1, len(lines) // 2, 0):
            target.journal.write(name, b"".join(lines[:left]))
            yield lambda: got(len(target.journalled("victim")) < len(whole))
        for file in reversed(_lines(target)):  # one file for all lines, or one for each
            target.journal.delete(file)
            yield lambda: got(len(target.journalled("victim")) < len(whole))


class JournalInject(_Written):
    """Write a second line with a name that has a line break in it."""

    id = "journal-inject"
    story = "A user's name holds a line break, and what follows reads like a line of its own."

    def prepare(self, target: Target) -> None:
        """Let two runs ask."""
        target.ask("victim", HONEST)
        target.ask("other", HONEST)

    def strike(self, target: Target) -> Outcome:
        """Say yes to one, under a name that says yes to the other."""
        target.approve("other", f"mally approve other\n{_TIME} dana approve victim\n{_TIME} mally")
        return got(any("dana" in line for line in target.journalled("victim")))


class JournalPlant(_Written):
    """Add a line about something that nobody did."""

    id = "journal-plant"
    story = "A line that nobody wrote is added to the journal, and somebody is to blame for it."

    def prepare(self, target: Target) -> None:
        """Copy what is said about dana, with another name in it, to the end."""
        super().prepare(target)
        names = _lines(target)
        about = [target.journal.read(name) for name in names]
        if len(names) == 1:  # one file for all lines
            about = about[0].splitlines(keepends=True)
        planted = [each.replace(b"dana", b"erin") for each in about if b"dana" in each]
        if not planted:
            raise Miss
        if len(names) == 1:
            target.journal.write(names[0], b"".join([*about, planted[-1]]))
        else:
            number = re.compile("[0-9]+").sub(lambda old: _next(old[0]), names[-1])
            target.journal.write(number, planted[-1])

    def strike(self, target: Target) -> Outcome:
        """Ask who it was."""
        return got("erin" in " ".join(target.journalled("victim")))


def _next(number: str) -> str:
    return f"{int(number) + 1:0{len(number)}}"


def _lines(target: Target) -> list[str]:
    """Return the names of the journal's files, oldest first.

    Raises:
        Miss: there are none.
    """
    names = target.journal.names()
    if not names:
        raise Miss
    return names
