"""Tool calls in two dialects: read strictly, completely, and told what is wrong."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_core import (
    Hermes,
    QwenXml,
    Tool,
    ToolCall,
    find_dialect,
)
from focus_core.env.dialects import DIALECTS
from tests.core.tools_kit import ADD, BOTH, LOOK_UP, TOOLS, WRITERS, hermes, parse, reasons

# Both dialects ----------------------------------------------------------------------------------


@BOTH
def test_calls_are_read_in_order_with_the_text_around_them(name):
    write = WRITERS[name]
    text = f"First {write('add', {'a': 1, 'b': 2.5})}, then {write('look_up', {'word': 'x'})}."
    parsed = parse(name, text)
    assert parsed.calls == [
        ToolCall("add", {"a": 1, "b": 2.5}),
        ToolCall("look_up", {"word": "x"}),
    ]
    assert parsed.blocks == tuple(parsed.calls)
    assert parsed.text == "First , then ."
    assert parse(name, "No call <b>here</b>, 1 < 2.").blocks == ()


@BOTH
@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ("<think>{}</think>", "Yes", "Yes"),
        ("<think>a</think>b<think>{}</think>", "c", "bc"),
        ("open thought {}</think>", "Yes", "Yes"),  # the prompt ended in <think>
        ("said <think>{} and cut", "", "said "),
    ],
)
def test_thinking_holds_no_calls(name, before, after, left):
    call = WRITERS[name]("add", {"a": 1, "b": 2})
    parsed = parse(name, before.format(call) + after)
    assert (parsed.blocks, parsed.text) == ((), left)
    around = parse(name, f"{call}a<think>{call}</think>b{call}")
    assert (len(around.calls), around.text) == (2, "ab"), "what was said before a thought counts"
    real = parse(name, f"<think>{call}</think>{call}")
    assert real.calls == [ToolCall("add", {"a": 1, "b": 2})]


@BOTH
def test_good_and_bad_calls_keep_their_places(name):
    write = WRITERS[name]
    parsed = parse(
        name,
        write("add", {"a": 1, "b": 2}) + write("subtract", {}) + write("look_up", {"word": "x"}),
    )
    first, second, third = parsed.blocks
    assert (first, third) == (parsed.calls[0], parsed.calls[1])
    assert second.reason == "there is no tool 'subtract'; there are add, look_up"


COUNT = {
    "count": Tool(
        "count",
        "Count.",
        {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 0},
                "x": {"type": "number"},
                "level": {"enum": [1, 2]},
                "maybe": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
                "both": {"type": ["integer", "number"]},
                "rows": {"type": "array", "items": {"type": "integer"}},
                "deep": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        },
        dict,
    )
}
MEANT = [
    ({"n": 1.0}, {"n": 1}),
    ({"n": 1e3, "x": 2.0}, {"n": 1000, "x": 2.0}),
    ({"level": 2.0, "maybe": 3.0, "both": 4.0}, {"level": 2, "maybe": 3, "both": 4.0}),
    ({"maybe": None, "rows": [1.0, -2.0, 3]}, {"maybe": None, "rows": [1, -2, 3]}),
    ({"deep": {"a": 7.0}}, {"deep": {"a": 7}}),
]


@BOTH
@pytest.mark.parametrize(("written", "meant"), MEANT)
def test_a_whole_number_is_an_integer_however_it_is_written(name, written, meant):
    (call,) = find_dialect(name).parse(WRITERS[name]("count", written), COUNT).calls
    assert call.arguments == meant
    assert repr(call.arguments) == repr(meant), "of these very types"


@BOTH
@pytest.mark.parametrize("wrong", [{"n": 1.5}, {"n": True}, {"n": -1.0}, {"rows": [0.5]}])
def test_no_other_number_is_one(name, wrong):
    assert not find_dialect(name).parse(WRITERS[name]("count", wrong), COUNT).calls


@pytest.mark.parametrize("rest", ["", ', "arguments": null', ', "arguments": {}'])
def test_a_call_without_arguments_has_none(rest):
    text = f'<tool_call>{{"name": "count"{rest}}}</tool_call>'
    assert find_dialect("hermes").parse(text, COUNT).calls == [ToolCall("count", {})]


@BOTH
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"word": "x", "most": 10}, "'most' must be at most 9"),
        ({"word": "x", "most": 0}, "'most' must be at least 1"),
        ({"word": "x", "most": 1.5}, "'most' must be of type integer, not number"),
        ({"word": "x", "most": True}, "'most' must be of type integer, not boolean"),
        ({"word": "x", "how": "badly"}, '\'how\' must be one of "exact", "loose"'),
        ({"word": "x", "tags": ["a", 1]}, "'tags'[1] must be of type string, not integer"),
        ({"word": "x", "tags": {}}, "'tags' must be of type array, not object"),
        ({"word": "x", "range": {"from": "1"}}, "'from' must be of type integer, not string"),
        ({"word": "x", "range": {"until": 1}}, "'range': there is no 'until', only ['from']"),
        ({"word": "x", "more": 1}, "arguments: there is no 'more', only "),
        ({}, "arguments: 'word' is missing"),
    ],
)
def test_arguments_that_break_the_schema_are_told(name, arguments, reason):
    (told,) = reasons(name, WRITERS[name]("look_up", arguments))
    assert told.startswith(reason)


@BOTH
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call>", "</tool_call> is missing"),
        ("<tool_call>\n", "</tool_call> is missing"),
        ("</tool_call>", "</tool_call> stands outside of <tool_call>...</tool_call>"),
        ("<tool_call></tool_call>", ""),
        ("<tool_call>add 1 2</tool_call>", ""),
    ],
)
def test_tags_that_do_not_match_are_told(name, text, reason):
    (told,) = reasons(name, text)
    assert reason in told


@BOTH
def test_an_unclosed_call_does_not_swallow_the_next_one(name):
    call = WRITERS[name]("add", {"a": 1, "b": 2})
    parsed = parse(name, call.removesuffix("</tool_call>") + call)
    assert len(parsed.errors) == 1
    assert parsed.calls == [ToolCall("add", {"a": 1, "b": 2})]


def values(schema):
    kinds = {
        "number": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "string": st.text(st.characters(codec="utf-8")),
        "integer": st.integers(1, 9),
        "boolean": st.booleans(),
        "array": st.lists(st.text(st.characters(codec="utf-8")), max_size=3),
        "object": st.fixed_dictionaries({}, optional={"from": st.integers()}),
    }
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if isinstance(schema["type"], list):
        return st.none() | st.text(st.characters(codec="utf-8"))
    return kinds[schema["type"]]


@st.composite
def calls(draw):
    tool = draw(st.sampled_from([ADD, LOOK_UP]))
    known = tool.parameters["properties"]
    required = {key: values(known[key]) for key in tool.parameters["required"]}
    optional = {key: values(known[key]) for key in known if key not in required}
    return ToolCall(tool.name, draw(st.fixed_dictionaries(required, optional=optional)))


PARTS = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "<function=add>", "</function>",
    "<parameter=a>", "</parameter>", '{"name": "add", "arguments": {"a": 1, "b": 2}}', "{", "}",
    '"name"', "\n", "1", "[" * 50_000, "\ud835", '"\\ud835"', "NaN", "9" * 5000, "1e999", "<", ">",
]  # fmt: skip


class TestProperties:
    @BOTH
    @given(st.lists(calls(), max_size=3))
    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    def test_what_is_written_is_read(self, name, written):
        """Every call comes back as it was; for XML, unless a value holds what ends a value."""
        if name == "qwen-xml":
            spoils = [
                value
                for call in written
                for key, value in call.arguments.items()
                if isinstance(value, str)
                and ("</parameter>" in value or (key == "note" and _reads_otherwise(value)))
            ]
            if spoils:
                return
        text = "and".join(WRITERS[name](call.name, call.arguments) for call in written)
        parsed = parse(name, text)
        if "</think>" not in text:
            assert parsed.errors == []
            assert parsed.calls == written

    @BOTH
    @given(st.lists(st.sampled_from(PARTS) | st.text(), max_size=12).map("".join))
    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    def test_any_text_is_read_without_an_exception_and_no_tag_is_dropped(self, name, text):
        parsed = parse(name, text)
        for call in parsed.calls:
            assert call.name in TOOLS
        for error in parsed.errors:
            error.reason.encode()
        visible = DIALECTS[name].parse(text, {}).text
        assert "<tool_call>" not in visible
        assert "</tool_call>" not in visible
        opened = "<think>" in text or "</think>" in text
        if "<tool_call>" in text and not opened:
            assert parsed.blocks


def _reads_otherwise(text):
    """Whether a nullable string's text is also something else there: null."""
    return text.strip().lower() in ("null", "none")


