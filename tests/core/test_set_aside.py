"""A problem that fails whenever it is tried does not end a run, nor the run that resumes it."""

import asyncio
import json

import pytest

from focus_core import (
    Agent,
    CollectionError,
    Collector,
    Critic,
    GradingError,
    Independent,
    Problem,
    ReplyEnv,
    TrainerError,
    UsageError,
    run_schedule,
)
from focus_core.run.evaluate import evaluate
from focus_core.schedule.aside import Aside, SetAside
from focus_core.schedule.progress import Progress
from focus_core.testing import RecordingTrainer, TextPolicy


class Env(ReplyEnv):
    def __init__(self, world, problem, decode):
        super().__init__(decode, 4)
        self.world, self.problem = world, problem

    async def grade(self, text):
        self.world.tries.append(self.problem.id)
        error = self.world.faults.get(self.problem.id)
        if error is not None and not isinstance(error, int):
            raise error
        if error:
            self.world.faults[self.problem.id] -= 1
            raise GradingError("once more")
        return float(len(text) % 2)


class World:
    """Problems "p0" and so on, of which some fail: always with an error, or so many times."""

    def __init__(self, faults=None, count=6, context=None, long=()):
        self.faults, self.tries, self.context = faults or {}, [], context
        self.problems = [
            Problem("1 " * (100 if f"p{i}" in long else 1), id=f"p{i}") for i in range(count)
        ]
        self.written = []

    def collector_for(self, policy, problem):
        agent = Agent(policy, Env(self, problem, policy.decode))
        return Collector(agent, critic=Critic.constant(0.5), search=Independent(1))

    def run(self, steps=3, *, aside=..., start=None, depth=0, **options):
        def policy(step):
            made = TextPolicy(end=0.5)
            made.version = step
            if self.context is not None:
                made.context_length = self.context
            return made

        trainer = RecordingTrainer(policy=policy)
        aside = Aside(on_new=self.written.append) if aside is ... else aside

        async def main():
            async with trainer:
                return await run_schedule(
                    trainer,
                    self.problems,
                    self.collector_for,
                    steps=steps,
                    seed=0,
                    start=start,
                    async_depth=depth,
                    **{"problems_per_step": 2, "aside": aside, **options},
                )

        reports = asyncio.run(main())
        return reports, trainer


def trained(trainer):
    """The problems of each batch, in order."""
    return [
        [record.metadata["training"]["problem"] for record in batch.actor]
        for batch in trainer.batches
    ]


BAD = GradingError("no gold")


@pytest.mark.parametrize("depth", [0, 1])
def test_it_is_tried_set_aside_named_and_replaced(depth, caplog):
    world = World({"p2": BAD})
    reports, trainer = world.run(depth=depth)
    assert world.tries.count("p2") == 3
    assert trained(trainer) == [["p0", "p1"], ["p4", "p3"], ["p4", "p5"]]
    assert [report.metrics.get("set_aside") for report in reports] == [None, ["p2"], None]
    assert all(report.metrics["trees"] == 2 for report in reports), "batches keep their size"
    (one,) = world.written
    assert (one.problem, one.tries) == ("p2", 3)
    assert "no gold" in one.why
    assert "problem 'p2' is set aside after 3 tries" in caplog.text


def test_what_works_at_last_is_kept():
    world = World({"p2": 2})
    reports, trainer = world.run()
    assert trained(trainer)[1] == ["p2", "p3"]
    assert not world.written
    assert reports[1].metrics["sampled_tokens"] > reports[1].metrics["trained_tokens"]


def test_a_resume_meets_it_no_more_and_makes_the_same_batches():
    whole = World({"p2": BAD, "p3": BAD})
    _, trainer = whole.run(steps=5)
    again = World({"p2": BAD, "p3": BAD})
    start = Progress(batch=1, learner_step=0)
    _, resumed = again.run(steps=4, start=start, aside=Aside(known=whole.written))
    assert trained(resumed) == trained(trainer)[1:]
    assert not {"p2", "p3"} & set(again.tries)
    tokens = [[list(record.tokens) for record in batch.actor] for batch in trainer.batches[1:]]
    assert tokens == [[list(r.tokens) for r in batch.actor] for batch in resumed.batches]


def test_problems_that_fail_one_after_another_end_the_run_and_stay():
    world = World({f"p{i}": BAD for i in range(6)})
    with pytest.raises(CollectionError, match="no gold") as caught:
        world.run(problems_per_step=1)
    assert "so did 'p1', 'p2' in its place" in "".join(caught.value.__notes__)
    assert not world.written


def test_the_last_that_is_left_fills_every_place():
    world = World({"p0": BAD, "p1": BAD}, count=3)
    _, trainer = world.run(steps=2, problems_per_step=2)
    assert trained(trainer) == [["p2", "p2"], ["p2", "p2"]]
    assert {one.problem for one in world.written} == {"p0", "p1"}


def test_without_it_and_for_what_is_no_problems_fault_the_first_failure_ends_the_run():
    world = World({"p0": BAD})
    with pytest.raises(CollectionError, match="no gold"):
        world.run(aside=None, problems_per_step=1)
    for error in (TrainerError("the server is gone"), UsageError("a wrong option")):
        world = World({"p0": error})
        with pytest.raises(CollectionError, match=str(error)):
            world.run(problems_per_step=1)
        assert world.tries == ["p0"]


def test_trees_without_a_single_continuation_are_no_partial_trees():
    world = World({"p2": BAD})
    _, trainer = world.run(allow_partial=True)
    assert trained(trainer)[1] == ["p4", "p3"]


def test_prompts_are_measured_before_the_run(caplog):
    world = World(context=40, long={"p3", "p4"})
    reports, trainer = world.run()
    assert reports[0].metrics["set_aside"] == ["p3", "p4"]
    assert [(one.problem, one.tries) for one in world.written] == [("p3", 0), ("p4", 0)]
    assert "leaves no room in the policy's context of 40" in world.written[0].why
    assert not {"p3", "p4"} & set(world.tries)
    assert [len(batch) for batch in trained(trainer)] == [2, 2, 2]
    with pytest.raises(UsageError, match="all 2 problems are set aside; the first, 'p0'"):
        World(count=2, context=40, long={"p0", "p1"}).run()


def test_only_problems_that_come_are_measured():
    world = World(context=40, long={"p5"})
    reports, _ = world.run(steps=1)
    assert "set_aside" not in reports[0].metrics


def test_the_directory_keeps_them(tmp_path):
    from focus_core.run.config import RunConfig
    from focus_core.run.directory import RunDirectory

    directory = RunDirectory.create(tmp_path, RunConfig(task="t"))
    assert directory.set_aside() == []
    one = SetAside("p2", 3, "GradingError: no gold")
    directory.keep_aside(one)
    with (tmp_path / "set-aside.jsonl").open("a") as file:
        file.write('{"problem": "p3", "tr')  # killed in the middle of it
    assert directory.set_aside() == [one]
    assert json.loads((tmp_path / "set-aside.jsonl").read_text().splitlines()[0])["tries"] == 3


def test_an_evaluation_goes_on_without_it():
    def collector_for(policy, problem):
        if problem.id == "p1":
            raise GradingError("no gold")
        return world.collector_for(policy, problem)

    world = World()
    found = asyncio.run(evaluate(TextPolicy(end=0.5), world.problems, collector_for))
    assert len(found.returns) == 5
    assert "no gold" in str(found)

    def mistaken(policy, problem):
        raise UsageError("a wrong option")

    with pytest.raises(UsageError, match="a wrong option"):
        asyncio.run(evaluate(TextPolicy(end=0.5), world.problems, mistaken))
