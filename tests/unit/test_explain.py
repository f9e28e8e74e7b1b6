"""Every error has an explanation, a place on the site, and says where that is."""

from __future__ import annotations

import ast
import copy
import importlib
import pickle
import pkgutil
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

import safepoint
from publish.errors import markdown, sections
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
# Those that only hold others together. All others are raised somewhere in the package.
ROOTS = {"CheckpointError"}
# No page shows these by name yet: what is listed for them teaches what they are about.
NOT_SHOWN = {"MissingPackage"}


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
    """Import all of it, and look at who is below the root. Only roots are never raised."""
    for module in pkgutil.walk_packages(safepoint.__path__, "safepoint."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    own = {kind for kind in below(CheckpointError) if kind.__module__.startswith("safepoint")}
    assert own | {CheckpointError} == set(TREE)
    assert {name: found.error for name, found in EXPLANATIONS.items()} == {
        kind.__name__: kind for kind in TREE
    }
    called = {
        node.id if isinstance(node, ast.Name) else node.attr
        for file in (ROOT / "src").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(node := call.func, ast.Name | ast.Attribute)
    }
    assert {kind.__name__ for kind in TREE} - called == ROOTS


@pytest.mark.parametrize("found", EXPLANATIONS.values(), ids=lambda found: found.name)
def test_an_explanation_is_fit_to_be_read_and_printed_whole(
    found: Explanation, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = (found.says, found.means, found.first, *found.causes)
    for text in texts:
        assert text.endswith(".")
        assert "\n" not in text
        assert text.count("`") % 2 == 0
        assert not re.search(r"\b(simply|just|easily)\b|!|  ", text)
    assert 2 <= len({*found.causes}) == len(found.causes) <= 6
    assert 1 <= len(found.pages) <= 6
    assert not found.causes[0].startswith("Attack:")
    assert found.says not in found.means
    assert {*re.findall(r"`safepoint ([\w-]+)", found.first)} <= {*COMMANDS}
    for name in re.findall(r"`([A-Z][a-z]+[A-Z][A-Za-z]*)`", " ".join(texts[1:])):
        assert name in EXPLANATIONS or hasattr(safepoint, name) or hasattr(models, name)
    assert len({*found.rules} & {*RULES}) == len(found.rules)
    assert found.rules
    assert main(["explain", found.name.upper()]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("".join(f"{line}\n" for line in lines_of(found)), "")
    for text in (*texts, found.address, *found.rules):
        assert text.lower() in out.lower()


def test_the_pages_that_are_named_are_there_and_show_the_error() -> None:
    shown = set()
    for found in EXPLANATIONS.values():
        for page in found.pages:
            src, _, anchor = page.partition("#")
            assert anchor in sections(PROJECT.pages[src].text), (found.name, src)
            if re.search(rf"\b{found.name}\b", PROJECT.pages[src].text):
                shown.add(found.name)
    assert {*EXPLANATIONS} - shown == NOT_SHOWN


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
    lines = traceback.format_exception_only(kind("It broke.", "Mend it."))
    assert lines[-1] == f"{note(named)}\n"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\nb", r"'a\nb'"),
        ("\u202egnp", r"'\u202egnp'"),
        (None, "None"),
        ("x" * 300, "'" + "x" * 56 + "..."),
        pytest.param(10**5000, "<int>", id="large"),
    ],
)
def test_a_value_from_outside_is_shown_on_one_short_ascii_line(value: object, shown: str) -> None:
    assert errors.quoted(value) == shown
    assert len(errors.quoted(value)) <= 60


# --- The command


def test_several_names_are_explained_in_order_and_none_lists_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "RolledBack", "nobody", "Conflict"]) == 2
    out, err = capsys.readouterr()
    parts = [list(lines_of(explanation(name))) for name in ("RolledBack", "Conflict")]
    assert out.splitlines() == [*parts[0], "", *parts[1]]
    assert err == "There is no error 'nobody'. List them all: safepoint explain\n"
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0] for line in lines if line.startswith("  ")}
    assert listed == {*EXPLANATIONS, *RULES, *CHECKS}
    for name, each in IDS.items():
        assert main(["explain", name.lower()]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"{each.rule}.{name.lower()} ")
        assert f"Code, for this: {each.title}.\nDo: {each.fix}\n" in out


def test_a_rule_leads_to_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("sp12", "rules/#sp12", "SP12: Sign every checkpoint"):
        assert main(["explain", name]) == 0
        assert capsys.readouterr().out == (
            "SP12: Sign every checkpoint, bound to its place\n"
            f"{RULES['SP12'].callout}\n"
            "On the site:\n"
            "  - rules/#sp12\n"
            "  - security/seal/\n"
        )


def test_each_finding_of_the_audit_is_explained_by_its_id(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = fill(PROJECT.pages["command/checks.md"].text, PROJECT)
    anchors = set(re.findall(r"\{ #([\w.-]+) \}", page))
    for name, check in CHECKS.items():
        shown = name.replace("any.", "SP04.")
        assert main(["explain", shown.upper()]) == 0
        out = capsys.readouterr().out
        begin = (
            f"{shown} ({check.severity}): {check.says}\nLooks at: {check.looks}\nDo: {check.do}\n"
        )
        assert out.startswith(begin)
        assert check.refusal or "{" not in begin
        assert f"\nOn the site:\n  - {check.address}\n" in out
        assert check.address.removeprefix("command/checks/#") in anchors
        rule = shown.partition(".")[0]
        assert (f"  - rules/#{rule.lower()}\n" in out) == (rule in RULES)
        assert (check.refusal is not None) == ("  - errors/#" in out)


def test_a_finding_is_found_as_it_is_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    for pasted, begin in {
        " safepoint.core.errors.SEALBROKEN: The state of order-7 #2 is not": "SealBroken",
        "https://example.org/some/folder/errors/#sealbroken": "SealBroken",
        "SP04.mode error: /x can be read by others": "SP04.mode (error): PATH can be read by ",
        "https://example.org/command/checks/#any.unseen": "any.unseen (warning): PATH could ",
        "SP12.seal-broken": "SP12.seal-broken (error): A record is not what was sealed for ",
        "SP23.sl01": "SP23.sl01 (warning): PLACE has SL01: ",
        "audit.expired": "audit.expired (warning): What PATH accepts of ID at PLACE is over ",
    }.items():
        assert main(["explain", pasted]) == 0
        assert capsys.readouterr().out.startswith(begin)
    for unknown, said in {
        "SP04.mod": "There is no finding 'SP04.mod'. Near it: SP04.mode, ",
        "Seelbroken": "There is no error 'Seelbroken'. Near it: SealBroken.",
        "\u202egnp": r"There is no error '\u202egnp'. List them all: ",
    }.items():
        assert main(["explain", unknown]) == 2
        assert capsys.readouterr().err.startswith(said)


# --- The page


def test_the_page_has_each_error_once() -> None:
    text = markdown(PROJECT)
    assert re.findall(r'^<div class="fold" id="(\w+)" markdown>$', text, re.MULTILINE) == [
        found.address.removeprefix("errors/#") for found in EXPLANATIONS.values()
    ]
    for found in EXPLANATIONS.values():
        assert f"### {found.name} {{ #safepoint.core.errors.{found.name} }}\n" in text
        kind = f", a kind of [{found.parent}](#{str(found.parent).lower()})" if found.parent else ""
        assert f"\n`safepoint.core.errors.{found.name}`{kind}\n\n{found.says}\n" in text
    assert "- `error.question`: what to approve or deny, exactly" in text
    assert "<!-- fill errors -->" in PROJECT.pages["errors.md"].text
