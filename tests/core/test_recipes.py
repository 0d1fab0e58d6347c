"""Advantages of every recipe, by hand."""

import math

import numpy as np
import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    DirectBranchTd,
    Fifo,
    GroupCentered,
    Independent,
    Recipe,
    RefinedTd,
    Segments,
    Selective,
    Tree,
    UsageError,
)
from focus_core.testing import CountdownEnv
from focus_core.tree import backup
from focus_core.tree.returns import observed_returns
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


def credit(tree, recipe, gamma=1.0, kappa=1.0):
    return recipe.credit(tree, backup(tree, gamma=gamma, kappa=kappa), gamma=gamma)


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


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(
    "returns", [(0.1 + 0.2, 0.3), (sum([0.1] * 10), 1.0, 1.0), (1e6 / 3 * 3, 1e6), (-0.0, 0.0)]
)
def test_returns_that_differ_by_rounding_only_teach_nothing(returns, scale):
    found = credit(group(*returns), GroupCentered(scale=scale, epsilon=0.0))
    assert np.isnan(found.advantages).all()
    assert found.counts == {"degenerate_groups": 1}


def test_a_small_difference_that_is_one_still_teaches():
    found = credit(group(1.0, 1.0 + 2**-20), GroupCentered(scale=True, epsilon=0.0))
    same(found.advantages, [NAN, -1.0, 1.0])


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


def test_refined_td_takes_the_returns_of_continuations_through_a_state():
    """kappa = 2, gamma = 0.5
    launch 0: root (0.5) -- a (0.4) -- b (0.6) -- outcome 1
    launch 1:                       a -- outcome 0.2, with 0.1 on the way: c (0.3)
    launch 2:                                 b -- outcome 0
    """
    tree = Tree(prediction=0.5)
    a = tree.add(ROOT, launch=0, prediction=0.4)
    b = tree.add(a, launch=0, prediction=0.6)
    tree.add(b, launch=0, reward=1.0, kind=TERMINAL)
    c = tree.add(a, launch=1, reward=0.1, prediction=0.3)
    tree.add(c, launch=1, reward=0.2, kind=TERMINAL)
    tree.add(b, launch=2, reward=0.0, kind=TERMINAL)
    count, mean = observed_returns(tree, gamma=0.5)
    # root: 0.25 (launch 0 only); a: 0.5 and 0.1 + 0.5*0.2 = 0.2; b: 1 and 0; c: 0.2
    assert count.tolist() == [1, 2, 2, 0, 1, 0, 0]
    same(mean, [0.25, 0.35, 0.5, NAN, 0.2, NAN, NAN])
    found = credit(tree, RefinedTd(), gamma=0.5, kappa=2.0)
    # V~: root (1 + 0.25)/3; a (0.8 + 0.7)/4; b (1.2 + 1)/4; c (0.6 + 0.2)/3
    root, va, vb, vc = 1.25 / 3, 0.375, 0.55, 0.8 / 3
    same(
        found.advantages,
        [NAN, va / 2 - root, vb / 2 - va, 1 - vb, 0.1 + vc / 2 - va, 0.2 - vc, -vb],
    )
    assert found.counts == {}


def test_refined_td_is_not_direct_branch_td():
    """The chain root -- a -- 1 at kappa 1, v 0: the root sees the outcome itself, not V~(a)."""
    tree = Tree(prediction=0.0)
    a = tree.add(ROOT, launch=0, prediction=0.0)
    tree.add(a, launch=0, reward=1.0, kind=TERMINAL)
    same(credit(tree, RefinedTd()).advantages, [NAN, 0.0, 0.5])
    same(credit(tree, DirectBranchTd()).advantages, [NAN, 0.25, 0.5])


def test_refined_td_discounts_by_duration():
    tree = Tree(prediction=0.2)
    a = tree.add(ROOT, launch=0, duration=2, reward=0.1, prediction=0.5)
    tree.add(a, launch=0, duration=3, reward=1.0, kind=TERMINAL)
    found = credit(tree, RefinedTd(), gamma=0.9)
    # a: (0.5 + 1)/2 = 0.75; root: (0.2 + 0.1 + 0.81)/2 = 0.555
    same(found.advantages, [NAN, 0.1 + 0.81 * 0.75 - 0.555, 0.25])


def test_refined_td_does_not_observe_truncated_continuations():
    """
    launch 0: root (0.5) -- a (0.25) -- outcome 1
    launch 1: a -- b (0.75) -- cut (0.125)
    launch 2: b -- outcome 0
    """
    tree = Tree(prediction=0.5)
    a = tree.add(ROOT, launch=0, prediction=0.25)
    tree.add(a, launch=0, reward=1.0, kind=TERMINAL)
    b = tree.add(a, launch=1, prediction=0.75)
    tree.add(b, launch=1, kind=TRUNCATED, prediction=0.125)
    tree.add(b, launch=2, reward=0.0, kind=TERMINAL)
    count, mean = observed_returns(tree, gamma=1.0)
    assert count.tolist() == [1, 1, 0, 1, 0, 0]
    same(mean, [1.0, 1.0, NAN, 0.0, NAN, NAN])
    # V~: root 0.75, a 0.625, b 0.375, cut its prediction
    same(
        credit(tree, RefinedTd()).advantages,
        [NAN, 0.625 - 0.75, 1 - 0.625, 0.375 - 0.625, 0.125 - 0.375, -0.375],
    )


def test_refined_td_under_failures_and_missing_predictions():
    """
    launch 0: root (0.5) -- m (no prediction) -- x (0.5) -- outcome 1
    launch 1: x -- y (0.5) -- outcome 0      failed: removed whole
    """
    tree = Tree(prediction=0.5)
    m = tree.add(ROOT, launch=0)
    x = tree.add(m, launch=0, prediction=0.5)
    tree.add(x, launch=0, reward=1.0, kind=TERMINAL)
    y = tree.add(x, launch=1, prediction=0.5)
    tree.remove([y, tree.add(y, launch=1, kind=TERMINAL)])
    count, _ = observed_returns(tree, gamma=1.0)
    assert count.tolist() == [1, 1, 1, 0, 0, 0], "a return through m is still an outcome"
    found = credit(tree, RefinedTd())
    same(found.advantages, [NAN, NAN, NAN, 0.25, NAN, NAN])
    assert found.counts == {"edges_without_value": 2}


def test_refined_td_of_what_a_collector_collected(collect, scripted):
    """kappa and gamma are the collector's, and the launches its own."""
    collector = Collector(
        Agent(scripted([2], [1], [4], [2]), CountdownEnv(2), context=Segments(1)),
        critic=Critic.constant(0.5),
        search=Fifo(budget=4, max_concurrency=1),
        recipe=RefinedTd(),
        gamma=0.5,
        kappa=3.0,
    )
    collection = collect(collector).prepare()
    # two rollouts from the root, of [2, 1] and [4, 2]: returns 0.5 and 1 at their middle states
    # V~: middles (1.5 + 0.5)/4 = 0.5 and (1.5 + 1)/4 = 0.625; root (1.5 + 0.25 + 0.5)/5 = 0.45
    same(collection.advantages, [NAN, 0.25 - 0.45, 0.5 - 0.5, 0.3125 - 0.45, 1 - 0.625])


def test_all_are_recipes():
    for kind in (DirectBranchTd, RefinedTd, GroupCentered):
        assert isinstance(kind(), Recipe)
    with pytest.raises(UsageError, match="RefinedTd needs a critic"):
        Collector(Agent(object(), object()), recipe=RefinedTd())
