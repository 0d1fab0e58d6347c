"""The loop's order, overlap and stamps, in exact virtual time."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_core import Lane
from focus_core.lanes import CRITIC
from focus_core.schedule.progress import Progress
from tests.core.schedule_kit import PROBLEMS, Env, World, constant, steps_of, trees

# The table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("collect", "update"), [(1.0, 3.0), (3.0, 1.0), (2.0, 2.0), (0.0, 0.0)])
def test_three_asynchronous_updates_are_sampled_at_steps_0_0_1(collect, update):
    world = World(collect=constant(collect), update=constant(update))
    reports = world.run(3)
    assert steps_of(reports) == [(0, 0, 0, 0), (1, 0, 1, 1), (2, 1, 2, 1)]
    assert [(b.index, b.behavior_step, b.learner_step, b.policy_lag) for b in world.batches] == [
        (0, 0, 0, 0),
        (1, 0, 1, 1),
        (2, 1, 2, 1),
    ]
    assert [p.version for p in world.policies] == [0, 1]
    world.check_end()


@pytest.mark.parametrize(("collect", "update"), [(1.0, 3.0), (3.0, 1.0)])
def test_depth_0_collects_with_the_current_weights(collect, update):
    world = World(collect=constant(collect), update=constant(update))
    assert steps_of(world.run(3, async_depth=0)) == [(0, 0, 0, 0), (1, 1, 1, 0), (2, 2, 2, 0)]
    assert [p.version for p in world.policies] == [0, 1, 2]
    world.check_end()


@pytest.mark.parametrize("depth", [0, 1])
def test_one_update_needs_one_policy_and_one_collection(depth):
    world = World()
    assert steps_of(world.run(1, async_depth=depth)) == [(0, 0, 0, 0)]
    assert (len(world.policies), world.count["tree"]) == (1, 1)
    world.check_end()


def test_the_next_collection_runs_during_the_update_and_never_later():
    world = World(collect=lambda batch, _: 1.0 + batch, update=constant(5.0))
    world.run(3)
    begun, ended = world.times("step", "begins"), world.times("step", "ends")
    update = world.times("update", "begins")
    assert (begun[0, 0], ended[0, 0]) == (0.0, 1.0)
    assert begun[1, 0] == update[0,] == 1.0  # at the update's start ...
    assert ended[1, 0] == 3.0 < world.times("update", "ends")[0,] == 6.0  # ... and beside it
    assert begun[2, 0] == update[1,] == 6.0
    assert world.when("returned") == 1.0 + 5.0 + 5.0 + 5.0


def test_nothing_overlaps_at_depth_0():
    world = World(per_step=1, collect=constant(2.0), update=constant(3.0))
    world.run(4, async_depth=0)
    alone = sorted(
        (world.times(what, "begins")[key], end)
        for what in ("step", "update")
        for key, end in world.times(what, "ends").items()
    )
    assert len(alone) == 8
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(alone))
    assert world.when("returned") == 4 * 5.0


def test_a_trainer_that_samples_and_updates_in_turns_sees_them_in_turns():
    """The trainer's two calls never overlap, even at depth 1."""
    world = World(publish=constant(2.0), update=constant(1.0), collect=constant(0.5))
    world.run(4)
    calls = [e for e in world.order() if e[0] in ("publish", "update")]
    for begins, ends in zip(calls[::2], calls[1::2], strict=True):
        assert begins[:-1] == ends[:-1]
        assert (begins[-1], ends[-1]) == ("begins", "ends")


# Problems -------------------------------------------------------------------------------------


def test_problems_are_cycled_through_in_order():
    world = World(per_step=2, collect=lambda batch, place: 1.0 + 0.3 * place)
    world.run(3)
    assert [(batch, place, name) for batch, place, _, name in trees(world)] == [
        (0, 0, "p0"),
        (0, 1, "p1"),
        (1, 0, "p2"),
        (1, 1, "p0"),
        (2, 0, "p1"),
        (2, 1, "p2"),
    ]
    for batch in world.batches:
        assert [r.metadata["group_index"] for r in batch.actor] == [0, 1]
        assert [i["metadata"]["group_index"] for i in batch.items] == [0, 1]


