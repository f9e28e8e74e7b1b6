"""The page "By attack" lists every attack of every catalogue, once."""

from __future__ import annotations

import re
from collections import Counter

from publish.attacks import GROUPS, listed, markdown
from publish.project import Project
from safepoint.attacks import ATTACKS, RESIDUE
from safepoint.attacks.models import MODEL_ATTACKS
from safepoint.attacks.network import NETWORK_ATTACKS
from tests.attacks.sql import SQL_ATTACKS

PROJECT = Project()
TEXT = "\n\n".join(markdown(PROJECT, group) for group in GROUPS)
LISTED = listed(PROJECT)
CATALOGUES = (ATTACKS, RESIDUE, MODEL_ATTACKS, SQL_ATTACKS, NETWORK_ATTACKS)


def test_every_attack_of_every_catalogue_is_listed_once_under_what_its_attacker_has() -> None:
    every = [name for catalogue in CATALOGUES for name in catalogue]
    assert Counter(each.id for each in LISTED) == Counter(every)
    assert Counter(re.findall(r"^#### [\w-]+ \{ #([\w-]+) \}$", TEXT, re.MULTILINE)) == Counter(
        every
    )
    residue = {*RESIDUE, *(name for name, each in SQL_ATTACKS.items() if each.residue)}
    assert {each.id for each in LISTED if each.group == "residue"} == residue
    assert {each.group for each in LISTED} == set(GROUPS)
    page = PROJECT.pages["attacks.md"].text
    shown = re.findall(r"\{ #(\w+) \}\n\n(?:.+\n)+<!-- fill attacks-(\w+) -->", page)
    assert shown == [(group, group) for group in GROUPS]


def test_every_item_links_a_rule_that_teaches_it_and_has_a_command() -> None:
    for each in LISTED:
        [said] = re.findall(rf"#{each.id} \}}\n\n(.+?  \n.+)$", TEXT, re.MULTILINE)
        assert said.startswith(each.story)
        for rule in each.rules:
            there = PROJECT.rules[rule].page or f"rules.md#{rule.lower()}"
            assert f"[{rule}]({there})" in said
        assert said.endswith(f" · `{each.command}`")


def test_every_attack_on_the_ladder_is_held_by_a_rung() -> None:
    assert [each.id for each in LISTED if each.id in ATTACKS and each.rung is None] == []
