"""Thread names out of free text: none shared, all within the grammar, the text given back."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from safepoint.core.names import check_name, thread_name, thread_text
from tests.vectors import FOLDER

PUBLISHED = json.loads((FOLDER / "names.json").read_text())["vectors"]
VECTORS = {vector["text"]: vector["thread"] for vector in PUBLISHED if "text" in vector}
# Short, of few letters, and often like a name that was made: what could collide at all.
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.text("tbh-_04aA\0ü", max_size=80),
    st.builds(str.__add__, st.sampled_from(["t--", "b--", "h--"]), st.text("abc27_-", max_size=61)),
    st.sampled_from([*VECTORS, *VECTORS.values(), "CON", "\ud800", "é", "e\u0301"]),
)


@given(TEXTS, TEXTS)
@example("K", "k")  # one folder, if a name had both, on a file system without cases
@example("\u212a", "k")
def test_no_two_texts_have_one_name_and_each_is_given_back(one: str, other: str) -> None:
    names = [check_name("thread", thread_name(text)) for text in (one, other)]
    assert (names[0] == names[1]) is (one == other)
    assert thread_name(names[0]) != names[0] or names[0] == one  # nor a text that looks like one
    assert thread_text(names[0]) == (None if names[0].startswith("h--") else one)
    assert not names[0].startswith("h--") or len(one.encode("utf-8", "surrogatepass")) > 38


@given(TEXTS)
def test_a_name_that_was_made_of_nothing_has_no_text(name: str) -> None:
    text = thread_text(name)
    assert text is None or thread_name(text) == name


def test_what_is_no_text_is_no_name_of_one() -> None:
    assert [thread_text(name) for name in (7, None, b"t--a")] == [None] * 3  # type: ignore[arg-type]
