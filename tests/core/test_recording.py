"""Recording a schedule and replaying it: what a trainer is handed, and whose directory it is."""

import asyncio
import json
import os
from pathlib import Path

import attrs
import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    CriticRecord,
    DataError,
    Lane,
    Problem,
    Segments,
    Selective,
    StaleBatchError,
    UsageError,
    run_schedule,
)
from focus_core.run.config import RunConfig
from focus_core.run.recording import Recorder, Recording
from focus_core.run.replay import PlainRecord, Replay
from focus_core.schedule import run_batches
from focus_core.schedule.batches import CollectedBatch, TreeRecords
from focus_core.testing import CountdownEnv, RandomPolicy, RecordingTrainer

CONFIG = RunConfig(task="countdown", trainer="fake", record="/somewhere")
PROBLEMS = [Problem(str(1 + i % 4), id=f"p{i}") for i in range(6)]


def collector_for(policy, problem):
    env = CountdownEnv(1 if problem.id == "p3" else 3)
    return Collector(
        Agent(policy, env, context=Segments(2)),
        critic=Critic.constant(0.5),
        search=Selective(budget=6, warmup=6, max_concurrency=1),
    )


class Pair:
    """A record of a lane that the core does not know."""

    def __init__(self, edges):
        self.edges, self.metadata = edges, {}

    def to_dict(self):
        return {"edges": self.edges, "metadata": self.metadata}


PAIRS = Lane("pairs", Pair, lambda c: [Pair([1, len(c.tree)])], "sink")


def recorded(path, **options):
    """Run three batches of two trees, recorded; the trainer, its reports and what it delivered."""
    trainer, critic, pairs = RecordingTrainer(), [], []
    with Recorder.create(path, CONFIG, {}) as recorder:
        reports = asyncio.run(
            run_schedule(
                trainer,
                PROBLEMS,
                collector_for,
                steps=3,
                problems_per_step=2,
                seed=3,
                critic_sink=critic.append,
                lanes={"pairs": (PAIRS, pairs.append)},
                on_batch=recorder,
                **options,
            )
        )
    return trainer, reports, critic, pairs


def replayed(path, merge, **options):
    trainer, critic, pairs = RecordingTrainer(), [], []
    reports = asyncio.run(
        run_batches(
            trainer,
            Replay(Recording.open(path), trainer, merge),
            sinks={"critic": critic.append, "pairs": pairs.append},
            **{"steps": 3, **options},
        )
    )
    return trainer, reports, critic, pairs


def bits(record):
    spans = [attrs.evolve(span, advantage=span.advantage.hex()) for span in record.spans]
    return record.tokens.tobytes(), record.logprobs.tobytes(), spans, record.metadata


@pytest.mark.parametrize("recorded_merged", [True, False])
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("async_depth", [0, 1])
def test_a_replay_hands_over_what_a_run_would_have(tmp_path, recorded_merged, merge, async_depth):
    """Whatever form the recorded run's trainer took, bit for bit and in the same order."""
    live = recorded(tmp_path / "same", merge=merge, async_depth=async_depth)
    recorded(tmp_path / "other", merge=recorded_merged, async_depth=async_depth)
    again = replayed(tmp_path / "other", merge)
    assert again[1:] == live[1:], "reports and deliveries"
    assert live[2]
    assert live[3]
    for ours, theirs in zip(again[0].batches, live[0].batches, strict=True):
        assert [bits(r) for r in ours.actor] == [bits(r) for r in theirs.actor]
        assert ours.items == theirs.items
        assert ours.others["critic"] == theirs.others["critic"]
        assert isinstance(ours.others["critic"][0], CriticRecord)
        assert isinstance(ours.others["pairs"][0], PlainRecord)
        assert (ours.index, ours.policy_lag, ours.metrics) == (
            theirs.index,
            theirs.policy_lag,
            theirs.metrics,
        )
        assert ours.replayed
        assert not ours.on_policy
        assert theirs.on_policy == (theirs.policy_lag == 0)
    assert any(record.merged for record in replayed(tmp_path / "other", True)[0].batches[0].actor)


