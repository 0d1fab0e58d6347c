"""Columns are lists to everybody, and arrays to what makes tensors of them."""

import copy
import dataclasses
import json
import pickle
import random
import types

import numpy as np
import pytest
import torch
from focus_adapter_slime import preserve_advantages
from focus_adapter_slime.columns import Column, Mask, use_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

KINDS = {"tokens": torch.long, "loss_mask": torch.int, "rollout_log_probs": torch.float32}
CHANGES = {
    "item": lambda column: column.__setitem__(1, 7),
    "slice": lambda column: column.__setitem__(slice(0, 2), [8, 9]),
    "delete": lambda column: column.__delitem__(0),
    "add": lambda column: column.__iadd__([1]),
    "multiply": lambda column: column.__imul__(2),
    "append": lambda column: column.append(1),
    "extend": lambda column: column.extend([1]),
    "insert": lambda column: column.insert(0, 1),
    "pop": lambda column: column.pop(),
    "remove": lambda column: column.remove(3),
    "clear": lambda column: column.clear(),
    "sort": lambda column: column.sort(reverse=True),
    "reverse": lambda column: column.reverse(),
    "shuffle": lambda column: random.Random(0).shuffle(column),
    "behind its back": lambda column: list.append(column, 1),
}


def sample(tokens=(3, 4), loss_mask=(1,), rollout_log_probs=(-0.5,)):
    """A sample's columns, and the reward hook's other needs."""
    return types.SimpleNamespace(
        tokens=Column(np.array(tokens, np.int32)),
        loss_mask=Column(np.array(loss_mask, np.uint8).view(Mask)),
        rollout_log_probs=Column(np.array(rollout_log_probs, np.float32)),
        **{"reward": 1.0, "metadata": None, "response_length": len(loss_mask), "index": 0},
    )


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.integers(0, 2**31 - 1)),
    st.lists(st.integers(0, 1), max_size=600),
    st.lists(st.floats(-(2.0**99), 0, width=32)),
)
def test_the_tensors_are_those_of_the_lists(tokens, loss_mask, rollout_log_probs):
    made = sample(tokens, loss_mask, rollout_log_probs)
    lists = {name: list(getattr(made, name)) for name in KINDS}
    assert lists == {
        "tokens": tokens,
        "loss_mask": loss_mask,
        "rollout_log_probs": rollout_log_probs,
    }
    use_arrays(made)
    assert sum(made.loss_mask) == sum(loss_mask)
    assert type(sum(made.loss_mask)) is int
    for name, dtype in KINDS.items():
        column = getattr(made, name)
        assert isinstance(column, np.ndarray)
        assert column.flags.writeable
        assert len(column) == len(lists[name])
        wanted = torch.tensor(lists[name], dtype=dtype)
        for make in (torch.tensor, torch.as_tensor):
            assert torch.equal(make(column, dtype=dtype), wanted)
        again = pickle.loads(pickle.dumps(column, protocol=5))
        assert type(again) is type(column)
        assert torch.equal(torch.tensor(again, dtype=dtype), wanted)


def test_a_column_is_a_list():
    column = Column(np.array([3, 1, 2]))
    assert column == [3, 1, 2]
    more = column + [4]  # noqa: RUF005  # as programs do
    assert more == [3, 1, 2, 4]
    assert type(column[:2]) is type(more) is list
    assert json.dumps(column) == "[3, 1, 2]"
    assert type(pickle.loads(pickle.dumps(column))) is list

    @dataclasses.dataclass
    class Holder:
        column: list

    assert dataclasses.asdict(Holder(column)) == {"column": [3, 1, 2]}
    assert Column([1, "a"]) == [1, "a"]
    assert Column([1, "a"]).array is None
    assert Column().array is None


def test_a_copy_is_its_own():
    array = np.array([3, 1, 2])
    column = Column(array)
    array[0] = 9
    again = copy.deepcopy(column)
    again.array[0] = 8
    assert column.array.tolist() == column == [3, 1, 2]
    column.append(4)
    assert copy.deepcopy(column) == [3, 1, 2, 4]
    assert copy.deepcopy(column).array is None


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_was_changed_is_trained_as_it_is(change):
    made = sample(tokens=[5, 3, 4])
    plain = [5, 3, 4]
    change(made.tokens)
    change(plain)
    assert made.tokens == plain
    use_arrays(made)
    assert made.tokens == plain
    assert isinstance(made.tokens, list)
    assert isinstance(made.loss_mask, np.ndarray)


@pytest.mark.parametrize("value", [[1, 2], (1, 2), None, torch.zeros(1)])
def test_what_is_no_column_is_left_to_slime(value):
    made = sample()
    made.tokens = value
    use_arrays(made)
    assert made.tokens is value


def test_lists_stay_lists_if_asked():
    made = sample()
    preserve_advantages(types.SimpleNamespace(focus_arrays=False), [made])
    assert [type(getattr(made, name)) for name in KINDS] == [Column] * 3
    preserve_advantages(types.SimpleNamespace(), [made])
    assert isinstance(made.loss_mask, Mask)
