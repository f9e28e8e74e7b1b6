"""The page of the console: each attack in its table is held by a test."""

from __future__ import annotations

import re

from tests.harness.blocks import ROOT

HOLDS = {
    "test_all_of_the_question_stands_between_deny_and_approve": [
        "The display is cut, but everything runs",
    ],
    "test_no_text_of_others_becomes_markup_or_hides": [
        "A trailing space names another program",
    ],
    "test_what_is_signed_is_shown_to_the_letter": [
        "Invisible characters",
    ],
    "test_a_yes_is_for_the_run_that_was_shown": [
        "An approval is replayed in another environment",
        "“Always allow” widens",
        "A writer signals another tenant's run",
    ],
    "test_whoever_is_not_listed_does_not_begin": [
        "A scope for chat can approve",
        "An empty list of approvers approves everything",
    ],
    "test_a_graph_asks_two_things_each_with_forms_of_its_own": [
        "One *Resume* releases two branches",
    ],
    "test_a_link_is_dead_after_one_use_a_minute_a_newer_one_or_five_wrong_tries": [
        "A token is stolen through the address",
    ],
    "test_an_attack_is_refused_and_without_its_one_thing_gets_in": [
        "A path that ends in “health” skips the check",
        "CSRF: another page sends our form",
        "DNS rebinding, clickjacking",
    ],
    "test_a_websocket_of_another_server_is_closed_before_it_opens": [
        "A WebSocket without authentication",
    ],
    "test_another_server_on_this_machine_gets_nothing": [
        "Another server on localhost",
    ],
    "test_nothing_of_an_agent_hides_or_runs": [
        "HTML in an argument, a name, an error",
    ],
    "test_double_click_and_replay": [
        "Two tabs, a double click, a form sent again",
    ],
    "test_two_tabs_and_two_places": [
        "Two tabs, a double click, a form sent again",
    ],
    "test_flaws_of_other_consoles": [
        "A stale page: the run has moved on",
    ],
}


def test_each_attack_on_the_page_is_held_by_a_test() -> None:
    page = (ROOT / "docs" / "console.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| attack | seen at | here |\n|---|---|---|\n")
    rows = [row.split(" | ")[0].removeprefix("| ") for row in table.split("\n\n")[0].splitlines()]
    sources = [file.read_text(encoding="utf-8") for file in ROOT.glob("tests/*/test_console*.py")]
    there = set(re.findall(r"^def (test_\w+)", "\n".join(sources), re.MULTILINE))
    assert sorted(rows) == sorted({row for held in HOLDS.values() for row in held})
    assert HOLDS.keys() <= there
