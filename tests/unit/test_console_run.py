"""The page of one run: all of the question, nothing of a run that does not verify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from safepoint import Approver, Ask, Tool
from safepoint.console.record import Record
from safepoint.resume.asking import SPENT
from tests.house import Toy
from tests.unit.console_runs import HOSTILE, shown, told
from tests.unit.test_deciding import Office

ACTIVE = {"script", "style", "iframe", "img", "object", "embed", "base", "use", "b"}
OPAL = ("--key", "opal.key")


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def look(office: Office, thread: str = "order-7", **options: Any) -> Record:
    return told(office.folder, thread, **options)


# --- the question -------------------------------------------------------------------------------

ASKED = {
    "hostile": Ask("pay", {"to": HOSTILE, HOSTILE: "x", "note": "thread: order-1\naction: 'no'"}),
    "many lines": Ask("pay", {f"line {number}": " " * number for number in range(120)}),
}


@pytest.mark.parametrize("name", ASKED)
def test_all_of_the_question_stands_between_deny_and_approve(office: Office, name: str) -> None:
    question = office.start(asked=ASKED[name]).question
    assert question is not None
    record = look(office)
    page, held = shown(record)
    assert page.lines == question.described
    assert page.copied[0] == question.text.removesuffix("\n")
    count = len(question.described)
    assert page.seen == ["deny", *["line"] * count, "approve", "hold"]
    assert page.focus == ["deny"]
    assert record.waits[0].digest in page.text
    assert [(verb, getattr(subject, "question", subject)) for verb, subject in held] == [
        ("deny", question),
        ("approve", question),
        ("hold", "order-7"),
    ]
    assert [each.fields["form"] for each in page.forms] == ["form1", "form2", "form3"]
    assert {each.action for each in page.forms} == {"/k3v9/sign"}
    assert page.forms[1].button == "Approve: sign this on your terminal"
    assert page.forms[2].required == ["why"]
    assert "dana would sign this" in page.text
    assert page.tags.isdisjoint(ACTIVE)
    assert (page.text.isascii(), page.attributes & {"style", "onclick", "open"}) == (True, set())


def test_the_first_screen_says_what_is_asked_in_plain_words(office: Office) -> None:
    """And no argument, however long it or its name is, can push that away or look like more."""
    given = {"amount": Decimal("39.0"), "order": 13, "to": HOSTILE, "note": "x" * 9_000}
    given |= {"n" * 900: 1, "Until": "(2 characters, in full below)"}
    office.flow(Ask("refund", given, timedelta(hours=3))).start(office.ledger(), "order-7")
    text = " ".join(shown(look(office))[0].text.split())
    first = text[: text.index("All that is signed")]
    for said in (
        "It asks: refund",
        "amount39.0",
        r"to'\u202e<script>",
        "(900 characters, in full below)1",
        "Until'(2 characters, in full below)'",
    ):
        assert said in first, first
    assert "Checked: seal, chain, anchor, answers" in first
    assert ("0 of 1" in text, "asked" in first, len(first) < 3_000) == (False, False, True)


# --- what stops an approval ---------------------------------------------------------------------


def without_an_anchor(office: Office) -> None:
    text = (office.folder / "safepoint.toml").read_text()
    (office.folder / "safepoint.toml").write_text(
        text.replace('anchor = "anchor/heads.db"\n', "", 1)
    )


def held(office: Office) -> None:
    assert office.run("hold", "invoices", "order-7", *OPAL, "--reason", HOSTILE)[0] == 0


@pytest.mark.parametrize(
    ("make", "verbs", "why"),
    [
        (without_an_anchor, ["deny", "hold"], "invoices has no anchor, so nobody could tell"),
        (held, ["deny", "approve", "release", "hold"], "held by opal: "),
    ],
)
def test_what_the_desk_says_against_an_approval_stands_in_its_place(
    office: Office, make: Callable[[Office], None], verbs: list[str], why: str
) -> None:
    office.start()
    make(office)
    record = look(office)
    page, _ = shown(record)
    assert (page.verbs, record.alarm, why in page.text) == (verbs, "", True)
    assert ("No approval here" in page.text) == ("approve" not in verbs)
    assert page.lines == record.waits[0].question.described
    assert shown(record, "", "")[0].verbs == []  # who has no key signs nothing
    record.waits *= 21
    assert "It asks 21 things." in shown(record)[0].text
    assert len(shown(record)[0].lines) == 20 * len(page.lines)


# --- a run that does not verify -----------------------------------------------------------------


def files(office: Office) -> list[Path]:
    return sorted((office.folder / "state" / "order-7").glob("*"))


def edited(office: Office) -> None:
    file = files(office)[0]
    file.write_bytes(file.read_bytes().replace(b"SECRET", b"SECRIT"))


def cut_off(office: Office) -> None:
    files(office)[-1].unlink()


def a_hole(office: Office) -> None:
    files(office)[1].unlink()


@pytest.mark.parametrize(
    ("tamper", "error", "what"),
    [
        (edited, "SealBroken", "seal"),
        (cut_off, "RolledBack", "anchor"),
        (a_hole, "RolledBack", "chain"),
    ],
)
def test_nothing_that_a_run_says_is_shown_if_it_does_not_verify(
    office: Office, tamper: Callable[[Office], None], error: str, what: str
) -> None:
    """It is an alarm, which can be held, and neither approved nor denied."""
    flow = office.flow(Ask("pay", {"note": "SECRET"}))
    flow.start(office.ledger(), thread="order-7", note="SECRET")
    office.ledger().save("order-7", office.ledger().latest("order-7").state, app="SECRET")
    tamper(office)
    assert office.run("hold", "invoices", "order-7", *OPAL, "--reason", "look")[0] == 0
    record = look(office)
    page, _ = shown(record)
    assert record.alarm.startswith(f"{error}: ")
    assert [each.what for each in record.checks if each.text in record.alarm] == [what]
    assert [each.what for each in record.checks if each.ok] == ["answers"]
    assert "open" in page.attributes  # the checks; of a run that is whole, they are one line
    assert "Approve nothing of this run. Tell whoever runs the store." in page.text
    assert f"safepoint explain {error}" in page.text
    told_of = (record.ended, record.waits, record.begun, record.last)
    assert (*told_of, [*record.history]) == ("", [], [], None, [])
    assert ("SECRET" in page.text, page.lines, page.copied[0][:12]) == (False, [], "safepoint/1 ")
    assert page.verbs == ["release", "hold"]
    assert "This run does not verify" in page.text
    assert "waits for nobody" not in page.text


# --- what is known of it ------------------------------------------------------------------------


def test_what_became_of_the_tools_and_when_it_went_on(office: Office) -> None:
    bank, refund = Tool("bank", version="1"), Tool("refund", permissions=["write"])
    office.flow(version="1", tools=[bank]).start(office.ledger(), thread="order-7", payee="alice")
    flow = office.flow(version="1", tools=[Tool("bank", version="2"), refund])
    question = flow.question(office.ledger(), "order-7")
    assert question is not None
    dana = Approver("dana", office.keys["dana"])
    flow.resume(office.ledger(), "order-7", approvals=[dana.approve(question)])
    record = look(office)
    assert record.begun == [
        "invoice@1 wrote it, as it did #1.",
        "It has other tools than #1.",
        "The tool bank has version '2', and had version '1'.",
        "The tool refund is new.",
        "The tool refund comes with the permission write.",
    ]
    (said,) = record.answers
    assert (said.who, said.what, said.then[:19]) == ("dana", "approved", "a worker resumed it")
    assert [bool(each.who) for each in record.history] == [False, False, True, False]
    page, _ = shown(record)
    assert all(each in page.text for each in (*record.begun, said.then))
    assert (page.verbs, page.lines) == (["hold"], question.described)


def test_what_was_pruned_is_said(office: Office) -> None:
    office.start()
    office.say("approve", "order-7")
    office.flow().resume(office.ledger(), "order-7")
    office.ledger().prune("order-7", keep=1)
    (chain,) = (each for each in look(office).checks if each.what == "chain")
    assert "What was before #4 was pruned, and a signed base says so." in chain.text


# --- what a thief of the writer's key could put there -------------------------------------------


def test_only_what_people_signed_about_this_run_counts_as_theirs(office: Office) -> None:
    question = office.start().question
    other = office.start("order-8").question
    assert question is not None
    assert other is not None
    dana, mally = Approver("dana", office.keys["dana"]), Approver("mally", office.keys["mally"])
    ledger = office.ledger()
    elsewhere = dana.approve(replace(question, store="refunds"))  # of the same record
    wrong: list[Any] = [[dana.approve(other)], [elsewhere], [mally.approve(question)], ["<b>"]]
    wrong += [[1], {}, None]
    for statements in wrong:
        ledger.note("order-7", {"question": question.text, "statements": statements}, label=SPENT)
    record = look(office)
    told_of = [" ".join(each.who) for each in [*record.history][2:]]
    assert told_of[:2] == ["an answer of dana that is not about this run"] * 2
    assert all("not verify" in each for each in told_of[2:4])
    assert record.answers == []
    assert shown(record)[0].tags.isdisjoint(ACTIVE)


# --- texts of others, and what cannot be looked at ----------------------------------------------


def test_what_could_not_be_looked_at_is_said(office: Office) -> None:
    office.start()
    assert office.say("approve", "order-7")[0] == 0
    for file in (office.folder / "answers").rglob("*"):
        if file.is_file():
            file.write_bytes(b"x")
    record = look(office)
    page, _ = shown(record)
    assert record.unread["questions"].startswith("SealBroken: ")
    assert (page.lines, page.verbs) == ([], ["hold"])
    assert "Not looked at: SealBroken" in page.text
    assert "The answers could not be looked at" in page.text
    assert [each.what for each in record.checks if not each.ok] == ["answers"]
    assert "Nobody" not in page.text.replace("Nobody can tell", "")


def test_what_is_encrypted_is_said_to_be(office: Office) -> None:
    office.flow().start(office.ledger(cipher=Toy()), thread="order-7", note="SECRET")
    record = look(office)
    page, _ = shown(record)
    assert (record.alarm, page.lines, page.verbs) == ("", [], ["hold"])
    assert "is encrypted under key 0123456789abcdef" in record.unread["questions"]
    assert record.begun[1] == "It has the same tools as #1."
    assert "SECRET" not in page.text
