"""Moving in from pickled checkpoints: looked at first, read as data, sealed once, never run."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    CheckpointError,
    Codec,
    ConfigurationError,
    Conflict,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    InvalidId,
    Keyring,
    Ledger,
    LimitExceeded,
    PickleRefused,
    SigningKey,
    StorageUnavailable,
)
from safepoint.errors import shell
from safepoint.migrate import Link, chains, migrate
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.migration import Outcome, Summary, migrate_pickles, pickled_files
from tests.unit.killed import kill_after_each_step, no_sync

KEYS = Keyring(SigningKey(bytes(range(32))))
ACTS = b"cos\nsystem\n."


class Payload:
    """Leaves a folder where a pickle of it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


class Colour(Enum):
    RED = "red"


@dataclass
class Invoice:
    number: int
    total: Decimal
    colour: Colour


INVOICE = Invoice(7, Decimal("12.50"), Colour.RED)
YOURS = (
    "If that is a dataclass, an Enum or a pydantic model of yours, pass it as a type. Anything else"
    " is not migrated: look what it does with safepoint.pickles decompile."
)
MOVE = "Nothing of it was sealed. Move it to another folder if it does not belong here."
BRANCH = (
    " Nothing of this thread was sealed. Decide which one counts, copy it with all that it follows"
    " to a folder of its own, and migrate that."
)
PAST = (
    "Nothing of this thread was sealed. Put it back; if you removed it on purpose, pass"
    " allow_missing_past=True."
)
LOOK = "Nothing of this thread was sealed. Look who wrote these files."


def new_ledger(*types: type) -> Ledger:
    return Ledger(InMemoryCheckpointStorage(), store="invoices", keys=KEYS, codec=Codec(types))


def entries(report: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report.read_text().splitlines()]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    return folder


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "moved.jsonl"


def moved(old: Path, report: Path, ledger: Ledger | None = None, **more: Any) -> Summary:
    return migrate_pickles(
        old, ledger or new_ledger(), report=report, allow_unsigned_migration=True, **more
    )


def refusal_of(old: Path, report: Path, **more: Any) -> str:
    """Return the reason for the one file that is refused."""
    (refused,) = (each for each in moved(old, report, **more).outcomes if each.reason)
    return refused.reason


# Pickles


def test_pickles_become_threads_whatever_their_names(old: Path, report: Path) -> None:
    state = {"due": datetime(2026, 1, 31, tzinfo=UTC), "total": Decimal("1.50"), "by": (1, {2})}
    for protocol, name in enumerate(("a.pkl", "b", "c.json", "d.pt", "e.tar.gz", "f.safetensors")):
        (old / name).write_bytes(pickle.dumps(state, protocol))
    ledger = new_ledger()
    summary = moved(old, report, ledger, app="old/1", thread=lambda name: name.partition(".")[0])
    assert (summary.found, summary.sealed, summary.there_already, summary.refused) == (6, 6, 0, 0)
    assert ledger.threads() == ["a", "b", "c", "d", "e", "f"]
    for thread in ledger.threads():
        assert ledger.latest(thread).state == state
        assert ledger.latest(thread).app == "old/1"


def test_the_report_names_each_file_before_and_after(old: Path, report: Path) -> None:
    data = pickle.dumps({"amount": 42})
    (old / "order-7.pkl").write_bytes(data)
    (old / "order-8.pkl").write_bytes(ACTS)
    ledger = new_ledger()
    moved(old, report, ledger)
    begun = {
        "outcome": "begun",
        "source": "order-7.pkl",
        "source_digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "store": "invoices",
        "thread": "order-7",
        "sequence": 1,
    }
    digest = ledger.latest("order-7").digest
    assert entries(report) == [
        begun,
        {**begun, "outcome": "sealed", "digest": digest},
        {
            "outcome": "refused",
            "source": "order-8.pkl",
            "source_digest": f"sha256:{hashlib.sha256(ACTS).hexdigest()}",
            "store": "invoices",
            "thread": "order-8",
            "sequence": 0,
            "reason": f"It wants os.system (byte 0), which may not be built. {YOURS}",
        },
    ]


