"""Records as items: what is refused before any gradient, and the batches they make."""

import attrs
import numpy as np
import pytest
from focus_adapter_local import Item, to_item
from focus_adapter_local.items import check_items
from focus_adapter_local.learner import micro_batches
from hypothesis import given
from hypothesis import strategies as st

from focus_core import ActorRecord, RecordError, Span

RECORD = ActorRecord(
    [5, 6, 7, 8, 9, 10],
    [0, 0, -0.5, -0.25, 0, -1.0],
    [Span(2, 4, 1.5, 1), Span(5, 6, -2.0, 2)],
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logprobs": np.zeros(2, np.float32)}, "of one length"),
        ({"logprobs": np.array([0, np.nan, 0, 0, 0], np.float32)}, r"logprobs\[1\] is nan"),
        ({"advantages": np.array([0, 0, np.inf, 0, 0])}, r"advantages\[2\] is inf"),
        ({"target_tokens": np.array([1, 2, 3, 64, 4], np.int32)}, r"target_tokens\[3\] is 64"),
        ({"input_tokens": np.array([-1, 2, 3, 4, 4], np.int32)}, r"input_tokens\[0\] is -1"),
    ],
)
def test_tampered_items_are_named(change, message):
    good = to_item(RECORD)
    with pytest.raises(RecordError, match=f"item 1 of the batch.*{message}"):
        check_items([good, attrs.evolve(good, **change)], vocabulary=64, context_length=None)


def test_foreign_items_and_long_ones_are_refused():
    with pytest.raises(RecordError, match="is a dict"):
        check_items([{}], vocabulary=64, context_length=None)
    with pytest.raises(RecordError, match="context is 4"):
        check_items([to_item(RECORD)], vocabulary=64, context_length=4)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 120),
)
def test_micro_batches_cover_each_trained_item_once_within_budget(shapes, budget):
    items = []
    for length, trained in shapes:
        mask = np.zeros(length + 3, bool)
        mask[length - 1] = trained  # what comes after the last trained target costs nothing
        zeros = np.zeros(length + 3)
        ids = zeros.astype(np.int32)
        items.append(Item(ids, ids, zeros.astype(np.float32), zeros, mask))
    groups = micro_batches(items, budget)
    trained = [i for i, (_, trains) in enumerate(shapes) if trains]
    assert sorted(i for group in groups for i in group) == trained
    for group in groups:
        width = max(shapes[i][0] for i in group)
        assert len(group) * width <= budget or len(group) == 1
