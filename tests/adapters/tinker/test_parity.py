"""The same update in every form of the same recorded batches: loss and weights, in float64."""

from collections import Counter

import numpy as np
import pytest
import torch
from focus_adapter_local import to_item
from focus_adapter_local.learner import Learner
from focus_adapter_local.losses import LossConfig, token_loss
from focus_adapter_local.models import find_model, load_model
from focus_adapter_tinker import to_datum
from focus_adapter_tinker.loopback.training import learner_config
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from focus_core import ActorRecord, RecordError, Span
from focus_core.lanes import export_merged, split_merged
from focus_core.run.batch_file import read_batch, write_batch
from focus_core.run.recording import Recording
from focus_core.schedule.batches import CollectedBatch, TreeRecords
from tests.adapters.parity_kit import (
    LOSSES,
    Reference,
    assert_one_update,
    collections,
    loss_and_weights,
    rows,
    rows_of_tree,
)
from tests.core.cli_kit import invoke

FORMS = ("tinker", "local", "cookbook", "assembled")


@pytest.fixture(scope="module")
def learner():
    """The local trainer's learner of the model ``tiny``, in float64."""
    loaded = load_model(find_model("tiny"), device="cpu", dtype="float64")
    return Learner(loaded, learner_config(4, seed=0, max_batch_tokens=256))


@pytest.fixture(scope="module")
def reference(learner):
    """The same model without the learner's batches and padding."""
    return Reference(learner.model)


def of_datums(datums, masks):
    """What Tinker trains, as rows; ``masks`` say which targets were generated."""
    found = []
    for datum, mask in zip(datums, masks, strict=True):
        columns = {name: column.to_numpy() for name, column in datum.loss_fn_inputs.items()}
        for name in ("logprobs", "advantages"):
            assert not columns[name][mask == 0].any(), f"a conditioning token has {name}"
        columns = [columns[name] for name in ("target_tokens", "logprobs", "advantages")]
        found += rows(datum.model_input.to_ints(), *columns, mask)
    return found


def of_tinker(records):
    """Its datums hold no mask: Tinker trains every target, those without advantage for nothing."""
    native = [r if isinstance(r, ActorRecord) else ActorRecord.from_dict(r) for r in records]
    return of_datums(map(to_datum, records), [record.loss_mask[1:] for record in native])


def masks(datums):
    return [datum.loss_fn_inputs["mask"].to_numpy() for datum in datums]


def of_cookbook(records):
    trajectories = pytest.importorskip("focus_adapter_cookbook.trajectories")
    datums = [trajectories.to_datum(record) for record in records]
    return of_datums(datums, masks(datums))


def of_assembled(records):
    trajectories = pytest.importorskip("focus_adapter_cookbook.trajectories")
    from tinker_cookbook.rl.data_processing import assemble_training_data

    datums, _ = assemble_training_data(*trajectories.trajectory_groups(records))
    return of_datums(datums, masks(datums))


def of_local(records, learner):
    """Its items, and the log probabilities that its learner computes of them.

    Its own losses, and their slopes by automatic differentiation, are held against the formulas.
    """
    items = [to_item(record) for record in records]
    names = ("input_tokens", "target_tokens", "logprobs", "advantages", "mask")
    found = [row for i in items for row in rows(*(getattr(i, name) for name in names))]
    q, advantage = (np.array([row[at] for row in found]) for at in (2, 3))
    for name in LOSSES:
        config = LossConfig(name=name)
        each, loss = learner.forward_backward(items, config, backward=False)
        p = torch.tensor(np.concatenate([np.zeros(0), *each]), requires_grad=True)
        true_loss, true_weights = loss_and_weights(name, p.detach().numpy(), q, advantage)
        assert loss == pytest.approx(true_loss, rel=1e-6, abs=1e-6)
        token_loss(p, torch.tensor(q), torch.tensor(advantage), config).sum().backward()
        np.testing.assert_allclose(-p.grad.numpy(), true_weights, rtol=1e-6, atol=1e-6)
    return found, p.detach().numpy()


def read_as(form, records, learner, reference):
    """Rows of a form, and the learner's log probability of each."""
    if form == "local":
        return of_local(records, learner)
    of = {"tinker": of_tinker, "cookbook": of_cookbook, "assembled": of_assembled}[form]
    found = of(records)
    return found, reference(found)


