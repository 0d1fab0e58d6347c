"""What a run measures, saves and tells."""

import asyncio

import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    Independent,
    Limits,
    Problem,
    RefinedTd,
    ReplyEnv,
    StepReport,
    run_schedule,
)
from focus_core.plugins.observers import Observers
from focus_core.testing import RecordingTrainer
from tests.core.schedule_kit import World, constant, trees

# Evaluation and checkpoints -------------------------------------------------------------------


def measured(reports):
    return [(r.batch, r.metrics["eval/version"]) for r in reports if "eval/version" in r.metrics]


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("slow", ["collect", "update", "evaluate"])
def test_evaluation_has_the_newest_weights(depth, slow):
    seconds = {"collect": 1.0, "update": 1.0, "evaluate": 1.0, slow: 5.0}
    world = World(
        collect=constant(seconds["collect"]),
        update=constant(seconds["update"]),
        measure=constant(seconds["evaluate"]),
    )
    reports = world.run(5, async_depth=depth, evaluate=world.evaluate, eval_every=2)
    # Before the first, after the 2nd, the 4th and the last: with that many updates in them.
    assert measured(reports) == [(1, 2), (3, 4), (4, 5)]
    assert world.count["evaluate"] == 4
    assert world.order().index(("evaluate", 0, "begins")) < world.order().index(
        ("update", 0, "begins")
    )
    # And no policy beyond those sampled from or measured.
    sampled = {t[2] for t in trees(world)}
    assert {p.version for p in world.policies} == sampled | {0, 2, 4, 5}
    assert len(world.policies) == len({p.version for p in world.policies})
    world.check_end()


@pytest.mark.parametrize("depth", [0, 1])
def test_without_a_period_only_the_first_and_last_policy_are_measured(depth):
    world = World()
    assert measured(world.run(3, async_depth=depth, evaluate=world.evaluate)) == [(2, 3)]
    assert world.count["evaluate"] == 2


def test_the_last_evaluation_follows_the_token_cap():
    world = World()
    reports = world.run(9, evaluate=world.evaluate, limits=Limits(max_tokens=4))
    assert measured(reports) == [(1, 2)]


def test_an_evaluation_after_a_skipped_last_batch_publishes_nothing_new():
    world = World(skips={1})
    assert measured(world.run(2, evaluate=world.evaluate)) == [(1, 1)]
    assert [p.version for p in world.policies] == [0, 1]
    world.check_end()


def test_a_checkpoint_follows_its_update_and_precedes_on_step():
    world = World(save=constant(0.5))
    world.run(4, save_every=3, on_saved=world.saved, evaluate=world.evaluate)
    order = world.order()
    assert [e[1] for e in order if e[0] == "saved"] == ["step-000003", "step-000004"]
    for batch, number in ((2, 0), (3, 1)):
        places = [
            order.index(("update", batch, "ends")),
            order.index(("sink", batch)),
            order.index(("save", number, "ends")),
            next(i for i, e in enumerate(order) if e[0] == "saved" and e[2].batch == batch + 1),
            order.index(("on_step", batch)),
        ]
        assert places == sorted(places)


def test_without_on_saved_nothing_is_saved():
    world = World()
    world.run(2, save_every=1)
    assert world.count["save"] == 0


# Reports and observers ------------------------------------------------------------------------


def test_reports_reach_on_step_and_observers_in_order():
    from focus_core import hookimpl

    seen = []

    class Watcher:
        @hookimpl
        def focus_policy_published(self, event):
            seen.append(("published", event.behavior_step, event.version))

        @hookimpl
        def focus_batch_collected(self, event):
            seen.append(("collected", event.batch, event.behavior_step))

        @hookimpl
        def focus_update_started(self, event):
            seen.append(("started", event.batch.index))

        @hookimpl
        def focus_records_delivered(self, event):
            seen.append(("delivered", event.batch, event.lane, event.count))

        @hookimpl
        def focus_policy_evaluated(self, event):
            seen.append(("evaluated", event.learner_step))

        @hookimpl
        def focus_step_finished(self, event):
            seen.append(("finished", event.report))

    world = World()
    reports = world.run(
        2,
        async_depth=0,
        evaluate=world.evaluate,
        observers=Observers([Watcher()]),
        on_step=lambda report: seen.append(("on_step", report)),
    )
    assert all(isinstance(r, StepReport) for r in reports)
    assert seen == [
        ("published", 0, 0),
        ("evaluated", 0),
        ("collected", 0, 0),
        ("started", 0),
        ("delivered", 0, "critic", 1),
        ("published", 1, 1),
        ("finished", reports[0]),
        ("on_step", reports[0]),
        ("collected", 1, 1),
        ("started", 1),
        ("delivered", 1, "critic", 1),
        ("published", 2, 2),
        ("evaluated", 2),
        ("finished", reports[1]),
        ("on_step", reports[1]),
    ]


def test_reports_carry_the_numbers_of_the_collection():
    (report,) = World(per_step=3).run(1)
    numbers = {
        "trees": 3,
        "sampled_tokens": 6,
        "transitions": 3,
        "continuations": 3,
        "failed_continuations": 0,
        "actor_records": 3,
        "trained_tokens": 6,
        "return_mean": 1.0,
        "signal_share": 0.0,
        "loss": 0.5,
    }
    assert {name: report.metrics[name] for name in numbers} == numbers


class Sums(ReplyEnv):
    """Gives the rewards of its problem's metadata, one rollout after another."""

    async def grade(self, text):
        return self.rewards.pop(0)


def train_on(rewards, critic):
    """One update on a tree for each list of rewards, a reward a rollout."""

    def collector_for(policy, problem):
        env = Sums(policy.decode, max_tokens=4)
        env.rewards = list(problem.metadata["rewards"])
        search = Independent(len(env.rewards))
        return Collector(Agent(policy, env), critic=critic, search=search, recipe=RefinedTd())

    async def main():
        problems = [Problem("1", metadata={"rewards": each}) for each in rewards]
        async with RecordingTrainer() as trainer:
            return await run_schedule(
                trainer, problems, collector_for, steps=1, problems_per_step=len(rewards)
            )

    (report,) = asyncio.run(main())
    return report.metrics


def test_reports_say_how_many_problems_tell_replies_apart():
    rewards = [[1.0, 0.0], [1.0, 1.0], [0.1 + 0.2, 0.3], [0.5, 0.25]]
    assert train_on(rewards, Critic.constant(0.5))["signal_share"] == 0.5


@pytest.mark.parametrize(
    ("rewards", "expected", "warned"),
    [([[0.0, 0.0]], 0.5, True), ([[0.0, 0.0]], 0.0, False), ([[0.0, 0.0], [1.0, 0.0]], 0.5, False)],
)
def test_a_batch_without_any_reward_that_trains_is_warned_of(rewards, expected, warned, caplog):
    train_on(rewards, Critic.constant(expected))
    assert ("batch 0: no rollout got any reward" in caplog.text) == warned
