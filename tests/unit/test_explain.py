"""Every error has an explanation, a place on the site, and says where that is."""

from __future__ import annotations

import ast
import copy
import importlib
import pickle
import pkgutil
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import safepoint
from publish.errors import markdown, sections
from publish.project import BrokenPage, Project
from safepoint import (
    ApprovalNeeded,
    CheckpointError,
    NotFound,
    SealBroken,
    errors,
    explain,
    models,
)
from safepoint.cli import COMMANDS
from safepoint.cli import main as safepoint_main
from safepoint.explain import EXPLANATIONS, FAMILIES, Explanation, explanation, lines_of
from safepoint.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
TREE = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, CheckpointError)
]
PROJECT = Project(ROOT)
PAGES = [(found, page) for found in EXPLANATIONS.values() for page in found.pages]

# Those that only hold others together. All others are raised somewhere in the package.
ROOTS = {
    "CheckpointError",
    "SealError",
    "AnchorError",
    "StorageError",
    "ResumeError",
    "ApprovalError",
    "JournalError",
}
# No page shows these by name yet: what is listed for them teaches what they are about.
NOT_SHOWN = {
    "ApprovalExpired",
    "ApprovalMalformed",
    "ApprovalUntrusted",
    "JournalError",
    "MissingPackage",
    "ResumeError",
    "StorageError",
    "StorageFull",
    "WorkflowError",
    "WorkflowMismatch",
}

each_explanation = pytest.mark.parametrize(
    "found", EXPLANATIONS.values(), ids=lambda found: found.name
)


class OfAnApplication(SealBroken):
    """An error that somebody built on one of ours."""


class WithASignatureOfItsOwn(CheckpointError):
    """One that calls the constructor in its own way."""

    def __init__(self, order: int) -> None:
        super().__init__(f"Order {order} is refused.", "Ask Dana.")


def main(arguments: list[str]) -> int:
    return safepoint_main(["explain", *arguments])


