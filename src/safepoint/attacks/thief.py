"""Attacks with the genuine key, which somebody copied; and what nothing in a store can detect.

The latter run as well, so that nobody claims otherwise. The rule that each names is the one that
helps elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from safepoint.attacks.kit import Look, attacks, loads, resumes, runs, save_steps
from safepoint.attacks.outcome import FORTUNE, HONEST, WANTED, Miss, step
from safepoint.attacks.target import WIDER, Target

thief = attacks("Attacks with the genuine key, which somebody copied.", attacker="key")
bends = attacks(
    "Attacks on approvals with the writer's key, which somebody copied.",
    attacker="key",
    control=runs,
)
residue = attacks("Attacks that no rung detects.", residue=True)


@thief("stolen-key-rewrite", "SP15")
def stolen_key_rewrite(target: Target) -> Iterator[Look]:
    """A thief of the key writes another past, complete and correctly sealed."""
    save_steps(target, 2)
    other = target.twin(target.medium.beside())
    for state in (step(1), step(2), WANTED):
        other.save("victim", state)
    for name in other.medium.names():
        target.medium.write(name, other.medium.read(name))
    yield loads(target, WANTED)


@thief("retired-key", "SP08")
def retired_key(target: Target) -> Iterator[Look]:
    """The key was replaced after a theft, and what the thief seals with the old one counts."""
    save_steps(target, 2)
    other = target.twin(target.medium)
    target.rotate()
    other.smuggle("victim", other.encoded(WANTED))
    yield loads(target, WANTED)


@thief("thief-prunes", "SP08")
def thief_prunes(target: Target) -> Iterator[Look]:
    """The key was replaced after a theft, and the thief prunes with it what is in the way."""
    save_steps(target, 3)
    other = target.twin(target.medium.copy())
    other.prune("victim", 2)
    target.rotate()
    for name in {*target.medium.names()} - {*other.medium.names()}:
        target.medium.delete(name)
    for name in {*other.medium.names()} - {*target.medium.names()}:
        target.medium.write(name, other.medium.read(name))
    yield lambda: target.history("victim") == [step(2), step(3)]


@thief("stolen-key-undelete", "SP13")
def stolen_key_undelete(target: Target) -> Iterator[Look]:
    """A thief of the key appends a record after the tombstone, and the deleted thread continues."""
    save_steps(target, 2)
    target.delete("victim")
    target.smuggle("victim", target.encoded(WANTED))
    yield loads(target, WANTED)
    yield lambda: bool(target.history("victim")[-1] == WANTED)


@bends("thief-skips-step", "SP19")
def thief_skips_step(target: Target) -> Iterator[Look]:
    """The question is pruned, and its approval reaches another step."""
    for thread, prunes in (("victim-1", False), ("victim-2", True)):
        target.ask(thread, HONEST)
        target.misuse(thread, HONEST, target.approve(thread), skips=True, prunes=prunes)
        if not prunes:  # the thief need not: the victim does so every night
            target.prune(thread, 1)
        yield resumes(target, HONEST, thread=thread)


@bends("thief-crosses-version", "SP17")
def thief_crosses_version(target: Target) -> Iterator[Look]:
    """People approve the next version, and it starts after steps that never ran."""
    target.ask("victim", HONEST)
    target.upgrade("victim")
    target.version = "2"
    target.misuse("victim", HONEST, target.approve("victim"), skips=True)
    yield resumes(target, HONEST)


@bends("thief-adds-tools", "SP18")
def thief_adds_tools(target: Target) -> Iterator[Look]:
    """A yes to a payment is put into a record with more tools than anybody was shown."""
    target.ask("victim", HONEST)
    yes, target.tools = target.approve("victim"), WIDER
    target.misuse("victim", HONEST, yes)
    yield resumes(target, HONEST)


@bends("thief-moves-approval", "SP19")
def thief_moves_approval(target: Target) -> Iterator[Look]:
    """The yes to one customer's refund is sealed into the record of another's."""
    target.ask("victim", FORTUNE)
    target.ask("attacker", FORTUNE)
    target.misuse("attacker", FORTUNE, target.approve("victim"))
    yield resumes(target, FORTUNE, thread="attacker")


@bends("thief-invents-question", "SP19")
def thief_invents_question(target: Target) -> Iterator[Look]:
    """Dana answers a question by mail that no run has asked, and her answer is sealed in."""
    target.ask("victim", HONEST)
    target.misuse("victim", FORTUNE, target.approve("victim", shown={"arguments": FORTUNE}))
    yield resumes(target, FORTUNE)
    for part, drill in {"scope": "a drill", "details": ("Nothing is paid.",)}.items():
        thread = f"victim-{part}"
        target.ask(thread, FORTUNE)
        target.misuse(thread, FORTUNE, target.approve(thread, shown={part: drill}))
        yield resumes(target, FORTUNE, thread=thread)


@bends("thief-revives-expired", "SP19")
def thief_revives_expired(target: Target) -> Iterator[Look]:
    """An approval that expired unused is put into a record with a matching date."""
    target.ago = timedelta(days=365)
    target.ask("victim", FORTUNE)
    target.misuse("victim", FORTUNE, target.approve("victim"))
    yield resumes(target, FORTUNE)


@bends("thief-revives-denied", "SP19")
def thief_revives_denied(target: Target) -> Iterator[Look]:
    """Erin's denial ended the run. A record after it says that dana had approved."""
    target.ask("victim", FORTUNE)
    yes = target.approve("victim")
    target.deny("victim")
    target.misuse("victim", FORTUNE, yes)
    yield resumes(target, FORTUNE)