def test_nothing_in_a_pickle_runs_and_it_does_not_stop_the_others(
    old: Path, report: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    acts = pickle.dumps(Payload(marker))
    marked = {"__pickled__": base64.b64encode(acts).decode(), "__type__": "builtins:dict"}
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    (old / "b.pkl").write_bytes(acts)
    (old / "c1.json").write_text(json.dumps(checkpoint("c1", state={"x": marked})))
    (old / "d.pkl").write_bytes(pickle.dumps(2))
    ledger = new_ledger()
    for _ in (0, 1):
        migrate_pickles(old, ledger, report=report, dry_run=True)
    summary = moved(old, report, ledger)
    assert not marker.exists()
    assert ledger.threads() == ["a", "d"]
    assert summary.refused == 2
    pickle.loads(acts)  # it would have been
    assert marker.exists()


def test_types_of_yours_are_rebuilt_by_their_constructor(old: Path, report: Path) -> None:
    (old / "order-7.pkl").write_bytes(pickle.dumps([INVOICE]))
    ledger = new_ledger(Invoice, Colour)
    assert moved(old, report, ledger, types=iter([Invoice, Colour])).sealed == 1
    assert ledger.latest("order-7").state == [INVOICE]


def test_a_type_that_was_renamed(old: Path, report: Path) -> None:
    data = pickle.dumps(Colour.RED, 2).replace(__name__.encode(), b"old.place")
    (old / "order-7.pkl").write_bytes(data)
    ledger = new_ledger(Colour)
    assert moved(old, report, ledger, types={"old.place.Colour": Colour}).sealed == 1
    assert ledger.latest("order-7").state is Colour.RED


def test_all_types_that_are_missing_are_named_with_their_place(old: Path, report: Path) -> None:
    data = pickle.dumps([INVOICE])
    (old / "order-7.pkl").write_bytes(data)
    where = [data.index(b"\x93", data.index(name)) for name in (b"Invoice", b"Colour")]
    assert refusal_of(old, report) == (
        f"It wants {__name__}.Invoice (byte {where[0]}) and {__name__}.Colour (byte {where[1]}),"
        f" which may not be built. {YOURS}"
    )


def test_a_codec_that_does_not_know_the_type_is_told_before_anything_is_sealed(
    old: Path, report: Path
) -> None:
    write(old, checkpoint("c1"), checkpoint("c2", "c1", state={"x": marked(INVOICE)}))
    ledger = new_ledger()
    summary = moved(old, report, ledger, types=[Invoice, Colour])
    assert "which this codec does not know" in summary.outcomes[1].reason
    assert summary.refused == 2
    assert ledger.threads() == []


# Dry run


def tree(path: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(each.relative_to(path)): (
            each.stat().st_mtime_ns,
            each.stat().st_mode,
            each.read_bytes() if each.is_file() else b"",
        )
        for each in [path, *path.rglob("*")]
    }


def test_a_dry_run_writes_nothing_and_says_what_would_happen(tmp_path: Path, old: Path) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    (old / "b.pkl").write_bytes(b"cos\nsystem\n.")
    (old / "c.pkl").write_bytes(pickle.dumps(3))
    ledger = Ledger(FileCheckpointStorage(tmp_path / "store"), store="invoices", keys=KEYS)
    ledger.save("c", "a run of today")
    before = tree(tmp_path)
    summary = migrate_pickles(old, ledger, report=tmp_path / "moved.jsonl", dry_run=True)
    assert tree(tmp_path) == before
    assert summary.dry_run
    assert [(each.source, each.outcome, each.sequence) for each in summary.outcomes] == [
        ("a.pkl", "sealed", 1),
        ("b.pkl", "refused", 0),
        ("c.pkl", "refused", 0),
    ]
    assert summary.outcomes[1].reason == (
        f"It wants os.system (byte 0), which may not be built. {YOURS}"
    )
    assert summary.outcomes[2].reason.startswith(
        "c exists in store invoices, and this report did not begin it."
    )


def test_a_dry_run_says_what_the_run_then_does(old: Path, report: Path) -> None:
    for number in range(5):
        (old / f"{number}.pkl").write_bytes(pickle.dumps(number))
    (old / "5.pkl").write_bytes(b"junk")
    ledger = new_ledger()
    foreseen = migrate_pickles(old, ledger, report=report, dry_run=True)
    assert moved(old, report, ledger).outcomes == foreseen.outcomes
    again = migrate_pickles(old, ledger, report=report, dry_run=True)
    assert again.there_already == 5
    assert moved(old, report, ledger).outcomes == again.outcomes


def test_without_your_word_nothing_is_sealed(old: Path, report: Path) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    ledger = new_ledger()
    for said in (False, 1, "yes", None):
        with pytest.raises(ConfigurationError) as refusal:
            migrate_pickles(old, ledger, report=report, allow_unsigned_migration=said)  # type: ignore[arg-type]
        assert str(refusal.value) == (
            "These states carry no seal, so whoever could write them decides what they say. Look at"
            " them first. If you vouch for them, pass allow_unsigned_migration=True."
        )
    with pytest.raises(ConfigurationError, match=r"given str as dry_run"):
        migrate_pickles(old, ledger, report=report, dry_run="no")  # type: ignore[arg-type]
    assert not report.exists()
    assert ledger.threads() == []


# Originals


def test_the_originals_are_read_and_nothing_else(old: Path, report: Path) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    (old / "b1.json").write_text(json.dumps(checkpoint("b1")))
    (old / "c.pkl").write_bytes(b"junk")
    for file in old.iterdir():
        file.chmod(0o400)
    old.chmod(0o500)
    before = tree(old)
    assert moved(old, report).sealed == 2
    assert tree(old) == before
    old.chmod(0o700)


def test_no_file_is_opened_for_writing(
    old: Path, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    real, flags = os.open, []

    def watched(path: Any, how: int, *rest: Any, **more: Any) -> int:
        if Path(path).parent == old:
            flags.append(how)
        return real(path, how, *rest, **more)

    monkeypatch.setattr(os, "open", watched)
    moved(old, report)
    assert flags
    assert all(how & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) == 0 for how in flags)
    assert all(how & os.O_NOFOLLOW for how in flags)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("a.pkl"), "cannot be read (Too many levels"),
        (os.mkfifo, "cannot be read (not a regular file)."),
        (lambda path: path.mkdir(), "It is a folder, and this reads the files of one folder."),
        (lambda path: path.touch(), "It is an empty file, and no pickled checkpoint. " + MOVE),
        (lambda path: path.write_text("hello"), "It is of no format that is known here, and no"),
        (lambda path: path.write_text("[1]"), "It is JSON, and no checkpoint of Agent Framework."),
        (
            lambda path: path.write_bytes(pickle.dumps(1) * 2),
            "It is several pickles, one after another, and no pickled checkpoint. " + MOVE,
        ),
        (lambda path: path.write_bytes(pickle.dumps(1) + b"x"), "The file is a pickle, and "),
        (
            lambda path: path.write_bytes(b"\x80\x04\x95" + b"\xff" * 8 + b"N."),
            "",
        ),
    ],
    ids=["link", "pipe", "folder", "empty", "text", "json", "several", "more", "frame"],
)
def test_what_is_no_checkpoint_is_refused_and_the_others_go_on(
    old: Path, report: Path, make: Callable[[Path], Any], reason: str
) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    make(old / "b.pkl")
    ledger = new_ledger()
    assert reason in refusal_of(old, report, ledger=ledger)
    assert ledger.threads() == ["a"]


