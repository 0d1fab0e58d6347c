"""Updates: invariances, the check at lag 0, refusals before any change, cancellation."""

import asyncio
import threading

import attrs
import numpy as np
import pytest
import torch

from focus_core import (
    ActorRecord,
    OffPolicyError,
    RecordError,
    SamplingParams,
    Span,
    TrainerError,
)
from tests.adapters.local.local_kit import batch, gap, prompts, record, run, sample_records


def weights(trainer):
    """A copy of what learns."""
    parameters = trainer._learner.parameters
    return {name: each.detach().clone() for name, each in parameters.items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


async def gradient(trainer, records, lag=0):
    """The gradient of one batch at its optimizer step, which is left out; and the metrics."""
    learner, seen = trainer._learner, {}

    def catch(*_):
        seen.update({n: p.grad.double().clone() for n, p in learner.parameters.items()})

    step, learner.optimizer.step = learner.optimizer.step, catch
    try:
        metrics = await trainer.update(batch(trainer, records, lag=lag))
        learner.step -= 1
    finally:
        learner.optimizer.step = step
    return seen, metrics


def move(trainer, direction, length):
    with torch.no_grad():
        for name, each in trainer._learner.parameters.items():
            each += length * direction[name]


def assert_close(first, second, within):
    scale = max(each.abs().max() for each in first.values())
    for name, each in first.items():
        assert (each - second[name]).abs().max() <= within * scale, name


@pytest.fixture
def nudged(trainer_of):
    """A trainer two updates from its start, so that both adapter factors have a gradient."""

    async def enter(trainer):
        for seed in range(2):
            policy = await trainer.publish_policy()
            await trainer.update(batch(trainer, await sample_records(policy, seed=seed)))
            await policy.aclose()
        return await trainer.publish_policy()

    return enter


@pytest.mark.parametrize("loss", ["ppo", "importance_sampling", "cispo", "cross_entropy"])
def test_gradient_is_the_finite_difference_of_the_loss(loss, trainer_of, nudged):
    """Through the whole model, along a random direction, at ratios other than 1."""

    async def main():
        async with trainer_of(dtype="float64", loss=loss) as trainer:
            records = await sample_records(await nudged(trainer), seed=5)
            await trainer.update(batch(trainer, records))  # now learner and behaviour differ
            items = trainer.convert(records)
            start = await trainer.forward_logprobs(items)
            seen, metrics = await gradient(trainer, records, lag=1)
            assert metrics["ratio_max_deviation"] > 0.01
            generator = torch.Generator().manual_seed(0)
            direction = {
                name: torch.randn(each.shape, generator=generator, dtype=torch.float64)
                for name, each in seen.items()
            }
            slope = sum(float((seen[name] * direction[name]).sum()) for name in direction)
            near = 3e-4  # the model's norms round to float32, so not nearer
            values = []
            for length in (near, -2 * near):
                move(trainer, direction, length)
                logprobs = await trainer.forward_logprobs(items)
                values.append(sum(map(loss_of, items, logprobs, start)))
            assert slope == pytest.approx((values[0] - values[1]) / (2 * near), rel=5e-3)

    def loss_of(item, p, start):
        q, advantages = item.logprobs[item.mask], item.advantages[item.mask]
        ratio = np.exp(p - q)
        return {
            "ppo": -np.minimum(ratio * advantages, ratio.clip(0.8, 1.2) * advantages),
            "importance_sampling": -ratio * advantages,
            "cispo": -np.exp(start - q).clip(0.8, 1.2) * advantages * p,
            "cross_entropy": -advantages * p,
        }[loss].sum()

    run(main())


@pytest.mark.parametrize("loss", ["ppo", "importance_sampling", "cispo", "cross_entropy"])
def test_micro_batches_do_not_change_the_gradient(loss, trainer_of, nudged):
    async def main():
        seen = []
        for budget in (1, 40, 100_000):
            async with trainer_of(max_batch_tokens=budget, loss=loss) as trainer:
                records = await sample_records(await nudged(trainer), (3, 9, 30, 14), seed=7)
                seen.append((await gradient(trainer, records))[0])
        assert_close(seen[0], seen[1], 1e-4)
        assert_close(seen[0], seen[2], 1e-4)

    run(main())


def test_merged_records_train_like_their_edges(trainer_of, nudged):
    async def main():
        async with trainer_of() as trainer:
            policy = await nudged(trainer)
            (prompt,) = prompts((8,))
            params = SamplingParams(max_tokens=6, seed=11)
            (first,) = await policy.generate(prompt, params)
            assert first.stop_reason == "length"
            state = [*prompt, *first.tokens, 2, 30, 3]  # a tool's answer between the spans
            (second,) = await policy.generate(state, params)
            edges = [record(prompt, first, 0.7, 1), record(state, second, -1.3, 2)]
            tokens = [*state, *second.tokens]
            logprobs = np.zeros(len(tokens))
            start, stop = len(prompt), len(prompt) + len(first.tokens)
            logprobs[start:stop] = first.logprobs
            logprobs[len(state) :] = second.logprobs
            spans = [Span(start, stop, 0.7, 1), Span(len(state), len(tokens), -1.3, 2)]
            merged, metrics = await gradient(trainer, [ActorRecord(tokens, logprobs, spans)])
            separate, apart = await gradient(trainer, edges)
            assert_close(separate, merged, 1e-4)
            assert metrics["loss"] == pytest.approx(apart["loss"], rel=1e-5)
            assert metrics["trained_tokens"] == apart["trained_tokens"]

    run(main())


def test_an_update_at_lag_0_reports_a_ratio_of_1(trainer_of):
    async def main():
        async with trainer_of(warmup_steps=4) as trainer:
            policy = await trainer.publish_policy()
            records = await sample_records(policy)
            metrics = await trainer.update(batch(trainer, records))
            total = sum(each.trained_tokens * each.reward for each in records)
            assert metrics["loss"] == pytest.approx(-total, rel=1e-4)
            assert metrics["ratio_mean"] == pytest.approx(1, abs=1e-5)
            assert metrics["clip_fraction"] == 0
            assert metrics["trained_tokens"] == sum(each.trained_tokens for each in records)
            assert metrics["learning_rate"] == pytest.approx(1e-2 / 4)
            assert metrics["grad_norm"] > 0
            off = await trainer.update(batch(trainer, records, lag=1))
            assert off["ratio_max_deviation"] > 1e-4
            assert off["logprob_gap"] > 0
            assert off["learning_rate"] == pytest.approx(2e-2 / 4)
            assert trainer.step == 2

    run(main())


def test_learning_raises_what_was_good(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            first, second = prompts((6, 6))
            params = SamplingParams(max_tokens=8, seed=0)
            good = record(first, (await policy.generate(first, params))[0], 1.0)
            bad = record(second, (await policy.generate(second, params))[0], -1.0)
            items = trainer.convert([good, bad])
            before = [each.sum() for each in await trainer.forward_logprobs(items)]
            for lag in range(5):
                await trainer.update(batch(trainer, [good, bad], lag=lag))
            after = [each.sum() for each in await trainer.forward_logprobs(items)]
            assert after[0] > before[0]
            assert after[1] < before[1]

    run(main())


def test_gradient_clipping(trainer_of):
    async def main():
        async with trainer_of(grad_clip_norm=0.5) as trainer:
            records = await sample_records(await trainer.publish_policy())
            seen, metrics = await gradient(trainer, records)
            norm = sum(float(each.square().sum()) for each in seen.values()) ** 0.5
            assert metrics["grad_norm"] > 0.5
            assert norm == pytest.approx(0.5, rel=1e-3)

    run(main())


def test_tempered_records_are_stopped_with_the_numbers(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            (prompt,) = prompts((6,))
            params = SamplingParams(max_tokens=8, temperature=0.7, seed=1)
            (generation,) = await policy.generate(prompt, params)
            before = weights(trainer)
            with pytest.raises(OffPolicyError, match=r"tolerance 0\.001.*temperature") as caught:
                await trainer.update(batch(trainer, [record(prompt, generation)]))
            worst = await gap(trainer, [record(prompt, generation)])
            assert f"largest {worst:.3g}" in str(caught.value)
            assert same(before, weights(trainer))
            assert trainer.step == 0
            await trainer.update(batch(trainer, [record(prompt, generation)], lag=1))
        async with trainer_of(loss="cross_entropy") as trainer:  # does not read them
            await trainer.update(batch(trainer, [record(prompt, generation)]))
        async with trainer_of(logprob_tolerance=20.0) as trainer:
            await trainer.update(batch(trainer, [record(prompt, generation)]))

    run(main())


def test_what_breaks_changes_nothing(trainer_of, monkeypatch):
    async def main():
        async with trainer_of() as trainer:
            records = await sample_records(await trainer.publish_policy())
            before = weights(trainer)
            good = batch(trainer, records)
            item = good.items[1]
            broken = item.logprobs.copy()
            broken[0] = np.nan
            items = [good.items[0], attrs.evolve(item, logprobs=broken)]
            with pytest.raises(RecordError, match=r"item 1 of the batch: logprobs\[0\] is nan"):
                await trainer.update(attrs.evolve(good, items=items))
            with pytest.raises(RecordError, match="no token of the batch is trained"):
                await trainer.update(attrs.evolve(good, items=[]))
            huge = [
                attrs.evolve(each, advantages=each.advantages.astype(np.float64) * 1e39)
                for each in good.items
            ]
            with pytest.raises(TrainerError, match="loss is"):
                await trainer.update(attrs.evolve(good, items=huge))
            learner = trainer._learner
            parameter = next(iter(learner.parameters.values()))
            hook = parameter.register_hook(lambda grad: grad * torch.inf)
            with pytest.raises(TrainerError, match="gradient's norm is"):
                await trainer.update(good)
            hook.remove()

            def burn(*_):
                raise RuntimeError("the chip is on fire")

            monkeypatch.setattr(learner, "_logprobs", burn)
            with pytest.raises(TrainerError, match="the chip is on fire") as caught:
                await trainer.update(good)
            assert caught.value.__cause__ is not None
            monkeypatch.undo()
            assert same(before, weights(trainer))
            assert trainer.step == 0
            assert all(each.grad is None for each in learner.parameters.values())
            await trainer.update(good)
            assert not same(before, weights(trainer))

    run(main())


def test_a_cancelled_update_happens_whole_or_not_at_all(trainer_of, monkeypatch):
    async def main():
        async with trainer_of(max_batch_tokens=1) as trainer:
            records = await sample_records(await trainer.publish_policy())
            before = weights(trainer)
            learner = trainer._learner
            entered, go, passed = threading.Event(), threading.Event(), []
            forward = learner._logprobs

            def slow(rectangle):
                passed.append(1)
                if len(passed) == 3:
                    entered.set()
                    assert go.wait(30)
                return forward(rectangle)

            monkeypatch.setattr(learner, "_logprobs", slow)
            task = asyncio.create_task(trainer.update(batch(trainer, records)))
            await asyncio.to_thread(entered.wait)
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()  # the learner's thread is still at it
            task.cancel()  # impatience does not help
            await asyncio.sleep(0.05)
            assert not task.done()
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(passed) == 3
            assert trainer.step == 0
            assert same(before, weights(trainer))
            assert all(each.grad is None for each in learner.parameters.values())
            await trainer.update(batch(trainer, records))
            assert trainer.step == 1

    run(main())


def test_a_snapshot_stays_as_it_was_and_shares_what_does_not_learn(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            old = await trainer.publish_policy()
            (prompt,) = prompts((6,))
            params = SamplingParams(max_tokens=12, seed=3)
            said = await old.generate(prompt, params, 3)
            sampling = asyncio.create_task(old.generate(prompt, params, 3))
            records = [record(prompt, each, a) for each, a in zip(said, (9, -9, 4), strict=True)]
            await trainer.update(batch(trainer, records))
            new = await trainer.publish_policy()
            assert (old.version, new.version) == (0, 1)
            assert [each.tokens for each in await sampling] == [each.tokens for each in said]
            again = await old.generate(prompt, params, 3)
            assert [each.tokens for each in again] == [each.tokens for each in said]
            np.testing.assert_allclose(again[0].logprobs, said[0].logprobs, atol=1e-5)
            changed = await new.generate(prompt, params, 3)
            assert changed[0].logprobs != said[0].logprobs
            a, b = old._snapshot.model.state_dict(), new._snapshot.model.state_dict()
            base = trainer._learner._template.state_dict()
            adapted = {n for n in a if n.endswith("_proj.weight")}
            assert adapted
            for name in a:
                shared = a[name].data_ptr() == b[name].data_ptr() == base[name].data_ptr()
                assert shared is (name not in adapted), name

    run(main())


def test_sampling_goes_on_while_the_learner_learns(trainer_of, monkeypatch):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            records = await sample_records(policy)
            learner = trainer._learner
            entered, go = threading.Event(), threading.Event()
            forward = learner._logprobs

            def slow(rectangle):
                entered.set()
                assert go.wait(30)
                return forward(rectangle)

            monkeypatch.setattr(learner, "_logprobs", slow)
            update = asyncio.create_task(trainer.update(batch(trainer, records)))
            await asyncio.to_thread(entered.wait)
            assert await policy.generate([5, 6], SamplingParams(max_tokens=5))
            assert not update.done()
            go.set()
            await update

    run(main())


def test_bfloat16_within_its_tolerance(trainer_of, nudged):
    async def main():
        async with trainer_of(dtype="bfloat16", learning_rate=1e-3) as trainer:
            policy = await nudged(trainer)
            model = policy._snapshot.model
            assert model.model.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16
            assert all(p.dtype == torch.float32 for p in trainer._learner.parameters.values())
            metrics = await trainer.update(batch(trainer, await sample_records(policy, seed=9)))
            assert 0 < metrics["logprob_gap_max"] < 0.5

    run(main())
