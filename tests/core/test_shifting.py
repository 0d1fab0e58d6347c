"""A record as inputs and targets: the shift by one, and what no learner can be given."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_core import ActorRecord, RecordError, Shifted, Span, shifted

COLUMNS = ("input_tokens", "target_tokens", "logprobs", "advantages", "mask")
RECORD = ActorRecord(
    [5, 6, 7, 8, 9, 10],
    [0, 0, -0.5, -0.25, 0, -1.0],
    [Span(2, 4, 1.5, 1), Span(5, 6, -2.0, 2)],
)
LARGEST = float(np.finfo(np.float32).max)


def test_the_rest_is_read_one_position_later():
    made = shifted(RECORD)
    assert isinstance(made, Shifted)
    assert made.input_tokens.tolist() == [5, 6, 7, 8, 9]
    assert made.target_tokens.tolist() == [6, 7, 8, 9, 10]
    assert made.logprobs.tolist() == [0, -0.5, -0.25, 0, -1.0]
    assert made.advantages.tolist() == [0, 1.5, 1.5, 0, -2.0]
    assert made.mask.tolist() == [False, True, True, False, True]
    assert made.trained_tokens == 3


def test_a_record_s_own_arrays_are_not_copied():
    made = shifted(RECORD)
    assert np.shares_memory(made.input_tokens, RECORD.tokens)
    assert np.shares_memory(made.target_tokens, RECORD.tokens)
    assert np.shares_memory(made.logprobs, RECORD.logprobs)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (ActorRecord([], [], []), "a record of 0 tokens has nothing to predict; it needs 2"),
        (ActorRecord([5], [0.0], []), "a record of 1 tokens has nothing to predict; it needs 2"),
        (ActorRecord([5, 6], [-1.0, -1.0], [Span(0, 2, 1.0)]), "token 0 is a generated one"),
        (ActorRecord([5, 6], [0.0, -1.0], [Span(1, 2, -1e39)]), "span 1:2 is -1e[+]39, too large"),
        ({"schema": 1, "lane": "critic"}, "lane is 'critic'"),
    ],
)
def test_what_no_learner_can_be_given_is_refused(record, message):
    with pytest.raises(RecordError, match=message):
        shifted(record)


def test_an_advantage_is_refused_from_the_first_that_32_bits_cannot_hold():
    first = 2.0**128 - 2.0**103
    kept = shifted(ActorRecord([5, 6], [0, -1], [Span(1, 2, math.nextafter(first, 0))]))
    assert kept.advantages.tolist() == [LARGEST]
    with pytest.raises(RecordError, match="scale the rewards down"):
        shifted(ActorRecord([5, 6], [0, -1], [Span(1, 2, first)]))


@given(st.data())
def test_any_record_arrives_aligned_complete_and_typed_in_either_form(data):
    length = data.draw(st.integers(2, 12))
    tokens = data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=length, max_size=length))
    edges = sorted(data.draw(st.sets(st.integers(1, length), max_size=6)))
    spans, logprobs = [], np.zeros(length, np.float32)
    for edge, (start, stop) in enumerate(itertools.pairwise([*edges, length])):
        if start < stop and data.draw(st.booleans()):
            spans.append(Span(start, stop, data.draw(st.floats(-1e3, 1e3)), edge))
            logprobs[start:stop] = data.draw(st.floats(-50, 0, width=32))
    record = ActorRecord(tokens, logprobs, spans)
    for made in (shifted(record), shifted(record.to_dict())):
        assert made.input_tokens.tolist() == tokens[:-1]
        assert made.target_tokens.tolist() == tokens[1:]
        assert made.logprobs.tolist() == logprobs[1:].tolist()
        assert made.advantages.tolist() == record.advantages[1:].astype(np.float32).tolist()
        assert made.mask.tolist() == record.loss_mask[1:].astype(bool).tolist()
        assert [getattr(made, name).dtype for name in COLUMNS] == [
            np.int32,
            np.int32,
            np.float32,
            np.float32,
            np.bool_,
        ]
