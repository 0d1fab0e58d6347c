"""The fixtures that pytest finds where FOCUS is installed."""

from focus_core import Agent, Collector, Critic, Problem, Segments, Selective
from focus_core.testing import CountdownEnv


def test_a_tree_of_an_environment(random_policy, collect_tree):
    search = Selective(budget=4, warmup=4, max_concurrency=1)
    agent = Agent(random_policy, CountdownEnv(), context=Segments(2))
    collector = Collector(agent, critic=Critic.constant(0.5), search=search)
    collection = collect_tree(collector, Problem("1 2"), key=(0,))
    assert collection.counts["transitions"] >= 8
    assert len(collection.advantages) == len(collection.tree)


def test_policies_and_trainer_are_made_anew(random_policy, text_policy, recording_trainer):
    assert text_policy.decode(text_policy.prepare([{"role": "user", "content": "hé"}]).tokens)
    assert random_policy.version == 0
    assert recording_trainer.batches == []


def test_example_collections_have_every_shape(example_collections):
    trees = {name: found.tree for name, found in example_collections.items()}
    assert 2 in trees["truncated"].kind
    assert sum(trees["folded"].fresh) > 1
    assert not all(trees["failed"].kind)
    assert len(trees["failed"]) == 1
    assert example_collections["partial"].failures
    assert len({id(messages) for messages in trees["turns"].messages}) > 2