# Hermes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        ('{"name": "add", "arguments": {"a": 1, "b": 2}', "no JSON: Expecting ',' delimiter"),
        ("{'name': 'add', 'arguments': {}}", "no JSON: Expecting property name"),
        ('{"name": "add", "arguments": {"a": 1, "a": 2}}', "the key 'a' is there twice"),
        ('{"name": "add", "arguments": {"a": NaN, "b": 1}}', "NaN is not a finite number"),
        ('{"name": "add", "arguments": {"a": 1e999, "b": 1}}', "1e999 is not a finite number"),
        ('{"name": "add", "arguments": {"a": ' + "9" * 5000 + "}}", "no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"name": "look_up", "arguments": {"word": "\\ud835"}}', "half of a surrogate pair"),
        ('{"name": "add", "arguments": {"a": 1, "b": 2}} so', "</tool_call> must follow"),
        ('{"name": "add"}', "arguments: 'a' is missing"),
        ('{"arguments": {}}', 'two keys, "name" and "arguments"'),
        ('{"name": "add", "arguments": {}, "id": 1}', "two keys"),
        ('["add", {}]', "two keys"),
        ('{"name": 1, "arguments": {}}', '"name" must be a string'),
        ('{"name": "add", "arguments": "{}"}', '"arguments" must be a JSON object'),
        ('{"name": "add", "arguments": {"a": "1", "b": 2}}', "'a' must be of type number"),
    ],
)
def test_hermes_tells_what_is_wrong(inside, reason):
    (told,) = reasons("hermes", f"<tool_call>\n{inside}\n</tool_call>")
    assert reason in told


