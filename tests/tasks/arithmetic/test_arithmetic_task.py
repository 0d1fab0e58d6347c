"""The task: what the policy sees, what it earns, and what it is called."""

import asyncio
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import attrs
import pytest
from focus_task_arithmetic import ArithmeticEnv, ArithmeticTask

from focus_core import GradingError, PreparedPrompt, Problem, Reply, Task, UsageError
from focus_core.plugins.options import build
from focus_core.testing.fakes import RandomPolicy

DISTRIBUTION = Path(__file__).parents[3] / "tasks/arithmetic"


class BoxingPolicy(RandomPolicy):
    """Its text boxes how many tokens it said."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seen = []

    def prepare(self, messages):
        self.seen.append(messages)
        return PreparedPrompt([1])

    def decode(self, tokens):
        return rf"\boxed{{{len(tokens)}}}"


def collect(task, problem, policy):
    async def main():
        made = task.collector_for(policy, problem)
        # One at a time, so that the tree does not depend on which verdict comes first.
        one = attrs.evolve(made.search, max_concurrency=1)
        async with attrs.evolve(made, search=one) as collector:
            return await collector.collect(problem, key=(1,))

    return asyncio.run(main())


def test_it_is_a_task_that_proves_itself():
    task = ArithmeticTask()
    assert isinstance(task, Task)
    assert task.name == "arithmetic"
    task.validate()


def test_validation_notices_a_wrong_grader(monkeypatch):
    monkeypatch.setattr("focus_task_arithmetic.task.grade", lambda text, answer: True)
    with pytest.raises(GradingError, match="not graded False"):
        ArithmeticTask().validate()


def test_problems_are_short_and_labelled():
    task = ArithmeticTask(levels=(2, 5), count=50)
    for problem in task.problems("heldout"):
        assert problem.prompt == f"Compute {problem.id}. Box the answer."
        assert int(problem.label) == eval(problem.id)
        assert problem.metadata["operands"] in (3, 6)
        assert problem.metadata["split"] == "heldout"


def test_the_seed_changes_the_training_problems_only():
    one, other = (ArithmeticTask(seed=seed, count=50) for seed in (0, 1))
    assert one.problems() == one.problems("train") != other.problems("train")
    assert one.problems("heldout") == other.problems("heldout")
    assert one.problems("tune") == other.problems("tune")


def test_the_defaults_can_be_used():
    task = ArithmeticTask()
    assert len(task.problems(task.defaults.source)) == task.count
    assert len(task.problems(task.defaults.eval_source)) >= task.defaults.eval_problems


@pytest.mark.parametrize("source", ["test", "problems.jsonl", ""])
def test_other_sources_are_refused(source):
    with pytest.raises(UsageError, match="train, tune, heldout"):
        ArithmeticTask().problems(source)


def test_more_problems_than_there_are_is_a_plain_error():
    with pytest.raises(UsageError, match=r"have \d+ heldout questions, not 200.*task.count"):
        ArithmeticTask(levels=(1,), count=200).problems("heldout")


def test_a_tree_of_rewards_and_the_answer_unseen():
    policy = BoxingPolicy(end=0.3)
    problem = Problem("How many?", "3", id="q")
    collection = collect(ArithmeticTask(segment_tokens=2, max_tokens=8), problem, policy)
    assert not collection.failures
    assert set(collection.returns) == {0.0, 1.0}
    for rollout in collection.rollouts():
        assert rollout.reward == float(len(rollout.tokens) - 1 == 3)  # the prompt is one token
    assert {str(messages) for messages in policy.seen} == {
        "({'role': 'user', 'content': 'How many?'},)"
    }


def test_the_critic_predicts_what_the_option_says():
    collection = collect(
        ArithmeticTask(critic=0.25, segment_tokens=2), Problem("p", "0", id="q"), BoxingPolicy()
    )
    assert collection.tree.prediction[0] == 0.25


def test_the_reply_ends_at_its_limit_with_what_it_earned():
    env = ArithmeticEnv(9, lambda tokens: "".join(map(chr, tokens)), max_tokens=9)
    env.reset(Problem("p"))

    async def say(text):
        return await env.step(Reply([ord(c) for c in text], text, "length"))

    first, second = asyncio.run(say(r"\boxe")), asyncio.run(say("d{9}"))
    assert (first.done, first.reward) == (False, 0.0)
    assert (second.done, second.reward, second.truncated) == (True, 1.0, False)


@pytest.mark.parametrize("label", [None, "nine", [9]])
def test_a_label_that_is_no_integer_is_refused(label):
    with pytest.raises(UsageError, match="label"):
        ArithmeticTask().collector_for(BoxingPolicy(), Problem("p", label))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("levels", ()),
        ("levels", (1, 77)),
        ("count", 0),
        ("critic", 1.5),
        ("max_tokens", 0),
        ("max_transitions", 0),
    ],
)
def test_options_are_checked(option, value):
    with pytest.raises(ValueError, match=option):
        ArithmeticTask(**{option: value})


def test_options_come_from_the_command_line():
    task = build(ArithmeticTask, {"levels": "2,3", "critic": "0.5"}, "task")
    assert task == attrs.evolve(ArithmeticTask(), levels=(2, 3), critic=0.5)
    assert build(ArithmeticTask, {"levels": "7"}, "task").levels == (7,)
    cut = build(ArithmeticTask, {"max_transitions": "3"}, "task")
    assert cut.collector_for(BoxingPolicy(), Problem("p", "1")).agent.transition_limit == 3


def test_the_plugin_is_light_and_registers_the_task():
    project = tomllib.loads((DISTRIBUTION / "pyproject.toml").read_text())
    entry = project["project"]["entry-points"]["focus"]
    assert entry == {"arithmetic": "focus_task_arithmetic.plugin"}
    (spec,) = import_module(entry["arithmetic"]).focus_tasks()
    module, _, name = spec.factory.partition(":")
    assert getattr(import_module(module), name) is ArithmeticTask
    code = (
        "import sys, focus_task_arithmetic.plugin as p; p.focus_tasks(); "
        "print({'numpy', 'asyncio', 'focus_task_arithmetic.task'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_public_names():
    import focus_task_arithmetic

    for name in focus_task_arithmetic.__all__:
        assert getattr(focus_task_arithmetic, name) is not None
    assert dir(focus_task_arithmetic) == sorted(focus_task_arithmetic.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        focus_task_arithmetic.nothing  # noqa: B018


def test_the_readme_runs():
    text = (DISTRIBUTION / "README.md").read_text("utf-8")
    for block in text.split("```python\n")[1:]:
        exec(block.split("```")[0], {"__name__": "readme"})
