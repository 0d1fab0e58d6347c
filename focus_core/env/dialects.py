"""How models write tool calls: two formats, read strictly and completely."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import attrs

from focus_core.env.schema import as_meant, mismatch, read_json_at, read_typed
from focus_core.env.tools import BadCall, Parsed, Tool, ToolCall
from focus_core.errors import UnknownNameError

__all__ = ["DIALECTS", "Dialect", "Hermes", "QwenXml", "find_dialect"]

_BLOCK_END = re.compile(r"</tool_call>|(?=<tool_call>)")
_CLOSED = re.compile(r"\s*</tool_call>")


@runtime_checkable
class Dialect(Protocol):
    """One way of writing tool calls in a turn's text."""

    @property
    def name(self) -> str:
        """Its name on command lines and in profiles."""
        ...

    def describe(self, tools: Mapping[str, Tool]) -> str:
        """What the system message says of the tools and of how to call them."""
        ...

    def parse(self, text: str, tools: Mapping[str, Tool]) -> Parsed:
        """Every call in a turn's text, those that cannot be run included. Never raises."""
        ...


def _scan(
    text: str, stray: str, read: Callable[[str, int], tuple[ToolCall | BadCall, int]]
) -> Parsed:
    """Find thinking, blocks, and tags (a regular expression) that belong to no block.

    Thinking is what stands between ``<think>`` and ``</think>``, to the end if it is not closed,
    and from the start if the prompt opened it already; nothing in it is a call.
    """
    marks = re.compile(f"<think>|<tool_call>|{stray}")
    opened = text.find("<think>")
    closed = text.find("</think>")
    at = closed + len("</think>") if closed >= 0 and not 0 <= opened < closed else 0
    blocks: list[ToolCall | BadCall] = []
    plain: list[str] = []
    while mark := marks.search(text, at):
        plain.append(text[at : mark.start()])
        if mark[0] == "<think>":
            closed = text.find("</think>", mark.end())
            at = closed + len("</think>") if closed >= 0 else len(text)
        elif mark[0] == "<tool_call>":
            block, at = read(text, mark.end())
            blocks.append(block)
        else:
            blocks.append(BadCall(f"{mark[0]} stands outside of <tool_call>...</tool_call>"))
            at = mark.end()
    plain.append(text[at:])
    return Parsed(tuple(blocks), "".join(plain))


def _bad(text: str, at: int, reason: str, name: str | None = None) -> tuple[BadCall, int]:
    """A block that cannot be read, and where the next thing may begin."""
    end = _BLOCK_END.search(text, at)
    if end is None:
        reason = f"{reason}; </tool_call> is missing"
    return BadCall(reason, name), end.end() if end else len(text)


def _checked(name: str, arguments: dict[str, Any], tools: Mapping[str, Tool]) -> ToolCall | BadCall:
    if name not in tools:
        return BadCall(f"there is no tool {name!a}; there are {', '.join(sorted(tools))}")
    schema = {"properties": {}, **tools[name].parameters}
    wrong = mismatch(arguments, schema, "arguments")
    return BadCall(wrong, name) if wrong else ToolCall(name, as_meant(arguments, schema))


def _signatures(tools: Mapping[str, Tool]) -> str:
    lines = [json.dumps(tool.signature, ensure_ascii=False) for tool in tools.values()]
    return "\n".join(["<tools>", *lines, "</tools>"])


