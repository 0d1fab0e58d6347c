"""Advantages of both recipes, by hand."""

import math

import numpy as np
import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    DirectBranchTd,
    GroupCentered,
    Independent,
    Recipe,
    Segments,
    Selective,
    Tree,
    UsageError,
)
from focus_core.testing import CountdownEnv
from focus_core.tree import backup
from focus_core.tree.tree import ROOT, TERMINAL, TRUNCATED

NAN = math.nan


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, equal_nan=True)


def group(*returns, segments=1):
    """Rollouts from the root, each of some segments, paid at the end; None is a truncated one."""
    tree = Tree([1])
    for outcome in returns:
        node = ROOT
        for _ in range(segments - 1):
            node = tree.add(node, [2], [-0.5])
        kind = TRUNCATED if outcome is None else TERMINAL
        tree.add(node, [3], [-0.5], reward=outcome or 0.0, kind=kind)
    return tree


def credit(tree, recipe, gamma=1.0):
    return recipe.credit(tree, backup(tree, gamma=gamma, kappa=1.0), gamma=gamma)


def test_group_centred_is_the_return_minus_the_groups_mean():
    # mean of 1, 0, 0.5, 0.1 is 0.4
    found = credit(group(1.0, 0.0, 0.5, 0.1), GroupCentered())
    same(found.advantages, [NAN, 0.6, -0.4, 0.1, -0.3])
    assert found.counts == {}


def test_every_edge_of_a_rollout_carries_its_advantage():
    found = credit(group(1.0, 0.0, segments=3), GroupCentered())
    same(found.advantages, [NAN, 0.5, 0.5, 0.5, -0.5, -0.5, -0.5])


def test_scaling_divides_by_the_population_deviation_plus_epsilon():
    # returns 1, 0, 0, 1: deviation 0.5
    found = credit(group(1.0, 0.0, 0.0, 1.0), GroupCentered(scale=True, epsilon=0.1))
    same(found.advantages, [NAN, 0.5 / 0.6, -0.5 / 0.6, -0.5 / 0.6, 0.5 / 0.6])
    # returns 3, 0, 0: mean 1, variance (4 + 1 + 1)/3 = 2
    found = credit(group(3.0, 0.0, 0.0), GroupCentered(scale=True, epsilon=0.0))
    same(found.advantages, [NAN, math.sqrt(2), -1 / math.sqrt(2), -1 / math.sqrt(2)])


@pytest.mark.parametrize("returns", [(1.0, 1.0, 1.0), (0.0, 0.0), (0.3,), (), (None,)])
@pytest.mark.parametrize("scale", [False, True])
def test_a_group_that_cannot_be_compared_is_dropped_and_counted(returns, scale):
    found = credit(group(*returns), GroupCentered(scale=scale))
    assert np.isnan(found.advantages).all()
    assert found.counts["degenerate_groups"] == 1


def test_truncated_rollouts_leave_the_group_and_are_counted():
    found = credit(group(1.0, None, 0.0, None), GroupCentered())
    same(found.advantages, [NAN, 0.5, NAN, -0.5, NAN])
    assert found.counts == {"truncated_rollouts": 2}
    found = credit(group(1.0, None), GroupCentered())
    assert found.counts == {"truncated_rollouts": 1, "degenerate_groups": 1}


def test_group_returns_are_discounted():
    tree = Tree()
    a = tree.add(ROOT, reward=0.5)
    tree.add(a, reward=1.0, kind=TERMINAL)
    tree.add(ROOT, reward=0.2, kind=TERMINAL)
    # returns 0.5 + 0.5*1 = 1 and 0.2; mean 0.6
    same(credit(tree, GroupCentered(), gamma=0.5).advantages, [NAN, 0.4, 0.4, -0.4])


def test_failed_rollouts_are_no_part_of_the_group():
    tree = group(1.0, 0.0, 0.0)
    tree.remove([3])
    same(credit(tree, GroupCentered()).advantages, [NAN, 0.5, -0.5, NAN])


def test_a_tree_that_branches_below_its_root_is_refused():
    tree = Tree()
    a = tree.add(ROOT)
    tree.add(a, reward=1.0, kind=TERMINAL)
    tree.add(a, kind=TERMINAL)
    with pytest.raises(UsageError, match=r"state 1 has several.*Independent\(n\)"):
        credit(tree, GroupCentered())
    tree.remove([3])
    assert credit(tree, GroupCentered()).counts == {"degenerate_groups": 1}


def test_group_centred_through_a_collector_needs_no_critic(collect, scripted):
    policy = scripted([2, 0], [1, 0], [4, 0])
    collector = Collector(
        Agent(policy, CountdownEnv()),
        search=Independent(3, max_concurrency=1),
        recipe=GroupCentered(),
    )
    collection = collect(collector).prepare()
    # rewards: share of even tokens: 1, 0.5, 1; mean 5/6
    same(collection.advantages, [NAN, 1 / 6, -1 / 3, 1 / 6])
    assert collection.returns == [1.0, 0.5, 1.0]
    assert collection.stopped == "all rollouts are in"


def test_a_recipe_that_needs_a_critic_fails_at_construction(scripted):
    agent = Agent(scripted(), object())
    with pytest.raises(UsageError, match=r"DirectBranchTd needs a critic.*Critic\.constant"):
        Collector(agent)
    with pytest.raises(UsageError, match="DirectBranchTd needs a critic"):
        Collector(agent, search=Selective(), recipe=DirectBranchTd())
    Collector(agent, critic=Critic.constant(0.5))
    Collector(agent, recipe=GroupCentered())


@pytest.mark.parametrize(
    ("name", "value"),
    [("gamma", -0.1), ("gamma", 1.1), ("kappa", 0.0), ("kappa", -1.0), ("deadline", 0.0)],
)
def test_collector_numbers_that_make_no_sense_are_refused(scripted, name, value):
    with pytest.raises(ValueError, match=name):
        Collector(Agent(scripted(), object()), critic=Critic.constant(0.5), **{name: value})


def test_gamma_and_kappa_are_the_collectors(collect, scripted):
    collector = Collector(
        Agent(scripted([2], [4]), CountdownEnv(2), context=Segments(1)),
        critic=Critic.constant(0.5),
        search=Independent(1),
        gamma=0.5,
        kappa=3.0,
    )
    collection = collect(collector).prepare()
    # state 1: (3*0.5 + 1)/4 = 0.625; root: q = 0.5*0.625 = 0.3125; (1.5 + 0.3125)/4
    same(collection.values.refined, [0.453125, 0.625, 0.0])
    same(collection.advantages, [NAN, 0.3125 - 0.453125, 0.375])


def test_both_are_recipes():
    assert isinstance(DirectBranchTd(), Recipe)
    assert isinstance(GroupCentered(), Recipe)
