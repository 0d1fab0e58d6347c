"""A record as Tinker's datum: shifted by one, exact in type, and refused where it would mislead."""

import json

import numpy as np
import pytest
from focus_adapter_tinker import to_datum
from hypothesis import given
from hypothesis import strategies as st

from focus_core import ActorRecord, RecordError, Span, UsageError
from tests.adapters.tinker.sdk_kit import merged, record


def columns(datum):
    return {name: column.to_numpy() for name, column in datum.loss_fn_inputs.items()}


def test_inputs_are_all_but_the_last_and_the_rest_is_read_one_later():
    datum = to_datum(record(tokens=(7, 8, 9, 10), start=2, advantage=0.3))
    found = columns(datum)
    assert datum.model_input.to_ints() == [7, 8, 9]
    assert found["target_tokens"].tolist() == [8, 9, 10]
    assert found["logprobs"].tolist() == [0.0, -0.5, -0.5]
    assert found["advantages"].tolist() == [0.0, np.float32(0.3), np.float32(0.3)]


def test_both_forms_of_a_record_make_the_same_datum():
    one, other = to_datum(merged()), to_datum(merged().to_dict())
    assert one.model_input.to_ints() == other.model_input.to_ints()
    assert {k: v.tolist() for k, v in columns(one).items()} == {
        k: v.tolist() for k, v in columns(other).items()
    }


def test_whole_advantages_stay_fractions():
    """The SDK takes an array of integers for integers, which no loss reads."""
    datum = to_datum(record(advantage=1))
    types = {name: column.dtype for name, column in datum.loss_fn_inputs.items()}
    assert types == {"target_tokens": "int64", "logprobs": "float32", "advantages": "float32"}


@pytest.mark.parametrize(
    ("loss", "names"),
    [
        ("ppo", {"target_tokens", "logprobs", "advantages"}),
        ("importance_sampling", {"target_tokens", "logprobs", "advantages"}),
        ("cispo", {"target_tokens", "logprobs", "advantages"}),
        ("cross_entropy", {"target_tokens", "weights"}),
        ("gspo", {"target_tokens", "logprobs", "advantages", "sequence_ratio_mask"}),
    ],
)
def test_each_loss_gets_what_it_reads(loss, names):
    found = columns(to_datum(record(), loss_fn=loss))
    assert set(found) == names
    if loss == "cross_entropy":
        assert found["weights"].tolist() == [0.0, 1.0, 1.0]
    if loss == "gspo":
        assert found["sequence_ratio_mask"].tolist() == [0.0, 1.0, 1.0]


def test_a_path_of_edges_trains_with_sums_over_tokens_only():
    assert columns(to_datum(merged()))["advantages"].tolist() == [1.0, 0.0, -0.5]
    with pytest.raises(RecordError, match="no sum over tokens"):
        to_datum(merged(), loss_fn="gspo")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (ActorRecord([1], [0.0], []), "nothing to predict"),
        (ActorRecord([1, 2], [-0.5, -0.5], [Span(0, 2, 1.0)]), "token 0 is a generated one"),
        (ActorRecord([1, 2], [0.0, -0.5], [Span(1, 2, 1e39)]), "32-bit"),
    ],
)
def test_what_cannot_be_trained_is_refused(bad, message):
    with pytest.raises(RecordError, match=message):
        to_datum(bad)


@pytest.mark.parametrize("loss", ["dro", "stable_reinforce", "sft"])
def test_other_losses_are_refused(loss):
    with pytest.raises(UsageError, match="cannot be trained with"):
        to_datum(record(), loss_fn=loss)


def test_a_plain_record_that_breaks_its_contract_is_refused():
    plain = record().to_dict()
    with pytest.raises(RecordError, match="finite"):
        to_datum({**plain, "logprobs": [0.0, 0.0, -float("inf"), 0.0]})


@given(st.data())
def test_any_record_arrives_finite_aligned_and_complete(data):
    length = data.draw(st.integers(2, 12))
    tokens = data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=length, max_size=length))
    edges = sorted(data.draw(st.sets(st.integers(1, length), min_size=1)))
    spans = [
        Span(start, stop, data.draw(st.floats(-1e3, 1e3)), place)
        for place, (start, stop) in enumerate(zip(edges, [*edges[1:], length], strict=True))
        if start < stop
    ]
    logprobs = np.zeros(length, np.float32)
    for span in spans:
        logprobs[span.start : span.stop] = data.draw(st.floats(-50, 0, width=32))
    made = ActorRecord(tokens, logprobs, spans)
    found = columns(to_datum(made))
    assert found["target_tokens"].tolist() == tokens[1:]
    assert found["logprobs"].tolist() == logprobs[1:].tolist()
    assert found["advantages"].tolist() == made.advantages[1:].astype(np.float32).tolist()
    assert all(np.isfinite(column).all() for column in found.values())


def test_a_datum_is_exported_as_plain_numbers():
    from focus_core.run.exporting import SavedRecord, item_lines

    (line,) = item_lines(iter([SavedRecord("r", record())]), "tinker", to_datum)
    assert json.loads(line)["loss_fn_inputs"] == {
        "target_tokens": [2, 3, 4],
        "logprobs": [0.0, -0.5, -0.5],
        "advantages": [0.0, 1.0, 1.0],
    }
