"""Records as samples: aligned to the response, siblings of one rollout, nothing encoded again."""

import copy
import math
from dataclasses import dataclass

import numpy as np
import pytest
from focus_adapter_slime import to_sample
from focus_adapter_slime.samples import ADVANTAGES, FACTS, removed_sample, to_samples
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_core import ActorRecord, RecordError, Span, UsageError
from tests.adapters.slime.slime_double import OldSample, Sample


def record(parts, prompt=(5, 6), edge=3):
    """Of (generated tokens, advantage) and plain lists of conditioning tokens."""
    tokens, logprobs, spans = list(prompt), [0.0] * len(prompt), []
    for part in parts:
        if isinstance(part, list):
            tokens += part
            logprobs += [0.0] * len(part)
            continue
        sampled, advantage = part
        spans.append(Span(len(tokens), len(tokens) + len(sampled), advantage, edge + len(spans)))
        tokens += sampled
        logprobs += [-0.25 * (1 + i) for i in range(len(sampled))]
    metadata = {"group_index": 7, "edge": edge, "parent": 0, "problem": "p"}
    return ActorRecord(tokens, logprobs, spans, metadata)


def source(sample_type=Sample, **values):
    values = {"group_index": 2, "index": 9, "prompt": "ask", "label": "4"} | values
    return sample_type(**values, metadata={"level": 3})


class Letters:
    eos_token_id = 1

    def decode(self, tokens, skip_special_tokens):
        return " ".join(map(str, tokens))


def test_one_span():
    sample = to_sample(record([([8, 9], 0.5)]), source(), Letters(), Sample)
    assert sample.tokens == [5, 6, 8, 9]
    assert (sample.response, sample.response_length) == ("8 9", 2)
    assert sample.loss_mask == [1, 1]
    assert sample.rollout_log_probs == [-0.25, -0.5]
    assert (sample.reward, sample.remove_sample) == (0.5, False)
    assert sample.status is Sample.Status.COMPLETED
    assert (sample.group_index, sample.index, sample.rollout_id) == (2, 9, 9)
    assert (sample.prompt, sample.label) == ("ask", "4")
    assert sample.metadata == {
        "level": 3,
        FACTS: {"group_index": 7, "problem": "p", "edge": 3, "parent": 0},
    }


def test_conditioning_inside_the_response_is_masked():
    made = record([([8], 1.0), [70, 71], ([9, 10], 1.0), [72]])
    sample = to_sample(made, source(), Letters(), Sample)
    assert sample.tokens == [5, 6, 8, 70, 71, 9, 10, 72]
    assert sample.loss_mask == [1, 0, 0, 1, 1, 0]
    assert sample.rollout_log_probs == [-0.25, 0.0, 0.0, -0.25, -0.5, 0.0]
    assert sample.reward == 1.0
    assert ADVANTAGES not in sample.metadata, "one advantage is the reward alone"


def test_several_advantages_travel_beside_their_mean():
    sample = to_sample(record([([8], 1.0), [70], ([9, 10], -2.0)]), source(), None, Sample)
    assert sample.metadata[ADVANTAGES] == [1.0, 0.0, -2.0, -2.0]
    assert sample.reward == -1.0
    assert sample.response == ""


def test_v0_3_0_counts_siblings_by_another_field():
    sample = to_sample(record([([8], 1.0)]), source(OldSample), None, OldSample)
    assert sample.group_id == 9
    assert (
        to_sample(record([([8], 1.0)]), source(OldSample, group_id=4), None, OldSample).group_id
        == 4
    )


def test_an_own_rollout_id_goes_before_the_index():
    assert to_sample(record([([8], 1.0)]), source(rollout_id=0), None, Sample).rollout_id == 0


def test_both_forms_of_a_record_are_the_same_sample():
    made = record([([8], 1.0), [70], ([9, 10], -2.0)])
    assert to_sample(made, source(), None, Sample) == to_sample(
        made.to_dict(), source(), None, Sample
    )


