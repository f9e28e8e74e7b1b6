"""The page "By attack" lists every attack of every catalogue, once."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

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
    heads = {each.command.partition(f" {each.id}")[0] for each in LISTED}
    options = ("", " --models", " --sql", " --network")
    assert heads == {f"safepoint attack{option}" for option in options}


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
        name, _, rest = each.command.partition(f" {each.id}")
        assert f"`{name} NAME{rest}`" in TEXT or f"`{each.command}`" in TEXT
    own = [each for each in LISTED if f"`{each.command}`" in TEXT]
    assert TEXT.count("`safepoint attack") == len({each.group for each in LISTED}) + len(own)
    (aliasing,) = [each for each in LISTED if each.id == "aliasing"]
    assert aliasing.command == "safepoint attack aliasing --in-memory"


def test_every_module_of_the_kit_has_one_place() -> None:
    """Who can do it? Add a new module to _HOLDERS."""
    placed = [module for modules in attacks._HOLDERS.values() for module in modules]
    kit = {kind.__module__.rpartition(".")[2] for kind in ATTACKS.values()}
    assert len(set(placed)) == len(placed)
    assert kit <= set(placed), kit - set(placed)


def test_an_attack_that_the_ladder_lacks_is_missed() -> None:
    page = PROJECT.pages["ladder.md"]
    text = page.text.replace("| [`swap-threads`]", "| [`swapped`]")

    other = Project()
    vars(other)["pages"] = {**PROJECT.pages, "ladder.md": replace(page, text=text)}
    with pytest.raises(ValueError, match=r"docs/ladder\.md: swap-threads is not in its tables"):
        listed(other)


def test_an_attack_that_no_rung_holds_says_so_until_one_does() -> None:
    """As that of a skeleton, which crashes everywhere."""
    page = PROJECT.pages["ladder.md"]
    [row] = re.findall(r"^\| \[`swap-threads`\].*$", page.text, re.MULTILINE)
    falls = re.sub(r"\{ \.[\w-]+ \}", "{ .crashed }", row)

    other = Project()
    text = page.text.replace(row, falls)
    vars(other)["pages"] = {**PROJECT.pages, "ladder.md": replace(page, text=text)}
    [item] = re.findall(r"#swap-threads \}\n\n.+  \n(.+)", markdown(other))
    assert item.endswith(") · no rung holds it yet")
    assert "no rung holds it yet" not in TEXT


def test_an_item_has_a_heading_and_a_command_only_where_it_is_another() -> None:
    attack = Listed("edit-state", "It ends badly.", ("SP01",), "writer", "", "run it", 3, True)
    said = (
        "#### edit-state { #edit-state }\n\nIt ends badly.  \n"
        "[SP01](security/trust-boundary.md) · detected from rung 3 on, hash chain"
    )
    assert attacks._item(attack, "run it", PROJECT.rules) == said
    assert attacks._item(attack, "run", PROJECT.rules) == f"{said} · `run it`"


def test_a_heading_never_skips_a_level() -> None:
    """Each part has one of its own, above the headings of its attacks."""
    levels = [len(marks) for marks in re.findall(r"^(#+) ", TEXT, re.MULTILINE)]
    assert levels[0] == 2
    assert all(b - a <= 1 for a, b in pairwise(levels))
