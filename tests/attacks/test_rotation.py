"""SP08: a key that was replaced or stolen stops counting, and what you can vouch for is kept."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from safepoint import Keyring, Ledger, RolledBack, SigningKey, SQLiteAnchor
from safepoint.core.errors import SealBroken, Unavailable, Unsafe
from safepoint.core.record import Place, seal
from tests.attacks.helpers import THREAD, Shop
from tests.harness.blocks import ROOT
from tests.harness.optional import need
from tests.house import refused

OLD = SigningKey.generate()
NEW = SigningKey.generate()
ROTATED = Keyring(NEW, verify=[OLD])


class Night(Shop):
    """A store whose workers have the old key, and a thief who copied it."""

    def copy(self) -> Ledger:
        """A new folder, under the new key."""
        return Shop(self.path / "copy", NEW).ledger()

    def steal(self, state: object, thread: str = THREAD) -> None:
        """Whoever copied the old key can write the storage, and not the anchor."""
        self.ledger(anchor=None).save(thread, state)

    def freeze(self) -> SQLiteAnchor:
        """Copy the anchor's folder as it stands."""
        shutil.copytree(self.path / "anchor", self.path / "frozen")
        return SQLiteAnchor(self.path / "frozen/heads.db", read_only=True)

    def forge(self, sequence: int, previous: str) -> None:
        """Write a record that says it was sealed long ago."""
        place, then = Place("invoices", "", THREAD, sequence), datetime(1999, 12, 31, tzinfo=UTC)
        record, _ = seal(b"\x81\xa5payee\xa5mally", place, OLD, created=then, previous=previous)
        self.file(sequence).touch(mode=0o600)
        self.file(sequence).write_bytes(record)


@pytest.fixture
def night(tmp_path: Path) -> Night:
    """Three checkpoints."""
    night = Night(tmp_path, OLD)
    night.fill({"n": number, "payee": "alice"} for number in (1, 2, 3))
    return night


USES: list[Callable[[Ledger], object]] = [
    lambda ledger: ledger.latest(THREAD),
    lambda ledger: ledger.load(THREAD, 4),
    lambda ledger: list(ledger.history(THREAD)),
    lambda ledger: ledger.verify(THREAD),
    lambda ledger: ledger.save(THREAD, {}),
    lambda ledger: ledger.prune(THREAD, keep=1),
    lambda ledger: ledger.delete(THREAD),
]


def test_retired_key_of_a_thief_is_refused_after_the_point(night: Night) -> None:
    """Off the ring, nothing that it sealed counts; a copy keeps what was there before the point."""
    before, copy = night.freeze(), night.copy()
    night.steal({"payee": "mally"})
    night.steal({"payee": "mally"}, "order-8")
    for use in (*USES, lambda ledger: ledger.copy_to(copy, up_to=before)):
        said = refused(SealBroken, use, night.ledger(keys=Keyring(NEW)))
        assert "which is not on this keyring. If it is yours and was never stolen" in said
    assert copy.threads() == []
    assert night.ledger(keys=ROTATED).copy_to(copy, up_to=before) == 3
    assert [each.state["n"] for each in copy.history(THREAD)] == [1, 2, 3]
    assert copy.threads() == [THREAD]


def test_record_of_a_thief_below_a_later_one_is_found(night: Night) -> None:
    """A worker went on from it, with the new key and the anchor, before anybody knew.

    Then somebody without a key writes the new key's id over the old one's.
    """
    before, copy = night.freeze(), night.copy()
    night.steal({"payee": "mally"})
    night.ledger(keys=ROTATED).note(THREAD, {"payee": "mally", "paid": True})
    assert night.ledger(keys=ROTATED).copy_to(copy, up_to=before) == 3
    uses = [*USES[:4], lambda ledger: [link.state for link in ledger.back(THREAD)]]
    for line in (b"", f"safepoint/1 {NEW.id} {'A' * 86}==\n".encode()):
        for number in range(1, 5) if line else ():
            record = night.file(number).read_bytes()
            night.file(number).write_bytes(line + record.partition(b"\n")[2])
        for use in uses:
            said = refused(SealBroken, use, night.ledger(keys=Keyring(NEW)))
            assert said.startswith("order-7 #4 ")


def test_backdated_record_of_a_stolen_key_is_refused(night: Night) -> None:
    """A date is what the thief writes, so it decides nothing. Nor does the place of the last."""
    before, copy, thief = night.freeze(), night.copy(), night.ledger(anchor=None)
    night.forge(4, thief.latest(THREAD).digest)
    assert thief.latest(THREAD).created.year == 1999
    refused(SealBroken, lambda: night.ledger(keys=Keyring(NEW)).latest(THREAD))
    night.file(4).unlink()
    night.forge(3, night.ledger(anchor=None).load(THREAD, 2).digest)
    said = refused(RolledBack, lambda: thief.copy_to(copy, up_to=before))
    assert said.startswith("order-7 #3 is not the record that the anchor has seen there.")
    assert copy.threads() == []


def test_rewritten_past_of_a_stolen_key_is_refused(night: Night) -> None:
    """Below the point a seal alone proves nothing any more; the links do."""
    before, copy = night.freeze(), night.copy()
    night.forge(2, night.ledger().load(THREAD, 1).digest)
    load = lambda ledger: ledger.load(THREAD, 2)  # noqa: E731
    for use in (load, USES[2], USES[3], lambda ledger: ledger.copy_to(copy, up_to=before)):
        said = refused(SealBroken, use, night.ledger(keys=ROTATED))
        assert "#3 does not follow the #2 that is stored" in said
    assert copy.threads() == []


