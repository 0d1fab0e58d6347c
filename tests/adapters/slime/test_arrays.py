"""Columns of samples as arrays, and what is left as it is."""

import pickle
import types

import numpy as np
import pytest
import torch
from focus_adapter_slime import preserve_advantages
from focus_adapter_slime.arrays import Mask, finite_floats, use_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

KINDS = {"tokens": torch.long, "loss_mask": torch.int, "rollout_log_probs": torch.float32}


def columns(**values):
    """What is read of a sample."""
    given = {"tokens": [3, 4], "loss_mask": [1], "rollout_log_probs": [-0.5]}
    return types.SimpleNamespace(**(given | values))


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.integers(0, 2**31 - 1)),
    st.lists(st.integers(0, 1), max_size=600),
    st.lists(st.floats(-1e30, 0)),
)
def test_the_tensors_are_those_of_the_lists(tokens, loss_mask, rollout_log_probs):
    lists = columns(tokens=tokens, loss_mask=loss_mask, rollout_log_probs=rollout_log_probs)
    made = columns(**vars(lists))
    use_arrays(made)
    assert sum(made.loss_mask) == sum(loss_mask)
    assert type(sum(made.loss_mask)) is int
    for name, dtype in KINDS.items():
        column = getattr(made, name)
        assert len(column) == len(getattr(lists, name))
        wanted = torch.tensor(getattr(lists, name), dtype=dtype)
        for make in (torch.tensor, torch.as_tensor):
            assert torch.equal(make(column, dtype=dtype), wanted)
        again = pickle.loads(pickle.dumps(column, protocol=5))
        assert type(again) is type(column)
        assert torch.equal(torch.tensor(again, dtype=dtype), wanted)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", [1, None]),
        ("tokens", ["1"]),
        ("tokens", [1.5]),
        ("tokens", [2**70]),
        ("tokens", (1, 2)),
        ("tokens", None),
        ("loss_mask", None),
        ("loss_mask", [0.5]),
        ("loss_mask", [-1]),
        ("loss_mask", [256]),
        ("rollout_log_probs", None),
        ("rollout_log_probs", [None]),
        ("rollout_log_probs", ["0"]),
        ("rollout_log_probs", np.zeros(1)),
        ("rollout_log_probs", torch.zeros(1)),
    ],
)
def test_what_is_no_list_of_such_numbers_is_left_to_slime(name, value):
    made = columns(**{name: value})
    use_arrays(made)
    assert getattr(made, name) is value


def test_lists_stay_lists_if_asked():
    given = columns(reward=1.0, metadata=None, response_length=1, index=0)
    preserve_advantages(types.SimpleNamespace(focus_arrays=False), [given])
    assert [type(getattr(given, name)) for name in KINDS] == [list] * 3
    preserve_advantages(types.SimpleNamespace(), [given])
    assert isinstance(given.loss_mask, Mask)


@pytest.mark.parametrize("wrong", [True, "1", None, float("nan"), np.float32(1), [1.0]])
def test_only_numbers_are_floats(wrong):
    assert finite_floats([0.0, wrong]) is None
    assert finite_floats([0.0, 1, -2.5]).tolist() == [0.0, 1.0, -2.5]
    assert finite_floats(np.array([0.5, -1])).tolist() == [0.5, -1.0]
    assert finite_floats(np.array([0.5, np.inf])) is None
    assert finite_floats(np.array([True])) is None
