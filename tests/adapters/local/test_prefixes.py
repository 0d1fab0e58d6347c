"""Kept prefixes: what is found is right, as long as it may be, kept once, and bounded."""

import numpy as np
import torch
from focus_adapter_local._prefixes import PrefixStore
from hypothesis import given
from hypothesis import strategies as st

SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=8)


def array(values):
    return np.array(values, np.int32)


class Rows:
    """Stands for a cache: the "keys" of a token are the sum of what leads up to it."""

    def __init__(self, bound):
        self.store = PrefixStore(bound)
        self.copied = 0

    def add(self, values):
        tokens = array(values)

        def copy(start, stop):
            self.copied += stop - start
            return [[states(values)[:, start:stop]]]

        self.store.add(tokens, copy)

    def find(self, values):
        """How many tokens are covered, once it is checked that they are the right ones."""
        runs, covered = self.store.find(array(values))
        if covered:
            found = torch.cat([run[0][0] for run in runs], 1)
            assert sum(run[0][0].shape[1] for run in runs[:-1]) < covered <= found.shape[1]
            assert torch.equal(found[:, :covered], states(values[:covered]))
        else:
            assert runs == []
        return covered

    def kept(self):
        """Every kept sequence that nothing goes on from, and how many tokens the runs have."""
        leaves, held = [], 0
        below = [([], self.store._root)]
        while below:
            before, run = below.pop()
            tokens = [*before, *run.tokens.tolist()]
            held += len(run.tokens)
            assert all(int(after.tokens[0]) == first for first, after in run.after.items())
            below += [(tokens, after) for after in run.after.values()]
            if not run.after:
                leaves.append(tokens)
        return leaves, held


def states(values):
    """Shape (1 head, length, 1)."""
    return torch.tensor([[hash(tuple(values[: at + 1])) for at in range(len(values))]])[..., None]


def common(one, other):
    return int(np.cumprod([a == b for a, b in zip(one, other, strict=False)]).sum())


@given(
    st.lists(st.tuples(SEQUENCES, SEQUENCES), max_size=12),
    st.integers(1, 40),
    st.lists(SEQUENCES, min_size=1, max_size=6),
)
def test_what_is_found_is_a_prefix_and_the_store_stays_within_its_bound(grown, bound, asked):
    rows = Rows(bound)
    for start, more in grown:
        rows.add(start)
        rows.add(start + more)
        leaves, held = rows.kept()
        assert rows.store._held == held <= bound
        if len(start + more) <= bound:
            assert rows.find(start + more) == len(start + more)  # the newest is there, whole
    leaves, _ = rows.kept()
    for each in asked:
        longest = max(common(leaf, each) for leaf in leaves)
        assert rows.find(each) == (longest if longest >= max(1, int(len(each) * 2 / 3)) else 0)


def test_a_tree_is_kept_once():
    rows = Rows(100)
    root = list(range(10))
    rows.add(root)
    rows.add([*root, 20, 21, 22])
    rows.add([*root, 20, 21, 30])  # alike for two tokens, then not
    rows.add([*root, 20, 21, 22, 40])
    rows.add([*root, 20])
    assert rows.copied == rows.kept()[1] == 10 + 3 + 1 + 1
    for each in ([20, 21, 22, 40], [20, 21, 30]):
        assert rows.find([*root, *each]) == 10 + len(each)


def test_the_least_recently_used_goes_first():
    rows = Rows(6)
    for first in (1, 2, 3):
        rows.add([first, 9])
    rows.find([1, 9])
    rows.add([4, 9])
    assert rows.find([2, 9]) == 0
    assert rows.find([1, 9]) == 2


def test_what_others_go_on_from_stays():
    rows = Rows(6)
    rows.add([1, 2, 3])
    for last in (4, 5, 6, 7):
        rows.add([1, 2, 3, last])
    assert [rows.find([1, 2, 3, last]) for last in (4, 5, 6, 7)] == [3, 4, 4, 4]


def test_a_store_without_room_keeps_nothing():
    rows = Rows(0)
    rows.add([1])
    assert rows.find([1]) == rows.copied == 0