def test_workers_rotate_one_after_another_without_a_refusal(tmp_path: Path) -> None:
    """Each worker learns the new key before any worker signs with it, or refuses it."""
    night = Night(tmp_path, OLD)
    rings = [Keyring(OLD), Keyring(OLD, verify=[NEW]), ROTATED]
    at = {"a": 0, "b": 0, "c": 0}
    for step in (0, 1, 2):
        for name in at:
            at[name] = step
            for worker, ring in at.items():
                saved = night.ledger(keys=rings[ring]).save(THREAD, {"by": worker})
                read = [night.ledger(keys=rings[each]).latest(THREAD) for each in at.values()]
                assert read == [saved] * 3
    assert night.ledger(keys=ROTATED).verify(THREAD) == 27
    said = refused(SealBroken, USES[0], night.ledger())
    assert "If it is yours and was never stolen" in said


def test_worker_that_was_forgotten_is_stopped_by_a_file_in_place_of_the_folder(
    night: Night,
) -> None:
    """Without the file it makes an empty folder: old threads are refused, and new ones begin."""
    forgotten, state = night.ledger(), night.path / "state"
    state.rename(night.path / "evidence")
    for use in (USES[0], USES[4]):
        refused(Unavailable, use, forgotten)
    refused(RolledBack, USES[4], night.ledger())
    assert night.ledger().save("order-9", {"n": 1}).sequence == 1  # why the page leaves a file
    shutil.rmtree(state)
    state.write_text("Stopped on purpose.")
    refused(Unsafe, USES[0], forgotten)
    assert "state is not a folder" in refused(Unsafe, night.ledger)


def ran(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run what the page shows."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("way", "kept"), {"copied": 2, "backup": 2, "neither": 1}.items())
def test_each_way_to_say_how_far_a_stolen_key_counts_runs_to_its_end(
    way: str, kept: int, tmp_path: Path
) -> None:
    """With neither copy nor backup, what you vouch for is all that is left."""
    code = (ROOT / "snippets/revoke_key.py").read_text()
    section = re.compile(r"# --8<-- \[start:(copied|backup)\]\n(.*?)# --8<-- \[end:\1\]\n", re.S)
    page = (ROOT / "docs/security/rotation.md").read_text()
    neither = page.partition("that has seen nothing: `")[2].partition("`")[0]
    ways = dict(section.findall(code)) | {"neither": f"before = {neither}"}
    code = section.sub("", code).replace("def after(", f"{ways[way]}\n\n\ndef after(", 1)
    done = ran(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    *_, seven, eight, nine, latest = done.stdout.splitlines()
    assert [seven, eight] == [f"order-{n} verifies: {kept}" for n in (7, 8)]
    assert nine == "order-9 verifies: 1"
    assert latest == "{'payee': 'alice', 'amount': 42}"


def test_the_steps_keep_the_runs_of_a_graph_opened_through_its_saver(tmp_path: Path) -> None:
    """A plain ledger cannot decode a graph's states, and without labels a saver finds none."""
    need("langgraph", "needs safepoint[langgraph]")
    code = (ROOT / "snippets/revoke_key.py").read_text()
    begin, opens, _ = re.split(r"(?<=\n)(?=def opened|SQLiteAnchor)", code, maxsplit=2)
    opens = opens.replace("return Ledger(", "return through(")
    steps = re.findall(r"start:(stop|copied|list|keep|save)\]\n(.*?)# --8<-- \[end:\1", code, re.S)
    parts = [part + (VOUCH if name == "list" else "") for name, part in steps]
    done = ran("".join([begin, GRAPH, opens, DAY, *parts, NEXT]), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "True [1, 2, 3]"


GRAPH = """
import operator
from typing import Annotated, TypedDict
from langchain_core.messages import HumanMessage
from langgraph.graph import START, StateGraph
from safepoint.langgraph import SealedSaver
class Log(TypedDict):
    lines: Annotated[list, operator.add]
def built(ledger):
    builder = StateGraph(Log).add_node("n", lambda _: {}).add_edge(START, "n")
    return builder.compile(SealedSaver(ledger))
def through(*given, **named):
    return SealedSaver(Ledger(*given, **named)).ledger
def say(ledger, number):
    said = built(ledger).invoke({"lines": [HumanMessage(str(number))]}, RUN)["lines"]
    return [int(each.content) for each in said]
RUN = {"configurable": {"thread_id": "order-7"}}
"""
DAY = """
SQLiteAnchor("anchor/heads.db", create=True)
old = SigningKey.from_file("keys/2026.key", create=True)
say(opened(Keyring(old)), 1)
shutil.copytree("anchor", "night/anchor")
say(opened(Keyring(old)), 2)
day = [each.values for each in built(opened(Keyring(old))).get_state_history(RUN)]
"""
VOUCH = """
left_out, decision = [], {}
vouched = {name: [each.sequence for each in late[name]] for name in late}
"""
NEXT = """
after = opened(Keyring(new), "state-2027")
kept = [each.values for each in built(after).get_state_history(RUN)]
print(kept == day, say(after, 3))
"""