def below(kind: type[CheckpointError]) -> Iterator[type[CheckpointError]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def note(name: str) -> str:
    address = f"errors/#{name.lower()}"
    return f"Explained by: safepoint explain {name} (on the site: {address})"


# --- The data ------------------------------------------------------------------------------------


def test_every_error_is_explained_and_nothing_else() -> None:
    assert set(EXPLANATIONS) == {kind.__name__ for kind in TREE}
    assert all(explanation(kind.__name__).error is kind for kind in TREE)


def test_no_module_of_the_package_has_an_error_that_is_not_in_the_tree() -> None:
    """Import all of them, and look at who is below the root."""
    for module in pkgutil.walk_packages(safepoint.__path__, "safepoint."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    own = {kind for kind in below(CheckpointError) if kind.__module__.startswith("safepoint")}
    assert own | {CheckpointError} == set(TREE)


def test_only_roots_are_never_raised() -> None:
    """What is explained as an error of its own is one."""
    called = {
        node.id if isinstance(node, ast.Name) else node.attr
        for file in (ROOT / "src").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(node := call.func, ast.Name | ast.Attribute)
    }
    assert {kind.__name__ for kind in TREE} - called == ROOTS


@each_explanation
def test_an_explanation_is_fit_to_be_read(found: Explanation) -> None:
    assert found.says.endswith(".")
    assert found.means.endswith(".")
    assert found.first.endswith(".")
    assert 2 <= len(found.causes) <= 4
    assert 1 <= len(found.pages) <= 4
    assert not found.causes[0].startswith("Attack:")
    assert all(cause.endswith(".") for cause in found.causes)
    for text in (found.says, found.means, found.first, *found.causes):
        assert "\n" not in text
        assert text.count("`") % 2 == 0
        assert not re.search(r"\b(simply|just|easily)\b|!|  ", text)
    assert found.says not in found.means
    assert len(set(found.causes)) == len(found.causes)


@each_explanation
def test_what_to_do_begins_with_a_verb_and_names_commands_that_exist(found: Explanation) -> None:
    assert found.first.split()[0] not in {"The", "This", "It", "You", "If", "There"}
    assert {*re.findall(r"`safepoint ([\w-]+)", found.first)} <= {*COMMANDS}


def test_options_of_the_audit_are_those_that_it_takes() -> None:
    known = set(
        re.findall(r"\"(--[\w-]+)\"", (ROOT / "src/safepoint/audit/command.py").read_text())
    )
    used = {
        option
        for found in EXPLANATIONS.values()
        for command in re.findall(r"`safepoint audit ([^`]*)`", found.first)
        for option in re.findall(r"--[\w-]+", command)
    }
    assert used
    assert used <= known


@each_explanation
def test_other_errors_that_it_names_are_there(found: Explanation) -> None:
    text = " ".join((found.means, found.first, *found.causes))
    for name in re.findall(r"`([A-Z][a-z]+[A-Z][A-Za-z]*)`", text):
        assert name in EXPLANATIONS or hasattr(safepoint, name) or hasattr(models, name)


def test_only_mistakes_in_a_step_hold_up_no_rule() -> None:
    assert [found.name for found in EXPLANATIONS.values() if not found.rules] == ["WorkflowError"]


@each_explanation
def test_rules_are_there_and_named_once(found: Explanation) -> None:
    assert set(found.rules) <= set(RULES)
    assert len(set(found.rules)) == len(found.rules)


@pytest.mark.parametrize(("found", "page"), PAGES, ids=[f"{f.name}-{page}" for f, page in PAGES])
def test_a_page_and_its_section_are_there(found: Explanation, page: str) -> None:
    src, _, anchor = page.partition("#")
    assert anchor in sections(PROJECT.pages[src].text)


def test_pages_that_are_named_show_the_error() -> None:
    """One of them has its name: a block that raises it, or a sentence about it."""
    shown = {
        found.name
        for found, page in PAGES
        if re.search(rf"\b{found.name}\b", PROJECT.pages[page.partition("#")[0]].text)
    }
    assert set(EXPLANATIONS) - shown == NOT_SHOWN


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = [", "Invalid value (at end of document); mend it"),
        ("\nx = 1\nSeal = y", "Invalid value (at line 3, column 8); mend it"),
        ("[families]\nCheckpointError = 'x'", "CheckpointError lacks 'CheckpointError'; add it"),
        (
            "[families]\nCheckpointError = 'x'\n[CheckpointError]\nmeans = 'x'",
            "CheckpointError lacks 'causes'; add it",
        ),
    ],
)
def test_a_broken_file_is_named(
    text: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "errors.toml").write_text(text)
    monkeypatch.setattr("safepoint.rules.resources.files", lambda _: tmp_path)
    with pytest.raises(ValueError, match=r"^src/safepoint/errors\.toml: ") as caught:
        explain._read()
    assert str(caught.value) == f"src/safepoint/errors.toml: {line}"


def test_every_family_has_its_root_and_more() -> None:
    for root in FAMILIES:
        inside = [found.name for found in EXPLANATIONS.values() if found.family == root]
        assert inside[0] == root
        assert len(inside) > 1
    assert explanation("ThreadDeleted").family == "CheckpointError"
    assert explanation("ApprovalSpent").family == "ResumeError"


def test_a_kind_of_ours_is_not_called_a_kind_of_an_error_of_python() -> None:
    """MissingPackage is an ImportError as well."""
    assert explanation("MissingPackage").parent == "CheckpointError"
    assert explanation("CheckpointError").parent is None
    assert {found.parent for found in EXPLANATIONS.values()} - {None} <= set(EXPLANATIONS)


# --- The message carries its address -------------------------------------------------------------


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_an_error_carries_its_address_and_its_message_stays(kind: type[CheckpointError]) -> None:
    error = kind("It broke.", "Mend it.")
    assert str(error) == "It broke. Mend it."
    assert error.args == ("It broke.", "Mend it.")
    assert error.__notes__ == [note(kind.__name__)]
    assert error.address == f"errors/#{kind.__name__.lower()}"
    assert error.address == explanation(kind.__name__).address


def test_a_traceback_ends_with_where_it_is_explained() -> None:
    lines = traceback.format_exception_only(SealBroken("It broke.", "Mend it."))
    assert lines == ["safepoint.errors.SealBroken: It broke. Mend it.\n", note("SealBroken") + "\n"]


def test_an_error_of_an_application_leads_to_the_one_it_is_built_on() -> None:
    error = OfAnApplication("It broke.", "Mend it.")
    assert error.address == "errors/#sealbroken"
    assert error.__notes__ == [note("SealBroken")]
    assert WithASignatureOfItsOwn(7).__notes__ == [note("CheckpointError")]


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(copy.copy, id="copy"),
        pytest.param(copy.deepcopy, id="deepcopy"),
        pytest.param(lambda error: pickle.loads(pickle.dumps(error)), id="pickle"),
        pytest.param(
            lambda error: pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error)))),
            id="pickle-twice",
        ),
    ],
)
@pytest.mark.parametrize("kind", [SealBroken, ApprovalNeeded, OfAnApplication])
def test_a_copy_has_the_note_once_and_keeps_other_notes(
    again: Callable[[CheckpointError], CheckpointError], kind: type[CheckpointError]
) -> None:
    error = kind("It broke.", "Mend it.")
    error.add_note("While order-7 was paid.")
    copied = again(error)
    assert copied.__notes__ == error.__notes__
    assert len(copied.__notes__) == 2
    assert copied.address == error.address


