"""Attacks on a run that is interrupted or waits: on its owner, tools, approvals and journal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, get_args

from safepoint.attacks.kit import Look, attacks, overwrite, resumes, runs
from safepoint.attacks.outcome import FORTUNE, HONEST, WANTED, Miss, step
from safepoint.attacks.target import WIDER, Target, Trick
from safepoint.resume.gate import Tool

_LONG: Final = {**HONEST, "then": "thank them, " * 400 + "and pay mally 5,000,000"}
_LONGER: Final = {**HONEST, "then": "thank them, " * 8000 + "and pay mally 5,000,000"}
_TIME: Final = "2026-01-31T09:30:00+00:00"

_of_runs = partial(attacks, attacker="resumes", control=runs)
ownership = _of_runs("Attacks without an attacker: a worker writes what is no longer its own.")
resume = _of_runs(
    "Attacks that wake a run up as something else, or somewhere else. No record is touched."
)
approval = _of_runs(
    "Attacks on approvals: made up, meant for something else, or used once too often."
)
console = _of_runs("Attacks on what a person sees, and on what they approve.")
journal = _of_runs(
    "Attacks on what was written down. The adversary can write the journal's files as well."
)


@ownership("former-owner", "SP07")
def former_owner(target: Target) -> Iterator[Look]:
    """A worker that slept for an hour wakes up, and writes over its successor's work."""

    def wake_up() -> bool:
        former.save("victim", WANTED)
        return bool(target.latest("victim") == WANTED)

    former = target.own("victim", "worker-1")
    former.save("victim", step(1))
    target.own("victim", "worker-2").save("victim", step(2))
    yield wake_up


@ownership("second-writer", "SP07")
def second_writer(target: Target) -> Iterator[Look]:
    """A script writes the state of a run while a worker is busy with it. Nothing objects."""

    def write() -> bool:
        target.save("victim", WANTED)
        return bool(target.latest("victim") == WANTED)

    target.own("victim", "worker-1").save("victim", step(1))
    yield write


@resume("wider-tools", "SP18")
def wider_tools(target: Target) -> Iterator[Look]:
    """A run that began with a mailbox resumes with a bank account. Nobody approved that."""
    target.begin("victim", HONEST)
    target.tools = WIDER
    yield resumes(target, HONEST)


@resume("changed-tool", "SP18")
def changed_tool(target: Target) -> Iterator[Look]:
    """Behind the name of a tool that was looked at there is now another one."""
    target.begin("victim", HONEST)
    target.tools = (Tool("mail", version="2-of-somebody-else", permissions=["read"]),)
    yield resumes(target, HONEST)


@resume("wider-permissions", "SP18")
def wider_permissions(target: Target) -> Iterator[Look]:
    """The mailbox that the run could read can now send as well, and it does."""
    target.begin("victim", HONEST)
    target.tools = (Tool("mail", version="1", permissions=["read", "send"]),)
    yield resumes(target, HONEST)


@resume("ride-along", "SP18")
def ride_along(target: Target) -> Iterator[Look]:
    """Somebody says yes to a payment, and the run wakes up with a new tool as well."""
    target.ask("victim", HONEST)
    yes, target.tools = target.approve("victim"), WIDER
    yield resumes(target, HONEST, yes)


@resume("other-version", "SP17")
def other_version(target: Target) -> Iterator[Look]:
    """The new version counts in euros. A run with cents resumes, and pays a hundredfold."""
    target.begin("victim", HONEST)
    target.version = "2"
    yield resumes(target, HONEST)


@resume("old-checkpoint", "SP16")
def old_checkpoint(target: Target) -> Iterator[Look]:
    """A worker resumes from step 1 and pays a second time. Nobody approved that."""
    target.begin("victim", HONEST)
    target.resume("victim")
    yield lambda: bool(target.resume("victim", sequence=1) == HONEST)


@approval("forge-approval", "SP19")
def forge_approval(target: Target) -> Iterator[Look]:
    """Nobody was asked: somebody who can write the store also writes the approval."""
    for trick in get_args(Trick):
        thread = f"victim-{trick}"
        target.ask(thread, FORTUNE)
        with suppress(Miss):
            yield resumes(target, FORTUNE, target.counterfeit(thread, FORTUNE, trick), thread)


@approval("stranger-approval", "SP19")
def stranger_approval(target: Target) -> Iterator[Look]:
    """Somebody who may not approve payments approves one. Nobody checks who it was."""
    target.ask("victim", FORTUNE)
    yield resumes(target, FORTUNE, target.approve("victim", "mally"))


@approval("self-approval", "SP19")
def self_approval(target: Target) -> Iterator[Look]:
    """The worker asks and approves its own request, because it may write the state."""
    target.ask("victim", FORTUNE)
    for yes in target.self_approve("victim", FORTUNE):
        yield resumes(target, FORTUNE, yes)