def test_a_hermes_string_may_hold_the_closing_tag():
    word = "</tool_call><tool_call>"
    parsed = parse("hermes", hermes("look_up", {"word": word}))
    assert parsed.calls == [ToolCall("look_up", {"word": word})]


def test_hermes_describes_tools_as_qwens_template_does():
    """What Qwen2.5's and Qwen3's chat templates write for ``tools=``, after the system prompt."""
    text = Hermes().describe({"add": ADD})
    head, tools, tail = text.partition(json.dumps(ADD.signature))
    assert tools
    assert head.startswith("# Tools\n\nYou may call one or more functions")
    assert head.endswith("XML tags:\n<tools>\n")
    assert tail.startswith("\n</tools>\n\nFor each function call, return a json object")
    assert tail.endswith("</tool_call>")


# Qwen XML ---------------------------------------------------------------------------------------


def test_qwen_values_stand_between_line_breaks_and_are_typed_by_the_schema():
    text = """<tool_call>
<function=look_up>
<parameter=word>

two
lines

</parameter>
<parameter=most>
3
</parameter>
<parameter=deep>
True
</parameter>
<parameter=tags>
["a", "<b>"]
</parameter>
<parameter=note>
None
</parameter>
</function>
</tool_call>"""
    (call,) = parse("qwen-xml", text).calls
    assert call.arguments == {
        "word": "\ntwo\nlines\n",
        "most": 3,
        "deep": True,
        "tags": ["a", "<b>"],
        "note": None,
    }
    compact = (
        "<tool_call><function=look_up><parameter=word>null</parameter>"
        '<parameter=note>"5"</parameter></function></tool_call>'
    )
    (call,) = parse("qwen-xml", compact).calls
    assert call.arguments == {"word": "null", "note": '"5"'}
    (call,) = parse("qwen-xml", compact.replace('"5"', "5")).calls
    assert call.arguments == {"word": "null", "note": "5"}


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        ("<function=add", "<function=NAME> must follow"),
        ("<function=>\n</function>", "<function=NAME> must follow"),
        ('{"name": "add", "arguments": {"a": 1, "b": 2}}', "<function=NAME> must follow"),
        ("<function=add>\n<parameter=a>\n1\n</function>", "ends with </function>"),
        ("<function=add>\n<parameter=a>\n1\n</parameter>", "ends with </function>"),
        ("<function=add>\nso\n</function>", "consists of <parameter=KEY>"),
        ("<function=add>\n</function> so", "ends with </function> and </tool_call>"),
        (
            "<function=add><parameter=a>1</parameter><parameter=a>2</parameter></function>",
            "the parameter 'a' is there twice",
        ),
        (
            "<function=add><parameter=a>one</parameter><parameter=b>2</parameter></function>",
            "'a' cannot be read: Expecting value at character 1",
        ),
        (
            "<function=add><parameter=a>1 2</parameter><parameter=b>2</parameter></function>",
            "'a' cannot be read: something follows the value at character 2",
        ),
    ],
)
def test_qwen_tells_what_is_wrong(inside, reason):
    (told,) = reasons("qwen-xml", f"<tool_call>\n{inside}\n</tool_call>")
    assert reason in told


