"""A fault at every await of the schedule, alone and with others, and cancellation at any moment."""

import asyncio
import logging
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_core import CollectionError, hookimpl
from focus_core.plugins.observers import Observers
from tests.core.schedule_kit import Injected, World, cause, run_virtual

STEPS = 4

POINTS = [
    ("publish", 0),
    ("publish", 1),
    ("publish", 2),
    ("collector_for", 0, 0),
    ("collector_for", 1, 1),
    ("step", 0, 1),
    ("step", 1, 0),
    ("step", 3, 1),
    ("convert", 0, 0),
    ("convert", 2, 1),
    ("update", 0),
    ("update", 1),
    ("update", 3),
    ("sink", 0),
    ("sink", 2),
    ("sink", 3),
    ("evaluate", 0),
    ("evaluate", 1),
    ("evaluate", 2),
    ("save", 0),
    ("save", 1),
    ("saved", 2),
    ("saved", 4),
    ("close", 0),
    ("close", 1),
    ("on_step", 0),
    ("on_step", 3),
]


def world_of(collect, update, *, faults=(), other=0.25, unwind=0.125):
    return World(
        per_step=2,
        collect=lambda batch, place: collect + place * 0.5,
        update=lambda batch: update,
        publish=lambda count: other,
        save=lambda count: other,
        measure=lambda count: 2 * other,
        faults=faults,
        unwind=unwind,
    )


def run(world, depth, *, thread_seconds=0.125, **options):
    return world.run(
        STEPS,
        async_depth=depth,
        evaluate=world.evaluate,
        eval_every=2,
        save_every=2,
        on_saved=world.saved,
        thread_seconds=thread_seconds,
        **options,
    )


def faults_of(world):
    """The points that went off, with their times, in order."""
    return [(t, event[1]) for t, *event in world.log if event[0] == "fault"]


ORDERS = pytest.mark.parametrize(
    ("collect", "update"), [(1.0, 4.0), (4.0, 1.0)], ids=["collection-first", "update-first"]
)
DEPTHS = pytest.mark.parametrize("depth", [0, 1])


@ORDERS
@DEPTHS
def test_without_a_fault_every_point_is_passed(collect, update, depth):
    """The points below are real: each one is reached."""
    world = world_of(collect, update)
    reached = set()
    world.point = lambda *point: reached.add(point)
    run(world, depth)
    assert set(POINTS) <= reached
    world.check_end()


@ORDERS
@DEPTHS
@pytest.mark.parametrize("point", POINTS, ids=lambda p: "-".join(map(str, p)))
def test_one_fault_ends_the_run_with_its_error(point, collect, update, depth):
    world = world_of(collect, update, faults={point})
    with pytest.raises((Injected, CollectionError)) as caught:
        run(world, depth)
    assert cause(caught.value).args == (point,)
    assert [p for _, p in faults_of(world)] == [point]
    world.check_end()
    # Nothing began after the fault but clean-up, except that a running update may finish.
    (at, _), *_ = faults_of(world)
    late = {e[0] for t, *e in world.log if t > at and e[-1] == "begins"}
    assert late <= ({"publish", "save"} if point[0] == "step" else {"save"})


@ORDERS
@DEPTHS
def test_an_update_that_was_sent_is_awaited_when_the_collection_fails(collect, update, depth):
    world = world_of(0.5, 4.0, faults={("step", 1, 0)})
    with pytest.raises(CollectionError):
        run(world, 1)
    order = world.order()
    assert ("update", 0, "ends") in order
    assert ("sink", 0) in order
    assert ("on_step", 0) in order
    assert [b.index for b in world.batches] == [0]


@ORDERS
@pytest.mark.parametrize(
    ("point", "saved"),
    [
        (("collector_for", 0, 0), None),
        (("step", 0, 0), None),
        (("step", 2, 0), 2),
        (("collector_for", 1, 0), 1),
        (("update", 1), None),
        (("sink", 1), None),
        (("on_step", 1), 2),
    ],
)
def test_what_was_learned_is_saved_unless_in_the_middle_of_a_step(point, saved, collect, update):
    """In between, weights and progress belong together; otherwise the checkpoint before holds."""
    world = world_of(collect, update, faults={point})
    progress = []
    with pytest.raises((Injected, CollectionError)):
        world.run(
            4, async_depth=0, on_saved=lambda name, reached: progress.append(reached.learner_step)
        )
    assert progress == ([] if saved is None else [saved])
    world.check_end()


