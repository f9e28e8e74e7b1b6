"""The passphrase of a key: typed for each signature, and never shown.

Which files open is for `test_keys_openssh.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from signal import SIGCONT, SIGTERM, Signals

import pytest

from safepoint import Approver, SigningKey, VerifyingKey
from safepoint.shared.questions import open_questions
from tests.unit.commands import settled
from tests.unit.openssh import PASSPHRASE, put, text
from tests.unit.terminal import LAST, PHRASE, Step, talk
from tests.unit.test_deciding import APPROVE, Office, tree

RIGHT = f"{PASSPHRASE}\n"
WRONG = "four words in vain\n"
DANA = VerifyingKey.from_text(text("phrase.pub").decode())


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """One in which dana's key has a passphrase, and a run waits for her."""
    office = Office(tmp_path)
    for name in ("dana.key", "approvers/dana.pub"):
        (tmp_path / name).unlink()
    own = put(tmp_path / "dana.key", "phrase")
    DANA.to_file(tmp_path / "approvers/dana.pub")
    office.keys["dana"] = SigningKey.from_file(own, passphrase=PASSPHRASE)
    office.start()
    return office


# --- at a terminal ------------------------------------------------------------------------------


def test_the_dialogue(office: Office) -> None:
    """The question, then its name, then the passphrase; what is no passphrase can be repeated.

    After Ctrl-Z and `fg` it is asked for again, and still not shown.
    """
    phrases: tuple[Step, ...] = ((PHRASE, WRONG), (PHRASE, SIGCONT), (PHRASE, RIGHT))
    steps: tuple[Step, ...] = ((LAST, "order-7\n"), *phrases)
    status, screen, out = talk(office.folder, APPROVE, *steps)
    assert (status, out.startswith("dana approved 'pay' in order-7.\n")) == (0, True)
    assert "words" not in screen + out
    assert "no passphrase" not in screen
    shown = ("argument 'amount': 42", LAST, f"key {DANA.id}", "the passphrase is wrong")
    assert sorted(shown, key=screen.index) == list(shown)
    assert screen.count(f"dana signs.\nPassphrase of key {DANA.id}") == 3
    assert office.flow().resume(office.ledger(), "order-7").state["by"] == ["dana"]


@pytest.mark.parametrize(
    ("typed", "status", "session"),
    [
        (f"{PASSPHRASE}\x04", 2, False),
        (SIGTERM, 128 + SIGTERM, False),
        ("\x03", 130, True),
        ("\n", 2, True),
    ],
    ids=repr,
)
def test_whoever_gives_up_signs_nothing_and_sees_again_what_they_type(
    office: Office, typed: str | Signals, status: int, session: bool
) -> None:
    """The terminal of the session is asked, too, if the question was named by its digest."""
    before = tree(office.folder / "answers")
    digest = ("--digest", office.digests()["order-7"]) if session else ()
    named: tuple[Step, ...] = () if session else ((LAST, "order-7\n"),)
    steps: tuple[Step, ...] = (*named, (PHRASE, typed))
    found, screen, out = talk(office.folder, (*APPROVE, *digest), *steps, session=session)
    assert (found, out) == (status, ""), screen
    assert tree(office.folder / "answers") == before


def test_what_moved_on_while_the_passphrase_was_typed_is_not_signed(office: Office) -> None:
    (asked,) = open_questions(office.ledger(), "order-7")
    yes = Approver("erin", office.keys["erin"]).approve(asked)
    before = tree(office.folder / "answers")

    def goes_on() -> str:
        office.flow().resume(office.ledger(), "order-7", approvals=[yes])
        return RIGHT

    status, screen, out = talk(office.folder, APPROVE, (LAST, "order-7\n"), (PHRASE, goes_on))
    assert (status, out) == (1, "")
    assert "order-7 waits for nobody. Nothing was signed." in screen
    assert tree(office.folder / "answers") == before


def test_without_a_terminal_a_key_with_a_passphrase_is_refused(office: Office) -> None:
    command = (*APPROVE, "--digest", office.digests()["order-7"])
    done = subprocess.run(
        [sys.executable, "-m", "safepoint", *command],
        cwd=office.folder,
        env=settled(office.folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("A passphrase has to be typed on a terminal.")


# --- keys -----------------------------------------------------------------------------------------


def test_such_keys_of_a_store_are_listed_and_open_nothing(office: Office) -> None:
    """Whoever names one for a worker is told: nobody is there to type."""
    office.settle('key = ["dana.key"]')
    status, out, err = office.run("keys", "invoices")
    assert (status, err) == (0, "")
    line = f"records  {DANA.id} 0600 {office.folder}/dana.key has a passphrase\n"
    assert line in out
    status, out, err = office.run("verify", "invoices")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "holds a key with a passphrase, but a key without a passphrase is needed" in err
