"""The console as a whole: what is signed on the terminal is what a page showed, and nothing else.

One office, one console of an approver and one of an operator, each on a terminal of its own; the
requests are those of a browser. The flaws are those of other consoles, by name.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from safepoint import Approver
from safepoint.core.errors import ResumeRefused, Unsafe
from safepoint.places import in_default_places
from tests.harness.optional import need

need("uvicorn", "the console needs uvicorn; make test installs it")
need("starlette", "the console needs Starlette; make test installs it")

from safepoint.console.signing import PER_RUN, Forms, Subject
from tests.unit.commands import said
from tests.unit.console_driver import (
    PASSPHRASE,
    PROMPT,
    Answer,
    Form,
    Tab,
    Terminal,
    console,
    until,
)
from tests.unit.test_deciding import Office, tree

DANA = ("--key", "dana.locked")
OPAL = ("--operator-key", "opal.locked")


class Place(NamedTuple):
    """An office, with an approver and an operator at their consoles."""

    office: Office
    terminal: Terminal
    tab: Tab
    operator: Tab

    def run(self, thread: str, tenant: str = "") -> Answer:
        return self.tab.get(f"/run/invoices/{f'@{tenant}/' * bool(tenant)}{thread}")

    def sign(self, form: Form, **fields: str) -> Answer:
        """Send a form, type the passphrase, and return the page of what came of it."""
        sent = self.tab.post(form, **fields)
        self.terminal.sign()
        return self.tab.follow(sent)

    def put(self) -> dict[Path, bytes]:
        """Return all that was put with the answers."""
        return tree(self.office.folder / "answers")


def locked(office: Office, *names: str) -> None:
    """Lock keys with a passphrase that takes no time to try."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safepoint.core.keys.ROUNDS", 1)
        for name in names:
            office.keys[name].to_file(office.folder / f"{name}.locked", passphrase=PASSPHRASE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    office = Office(tmp_path_factory.mktemp("office"))
    locked(office, "dana", "opal")
    with console(office.folder, *DANA) as dana, console(office.folder, *OPAL) as opal:
        yield Place(office, dana, Tab(dana.link()), Tab(opal.link()))


# --- as it is meant ------------------------------------------------------------------------------


def test_from_the_link_to_a_paid_order(place: Place) -> None:
    """What is signed is, to the byte, the question that the page showed."""
    run = place.office.start()
    assert run.question is not None
    until(lambda: "order-7" in place.tab.get("/").text)
    page = place.run("order-7")
    assert page.verbs == ["deny", "approve"]
    assert page.body.index('value="approve"') > page.body.index("tools: sha256:")  # the last line
    (raw,) = (each for each in page.codes if each.startswith('{"action"'))
    done = place.sign(page.form("approve"))
    assert "dana approved 'pay' in order-7. It was put with the answers" in done.text
    gate = place.office.flow().gate
    assert gate.answers is not None
    (signed,) = gate.answers.about(run.question, gate.approvers)
    assert signed.question.text == run.question.text == f"{raw}\n"
    assert f"{signed.text}" in [f"{each}\n" for each in done.codes]
    (digest,) = set(re.findall(r"digest: (sha256:\w+)\n", place.terminal.screen))
    assert digest in page.text
    assert digest in done.text
    assert "argument 'amount': 42\nargument 'payee': 'alice'\n" in place.terminal.screen
    assert PASSPHRASE not in place.terminal.screen
    assert place.run("order-7").verbs == ["deny"]  # who said yes can still say no

    assert place.office.flow().resume(place.office.ledger(), "order-7").state["paid"] == 42
    page = place.run("order-7")
    assert (page.verbs, "It waits for nobody." in page.text) == ([], True)
    until(lambda: "order-7" not in place.tab.get("/").text)


# --- the flaws of others -------------------------------------------------------------------------


def erin_goes_on(place: Place, thread: str) -> None:
    """Another approver says yes elsewhere, and a worker goes on."""
    question = place.office.flow().question(place.office.ledger(), thread)
    assert question is not None
    text = Approver("erin", place.office.keys["erin"]).approve(question)
    place.office.flow().resume(place.office.ledger(), thread, approvals=[text])


def stale(place: Place, thread: str) -> Answer:
    form = place.run(thread).form("approve")
    erin_goes_on(place, thread)
    answer = place.tab.post(form)
    assert any(each.endswith(f"/run/invoices/{thread}") for each in answer.links)
    return answer


def other_verb(place: Place, thread: str) -> Answer:
    return place.tab.post(place.run(thread).form("deny"), verb="approve")


def of_another_console(place: Place, thread: str) -> Answer:
    form = place.operator.get(f"/run/invoices/{thread}").form("hold")
    here = place.run(thread).form("approve")
    return place.tab.post(here, form=form.fields["form"], verb="hold", why="x")


def held_without_a_reason(place: Place, thread: str) -> Answer:
    return place.operator.post(place.operator.get(f"/run/invoices/{thread}").form("hold"), why=" ")


def nobodys(place: Place, thread: str) -> Answer:
    return place.run(thread, "globex")


def by_a_link(place: Place, thread: str) -> Answer:
    """Nothing is done by GET, whatever the address says."""
    form = place.run(thread).form("approve")
    return place.tab.get(f"/sign?form={form.fields['form']}&verb=approve")


FLAWS: dict[str, tuple[Callable[[Place, str], Answer], int, str]] = {
    "stale page: the run has moved on": (stale, 409, "waits for nobody."),
    "a button that sends another verb": (other_verb, 409, "knows no such form"),
    "a form of another console": (of_another_console, 409, "knows no such form"),
    "a hold that says no reason": (held_without_a_reason, 400, "A hold needs a reason."),
    "a writer who signals another tenant's run": (nobodys, 404, ""),
    "an approval by a link": (by_a_link, 405, ""),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_flaws_of_other_consoles(place: Place, flaw: str) -> None:
    """Refused at once, with a page that says why; nothing is asked on the terminal, or signed."""
    act, status, why = FLAWS[flaw]
    thread = re.sub(r"\W+", "-", flaw)
    place.office.start(thread)
    before, screen = place.put(), place.terminal.screen
    answer = act(place, thread)
    assert (answer.status, why in answer.text) == (status, True), answer.text
    assert (place.put(), place.terminal.screen) == (before, screen)
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_double_click_and_replay(place: Place) -> None:
    """A form counts once, and leads to what came of it."""
    place.office.start("clicked")
    form = place.run("clicked").form("approve")
    with ThreadPoolExecutor(4) as clicks:
        sent = list(clicks.map(lambda _: place.tab.post(form), range(4)))
    assert sorted(each.status for each in sent) == [303, 409, 409, 409]
    (first,) = (each for each in sent if each.status == 303)
    place.terminal.sign()
    assert "dana approved" in place.tab.follow(first).text
    again = place.tab.post(form)
    assert (again.status, "was sent before" in again.text) == (409, True)
    assert first.headers["Location"] in again.links


def test_a_run_that_asks_much_leaves_the_forms_of_others() -> None:
    forms = Forms()
    other, *many = (Subject("deny", "invoices", "", each) for each in ("other", *["much"] * 1200))
    kept = forms.hold(other)
    ids = [forms.hold(each) for each in many]
    assert forms.take(kept, "deny") == other
    assert {forms.take(each, "deny").thread for each in ids[-PER_RUN:]} == {"much"}
    with pytest.raises(ResumeRefused, match="no such form"):
        forms.take(ids[-PER_RUN - 1], "deny")


def test_a_yes_is_for_the_run_that_was_shown(place: Place) -> None:
    """Whatever else a form says."""
    for thread in ("same-1", "same-2"):
        place.office.start(thread)
    form = place.run("same-1").form("approve")
    place.sign(form, thread="same-2", store="payroll", tenant="acme", question="{}")
    assert ("approve" in place.run("same-1").verbs, "approve" in place.run("same-2").verbs) == (
        *(False, True),
    )


# --- the passphrase ------------------------------------------------------------------------------


def test_what_does_not_unlock_the_key_signs_nothing(place: Place) -> None:
    place.office.start("unsigned")
    before = place.put()
    for typed, why in (
        (["wrong passphrase"] * 3, "the passphrase is wrong"),
        ([""], "No passphrase was typed."),
    ):
        place.terminal.type(f"{PASSPHRASE}")  # what was typed before it was asked for
        sent = place.tab.post(place.run("unsigned").form("approve"))
        for each in typed:
            place.terminal.wait(r"dana signs: APPROVE unsigned\ndigest: sha256:\w{64}\n")
            place.terminal.sign(each)
        done = place.tab.follow(sent)
        assert ("Nothing was signed" in done.text, why in done.text) == (True, True), done.text
    assert place.put() == before


def test_nobody_types_in_time(tmp_path: Path) -> None:
    """What is typed too late is not shown, either; and Enter is still heard."""
    office = Office(tmp_path)
    locked(office, "dana")
    office.start()
    begin = "from safepoint.console import signing; signing.PATIENCE = 1"
    with console(tmp_path, *DANA, begin=begin) as terminal:
        tab = Tab(terminal.link())
        sent = tab.post(tab.get("/run/invoices/order-7").form("approve"))
        terminal.wait(PROMPT)
        terminal.type(PASSPHRASE[:9])
        assert "No passphrase was typed." in tab.follow(sent).text
        terminal.type(f"{PASSPHRASE[9:]}\n")
        terminal.link()
        assert not any(each in terminal.screen for each in ("four", "words", "tests"))
    assert tree(tmp_path / "answers") == {}


AFTER = "from safepoint.stores.sqlite import SQLiteAnchor as part; name = 'advance'"


def test_what_fails_after_it_was_signed_is_not_called_unsigned(tmp_path: Path) -> None:
    office = Office(tmp_path)
    locked(office, "dana")
    office.start()
    begin = f"{AFTER}\ndef fail(*_): raise OSError('full')\nsetattr(part, name, fail)"
    with console(tmp_path, *DANA, begin=begin) as terminal:
        tab = Tab(terminal.link())
        sent = tab.post(tab.get("/run/invoices/order-7").form("approve"))
        terminal.sign()
        done = tab.follow(sent)
        assert ("It may be signed" in done.text, "Nothing was" in done.text) == (True, False)
        terminal.wait("It may be signed")
    assert office.flow().resume(office.ledger(), "order-7").state["paid"] == 42


# --- settings, and defects ------------------------------------------------------------------------


def test_a_defect_is_told_on_the_terminal_alone(tmp_path: Path) -> None:
    Office(tmp_path)
    begin = "from safepoint.console.index import Index; del Index.done"
    with console(tmp_path, begin=begin) as terminal:
        answer = Tab(terminal.link()).get("/done")
        assert (answer.status, "AttributeError" in answer.body) == (500, False)
        terminal.wait("A page could not be made: AttributeError")


def test_whoever_is_not_listed_does_not_begin(tmp_path: Path) -> None:
    office = Office(tmp_path)
    locked(office, "mally", "dana")
    with console(tmp_path, "--key", "mally.locked") as terminal:
        assert terminal.ended() == 1
        assert "is not one that an approver of invoices is known by" in terminal.screen
    with console(tmp_path, "--operator-key", "dana.locked") as terminal:
        assert terminal.ended() == 1
        assert "is not one that an operator of invoices is known by" in terminal.screen


def test_settings_are_those_of_now_for_one_tenant(tmp_path: Path) -> None:
    """Whose run it is shows on the terminal; who may no longer does not; no store moves."""
    office, file = Office(tmp_path), tmp_path / "safepoint.toml"
    locked(office, "dana")
    office.flow().start(office.ledger().tenant("acme"), "order-7")
    office.start("order-8")
    text = f'{file.read_text()}\ntenant = "acme"\n'
    file.write_text(text)
    with console(tmp_path, *DANA) as terminal:
        tab = Tab(terminal.link())
        until(lambda: "order-7" in tab.get("/").text)
        assert tab.get("/run/invoices/order-8").status == 404
        forms = [tab.get("/run/invoices/order-7").form("approve") for _ in range(2)]
        sent = tab.post(forms[0])
        terminal.wait(PROMPT)
        assert "tenant: acme" in terminal.screen
        mays = tmp_path / "approvers/dana.pub"
        mays.rename(tmp_path / "approvers/revoked/dana.pub")
        terminal.type(f"{PASSPHRASE}\n")
        assert "is not one that an approver of invoices is known by" in tab.follow(sent).text
        assert tab.post(forms[1]).status == 409
        file.write_text(text.replace('"state"', '"other"'))
        page = tab.get("/run/invoices/order-7")
        assert (page.status, "The settings of invoices have changed" in page.text) == (503, True)


def test_a_machine_that_could_write_what_it_approves_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the default places of one account. What writes is not kept in the console."""
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert said("init", "invoices", folder=tmp_path)[0] == 0
    with ExitStack() as stack, pytest.raises(Unsafe):
        in_default_places("invoices").opened(stack).keys.signing.sign(b"")
    with console(tmp_path, "invoices") as terminal:
        terminal.wait("The key that writes invoices is on this machine")
        tab = Tab(terminal.link())
        until(lambda: "Nothing waits for you" in tab.get("/").text)


# --- how it begins and ends ----------------------------------------------------------------------


def test_without_a_terminal_it_is_refused(tmp_path: Path) -> None:
    status, out, err = Office(tmp_path).run("console")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("The console needs a terminal")


def test_a_key_without_a_passphrase_is_refused(tmp_path: Path) -> None:
    Office(tmp_path)
    with console(tmp_path, "--key", "dana.key") as terminal:
        assert terminal.ended() == 2
        assert "Give it one: ssh-keygen -p -a 64 -f dana.key" in terminal.screen


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_ends_cleanly_also_while_it_asks(number: int, status: int, tmp_path: Path) -> None:
    office = Office(tmp_path)
    locked(office, "dana")
    office.start()
    begin = "from safepoint.console import signing; signing.QUEUE = 1"
    with console(tmp_path, *DANA, begin=begin) as terminal:
        tab = Tab(terminal.link())
        forms = [tab.get("/run/invoices/order-7").form("approve") for _ in range(3)]
        tab.post(forms[0])
        terminal.wait(PROMPT)
        terminal.go_on()
        terminal.wait(PROMPT)
        second = tab.post(forms[1])
        assert "number 2 in the queue" in tab.get(second.headers["Location"]).text
        third = tab.post(forms[2])
        assert (third.status, "things wait to be signed" in third.text) == (409, True)
        assert not terminal.echoes()
        assert terminal.end(number) == status
        assert terminal.echoes()
        assert "Traceback" not in terminal.screen
    assert tree(tmp_path / "answers") == {}