def test_outstanding_collection_is_cancelled_and_awaited_when_the_update_fails():
    world = world_of(6.0, 1.0, faults={("update", 0)}, unwind=0.75)
    with pytest.raises(Injected):
        run(world, 1)
    order = world.order()
    for place in (0, 1):
        assert ("step", 1, place, "cancelled") in order
    assert world.when("returned") == faults_of(world)[0][0] + 0.75


def test_of_two_trees_that_fail_the_first_is_raised():
    world = World(
        per_step=3,
        collect=lambda batch, place: 3.0 - place,
        faults={("step", 0, 0), ("step", 0, 1), ("step", 0, 2)},
    )
    with pytest.raises(CollectionError) as caught:
        world.run(1)
    assert cause(caught.value).args == (("step", 0, 2),)
    world.check_end()


halves = st.integers(0, 9).map(lambda k: k / 2)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.sampled_from(POINTS), min_size=1, max_size=4, unique=True),
    st.sampled_from([0, 1]),
    halves,
    halves,
    st.sampled_from([0.0, 0.25, 3.0]),
    st.sets(st.integers(0, STEPS - 1), max_size=2),
)
def test_of_several_faults_the_first_is_raised(points, depth, collect, update, other, skips):
    world = world_of(collect, update, faults=points, other=other, unwind=0.0)
    world.skips = skips
    error, reports = None, []
    try:
        reports = run(world, depth, thread_seconds=0.0)
    except (Injected, CollectionError) as caught:
        error = caught
    gone_off = faults_of(world)
    if error is None:
        assert gone_off == []
        assert len(reports) == STEPS
    else:  # clean-up takes no time here, so the order of what went off is the order of failure
        first = [point for t, point in gone_off if t == gone_off[0][0]]
        assert cause(error).args[0] in first, gone_off
    world.check_end()


@pytest.mark.parametrize(
    "later", [("publish", 1), ("sink", 0), ("evaluate", 1), ("save", 0), ("on_step", 0)]
)
def test_a_collection_that_failed_before_something_else_did_is_what_is_raised(later):
    """It fails while that call is under way, after the update."""
    world = World(
        collect=lambda batch, place: 1.0 if batch == 0 else 1.5,
        update=lambda batch: 1.0,
        publish=lambda count: 0.0 if count == 0 else 2.0,
        measure=lambda count: 0.0 if count == 0 else 2.0,
        save=lambda count: 2.0,
        faults={("step", 1, 0), later},
    )
    options = {"evaluate": world.evaluate, "eval_every": 1}
    if later[0] == "save":
        options = {"on_saved": world.saved, "save_every": 1}
    slow = "_hand_over" if later[0] == "sink" else later[0]
    with pytest.raises((CollectionError, Injected)) as caught:
        world.run(3, thread_seconds=lambda work: 2.0 if work == slow else 0.0, **options)
    gone_off = [point for _, point in faults_of(world)]
    assert gone_off == [("step", 1, 0), later]
    assert cause(caught.value).args[0] == gone_off[0]
    assert any(str(later) in note for note in caught.value.__notes__)
    world.check_end()


@pytest.mark.parametrize("first", [("update", 0), ("step", 1, 0), ("sink", 0)])
def test_a_policy_that_cannot_be_closed_does_not_hide_why_the_run_ended(first):
    world = world_of(1.0, 2.0, faults={first, ("close", 0), ("close", 1)})
    with pytest.raises((CollectionError, Injected)) as caught:
        run(world, 1)
    assert cause(caught.value).args == (first,)
    assert any("close" in note for note in caught.value.__notes__)
    world.check_end()


def test_errors_say_what_was_being_done():
    for point, said in [
        (("step", 1, 0), "batch 1"),
        (("convert", 1, 0), "batch 1"),
        (("collector_for", 1, 0), "batch 1"),
        (("update", 1), "batch 1"),
        (("sink", 1), "batch 1"),
        (("publish", 1), "step 1"),
        (("evaluate", 1), "step 2"),
        (("save", 0), "step 2"),
    ]:
        world = world_of(1.0, 2.0, faults={point})
        with pytest.raises((CollectionError, Injected)) as caught:
            run(world, 1)
        notes = getattr(caught.value, "__notes__", [])
        assert any(said in note for note in notes), f"{point}: {notes}"


