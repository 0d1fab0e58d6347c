"""The plain form of a record: what it keeps, and what it refuses."""

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from focus_core import ActorRecord, CriticRecord, RecordError, Span

finite = st.floats(-1e6, 1e6)
f32 = st.floats(-100, 0, width=32)


@st.composite
def records(draw, may_merge=True):
    """A sequence of gaps and spans, some touching; spans of one edge or of several."""
    several = may_merge and draw(st.booleans())
    tokens, logprobs, spans = [], [], []
    for edge in range(draw(st.integers(0, 5))):
        gap = draw(st.integers(0, 3))
        tokens += draw(st.lists(st.integers(0, 2**31 - 1), min_size=gap, max_size=gap))
        logprobs += [0.0] * gap
        length = draw(st.integers(1, 4))
        start = len(tokens)
        tokens += draw(st.lists(st.integers(0, 2**31 - 1), min_size=length, max_size=length))
        logprobs += draw(st.lists(f32, min_size=length, max_size=length))
        advantage = draw(st.one_of(finite, st.sampled_from([0.0, -0.0, 0.5])))
        spans.append(Span(start, len(tokens), advantage, edge if several else 3))
    tail = draw(st.integers(0, 2))
    tokens += [5] * tail
    logprobs += [0.0] * tail
    metadata = {"group_index": 0, "edge": 3, "parent": 2, "problem": draw(st.text(max_size=3))}
    return ActorRecord(tokens, logprobs, spans, metadata)


@given(records())
@settings(max_examples=60)
def test_the_plain_form_reads_back_as_the_same_record(record):
    plain = record.to_dict()
    for form in (plain, json.loads(json.dumps(plain, allow_nan=False))):
        again = ActorRecord.from_dict(form)
        assert again == record
        assert again.merged == record.merged
        assert again.trained_tokens == record.trained_tokens
        if record.merged:
            assert again.spans == record.spans
    assert pickle.loads(pickle.dumps(record)) == record


@given(records())
def test_columns_agree_with_the_spans(record):
    inside = {at: span for span in record.spans for at in range(span.start, span.stop)}
    for at in range(len(record.tokens)):
        assert record.loss_mask[at] == (at in inside)
        assert record.advantages[at] == (inside[at].advantage if at in inside else 0.0)
        assert at in inside or record.logprobs[at] == 0.0
    assert record.has_signal == any(record.advantages != 0.0)
    one = {span.advantage for span in record.spans}
    if record.merged or len(one) != 1:
        assert record.reward is None
    else:
        assert record.reward == one.pop()


@given(records(may_merge=False))
@settings(max_examples=40)
def test_without_advantages_the_reward_is_spread_over_the_mask(record):
    assume(record.reward is not None)
    plain = record.to_dict()
    del plain["advantages"]
    np.testing.assert_array_equal(ActorRecord.from_dict(plain).advantages, record.advantages)


def corrupt(plain, key, value):
    return {**plain, key: value}


GOOD = ActorRecord(
    [7, 8, 9, 10], [0.0, -0.5, -0.25, 0.0], [Span(1, 3, 0.5, 4)], {"edge": 4}
).to_dict()
MERGED = ActorRecord(
    [7, 8, 9, 10], [0.0, -0.5, -0.25, -1.0], [Span(1, 3, 0.5, 4), Span(3, 4, 0.5, 5)], {"edge": 5}
).to_dict()

nonsense = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.integers(-5, 5),
    st.floats(),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.lists(st.one_of(st.none(), st.text(max_size=2), st.lists(st.integers(), max_size=2))),
)


@pytest.mark.parametrize("key", ["schema", "lane", "tokens", "loss_mask", "logprobs"])
@given(value=nonsense)
@settings(max_examples=40)
def test_nonsense_under_a_required_key_is_refused(key, value):
    assume(value != GOOD[key])
    with pytest.raises(RecordError):
        ActorRecord.from_dict(corrupt(GOOD, key, value))
    missing = {name: entry for name, entry in GOOD.items() if name != key}
    with pytest.raises(RecordError):
        ActorRecord.from_dict(missing)


@pytest.mark.parametrize("key", ["tokens", "loss_mask", "logprobs", "advantages"])
@pytest.mark.parametrize(
    "entry", [math.nan, math.inf, -math.inf, None, "1", [1], {}, 10**400, "nan"]
)
@pytest.mark.parametrize("at", [0, 1, 3])
def test_one_bad_entry_in_a_column_is_refused(key, entry, at):
    column = [*GOOD[key]]
    column[at] = entry
    with pytest.raises(RecordError, match=key):
        ActorRecord.from_dict(corrupt(GOOD, key, column))


