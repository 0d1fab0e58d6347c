"""Values, targets and temporal differences of trees small enough to do by hand."""

import math

import numpy as np
import pytest

from focus_core import DirectBranchTd, Tree
from focus_core.tree import backup
from focus_core.tree.tree import OPEN, ROOT, TERMINAL, TRUNCATED

NAN = math.nan


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, equal_nan=True)


def test_two_levels_at_kappa_one():
    """
    root (v=0.5) -- a (v=0.4) -- three outcomes 0, 1, 1
                 \\- b outcome 1
    """
    tree = Tree([9], prediction=0.5)
    a = tree.add(ROOT, [1], [-1.0], prediction=0.4)
    b = tree.add(ROOT, [2], [-1.0], reward=1.0, kind=TERMINAL)
    for reward in (0.0, 1.0, 1.0):
        tree.add(a, [3], [-1.0], reward=reward, kind=TERMINAL)
    values = backup(tree, gamma=1.0, kappa=1.0)
    # V~(a) = (1*0.4 + 0 + 1 + 1) / (1 + 3) = 2.4 / 4 = 0.6; target 2/3, not shrunk
    # root: q = 0.6 and 1; target 0.8; V~ = (0.5 + 1.6) / 3 = 0.7
    same(values.refined, [0.7, 0.6, 0.0, 0.0, 0.0, 0.0])
    same(values.target, [0.8, 2 / 3, NAN, NAN, NAN, NAN])
    assert values.branches.tolist() == [2, 3, 0, 0, 0, 0]
    credit = DirectBranchTd().credit(tree, values, gamma=1.0)
    # a: 0.6 - 0.7; b: 1 - 0.7; outcomes under a: 0 - 0.6, 1 - 0.6, 1 - 0.6
    same(credit.advantages, [NAN, -0.1, 0.3, -0.6, 0.4, 0.4])
    assert credit.counts == {}
    assert (a, b) == (1, 2)


def test_discount_over_an_edge_of_two_transitions():
    """gamma = 0.9, kappa = 2; the edge to a spans two transitions, its reward discounted inside."""
    tree = Tree(prediction=0.2)
    a = tree.add(ROOT, reward=0.1, duration=2, prediction=0.5)
    tree.add(ROOT, kind=TRUNCATED, prediction=0.8)
    tree.add(a, reward=1.0, kind=TERMINAL)
    values = backup(tree, gamma=0.9, kappa=2.0)
    # V~(a) = (2*0.5 + 1) / (2 + 1) = 2/3
    # q(a) = 0.1 + 0.81 * 2/3 = 0.1 + 0.54 = 0.64; q(cut) = 0.9 * 0.8 = 0.72
    # root: target (0.64 + 0.72)/2 = 0.68; V~ = (2*0.2 + 1.36) / 4 = 1.76/4 = 0.44
    same(values.refined, [0.44, 2 / 3, 0.8, 0.0])
    same(values.target, [0.68, 1.0, NAN, NAN])
    assert values.branches.tolist() == [2, 1, 0, 0]
    credit = DirectBranchTd().credit(tree, values, gamma=0.9)
    # 0.64 - 0.44; 0.72 - 0.44; 1 - 2/3
    same(credit.advantages, [NAN, 0.2, 0.28, 1 / 3])


def test_truncated_and_unexpanded_states_are_worth_their_prediction():
    """A cut rollout: root (0.5) -- a (0.3) -- cut (0.7); nothing was ever graded."""
    tree = Tree(prediction=0.5)
    a = tree.add(ROOT, reward=0.25, prediction=0.3)
    tree.add(a, kind=TRUNCATED, prediction=0.7)
    values = backup(tree, gamma=1.0, kappa=1.0)
    # V~(a) = (0.3 + 0.7)/2 = 0.5; root: q = 0.25 + 0.5 = 0.75; V~ = (0.5 + 0.75)/2 = 0.625
    same(values.refined, [0.625, 0.5, 0.7])
    same(values.target, [0.75, 0.7, NAN])
    assert values.branches.tolist() == [1, 1, 0]
    same(DirectBranchTd().credit(tree, values, gamma=1.0).advantages, [NAN, 0.125, 0.2])
    alone = backup(Tree(prediction=0.5), gamma=1.0, kappa=1.0)
    same(alone.refined, [0.5])
    same(alone.target, [NAN])


def test_a_failed_continuation_and_a_missing_prediction_under_partial_collection():
    """
    root (0.5) -- m (no prediction) -- x (0.4) -- outcome 1
               |- y outcome 0
               |- a (0.6) -- outcome 1
                           \\- c (0.3) -- outcome 1      this continuation failed: removed whole
    """
    tree = Tree(prediction=0.5)
    m = tree.add(ROOT)
    x = tree.add(m, prediction=0.4)
    tree.add(x, reward=1.0, kind=TERMINAL)
    tree.add(ROOT, reward=0.0, kind=TERMINAL)
    a = tree.add(ROOT, prediction=0.6)
    tree.add(a, reward=1.0, kind=TERMINAL)
    c = tree.add(a, prediction=0.3)
    d = tree.add(c, reward=1.0, kind=TERMINAL)
    tree.remove([c, d])
    values = backup(tree, gamma=1.0, kappa=1.0)
    # V~(x) = (0.4 + 1)/2 = 0.7; m has no value: its branch leaves root's mean, its edges are lost
    # V~(a) = (0.6 + 1)/2 = 0.8, one branch; root: q = 0 and 0.8; target 0.4
    # V~(root) = (0.5 + 0.8)/3 = 13/30
    same(values.refined, [13 / 30, NAN, 0.7, 0.0, 0.0, 0.8, 0.0, NAN, NAN])
    same(values.target, [0.4, NAN, 1.0, NAN, NAN, 1.0, NAN, NAN, NAN])
    assert values.branches.tolist() == [2, 0, 1, 0, 0, 1, 0, 0, 0]
    credit = DirectBranchTd().credit(tree, values, gamma=1.0)
    # m and x lose their edges; 1 - 0.7; 0 - 13/30; 0.8 - 13/30 = 11/30; 1 - 0.8
    same(credit.advantages, [NAN, NAN, NAN, 0.3, -13 / 30, 11 / 30, 0.2, NAN, NAN])
    assert credit.counts == {"edges_without_value": 2}


