"""The task ``cookbook``: whatever makes environments there, in Python and on the command line."""

import asyncio
import json
import subprocess
import sys
import threading

import chz
import pytest
from focus_adapter_cookbook import CookbookTask, from_cookbook
from focus_adapter_cookbook.chat import TEMPLATE_RENDERER
from tinker_cookbook.recipes.math_rl.arithmetic_env import ArithmeticDatasetBuilder
from tinker_cookbook.recipes.multiplayer_rl.guess_number.env import GuessNumberDatasetBuilder
from tinker_cookbook.rl.types import RLDataset, RLDatasetBuilder

from focus_core import GroupCentered, Independent, Problem, Segments, Turns, UsageError
from focus_core.testing import RandomPolicy, TaskContract
from tests.adapters.cookbook.cookbook_kit import TalkEnv, TalkGroup


class TestContract(TaskContract):
    def subject(self):
        return CookbookTask([TalkGroup(), TalkGroup(lambda: TalkEnv(3))], max_tokens=8)


class TestContractOfARecipe(TaskContract):
    """What a policy says of bytes beyond the tokenizer's vocabulary cannot be decoded there."""

    def policies(self):
        return [RandomPolicy(vocabulary=90, end=0.05), RandomPolicy(vocabulary=90, end=0.5)]

    def subject(self):
        return from_cookbook(recipe(_tiny()), max_tokens=12, segment_tokens=4)


def _tiny():
    from pathlib import Path

    import focus_adapter_local

    return str(Path(focus_adapter_local.__file__).parent / "tiny")


def recipe(model):
    return ArithmeticDatasetBuilder(
        batch_size=2,
        group_size=2,
        n_batches=2,
        model_name_for_tokenizer=model,
        renderer_name=TEMPLATE_RENDERER,
    )


class Batches(RLDataset):
    def __init__(self, *batches):
        self.batches = batches

    def get_batch(self, index):
        return self.batches[index]

    def __len__(self):
        return len(self.batches)


def test_anything_that_makes_environments_is_a_task():
    groups = [TalkGroup() for _ in range(5)]
    assert [p.metadata["builder"] for p in from_cookbook(groups[0]).problems()] == groups[:1]
    assert [p.metadata["builder"] for p in from_cookbook(groups).problems("train")] == groups
    dataset = Batches(groups[:2], groups[2:4], groups[4:])
    problems = from_cookbook(dataset).problems()
    assert [p.metadata["builder"] for p in problems] == groups
    assert [p.id for p in problems] == [f"train-{n}" for n in range(5)]
    (alone,) = from_cookbook(TalkEnv).problems()
    assert alone.metadata["builder"].make is TalkEnv


def test_a_dataset_builder_makes_train_and_test(tiny):
    task = from_cookbook(
        GuessNumberDatasetBuilder(
            batch_size=8,
            renderer_name=TEMPLATE_RENDERER,
            train_group_size=2,
            model_name=tiny,
        )
    )
    assert len(task.problems("train")) == 920
    assert len(task.problems("test")) == 103
    task.validate()
    with pytest.raises(UsageError, match="the builder makes train, and no test"):
        from_cookbook(recipe(tiny)).problems("test")


@chz.chz
class Slow(RLDatasetBuilder):
    """Makes a dataset once it is told to, from the loop that waits for it."""

    go_on: threading.Event

    async def __call__(self):
        await asyncio.to_thread(self.go_on.wait, 60)
        return Batches([TalkGroup()]), None


def test_a_running_event_loop_is_not_held_up():
    """What would wait is refused, and runs beside the loop where it is told to."""

    async def main():
        go_on = threading.Event()
        task = from_cookbook(Slow(go_on=go_on))
        with pytest.raises(UsageError, match=r"await asyncio.to_thread\(task.problems\)"):
            task.problems()
        reading = asyncio.ensure_future(asyncio.to_thread(task.problems))
        await asyncio.sleep(0)
        go_on.set()  # the loop is free to say so
        (problem,) = await reading
        assert [p.id for p in task.problems()] == [problem.id], "it is read already"
        with pytest.raises(UsageError, match=r"await asyncio.to_thread\(task.validate\)"):
            task.validate()
        await asyncio.to_thread(task.validate)

    asyncio.run(main())


