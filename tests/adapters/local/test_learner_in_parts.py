"""An update in parts: gradients that add up, and the optimizer step that uses them."""

import attrs
import numpy as np
import pytest
import torch
from focus_adapter_local import checkpoint
from focus_adapter_local.learner import AdamConfig
from focus_adapter_local.snapshot import merged_copy

from focus_core import RecordError, TrainerError
from tests.adapters.local.local_kit import batch, run, sample_records

ADAM = AdamConfig(
    learning_rate=1e-2, beta1=0.9, beta2=0.95, eps=1e-6, weight_decay=0.01, grad_clip_norm=0.5
)


async def start(trainer, seed=0):
    """Items to train on, and the learner."""
    policy = await trainer.publish_policy()
    items = trainer.convert(await sample_records(policy, seed=seed))
    await policy.aclose()
    return items, trainer._learner


def weights(learner):
    return {name: each.detach().clone() for name, each in learner.parameters.items()}


def gradients(learner):
    return [None if p.grad is None else p.grad.clone() for p in learner.parameters.values()]


@pytest.mark.parametrize("loss", ["ppo", "cross_entropy"])
def test_parts_are_an_update(trainer_of, loss):
    options = attrs.asdict(ADAM) | {"loss": loss, "dtype": "float64"}

    async def main():
        async with trainer_of(**options) as whole, trainer_of(**options) as parts:
            policy = await whole.publish_policy()
            records = await sample_records(policy)
            items, learner = parts.convert(records), parts._learner
            for _ in range(2):
                metrics = await whole.update(batch(whole, records, lag=0 if not whole.step else 1))
                halves = [
                    learner.forward_backward(half, learner.config.loss)
                    for half in (items[:3], items[3:])
                ]
                norm = learner.optim_step(ADAM)
                assert norm == pytest.approx(metrics["grad_norm"], rel=1e-6)
                assert sum(loss for _, loss in halves) == pytest.approx(metrics["loss"], rel=1e-6)
            assert learner.step == whole.step == 2
            mine, theirs = weights(learner), weights(whole._learner)
            for name in mine:
                torch.testing.assert_close(mine[name], theirs[name], atol=1e-6, rtol=0)

    run(main())


def test_log_probabilities_are_the_learners_by_item(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            items, learner = await start(trainer)
            results, _ = learner.forward_backward(items, learner.config.loss, backward=False)
            for mine, theirs in zip(results, learner.forward_logprobs(items), strict=True):
                np.testing.assert_array_equal(mine, theirs)
            assert gradients(learner) == [None] * len(learner.parameters)

    run(main())


def test_a_batch_that_fails_leaves_the_gradient_of_others(trainer_of):
    async def main():
        async with trainer_of(max_batch_tokens=16) as trainer:
            items, learner = await start(trainer)
            learner.forward_backward(items, learner.config.loss)
            before = gradients(learner)
            logprobs = np.where(items[-1].mask, -np.float32(200), 0)
            far = attrs.evolve(items[-1], logprobs=logprobs, advantages=-items[-1].advantages)
            bad = attrs.evolve(items[0], logprobs=items[0].logprobs * np.nan)
            with pytest.raises(RecordError, match="finite"):
                learner.forward_backward([items[1], bad], learner.config.loss)
            with pytest.raises(TrainerError, match="the loss is"):
                learner.forward_backward([*items, far, far], learner.config.loss)
            for now, then in zip(gradients(learner), before, strict=True):
                assert torch.equal(now, then)

    run(main())


def test_a_step_without_a_gradient_is_refused(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            items, learner = await start(trainer)
            before = weights(learner)
            with pytest.raises(TrainerError, match="no gradient"):
                learner.optim_step(ADAM)
            learner.forward_backward(items, learner.config.loss)
            learner.optim_step(ADAM)
            with pytest.raises(TrainerError, match="no gradient"):
                learner.optim_step(ADAM)
            assert learner.step == 1
            assert any(not torch.equal(before[n], w) for n, w in weights(learner).items())

    run(main())


def test_frozen_changes_are_the_weights_of_their_time(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            items, learner = await start(trainer)
            learner.forward_backward(items, learner.config.loss)
            learner.optim_step(ADAM)
            then, changes = learner.snapshot(), learner.frozen_changes()
            learner.forward_backward(items, learner.config.loss)
            learner.optim_step(ADAM)
            merged = merged_copy(learner._template, changes)
            pairs = zip(merged.parameters(), then.model.parameters(), strict=True)
            assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
            now = learner.snapshot().model.parameters()
            assert any(not torch.equal(a, b) for a, b in zip(merged.parameters(), now, strict=True))

    run(main())


def test_weights_can_be_restored_without_the_optimizer(trainer_of, tmp_path, mini):
    async def main():
        async with trainer_of() as trainer, trainer_of() as fresh:
            items, learner = await start(trainer)
            learner.forward_backward(items, learner.config.loss)
            learner.optim_step(ADAM)
            checkpoint.save(learner, tmp_path / "one", model=mini, options={})
            saved = checkpoint.read_state(tmp_path / "one", model=mini, lora_rank=4, lora_alpha=8.0)
            other = fresh._learner
            other.forward_backward(items, other.config.loss)
            other.optim_step(ADAM)
            checkpoint.restore(other, saved, optimizer=False)
            assert other.step == 0
            assert not other.optimizer.state
            mine, theirs = weights(other), weights(learner)
            assert all(torch.equal(mine[name], theirs[name]) for name in mine)

    run(main())