def test_a_replay_publishes_nothing_unless_it_evaluates(tmp_path):
    recorded(tmp_path)
    assert not replayed(tmp_path, True)[0].policies
    measured = []

    async def evaluate(policy):
        assert not policy.closed
        measured.append(policy.version)
        return {"eval/x": policy.version}

    trainer, reports, *_ = replayed(tmp_path, True, evaluate=evaluate, eval_every=2)
    assert measured == [0, 2, 3]
    assert [report.metrics.get("eval/x") for report in reports] == [None, 2, 3]
    assert all(policy.closed for policy in trainer.policies)
    assert isinstance(trainer.policies[0], RandomPolicy)


def test_a_skipped_batch_is_recorded_and_skipped_again(tmp_path):
    options = {"min_abs_advantage": 2.0}
    trainer, reports, critic, _ = recorded(tmp_path, **options)
    assert not trainer.batches
    assert all("skipped" in report.metrics for report in reports)
    again = replayed(tmp_path, True)
    assert not again[0].batches
    assert (again[1], again[2]) == (reports, critic)


def test_a_batch_is_written_before_its_update_and_an_error_stops_the_run(tmp_path):
    seen = []

    async def look(batch):
        seen.append(len(Recording.open(tmp_path)))
        if batch.index == 1:
            raise OSError("the trainer is gone")

    with Recorder.create(tmp_path, CONFIG, {}) as recorder, pytest.raises(OSError, match="gone"):
        asyncio.run(
            run_schedule(
                RecordingTrainer(delay=look),
                PROBLEMS,
                collector_for,
                steps=5,
                on_batch=recorder,
            )
        )
    assert seen == [1, 2]
    assert len(Recording.open(tmp_path)) == 2


def test_a_full_disk_stops_the_run_before_the_update(tmp_path, monkeypatch):
    trainer, fsync, left = RecordingTrainer(), os.fsync, iter(range(2))

    def fill(descriptor):
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    with Recorder.create(tmp_path, CONFIG, {}) as recorder:
        monkeypatch.setattr(os, "fsync", fill)
        with pytest.raises(OSError, match="No space") as caught:
            asyncio.run(run_schedule(trainer, PROBLEMS, collector_for, steps=5, on_batch=recorder))
    assert "while recording batch 2" in caught.value.__notes__
    assert [batch.index for batch in trainer.batches] == [0, 1]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "batch-000000.npz",
        "batch-000001.npz",
        "recording.json",
    ]
    assert [b.index for b in replayed(tmp_path, True, steps=2)[0].batches] == [0, 1]


def test_too_old_a_batch_is_refused_in_a_replay_too(tmp_path):
    recorded(tmp_path / "good")
    good = Recording.open(tmp_path / "good")
    with Recorder.create(tmp_path / "old", CONFIG, {}) as recorder:
        for index in range(3):
            was = good.read(index)
            batch = CollectedBatch(
                index=index,
                behavior_step=0,
                trees=[TreeRecords(tree, (), ()) for tree in was.trees],
                others={},
                metrics=was.metrics,
            )
            recorder(batch, index)
    with pytest.raises(StaleBatchError, match="a lag of 2"):
        replayed(tmp_path / "old", True)


# The directory --------------------------------------------------------------------------------


def test_it_says_what_was_recorded(tmp_path):
    with Recorder.create(tmp_path / "deep" / "r", CONFIG, {"focus-x": "2.5"}) as recorder:
        found = Recording.open(tmp_path / "deep" / "r")
        assert found == recorder.recording
    assert found.config == attrs.evolve(CONFIG, record=None)
    assert found.versions["focus-x"] == "2.5"
    assert {"focus-core", "numpy", "python"} <= set(found.versions)
    assert len(found) == 0


def test_one_run_at_a_time_records_into_a_directory(tmp_path):
    recorded(tmp_path / "full")
    with pytest.raises(UsageError, match="holds another run's recording"):
        Recorder.create(tmp_path / "full", CONFIG, {})
    with Recorder.create(tmp_path / "new", CONFIG, {}) as recorder:
        with pytest.raises(UsageError, match="another run is recording into it"):
            Recorder.create(tmp_path / "new", CONFIG, {})
        with pytest.raises(UsageError, match="another run is recording into it"):
            Recorder.resume(tmp_path / "new", recorder.recording.id, 0)
    Recorder.create(tmp_path / "new", CONFIG, {}).__exit__(None, None, None)


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_is_no_directory_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot be written"):
        Recorder.create(tmp_path / place, CONFIG, {})