def test_the_source_is_left_alone_and_shares_nothing():
    given_source = source()
    before = copy.deepcopy(given_source)
    samples = to_samples(
        [record([([8], 1.0)]), record([([9], 2.0)])], given_source, Letters(), Sample
    )
    samples[0].metadata["x"] = 1
    samples[0].apply_chat_template_kwargs["x"] = 1
    samples[0].tokens.append(0)
    assert given_source == before
    assert "x" not in samples[1].metadata
    assert samples[1].apply_chat_template_kwargs == {}


def test_what_an_earlier_tree_left_in_the_metadata_is_not_passed_on():
    stale = source()
    stale.metadata |= {ADVANTAGES: [1.0], FACTS: {"removed": "x"}, "raw_reward": 3.0}
    sample = to_sample(record([([8], 1.0)]), stale, None, Sample)
    assert set(sample.metadata) == {"level", FACTS}
    assert "removed" not in sample.metadata[FACTS]


def test_siblings_need_something_to_share():
    records = [record([([8], 1.0)]), record([([9], 2.0)])]
    with pytest.raises(UsageError, match="neither rollout_id nor index"):
        to_samples(records, source(index=None), None, Sample)
    assert {s.rollout_id for s in to_samples(records, source(), None, Sample)} == {9}


@pytest.mark.parametrize("tokenizer", [Letters(), None])
@pytest.mark.parametrize("sample_type", [Sample, OldSample])
def test_no_record_is_one_sample_that_trains_nothing(tokenizer, sample_type):
    (sample,) = to_samples([], source(sample_type), tokenizer, sample_type)
    assert sample.remove_sample
    assert sample.loss_mask == [0]
    assert sample.rollout_log_probs == [0.0]
    assert sample.response_length == 1
    assert len(sample.tokens) == 2, "a prompt and a response"
    assert sample.reward == 0.0
    assert sample.metadata[FACTS] == {"removed": "the tree trains no edge"}
    assert (sample.group_index, sample.index) == (2, 9)


@pytest.mark.parametrize(("eos", "token"), [(0, 0), (None, 0), ([4, 5], 4), ([], 0), (17, 17)])
def test_a_removed_sample_is_filled_with_a_token_of_the_model(eos, token):
    tokenizer = Letters()
    tokenizer.eos_token_id = eos
    sample = removed_sample(source(), tokenizer, Sample, "why", status="ABORTED")
    assert sample.tokens == [token, token]
    assert sample.status is Sample.Status.ABORTED


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (record([[8, 9]]), "trains no token"),
        (record([([8], 1.0)], prompt=()), "needs a prompt"),
    ],
)
def test_what_cannot_be_a_sample_is_refused(made, message):
    with pytest.raises(RecordError, match=message):
        to_sample(made, source(), None, Sample)


def test_an_old_slime_is_refused():
    @dataclass
    class Older:
        index: int

    with pytest.raises(UsageError, match=r"older than v0\.3\.0"):
        to_sample(record([([8], 1.0)]), source(), None, Older)


PARTS = st.lists(
    st.one_of(
        st.lists(st.integers(0, 2**31 - 1), max_size=3),
        st.tuples(
            st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4),
            st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0]),
        ),
    ),
    max_size=6,
).filter(lambda parts: any(isinstance(part, tuple) for part in parts))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(PARTS, st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=3))
def test_response_and_record_are_aligned(parts, prompt):
    made = record(parts, prompt=tuple(prompt))
    sample = to_sample(made, source(), None, Sample)
    start = len(sample.tokens) - sample.response_length
    assert sample.tokens == made.tokens.tolist()
    assert start == made.spans[0].start
    columns = (sample.loss_mask, sample.rollout_log_probs)
    assert {len(column) for column in columns} == {sample.response_length}
    assert [0] * start + sample.loss_mask == made.loss_mask.tolist()
    assert [0.0] * start + sample.rollout_log_probs == made.logprobs.tolist()
    assert sample.loss_mask[0] == 1
    assert all(type(token) is int for token in sample.tokens)
    assert all(type(value) is float for value in sample.rollout_log_probs)
    spread = sample.metadata.get(ADVANTAGES, np.multiply(sample.loss_mask, sample.reward))
    assert [0.0] * start + list(spread) == made.advantages.tolist()
    assert type(sample.reward) is float
    assert math.isfinite(sample.reward)
    assert (ADVANTAGES in sample.metadata) == (len({span.advantage for span in made.spans}) > 1)
