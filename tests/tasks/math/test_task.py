"""The task: what the policy sees, what it earns, and what it is called."""

import asyncio
import copy
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import attrs
import pytest
from focus_task_math import MathEnv, MathTask, load_problems
from focus_task_math.task import SAMPLE

from focus_core import (
    DataError,
    DataWarning,
    GradingError,
    Independent,
    PreparedPrompt,
    Problem,
    Reply,
    Task,
    UsageError,
)
from focus_core.plugins.manager import load
from focus_core.run.config import RunConfig
from focus_core.run.prepare import prepare
from focus_core.testing.fakes import RandomPolicy

DISTRIBUTION = Path(__file__).parents[3] / "tasks/math"


class BoxingPolicy(RandomPolicy):
    """Thinks in small tokens; its text boxes how many it said."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seen = []

    def prepare(self, messages):
        self.seen.append(messages)
        return PreparedPrompt([1])

    def decode(self, tokens):
        return rf"so it is $\boxed{{{len(tokens)}}}$"


def collect(task, problem, policy):
    async def main():
        made = task.collector_for(policy, problem)
        # One at a time, so that the tree does not depend on which verdict comes first.
        one = attrs.evolve(made.search, max_concurrency=1)
        async with attrs.evolve(made, search=one) as collector:
            return await collector.collect(problem, key=(1,))

    return asyncio.run(main())


def test_it_is_a_task_that_proves_itself():
    task = MathTask()
    assert isinstance(task, Task)
    assert task.name == "math"
    task.validate()


def test_the_sample_is_what_it_falls_back_on():
    task = MathTask()
    problems = task.problems(task.defaults.source)
    assert len(problems) == 12
    assert len({problem.id for problem in problems}) == 12


def test_validation_notices_a_wrong_grader(monkeypatch):
    from focus_task_math import Verdict, task

    monkeypatch.setattr(task, "grade", lambda *_: Verdict(True, "everything is right", "1"))
    with pytest.raises(GradingError, match="not False"):
        MathTask().validate()


def test_a_tree_of_rewards_and_the_label_unseen():
    policy = BoxingPolicy(end=0.3)
    problem = Problem("How many?", r"A secret: $\boxed{4}$", id="q")
    collection = collect(MathTask(segment_tokens=2, max_tokens=8), problem, policy)
    assert not collection.failures
    assert {0.0, 1.0} == set(collection.returns)
    for rollout in collection.rollouts():
        assert rollout.reward == float(len(rollout.tokens) - 1 == 4)  # the prompt is one token
    assert "secret" not in str(policy.seen)
    assert "boxed" in str(policy.seen)  # the system prompt asks for a box
    assert "How many?" in str(policy.seen)


def test_a_gold_that_cannot_be_read_is_a_failure_and_no_reward():
    problem = Problem("How many?", r"\frac{1}{", id="q")
    collection = collect(MathTask(segment_tokens=2, max_tokens=4), problem, BoxingPolicy())
    assert collection.returns == []
    assert all(isinstance(failure.error, GradingError) for failure in collection.failures)
    assert "unbalanced braces" in str(collection.failures[0])


def test_the_environment_grades_the_whole_reply_once():
    env = MathEnv(r"\boxed{12}", lambda tokens: "".join(map(chr, tokens)), max_tokens=100)
    env.reset(Problem("p"))

    async def main():
        text = r"so \boxed{12}"
        first = await env.step(Reply([ord(c) for c in text[:9]], text[:9], "length"))
        branch = copy.copy(env)
        branch.restore(env.snapshot())
        right = await env.step(Reply([ord(c) for c in text[9:]], text[9:], "stop"))
        wrong = await branch.step(Reply([ord("3"), ord("}")], "3}", "stop"))
        return first, right, wrong

    first, right, wrong = asyncio.run(main())
    assert (first.done, first.reward) == (False, 0.0)
    assert (right.done, right.reward) == (True, 1.0)
    assert (wrong.done, wrong.reward) == (True, 0.0)


@pytest.mark.parametrize("label", [None, 5, ["x"]])
def test_a_label_that_is_no_text_is_refused(label):
    with pytest.raises(UsageError, match="label"):
        MathTask().collector_for(BoxingPolicy(), Problem("p", label))


@pytest.mark.parametrize("most", [None, 70])
def test_a_reply_is_as_long_as_max_tokens_or_max_transitions_say(most):
    problem = Problem("How many?", r"$\boxed{90}$", id="q")
    task = MathTask(segment_tokens=1, max_tokens=90, max_transitions=most)
    made = attrs.evolve(task.collector_for(BoxingPolicy(end=0.0), problem), search=Independent(1))

    async def main():
        async with made as collector:
            return await collector.collect(problem, key=(1,))

    collection = asyncio.run(main())
    assert collection.returns == ([1.0] if most is None else [])
    assert collection.counts["truncated"] == (0 if most is None else 1)


@pytest.mark.parametrize("option", ["segment_tokens", "max_tokens", "timeout", "max_transitions"])
def test_options_are_checked(option):
    with pytest.raises(ValueError, match=option):
        MathTask(**{option: 0})


def test_the_plugin_is_light_and_registers_the_task():
    project = tomllib.loads((DISTRIBUTION / "pyproject.toml").read_text())
    entry = project["project"]["entry-points"]["focus"]
    assert entry == {"math": "focus_task_math.plugin"}
    (spec,) = import_module(entry["math"]).focus_tasks()
    assert spec.name == "math"
    module, _, name = spec.factory.partition(":")
    assert getattr(import_module(module), name) is MathTask
    code = (
        "import sys, focus_task_math.plugin as p; p.focus_tasks(); "
        "print({'sympy', 'numpy', 'math_verify', 'asyncio'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_public_names():
    import focus_task_math

    for name in focus_task_math.__all__:
        assert getattr(focus_task_math, name).__name__ == name
    assert dir(focus_task_math) == focus_task_math.__all__
    with pytest.raises(AttributeError, match="nothing"):
        focus_task_math.nothing  # noqa: B018


def test_the_readme_runs(tmp_path, monkeypatch):
    text = (DISTRIBUTION / "README.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.jsonl").write_bytes(SAMPLE.read_bytes())
    for block in text.split("```python\n")[1:]:
        exec(block.split("```")[0], {"__name__": "readme"})
    assert load_problems("train.jsonl")


BAD = (
    '{"problem": "1+1?", "answer": "2"}\n'
    r'{"problem": "1+2?", "answer": "4", "solution": "$\\boxed{3}$"}' + "\n"
    r'{"problem": "x?", "answer": "x \ne 2"}' + "\n"
)


def prepared(path, **options):
    config = RunConfig(task="math", problems=str(path), **options)
    return prepare(load(), config, {}).problems


def test_the_options_about_bad_rows_reach_the_task(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(BAD)
    with pytest.raises(DataError, match=r"p\.jsonl:2: field 'answer': is '4'"):
        prepared(path)
    with pytest.raises(DataError, match=r"p\.jsonl:3: field 'answer': has a control character"):
        prepared(path, strict=True)
    with pytest.warns(DataWarning) as caught:
        assert [problem.id for problem in prepared(path, skip_bad_rows=True)] == ["p-1", "p-3"]
    doubt, left_out = (str(warning.message) for warning in caught)
    assert doubt.startswith(f"{path}:3: ")
    assert left_out.startswith(f"1 of 3 rows left out: {path}:2: ")
    with pytest.warns(DataWarning, match="2 of 3 rows left out"):
        assert len(prepared(path, strict=True, skip_bad_rows=True)) == 1