def test_an_error_that_is_raised_again_has_the_note_once() -> None:
    error = SealBroken("It broke.", "Mend it.")
    for _ in range(2):
        with pytest.raises(SealBroken) as caught:
            raise error
    assert caught.value.__notes__ == [note("SealBroken")]


def test_an_error_from_before_there_were_notes_is_still_read() -> None:
    """What a process of an older version sends has a state without them."""
    error = SealBroken("It broke.", "Mend it.")
    reduced: tuple[Any, ...] = tuple(error.__reduce__())
    maker, arguments, state = reduced
    del state["__notes__"]
    old = maker(*arguments)
    old.__setstate__(state)
    assert old.__notes__ == [note("SealBroken")]


# --- The command ---------------------------------------------------------------------------------


@each_explanation
def test_the_command_says_all_of_it(found: Explanation, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([found.name.upper()]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out == "".join(f"{line}\n" for line in lines_of(found))
    for text in (found.says, found.means, *found.causes, found.first, found.address, *found.rules):
        assert text.lower() in out.lower()


def test_it_reads_like_this(capsys: pytest.CaptureFixture[str]) -> None:
    main(["KeyRevoked"])
    assert capsys.readouterr().out == (
        "KeyRevoked (a kind of SealError): The record is sealed by a key that was revoked before"
        " this record's place.\n"
        "The seal itself is right. It does not count, since you said from which point on that key"
        " may be in somebody else's hands.\n"
        "What may be behind it:\n"
        "  - A worker that you forgot still saves with the old key.\n"
        "  - The anchor that says how far the key counts is from too long ago.\n"
        "  - You pruned with that key, so the base of the thread is sealed by it.\n"
        "  - Attack: the thief of the key writes records with it.\n"
        "First: Find out whether one of your workers wrote it: the journal names who did. Restore"
        " what was there before, and save with the new key. Do not take the key off the list of"
        " revoked ones.\n"
        "On the site:\n"
        "  - errors/#keyrevoked\n"
        "  - security/rotation/#the-refusal\n"
        "  - security/rotation/#revoke-a-stolen-key\n"
        "  - rules/#sp08: Rotate credentials and keys when anything looks off\n"
    )


def test_without_a_name_it_lists_every_error_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == [
        found.name for root in FAMILIES for found in EXPLANATIONS.values() if found.family == root
    ]
    assert [line for line in lines[:-1] if not line.startswith("  ")] == list(FAMILIES.values())
    assert lines[-1] == "Explain one: safepoint explain NAME"


def test_several_names_are_explained_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["Forked", "nobody", "Conflict"]) == 2
    out, err = capsys.readouterr()
    parts = [list(lines_of(explanation(name))) for name in ("Forked", "Conflict")]
    assert out.splitlines() == [*parts[0], "", *parts[1]]
    assert err == "There is no error 'nobody'. List them all: safepoint explain\n"


@pytest.mark.parametrize(
    "name",
    [
        "SealBroken",
        "sealbroken",
        " SEALBROKEN ",
        "safepoint.errors.SealBroken",
        "SealBroken:",
        "safepoint.errors.SealBroken: The state of order-7 #2 is not the one. Nothing was decoded.",
        "errors/#sealbroken",
        "errors/#safepoint.errors.SealBroken",
        "https://example.org/some/folder/errors/#sealbroken",
        "Explained by: safepoint explain SealBroken (on the site: errors/#sealbroken)",
    ],
)
def test_a_name_is_found_as_it_is_pasted(name: str) -> None:
    assert explanation(name).error is SealBroken


@pytest.mark.parametrize(
    "pasted",
    [
        "InvalidId: the thread name 'errors/#notfound' is not allowed (errors/#invalidid)",
        "  safepoint.errors.InvalidId: 'NotFound: errors/#notfound' (see errors/#notfound)",
        "Refused 'errors/#notfound'. Explained on the site: errors/#invalidid",
        'Traceback:\n  File "a.py"\nsafepoint.NotFound: x\n\nInvalidId: errors/#notfound\nNoted.',
    ],
)
def test_what_a_message_quotes_is_not_what_is_explained(pasted: str) -> None:
    assert explanation(pasted).name == "InvalidId"


@pytest.mark.parametrize("name", ["SP12", "sp12", "rules/#sp12", "SP12: Sign every checkpoint"])
def test_a_rule_leads_to_its_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 0
    assert capsys.readouterr().out == (
        "SP12: Sign every checkpoint, bound to its place\n"
        f"{RULES['SP12'].callout}\n"
        "On the site:\n"
        "  - rules/#sp12\n"
        "  - security/seal/\n"
    )
    with pytest.raises(NotFound, match=r"^There is no error 'SP12'"):
        explanation("SP12")


def test_a_rule_without_a_page_leads_to_the_list_of_rules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert RULES["SP09"].page is None
    main(["SP09"])
    assert capsys.readouterr().out.endswith("On the site:\n  - rules/#sp09\n")


@pytest.mark.parametrize(
    ("name", "do"),
    [
        ("'Seelbroken'", "Near it: SealBroken, JournalBroken."),
        ("'rolledback2'", "Near it: RolledBack."),
        ("'journal'", "Near it: JournalError, JournalBroken, JournalUnavailable."),
        ("''", "List them all: safepoint explain"),
        ("'ValueError'", None),
        (r"'a\nb'", "List them all: safepoint explain"),
        (r"'\u202egnp'", "List them all: safepoint explain"),
    ],
)
def test_an_unknown_name_is_one_line_with_what_is_near(
    name: str, do: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([ast.literal_eval(name)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.isascii()
    assert err.startswith(f"There is no error {name}. ")
    if do is not None:
        assert err == f"There is no error {name}. {do}\n"


@pytest.mark.parametrize("letters", ["x", "x.", "x ", ".", " ", "\n", "x\n", "errors/#"])
def test_a_name_of_a_megabyte_is_refused_at_once(letters: str) -> None:
    with pytest.raises(NotFound) as caught:
        explanation(letters * (1_000_000 // len(letters)))
    assert len(str(caught.value)) < 200


# --- The page ------------------------------------------------------------------------------------


def test_the_page_has_each_error_once_under_its_family() -> None:
    text = markdown(PROJECT)
    assert re.findall(r'^<div class="error" id="(\w+)" markdown>$', text, re.MULTILINE) == [
        found.address.removeprefix("errors/#")
        for root in FAMILIES
        for found in EXPLANATIONS.values()
        if found.family == root
    ]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(FAMILIES.values())
    for found in EXPLANATIONS.values():
        assert f"### {found.name} {{ #safepoint.errors.{found.name} }}\n" in text
        kind = f", a kind of [{found.parent}](#{str(found.parent).lower()})" if found.parent else ""
        assert f"\n`safepoint.errors.{found.name}`{kind}\n\n{found.says}\n" in text
    assert "- `error.question`: what to approve or deny, exactly" in text
    assert "```" not in text
    assert "<!-- fill errors -->" in PROJECT.pages["errors.md"].text


def test_a_section_that_is_gone_stops_the_build_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = Project(ROOT)
    gone = {src: page for src, page in project.pages.items() if src != "security/chain.md"}
    monkeypatch.setitem(project.__dict__, "pages", gone)
    with pytest.raises(BrokenPage) as caught:
        markdown(project)
    assert str(caught.value) == (
        "src/safepoint/errors.toml: WrongPlace names security/chain.md#the-refusal, which is not"
        " there; correct it"
    )
