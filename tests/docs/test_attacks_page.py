"""The page "By attack" lists every attack of every catalogue, once."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from publish import attacks
from publish.attacks import Listed, listed, markdown
from publish.project import Project
from safepoint.attacks import ATTACKS, RESIDUE, TARGETS, Outcome
from safepoint.attacks.models import MODEL_ATTACKS
from safepoint.attacks.network import NETWORK_ATTACKS
from safepoint.attacks.sql import SQL_ATTACKS
from tests.harness import ladder

PROJECT = Project()
TEXT = markdown(PROJECT)
LISTED = listed(PROJECT)
CATALOGUES = (ATTACKS, RESIDUE, MODEL_ATTACKS, SQL_ATTACKS, NETWORK_ATTACKS)


def test_every_attack_of_every_catalogue_is_listed_once() -> None:
    every = [name for catalogue in CATALOGUES for name in catalogue]
    assert Counter(each.id for each in LISTED) == Counter(every)
    anchors = Counter(re.findall(r"\{ #([\w-]+) \}", TEXT))
    groups = {each.group for each in LISTED}
    assert anchors == Counter([*every, *groups])


def test_a_new_catalogue_is_not_forgotten() -> None:
    """Each command of the kit that runs attacks is on the page."""
    package = PROJECT.root / "src/safepoint/attacks"
    files = [file for file in package.rglob("*.py") if "__main__" in file.read_text("utf-8")]
    names = {file.relative_to(package).as_posix().replace("/__main__.py", "") for file in files}
    assert names == {"__main__.py", "models", "sql", "network.py"}
    commands = {each.command.split()[2] for each in LISTED}
    assert commands == {f"safepoint.attacks{end}" for end in ("", ".models", ".sql", ".network")}


def test_what_is_residue_in_the_code_is_under_what_nobody_detects() -> None:
    residue = {*RESIDUE, *(name for name, each in SQL_ATTACKS.items() if each.residue)}
    assert {each.id for each in LISTED if each.group == "residue"} == residue


def test_each_rung_is_the_one_that_the_attacks_show() -> None:
    """The page reads the ladder's page; here the attacks run."""
    outcomes, rungs = ladder.computed(), list(TARGETS)
    for each in LISTED:
        if each.rung is None:
            assert each.id not in ATTACKS
            continue
        row = [outcomes[each.id][name] for name in rungs]
        assert not any(outcome.succeeded for outcome in row[each.rung :])
        assert (row[each.rung] is Outcome.DETECTED) == each.seen
        below = row[: each.rung]
        last = max(i for i, outcome in enumerate(row) if outcome.succeeded)
        assert Outcome.DETECTED not in below[last + 1 :]


def test_every_link_leads_to_a_page_and_a_rule_that_teaches_the_attack() -> None:
    links = re.findall(r"\[(SP\d+)\]\(([^)#]+)(#\w+)?\)", TEXT)
    assert len(links) >= len(LISTED)
    for rule, page, anchor in links:
        assert (PROJECT.docs / page).is_file()
        assert page == PROJECT.rules[rule].page or anchor == f"#{rule.lower()}"


def test_every_command_names_the_attack() -> None:
    for each in LISTED:
        assert each.id in each.command or each.command.endswith(".network")
        assert f"`{each.command}`" in TEXT
    (aliasing,) = [each for each in LISTED if each.id == "aliasing"]
    assert aliasing.command == "python -m safepoint.attacks aliasing --in-memory"


def test_a_module_that_nobody_placed_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "_HOLDERS", {"writer": ("edit",)})
    with pytest.raises(ValueError, match=r"who can do plant-record\? Add forge to _HOLDERS"):
        listed(PROJECT)


def test_an_attack_that_the_ladder_lacks_is_missed() -> None:
    page = PROJECT.pages["ladder.md"]
    text = page.text.replace("| `swap-threads` ", "| `swapped` ")

    other = Project()
    vars(other)["pages"] = {**PROJECT.pages, "ladder.md": replace(page, text=text)}
    with pytest.raises(ValueError, match=r"docs/ladder\.md: swap-threads is not in its tables"):
        listed(other)


def test_an_item_says_what_it_is_in_three_lines() -> None:
    attack = Listed("edit-state", "It ends badly.", ("SP01",), "writer", "", "run it", 3, True)
    assert attacks._item(attack, PROJECT.rules) == (
        "- **`edit-state`**{ #edit-state } [SP01](security/trust-boundary.md)"
        " · detected from rung 3 on, hash chain  \n    It ends badly.  \n    `run it`"
    )
