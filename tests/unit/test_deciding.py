"""People at a terminal: they sign what they were shown, all of it, and nothing else."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from safepoint import (
    Approver,
    Approvers,
    Ask,
    FileCheckpointStorage,
    Gate,
    InMemoryJournal,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    Workflow,
    open_ledger,
)
from safepoint.core.errors import ApprovalNeeded, ApprovalRefused, NotOwner, Unavailable
from safepoint.core.journal import Journal
from safepoint.core.names import thread_name
from safepoint.core.record import Place, seal
from safepoint.places import Store, open_answers
from safepoint.resume.answers import Answers
from safepoint.resume.workflow import Call, Run
from safepoint.shared.desk import Desk
from safepoint.stores.sqlite import SQLiteJournal
from tests.unit.commands import said, settled
from tests.unit.terminal import LAST, MORE, talk

PEOPLE = ("dana", "erin", "opal", "mally")
OPEN = "The key dana.key has no passphrase. Give it one: ssh-keygen -p -a 64 -f dana.key\n"
State = dict[str, Any]


def listed(key: SigningKey, file: Path) -> None:
    """Put the public half of a key where it counts, or counts no more."""
    file.parent.mkdir(parents=True, exist_ok=True)
    key.public.to_file(file)


class Office:
    """A store in a folder, its settings, its people, and a worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = {
            name: SigningKey.from_file(folder / f"{name}.key", create=True) for name in PEOPLE
        }
        for name, key in self.keys.items():
            key.public.to_file(folder / f"{name}.pub")
        for file in ("approvers/dana", "approvers/erin", "operators/opal"):
            listed(self.keys[file[10:]], folder / f"{file}.pub")
        listed(self.keys["mally"], folder / "approvers/revoked/erin.pub")
        self.writer = SigningKey.generate()
        self.writer.public.to_file(folder / "writer.pub")
        self.journal: Journal = InMemoryJournal()
        for name in ("anchor", "answers-anchor"):
            SQLiteAnchor(folder / name / "heads.db", create=True)
        for name in ("state", "answers"):
            FileCheckpointStorage(folder / name)
        self.settle(
            'key = ["writer.pub"]',
            'answers = "answers"\nanswers-anchor = "answers-anchor/heads.db"',
        )

    def settle(self, *lines: str) -> None:
        given = [
            *("[stores.invoices]", 'storage = "state"', 'anchor = "anchor/heads.db"', *lines),
            *('approvers = "approvers"', 'operators = "operators"'),
        ]
        (self.folder / "safepoint.toml").write_text("\n".join(given))

    def keep_journal(self) -> None:
        """Keep it in a folder, as the settings say then."""
        key = SigningKey.generate()
        key.public.to_file(self.folder / "journal.pub")
        self.journal = SQLiteJournal(
            self.folder / "journal/journal.db", keys=Keyring(key), create=True
        )
        with (self.folder / "safepoint.toml").open("a") as file:
            file.write('\njournal = "journal/journal.db"\njournal-key = ["journal.pub"]\n')

    def ledger(self, key: Any = None, **options: Any) -> Ledger:
        """Open it as a worker does; or, with a public key, as an approver does."""
        keys = Keyring(self.writer) if key is None else Keyring(verify=key)
        given = {"anchor": SQLiteAnchor(self.folder / "anchor/heads.db"), "journal": self.journal}
        storage = FileCheckpointStorage(self.folder / "state")
        return Ledger(storage, store="invoices", keys=keys, **{**given, **options})

    def flow(self, asked: Ask | None = None, **options: Any) -> Workflow:
        def ask(state: State) -> Ask:
            return asked or Ask("pay", {"amount": 42, "payee": "alice"})

        def pay(state: State, call: Call) -> State:
            return {"paid": call.approved.arguments["amount"], "by": list(call.approved.by)}

        public = {name: self.keys[name].public for name in PEOPLE}
        answers = Answers(
            FileCheckpointStorage(self.folder / "answers"),
            SQLiteAnchor(self.folder / "answers-anchor/heads.db"),
        )
        gate = Gate(
            approvers=Approvers({name: public[name] for name in ("dana", "erin")}),
            answers=answers,
            operators=Approvers({"opal": public["opal"]}),
        )
        return Workflow("invoice", [ask, pay], gate=gate, **options)

    def start(self, thread: str = "order-7", asked: Ask | None = None) -> Run:
        return self.flow(asked).start(self.ledger(), thread=thread)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with patch.dict(os.environ, settled(self.folder)):
            return said(*arguments, folder=self.folder)

    def say(
        self, verb: str, thread: str, digest: str | None = None, *more: str, name: str = "dana"
    ) -> tuple[int, str, str]:
        """Answer without a terminal, by the digest of what was shown."""
        if digest is None:
            digest = self.digests()[thread]
        key = ("--key", f"{name}.key", "--digest", digest)
        return self.run(verb, "invoices", thread, *key, *more)

    def digests(self) -> dict[str, str]:
        """Read what is asked, as a person reads it."""
        return {each["thread"]: each["digest"] for each in self.waiting()}

    def waiting(self) -> list[dict[str, Any]]:
        """Read the list as a program reads it."""
        told: dict[str, Any] = json.loads(self.run("waiting", "invoices", "--format", "json")[1])
        return list(told["waiting"])


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


