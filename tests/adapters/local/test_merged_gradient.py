"""Merged records and one record an edge have one gradient, to the last digits of float64."""

import pytest

from focus_core import Agent, Collector, Critic, Problem, Segments, Selective
from focus_core.lanes import export_actor, export_merged
from focus_core.testing import CountdownEnv
from tests.adapters.local.local_kit import run
from tests.adapters.local.test_learner import assert_close, gradient


async def tree_of(policy, seed, search):
    agent = Agent(policy, CountdownEnv(3), context=Segments(4))
    async with Collector(agent, critic=Critic.constant(0.3), search=search) as collector:
        return (await collector.collect(Problem("5+3", id=seed), key=(seed,))).prepare()


@pytest.mark.parametrize("loss", ["ppo", "importance_sampling", "cispo", "cross_entropy"])
def test_the_gradients_of_trees_are_equal_to_1e_12(loss, trainer_of, model_of):
    """GPT-2's norms stay in float64, where others round to float32 on the way."""

    async def main():
        options = {"model": model_of("gpt2"), "dtype": "float64", "loss": loss}
        async with trainer_of(**options) as trainer:
            policy = await trainer.publish_policy()
            search = Selective(budget=10, warmup=8, max_concurrency=1)
            trees = [await tree_of(policy, seed, search) for seed in range(3)]
            single = [record for tree in trees for record in export_actor(tree)]
            merged = [record for tree in trees for record in export_merged(tree)]
            assert len(merged) < len(single) / 1.5
            apart, _ = await gradient(trainer, single)
            together, _ = await gradient(trainer, merged)
            assert max(each.abs().max() for each in apart.values()) > 0
            assert_close(apart, together, 1e-12)

    run(main())
