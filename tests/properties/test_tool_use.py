"""Episodes with tools, thinking, folds and branches, token for token.

The policy logs every request with its answer. Several of its tokens decode to the same text, and
most texts can be cut into tokens in many ways, so that encoding again what it said gives other
tokens; and every log probability is drawn once. So a token that was not sampled, or stands in
another context or beside another's log probability, cannot pass.
"""

import asyncio
import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from focus_core import (
    Agent,
    Collector,
    Critic,
    Folding,
    Generation,
    PreparedPrompt,
    Problem,
    Rollout,
    Segments,
    Selective,
    Tool,
    ToolEnv,
    Turns,
    find_dialect,
)
from focus_core.lanes import export_actor, export_merged
from focus_core.tree.tree import ASKED, FOLDED, OPEN

END = "<|end|>"
PIECES = [
    END, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<think>", "</think>",
    "<tool_call>", "</tool_call>", "<tool", "_call>", '"name"', '"arguments"', "add", "look_up",
    "<function=", "</function>", "<parameter=", "</parameter>", "he", "llo", "hello", "ans", "wer",
    "answer", "\n\n", "12", " the", *map(chr, range(32, 127)), "\n",
]  # fmt: skip
IDS = {piece: i for i, piece in enumerate(PIECES)}
COPY = 1000
"""Token ``i + COPY * k`` decodes as token ``i``; a sampled copy's ``k`` is used once."""
LONGEST = max(map(len, PIECES))


def encode(text):
    """The tokenizer: longest piece first, never a copy."""
    tokens = []
    while text:
        piece = next(text[:n] for n in range(LONGEST, 0, -1) if text[:n] in IDS)
        tokens.append(IDS[piece])
        text = text[len(piece) :]
    return tokens


def decode(tokens):
    return "".join(PIECES[token % COPY] for token in tokens)


def render(messages, thinking):
    """A chat template that keeps thinking, or strips it from every turn that is over."""
    parts = []
    for message in messages:
        text = message["content"]
        if thinking == "strips" and message["role"] == "assistant":
            text = text.rpartition("</think>")[2]
        parts.append(f"<|{message['role']}|>{text}{END}")
    return "".join(parts) + "<|assistant|>"


def add(a, b):
    return a + b


def look_up(word):
    return {"hello": "a greeting", "sky": "blue"}[word]


