"""The error tree, as it behaves. That it is drawn as it is, its docstring's block checks."""

from __future__ import annotations

import pickle

import pytest

import safepoint
from safepoint import CheckpointError, errors

TREE = [
    error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, CheckpointError)
]


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
def test_an_error_is_documented_and_survives_a_process_boundary(
    error: type[CheckpointError],
) -> None:
    assert error.__doc__
    raised = pickle.loads(pickle.dumps(error("It broke.", "Mend it.")))
    assert str(raised) == "It broke. Mend it."
    assert (raised.what, raised.do) == ("It broke.", "Mend it.")


def test_the_root_has_few_names_and_ten_errors() -> None:
    exported = {name: getattr(safepoint, name) for name in safepoint.__all__}
    assert len(exported) == len(safepoint.__all__) <= 40
    assert sum(value in TREE for value in exported.values()) == 10


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\nb", r"'a\nb'"),
        ("\u202egnp", r"'\u202egnp'"),
        (None, "None"),
        ("x" * 300, "'" + "x" * 56 + "..."),
    ],
)
def test_a_value_from_outside_is_shown_on_one_short_ascii_line(value: object, shown: str) -> None:
    assert errors.quoted(value) == shown
    assert len(errors.quoted(value)) <= 60


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    assert errors.quoted(10**5000) == "<int>"