def test_what_needs_no_waiting_is_read_within_an_event_loop():
    async def main():
        return from_cookbook([TalkGroup(), TalkGroup()]).problems()

    assert len(asyncio.run(main())) == 2


def test_options_decide_what_is_collected():
    policy, problem = RandomPolicy(), from_cookbook(TalkGroup()).problems()[0]

    def agent(**options):
        return from_cookbook(TalkGroup(), **options).collector_for(policy, problem).agent

    assert agent(max_tokens=9).context == Segments(256)
    assert agent(max_tokens=9, segment_tokens=None).context == Turns(9)
    assert agent(max_transitions=3).transition_limit == 3
    assert agent(max_tokens=9, segment_tokens=2).transition_limit == 64 * 5
    collector = from_cookbook(TalkGroup(), branch=False).collector_for(policy, problem)
    assert (collector.search, collector.recipe) == (Independent(8), GroupCentered())
    assert not collector.agent.forkable


@pytest.mark.parametrize(
    ("builder", "options", "said"),
    [
        (3, {}, "builder=3: give an RLDatasetBuilder"),
        (None, {}, "builder=None: give an RLDatasetBuilder"),
        ("no.such:Thing", {}, "cannot be imported"),
        ("tinker_cookbook.recipes.math_rl.arithmetic_env:Nothing", {}, "cannot be imported"),
        (
            "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder",
            {"batch": 3},
            "ArithmeticDatasetBuilder': .*Error",
        ),
        (TalkEnv, {"x": 1}, "task.options go with a builder's name"),
    ],
)
def test_mistakes_are_told(builder, options, said):
    with pytest.raises(UsageError, match=said):
        CookbookTask(builder, options).problems()


def test_a_tokenizer_can_be_named(tiny):
    assert CookbookTask(tokenizer=tiny).tokenizer.name_or_path == tiny


def test_a_problem_of_another_task_is_told():
    with pytest.raises(UsageError, match="problem 'x' holds no EnvGroupBuilder"):
        from_cookbook(TalkGroup()).collector_for(RandomPolicy(), Problem("2+3", id="x"))
    with pytest.raises(UsageError, match="segment_tokens=0"):
        from_cookbook(TalkGroup(), segment_tokens=0)


# The command line -------------------------------------------------------------------------------


def focus(*args):
    done = subprocess.run(
        [sys.executable, "-m", "focus_core", *args], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_recipe_of_the_cookbook_is_collected_and_exported(tiny, tmp_path):
    builder = "tinker_cookbook.recipes.multiplayer_rl.guess_number.env:GuessNumberDatasetBuilder"
    options = {
        "batch_size": 4,
        "train_group_size": 2,
        "renderer_name": TEMPLATE_RENDERER,
        "model_name": tiny,
    }
    settings = {
        "task.builder": builder,
        "task.options": json.dumps(options),
        "task.max_tokens": "12",
        "task.segment_tokens": "6",
        "trainer.threads": "1",
    }
    given = [item for pair in settings.items() for item in ("--set", "=".join(pair))]
    out = tmp_path / "out"
    focus("collect", "--task", "cookbook", "--trainer", "local", "--output", str(out), *given)
    records = [json.loads(line) for line in (out / "actor.jsonl").read_text().splitlines()]
    assert records
    starts = {tuple(record["tokens"][:20]) for record in records}
    assert len(starts) == 1, "all begin with the environment's own prompt"
    items = tmp_path / "items.jsonl"
    focus("export", str(out), "--to", "cookbook", "--output", str(items))
    lines = [json.loads(line) for line in items.read_text().splitlines()]
    assert len(lines) == len(records)
    assert set(lines[0]["loss_fn_inputs"]) == {"target_tokens", "logprobs", "advantages", "mask"}
