"""Tools: one description, one digest, and nothing that is taken for something else."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from safepoint import Tool, ToolSet
from safepoint.errors import ConfigurationError

MAIL = {"name": "mail", "permissions": ["read", "send"], "schema": None, "version": "2"}


class Power(StrEnum):
    READ = "read"


def test_a_tool_is_described_in_one_way() -> None:
    mail = Tool("mail", version="2", permissions=["send", "read", "send"])
    assert mail.described == MAIL
    assert mail == Tool.from_dict(MAIL) == Tool.from_dict({**MAIL, "permissions": {"read", "send"}})
    assert len({mail, Tool.from_dict(MAIL)}) == 1
    assert mail != Tool("mail", version="2", permissions=["read"])
    assert Tool("mail", permissions=[Power.READ]).described["permissions"] == ["read"]
    assert repr(mail) == "<Tool mail>"
    first, same, other = (Tool("a", schema=value) for value in ({"x": 1}, {"x": 1}, {"x": True}))
    assert first == same != other
    assert first.schema is not None
    assert first.schema.startswith("sha256:")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": ""}, "'' is not the name of a tool."),
        ({"name": "a b"}, "'a b' is not the name of a tool."),
        ({"name": "a\n"}, "'a\\n' is not the name of a tool."),
        ({"name": "x" * 129}, "is not the name of a tool."),
        ({"name": 7}, "7 is not the name of a tool."),
        ({"version": 2}, "2 is not a version of the tool mail."),
        ({"version": "2 "}, "'2 ' is not a version of the tool mail."),
        ({"permissions": "read"}, "The permissions of the tool mail are str, and must be a list."),
        ({"permissions": {"send": False}}, "The permissions of the tool mail are dict, and must"),
        ({"permissions": None}, "The permissions of the tool mail are NoneType, and must be"),
        ({"permissions": ["*"]}, "'*' is not the name of a permission of the tool mail."),
        ({"schema": object()}, "The schema of the tool mail cannot be encoded."),
        ({"permisions": []}, "A tool has no field 'permisions'."),
        ({"name": ...}, "The description of a tool has no name."),
    ],
)
def test_a_description_that_says_something_else_is_refused(given: Any, message: str) -> None:
    described = {key: value for key, value in {**MAIL, **given}.items() if value is not ...}
    with pytest.raises(ConfigurationError) as refusal:
        Tool.from_dict(described)
    assert message in refusal.value.what


def test_a_tool_set_has_each_name_once_in_one_order() -> None:
    bank, mail = Tool("bank"), Tool.from_dict(MAIL)
    tools = ToolSet([mail, bank])
    assert [tool.name for tool in tools] == ["bank", "mail"]
    assert tools == ToolSet(iter([bank, mail])) != ToolSet([bank])
    assert (tools.digest, len(tools), "mail" in tools) == (ToolSet([bank, mail]).digest, 2, True)
    assert "clock" not in tools
    assert tools["mail"] is mail
    assert len({tools, ToolSet([bank, mail])}) == 1
    assert (repr(tools), repr(ToolSet())) == ("<ToolSet bank, mail>", "<ToolSet empty>")
    with pytest.raises(ConfigurationError, match="Two tools are named bank"):
        ToolSet([bank, mail, Tool("bank", version="2")])


def test_a_description_gives_the_tool_set_back() -> None:
    tools = ToolSet([Tool("bank", schema={"to": "text"}), Tool.from_dict(MAIL)])
    assert ToolSet.from_described(tools.described) == tools
    assert ToolSet.from_described([]) == ToolSet()


BANK = {**MAIL, "name": "bank"}


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        {},
        (BANK, MAIL),
        [MAIL, BANK],
        [MAIL, MAIL],
        ["mail"],
        [{"name": "mail"}],
        [{**MAIL, "more": 1}],
        [{**MAIL, "permissions": ["send", "read"]}],
        [{**MAIL, "permissions": ("read", "send")}],
        [{**MAIL, "schema": "sha256:0"}],
        [{**MAIL, "schema": {"to": "text"}}],
        [{**MAIL, "version": None}],
        [{**MAIL, "name": "ma il"}],
    ],
)
def test_what_no_tool_set_gave_is_no_description(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="This is not the description of a tool set"):
        ToolSet.from_described(value)