# --- the question, without the worker's code ----------------------------------------------------


# --- without a terminal -------------------------------------------------------------------------


def test_a_yes_by_the_command_lets_the_worker_go_on(office: Office) -> None:
    none = "No run was found in invoices. Check the names, and on PostgreSQL the login's tenant.\n"
    assert office.run("waiting", "invoices") == (0, none, "")
    run = office.start(asked=Ask("pay", {"amount": 42}, timedelta(hours=4)))
    office.start("order-8", Ask("pay", {}, timedelta(hours=1)))
    office.start("order-9")
    status, out, _ = office.run("waiting", "invoices")
    assert status == 0
    head, *rows = [re.split("  +", line) for line in out.splitlines()]
    assert head == ["run", "asks", "approved", "until", "since", "asked by"]
    assert [row[:3] for row in rows] == [
        ["order-8", "pay", "0 of 1"],
        ["order-7", "pay: amount 42", "0 of 1"],
        ["order-9", "pay: amount 42, payee alice", "0 of 1"],
    ]
    assert "sha256" not in out  # nobody signs what they were not shown
    assert run.question is not None
    full = office.run("waiting", "invoices", "order-7")[1]
    assert all(f"    {line}\n" in full for line in run.question.described)

    status, out, err = office.say("approve", "order-7")
    assert (status, err) == (0, OPEN)
    assert "dana approved 'pay' in order-7.\nThe question was sha256:" in out
    assert "1 of 1 approved: dana" in office.run("waiting", "invoices", "order-7")[1]
    assert office.flow().resume(office.ledger(), "order-7").state["paid"] == 42

    assert office.say("deny", "order-9", None, "--reason", "not\u202e him")[0] == 0
    assert "  denied dana  " in office.run("waiting", "invoices")[1]
    assert "denied by dana: 'not\\u202e him'" in office.run("waiting", "invoices", "order-9")[1]
    assert office.flow().resume(office.ledger(), "order-9").denied
    assert list(office.digests()) == ["order-8"]


def test_a_row_quotes_what_could_mislead(office: Office) -> None:
    asked = {"amount": Decimal("39.00"), "fee": "lO.OO", "note": "a, b  7", "odd": "\u0430nn"}
    office.start(thread_name("Order #7"), Ask("pay", {**asked, "on": True, "to": "39.00"}))
    row = office.run("waiting", "invoices")[1].splitlines()[1]
    assert row.startswith(
        "'Order #7'  pay: amount 39.00, fee 'lO.OO', note 'a, b\\x20\\x207', odd '\\u0430nn',"
        " on True, to '39.00'  0 of 1  "
    )
    assert "calls this thread 'Order #7'\n" in office.run("waiting", "invoices", "Order #7")[1]
    office.ledger().save(thread_name("Order #8"), {})
    denied = office.run("deny", "invoices", "Order #8", "--key", "dana.key")
    assert denied == (1, "", "'Order #8' waits for nobody. Nothing was signed.\n")
    for look in ("history", "journal", "verify"):
        said = [
            office.run(look, "invoices", each)[:2] for each in ("Order #7", "t--_4frder_20_237")
        ]
        assert said[0] == said[1] != (0, ""), look