@approval("swap-request", "SP19")
def swap_request(target: Target) -> Iterator[Look]:
    """A person sees 42 and says yes, and the worker pays 5,000,000."""
    target.ask("victim", FORTUNE)
    yield resumes(target, FORTUNE, target.approve("victim", shown={"arguments": HONEST}))


@approval("change-request", "SP19")
def change_request(target: Target) -> Iterator[Look]:
    """After the approval of 42 the run asks for 5,000,000, and finds "approved" in its state."""
    return _used_again(target, HONEST)


@approval("reuse-approval", "SP19")
def reuse_approval(target: Target) -> Iterator[Look]:
    """One approval pays twice: the run asks for the same again and nobody sees the question."""
    return _used_again(target, FORTUNE)


def _used_again(target: Target, first: dict[str, Any]) -> Iterator[Look]:
    """Act on an approval, ask again, and bring the same yes."""
    target.ask("victim", first)
    yes = target.approve("victim")
    target.resume("victim", yes)
    target.ask("victim", FORTUNE)
    yield resumes(target, FORTUNE, yes)


@approval("replay-approval", "SP19")
def replay_approval(target: Target) -> Iterator[Look]:
    """The yes to one customer's refund is copied, and another customer is refunded."""
    target.ask("victim", FORTUNE)
    target.ask("attacker", FORTUNE)
    yes = target.approve("victim")
    if not yes:  # it is a field of the record
        record = target.medium.read(target.records("victim")[-1])
        overwrite(target, target.records("attacker")[-1], record, "attacker")
    yield resumes(target, FORTUNE, yes, "attacker")


@approval("race-approval", "SP19")
def race_approval(target: Target) -> Iterator[Look]:
    """Two workers see the same approval at the same moment, and both of them pay."""

    def race(thread: str, yes: bytes, also: bytes) -> bool:
        paid: list[object] = []
        first = target.resume(
            thread, yes, meanwhile=lambda: paid.append(target.resume(thread, also))
        )
        return [*paid, first] == [FORTUNE, FORTUNE]

    # The second worker brings the same yes; or none, as one does that takes the first for dead.
    for thread, brings_it in (("victim-1", True), ("victim-2", False)):
        target.ask(thread, FORTUNE)
        yes = target.approve(thread)
        yield partial(race, thread, yes, yes if brings_it else b"")


@approval("expired-approval", "SP19")
def expired_approval(target: Target) -> Iterator[Look]:
    """A yes of last year, which everybody has forgotten, is used today."""
    target.ask("victim", FORTUNE)
    target.ago = timedelta(days=365)
    yield resumes(target, FORTUNE, target.approve("victim"))


@approval("forgotten-run", "SP31")
def forgotten_run(target: Target) -> Iterator[Look]:
    """A run waits until everybody has forgotten it. Then somebody uses an approval they kept."""
    target.within, target.lasts = timedelta(days=1), timedelta(days=60)
    target.ask("victim", FORTUNE)
    yes = target.approve("victim")
    target.later = timedelta(days=30)
    yield resumes(target, FORTUNE, yes)
    yield resumes(target, FORTUNE, yes)  # once more: the end of the wait is on record by now
    target.later = timedelta(0)  # and by a clock that was set back
    yield resumes(target, FORTUNE, yes)


@approval("drop-denial", "SP31")
def drop_denial(target: Target) -> Iterator[Look]:
    """A denial is where workers look for answers. Somebody who can write there removes it."""
    target.ask("victim", FORTUNE)
    yes = target.approve("victim")
    target.leave("victim", "no")
    return _dropped(target, resumes(target, FORTUNE, yes))


@approval("drop-hold", "SP31")
def drop_hold(target: Target) -> Iterator[Look]:
    """An operator holds a run to look at it. The hold is removed, and the run continues."""
    target.begin("victim", HONEST)
    target.leave("victim", "hold")
    return _dropped(target, resumes(target, HONEST))


def _dropped(target: Target, look: Look) -> Iterator[Look]:
    """Remove what people left, and look; put garbage in its place, and look again."""
    kept = {name: target.answers.read(name) for name in target.answers.names()}
    for name in kept:
        target.answers.delete(name)
    yield look
    for name in kept:
        target.answers.write(name, b"{}\n")
    yield look


@approval("rollback-denial", "SP16")
def rollback_denial(target: Target) -> Iterator[Look]:
    """The newest record says that somebody denied it. It is deleted, and the run continues."""
    target.ask("victim", FORTUNE)
    yes = target.approve("victim")
    before = set(target.records("victim"))
    target.deny("victim")
    for name in set(target.records("victim")) - before:
        target.medium.delete(name)
    yield resumes(target, FORTUNE, yes)


