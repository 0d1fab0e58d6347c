"""Tools: their names, their schemas, and how a call is answered."""

import pytest

from focus_core import (
    Dialect,
    Hermes,
    QwenXml,
    Tool,
    UnknownNameError,
    UsageError,
    find_dialect,
)
from focus_core.env.dialects import DIALECTS
from tests.core.tools_kit import hermes, qwen

# Tools and names --------------------------------------------------------------------------------


def test_dialects_are_found_by_name():
    for name, dialect in DIALECTS.items():
        assert isinstance(dialect, Dialect)
        assert find_dialect(name) is dialect
        assert find_dialect(dialect) is dialect
    with pytest.raises(UnknownNameError, match="no tool dialect 'xml'; there are hermes, qwen-xml"):
        find_dialect("xml")


def test_a_tool_that_cannot_be_called_is_refused():
    good = {"type": "object"}
    for name in ("", "a b", "1a", "a>", "größe"):
        with pytest.raises(UsageError, match="a tool cannot be called"):
            Tool(name, "", good, print)
    for schema in ({}, {"type": "array"}, {"type": "object", "properties": ["a"]}):
        with pytest.raises(UsageError, match="tool 'x': parameters must be a JSON schema"):
            Tool("x", "", schema, print)
    with pytest.raises(TypeError, match="function"):
        Tool("x", "", good, None)


def test_schemas_may_say_more():
    tool = Tool(
        "t",
        "",
        {
            "type": "object",
            "properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "y": {}},
            "additionalProperties": {"type": "boolean"},
        },
        print,
    )

    def told(**arguments):
        (block,) = Hermes().parse(hermes("t", arguments), {"t": tool}).blocks
        return getattr(block, "reason", None)

    assert told(x=1, y=[{}], z=True) is told(x=None) is told() is None
    assert told(x="1") == (
        "'x' must be of type integer, not string and 'x' must be of type null, not string"
    )
    assert told(z=1) == "'z' must be of type boolean, not integer"
    (call,) = QwenXml().parse(qwen("t", {"x": None, "y": "1"}), {"t": tool}).calls
    assert call.arguments == {"x": None, "y": "1"}


# Schemas ----------------------------------------------------------------------------------------

NESTED = {"type": "object", "properties": {"b": {"type": "list"}}}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"properties": {"a": {"type": "int"}}}, "'a' has the type 'int'; there are string, "),
        ({"properties": {"a": {"type": ["string", "none"]}}}, "'a' has the type 'none'"),
        ({"properties": {"a": True}}, "'a' is True, not a JSON schema object"),
        ({"properties": {"a": NESTED}}, "'b' has the type 'list'"),
        ({"properties": {"a": {"items": {"type": "str"}}}}, "'a': items has the type 'str'"),
        ({"properties": {"a": {"items": False}}}, "'a': items is False"),
        ({"properties": {"a": {"anyOf": [{}, {"type": "x"}]}}}, "'a': anyOf[1] has the type 'x'"),
        ({"properties": {"a": {"anyOf": []}}}, "anyOf is [], not a list with something in it"),
        ({"properties": {"a": {"enum": "xy"}}}, "enum is 'xy', not a list"),
        ({"properties": {"a": {"minimum": "1"}}}, "minimum is '1', not a number"),
        ({"properties": [1]}, "properties is [1], not an object"),
        ({"required": ["a"]}, "'a' is required and not among the properties []"),
        ({"additionalProperties": {"type": "x"}}, "additionalProperties has the type 'x'"),
        ({"properties": {"a": {"default": object()}}}, "they are no JSON"),
        ({"properties": {"a": {"default": "\ud835"}}}, "they are no JSON"),
        ({"type": "array"}, "their type is not 'object'"),
    ],
)
def test_a_schema_that_no_call_could_keep_is_the_authors_mistake(parameters, said):
    """Every call would be told to the policy as its own mistake."""
    with pytest.raises(UsageError, match="tool 'f': parameters must be a JSON schema") as caught:
        Tool("f", "", {"type": "object", **parameters}, print)
    assert said in str(caught.value)


def test_schemas_of_every_keyword_are_taken():
    schema = {
        "$defs": {},
        "type": "object",
        "properties": {
            "a": {"type": ["integer", "null"], "minimum": 0, "maximum": 1.5, "title": "A"},
            "b": {"anyOf": [{"type": "string"}, {"enum": [1, None]}]},
            "c": {"type": "array", "items": {}},
            "d": {"type": "object", "additionalProperties": {"type": "number"}, "required": ["x"]},
        },
        "required": ["a", "z"],
        "additionalProperties": True,
    }
    tool = Tool("f", "", schema, print)
    text = hermes("f", {"a": None, "b": 1, "c": [1], "d": {"x": 2}, "z": "more"})
    assert len(Hermes().parse(text, {"f": tool}).calls) == 1