def recorded(path, trees):
    """The merged records of each tree, written as ``--record`` does and read back."""
    batch = CollectedBatch(
        index=0,
        behavior_step=0,
        trees=[TreeRecords(export_merged(tree), (), ()) for tree in trees],
        others={},
        metrics={"sampled_tokens": 0},
    )
    write_batch(path, batch, learner_step=0, recording="r")
    return read_batch(path, batch=0, recording="r").trees


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "per-edge"])
@pytest.mark.parametrize("form", FORMS)
def test_random_trees_are_one_update_in_every_form(
    form, merged, learner, reference, tmp_path_factory
):
    """Against the trees themselves, through a recorded batch."""
    path = tmp_path_factory.mktemp("recorded") / "batch-000000.npz"
    seen = Counter()

    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.lists(collections(), min_size=1, max_size=3), st.booleans())
    def check(trees, plain):
        for index, tree in enumerate(trees):
            tree.group_index = index
        merged_records = recorded(path, trees)
        records = [r for t in merged_records for r in (t if merged else split_merged(t))]
        given_records = [record.to_dict() for record in records] if plain else records
        expected = [row for tree in trees for row in rows_of_tree(tree)]
        assert_one_update(*read_as(form, given_records, learner, reference), expected, reference)
        edges = [(c.tree, node) for c in trees for node in c.tree.edges()]
        sizes = {len(tree.generated(node)[0]) for tree, node in edges}
        seen["empty"] += 0 in sizes
        seen["one token"] += 1 in sizes
        seen["does not extend"] += any(tree.fresh[node] for tree, node in edges)
        seen["several spans"] += any(record.merged for record in records)
        seen["nothing"] += not records

    check()
    needed = {"empty", "one token", "does not extend", "nothing"} | (
        {"several spans"} if merged else set()
    )
    assert needed <= {what for what, count in seen.items() if count}


@pytest.mark.parametrize("form", FORMS)
def test_a_recorded_run_is_one_update_in_every_form(form, learner, reference, record_of_a_run):
    """What ``focus train --record`` wrote, merged and per edge; at lag 0 every ratio is 1."""
    for index in range(len(record_of_a_run)):
        trees = record_of_a_run.read(index).trees
        merged = [record for tree in trees for record in tree]
        single = [record for tree in trees for record in split_merged(tree)]
        assert len(single) > len(merged) > 0
        expected = [row for r in single for row in rows_of_record(r)]
        for records in (merged, single):
            found, logprobs = read_as(form, records, learner, reference)
            assert_one_update(found, logprobs, expected, reference)
            if index == 0:
                behaviour = [row[2] for row in found]
                np.testing.assert_allclose(logprobs, behaviour, atol=1e-4)


def rows_of_record(record):
    """Those of a record's spans, one token at a time."""
    for span in record.spans:
        for at in range(span.start, span.stop):
            prefix = tuple(record.tokens[:at].tolist())
            yield prefix, int(record.tokens[at]), float(record.logprobs[at]), span.advantage


@pytest.fixture(scope="module")
def record_of_a_run(tmp_path_factory):
    """Two batches of the arithmetic task, sampled by the model ``tiny``."""
    folder = tmp_path_factory.mktemp("run")
    done = invoke(
        *("train", "--task", "arithmetic", "--trainer", "local", "--model", "tiny", "--seed", 0),
        *("--steps", 2, "--run-dir", folder / "run", "--record", folder / "record"),
        *("--set", "trainer.threads=1", "--set", "search.budget=2", "--set", "search.warmup=2"),
    )
    assert done.code == 0, done.err
    return Recording.open(folder / "record")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (ActorRecord([1], [0.0], []), "has nothing to predict"),
        (ActorRecord([1, 2], [-0.1, -0.1], [Span(0, 2, 1.0)]), "token 0 is a generated one"),
        (ActorRecord([1, 2], [0.0, -0.1], [Span(1, 2, 1e39)]), "too large for a 32-bit number"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_refuses_the_same_records(form, record, message, learner, reference):
    with pytest.raises(RecordError, match=message):
        read_as(form, [record], learner, reference)
