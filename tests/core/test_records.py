"""Records, problems, reports and errors as values; the plain form's properties are elsewhere."""

import copy
import dataclasses
import inspect
import pickle
from types import MappingProxyType

import numpy as np
import pytest

from focus_core import (
    ActorRecord,
    Batch,
    CollectionError,
    CriticRecord,
    DataError,
    Failure,
    GenerationError,
    Problem,
    RecordError,
    Span,
    StepReport,
    errors,
)
from focus_core.records import as_actor


@pytest.fixture
def record():
    """Prompt 1 2, sampled 3 4, tool 5, sampled 6: one edge, two spans."""
    return ActorRecord(
        [1, 2, 3, 4, 5, 6],
        [0.0, 0.0, -0.5, -1.0, 0.0, -0.25],
        [Span(2, 4, 0.5, 7), Span(5, 6, 0.5, 7)],
        {"group_index": 0, "edge": 7, "parent": 3, "problem": "p"},
    )


def test_the_columns_follow_from_the_spans(record):
    assert record.loss_mask.tolist() == [0, 0, 1, 1, 0, 1]
    assert record.advantages.tolist() == [0.0, 0.0, 0.5, 0.5, 0.0, 0.5]
    assert record.trained_tokens == 3
    assert not record.merged
    assert record.reward == 0.5
    assert record.has_signal
    assert (record.tokens.dtype, record.logprobs.dtype) == (np.int32, np.float32)


def test_the_plain_form_has_exactly_the_documented_keys(record):
    assert record.to_dict() == {
        "schema": 1,
        "lane": "actor",
        "tokens": [1, 2, 3, 4, 5, 6],
        "loss_mask": [0, 0, 1, 1, 0, 1],
        "logprobs": [0.0, 0.0, -0.5, -1.0, 0.0, -0.25],
        "advantages": [0.0, 0.0, 0.5, 0.5, 0.0, 0.5],
        "reward": 0.5,
        "metadata": {"group_index": 0, "edge": 7, "parent": 3, "problem": "p"},
    }
    assert CriticRecord("text", 0.25, {"branches": 2}).to_dict() == {
        "schema": 1,
        "lane": "critic",
        "context": "text",
        "target": 0.25,
        "metadata": {"branches": 2},
    }


def test_a_merged_record_has_no_scalar_reward():
    merged = ActorRecord(
        [1, 2, 3], [0.0, -1.0, -1.0], [Span(1, 2, 0.5, 4), Span(2, 3, 0.5, 5)], {"edge": 5}
    )
    assert merged.merged
    assert merged.reward is None
    assert merged.to_dict()["reward"] is None
    assert merged.to_dict()["metadata"] == {"edge": 5, "spans": [[1, 2, 4], [2, 3, 5]]}
    assert "spans" not in merged.metadata


def test_advantages_that_differ_in_one_edge_have_no_scalar_reward():
    record = ActorRecord([1, 2], [-1.0, -1.0], [Span(0, 1, 0.5, 4), Span(1, 2, 0.25, 4)])
    assert not record.merged
    assert record.reward is None


def test_a_record_with_nothing_to_train():
    for record in (
        ActorRecord([], [], []),
        ActorRecord([1, 2], [0.0, 0.0], []),
        ActorRecord([1, 2], [0.0, -1.0], [Span(1, 2, 0.0, 3)]),
    ):
        assert not record.has_signal
        assert ActorRecord.from_dict(record.to_dict()) == record


@pytest.mark.parametrize(
    ("tokens", "logprobs", "spans", "match"),
    [
        ([1, 2], [0.0], [], "one length"),
        ([[1, 2]], [[0.0, 0.0]], [], "two sequences"),
        ([1, 2], [0.0, np.nan], [Span(1, 2, 0.5)], r"logprobs\[1\] is nan"),
        ([1, 2], [-np.inf, 0.0], [Span(0, 1, 0.5)], r"logprobs\[0\] is -inf"),
        ([1, 2], [0.0, 0.0], [Span(1, 1, 0.5)], "empty"),
        ([1, 2], [0.0, 0.0], [Span(1, 3, 0.5)], "leaves the 2 tokens"),
        ([1, 2], [0.0, 0.0], [Span(-1, 1, 0.5)], "leaves"),
        ([1, 2], [0.0, 0.0], [Span(0, 2, 0.5), Span(1, 2, 0.5)], "overlaps"),
        ([1, 2], [0.0, 0.0], [Span(1, 2, 0.5), Span(0, 1, 0.5)], "overlaps"),
        ([1, 2], [0.0, 0.0], [Span(1, 2, np.inf)], "not finite"),
        ([1, 2], [0.0, 0.0], [Span(1, 2, np.nan)], "not finite"),
        ([1, 2], [-0.5, -0.5], [Span(1, 2, 0.5)], r"logprobs\[0\] is outside"),
        ([1, 2], [-0.5, -0.5], [Span(0, 1, 0.5)], r"logprobs\[1\] is outside"),
        ([1, 2], [-0.5, 0.0], [], r"logprobs\[0\] is outside"),
        ([1, -2], [0.0, 0.0], [], "negative"),
    ],
)
def test_what_a_trainer_would_misread_is_refused(tokens, logprobs, spans, match):
    with pytest.raises(RecordError, match=match):
        ActorRecord(tokens, logprobs, spans)


