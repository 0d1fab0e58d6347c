"""A training client whose step failed: nobody steps on what it left, and everybody is told why."""

import asyncio
import gc

import pytest
from focus_adapter_tinker import spoilt, to_datum, train, update_actor
from focus_adapter_tinker.client_trainer import ClientTrainer
from focus_adapter_tinker.update import Optimization

from focus_core import Batch, OffPolicyError, RecordError, TrainerError
from tests.adapters.tinker.sdk_kit import PROBLEMS, Training, collector_for, record

BOOM = {"forward_backward": ValueError("boom")}


def by_hand(client):
    return update_actor(client, [record()], learning_rate=1e-4)


def by_schedule(client, steps=1, **options):
    defaults = {"model": "m", "problems": PROBLEMS, "collector_for": collector_for}
    return train(client, steps=steps, learning_rate=1e-4, **{**defaults, **options})


def by_trainer(client):
    trainer = ClientTrainer(client=client, model="m")
    batch = Batch(
        index=0,
        behavior_step=0,
        learner_step=0,
        actor=[record()],
        items=trainer.convert([record()]),
    )
    return trainer.update(batch)


EVERYBODY = [by_hand, by_schedule, by_trainer]


@pytest.mark.parametrize("second", EVERYBODY)
@pytest.mark.parametrize("first", EVERYBODY)
@pytest.mark.parametrize(
    "fault",
    [
        {"fail": BOOM},
        {"fail": {"optim_step": ValueError("boom")}},
        {"metrics": {"loss:sum": float("nan")}},
    ],
)
def test_no_step_is_made_on_what_another_left(tokenizer, fault, first, second):
    client = Training(tokenizer, **{name: dict(value) for name, value in fault.items()})
    with pytest.raises(TrainerError):
        asyncio.run(first(client))
    client.fail.clear()
    client.metrics = {"loss:sum": 1.0}
    before = list(client.log)
    with pytest.raises(
        TrainerError, match=r"may hold gradients of one that failed \(the update.*make a new"
    ):
        asyncio.run(second(client))
    assert client.log == before, "nothing was sent"
    other = Training(tokenizer)
    asyncio.run(second(other))
    assert other.steps == 1


def test_a_step_that_was_held_back_spoils_too(tokenizer):
    client = Training(tokenizer, gap=2.0)
    with pytest.raises(OffPolicyError):
        asyncio.run(by_schedule(client))
    with pytest.raises(TrainerError, match="sampler and learner disagree"):
        asyncio.run(by_hand(client))


def test_what_was_never_sent_spoils_nothing():
    client = Training()
    with pytest.raises(RecordError):
        asyncio.run(update_actor(client, [record(advantage=1.0), {}], learning_rate=1e-4))
    asyncio.run(by_hand(client))
    asyncio.run(by_hand(client))
    assert client.steps == 2


def test_two_steps_at_a_time_would_add_up():
    async def main():
        go_on = asyncio.Event()
        client = Training(fail={"forward_backward": go_on.wait})
        first = asyncio.ensure_future(by_hand(client))
        while not client.log:
            await asyncio.sleep(0.001)
        with pytest.raises(TrainerError, match="another is under way"):
            await by_hand(client)
        go_on.set()
        await first
        await by_hand(client)
        return client.steps

    assert asyncio.run(main()) == 2


def test_a_step_that_was_cut_short_is_not_forgotten():
    """Whatever ends the loop for good, such as a second interrupt."""
    client = Training(fail={"forward_backward": lambda: asyncio.sleep(3600)})

    async def main():
        how = Optimization()
        datums = [to_datum(record())]
        task = asyncio.ensure_future(
            how.step(client, [record()], datums, asyncio.timeout(60), name="x", on_policy=False)
        )
        while not client.log:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    with pytest.raises(TrainerError, match="was cut short"):
        asyncio.run(by_hand(client))


@pytest.mark.parametrize("second", EVERYBODY)
def test_nobody_waits_for_what_got_no_answer(tokenizer, second):
    client = Training(tokenizer, fail={"save_state": lambda: asyncio.sleep(3600)})
    trainer = ClientTrainer(client=client, model="m", how=Optimization(timeout=0.05))
    with pytest.raises(TrainerError, match=r"state 'x' of step 0 failed.*: no answer in time"):
        asyncio.run(trainer.save_state("x"))
    with pytest.raises(TrainerError, match=r"cannot .*: the training client waits for what"):
        asyncio.run(second(client))


def test_a_client_that_is_gone_is_forgotten():
    gc.collect()
    before = len(spoilt._MARKS)
    client = Training(metrics={"loss:sum": float("nan")})
    with pytest.raises(TrainerError):
        asyncio.run(by_hand(client))
    assert len(spoilt._MARKS) == before + 1
    del client
    gc.collect()
    assert len(spoilt._MARKS) == before


def test_a_stand_in_without_weak_references_is_used_all_the_same():
    class Odd(Training):
        __hash__ = None

    assert asyncio.run(by_hand(Odd()))["loss"] == 1.5


# What is said about going on


def notes(caught):
    return " ".join(getattr(caught.value, "__notes__", ()))


def test_a_failure_says_which_state_there_is(tokenizer):
    client = Training(tokenizer)
    trainer = ClientTrainer(client=client, model="m")
    items = trainer.convert([record()])
    batch = Batch(index=0, behavior_step=0, learner_step=0, actor=[record()], items=items)

    async def main(fail):
        client.fail = fail
        await trainer.update(batch)

    asyncio.run(main({}))
    asyncio.run(trainer.save_state("one"))
    with pytest.raises(TrainerError) as caught:
        asyncio.run(main(BOOM))
    assert notes(caught) == "the newest state to go on from is tinker://run/weights/one?ttl=None"
    assert "go on from a saved state" not in str(caught.value)


@pytest.mark.parametrize("what", ["update", "publish", "save"])
def test_or_that_there_is_none(tokenizer, what):
    client = Training(
        tokenizer,
        fail={"snapshot": OSError("x"), "save_state": OSError("x"), **BOOM},
    )
    trainer = ClientTrainer(client=client, model="m")
    calls = {
        "update": lambda: by_trainer(client),
        "publish": trainer.publish_policy,
        "save": lambda: trainer.save_state("x"),
    }
    with pytest.raises(TrainerError) as caught:
        asyncio.run(calls[what]())
    assert notes(caught) == "no state was saved to go on from"
