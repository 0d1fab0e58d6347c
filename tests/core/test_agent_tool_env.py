"""Episodes with tools: from a turn's text to answers, another turn, and a grade."""

import asyncio
import functools
import threading
import time

import attrs
import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    Generation,
    GradingError,
    Independent,
    PreparedPrompt,
    Problem,
    ProcessExecution,
    Reply,
    Segments,
    Selective,
    Tool,
    ToolEnv,
    UsageError,
    Workspace,
)
from tests.core import process_kit as kit

NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
NOTHING = {"type": "object", "properties": {}}


def divide(a, b):
    return a / b


def remember(state, text):
    state.value = (*(state.value or ()), text)
    state.workspace.write("log", text.encode())
    if text == "bad":
        raise ValueError("not that")
    return len(state.value)


async def capital(country):
    await asyncio.sleep(0)
    return {"France": "Paris"}[country]


DIVIDE = Tool("divide", "Divides.", NUMBERS, divide)
REMEMBER = Tool(
    "remember",
    "Keeps a text.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    remember,
    stateful=True,
)
CAPITAL = Tool(
    "capital",
    "Looks a capital up.",
    {"type": "object", "properties": {"country": {"type": "string"}}, "required": ["country"]},
    capital,
)


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


HALF = call("divide", '{"a": 1, "b": 2}')


class Length(ToolEnv):
    """The grade is the length of the last turn's text."""

    async def grade(self, text):
        return float(len(text))


def characters(tokens):
    return "".join(map(chr, tokens))


def env_of(*tools, max_tokens=10_000, **options):
    env = Length(characters, max_tokens, tools or (DIVIDE, CAPITAL, REMEMBER), **options)
    env.workspace = Workspace()
    env.reset(Problem("?"))
    return env


def step(env, text, reason="stop"):
    reply = Reply(tuple(map(ord, text)), text, reason)
    return asyncio.run(asyncio.wait_for(env.step(reply), 30))


def answers(env, text):
    return [message["content"] for message in step(env, text).messages]


def test_the_tools_are_described_in_the_system_message():
    env = Length(characters, 10, [DIVIDE])
    system, user = env.reset(Problem("7 / 2?"))
    assert user == {"role": "user", "content": "7 / 2?"}
    assert system == {"role": "system", "content": env.dialect.describe(env.tools)}
    chat = [{"role": "system", "content": "Be brief."}, user]
    system, _ = env.reset(Problem(chat))
    assert system["content"] == f"Be brief.\n\n{env.dialect.describe(env.tools)}"


def test_every_call_of_a_turn_is_answered_in_order():
    env = env_of()
    france = call("capital", '{"country": "France"}')
    text = f"{HALF}{call('divide', '{}')}{france}{call('nothing', '{}')}<tool_call>"
    transition = step(env, text)
    assert not transition.done
    assert transition.reward == 0.0
    assert transition.messages == [
        {"role": "tool", "name": "divide", "content": "0.5"},
        {"role": "tool", "name": "divide", "content": "Error: arguments: 'a' is missing"},
        {"role": "tool", "name": "capital", "content": "Paris"},
        {
            "role": "tool",
            "content": "Error: there is no tool 'nothing'; there are capital, divide, remember",
        },
        {
            "role": "tool",
            "content": "Error: the call is no JSON: Expecting value at character 1; "
            "</tool_call> is missing",
        },
    ]
    assert transition.metrics == {"tool_calls": 5.0, "tool_errors": 3.0}


def test_templates_without_the_role_get_one_user_message():
    env = env_of(answers="user")
    (message,) = step(env, HALF + HALF).messages
    response = "<tool_response>\n0.5\n</tool_response>"
    assert message == {"role": "user", "content": f"{response}\n{response}"}


def test_a_turn_without_a_call_is_graded_and_ends():
    env = env_of()
    step(env, HALF)
    transition = step(env, "It is 0.5.")
    assert (transition.done, transition.reward) == (True, 10.0)
    assert transition.metrics == {"turns": 2.0, "finished": 1.0}


def test_a_turn_may_come_in_segments():
    env = env_of()
    for i in range(len(HALF) - 1):
        assert step(env, HALF[i], "length").messages == ()
    assert [m["content"] for m in step(env, HALF[-1]).messages] == ["0.5"]
    assert step(env, "x").reward == 1.0, "the next turn begins anew"


def test_a_turn_is_over_at_its_length_limit():
    env = env_of(max_tokens=len(HALF))
    assert [m["content"] for m in step(env, HALF, "length").messages] == ["0.5"]
    transition = step(env, "x" * len(HALF), "length")
    assert transition.done
    assert transition.metrics == {"turns": 2.0, "finished": 0.0}


@pytest.mark.parametrize("at_limit", ["grade", "truncate"])
def test_the_last_turns_calls_are_not_run(at_limit):
    calls = []
    count = Tool("count", "", NOTHING, lambda: calls.append(1))
    env = env_of(count, max_turns=2, at_limit=at_limit)
    text = call("count", "{}")
    step(env, text)
    transition = step(env, text)
    assert len(calls) == 1
    assert transition.metrics == {"turns": 2.0, "finished": 0.0}
    if at_limit == "grade":
        assert (transition.done, transition.reward) == (True, float(len(text)))
    else:
        assert (transition.truncated, transition.reward) == (True, 0.0)