def test_a_root_without_prediction_loses_its_record_and_its_edges_only():
    tree = Tree()
    a = tree.add(ROOT, prediction=0.5)
    tree.add(a, reward=1.0, kind=TERMINAL)
    values = backup(tree, gamma=1.0, kappa=1.0)
    same(values.refined, [NAN, 0.75, 0.0])
    same(values.target, [NAN, 1.0, NAN])
    assert values.branches.tolist() == [0, 1, 0]
    same(DirectBranchTd().credit(tree, values, gamma=1.0).advantages, [NAN, NAN, 0.25])


def test_each_branch_counts_once_however_many_descendants_it_has():
    """a has four outcomes of 1, b is one outcome of 0: the root's mean is over two branches."""
    tree = Tree(prediction=0.0)
    a = tree.add(ROOT, prediction=0.0)
    tree.add(ROOT, reward=0.0, kind=TERMINAL)
    for _ in range(4):
        tree.add(a, reward=1.0, kind=TERMINAL)
    values = backup(tree, gamma=1.0, kappa=1.0)
    # V~(a) = 4/5; root target (0.8 + 0)/2 = 0.4 (pooled outcomes would say 0.8); V~ = 0.8/3
    same(values.refined[:2], [0.8 / 3, 0.8])
    same(values.target[:2], [0.4, 1.0])


def test_three_levels_with_rewards_on_the_way_and_values_outside_the_unit_interval():
    """gamma = 0.5, kappa = 0.5, rewards of any size: nothing is clamped in a backup."""
    tree = Tree(prediction=-1.0)
    a = tree.add(ROOT, reward=2.0, prediction=4.0)
    b = tree.add(a, reward=-1.0, prediction=0.0)
    tree.add(b, reward=10.0, kind=TERMINAL)
    tree.add(a, reward=3.0, kind=TERMINAL)
    values = backup(tree, gamma=0.5, kappa=0.5)
    # V~(b) = (0 + 10)/1.5 = 20/3; q(b) = -1 + 0.5*20/3 = 7/3; q(outcome) = 3; target(a) = 8/3
    # V~(a) = (0.5*4 + 16/3)/2.5 = (22/3)/2.5 = 44/15
    # q(a) = 2 + 22/15 = 52/15; V~(root) = (-0.5 + 52/15)/1.5 = (89/30)/1.5 = 89/45
    same(values.refined, [89 / 45, 44 / 15, 20 / 3, 0.0, 0.0])
    same(values.target, [52 / 15, 8 / 3, 10.0, NAN, NAN])
    advantages = DirectBranchTd().credit(tree, values, gamma=0.5).advantages
    # a: 52/15 - 89/45 = 67/45; b: 7/3 - 44/15 = -3/5; 10 - 20/3; 3 - 44/15
    same(advantages, [NAN, 67 / 45, -3 / 5, 10 / 3, 1 / 15])


def test_no_discount_at_all_keeps_only_the_edges_reward():
    tree = Tree(prediction=0.5)
    a = tree.add(ROOT, reward=0.25, prediction=0.8)
    tree.add(a, reward=1.0, kind=TERMINAL)
    values = backup(tree, gamma=0.0, kappa=1.0)
    same(values.target, [0.25, 1.0, NAN])
    same(values.refined, [0.375, 0.9, 0.0])


def test_a_critic_that_is_exact_makes_every_average_advantage_vanish():
    """With v equal to the branches' mean, the advantages of a state's branches sum to zero."""
    tree = Tree(prediction=0.5)
    for reward in (0.0, 1.0, 1.0, 0.0):
        tree.add(ROOT, reward=reward, kind=TERMINAL)
    values = backup(tree, gamma=1.0, kappa=1.0)
    advantages = DirectBranchTd().credit(tree, values, gamma=1.0).advantages
    same(advantages[1:], [-0.5, 0.5, 0.5, -0.5])


def test_the_tree_is_not_changed():
    tree = Tree([1, 2], prediction=0.5)
    a = tree.add(ROOT, [3], [-0.5], prediction=0.25)
    tree.add(a, [4], [-0.5], reward=1.0, kind=TERMINAL)
    before = repr(vars(tree))
    values = backup(tree, gamma=0.9, kappa=1.0)
    frozen = values.refined.copy()
    DirectBranchTd().credit(tree, values, gamma=0.9)
    assert repr(vars(tree)) == before
    same(values.refined, frozen)


@pytest.mark.parametrize("depth", [1, 400])
def test_a_chain_without_discount_shrinks_half_way_at_each_state(depth):
    """kappa = 1, v = 0, one branch each: V~ halves with every state, to any depth."""
    tree = Tree(prediction=0.0)
    node = ROOT
    for _ in range(depth - 1):
        node = tree.add(node, prediction=0.0)
    tree.add(node, reward=1.0, kind=TERMINAL)
    assert tree.kind[node] == OPEN
    values = backup(tree, gamma=1.0, kappa=1.0)
    assert values.refined[ROOT] == pytest.approx(0.5**depth, rel=1e-12)
