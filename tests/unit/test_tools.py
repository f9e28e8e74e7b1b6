"""Tools: one spelling and one digest for each tool set, and what became of it."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from safepoint.codec import Codec
from safepoint.errors import ConfigurationError, EncodeError, LimitExceeded
from safepoint.names import is_digest
from safepoint.tools import Changes, Tool, ToolSet

SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
MAIL = Tool("mail", version="1", permissions=["send", "read"], schema=SCHEMA)
FIELDS = "The fields of a tool are name, permissions, schema, version."
WRITE = 'Write {"name": "mail", "permissions": ["send"]}.'
NOT_DESCRIBED = (
    "This is not the description of a tool set. Give from_described what ToolSet.described gave."
)

# Few letters, so that two tool sets often have a tool in common.
words = st.text("ab:/", min_size=1, max_size=2)
schemas: st.SearchStrategy[Any] = st.sampled_from(
    [None, {}, [], {"a": 1, "b": [2]}, {"a": 1, "b": [3]}, "", 0, False]
)
tools = st.builds(
    Tool,
    st.sampled_from("abcd"),
    version=st.sampled_from(["", "1", "2"]),
    permissions=st.sets(words, max_size=4),
    schema=schemas,
)
tool_lists = st.lists(tools, unique_by=lambda tool: tool.name, max_size=4)
tool_sets = tool_lists.map(ToolSet)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab$:", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab$"), inner, max_size=3),
)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        call()
    return str(caught.value)


def test_a_tool_keeps_what_it_was_given_and_only_the_digest_of_the_schema() -> None:
    expected = f"sha256:{hashlib.sha256(Codec().encode(SCHEMA)).hexdigest()}"
    assert (MAIL.name, MAIL.version, MAIL.permissions) == ("mail", "1", ("read", "send"))
    assert MAIL.schema == expected
    assert MAIL.described == {
        "name": "mail",
        "permissions": ["read", "send"],
        "schema": expected,
        "version": "1",
    }


def test_no_schema_is_not_the_same_as_an_empty_one() -> None:
    without, empty = Tool("mail"), Tool("mail", schema={})
    assert without.schema is None
    assert is_digest(empty.schema)
    assert without != empty


def test_a_schema_that_is_changed_afterwards_changes_nothing() -> None:
    schema = copy.deepcopy(SCHEMA)
    tool = Tool("mail", version="1", permissions=["read", "send"], schema=schema)
    schema["required"] = []
    assert tool == MAIL


def test_a_digest_given_as_a_schema_is_not_taken_for_the_digest_of_one() -> None:
    """Otherwise, a tool could claim the schema of another without having it."""
    forged = Tool("mail", version="1", permissions=["read", "send"], schema=MAIL.schema)
    assert forged.schema != MAIL.schema
    assert forged != MAIL


@pytest.mark.parametrize("field", ["name", "version", "permissions", "schema", "described"])
def test_a_tool_does_not_change(field: str) -> None:
    with pytest.raises(AttributeError):
        setattr(MAIL, field, "bank")


def test_what_was_described_belongs_to_the_caller() -> None:
    MAIL.described["permissions"].append("delete")
    tools = ToolSet([MAIL])
    tools.described.append(Tool("bank").described)
    tools.described[0]["permissions"].append("delete")
    assert MAIL.permissions == ("read", "send")
    assert tools == ToolSet([MAIL])
    assert tools.described == [MAIL.described]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_a_copy_is_equal_and_hashes_alike(copied: Callable[[Any], Any]) -> None:
    tools = ToolSet([MAIL])
    assert copied(MAIL) == MAIL
    assert hash(copied(MAIL)) == hash(MAIL)
    assert copied(tools) == tools
    assert hash(copied(tools)) == hash(tools)


def test_neither_a_tool_nor_a_set_equals_something_else() -> None:
    assert MAIL != "mail"
    assert MAIL.described != MAIL
    assert ToolSet([MAIL]) != [MAIL]
    assert ToolSet([MAIL]) != ToolSet([MAIL]).digest


def test_the_repr_is_short() -> None:
    assert repr(MAIL) == "<Tool mail>"
    assert repr(ToolSet([MAIL, Tool("bank")])) == "<ToolSet bank, mail>"
    assert repr(ToolSet()) == "<ToolSet empty>"


class Permission(StrEnum):
    SEND = "send"


class OlderPermission(str, Enum):  # noqa: UP042  such enums are around, and their str() is another
    SEND = "send"


@pytest.mark.parametrize(
    "permissions",
    [["send"], ("send",), {"send"}, iter(["send", "send"]), Permission, OlderPermission],
)
def test_permissions_come_in_any_collection_and_count_once(permissions: Iterable[str]) -> None:
    kept = Tool("mail", permissions=permissions).permissions
    assert kept == ("send",)
    assert type(kept[0]) is str


@pytest.mark.parametrize("name", ["a", "A.b_c:d/e-1", "x" * 128])
def test_a_name_and_a_permission_may_be(name: str) -> None:
    assert Tool(name, permissions=[name]).permissions == (name,)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "''"),
        ("a b", "'a b'"),
        ("a\n", r"'a\n'"),
        ("*", "'*'"),
        ("mail@2", "'mail@2'"),
        ("m\u0430il", r"'m\u0430il'"),
        ("x" * 129, "'" + "x" * 56 + "..."),
        (b"mail", "b'mail'"),
        (None, "None"),
        (["mail"], "['mail']"),
    ],
)
def test_a_name_or_permission_outside_the_grammar_is_refused(name: Any, shown: str) -> None:
    grammar = "Use 1 to 128 of A-Z, a-z, 0-9 and . _ : / -"
    assert refusal(lambda: Tool(name)) == f"{shown} is not the name of a tool. {grammar}"
    assert refusal(lambda: Tool("bank", permissions=["pay", name])) == (
        f"{shown} is not the name of a permission of the tool bank. {grammar}"
    )


@pytest.mark.parametrize(
    ("permissions", "kind"),
    [
        ("send", "str"),
        (b"send", "bytes"),
        ({"send": False}, "dict"),
        (None, "NoneType"),
        (7, "int"),
    ],
)
def test_permissions_that_would_be_read_as_something_else_are_refused(
    permissions: Any, kind: str
) -> None:
    assert refusal(lambda: Tool("mail", permissions=permissions)) == (
        f"The permissions of the tool mail are {kind}, and must be a list."
        ' Write permissions=["read", "send"].'
    )


@pytest.mark.parametrize(
    ("version", "shown"), [(2, "2"), (None, "None"), ("1 2", "'1 2'"), ("1\n", r"'1\n'")]
)
def test_a_version_outside_the_grammar_is_refused(version: Any, shown: str) -> None:
    assert refusal(lambda: Tool("mail", version=version)) == (
        f"{shown} is not a version of the tool mail."
        " Use up to 128 of A-Z, a-z, 0-9 and . _ : / + - in a text."
    )
    assert Tool("mail", version="1.0.0-rc.1+build.5").version == "1.0.0-rc.1+build.5"


def test_a_schema_without_a_canonical_form_is_refused() -> None:
    assert refusal(lambda: Tool("mail", schema={"check": len})) == (
        "The schema of the tool mail cannot be encoded."
        " Give it as plain values, for example a JSON schema as a dict."
    )
    with pytest.raises(ConfigurationError) as caught:
        Tool("mail", schema={"check": len})
    assert isinstance(caught.value.__cause__, EncodeError)
    nested: Any = []
    for _ in range(100):
        nested = [nested]
    with pytest.raises(ConfigurationError) as caught:
        Tool("mail", schema=nested)
    assert isinstance(caught.value.__cause__, LimitExceeded)


def test_a_tool_out_of_a_settings_file() -> None:
    described = {"name": "mail", "version": "1", "permissions": ["send", "read"], "schema": SCHEMA}
    assert Tool.from_dict(described) == MAIL
    assert Tool.from_dict({"name": "mail"}) == Tool("mail")


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (
            {"name": "mail", "permision": ["send"]},
            f"A tool has no field 'permision'. {FIELDS}",
        ),
        (
            {"name": "mail", 7: "send"},
            f"A tool has no field 7. {FIELDS}",
        ),
        (
            {"permissions": ["send"]},
            f"The description of a tool has no name. {WRITE}",
        ),
        (
            [("name", "mail")],
            f"A tool is described by a mapping, and this is list. {WRITE}",
        ),
    ],
)
def test_a_settings_file_with_a_slip_is_refused(described: Any, message: str) -> None:
    assert refusal(lambda: Tool.from_dict(described)) == message


def test_a_set_is_in_the_order_of_its_names_and_finds_tools() -> None:
    bank = Tool("bank")
    tools = ToolSet(iter([MAIL, bank]))
    assert list(tools) == [bank, MAIL]
    assert len(tools) == 2
    assert tools["mail"] is MAIL
    assert "mail" in tools
    assert MAIL in tools
    assert Tool("mail") not in tools
    assert "Mail" not in tools
    assert not ToolSet()


def test_two_tools_of_one_name_are_refused_even_if_they_are_equal() -> None:
    message = "Two tools are named mail. Give each tool a name of its own."
    assert refusal(lambda: ToolSet([MAIL, Tool("mail")])) == message
    assert refusal(lambda: ToolSet([MAIL, MAIL])) == message


@pytest.mark.parametrize(
    ("given_tools", "kind"),
    [
        (MAIL, "Tool"),
        (["mail"], "str"),
        ("mail", "str"),
        ([{"name": "mail"}], "dict"),
        (None, "NoneType"),
    ],
)
def test_a_set_of_something_else_is_refused(given_tools: Any, kind: str) -> None:
    assert refusal(lambda: ToolSet(given_tools)) == (
        f"ToolSet takes tools, and was given {kind}."
        ' Write ToolSet([Tool("mail", permissions=["send"])]).'
    )


def test_the_digest_is_of_the_canonical_json() -> None:
    """A reader in another language gets the same one with a JSON library and SHA-256."""
    tools = ToolSet([MAIL, Tool("bank")])
    text = json.dumps(tools.described, sort_keys=True, separators=(",", ":"))
    assert text.startswith('[{"name":"bank","permissions":[],"schema":null,"version":""},{"name":')
    assert tools.digest == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    assert ToolSet().digest == f"sha256:{hashlib.sha256(b'[]').hexdigest()}"


def turned(value: Any) -> Any:
    """Return an equal value whose dicts were filled from the other end."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.lists(words, max_size=4), plain),
        unique_by=lambda entry: entry[0],
        max_size=4,
    ),
    st.randoms(use_true_random=False),
)
def test_no_order_changes_the_digest(
    entries: list[tuple[str, list[str], Any]], random: Any
) -> None:
    """Neither that of the tools, nor of the permissions, nor of the keys in a schema."""
    first = ToolSet(Tool(name, permissions=held, schema=schema) for name, held, schema in entries)
    random.shuffle(entries)
    for _, held, _ in entries:
        random.shuffle(held)
    second = ToolSet(
        Tool(name, permissions=held, schema=turned(schema)) for name, held, schema in entries
    )
    assert first.digest == second.digest
    assert first == second


