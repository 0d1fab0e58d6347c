"""Tools and what dialects make of texts, for the tests of both."""

import json

import pytest

from focus_core import (
    Tool,
)
from focus_core.env.dialects import DIALECTS

ADD = Tool(
    "add",
    "Adds two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
    lambda a, b: a + b,
)
LOOK_UP = Tool(
    "look_up",
    "Looks a word up.",
    {
        "type": "object",
        "properties": {
            "word": {"type": "string"},
            "how": {"enum": ["exact", "loose"]},
            "most": {"type": "integer", "minimum": 1, "maximum": 9},
            "tags": {"type": "array", "items": {"type": "string"}},
            "deep": {"type": "boolean"},
            "note": {"type": ["string", "null"]},
            "range": {"type": "object", "properties": {"from": {"type": "integer"}}},
        },
        "required": ["word"],
    },
    lambda word, **rest: word,
)
TOOLS = {"add": ADD, "look_up": LOOK_UP}


def hermes(name, arguments):
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def qwen(name, arguments):
    lines = [f"<tool_call>\n<function={name}>"]
    for key, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value)
        lines.append(f"<parameter={key}>\n{text}\n</parameter>")
    return "\n".join([*lines, "</function>\n</tool_call>"])


WRITERS = {"hermes": hermes, "qwen-xml": qwen}
BOTH = pytest.mark.parametrize("name", sorted(DIALECTS))


def parse(name, text):
    return DIALECTS[name].parse(text, TOOLS)


def reasons(name, text):
    parsed = parse(name, text)
    assert not parsed.calls
    return [error.reason for error in parsed.errors]