def test_resuming_drops_what_came_after_the_checkpoint(tmp_path):
    recorded(tmp_path)
    recording = Recording.open(tmp_path)
    with Recorder.resume(tmp_path, recording.id, 1) as recorder:
        assert recorder.dropped == ["batch-000001.npz", "batch-000002.npz"]
        assert recorder.recording == recording
    assert len(recording) == 1
    with pytest.raises(DataError, match="1 batches are recorded, and the checkpoint is at 2"):
        Recorder.resume(tmp_path, recording.id, 2)
    with pytest.raises(UsageError, match="another run's"):
        Recorder.resume(tmp_path, "another", 1)
    Recorder.resume(tmp_path, recording.id, 1).__exit__(None, None, None)


def test_a_missing_batch_is_named(tmp_path):
    recorded(tmp_path)
    recording = Recording.open(tmp_path)
    recording.file(1).unlink()
    with pytest.raises(DataError, match=r"batch-000001\.npz: this batch is missing"):
        len(recording)
    with pytest.raises(DataError, match="no such file"):
        recording.read(1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file"),
        (b"\xff\xfe", "not a recording"),
        (b"[]", "not a recording"),
        (b"{", "not a recording"),
        (b"{}", "not a recording: 'schema'"),
        (b'{"schema": 1}', "not a recording: 'config'"),
        (b'{"schema": 7}', "field 'schema': is 7; this version reads 1"),
        (b'{"schema": 1, "config": {"tsk": 1}, "id": "", "versions": {}}', "'tsk'"),
        (b'{"schema": 1, "config": {"task": "t"}, "id": "", "versions": 3}', "not a recording"),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path, content, said):
    if content is not None:
        (tmp_path / "recording.json").write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        Recording.open(tmp_path)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_the_manifest_is_json(tmp_path):
    with Recorder.create(tmp_path, CONFIG, {}):
        manifest = json.loads((tmp_path / "recording.json").read_text())
    assert (manifest["schema"], manifest["config"]["task"]) == (1, "countdown")


def test_dropping_batches_that_is_interrupted_leaves_no_gap(tmp_path, monkeypatch):
    recorded(tmp_path)
    unlink, gone = Path.unlink, []

    def once(path, *args, **kwargs):
        if gone:
            raise OSError("interrupted")
        gone.append(path.name)
        unlink(path, *args, **kwargs)

    monkeypatch.setattr(Path, "unlink", once)
    with pytest.raises(OSError, match="interrupted"):
        Recorder.resume(tmp_path, CONFIG.run_id, 1)
    monkeypatch.undo()
    assert gone == ["batch-000002.npz"]
    with Recorder.resume(tmp_path, CONFIG.run_id, 1) as recorder:
        assert len(recorder.recording) == 1


class Skipped:
    """A source of batches that train nothing; from ``broken`` on it fails when it is cancelled."""

    samples = False

    def __init__(self, broken=None):
        self.broken = broken

    async def collect(self, index, policy, behavior_step):
        if index == self.broken:
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("the connection is gone")
        return CollectedBatch(
            index=index, behavior_step=0, trees=[], others={}, metrics={"sampled_tokens": 0}
        )


def test_weights_that_did_not_change_are_saved_once():
    trainer, states = RecordingTrainer(), []
    asyncio.run(
        run_batches(
            trainer,
            Skipped(),
            steps=4,
            save_every=1,
            on_saved=lambda name, progress: states.append((name, progress.batch)),
        )
    )
    assert trainer.saved == ["step-000000"]
    assert states == [("step-000000", batch) for batch in (1, 2, 3, 4)]


def test_what_fails_while_a_run_that_failed_is_wound_down_is_noted():
    def refuse(batch, learner_step):
        raise KeyError("the first error")

    with pytest.raises(KeyError, match="the first error") as caught:
        asyncio.run(run_batches(RecordingTrainer(), Skipped(broken=1), steps=2, on_batch=refuse))
    assert "afterwards: ValueError: the connection is gone" in caught.value.__notes__