def test_qwen_functions_outside_of_a_call_are_told():
    inside = "<function=add>\n<parameter=a>\n1\n</parameter>\n</function>"
    first, second = reasons("qwen-xml", inside)
    assert first == "<function=add> stands outside of <tool_call>...</tool_call>"
    assert second == "</function> stands outside of <tool_call>...</tool_call>"


def test_qwen_describes_its_own_format():
    text = QwenXml().describe(TOOLS)
    assert json.dumps(LOOK_UP.signature) in text
    assert "<function=example_function_name>" in text
    assert "json object" not in text


# Size -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("qwen-xml", "<tool_call><function=add><parameter=a>"),
        ("qwen-xml", "<tool_call><function=add>   <parameter=a></parameter>"),
        ("qwen-xml", "<function=add>"),
        ("hermes", '<tool_call>{"a": "'),
        ("hermes", '<tool_call>{"a": ['),
        ("hermes", "</tool_call>"),
    ],
)
def test_hostile_text_is_read_in_no_time(name, block):
    """The event loop of every other rollout waits meanwhile."""
    start = time.process_time()
    assert not parse(name, block * 3000).calls
    assert time.process_time() - start < 1.0


def test_a_key_that_is_there_twice_among_many_is_found_in_no_time():
    keys = ", ".join(f'"{number}": 1' for number in range(20_000))
    start = time.process_time()
    (told,) = reasons("hermes", f'<tool_call>{{{keys}, "19999": 1, "19998": 1}}</tool_call>')
    assert time.process_time() - start < 1.0
    assert told == "the call is no JSON: the key '19998' is there twice"


def test_true_is_not_one_among_the_options():
    numbers = {"type": "object", "properties": {"a": {"enum": [1, 0]}}}
    flags = {"type": "object", "properties": {"a": {"enum": [True, None]}}}
    tools = {name: Tool(name, "", schema, print) for name, schema in (("n", numbers), ("f", flags))}
    assert [len(Hermes().parse(hermes("n", {"a": a}), tools).calls) for a in (1, True)] == [1, 0]
    assert [len(Hermes().parse(hermes("f", {"a": a}), tools).calls) for a in (1, True)] == [0, 1]
