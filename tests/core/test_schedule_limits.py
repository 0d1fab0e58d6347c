"""What ends a run, where a resumed one starts, and which batch may be trained."""

import asyncio
import math

import pytest

from focus_core import Batch, CollectionError, Limits, StaleBatchError
from focus_core.schedule import run_batches
from focus_core.schedule.batches import CollectedBatch
from focus_core.schedule.progress import Progress, check_batch
from focus_core.testing import RecordingTrainer
from tests.core.schedule_kit import World, trees

# Limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1])
def test_the_token_cap_stops_collecting_and_trains_what_there_is(depth):
    world = World(per_step=2)  # 4 tokens a batch
    reports = world.run(10, async_depth=depth, limits=Limits(max_tokens=9))
    assert [r.metrics["sampled_tokens"] for r in reports] == [4, 4, 4]
    assert len(world.batches) == 3
    assert world.count["tree"] == 6
    world.check_end()


def test_the_token_cap_counts_what_was_sampled_before_a_resume():
    world = World()  # 2 tokens a batch
    start = Progress(batch=5, learner_step=5, sampled_tokens=8)
    saved = []
    world.start_batch = 5
    reports = world.run(
        10,
        limits=Limits(max_tokens=11),
        start=start,
        on_saved=lambda reference, progress: saved.append(progress),
    )
    assert [r.batch for r in reports] == [5, 6]
    assert saved == [Progress(batch=7, learner_step=7, sampled_tokens=12)]


@pytest.mark.parametrize("depth", [0, 1])
def test_a_run_resumed_at_its_token_cap_collects_nothing(depth):
    world = World()
    start = Progress(batch=5, learner_step=5, sampled_tokens=8)
    assert world.run(2, async_depth=depth, limits=Limits(max_tokens=8), start=start) == []
    assert world.count["tree"] == 0
    world.check_end()


def failing(rate, **options):
    """A run of one batch of 4 trees of which tree 3 fails."""
    world = World(per_step=4, faults={("step", 0, 3)})
    return world, lambda: world.run(1, limits=Limits(failure_rate=rate), **options)


def test_a_failed_tree_ends_the_run_unless_partial_trees_are_allowed():
    _, run = failing(1.0)
    with pytest.raises(CollectionError, match="p0"):
        run()


def test_failures_within_the_limit_are_counted_and_left_out():
    world, run = failing(0.25, allow_partial=True)
    (report,) = run()
    assert report.metrics["failed_continuations"] == 1
    assert report.metrics["continuations"] == 3
    assert [r.metadata["group_index"] for r in world.batches[0].actor] == [0, 1, 2]


def test_failures_over_the_limit_end_the_run_before_the_update():
    world, run = failing(0.2, allow_partial=True)
    with pytest.raises(CollectionError, match="1 of 4 continuations failed") as caught:
        run()
    assert len(caught.value.failures) == 1
    assert caught.value.__cause__.args == (("step", 0, 3),)
    assert world.batches == []
    world.check_end()


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_a_failure_rate_is_a_share(bad):
    with pytest.raises(ValueError, match="failure_rate"):
        Limits(failure_rate=bad)


# Resume ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1])
def test_a_resumed_run_goes_on_where_the_checkpoint_was(depth):
    whole, saved = World(per_step=2), []
    whole.run(
        5,
        async_depth=depth,
        save_every=2,
        on_saved=lambda reference, progress: saved.append(progress),
    )
    assert [p.batch for p in saved] == [2, 4, 5]
    again = World(per_step=2, start_batch=2)
    reports = again.run(3, async_depth=depth, start=saved[0])
    assert [r.batch for r in reports] == [2, 3, 4]
    assert [r.learner_step for r in reports] == [2, 3, 4]
    assert reports[0].policy_lag == 0
    assert [(t[0], t[1], t[3]) for t in trees(again)] == [
        (t[0], t[1], t[3]) for t in trees(whole) if t[0] >= 2
    ]


def test_each_tree_has_its_own_seed_and_a_resumed_run_the_same():
    def seeds(steps, **options):
        world = World(per_step=2, start_batch=options.get("start", Progress()).batch)
        world.run(steps, **options)
        return world.seeds

    whole = seeds(4, seed=1)
    assert len(set(whole)) == 8
    assert None not in whole
    assert seeds(2, seed=1, start=Progress(batch=2, learner_step=2)) == whole[4:]
    assert not set(seeds(4, seed=2)) & set(whole)
    assert set(seeds(2)) == {None}


def test_progress_counts_skipped_batches_and_no_step_for_them():
    saved = []
    World(skips={1}).run(
        3, save_every=1, on_saved=lambda reference, progress: saved.append((reference, progress))
    )
    assert [p for _, p in saved] == [
        Progress(batch=1, learner_step=1, sampled_tokens=2),
        Progress(batch=2, learner_step=1, sampled_tokens=4),
        Progress(batch=3, learner_step=2, sampled_tokens=6),
    ]
    assert [name for name, _ in saved] == ["step-000001", "step-000001", "step-000002"]


# Stale batches --------------------------------------------------------------------------------


def batch(index=3, behavior_step=2, learner_step=3):
    return Batch(
        index=index, behavior_step=behavior_step, learner_step=learner_step, actor=[], items=[]
    )


def test_check_batch_accepts_what_is_due():
    check_batch(batch(), expected=3, async_depth=1)
    check_batch(batch(behavior_step=3), expected=3, async_depth=0)


@pytest.mark.parametrize(
    ("wrong", "expected", "depth", "says"),
    [
        (batch(index=4), 3, 1, "batch 4 arrived where 3"),
        (batch(index=2), 3, 1, "batch 2 arrived where 3"),
        (batch(), 3, 0, "a lag of 1"),
        (batch(behavior_step=1), 3, 1, "a lag of 2"),
        (batch(behavior_step=4), 3, 1, "a lag of -1"),
    ],
)
def test_check_batch_refuses(wrong, expected, depth, says):
    with pytest.raises(StaleBatchError, match=says):
        check_batch(wrong, expected=expected, async_depth=depth)


@pytest.mark.parametrize(("index", "behavior_step"), [(0, -2), (0, 1), (1, 0)])
def test_a_stale_batch_never_reaches_the_trainer(index, behavior_step):
    class Late:
        samples = False

        async def collect(self, *_):
            numbers = {"index": index, "behavior_step": behavior_step}
            return CollectedBatch(**numbers, trees=[], others={}, metrics={"sampled_tokens": 0})

    async def main():
        async with RecordingTrainer() as trainer:
            with pytest.raises(StaleBatchError):
                await run_batches(trainer, Late(), steps=2)
            assert trainer.batches == []

    asyncio.run(main())
