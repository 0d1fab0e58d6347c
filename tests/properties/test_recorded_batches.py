"""A recorded batch reads back as it was, to the bit; a damaged one is refused or harmless."""

import json
import math
import zipfile
from collections import Counter

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_core import ActorRecord, CriticRecord, DataError, RecordError, Span
from focus_core.run.batch_file import read_batch, write_batch
from focus_core.schedule.batches import CollectedBatch, TreeRecords

number32 = st.floats(width=32, allow_nan=False, allow_infinity=False).filter(bool)
number64 = st.floats(allow_nan=False, allow_infinity=False)
index = st.integers(0, 2**40)
text = st.text(max_size=5)  # lone surrogates among them
plain = st.none() | st.booleans() | st.integers() | number64 | text
metadata = st.dictionaries(text, plain | st.lists(plain, max_size=2), max_size=3)


@st.composite
def records(draw):
    tokens, logprobs, spans = [], [], []
    for _ in range(draw(st.integers(0, 3))):
        prompt = draw(st.lists(st.integers(0, 2**31 - 1), max_size=3))
        said = draw(st.lists(number32, min_size=1, max_size=4))
        start = len(tokens) + len(prompt)
        tokens += prompt + [draw(st.integers(0, 2**31 - 1)) for _ in said]
        logprobs += [0.0] * len(prompt) + said
        edge, parent = draw(st.none() | index), draw(st.none() | index)
        spans.append(Span(start, len(tokens), draw(number64), edge, parent))
    return ActorRecord(tokens, logprobs, spans, draw(metadata))


@st.composite
def batches(draw):
    trees = draw(st.lists(st.lists(records(), max_size=3), max_size=3))
    stamped = metadata.map(lambda own: {**own, "training": {"batch": 0}})
    critic = st.builds(CriticRecord, plain, number64, stamped)
    return CollectedBatch(
        index=draw(st.integers(0, 2000000)),
        behavior_step=draw(st.integers(0, 9)),
        trees=[TreeRecords(tree, (), ()) for tree in trees],
        others={"critic": draw(st.lists(critic, max_size=2))},
        metrics={"sampled_tokens": draw(st.integers(0, 99)), "score": draw(number64)},
    )


def bits(record):
    spans = [attrs.evolve(span, advantage=span.advantage.hex()) for span in record.spans]
    return record.tokens.tobytes(), record.logprobs.tobytes(), spans, record.metadata


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("recording") / "batch.npz"


@given(batches())
@settings(max_examples=150)
def test_what_is_read_is_what_was_written(path, batch):
    write_batch(path, batch, learner_step=batch.behavior_step + 1, recording="r")
    again = read_batch(path, batch=batch.index, recording="r")
    assert (again.batch, again.behavior_step) == (batch.index, batch.behavior_step)
    assert again.learner_step == batch.behavior_step + 1
    assert again.metrics == batch.metrics
    assert again.metrics["score"].hex() == batch.metrics["score"].hex()
    assert [CriticRecord.from_dict(r) for r in again.others["critic"]] == batch.others["critic"]
    assert [[bits(r) for r in tree] for tree in again.trees] == [
        [bits(r) for r in tree.merged] for tree in batch.trees
    ]
    for tree, written in zip(again.trees, batch.trees, strict=True):
        assert tree == list(written.merged)
        assert all(r.tokens.flags.writeable and r.logprobs.flags.writeable for r in tree)
    assert list(path.parent.iterdir()) == [path]


BATCH = CollectedBatch(
    index=3,
    behavior_step=1,
    trees=[
        TreeRecords(
            [
                ActorRecord(
                    [5, 6, 7, 8], [0, -0.5, 0, -1], [Span(1, 2, 0.5, 1, 0), Span(3, 4, -1, 2, 1)]
                )
            ],
            (),
            (),
        )
    ],
    others={"critic": [CriticRecord("text", 0.5, {"training": {"batch": 3}})]},
    metrics={"sampled_tokens": 2},
)


@given(st.data())
@settings(max_examples=400)
def test_a_damaged_file_is_refused_or_reads_the_same(path, data):
    write_batch(path, BATCH, learner_step=1, recording="r")
    whole = path.read_bytes()
    if data.draw(st.booleans()):
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
    path.write_bytes(damaged)
    found = outcome(path)
    if isinstance(found, DataError):
        assert str(path) in str(found)
        assert "\n" not in str(found)
    else:  # a byte that says nothing, such as a time stamp
        assert [list(tree.merged) for tree in BATCH.trees] == found.trees


def outcome(path):
    """The batch, or why it was refused."""
    try:
        return read_batch(path, batch=3, recording="r")
    except DataError as error:
        return error