OTHERS = [
    Tool("mail2", version="1", permissions=["send", "read"], schema=SCHEMA),
    Tool("mail", version="2", permissions=["send", "read"], schema=SCHEMA),
    Tool("mail", version="", permissions=["send", "read"], schema=SCHEMA),
    Tool("mail", version="1", permissions=["send"], schema=SCHEMA),
    Tool("mail", version="1", permissions=["send", "read", "list"], schema=SCHEMA),
    Tool("mail", version="1", permissions=["send:read"], schema=SCHEMA),
    Tool("mail", version="1", permissions=["send", "read"]),
    Tool("mail", version="1", permissions=["send", "read"], schema={**SCHEMA, "required": []}),
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda tool: str(list(tool.described.values())))
def test_any_field_changes_the_digest(other: Tool) -> None:
    assert ToolSet([other]).digest != ToolSet([MAIL]).digest
    assert other != MAIL


@pytest.mark.parametrize(
    "schema", [1, 1.0, True, "1", [1], (1,), {"1": 1}, {1: 1}, Decimal(1), b"1"], ids=repr
)
def test_a_schema_of_another_type_is_another_schema(schema: Any) -> None:
    """`1 == 1.0 == True` in Python, and to a tool they are not the same."""
    values = [1, 1.0, True, "1", [1], (1,), {"1": 1}, {1: 1}, Decimal(1), b"1"]
    digest = Tool("mail", schema=schema).schema
    assert [Tool("mail", schema=value).schema for value in values].count(digest) == 1