def test_what_a_tool_raises_about_its_arguments_is_told():
    env = env_of()
    assert answers(env, call("divide", '{"a": 1, "b": 0}')) == [
        "Error: ZeroDivisionError: division by zero"
    ]
    assert answers(env, call("capital", '{"country": "Atlantis"}')) == [
        "Error: KeyError: 'Atlantis'"
    ]


@pytest.mark.parametrize(
    "error", [RuntimeError("down"), ConnectionError("down"), TimeoutError("down"), TypeError("bug")]
)
def test_any_other_failure_fails_the_rollout(collect, error):
    """An outage says nothing about the call; the policy must not be trained on it."""

    def broken():
        raise error

    env = env_of(Tool("broken", "", NOTHING, broken))
    with pytest.raises(type(error), match=str(error)) as caught:
        step(env, call("broken", "{}"))
    assert "raised by the tool 'broken'" in caught.value.__notes__[0]
    told = env_of(Tool("broken", "", NOTHING, broken, reports=(type(error),)))
    assert answers(told, call("broken", "{}")) == [f"Error: {type(error).__name__}: {error}"]


def test_a_slow_tool_is_told_and_loses_its_effects():
    release = threading.Event()

    def slow(state):
        release.wait(20)
        state.value = "late"
        state.workspace.write("late", b"")
        return "done"

    async def sleepy():
        await asyncio.sleep(60)

    env = env_of(
        Tool("slow", "", NOTHING, slow, stateful=True),
        Tool("sleepy", "", NOTHING, sleepy),
        timeout=0.1,
    )
    threading.Timer(0.5, release.set).start()
    assert answers(env, call("slow", "{}")) == ["Error: not done within 0.1 s"]
    assert env.value is None
    assert list(env.workspace) == []
    assert answers(env, call("sleepy", "{}")) == ["Error: not done within 0.1 s"]


def test_effects_hold_only_if_the_call_succeeds():
    env = env_of()
    assert answers(env, call("remember", '{"text": "a"}') * 2) == ["1", "2"]
    assert (env.value, env.workspace.read("log")) == (("a", "a"), b"a")
    assert answers(env, call("remember", '{"text": "bad"}')) == ["Error: ValueError: not that"]
    assert (env.value, env.workspace.read("log")) == (("a", "a"), b"a")


def test_answers_are_text_that_can_be_tokenized():
    made = {"s": "\ud835", "n": 1}
    env = env_of(
        Tool("text", "", NOTHING, lambda: "x \ud835 y"), Tool("json", "", NOTHING, lambda: made)
    )
    assert answers(env, call("text", "{}") + call("json", "{}")) == ["x ? y", '{"s": "?", "n": 1}']
    env = env_of(Tool("odd", "", NOTHING, lambda: object()))
    with pytest.raises(TypeError, match=r"'odd' returned object.*not JSON serializable"):
        step(env, call("odd", "{}"))


def endless():
    ring = []
    ring.append(ring)
    return ring


def deep():
    nest = []
    for _ in range(100_000):
        nest = [nest]
    return nest


@pytest.mark.parametrize("made", [endless, deep, lambda: b"bytes", lambda: {(1, 2): 3}])
def test_an_answer_that_is_no_json_is_not_the_calls_mistake(made):
    env = env_of(Tool("odd", "", NOTHING, made))
    with pytest.raises(TypeError, match=r"the tool 'odd' returned .* neither text nor JSON"):
        step(env, call("odd", "{}"))


class Caller:
    async def __call__(self, country):
        return await capital(country)


@pytest.mark.parametrize(
    "function",
    [Caller(), functools.partial(capital), lambda country: capital(country)],
    ids=["object", "partial", "lambda"],
)
def test_whatever_gives_something_to_await_is_awaited(function):
    env = env_of(Tool("capital", "", CAPITAL.parameters, function), timeout=5.0)
    assert answers(env, call("capital", '{"country": "France"}')) == ["Paris"]
    assert "KeyError" in answers(env, call("capital", '{"country": "?"}'))[0]


def test_what_is_awaited_has_a_limit_however_it_came():
    env = env_of(Tool("sleepy", "", NOTHING, lambda: asyncio.sleep(60)), timeout=0.1)
    assert answers(env, call("sleepy", "{}")) == ["Error: not done within 0.1 s"]


def test_tools_may_run_in_processes():
    async def inside():
        execution = ProcessExecution(1)
        env = env_of(
            REMEMBER, Tool("die", "", NOTHING, kit.kill_own), Tool("spin", "", NOTHING, kit.spin)
        )
        env.execution, env.timeout = execution, 1.0
        text = call("remember", '{"text": "a"}') + call("die", "{}") + call("spin", "{}")
        try:
            return env, await env.step(Reply((*map(ord, text),), text, "stop"))
        finally:
            await execution.aclose()

    env, transition = asyncio.run(inside())
    assert [message["content"] for message in transition.messages] == [
        "1",
        "Error: the process that ran the call died",
        "Error: not done within 1 s",
    ]
    assert (env.value, env.workspace.read("log")) == (("a",), b"a"), "the state came back"