def test_a_file_that_changes_meanwhile_is_refused(old: Path, report: Path) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))

    def change(done: int, _: int) -> None:
        (old / "a.pkl").write_bytes(pickle.dumps("another"))

    assert refusal_of(old, report, progress=change) == (
        "It changed while it was migrated. Stop whatever writes it, and run the migration again."
    )


def test_a_file_over_the_limit_is_refused(old: Path, report: Path) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps("x" * 1000))
    assert refusal_of(old, report, limits=PickleLimits(data_bytes=500)) == (
        "It is over the limit of 500 bytes. Look what it is before you raise"
        " PickleLimits.data_bytes."
    )


def test_a_folder_that_is_none(tmp_path: Path, report: Path) -> None:
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        moved(tmp_path / "nothing", report)
    with pytest.raises(ConfigurationError, match=r"7 is not the path of a folder"):
        moved(7, report)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="given int as thread"):
        moved(tmp_path, report, thread=7)
    with pytest.raises(ConfigurationError, match="no list of types"):
        moved(tmp_path, report, types=7)


# Names


def test_a_name_that_is_no_threads(old: Path, report: Path) -> None:
    (old / "Order 7.pkl").write_bytes(pickle.dumps(1))
    assert refusal_of(old, report) == (
        "It would become a thread, and 'Order 7' is not a thread name. Use 1 to 64 of a-z, 0-9, '-'"
        " and '_', and start with a letter or digit. Map old names to new ones: thread=function."
    )