@given(tool_lists, tool_lists)
def test_two_sets_have_one_digest_only_if_they_are_described_alike(
    one: list[Tool], other: list[Tool]
) -> None:
    """So no name passes for a permission, a version or the beginning of the next tool."""
    first, second = ToolSet(one), ToolSet(other)
    alike = sorted(map(key, one)) == sorted(map(key, other))
    assert (first.digest == second.digest) is alike is (first == second)


def key(tool: Tool) -> tuple[str, str, tuple[str, ...], str]:
    return (tool.name, tool.version, tool.permissions, tool.schema or "")


@given(tool_sets)
def test_a_described_set_comes_back_as_it_was(tools: ToolSet) -> None:
    kept = Codec().decode(Codec().encode(tools.described))
    again = ToolSet.from_described(kept)
    assert again == tools
    assert again.digest == tools.digest
    assert again.described == tools.described
    assert list(again) == list(tools)


@given(plain | st.lists(st.dictionaries(st.sampled_from(["name", "permissions"]), plain)))
def test_whatever_else_is_refused(value: Any) -> None:
    assume(value != [])
    assert refusal(lambda: ToolSet.from_described(value)) == NOT_DESCRIBED


@given(tool_sets, st.data())
def test_a_description_with_one_value_replaced_is_itself_or_refused(
    tools: ToolSet, data: st.DataObject
) -> None:
    """What is accepted is described exactly as it was given: nothing is repaired or ignored."""
    described = tools.described
    assume(described)
    entry = data.draw(st.sampled_from(described))
    field = data.draw(st.sampled_from(["name", "permissions", "schema", "version", "extra"]))
    entry[field] = data.draw(plain | st.lists(words, max_size=3))
    try:
        again = ToolSet.from_described(described)
    except ConfigurationError:
        return
    assert again.described == described
    assert field != "extra"