def schema(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


TOOLS = [
    Tool("add", "Adds.", schema(a={"type": "number"}, b={"type": "number"}), add),
    Tool("look_up", "Looks up.", schema(word={"type": "string"}), look_up),
]


def written(dialect, name, arguments):
    if dialect == "hermes":
        call = json.dumps({"name": name, "arguments": arguments})
        return f"<tool_call>\n{call}\n</tool_call>"
    parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


class Speaker:
    """Thinks, calls tools well and badly, and answers, as its random numbers say.

    Args:
        seed: Of the random numbers.
        dialect: How it writes calls.
        thinking: What its template does with thinking: ``"keeps"`` or ``"strips"``.
        drift: Whether it samples other tokens than the tokenizer would choose.
    """

    version = 0
    end_tokens = frozenset({IDS[END]})

    def __init__(self, seed, dialect, thinking, drift):
        self.random = random.Random(seed)
        self.dialect = dialect
        self.thinking = thinking
        self.drift = drift
        self.log = []
        self.copies = 0
        self.plans = {}

    def prepare(self, messages):
        return PreparedPrompt(encode(render(messages, self.thinking)))

    def decode(self, tokens):
        return decode(tokens)

    async def generate(self, tokens, params, n=1):
        prefix = tuple(tokens)
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(0)
        plans = self.plans.get(prefix, [])
        plan = self.random.choice(plans) if plans else self.tokens(self.text())
        said, rest = plan[: params.max_tokens], plan[params.max_tokens :]
        if rest:
            self.plans.setdefault((*prefix, *said), []).append(rest)
        logprobs = [float(np.float32(-self.random.random() - 1e-3)) for _ in said]
        self.log.append((prefix, tuple(said), tuple(logprobs)))
        return [Generation(said, logprobs, "length" if rest else "stop")]

    def text(self):
        draw = self.random
        a, b = draw.randrange(99), draw.randrange(99)
        calls = [
            written(self.dialect, "add", {"a": a, "b": b}),
            written(self.dialect, "look_up", {"word": draw.choice(["hello", "sky", "nothing"])}),
            written(self.dialect, "subtract", {"a": a}),
            written(self.dialect, "add", {"a": "x", "b": b}),
            f"<tool_call>hello {a}",
        ]
        parts = [f"<think>the answer {a}\n\n</think>"] if draw.random() < 0.5 else []
        parts.append(draw.choice(["hello", f"the answer: {a}", "1 + 12\n\n"]))
        if draw.random() < 0.7:
            parts += draw.choices(calls, weights=[4, 4, 1, 1, 1], k=draw.choice([1, 1, 2]))
        return "".join(parts)

    def tokens(self, text):
        if not self.drift:
            return [*encode(text), IDS[END]]
        tokens = []
        while text:
            fits = [text[:n] for n in range(1, LONGEST + 1) if text[:n] in IDS]
            piece = self.random.choice(sorted(set(fits)))
            self.copies += 1
            tokens.append(IDS[piece] + COPY * self.copies)
            text = text[len(piece) :]
        return [*tokens, IDS[END]]


class Grading(ToolEnv):
    async def grade(self, text):
        await asyncio.sleep(0)
        return len(text) % 7 / 7


CONTEXTS = {
    "segments": Segments(11),
    "turns": Turns(400),
    "folds by turns": Folding(inner=Segments(40), max_turns=2, summary_tokens=30, request="the"),
    "folds by length": Folding(
        inner=Segments(30), max_tokens=1000, summary_tokens=60, request="the answer", penalty=0.1
    ),
    "folds by function": Folding(
        inner=Turns(300), max_turns=1, summarize=lambda chat: f"{len(chat)} the"
    ),
}


def grow(seed, dialect, thinking, drift, context, concurrency, answers):
    policy = Speaker(seed, dialect, thinking, drift)
    env = Grading(policy.decode, 300, TOOLS, dialect=dialect, max_turns=4, answers=answers)

    async def inside():
        agent = Agent(
            policy, env, system_prompt="hello", context=CONTEXTS[context], max_transitions=40
        )
        search = Selective(budget=14, warmup=25, max_concurrency=concurrency)
        async with Collector(agent, critic=Critic.constant(0.5), search=search) as collector:
            return await collector.collect(Problem("1 + 12?"))

    return policy, asyncio.run(inside()).prepare()


def seen(policy, collection):
    """What happened in a collection, for the test that all of it is tried."""
    tree = collection.tree
    contents = [m["content"] for messages in tree.messages for m in messages[2:]]
    found = {
        "fresh": sum(tree.fresh) > 1,
        "extended": any(
            tree.ends_turn(n) and not tree.fresh[n] and tree.kind[n] == OPEN for n in tree.edges()
        ),
        "branched": max(map(len, tree.children())) > 1,
        "fold asked": ASKED in tree.fold,
        "folded": FOLDED in tree.fold,
        "branched at a fold": any(
            tree.fold[n] and len(below) > 1 for n, below in enumerate(tree.children())
        ),
        "answer": any("greeting" in text for text in contents),
        "told error": any("Error: there is no tool" in text for text in contents),
        "raised error": any("KeyError" in text for text in contents),
        "finished": bool(collection.returns),
    }
    return {name for name, happened in found.items() if happened}


arguments = given(
    seed=st.integers(0, 10**6),
    dialect=st.sampled_from(["hermes", "qwen-xml"]),
    thinking=st.sampled_from(["keeps", "strips"]),
    drift=st.booleans(),
    context=st.sampled_from(sorted(CONTEXTS)),
    concurrency=st.integers(1, 3),
    answers=st.sampled_from(["tool", "user"]),
)


def spans(records):
    """Every span as the policy's log has it: what was asked, what was said, how likely."""
    for record in records:
        tokens, logprobs = record.tokens.tolist(), record.logprobs.tolist()
        for span in record.spans:
            yield (
                tuple(tokens[: span.start]),
                tuple(tokens[span.start : span.stop]),
                tuple(logprobs[span.start : span.stop]),
            )


@arguments
@settings(max_examples=120)
def test_every_trained_token_was_sampled_in_its_context_with_its_log_probability(**options):
    policy, collection = grow(**options)
    assert not collection.failures
    log = Counter(policy.log)
    edges, merged = export_actor(collection), export_merged(collection)
    assert Counter(spans(edges)) == log
    assert Counter(spans(merged)) == log
    for record in [*edges, *merged]:
        trained = np.zeros(len(record.tokens), bool)
        for span in record.spans:
            trained[span.start : span.stop] = True
        assert record.loss_mask.tolist() == trained.tolist()
        assert not record.logprobs[~trained].any()
    for name in sorted(seen(policy, collection)):
        event(name)


@arguments
@settings(max_examples=60)
def test_every_request_shows_the_chat_of_its_state(**options):
    """What the policy is sent at a state decodes to the template's text of the chat there."""
    _, collection = grow(**options)
    tree = collection.tree
    for node in [0, *tree.edges()]:
        if tree.kind[node] != OPEN:
            continue
        rollout = Rollout(tree, node)
        shown = render(rollout.messages, options["thinking"])
        if node and not tree.ends_turn(node):
            shown += decode(rollout.turns[-1].tokens)
        assert shown == decode(rollout.tokens)


@arguments
@settings(max_examples=30)
def test_the_chat_is_what_was_said_and_what_the_tools_answer(**options):
    """Each turn's text and calls, read again from its own tokens, over all its segments."""
    _, collection = grow(**(options | {"context": "segments", "answers": "tool"}))
    dialect, tools = find_dialect(options["dialect"]), {tool.name: tool for tool in TOOLS}
    for rollout in collection.rollouts():
        chat = {role: [] for role in ("system", "user", "assistant", "tool")}
        for message in rollout.messages:
            chat[message["role"]].append(message["content"])
        over = [decode(turn.tokens) for turn in rollout.turns[:-1]]
        assert chat["assistant"] == [text.removesuffix(END) for text in over]
        expected = []
        for text in over:
            for block in dialect.parse(text, tools).blocks:
                if not hasattr(block, "arguments"):
                    expected.append(f"Error: {block.reason}")
                    continue
                try:
                    made = tools[block.name].function(**block.arguments)
                    expected.append(made if isinstance(made, str) else json.dumps(made))
                except KeyError as error:
                    expected.append(f"Error: KeyError: {error}")
        assert chat["tool"] == expected


def test_all_of_it_is_tried():
    """The properties above would be empty if the episodes were."""
    found = Counter()
    for seed in range(4):
        for context in CONTEXTS:
            for dialect in ("hermes", "qwen-xml"):
                for thinking, drift in (("keeps", False), ("strips", seed % 2 == 0)):
                    found.update(seen(*grow(seed, dialect, thinking, drift, context, 2, "tool")))
    assert all(found[name] >= 5 for name in found), found
    assert len(found) == 10, found


@pytest.mark.parametrize("dialect", ["hermes", "qwen-xml"])
def test_encoding_again_would_be_seen(dialect):
    policy, collection = grow(5, dialect, "keeps", True, "segments", 1, "tool")
    log = set(policy.log)
    for prefix, said, logprobs in spans(export_actor(collection)):
        again = tuple(encode(decode(said)))
        assert decode(again) == decode(said)
        assert (prefix, said, logprobs) in log
        assert (prefix, again, logprobs) not in log or said == (IDS[END],)


@pytest.mark.parametrize("thinking", ["keeps", "strips"])
def test_the_template_decides_whether_the_sequence_goes_on(thinking):
    """Kept, every turn extends the tokens before it; stripped, each that thought starts anew."""
    _, collection = grow(11, "hermes", thinking, False, "turns", 1, "tool")
    tree = collection.tree
    thoughts = Counter()
    for node in tree.edges():
        if tree.ends_turn(node):
            thought = "<think>" in decode(tree.generated(node)[0].tolist())
            thoughts[thought] += 1
            assert bool(tree.fresh[node]) is (thinking == "strips" and thought)
    assert min(thoughts[True], thoughts[False]) > 0