def test_two_files_do_not_become_one_thread(old: Path, report: Path) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    (old / "a.bin").write_bytes(pickle.dumps(2))
    summary = moved(old, report)
    assert [each.reason for each in summary.outcomes] == [
        "a.bin and a.pkl would both become a. Give each its own name."
    ] * 2


# Agent Framework


def checkpoint(identity: str, previous: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "workflow_name": "invoice",
        "graph_signature_hash": "0" * 64,
        "checkpoint_id": identity,
        "previous_checkpoint_id": previous,
        "timestamp": "2026-01-31T09:30:00+00:00",
        "messages": {},
        "state": {"n": identity},
        "pending_request_info_events": {},
        "iteration_count": 0,
        "metadata": {},
        "version": "1.0",
        **more,
    }


def write(old: Path, *checkpoints: dict[str, Any]) -> None:
    for each in checkpoints:
        (old / f"{each['checkpoint_id']}.json").write_text(json.dumps(each))


async def begin(_: Any, message: str, context: Any) -> None:
    context.set_state("at", (1, datetime(2026, 1, 31, tzinfo=UTC)))
    await context.send_message(f"{message}!")


async def finish(_: Any, message: str, context: Any) -> None:
    context.set_state("paid", {"order": 7})
    await context.yield_output(message)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of two runs of a real workflow."""
    framework = pytest.importorskip("agent_framework")
    for step in (begin, finish):
        step.__annotations__["context"] = framework.WorkflowContext

    class First(framework.Executor):  # type: ignore[name-defined, misc]
        go = framework.handler(input=str, output=str)(begin)

    class Second(framework.Executor):  # type: ignore[name-defined, misc]
        go = framework.handler(input=str, workflow_output=str)(finish)

    folder = tmp_path_factory.mktemp("real")

    async def run() -> None:
        for order in ("order 7", "order 8"):
            storage = framework.FileCheckpointStorage(folder)
            first, second = First(id="first"), Second(id="second")
            builder = framework.WorkflowBuilder(
                start_executor=first, name="invoice", checkpoint_storage=storage
            )
            await builder.add_edge(first, second).build().run(order)

    asyncio.run(run())
    return folder


def test_real_runs_become_threads_in_the_order_of_their_links(real: Path, report: Path) -> None:
    ledger = new_ledger()
    before = digests(real)
    summary = moved(real, report, ledger)
    assert summary.refused == 0, summary
    assert summary.sealed == len(before) == 6
    assert digests(real) == before
    assert len(ledger.threads()) == 2
    for thread in ledger.threads():
        states = [each.state for each in ledger.history(thread)]
        assert [state["iteration_count"] for state in states] == [0, 1, 2]
        assert states[0]["checkpoint_id"] == thread
        for earlier, later in pairwise(states):
            assert later["previous_checkpoint_id"] == earlier["checkpoint_id"]
        assert states[1]["state"]["at"] == (1, datetime(2026, 1, 31, tzinfo=UTC))
        assert states[2]["state"]["paid"] == {"order": 7}


def test_what_is_sealed_is_what_the_framework_would_load(real: Path, report: Path) -> None:
    """Its own decoder is the judge: messages are what its to_dict gives, all else is equal."""
    framework = pytest.importorskip("agent_framework")
    ledger = new_ledger()
    moved(real, report, ledger)
    storage = framework.FileCheckpointStorage(real)
    messages = 0
    for thread in ledger.threads():
        for each in ledger.history(thread):
            loaded = asyncio.run(storage.load(each.state["checkpoint_id"])).to_dict()
            for source, sent in loaded["messages"].items():
                loaded["messages"][source] = [message.to_dict() for message in sent]
                messages += len(sent)
            assert each.state == loaded
    assert messages == 4


def marked(value: Any, named: str | None = None) -> dict[str, str]:
    cls = type(value)
    return {
        "__pickled__": base64.b64encode(pickle.dumps(value)).decode(),
        "__type__": named or f"{cls.__module__}:{cls.__qualname__}",
    }


def test_values_in_a_state_are_read_as_data(old: Path, report: Path) -> None:
    values = {"a": (1, 2), "b": {3}, "c": Decimal("1.5"), "d": INVOICE, "e": Path("x/y")}
    state = {key: marked(value) for key, value in values.items()}
    write(old, checkpoint("c1", state={**state, "f": [marked((1,))]}))
    ledger = new_ledger(Invoice, Colour)
    assert moved(old, report, ledger, types=[Invoice, Colour]).sealed == 1
    assert ledger.latest("c1").state["state"] == {**values, "f": [(1,)]}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"x": marked((1,), "builtins:list")}, "state.x is marked as 'builtins:list', and is a"),
        ({"x": {"__pickled__": "gAVLAS4="}}, "state.x is marked as a pickle, and is not written"),
        ({"x": {"__type__": "a:b"}}, "state.x is marked as a pickle, and is not written like one."),
        ({"x": {**marked((1,)), "y": 1}}, "state.x is marked as a pickle, and is not written like"),
        ({"x": {"__pickled__": 7, "__type__": "a:b"}}, "state.x is marked as a pickle, and is not"),
        (
            {"x": {"__pickled__": "?", "__type__": "a:b"}},
            "state.x is marked as a pickle, and is no",
        ),
        ({"x y": marked(INVOICE)}, f"state['x y'] wants {__name__}.Invoice (byte "),
        ({"x": [marked(1), {"__pickled__": "TC4=", "__type__": "a:b"}]}, "state.x[1]: The pickle"),
    ],
)
def test_a_value_that_is_not_what_it_is_marked_as_is_refused(
    old: Path, report: Path, state: dict[str, Any], reason: str
) -> None:
    write(old, checkpoint("c1", state=state))
    assert refusal_of(old, report).startswith(reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iteration_count": -1}, "It is JSON, and no checkpoint of Agent Framework."),
        ({"iteration_count": True}, "It is JSON, and no checkpoint of Agent Framework."),
        ({"previous_checkpoint_id": ""}, "It is JSON, and no checkpoint of Agent Framework."),
        ({"state": []}, "It is JSON, and no checkpoint of Agent Framework."),
        ({"version": "99.9"}, "It is a checkpoint of version '99.9', and 1.0 is known here."),
        (
            {"checkpoint_id": "c2"},
            "It says that it is the checkpoint 'c2', and its name says otherwise.",
        ),
    ],
)
def test_a_checkpoint_that_was_edited_is_refused(
    old: Path, report: Path, change: dict[str, Any], reason: str
) -> None:
    (old / "c1.json").write_text(json.dumps({**checkpoint("c1"), **change}))
    assert refusal_of(old, report).startswith(reason)


def test_a_request_that_waits_is_refused_with_a_way_out(old: Path, report: Path) -> None:
    framework = pytest.importorskip("agent_framework")
    event = framework.WorkflowEvent.request_info(
        request_id="1", source_executor_id="a", request_data="pay?", response_type=str
    )
    write(old, checkpoint("c1", pending_request_info_events={"q": marked(event)}))
    reason = refusal_of(old, report)
    assert reason.startswith(
        "pending_request_info_events.q wants agent_framework._workflows._events.WorkflowEvent"
        " (byte "
    )
    assert reason.endswith(
        "It is a request that waits for an answer, and holds classes, which are no data. Let the"
        " run finish first; then copy its last checkpoint to a folder of its own, and migrate that"
        " with allow_missing_past."
    )


# Order


def test_one_that_is_refused_keeps_its_whole_thread_out(old: Path, report: Path) -> None:
    write(
        old,
        checkpoint("c1"),
        checkpoint("c2", "c1", state={"x": marked(INVOICE)}),
        checkpoint("c3", "c2"),
        checkpoint("d1"),
    )
    ledger = new_ledger()
    summary = moved(old, report, ledger)
    assert ledger.threads() == ["d1"]
    same = (
        "It is of one thread with c2.json, which is refused. Nothing of it was sealed. Mend that"
        " one first."
    )
    assert [each.reason for each in summary.outcomes[::2]] == [same, same]
    assert summary.outcomes[1].reason.startswith(f"state.x wants {__name__}.Invoice")
    ledger = new_ledger(Invoice, Colour)
    assert moved(old, report, ledger, types=[Invoice, Colour]).sealed == 4
    assert [each.state["checkpoint_id"] for each in ledger.history("c1")] == ["c1", "c2", "c3"]


def link(name: str, previous: str | None = None, steps: int = 0, workflow: str = "w") -> Link:
    return Link(f"{name}.json", name, previous, steps, workflow)


def test_a_second_run_that_counts_from_zero_goes_on_in_the_thread() -> None:
    """As the framework does when one instance runs twice."""
    (chain,) = chains([link("c", "b", 0), link("a", None, 0), link("b", "a", 3), link("d", "c", 0)])
    assert [each.identity for each in chain.links] == ["a", "b", "c", "d"]
    assert chain.refusal is None


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (
            [link("a"), link("b", "a"), link("c", "a"), link("d", "c")],
            "b.json and c.json follow the same checkpoint, so their order cannot be told." + BRANCH,
        ),
        (
            [link("b", "a"), link("c", "b")],
            f"b.json follows 'a', which is not in the folder. {PAST}",
        ),
        ([link("a", "a")], f"a.json follows itself. {LOOK}"),
        (
            [link("a", "c"), link("b", "a"), link("c", "b"), link("d", "c")],
            f"a.json, b.json, c.json and 1 more follow one another in a circle. {LOOK}",
        ),
        (
            [link("a"), Link("copy.json", "a", None, 0, "w"), link("b", "a")],
            f"a.json and copy.json say that they are the same checkpoint. {LOOK}",
        ),
        (
            [link("a", None, 5), link("b", "a", 3)],
            f"b.json follows a.json, and counts 3 steps after 5. {LOOK}",
        ),
        (
            [link("a"), link("b", "a", 1, "another")],
            f"b.json follows a.json, which is of another workflow. {LOOK}",
        ),
    ],
    ids=["branch", "past", "itself", "circle", "twice", "backwards", "workflow"],
)
def test_files_that_do_not_agree_on_an_order_are_refused(links: list[Link], message: str) -> None:
    for given in (links, links[::-1]):
        (chain,) = chains(given)
        assert str(chain.refusal) == message
        assert set(chain.links) == set(links)


def test_a_past_that_is_gone_is_allowed_by_name() -> None:
    (chain,) = chains([link("b", "a"), link("c", "b")], allow_missing_past=True)
    assert chain.refusal is None
    (chain,) = chains([link("b", "a"), link("c", "a")], allow_missing_past=True)
    assert str(chain.refusal).startswith("b.json and c.json follow the same checkpoint")


def test_files_without_an_order_are_refused_and_the_other_threads_go_on(
    old: Path, report: Path
) -> None:
    write(old, checkpoint("a1"), checkpoint("a2", "a1"), checkpoint("a3", "a1"), checkpoint("b1"))
    write(old, checkpoint("c2", "c1"))
    ledger = new_ledger()
    assert moved(old, report, ledger).refused == 4
    assert ledger.threads() == ["b1"]
    assert moved(old, report, ledger, allow_missing_past=True).refused == 3
    assert ledger.threads() == ["b1", "c2"]


def test_many_files_that_name_one_another_take_no_time() -> None:
    """Thirty thousand with one name, one past, or one long chain: none is looked up twice."""
    count = 30_000
    same = [Link(f"{number}", "a", "gone", 0, "w") for number in range(count)]
    long = [link(str(number), str(number - 1) if number else None) for number in range(count)]
    assert len(chains(same)) == 1
    assert len(chains(long)) == 1


# Run again


def test_run_again_it_changes_nothing(old: Path, report: Path) -> None:
    write(old, checkpoint("a1"), checkpoint("a2", "a1"))
    (old / "b.pkl").write_bytes(pickle.dumps(1))
    ledger = new_ledger()
    assert moved(old, report, ledger).sealed == 3
    for _ in (0, 1):
        assert (moved(old, report, ledger).sealed, ledger.verify("a1")) == (0, 2)
    write(old, checkpoint("a3", "a2"))
    assert moved(old, report, ledger).sealed == 1


def test_another_report_does_not_reach_into_the_thread(old: Path, tmp_path: Path) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    ledger = new_ledger()
    moved(old, tmp_path / "one.jsonl", ledger)
    (refused,) = moved(old, tmp_path / "two.jsonl", ledger).outcomes
    assert refused.reason.startswith("a exists in store invoices, and this report did not begin")


class Interrupted(BaseException):
    """As Ctrl-C."""


@pytest.mark.parametrize("after", range(1, 13))
def test_an_interrupted_migration_goes_on_where_it_was(old: Path, report: Path, after: int) -> None:
    write(old, checkpoint("a1"), checkpoint("a2", "a1"), checkpoint("a3", "a2"))
    for name in ("b", "c", "d"):
        (old / f"{name}.pkl").write_bytes(pickle.dumps(name))

    def interrupt(done: int, total: int) -> None:
        assert total == 12
        if done == after:
            raise Interrupted

    ledger = new_ledger()
    with pytest.raises(Interrupted):
        moved(old, report, ledger, progress=interrupt)
    done = sum(ledger.verify(thread) for thread in ledger.threads())
    summary = moved(old, report, ledger)
    assert (summary.sealed, summary.there_already) == (6 - done, done)
    assert done == max(after - 6, 0)
    assert [each.state["checkpoint_id"] for each in ledger.history("a1")] == ["a1", "a2", "a3"]


def opened(path: Path) -> Ledger:
    return Ledger(FileCheckpointStorage(path / "store"), store="invoices", keys=KEYS)


def migrate_in(path: Path) -> None:
    """What is killed: `killed` imports this by its name."""
    moved(path / "old", path / "moved.jsonl", opened(path))


def test_sigkill_after_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the instant: run again, each state is there once, and no original has changed."""
    prepared, ground = tmp_path / "prepared", tmp_path / "ground"
    (prepared / "old").mkdir(parents=True, mode=0o700)
    prepared.chmod(0o700)
    ground.mkdir(mode=0o700)
    write(prepared / "old", checkpoint("a1"), checkpoint("a2", "a1"))
    (prepared / "old" / "b.pkl").write_bytes(pickle.dumps("b"))
    (prepared / "old" / "c.pkl").write_bytes(b"cos\nsystem\n.")
    originals = digests(prepared / "old")
    steps, paths = kill_after_each_step(migrate_in, prepared, ground)
    assert len(steps) > 10
    monkeypatch.setattr(os, "fsync", no_sync)
    found = set()
    for path in paths:
        ledger = opened(path)
        there = sum(ledger.verify(thread) for thread in ledger.threads())
        summary = moved(path / "old", path / "moved.jsonl", ledger)
        assert (summary.sealed, summary.there_already, summary.refused) == (3 - there, there, 1)
        assert ledger.threads() == ["a1", "b"]
        assert [each.state["checkpoint_id"] for each in ledger.history("a1")] == ["a1", "a2"]
        assert ledger.verify("b") == 1
        assert digests(path / "old") == originals
        ended = {each["source"] for each in whole(path / "moved.jsonl") if "digest" in each}
        assert ended == {"a1.json", "a2.json", "b.pkl"}
        found.add(there)
        shutil.rmtree(path)
    assert found == {0, 1, 2, 3}, "no kill fell between two of them, so this proves nothing"