def test_a_tenants_run_is_listed_and_answered_for_that_tenant_alone(office: Office) -> None:
    for tenant in ("acme", "globex"):
        office.flow().start(office.ledger().tenant(tenant), thread="order-7")
    digests = [each["digest"] for each in office.waiting()]
    assert "\n@acme/order-7    pay: amount 42" in office.run("waiting", "invoices")[1]
    assert "globex" not in office.run("waiting", "invoices", "@acme")[1]
    named = ("order-7", "@globex/order-7", "@acme/order-7")  # the first is nobody's
    assert [office.say("approve", each, digests[0])[0] for each in named] == [2, 1, 0]
    flow, opal = office.flow(), ("invoices", "@acme/order-7", "--key", "opal.key")
    assert office.run("hold", *opal, "--reason", "?")[0] == 0
    with pytest.raises(NotOwner, match="has held"):
        flow.resume(office.ledger().tenant("acme"), "order-7")
    assert office.run("release", *opal)[0] == 0
    assert flow.resume(office.ledger().tenant("acme"), "order-7").state["paid"] == 42
    with pytest.raises(ApprovalNeeded):
        flow.resume(office.ledger().tenant("globex"), "order-7")


def test_a_run_is_named_by_how_only_it_begins(office: Office) -> None:
    """Never by less than tells it from others, and a whole name is that run and no other."""
    office.start("order-7")
    assert office.say("deny", "", office.digests()["order-7"])[0] == 2
    for thread in ("order-71", "refund-8"):
        office.start(thread)
    digests = office.digests()
    for begin, thread, status in (
        ("order", "order-7", 2),
        ("ref", "order-7", 1),
        ("order-7", "order-7", 0),
        ("ref", "refund-8", 0),
    ):
        assert office.say("deny", begin, digests[thread])[0] == status, begin


