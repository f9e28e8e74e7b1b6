"""Every error has an explanation, a place on the site, and says where that is."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import safepoint
from publish.fill import fill
from publish.project import Project
from safepoint import CheckpointError, SealBroken, models
from safepoint.audit.catalogue import CHECKS
from safepoint.command.cli import COMMANDS, main
from safepoint.command.explain import explanation, lines_of
from safepoint.core import errors
from safepoint.models.lint import IDS
from safepoint.rules import RULES
from safepoint.shared.explanations import EXPLANATIONS, Explanation

ROOT = Path(__file__).resolve().parents[2]
TREE = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, CheckpointError)
]
PROJECT = Project(ROOT)
# No page shows these by name yet: what is listed for them teaches what they are about.


class OfAnApplication(SealBroken):
    """An error that somebody built on one of ours."""


def below(kind: type[CheckpointError]) -> Iterator[type[CheckpointError]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def note(name: str) -> str:
    return f"Explained by: safepoint explain {name} (on the site: errors/#{name.lower()})"


# --- The data


def test_every_error_of_the_package_is_in_the_tree_and_explained() -> None:
    """Import all of it, and look at who is below the root."""
    for module in pkgutil.walk_packages(safepoint.__path__, "safepoint."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    own = {kind for kind in below(CheckpointError) if kind.__module__.startswith("safepoint")}
    assert own | {CheckpointError} == set(TREE)
    assert {name: found.error for name, found in EXPLANATIONS.items()} == {
        kind.__name__: kind for kind in TREE
    }


@pytest.mark.parametrize("found", EXPLANATIONS.values(), ids=lambda found: found.name)
def test_an_explanation_is_printed_whole_and_names_what_there_is(
    found: Explanation, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = (found.says, found.means, found.first, *found.causes)
    assert {*re.findall(r"`safepoint ([\w-]+)", found.first)} <= {*COMMANDS}
    for name in re.findall(r"`([A-Z][a-z]+[A-Z][A-Za-z]*)`", " ".join(texts[1:])):
        assert name in EXPLANATIONS or hasattr(safepoint, name) or hasattr(models, name)
    assert found.rules
    assert {*found.rules} <= {*RULES}
    assert main(["explain", found.name.upper()]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("".join(f"{line}\n" for line in lines_of(found)), "")
    for text in (*texts, found.address, *found.rules):
        assert text.lower() in out.lower()


# --- The message carries its address


@pytest.mark.parametrize("kind", [*TREE, OfAnApplication], ids=lambda kind: kind.__name__)
def test_an_error_carries_its_address_once_and_its_message_stays(
    kind: type[CheckpointError],
) -> None:
    assert kind.__doc__
    named = "SealBroken" if kind is OfAnApplication else kind.__name__
    error = kind("It broke.", "Mend it.")
    error.add_note("While order-7 was paid.")
    sent = pickle.loads(pickle.dumps(error))
    for each in (error, copy.copy(error), copy.deepcopy(error), sent, copy.copy(sent)):
        assert (str(each), each.args) == ("It broke. Mend it.", ("It broke.", "Mend it."))
        assert (each.what, each.do) == each.args
        assert each.__notes__ == [note(named), "While order-7 was paid."]
        assert each.address == explanation(named).address


# --- The command


def test_all_is_listed_and_each_finding_of_code_has_its_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0] for line in lines if line.startswith("  ")}
    assert listed == {*EXPLANATIONS, *RULES, *CHECKS}
    for name, each in IDS.items():
        assert main(["explain", name.lower()]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"{each.rule}.{name.lower()} ")
        assert f"Code, for this: {each.title}.\nDo: {each.fix}\n" in out


def test_each_finding_of_the_audit_is_explained_by_its_id(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = fill(PROJECT.pages["command/checks.md"].text, PROJECT)
    anchors = set(re.findall(r"\{ #([\w.-]+) \}", page))
    for name, check in CHECKS.items():
        shown = name.replace("any.", "SP04.")
        assert main(["explain", shown.upper()]) == 0
        out = capsys.readouterr().out
        assert out.startswith(
            f"{shown} ({check.severity}): {check.says}\nLooks at: {check.looks}\n"
        )
        assert f"\nOn the site:\n  - {check.address}\n" in out
        assert check.address.removeprefix("command/checks/#") in anchors
        rule = shown.partition(".")[0]
        assert (f"  - rules/#{rule.lower()}\n" in out) == (rule in RULES)
        assert (check.refusal is not None) == ("  - errors/#" in out)