def rewritten(path, **changes):
    """The batch's file with some columns changed, and valid checksums."""
    write_batch(path, BATCH, learner_step=1, recording="r")
    with np.load(path) as archive:
        columns = dict(archive)
    np.savez_compressed(path, **{**columns, **changes})
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokens": np.zeros(3, np.int32)}, "'lengths' adds up"),
        ({"tokens": np.zeros(4, np.int64)}, "int64 of shape"),
        ({"tokens": np.zeros((2, 2), np.int32)}, "not a flat int32"),
        ({"tokens": np.array([5, 6, -7, 8], np.int32)}, "record 0: a token is negative"),
        ({"tokens": np.array([None] * 4)}, "Object arrays|object of shape"),
        ({"lengths": np.array([2, 2])}, "2 entries in 'lengths', not 1"),
        ({"lengths": np.array([-4])}, "'lengths' adds up"),
        ({"lengths": np.array([2**62])}, "'lengths' adds up"),
        ({"spans": np.array([1])}, "'spans' adds up"),
        ({"start": np.array([1])}, "'spans' adds up"),
        ({"stop": np.array([2])}, "'stop' for 2 spans"),
        ({"start": np.array([1, 2])}, "'stop - start' adds up"),
        (
            {"start": np.array([3, 1]), "stop": np.array([4, 2])},
            "record 0: span 1:2",
        ),
        ({"start": np.array([-2, 3]), "stop": np.array([-1, 4])}, "record 0: span -2:-1"),
        ({"start": np.array([-(2**63), 3]), "stop": np.array([2**63 - 1, 4])}, "adds up"),
        ({"edge": np.array([1])}, "'edge' for 2 spans"),
        ({"advantages": np.array([0.5, math.nan])}, "record 0: the advantage"),
        ({"logprobs": np.array([-0.5, math.inf], np.float32)}, "record 0: logprobs"),
        ({"logprobs": np.zeros(3, np.float32)}, "'stop - start' adds up"),
        ({"meta": np.frombuffer(b"\xff\xfe{}", np.uint8)}, "not a recorded batch"),
        ({"meta": np.frombuffer(b"[" * 100000, np.uint8)}, "not a recorded batch"),
        ({"meta": np.frombuffer(b"3", np.uint8)}, "schema is 3"),
        ({"meta": np.frombuffer(b'{"schema": 2}', np.uint8)}, "schema is 2; this version reads 1"),
        ({"meta": np.frombuffer(b'{"schema": 1}', np.uint8)}, "'recording' is None"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_contents_that_contradict_each_other_are_refused(path, changes, said):
    with pytest.raises(DataError, match=said) as caught:
        read_batch(rewritten(path, **changes), batch=3, recording="r")
    assert caught.value.path == path
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("wanted", "said"),
    [({"batch": 4}, "belongs to batch 3, not 4"), ({"recording": "s"}, "belongs to recording 'r'")],
)
def test_a_file_of_another_batch_or_recording_is_refused(path, wanted, said):
    write_batch(path, BATCH, learner_step=1, recording="r")
    with pytest.raises(DataError, match=said):
        read_batch(path, **{"batch": 3, "recording": "r", **wanted})


@pytest.mark.parametrize(
    "name",
    [(1, 2), math.nan, np.int64(3), {3: "x"}, object(), {"a": (1,)}],
    ids=lambda x: type(x).__name__,
)
def test_metadata_that_json_would_change_is_refused_and_nothing_is_written(tmp_path, name):
    record = ActorRecord([5, 6], [0, -1], [Span(1, 2, 1.0)], {"problem": name})
    batch = attrs.evolve(BATCH, trees=[TreeRecords([record], (), ())])
    with pytest.raises(RecordError, match="batch 3 cannot be recorded"):
        write_batch(tmp_path / "batch.npz", batch, learner_step=1, recording="r")
    assert not list(tmp_path.iterdir())


def test_numbers_of_the_collection_are_kept_as_reports_write_them(path):
    metrics = {"sampled_tokens": 2, "mean": np.float32(0.5), "none": math.nan, **Counter(a=1)}
    write_batch(path, attrs.evolve(BATCH, metrics=metrics), learner_step=1, recording="r")
    again = read_batch(path, batch=3, recording="r").metrics
    assert again == {"sampled_tokens": 2, "mean": 0.5, "none": None, "a": 1}


NPY = b"\x93NUMPY\x01\x00"


@pytest.mark.parametrize(
    "member",
    [
        NPY + b"\x05\x00{'a':\n",
        NPY + b"\x02\x00(\n",
        NPY + b'\x04\x00"""\n',
        NPY + b"\xff\xff{",
        b"\x93NUMPY\x02\x00\x02\x00\x00\x00{}",
        b"",
    ],
)
def test_a_column_whose_header_is_nonsense_is_refused(path, member):
    write_batch(path, BATCH, learner_step=1, recording="r")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**members, "start.npy": member}.items():
            archive.writestr(name, content)
    assert isinstance(outcome(path), DataError)


@pytest.mark.parametrize("method", range(20))
def test_a_column_said_to_be_compressed_otherwise_is_refused(path, method):
    write_batch(path, BATCH, learner_step=1, recording="r")
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 10  # of the last member, in the directory
    assert content[at] == zipfile.ZIP_DEFLATED
    content[at] = method
    path.write_bytes(content)
    assert isinstance(outcome(path), DataError) == (method != zipfile.ZIP_DEFLATED)


CRITIC = CriticRecord("text", 0.5, {"training": {}}).to_dict()


@pytest.mark.parametrize(
    "record",
    [
        {"metadata": {"training": {}}},
        {**CRITIC, "target": None},
        {**CRITIC, "schema": 9},
        {**CRITIC, "metadata": {"training": 3}},
        {"metadata": None},
        None,
    ],
)
def test_a_critic_record_that_is_none_is_refused(path, record):
    write_batch(path, BATCH, learner_step=1, recording="r")
    with np.load(path) as archive:
        meta = json.loads(archive["meta"].tobytes())
    meta["others"] = {"critic": [record]}
    rewritten(path, meta=np.frombuffer(json.dumps(meta).encode(), np.uint8))
    assert isinstance(outcome(path), DataError)


@pytest.mark.parametrize(("behavior", "learner"), [(2, 1), (-1, 1), (0, -1), (True, 1), (0.5, 1)])
def test_steps_out_of_order_are_refused(path, behavior, learner):
    write_batch(path, BATCH, learner_step=1, recording="r")
    with np.load(path) as archive:
        meta = json.loads(archive["meta"].tobytes())
    meta |= {"behavior_step": behavior, "learner_step": learner}
    rewritten(path, meta=np.frombuffer(json.dumps(meta).encode(), np.uint8))
    assert isinstance(outcome(path), DataError)