@attrs.frozen
class Hermes:
    r"""A JSON object with ``name`` and ``arguments`` in ``<tool_call>`` tags.

    Of the Hermes models, Qwen2.5 and Qwen3; ``describe`` writes what Qwen's chat templates write
    for ``tools=``, after the system prompt and an empty line. Source: NousResearch's
    Hermes-Function-Calling, and the chat template of Qwen3::

        <tool_call>
        {"name": "add", "arguments": {"a": 1, "b": 2}}
        </tool_call>

    A call without ``arguments``, or with null, has none.
    """

    name: ClassVar[str] = "hermes"

    def describe(self, tools: Mapping[str, Tool]) -> str:
        """See ``Dialect``."""
        return (
            "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n"
            f"{_signatures(tools)}\n\n"
            "For each function call, return a json object with function name and arguments "
            "within <tool_call></tool_call> XML tags:\n"
            '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
        )

    def parse(self, text: str, tools: Mapping[str, Tool]) -> Parsed:
        """See ``Dialect``."""
        return _scan(text, "</tool_call>", lambda text, at: self._read(text, at, tools))

    def _read(
        self, text: str, at: int, tools: Mapping[str, Tool]
    ) -> tuple[ToolCall | BadCall, int]:
        while text[at : at + 1].isspace():
            at += 1
        try:
            value, end = read_json_at(text, at)
        except ValueError as error:
            return _bad(text, at, f"the call is no JSON: {error}")
        closed = _CLOSED.match(text, end)
        if not closed:
            return _bad(text, end, "after the JSON object, </tool_call> must follow")
        if not isinstance(value, dict) or not {"name"} <= value.keys() <= {"name", "arguments"}:
            reason = 'a call is a JSON object with two keys, "name" and "arguments"'
            return BadCall(reason), closed.end()
        name, arguments = value["name"], value.get("arguments")
        arguments = {} if arguments is None else arguments  # so do models call without any
        if not isinstance(name, str):
            return BadCall('"name" must be a string'), closed.end()
        if not isinstance(arguments, dict):
            return BadCall('"arguments" must be a JSON object', name), closed.end()
        return _checked(name, arguments, tools), closed.end()


_FUNCTION = re.compile(r"\s*<function=([^<>\s]+)>\s*")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\s]+)>")
_PARAMETER_END = "</parameter>"
_FUNCTION_END = re.compile(r"\s*</function>\s*</tool_call>")


@attrs.frozen
class QwenXml:
    r"""A ``<function=...>`` element with a ``<parameter=...>`` element for each argument.

    Of Qwen3-Coder and Qwen3.5. A value stands between two line breaks, without quotes; the tool's
    schema says how it is read: a string as it stands, anything else as JSON. Source: the chat
    templates of these models::

        <tool_call>
        <function=add>
        <parameter=a>
        1
        </parameter>
        </function>
        </tool_call>
    """

    name: ClassVar[str] = "qwen-xml"

    def describe(self, tools: Mapping[str, Tool]) -> str:
        """See ``Dialect``."""
        return (
            "# Tools\n\nYou have access to the following functions:\n\n"
            f"{_signatures(tools)}\n\n"
            "If you choose to call a function ONLY reply in the following format with NO suffix:"
            "\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
            "value_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the "
            "second parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n"
            "</tool_call>"
        )

    def parse(self, text: str, tools: Mapping[str, Tool]) -> Parsed:
        """See ``Dialect``."""
        stray = r"</tool_call>|<function=[^<>\s]*>|</function>"
        return _scan(text, stray, lambda text, at: self._read(text, at, tools))

    def _read(
        self, text: str, at: int, tools: Mapping[str, Tool]
    ) -> tuple[ToolCall | BadCall, int]:
        function = _FUNCTION.match(text, at)
        if not function:
            return _bad(text, at, "after <tool_call>, <function=NAME> must follow")
        name, at = function[1], function.end()
        written: dict[str, str] = {}
        while parameter := _PARAMETER.match(text, at):
            key, start = parameter[1], parameter.end()
            stop = text.find(_PARAMETER_END, start)  # a regular expression would crawl there
            if stop < 0:
                break
            at = stop + len(_PARAMETER_END)
            if key in written:
                return _bad(text, at, f"the parameter {key!a} is there twice", name)
            written[key] = text[start:stop].removeprefix("\n").removesuffix("\n")
        end = _FUNCTION_END.match(text, at)
        if not end:
            reason = (
                "a call consists of <parameter=KEY>VALUE</parameter> elements and ends with "
                "</function> and </tool_call>"
            )
            return _bad(text, at, reason, name)
        known = tools[name].parameters.get("properties", {}) if name in tools else {}
        arguments: dict[str, Any] = {}
        for key, value in written.items():
            try:
                arguments[key] = read_typed(value, known.get(key, {}))
            except ValueError as error:
                return BadCall(f"{key!a} cannot be read: {error}", name), end.end()
        return _checked(name, arguments, tools), end.end()


DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (Hermes(), QwenXml())}
"""Every dialect by its name."""


def find_dialect(dialect: str | Dialect) -> Dialect:
    """A dialect by its name, or the one given.

    Raises:
        UnknownNameError: No dialect of that name.
    """
    if not isinstance(dialect, str):
        return dialect
    if dialect not in DIALECTS:
        raise UnknownNameError(
            f"no tool dialect {dialect!r}; there are {', '.join(sorted(DIALECTS))}"
        )
    return DIALECTS[dialect]