def test_a_tool_that_cannot_run_in_a_process_is_not_told_to_the_policy():
    """The author's mistake; ``UsageError`` is a ``ValueError``, which a tool may raise."""

    async def inside():
        env = env_of(Tool("local", "", NOTHING, lambda: 1))
        env.execution = ProcessExecution(1)
        text = call("local", "{}")
        with pytest.raises(UsageError, match="cannot be sent to a worker process"):
            await env.step(Reply((*map(ord, text),), text, "stop"))

    asyncio.run(inside())


def test_mistakes_are_refused():
    for options in (
        {"tools": []},
        {"tools": [DIVIDE, DIVIDE]},
        {"tools": [DIVIDE], "max_turns": 0},
        {"tools": [DIVIDE], "at_limit": "stop"},
        {"tools": [DIVIDE], "answers": "assistant"},
        {"tools": [DIVIDE], "dialect": "french"},
        {"tools": [DIVIDE], "timeout": 0.0},
        {"tools": [DIVIDE], "timeout": float("nan")},
    ):
        with pytest.raises(UsageError):
            ToolEnv(characters, 10, **options)
    with pytest.raises(UsageError, match="at least 1 token"):
        ToolEnv(characters, 0, [DIVIDE])


# In trees ---------------------------------------------------------------------------------------


class Chooser:
    """Says one of some texts, a character a token, as the seed decides."""

    version = 0
    end_tokens = frozenset({0})

    def __init__(self, *texts):
        self.texts = texts
        self.prompts = []

    def prepare(self, messages):
        text = "".join(f"[{m['role']}]{m['content']}\0" for m in messages)
        return PreparedPrompt([*map(ord, text + "[assistant]")])

    def decode(self, tokens):
        return characters(tokens)

    async def generate(self, tokens, params, n=1):
        prompt = characters(tokens)
        self.prompts.append(prompt)
        await asyncio.sleep(0)
        begun = prompt.rpartition("[assistant]")[2]
        fits = [text + "\0" for text in self.texts if (text + "\0").startswith(begun)]
        rest = fits[params.seed % len(fits)][len(begun) :][: params.max_tokens]
        reason = "stop" if rest.endswith("\0") else "length"
        return [Generation([*map(ord, rest)], [-0.5] * len(rest), reason)]


@attrs.define
class Grades:
    """What was graded, with the state the tools had."""

    seen: list = attrs.field(factory=list)


class Remembering(ToolEnv):
    grades = Grades()

    async def grade(self, text):
        self.grades.seen.append((self.value, dict.fromkeys(self.workspace), text))
        return 1.0


def test_branches_share_no_state(collect):
    texts = [call("remember", f'{{"text": "{letter}"}}') for letter in "abc"] + ["done"]
    policy = Chooser(*texts)
    env = Remembering(policy.decode, 200, [REMEMBER], max_turns=5)
    env.grades = Grades()
    env.workspace = None
    collector = Collector(
        Agent(policy, env, context=Segments(40)),
        critic=Critic.constant(0.5),
        search=Selective(budget=40, warmup=30, max_concurrency=3),
    )
    collection = collect(collector, Problem("?"), key=(3,), workspace=Workspace()).prepare()
    assert not collection.failures
    assert len(collection.rollouts()) > 4
    assert max(map(len, collection.tree.children())) > 1
    graded = []
    for rollout in collection.rollouts():
        said = [characters(turn.tokens) for turn in rollout.turns]
        kept = tuple(text[text.index("text") + 8] for text in said[:-1])
        graded.append((kept or None, {"log": None} if kept else {}, said[-1]))
        told = [m["content"] for m in rollout.messages if m["role"] == "tool"]
        assert told == [str(i + 1) for i in range(len(kept))]
    key = repr
    assert sorted(env.grades.seen, key=key) == sorted(graded, key=key)


def test_grading_errors_stay_failures(collect):
    class Broken(ToolEnv):
        async def grade(self, text):
            raise GradingError("the grader is down")

    policy = Chooser("done")
    collection = collect(
        Collector(
            Agent(policy, Broken(policy.decode, 99, [DIVIDE])),
            critic=Critic.constant(0.5),
            search=Independent(1),
        ),
        key=(1,),
    )
    assert [type(failure.error) for failure in collection.failures] == [GradingError]


def test_snapshots_cost_the_same_at_any_length():
    env = env_of(max_tokens=10**9)
    for _ in range(2000):
        step(env, "x", "length")
    start = time.perf_counter()
    states = [env.snapshot() for _ in range(1000)]
    for state in states:
        env.restore(state)
    assert time.perf_counter() - start < 0.1
    assert states[0].said is states[-1].said
