"""Kept prefixes: what is found is right, as long as it may be, and bounded."""

import numpy as np
from focus_adapter_local._prefixes import PrefixStore
from hypothesis import given
from hypothesis import strategies as st

SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=8)


def array(values):
    return np.array(values, np.int32)


@given(
    st.lists(st.tuples(SEQUENCES, SEQUENCES), max_size=12),
    st.integers(1, 40),
    st.lists(SEQUENCES, min_size=1, max_size=6),
)
def test_what_is_found_is_a_prefix_and_the_store_stays_within_its_bound(grown, bound, asked):
    store = PrefixStore(bound)
    for start, more in grown:
        tokens = array(start + more)
        store.add(tokens, len(start), [[tokens]])
        held = [prefix.tokens for prefix in store._prefixes.values()]
        assert store._held == sum(map(len, held)) <= bound
        if len(tokens) <= bound:
            prefix, covered = store.find(tokens)  # the newest is there, whole
            assert covered == len(tokens)
        for name, key in store._ends.items():
            assert store._prefixes[key].tokens.tobytes().startswith(name)
    for each in asked:
        tokens = array(each)
        found = store.find(tokens)
        longest = max(
            (
                int(np.cumprod([a == b for a, b in zip(p.tokens, tokens, strict=False)]).sum())
                for p in store._prefixes.values()
            ),
            default=0,
        )
        if found is None:
            assert longest < max(1, int(len(tokens) * 2 / 3))
        else:
            prefix, covered = found
            assert covered == longest
            assert (prefix.tokens[:covered] == tokens[:covered]).all()


def test_going_on_replaces_and_branching_keeps():
    store = PrefixStore(100)
    root, left, right = [1, 2], [3, 4], [5, 6]
    store.add(array(root), 1, [[0]])
    store.add(array(root + left), 2, [[1]])
    assert len(store._prefixes) == 1  # the longer one contains the root
    assert store.find(array(root))[0].layers == [[1]]
    store.add(array(root + right), 2, [[2]])
    assert len(store._prefixes) == 2
    assert store.find(array(root + left))[0].layers == [[1]]


def test_the_least_recently_used_goes_first():
    store = PrefixStore(6)
    for first in (1, 2, 3):
        store.add(array([first, 9]), 1, [[first]])
    store.find(array([1, 9]))
    store.add(array([4, 9]), 1, [[4]])
    assert store.find(array([2, 9])) is None
    assert store.find(array([1, 9]))[0].layers == [[1]]