@pytest.mark.parametrize("key", ["tokens", "loss_mask", "logprobs", "advantages"])
def test_a_column_one_short_or_one_long_is_refused(key):
    for column in (GOOD[key][:-1], [*GOOD[key], 0]):
        with pytest.raises(RecordError, match="entries for"):
            ActorRecord.from_dict(corrupt(GOOD, key, column))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", 2),
        ("schema", "1"),
        ("lane", "critic"),
        ("tokens", [7, 8, 9, -1]),
        ("tokens", [7, 8, 9, 2**31]),
        ("tokens", [7, 8, 9, 0.5]),
        ("loss_mask", [0, 1, 2, 0]),
        ("loss_mask", [0, 1, -1, 0]),
        ("loss_mask", [0, 1, 0.5, 0]),
        ("loss_mask", [1, 1, 1, 0]),  # then token 0 lacks the reward
        ("loss_mask", [0, 1, 0, 0]),  # then a log probability lies outside
        ("logprobs", [-0.1, -0.5, -0.25, 0.0]),
        ("logprobs", [0.0, -0.5, -0.25, -0.1]),
        ("advantages", [0.5, 0.5, 0.5, 0.0]),
        ("advantages", [0.0, 0.5, 0.25, 0.0]),
        ("advantages", [0.0, 0.0, 0.0, 0.0]),
        ("reward", 0.25),
        ("reward", math.nan),
        ("reward", "0.5"),
        ("reward", True),
        ("reward", 10**400),
        ("metadata", 5),
        ("metadata", "edge"),
        ("metadata", [["edge", 4]]),
    ],
)
def test_each_contradiction_is_refused(key, value):
    with pytest.raises(RecordError):
        ActorRecord.from_dict(corrupt(GOOD, key, value))


@pytest.mark.parametrize(
    "spans",
    [
        5,
        "spans",
        [[1, 3]],
        [[1, 3, 4], [3, 4, 5, 6]],
        [[1, 3, 4]],
        [[0, 3, 4], [3, 4, 5]],
        [[1, 3, 4], [2, 4, 5]],
        [[1, 3, 4], [3, 5, 5]],
        [[1, 3, 4], [3, 99, 5]],
        [[1, 3, 4], [99, 100, 5]],
        [[1, 3, 4], [-1, 4, 5]],
        [[3, 4, 5], [1, 3, 4]],
        [["1", 3, 4], [3, 4, 5]],
        [[1.5, 3, 4], [3, 4, 5]],
        [None, None],
    ],
)
def test_spans_that_do_not_fit_the_mask_are_refused(spans):
    plain = corrupt(MERGED, "metadata", {**MERGED["metadata"], "spans": spans})
    with pytest.raises(RecordError):
        ActorRecord.from_dict(plain)


@pytest.mark.parametrize(
    ("column", "match"),
    [
        ({"loss_mask": [0, 1, 2, 0]}, "0 and 1 only"),
        ({"advantages": [0.5, 0.5, 0.25, 0.0]}, "outside the loss mask"),
        ({"advantages": [0.0, 0.5, 0.25, -0.5]}, "outside the loss mask"),
    ],
)
def test_without_a_reward_to_compare_contradictions_are_still_refused(column, match):
    with pytest.raises(RecordError, match=match):
        ActorRecord.from_dict({**GOOD, "reward": None, **column})


@pytest.mark.parametrize("spans", [[[1, 3, 4]], [[1, 3, 4], [3, 4, 5], [3, 4, 6]], []])
def test_spans_that_leave_out_or_repeat_a_token_are_refused(spans):
    """Even where its log probability is 0, so that nothing else would tell."""
    metadata = {**MERGED["metadata"], "spans": spans}
    with pytest.raises(RecordError, match="cover the loss mask exactly once"):
        ActorRecord.from_dict({**MERGED, "logprobs": [0.0] * 4, "metadata": metadata})


def test_a_merged_span_with_two_advantages_is_refused():
    plain = corrupt(MERGED, "advantages", [0.0, 0.5, 0.25, 0.5])
    with pytest.raises(RecordError, match="several advantages"):
        ActorRecord.from_dict(plain)


def test_neither_reward_nor_advantages_is_refused():
    for plain in ({**GOOD, "reward": None, "advantages": None}, {"reward": None}):
        with pytest.raises(RecordError):
            ActorRecord.from_dict(plain)


@given(
    st.one_of(st.text(), st.lists(st.text()), st.none()),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_a_critic_record_reads_back(context, target):
    record = CriticRecord(context, target, {"branches": 2})
    plain = json.loads(json.dumps(record.to_dict(), allow_nan=False))
    assert CriticRecord.from_dict(plain) == record


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", 0),
        ("schema", None),
        ("lane", "actor"),
        ("lane", None),
        ("target", math.nan),
        ("target", -math.inf),
        ("target", "0.5"),
        ("target", None),
        ("target", True),
        ("target", [0.5]),
        ("target", 10**400),
        ("metadata", 3),
        ("metadata", "branches"),
    ],
)
def test_a_corrupted_critic_record_is_refused(key, value):
    good = CriticRecord("x", 0.5, {"branches": 2}).to_dict()
    with pytest.raises(RecordError):
        CriticRecord.from_dict(corrupt(good, key, value))
    missing = {name: entry for name, entry in good.items() if name != key}
    if key != "metadata":
        with pytest.raises(RecordError):
            CriticRecord.from_dict(missing)


def test_a_critic_record_without_context_is_refused():
    good = CriticRecord("x", 0.5).to_dict()
    del good["context"]
    with pytest.raises(RecordError, match="context"):
        CriticRecord.from_dict(good)