@bends("thief-spends-twice", "SP19")
def thief_spends_twice(target: Target) -> Iterator[Look]:
    """A payment is repeated: the record that used the approval is written a second time."""
    for thread, skips in (("victim-1", False), ("victim-2", True)):
        target.ask(thread, HONEST)
        yes = target.approve(thread)
        target.resume(thread, yes)
        target.misuse(thread, HONEST, yes, skips=skips)
        yield resumes(target, HONEST, thread=thread)


@bends("thief-thins-quorum", "SP19")
def thief_thins_quorum(target: Target) -> Iterator[Look]:
    """Two have to say yes. One did, and a record counts her twice, or leaves the other out."""
    target.quorum = 2
    target.ask("other", HONEST)
    erin = target.approve("other", "erin")
    if target.resume("other", target.approve("other") + erin) != HONEST:
        raise Miss
    for number in range(5):
        thread = f"victim-{number}"
        target.ask(thread, FORTUNE)
        yes, again = target.approve(thread), target.approve(thread)
        said = (yes, yes + yes, yes + again, yes + erin, erin + yes)[number]
        target.misuse(thread, FORTUNE, said)
        yield resumes(target, FORTUNE, thread=thread)


@bends("thief-writes-journal", "SP20")
def thief_writes_journal(target: Target) -> Iterator[Look]:
    """An entry is added to the journal with the writer's key: it was erin who said yes."""
    target.ask("victim", HONEST)
    target.resume("victim", target.approve("victim"))
    target.blame("victim", "erin")
    yield lambda: "erin" in " ".join(target.journalled("victim"))


@residue("cut-pending", "SP15")
def cut_pending(target: Target) -> Iterator[Look]:
    """A framework's pending write, which rides along with the next state, is cut off before it."""
    target.save("victim", step(1))
    target.pend("victim", step(2))
    target.medium.delete(target.records("victim")[-1])
    yield loads(target, step(1))


@residue("stolen-key-append", "SP08")
def stolen_key_append(target: Target) -> Iterator[Look]:
    """A thief of the key appends a new record before anybody knows of the theft."""
    target.save("victim", step(1))
    target.twin(target.medium).save("victim", WANTED)
    yield loads(target, WANTED)


@residue("compromised-worker", "SP19")
def compromised_worker(target: Target) -> Iterator[Look]:
    """The worker runs the attacker's code: it seals and anchors whatever the attacker wants."""
    target.save("victim", step(1))
    target.save("victim", WANTED)
    yield loads(target, WANTED)


@residue("unprune-thread", "SP13")
def unprune_thread(target: Target) -> Iterator[Look]:
    """Old steps that were dropped on purpose come back out of a copy, genuine as they are."""
    save_steps(target, 3)
    snapshot = target.medium.copy()
    target.prune("victim", 1)
    target.medium.restore(snapshot)
    yield lambda: bool(target.history("victim")[0] == step(1))