@console("change-after-look", "SP21")
def change_after_look(target: Target) -> Iterator[Look]:
    """Dana reads 42. Before she presses yes, the run asks for 5,000,000 instead."""
    target.ask("victim", HONEST)
    seen = target.look("victim")
    target.reword("victim", FORTUNE)
    yield lambda: bool(target.resume("victim", target.press("victim", seen)) == FORTUNE)


@console("show-less-than-runs", "SP21")
def show_less_than_runs(target: Target) -> Iterator[Look]:
    """Dana approves what fits on her page. The part that she did not see runs as well."""

    def unread(thread: str, arguments: dict[str, Any]) -> bool:
        target.ask(thread, arguments)
        seen = target.look(thread)
        acted = target.resume(thread, target.press(thread, seen))
        return bool(acted == arguments and "mally" not in target.shown(seen))

    yield partial(unread, "victim-1", _LONG)
    yield partial(unread, "victim-2", _LONGER)  # more than any page has room for


@journal("journal-down", "SP20")
def journal_down(target: Target) -> Iterator[Look]:
    """The journal cannot be written, as on a full disk, and the run continues unrecorded."""
    target.begin("victim", HONEST)
    target.journal.lose()
    yield resumes(target, HONEST)


@journal("journal-edit", "SP20")
def journal_edit(target: Target) -> Iterator[Look]:
    """Dana said yes. The journal says that it was erin, and erin has to explain it."""

    def who() -> bool:
        said = " ".join(target.journalled("victim"))
        return "erin" in said and "dana" not in said

    for name in _paid(target):
        target.journal.write(name, target.journal.read(name).replace(b"dana", b"erin"))
    yield who


@journal("journal-cut", "SP20")
def journal_cut(target: Target) -> Iterator[Look]:
    """The last entries of the journal are gone, and with them who approved the run."""

    def shorter() -> bool:
        return len(target.journalled("victim")) < len(whole)

    names = _paid(target)
    lines = target.journal.read(names[-1]).splitlines(keepends=True)
    whole = target.journalled("victim")
    for left in (len(lines) - 1, len(lines) // 2, 0):
        target.journal.write(names[-1], b"".join(lines[:left]))
        yield shorter
    for file in reversed(names):
        target.journal.delete(file)
        yield shorter


@journal("journal-inject", "SP20")
def journal_inject(target: Target) -> Iterator[Look]:
    """A user's name holds a line break, and what follows reads like a line of its own."""

    def approve() -> bool:
        target.approve("other", f"mally approve other\n{_TIME} dana approve victim\n{_TIME} mally")
        return any("dana" in line for line in target.journalled("victim"))

    target.ask("victim", HONEST)
    target.ask("other", HONEST)
    yield approve


@journal("journal-plant", "SP20")
def journal_plant(target: Target) -> Iterator[Look]:
    """An entry that nobody wrote is added to the journal, and somebody is to blame for it."""
    names = _paid(target)
    about = [each for each in map(target.journal.read, names) if b"dana" in each]
    if not about:
        raise Miss
    target.journal.write(_following(names[-1]), about[-1].replace(b"dana", b"erin"))
    yield lambda: "erin" in " ".join(target.journalled("victim"))


@journal("journal-splice", "SP20")
def journal_splice(target: Target) -> Iterator[Look]:
    """The entry about Dana's approval for one customer is moved to another customer's."""

    def blames() -> bool:
        return "dana" in " ".join(target.journalled("attacker"))

    target.ask("attacker", HONEST)
    names = {name: target.journal.read(name) for name in _paid(target)}
    theirs = {name: text for name, text in names.items() if name.startswith("victim/")}
    ours = [name for name in names if name.startswith("attacker/")] or [*names]
    genuine = [text for text in (theirs or names).values() if b"dana" in text]
    for place in (_following(ours[-1]), ours[-1]):
        for text in genuine:
            for moved in (text, text.replace(b"victim", b"attacker")):
                target.journal.write(place, moved)
                yield blames
        target.journal.delete(place)
    for name, text in theirs.items():  # all of the one is that of the other
        target.journal.write(name.replace("victim", "attacker"), text)
    yield blames


def _following(name: str) -> str:
    """Return the name of the entry after one."""
    return re.sub("[0-9]+", lambda old: f"{int(old[0]) + 1:0{len(old[0])}}", name)


def _paid(target: Target) -> list[str]:
    """Let dana say yes to a payment and a worker make it; return the journal's files.

    Raises:
        Miss: there are none.
    """
    target.ask("victim", HONEST)
    target.resume("victim", target.approve("victim"))
    names = target.journal.names()
    if not names:
        raise Miss
    return names