@pytest.mark.parametrize(
    "tokens", [[5.0], [0.5], ["5"], np.array([2**32 + 5]), [2**31], [2**80], np.uint32([2**31])]
)
def test_tokens_are_never_rounded_or_wrapped(tokens):
    with pytest.raises(RecordError, match="integers from 0"):
        ActorRecord(tokens, [0.0], [])


@pytest.mark.parametrize("key", ["edge", "parent"])
@pytest.mark.parametrize("value", ["x", [1], {}, 1.5])
def test_a_plain_record_names_its_edge_with_a_number(record, key, value):
    plain = ActorRecord([1, 2], [0.0, -0.5], [Span(1, 2, 0.5, 1, 0)], {"edge": 1}).to_dict()
    plain["metadata"][key] = value
    with pytest.raises(RecordError, match=f"metadata '{key}' is .*; it must be a state"):
        ActorRecord.from_dict(plain)


@pytest.mark.parametrize("target", [np.nan, np.inf, -np.inf])
def test_a_critic_target_is_finite(target):
    with pytest.raises(RecordError, match="finite"):
        CriticRecord("x", target)


def test_records_compare_by_value_and_do_not_hash(record):
    assert record == ActorRecord.from_dict(record.to_dict())
    assert record != record.to_dict()
    other = ActorRecord(record.tokens, record.logprobs, record.spans, {})
    assert record != other
    with pytest.raises(TypeError, match="unhashable"):
        hash(record)


def test_as_actor_takes_either_form(record):
    assert as_actor(record) is record
    assert as_actor(record.to_dict()) == record
    with pytest.raises(RecordError):
        as_actor({"lane": "actor"})


def test_a_record_does_not_share_the_plain_forms_metadata(record):
    plain = record.to_dict()
    again = ActorRecord.from_dict(plain)
    plain["metadata"]["edge"] = 99
    assert again.metadata["edge"] == 7
    assert record.metadata["edge"] == 7


# Problems and reports ---------------------------------------------------------------------------


@pytest.fixture
def problem():
    return Problem("2+2", "4", id="sum", metadata=MappingProxyType({"level": [1]}))


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))]
)
def test_problems_and_reports_pickle_and_copy(problem, again):
    assert again(problem) == problem
    assert again(Problem("x")) == Problem("x")
    report = StepReport(3, 2, 3, 1, {"loss": 0.5, "skipped": "nothing"})
    assert again(report) == report
    assert type(again(report)) is StepReport


def test_a_deep_copy_of_a_problem_shares_nothing(problem):
    copy.deepcopy(problem).metadata["level"].append(2)
    assert problem.metadata["level"] == [1]


def test_asdict_of_a_report_is_its_json_line():
    report = StepReport(0, 0, 0, 0, {"loss": 0.5})
    assert dataclasses.asdict(report) == {
        "batch": 0,
        "behavior_step": 0,
        "learner_step": 0,
        "policy_lag": 0,
        "metrics": {"loss": 0.5},
    }
    assert list(dataclasses.asdict(report)) == [
        "batch",
        "behavior_step",
        "learner_step",
        "policy_lag",
        "metrics",
    ]


def test_problems_and_reports_are_frozen(problem):
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.label = "5"
    with pytest.raises(TypeError):
        Problem("x").metadata["a"] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        StepReport(0, 0, 0, 0).batch = 1


def test_a_batch_knows_its_lag():
    batch = Batch(index=4, behavior_step=2, learner_step=3, actor=(), items=())
    assert batch.policy_lag == 1


# Errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_pickles_and_has_a_standard_parent(name):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.FocusError)
    again = pickle.loads(pickle.dumps(kind("what happened")))
    assert type(again) is kind
    assert str(again) == "what happened"
    if kind is not errors.FocusError:
        standard = [
            parent
            for parent in inspect.getmro(kind)
            if parent.__module__ == "builtins" and parent not in (Exception, BaseException, object)
        ]
        assert standard, f"{name} has no parent in the standard library"


def test_errors_with_fields_keep_them():
    error = DataError("is not a number", path="a.jsonl", line=3, field="x", remedy="remove it")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "a.jsonl:3: field 'x': is not a number; remove it"
    assert (again.path, again.line, again.field, again.remedy) == (
        "a.jsonl",
        3,
        "x",
        "remove it",
    )
    failure = Failure("generation", 2, 5, GenerationError("no log probabilities"))
    lost = CollectionError("problem 'p': 1 failed", [failure])
    again = pickle.loads(pickle.dumps(lost))
    assert str(again) == str(lost)
    (kept,) = again.failures
    assert (kept.stage, kept.state, kept.launch) == ("generation", 2, 5)
    assert str(kept) == "generation at state 2: GenerationError: no log probabilities"