def whole(report: Path) -> list[dict[str, Any]]:
    """Return the lines that a kill did not cut short."""
    lines = []
    for line in report.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


# As a source of its own


def test_files_as_a_source_for_migrate(old: Path, report: Path) -> None:
    write(old, checkpoint("a1"), checkpoint("a2", "a1"))
    (old / "b.pkl").write_bytes(pickle.dumps("b"))
    ledger = new_ledger()
    states = pickled_files(old, app="old/1")
    assert migrate(states, ledger, report=report, allow_unsigned_migration=True) == 3
    assert ledger.latest("a1").state["checkpoint_id"] == "a2"
    assert ledger.latest("b").state == "b"


@pytest.mark.parametrize(
    ("name", "data", "error", "what"),
    [
        ("b.pkl", b"cos\nsystem\n.", PickleRefused, "It wants os.system (byte 0), which may not"),
        ("B.pkl", pickle.dumps(1), InvalidId, "It would become a thread, and 'B' is not a thread"),
        ("a.bin", pickle.dumps(1), Conflict, "a.bin and a.pkl would both become a."),
        ("b.pkl", b"[" * 10_000, CheckpointError, ""),
        ("b.pkl", pickle.dumps("x" * 5000), LimitExceeded, "It is over the limit of 1000 bytes."),
    ],
)
def test_the_source_stops_at_the_first_file_that_is_refused(
    old: Path, name: str, data: bytes, error: type[CheckpointError], what: str
) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    (old / name).write_bytes(data)
    with pytest.raises(error) as refusal:
        list(pickled_files(old, limits=PickleLimits(data_bytes=1000)))
    assert str(refusal.value).startswith(f"{old / name}: {what}")