def test_a_row_is_the_one_that_this_terminal_printed(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the one that stands there by now, nor one of another list, terminal or store."""
    runtime = office.folder / "runtime"
    runtime.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))

    def denied(row: str, store: str = "invoices", *steps: Any, **named: Any) -> str:
        said = talk(office.folder, ("deny", store, row, *DANA), *steps, **named)
        return re.sub(r"\s+", " ", "".join(said[1:]))

    no_row = "The list that this terminal printed last has no row {} of {}. Print it: safepoint"
    office.start()
    office.start("1")  # as a client wants to be called
    assert no_row.format(1, "invoices") in denied("1")
    screen = talk(office.folder, ("waiting", "invoices"), shown=True, columns=200)[1]
    rows = [line.split()[:2] for line in screen.splitlines()]
    assert rows == [["#", "run"], ["1", "order-7"], ["2", "'1'"]]
    office.start("order-6", Ask("pay", {}, timedelta(hours=1)))  # which is the first by now
    assert "dana denied 'pay' in order-7." in denied("1", "invoices", (LAST, "order-7\n"))
    for row, store in (("3", "invoices"), ("2", "refunds")):
        assert no_row.format(row, store) in denied(row, store)
    assert no_row.format(1, "invoices") in denied("1", session=True)
    (file,) = (runtime / "safepoint").iterdir()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (file, file.parent)] == [0o600, 0o700]
    file.write_text(file.read_text().replace(office.digests()["1"], f"sha256:{'0' * 64}"))
    assert "'1' asks something else than" in denied("2")
    file.parent.chmod(0o777)
    assert no_row.format(2, "invoices") in denied("2")
    assert office.say("deny", "1")[0] == 0  # with its digest it is a name


def test_a_hold_is_released_by_itself(office: Office) -> None:
    office.start()
    order = ("invoices", "order-7", "--key", "opal.key")
    holds = [office.run("hold", *order, "--reason", why)[1] for why in ("one", "two")]
    digests = [re.findall(r"sha256:\w+", each)[0] for each in holds]
    status, _, err = office.run("release", *order)
    assert (status, err.count("\n"), "has 2 such holds" in err) == (1, 1, True)
    assert office.run("release", *order, "--digest", digests[0])[0] == 0
    assert "  held opal  " in office.run("waiting", "invoices")[1]
    assert "held by opal: 'two'" in office.run("waiting", "invoices", "order-7")[1]
    assert office.run("release", *order)[0] == 0
    assert office.run("release", *order)[0] == 1
    assert "held" not in office.run("waiting", "invoices")[1]


def test_without_an_anchor_a_no_is_signed_and_a_yes_is_not(office: Office) -> None:
    """An older copy of the records may ask what nobody asks any more. A no does no harm."""
    office.start()
    digest = office.digests()["order-7"]
    settings = office.folder / "safepoint.toml"
    settings.write_text(settings.read_text().replace('\nanchor = "anchor/heads.db"', ""))
    before = tree(office.folder)
    status, out, err = office.say("approve", "order-7", digest)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("invoices has no anchor, so nobody could tell an old question from today")
    assert tree(office.folder) == before
    status, out, err = office.say("deny", "order-7", digest)
    assert (status, "dana denied 'pay'" in out) == (0, True)
    assert err.startswith("No anchor: ")


DANA = ("--key", "dana.key")
REFUSED: dict[str, tuple[int, str]] = {
    "approve invoices order-7 --key dana.key": (2, "The question has to be shown"),
    "approve invoices order-1 --key dana.key": (2, "There is no thread 'order-1'"),
    "approve invoices order-7 --key mally.key --digest {}": (1, "Key "),
    "approve invoices order-7 --key opal.key --digest {}": (1, "Key "),
    "approve invoices order-7 --key nowhere --digest {}": (2, "The key file nowhere"),
    "approve invoices order-7 --key dana.key --digest x": (1, "order-7 asks something"),
    "approve invoices @acme --key dana.key": (2, "There is no thread '@acme/'"),
    "approve invoices done --key dana.key": (1, "done waits for nobody."),
    "approve invoices late --key dana.key": (1, "The wait of late ended at"),
    "approve nowhere order-7 --key dana.key": (2, "/"),  # the settings name others
    "hold invoices order-7 --key dana.key --reason x": (1, "Key "),
    "hold invoices order-7 --key opal.key --reason {long}": (2, "The reason has 1001"),
    "release invoices order-7 --key opal.key": (1, "order-7 has 0 such holds: none."),
    "people invoices --add dan dana.pub": (2, "Key "),
}


def test_refusals(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, the right status, and nothing is put."""
    monkeypatch.setenv("HOME", str(office.folder))
    office.start()
    office.start("late", Ask("pay", {}, timedelta(seconds=1)))
    run = office.start("done")
    assert run.question is not None
    answer = Approver("dana", office.keys["dana"]).deny(run.question)
    office.flow().resume(office.ledger(), "done", approvals=[answer])
    digest = office.digests()["order-7"]
    time.sleep(1.1)
    before = tree(office.folder)
    for line, (status, begins) in REFUSED.items():
        given = [each.format(digest, long="x" * 1001) for each in line.split()]
        found, out, err = office.run(*given)
        assert (found, out, err.count("\n")) == (status, "", 1), line
        assert err.startswith(begins), (line, err)
    assert tree(office.folder) == before
    assert "  expired  " in office.run("waiting", "invoices")[1]
    assert ", which is over" in office.run("waiting", "invoices", "late")[1]
    listed(office.writer, office.folder / "approvers/wanda.pub")
    status, out, err = office.run("waiting", "invoices")
    assert (status, out, "is on the keyring of the ledger" in err) == (2, "", True)


def tree(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


# --- what a thief does --------------------------------------------------------------------------


def edited_before(office: Office) -> None:
    file = office.folder / "state" / "order-7" / "0000000001.checkpoint"
    file.write_bytes(file.read_bytes().replace(b"done\x90", b"done\x80"))


def planted(office: Office) -> None:
    """A question of the thief's own, sealed with the thief's own key."""
    genuine = office.ledger().storage.read("order-7", 2)
    payload = genuine.split(b"\n", 2)[2].rstrip(b"\n").replace(b"alice", b"mally")
    place = Place("invoices", "", "order-7", 3)
    previous = office.ledger().load("order-7", 2).digest
    record, _ = seal(
        payload, place, office.keys["mally"], created=datetime.now(UTC), previous=previous
    )
    office.ledger().storage.append("order-7", 3, record)


@pytest.mark.parametrize("attack", [edited_before, planted])
def test_what_does_not_verify_is_an_alarm_and_no_question(
    office: Office, attack: Callable[[Office], None]
) -> None:
    office.start()
    office.start("order-8")
    digest = office.digests()["order-7"]
    attack(office)
    status, out, err = office.run("waiting", "invoices")
    assert (status, err) == (1, "")
    assert re.findall(r"^(?:ALARM: )?\S+", out, re.MULTILINE)[1:] == ["order-8", "ALARM: order-7:"]
    before = tree(office.folder / "answers")
    for verb in ("approve", "deny"):
        status, out, err = office.say(verb, "order-7", digest)
        assert (out, err.count("\n"), status > 0) == ("", 1, True)
    assert tree(office.folder / "answers") == before


# --- at a terminal ------------------------------------------------------------------------------

APPROVE = ("approve", "invoices", "order-7", *DANA)


NOES = [
    *(("order-7", each) for each in ("yes\n", "ORDER-7\n", "\x04")),
    # Or Enter or Ctrl-D would sign, where a client chose that id.
    *((thread_name(each), typed) for each, typed in (("", "\n"), (" ", " \n"), ("no", "\x04"))),
]


def test_anything_else_is_no(office: Office) -> None:
    for thread in dict(NOES):
        office.start(thread)
    before = tree(office.folder / "answers")
    for thread, typed in NOES:
        approve = ("approve", "invoices", thread, *DANA)
        status, screen, out = talk(office.folder, approve, (LAST, typed))
        assert (status, out) == (1, "")
        assert screen.endswith("Nothing was signed.\n")
        assert tree(office.folder / "answers") == before


def test_no_approval_before_the_last_page(office: Office) -> None:
    """A long argument cannot push another off the screen, nor pass for a line of its own."""
    hides = "x" * 97 + "thread: order-1" + "y" * 2000 + "action: 'nothing'"
    run = office.start(asked=Ask("pay", {"amount": 5_000_000, "note": hides}))
    assert run.question is not None
    for typed in ("q\n", "order-7\n"):
        status, screen, out = talk(office.folder, APPROVE, (MORE, typed), rows=12)
        assert (status, out, LAST in screen) == (1, "", False)
    status, screen, out = talk(office.folder, APPROVE, (LAST, "order-7\n"), rows=12)
    assert status == 0
    rows = screen.split("\n")
    assert max(map(len, rows)) <= 100
    assert [row for row in rows if row.startswith(("thread:", "action:"))] == [
        "action: 'pay'",
        "thread: order-7",
    ]
    whole = re.sub(r"\n(Enter shows more, anything else stops: \n)?    \| ", "", screen)
    assert [line for line in run.question.described if line not in whole] == []


def test_what_was_typed_before_it_was_asked_for_does_not_count(office: Office) -> None:
    office.start()
    status, _, out = talk(office.folder, APPROVE, ("", "order-7\norder-7\n"), (LAST, "\n"))
    assert (status, out) == (1, "")


def test_what_is_shown_is_what_is_signed(office: Office) -> None:
    """Invisible, bidirectional and look-alike characters, trailing spaces, control characters."""
    odd = {"to": "\u0430lice ", "IBAN": "DE\u202e12\u200b", "x\ty": "\x1b[2Jz", "e\u0301": "  "}
    run = office.start(asked=Ask("pay", odd))
    assert run.question is not None
    status, screen, _ = talk(office.folder, APPROVE, (LAST, "order-7\n"))
    assert status == 0
    assert screen.isascii()
    for line in (r"'to': '\u0430lice '", r"'IBAN': 'DE\u202e12\u200b'", r"'x\ty': '\x1b[2Jz'"):
        assert f"argument {line}" in screen
    gate = office.flow().gate
    assert gate.answers is not None
    (signed,) = gate.answers.about(run.question, gate.approvers)
    assert signed.question.arguments == odd


# --- who may ------------------------------------------------------------------------------------


def test_people_of_a_store_in_the_default_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    ledger = open_ledger("invoices")
    with closing(open_answers("invoices", create=True).storage):  # type: ignore[type-var]
        pass
    places = ledger.places
    assert isinstance(places, Store)
    office = tmp_path / "office"
    office.mkdir()
    keys = {}
    for name in PEOPLE:
        keys[name] = SigningKey.from_file(office / f"{name}.key", create=True)
        keys[name].public.to_file(office / f"{name}.pub")
    SigningKey.from_file(places.key[0]).public.to_file(office / "writer.pub")

    def run(*arguments: str) -> tuple[int, str]:
        status, out, err = said("people", *arguments, folder=office)
        assert (out + err).count("\n") >= 1
        return status, out + err

    def may() -> list[str]:
        return said("people", "invoices")[1].splitlines()

    assert run("invoices", "--add", "dana", "dana.pub")[0] == 0
    assert run("invoices", "--add", "opal", "opal.pub", "--operator")[0] == 0
    both = [f"approver dana {keys['dana'].id}", f"operator opal {keys['opal'].id}"]
    assert may() == both
    for person, file in (
        *(("dana", "erin.pub"), ("dan", "dana.pub"), ("writer", "writer.pub")),
        *(("erin", "erin.key"), ("../erin", "erin.pub")),
    ):
        assert run("invoices", "--add", person, file)[0] == 2, person
    assert run("invoices", "--add", "dana", "dana.pub", "--operator")[0] == 2
    assert may() == both
    assert [each.name for each in Path(str(places.approvers)).iterdir()] == ["dana.pub"]
    assert run("invoices", "--remove", "dana")[0] == 0
    assert may() == [f"{both[0]} revoked", both[1]]
    assert run("invoices", "--add", "dana", "dana.pub")[0] == 2


class Full(SQLiteAnchor):
    """An anchor that takes nothing more."""

    def advance(self, *_: Any) -> None:
        raise Unavailable("There is no room.", "Make room.")


def test_what_was_put_and_not_anchored_is_said_once_more(office: Office) -> None:
    """Else whoever restores an older storage drops a no, and nobody sees it."""
    question = office.start().question
    assert question is not None
    storage = FileCheckpointStorage(office.folder / "answers")
    desks = [
        Desk(office.ledger(office.writer.public), answers, office.flow().gate)
        for answers in (
            Answers(storage, Full(office.folder / "answers-anchor/heads.db")),
            Answers(storage, SQLiteAnchor(office.folder / "answers-anchor/heads.db")),
        )
    ]
    dana = Approver("dana", office.keys["dana"])
    with pytest.raises(Unavailable, match="is saved, but not anchored"):
        desks[0].answer(question, "deny", dana)
    desks[1].answer(question, "deny", dana)
    assert desks[1].answers is not None
    assert desks[1].answers.is_settled(question, dana.key)
    with pytest.raises(ApprovalRefused, match="dana has denied it already"):
        desks[1].answer(question, "deny", dana)