def test_a_failing_on_step_comes_after_the_steps_state_is_saved_and_counts_it_once():
    world = world_of(1.0, 2.0, faults={("on_step", 2)})
    saved = []
    with pytest.raises(Injected):
        world.run(4, save_every=1, on_saved=lambda reference, progress: saved.append(progress))
    assert [progress.batch for progress in saved] == [1, 2, 3]
    assert [batch.index for batch in world.batches] == [0, 1, 2]
    again = World(per_step=2, start_batch=3)
    assert [report.batch for report in again.run(1, start=saved[-1])] == [3]


# Observers ------------------------------------------------------------------------------------

HOOKS = [
    "focus_policy_published",
    "focus_policy_evaluated",
    "focus_batch_collected",
    "focus_update_started",
    "focus_step_finished",
    "focus_records_delivered",
]


@pytest.mark.parametrize("hook", HOOKS)
@DEPTHS
def test_a_failing_observer_is_logged_and_stops_nothing(hook, depth, caplog):
    def fail(self, event):
        raise RuntimeError("the dashboard is down")

    def count(self, event):
        calls.append(event)

    calls = []
    broken = type("Broken", (), {hook: hookimpl(fail)})()
    sound = type("Sound", (), {hook: hookimpl(count)})()
    plain, watched = world_of(1.0, 2.0), world_of(1.0, 2.0)
    expected = run(plain, depth)
    with caplog.at_level(logging.ERROR, logger="focus"):
        reports = run(watched, depth, observers=Observers([broken, sound]))
    assert reports == expected
    assert watched.log == plain.log
    assert calls
    assert len(caplog.records) == len(calls)
    message = caplog.records[0].getMessage()
    assert hook in message
    assert "Broken" in message, "the observer must be named"
    watched.check_end()


# Cancellation ---------------------------------------------------------------------------------


def cancel_at(world, depth, moment, **options):
    """Cancel the run after that many seconds; returns when the run was over."""

    async def main():
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(
            world.schedule(
                STEPS,
                async_depth=depth,
                evaluate=world.evaluate,
                eval_every=2,
                save_every=2,
                on_saved=world.saved,
                **options,
            )
        )
        loop.call_at(moment, task.cancel)
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        world.note("returned")
        return outcome, loop.time()

    return run_virtual(main, thread_seconds=0.25)


@ORDERS
@DEPTHS
def test_cancelled_at_any_moment_it_leaves_nothing_running(collect, update, depth):
    full = world_of(collect, update)
    run(full, depth)
    end = full.when("returned")
    cancelled = set()
    for quarter in range(int(4 * end)):
        moment = quarter / 4 + 1 / 8
        world = world_of(collect, update, unwind=0.5)
        outcome, over = cancel_at(world, depth, moment)
        assert isinstance(outcome, asyncio.CancelledError), moment
        assert moment <= over <= moment + 1.5, (moment, over)
        world.check_end()
        cancelled |= {e[0] for e in world.order() if e[-1] == "cancelled"}
    assert cancelled == {"publish", "step", "update", "evaluate", "save"}


def test_cancellation_awaits_the_clean_up_of_the_update_and_of_the_collection():
    world = World(collect=lambda batch, _: 3.0 + 9.0 * batch, update=lambda _: 9.0, unwind=2.0)
    outcome, over = cancel_at(world, 1, 4.0)
    assert isinstance(outcome, asyncio.CancelledError)
    assert world.when("update", 0, "cancelled") == 6.0
    assert world.when("step", 1, 0, "cancelled") == over == 8.0


def test_a_sink_that_is_writing_finishes_before_a_cancelled_run_returns():
    """In real time, with a real thread: nothing writes after the run is over."""
    begun, go_on, written = threading.Event(), threading.Event(), []

    async def main():
        world = World(collect=lambda *_: 0.0, update=lambda _: 0.0)

        def sink(records):
            begun.set()
            go_on.wait(5.0)
            written.append(len(records))

        task = asyncio.create_task(world.schedule(1, critic_sink=sink))
        await asyncio.to_thread(begun.wait, 5.0)
        task.cancel()
        await asyncio.sleep(0.02)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert written == [1]

    asyncio.run(main())


def test_an_update_that_cancels_itself_ends_the_run():
    world = World()

    async def update(batch):
        raise asyncio.CancelledError

    world.update = update
    with pytest.raises(asyncio.CancelledError):
        world.run(2)
    assert all(policy.closed for policy in world.policies)
