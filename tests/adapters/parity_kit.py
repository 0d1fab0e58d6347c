"""Random trees, and the one update that every form of their records must be, in float64."""

import functools
import math
from collections import Counter

import numpy as np
import torch
from hypothesis import strategies as st

from focus_core import Collection, Collector, Critic, Independent, Problem, Tree
from focus_core.agent.agent import Agent
from focus_core.testing import CountdownEnv, RandomPolicy

LOSSES = ("ppo", "importance_sampling", "cispo", "cross_entropy")
COLLECTOR = Collector(
    Agent(RandomPolicy(), CountdownEnv()), critic=Critic.constant(0.5), search=Independent(1)
)


@st.composite
def collections(draw, group=0):
    """Trees no environment would make: empty and one-token edges, contexts that do not extend."""
    tree = Tree(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    advantages = [math.nan]
    for node in range(1, draw(st.integers(1, 10)) + 1):
        parent = draw(st.integers(max(0, node - 4), node - 1))
        tokens = draw(st.lists(st.integers(1, 3), max_size=3))
        fresh = draw(st.integers(0, 4)) == 4
        behaviour = st.floats(-9, -0.0078125, width=32)
        tree.add(
            parent,
            tokens,
            draw(st.lists(behaviour, min_size=len(tokens), max_size=len(tokens))),
            rendered=draw(st.lists(st.integers(8, 9), min_size=int(fresh), max_size=2)),
            fresh=fresh,
        )
        if not tree.alive[parent] or draw(st.integers(0, 9)) == 9:
            tree.remove([node])
        worth = st.one_of(st.sampled_from([0.5, 0.0, math.nan]), st.floats(-2, 2))
        advantages.append(draw(worth))
    collection = Collection(tree, Problem("?"), [], "", Counter(), {}, group, COLLECTOR)
    collection.advantages = np.asarray(advantages)
    return collection


def rows(inputs, targets, logprobs, advantages, mask):
    """(tokens before the target, target, behaviour, advantage) of each trained target."""
    for place in np.flatnonzero(np.asarray(mask)).tolist():
        prefix = tuple(int(token) for token in inputs[: place + 1])
        yield prefix, int(targets[place]), float(logprobs[place]), float(advantages[place])


def rows_of_tree(collection):
    """Those of a tree itself: nothing that exports or shifts takes part."""
    tree = collection.tree
    for node in tree.edges():
        tokens, logprobs = tree.generated(node)
        advantage = float(collection.advantages[node])
        if not math.isnan(advantage):
            before = [*tree.prefix(tree.parent[node]).tolist(), *tokens.tolist()]
            for place, logprob in enumerate(logprobs.tolist(), len(before) - len(tokens)):
                yield tuple(before[:place]), before[place], logprob, advantage


class Reference:
    """A model's log probabilities, one sequence at a time and in float64."""

    def __init__(self, model):
        self.model = model
        self.known = {}

    def __call__(self, found):
        """Of each row's target, shape (N,)."""
        for prefix in sorted({prefix for prefix, *_ in found}, key=len, reverse=True):
            if prefix not in self.known:
                self._read(prefix)
        return np.array([self.known[prefix][target] for prefix, target, *_ in found])

    @torch.no_grad()
    def _read(self, inputs):
        logits = self.model(input_ids=torch.tensor([inputs])).logits[0]
        assert logits.dtype == torch.float64
        for length, logprobs in enumerate(logits.log_softmax(-1).numpy(), 1):
            self.known.setdefault(inputs[:length], logprobs)


def loss_and_weights(name, p, q, advantage):
    """Summed loss, and the weight of each token: the loss's negative slope by its probability.

    Source: Schulman et al. 2017, equation 7 (``ppo``); MiniMax-M1 (arXiv 2506.13585), equation 4
    (``cispo``).
    """
    ratio = np.exp(p - q)
    clipped = np.clip(ratio, 0.8, 1.2)
    if name == "ppo":
        gain = np.minimum(ratio * advantage, clipped * advantage)
        weight = np.where(ratio * advantage <= clipped * advantage, ratio * advantage, 0.0)
    elif name == "importance_sampling":
        gain = weight = ratio * advantage
    elif name == "cispo":
        gain, weight = clipped * advantage * p, clipped * advantage
    else:
        gain, weight = advantage * p, advantage
    return -gain.sum(), weight


def assert_one_update(found, logprobs, expected, reference):
    """The same tokens after the same ones, weighed alike, in every loss; all to 1e-6."""
    order = sorted(range(len(found)), key=found.__getitem__)
    found, logprobs = [found[i] for i in order], np.asarray(logprobs, float)[order]
    expected = sorted(expected)
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6)
    own, other = (np.array([row[2:] for row in some]).reshape(-1, 2) for some in (found, expected))
    close(own, other)
    close(logprobs, reference(expected))
    for name in LOSSES:
        loss, weights = loss_and_weights(name, logprobs, *own.T)
        true_loss, true_weights = loss_and_weights(name, reference(expected), *other.T)
        close(weights, true_weights)
        close(loss, true_loss)