def test_trees_of_a_batch_grow_side_by_side_and_the_slowest_ends_it():
    world = World(per_step=3, collect=lambda batch, place: 3.0 - place, update=constant(0.0))
    world.run(1)
    assert set(world.times("step", "begins").values()) == {0.0}
    assert world.when("returned") == 3.0
    assert [r.metadata["problem"] for r in world.batches[0].actor] == ["p0", "p1", "p2"]


def test_more_trees_than_problems_take_a_problem_twice_in_one_batch():
    world = World(per_step=4)
    world.run(1)
    assert [name for *_, name in trees(world)] == ["p0", "p1", "p2", "p0"]
    assert [r.metadata["group_index"] for r in world.batches[0].actor] == [0, 1, 2, 3]


# Stamps ---------------------------------------------------------------------------------------


def test_records_say_what_they_were_trained_with():
    world = World(per_step=2)
    world.run(3)
    for batch in world.batches:
        for place, record in enumerate(batch.actor):
            assert record.metadata["training"] == {
                "batch": batch.index,
                "problem": PROBLEMS[(2 * batch.index + place) % 3].id,
                "behavior_step": batch.behavior_step,
            }
    for (index, behavior), records in zip([(0, 0), (1, 0), (2, 1)], world.delivered, strict=True):
        assert [r["lane"] for r in records] == ["critic", "critic"]
        for place, record in enumerate(records):
            assert record["metadata"]["training"] == {
                "batch": index,
                "problem": PROBLEMS[(2 * index + place) % 3].id,
                "behavior_step": behavior,
                "learner_step": index,
            }


def test_critic_records_are_delivered_after_their_update():
    world = World(collect=constant(0.1), update=constant(2.0))
    world.run(3)
    order = world.order()
    for batch in range(3):
        sink = order.index(("sink", batch))
        assert order.index(("update", batch, "ends")) < sink < order.index(("on_step", batch))


def test_further_lanes_reach_their_own_sinks():
    got = []
    lane = Lane("copy", CRITIC.record_type, CRITIC.export, "sink")
    world = World()
    world.run(2, lanes={"copy": (lane, got.append)})
    assert [len(records) for records in got] == [1, 1]
    assert got == world.delivered


def test_no_critic_sink_is_needed():
    world = World()
    assert len(world.run(2, critic_sink=None)) == 2
    assert world.delivered == []


def test_the_trainer_gets_merged_records_only_if_it_can_merge():
    class Long(Env):
        left = 2

        async def step(self, reply):
            await super().step(reply)
            self.left -= 1
            from focus_core import Transition

            return Transition(1.0, done=True) if not self.left else Transition()

    def run(merge, capabilities):
        world = World()
        world.capabilities = frozenset(capabilities)
        build = world.collector_for

        def collector_for(policy, problem):
            collector = build(policy, problem)
            collector.agent.env = Long(world, policy, 0, 0)
            return collector

        world.collector_for = collector_for
        world.run(1, merge=merge)
        return len(world.batches[0].items)

    assert run(None, []) == 2
    assert run(None, ["merges-spans"]) == 1
    assert run(True, []) == 1
    assert run(False, ["merges-spans"]) == 2


# Skipped batches ------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1])
def test_a_batch_without_signal_is_skipped(depth):
    world = World(skips={1})
    reports = world.run(4, async_depth=depth)
    assert [r.batch for r in reports] == [0, 1, 2, 3]
    assert [r.learner_step for r in reports] == [0, 1, 1, 2]
    assert [b.index for b in world.batches] == [0, 2, 3]
    assert ["skipped" in r.metrics for r in reports] == [False, True, False, False]
    assert isinstance(reports[1].metrics["skipped"], str)
    assert "loss" not in reports[1].metrics
    assert reports[0].metrics["loss"] == 0.5
    assert [r[0]["metadata"]["training"]["batch"] for r in world.delivered] == [0, 1, 2, 3]
    assert [r[0]["metadata"]["training"]["learner_step"] for r in world.delivered] == [0, 1, 1, 2]
    published = [p.version for p in world.policies]
    assert published == ([0, 1, 2] if depth == 0 else [0, 1])
    world.check_end()