def test_a_refusal_carries_nothing_of_the_file(old: Path, report: Path) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(["canary-4711", INVOICE]))
    write(
        old, checkpoint("c1", state={"token": "canary-4711", "x": marked(("canary-4711", INVOICE))})
    )
    summary = moved(old, report)
    assert summary.refused == 2
    assert "canary" not in f"{summary} {report.read_text()}"


def test_an_outcome_is_plain(old: Path, report: Path) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    digest = hashlib.sha256(pickle.dumps(1)).hexdigest()
    assert moved(old, report) == Summary(
        (Outcome("a.pkl", "sealed", "a", 1, "", f"sha256:{digest}"),)
    )


# The report is none of the originals


@pytest.mark.parametrize("name", ["a.pkl", "report.jsonl", "deeper/report.jsonl", "../link/r"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_report_in_the_folder_is_refused(
    old: Path, tmp_path: Path, name: str, dry_run: bool
) -> None:
    (old / "a.pkl").write_bytes(pickle.dumps(1))
    (tmp_path / "link").symlink_to(old)
    ledger, path = new_ledger(), old / name
    with pytest.raises(ConfigurationError) as refusal:
        migrate_pickles(old, ledger, report=path, dry_run=dry_run, allow_unsigned_migration=True)
    assert str(refusal.value) == (
        f"The report {shell(str(path))} would be in the folder that is migrated. Nothing was"
        " sealed. Name a file elsewhere: the originals stay as they are."
    )
    assert [each.name for each in old.iterdir()] == ["a.pkl"]
    assert (old / "a.pkl").read_bytes() == pickle.dumps(1)
    assert ledger.threads() == []


def test_a_report_that_is_an_original_under_another_name_is_refused(
    old: Path, report: Path
) -> None:
    original = old / "a.pkl"
    original.write_bytes(pickle.dumps(1))
    report.hardlink_to(original)
    with pytest.raises(ConfigurationError) as refusal:
        moved(old, report)
    assert str(refusal.value) == (
        f"{shell(str(report))} exists, and is no report of a migration. Nothing was written to it."
        " Name a new file as the report, or that of an earlier run."
    )
    assert original.read_bytes() == pickle.dumps(1)