def changed(**fields: Any) -> dict[str, Any]:
    return {**MAIL.described, **fields}


def lacking(field: str) -> dict[str, Any]:
    return {name: value for name, value in MAIL.described.items() if name != field}


class Sly(dict[str, Any]):
    """A dict that is not quite one."""


@pytest.mark.parametrize(
    "value",
    [
        None,
        "[]",
        b"[]",
        (),
        {},
        {"tools": []},
        (MAIL.described,),
        MAIL.described,
        [None],
        ["mail"],
        [[]],
        [{}],
        [MAIL],
        [Sly(MAIL.described)],
        [lacking("name")],
        [lacking("permissions")],
        [lacking("schema")],
        [lacking("version")],
        [changed(owner="anna")],
        [changed(name="")],
        [changed(name=None)],
        [changed(name="a b")],
        [changed(version=1)],
        [changed(version=None)],
        [changed(permissions=None)],
        [changed(permissions="send")],
        [changed(permissions=("read", "send"))],
        [changed(permissions={"read": True, "send": False})],
        [changed(permissions=["send", "read"])],
        [changed(permissions=["read", "read", "send"])],
        [changed(permissions=["read", 7])],
        [changed(permissions=["read", ["send"]])],
        [changed(schema="")],
        [changed(schema=SCHEMA)],
        [changed(schema=False)],
        [changed(schema="sha256:" + "A" * 64)],
        [changed(schema="md5:" + "a" * 64)],
        [changed(schema="sha256:" + "a" * 64 + "\n")],
        [MAIL.described, MAIL.described],
        [MAIL.described, changed(version="2")],
        [MAIL.described, Tool("bank").described],
    ],
    ids=repr,
)
def test_a_malformed_description_is_refused(value: Any) -> None:
    assert refusal(lambda: ToolSet.from_described(value)) == NOT_DESCRIBED


@given(tool_sets, tool_sets)
def test_changes_are_what_a_comparison_by_hand_finds(before: ToolSet, now: ToolSet) -> None:
    old = {tool.name: tool for tool in before}
    new = {tool.name: tool for tool in now}
    both = sorted(old.keys() & new.keys())
    held_before = {(name, word) for name in both for word in old[name].permissions}
    held_now = {(name, word) for name in both for word in new[name].permissions}
    changes = now.changes_from(before)
    assert changes.added == tuple(sorted(new.keys() - old.keys()))
    assert changes.removed == tuple(sorted(old.keys() - new.keys()))
    assert changes.changed == tuple(
        name
        for name in both
        if old[name].version != new[name].version or old[name].schema != new[name].schema
    )
    for found, expected in [
        (changes.widened, held_now - held_before),
        (changes.narrowed, held_before - held_now),
    ]:
        assert [(name, word) for name, held in found for word in held] == sorted(expected)
        assert len({name for name, _ in found}) == len(found)
        assert all(held for _, held in found)


@given(tool_sets, tool_sets)
def test_there_is_no_change_exactly_if_the_digests_are_equal(one: ToolSet, other: ToolSet) -> None:
    assert bool(one.changes_from(other)) is (one.digest != other.digest)


@given(tool_sets)
def test_a_set_has_not_changed_from_itself(tools: ToolSet) -> None:
    assert tools.changes_from(tools) == Changes()
    assert not tools.changes_from(ToolSet.from_described(tools.described))


@given(tool_sets, tool_sets)
def test_what_is_more_one_way_is_less_the_other_way(one: ToolSet, other: ToolSet) -> None:
    there, back = one.changes_from(other), other.changes_from(one)
    assert (there.added, there.changed, there.widened) == (
        back.removed,
        back.changed,
        back.narrowed,
    )


def test_a_permission_that_moves_to_another_tool_is_seen_at_both() -> None:
    before = ToolSet([Tool("bank", permissions=["pay"]), Tool("mail")])
    now = ToolSet([Tool("bank"), Tool("mail", permissions=["pay"])])
    assert now.changes_from(before) == Changes(
        widened=(("mail", ("pay",)),), narrowed=(("bank", ("pay",)),)
    )


def test_a_tool_under_another_name_is_a_new_tool() -> None:
    changes = ToolSet([Tool("Mail")]).changes_from(ToolSet([Tool("mail")]))
    assert changes == Changes(added=("Mail",), removed=("mail",))