@pytest.mark.parametrize("depth", [0, 1])
def test_a_run_of_skipped_batches_publishes_once(depth):
    world = World(skips=range(9))
    reports = world.run(4, async_depth=depth)
    assert steps_of(reports) == [(b, 0, 0, 0) for b in range(4)]
    assert len(world.policies) == 1
    assert world.batches == []
    world.check_end()


def test_a_threshold_that_leaves_nothing_skips_and_keeps_the_critic_records():
    world = World()
    (report,) = world.run(1, min_abs_advantage=10.0)
    assert "skipped" in report.metrics
    assert report.metrics["actor_records"] == 0
    assert len(world.delivered) == 1


# Invariants -----------------------------------------------------------------------------------

grid = st.integers(0, 6).map(lambda k: k / 2)


@st.composite
def scripts(draw):
    steps = draw(st.integers(1, 5))
    per_step = draw(st.integers(1, 3))
    collect = [[draw(grid) for _ in range(per_step)] for _ in range(steps)]
    update = [draw(grid) for _ in range(steps)]
    skips = draw(st.sets(st.integers(0, steps - 1)))
    return steps, per_step, collect, update, skips


@settings(max_examples=60, deadline=None)
@given(scripts(), st.sampled_from([0, 1]), st.integers(0, 2))
def test_whatever_the_durations(script, depth, start):
    steps, per_step, collect, update, skips = script
    world = World(
        per_step=per_step,
        start_batch=start,
        collect=lambda batch, place: collect[batch - start][place],
        update=lambda batch: update[batch - start],
        skips={start + s for s in skips},
    )
    reports = world.run(
        steps, async_depth=depth, start=Progress(batch=start, learner_step=7, sampled_tokens=0)
    )
    world.check_end()
    # Every batch in order; a step for each that trained.
    assert [r.batch for r in reports] == list(range(start, start + steps))
    learner = [7]
    for report in reports:
        learner.append(learner[-1] + (report.batch - start not in skips))
    assert [r.learner_step for r in reports] == learner[:-1]
    assert [b.index - start for b in world.batches] == [s for s in range(steps) if s not in skips]
    # Sampled with the newest policy there was at launch.
    behavior = [learner[max(0, s - depth)] for s in range(steps)]
    assert [r.behavior_step for r in reports] == behavior
    assert all(r.policy_lag == r.learner_step - r.behavior_step <= depth for r in reports)
    # No policy and no collection without a use.
    assert [tuple(t[:2]) for t in trees(world)] == [
        (start + s, place) for s in range(steps) for place in range(per_step)
    ]
    used = sorted({step - 7 for step in behavior})
    assert [p.version for p in world.policies] == used
    assert [t[2] for t in trees(world)] == [b - 7 for b in behavior for _ in range(per_step)]
    # Exactly as long as the slower of each pair.
    c = [max(row) for row in collect]
    u = [0.0 if s in skips else update[s] for s in range(steps)]
    total = c[0] + sum(map(max, u[:-1], c[1:])) + u[-1] if depth else sum(c) + sum(u)
    assert world.when("returned") == total
    # A policy is closed when its last tree is in and a newer one is there, and not before.
    for older, newer in itertools.pairwise(used):
        last_use = max(s for s in range(steps) if behavior[s] - 7 == older)
        ended = max(
            t for (batch, _), t in world.times("step", "ends").items() if batch == start + last_use
        )
        launched = min(t for t, *e in world.log if e[0] == "tree" and e[3] == newer)
        assert ended <= world.when("close", older) <= max(ended, launched)


# Arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 0}, "steps"),
        ({"problems_per_step": 0}, "problems_per_step"),
        ({"problems": []}, "no problems"),
        ({"async_depth": 2}, "async_depth"),
        ({"async_depth": -1}, "async_depth"),
        ({"eval_every": 0}, "eval_every"),
        ({"save_every": 0}, "save_every"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_happens(options, says):
    from focus_core import run_schedule
    from tests.core.schedule_kit import run_virtual

    world = World()
    arguments = {"steps": 1, "problems": PROBLEMS, **options}
    evaluate = world.evaluate

    async def main():
        with pytest.raises(ValueError, match=says):
            await run_schedule(
                world,
                collector_for=world.collector_for,
                evaluate=evaluate,
                on_saved=world.saved,
                **arguments,
            )

    run_virtual(main)
    assert world.log == []
