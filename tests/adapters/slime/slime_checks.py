"""Assertions about the hooks in Slime's stages, for the double and for Slime's own code alike.

Each takes a Slime (``slime_double.Slime`` or ``slime_real.RealSlime``), the router's stand-in and a
learner whose weights are the router's.
"""

import copy
import itertools

import numpy as np
import pytest
import torch
from focus_adapter_slime.columns import Column
from focus_adapter_slime.objective import offences
from focus_adapter_slime.samples import ADVANTAGES

from focus_core import RecordError, UsageError
from tests.adapters.slime.slime_kit import (
    FAILS,
    PROMPTS,
    gap,
    perturb,
    records_of,
    rolled_out,
    same,
    train,
    train_locally,
)

WITHIN = 1e-5
SPLITS = ({"max_tokens_per_gpu": 4096}, {"max_tokens_per_gpu": 48}, {"dp_size": 2})
"""One micro-batch, several, and several on two ranks."""


def gradient_is_the_local_trainers(slime, router, learner):
    """Off the sampler's weights, where ratios are clipped; in both forms, in every split."""
    for merge in (False, True):
        args, samples = rolled_out(slime, router, merge=merge)
        records = records_of(samples, merge=merge)
        trained = [sample for sample in samples if not sample.remove_sample]
        assert len(trained) == len(records)
        assert any(0 in sample.loss_mask for sample in trained) == merge
        perturb(learner, seed=int(merge), size=0.1)
        loss, wanted, clipped = train_locally(records, learner, args.global_batch_size)
        assert clipped
        for split in SPLITS:
            found = train(slime, changed(args, **split), copy.deepcopy(samples), learner)
            distance, off = gap(found.gradient, wanted), abs(found.loss - loss)
            batches = sum(sum(rank["num_microbatches"]) for rank in found.ranks)
            print(
                f"{'several spans' if merge else 'one span'} per sample, {split}: {len(samples)} "
                f"samples, {batches} micro-batches, {clipped} tokens clipped: relative gap of the "
                f"gradient {distance:.1e}, gap of the loss {off:.1e}"
            )
            assert distance < WITHIN, (merge, split)
            assert off < WITHIN


def gradient_without_the_rollouts_log_probabilities(slime, router, learner):
    """Of the sampler's own weights: where Slime takes its ratio from makes no difference."""
    for merge in (False, True):
        args, samples = rolled_out(slime, router, merge=merge)
        records = records_of(samples, merge=merge)
        _, wanted, _ = train_locally(records, learner, args.global_batch_size)
        for recompute in (False, True):
            options = {"use_rollout_logprobs": False, "recompute_log_probs": recompute}
            found = train(slime, changed(args, **options), copy.deepcopy(samples), learner)
            assert gap(found.gradient, wanted) < WITHIN


def the_ratio_is_to_the_weights_that_sampled(slime, router, learner):
    """A batch that is one update behind: computed again, log probabilities make the ratio one."""
    args, samples = rolled_out(slime, router, merge=True)
    records = records_of(samples, merge=True)
    perturb(learner, size=0.1)
    _, wanted, _ = train_locally(records, learner, args.global_batch_size)
    for recompute in (False, True):
        options = {"use_rollout_logprobs": False, "recompute_log_probs": recompute}
        found = train(slime, changed(args, **options), copy.deepcopy(samples), learner)
        assert gap(found.gradient, wanted) > 0.01
        (rule,) = [rule for rule, _ in offences(changed(args, **options))]
        assert rule.name == "use_rollout_logprobs"


def arrays_are_what_lists_are(slime, router, learner):
    """Of the same samples: the same tensors of the same types, in both forms and every split."""
    for merge in (False, True):
        args, samples = rolled_out(slime, router, merge=merge)
        shares = {}
        for arrays in (True, False):
            own = changed(args, focus_arrays=arrays, dp_size=2)
            given = copy.deepcopy(samples)
            shares[arrays] = slime.split(own, slime.convert(own, given), 2)
            kinds = {type(each.tokens) for each in given}
            assert kinds == {np.ndarray if arrays else Column, list}  # that of the failed tree
            for rank in shares[arrays]:
                slime.advantages(own, rank)
        for one, other in zip(shares[True], shares[False], strict=True):
            assert one.keys() == other.keys()
            for name, values in one.items():
                assert same(values, other[name]), name
                if name in ("tokens", "loss_masks", "rollout_log_probs", "advantages"):
                    assert [each.dtype for each in values] == [each.dtype for each in other[name]]


def every_token_gets_its_edges_advantage(slime, router, learner):
    """Tensors like ``kl``; what the records say where tokens are trained; no returns."""
    for merge in (False, True):
        args, samples = rolled_out(slime, router, merge=merge)
        records = records_of(samples, merge=merge)
        several = [sample for sample in samples if ADVANTAGES in sample.metadata]
        assert bool(several) == merge
        (rank,) = train(slime, args, samples, learner).ranks
        found = {}
        for place in range(len(rank["tokens"])):
            given, like = rank["advantages"][place], rank["kl"][place]
            assert given.shape == like.shape == (rank["response_lengths"][place],)
            assert given.dtype is like.dtype is torch.float32
            assert not rank["returns"][place].any()
            mask = rank["loss_masks"][place].bool()
            key = tuple(rank["tokens"][place].tolist())
            found.setdefault(key, []).append(given[mask].tolist())
        wanted = {}
        for record in records:
            trained = record.loss_mask.astype(bool)
            values = record.advantages[trained].astype(np.float32).tolist()
            wanted.setdefault(tuple(record.tokens.tolist()), []).append(values)
        removed = [key for key in found if key not in wanted]
        assert len(removed) == 1
        assert found.pop(removed[0]) == [[]]
        assert {key: sorted(values) for key, values in found.items()} == {
            key: sorted(values) for key, values in wanted.items()
        }


def loggers_get_numbers(slime, router, learner):
    """Both of Slime's loggers take what the hooks leave: one number for each sample."""
    for merge in (False, True):
        args, samples = rolled_out(slime, router, merge=merge)
        slime.log_samples(args, samples)
        found = train(slime, args, samples, learner)
        (logged,) = found.logged
        mean = np.mean([sample.reward for sample in samples])
        assert logged["rewards"] == pytest.approx(mean, abs=1e-6)
        returns = [s.metadata["raw_reward"] for s in samples if not s.remove_sample]
        assert len(returns) == len(samples) - 1
        assert logged["raw_reward"] == pytest.approx(np.mean(returns)), "a failure is no zero"


def a_failed_tree_trains_nothing(slime, router, learner):
    """Its sample is there, so that the step has its rollouts; the gradient is the others'."""
    args, samples = rolled_out(slime, router, merge=True)
    (removed,) = [sample for sample in samples if sample.remove_sample]
    assert removed.prompt == FAILS
    others = [copy.deepcopy(sample) for sample in samples if not sample.remove_sample]
    found = train(slime, args, samples, learner)
    assert found.data["loss_masks"][samples.index(removed)] == [0]
    alone = changed(args, global_batch_size=args.global_batch_size - 1)
    share = args.global_batch_size / alone.global_batch_size
    assert gap(found.gradient * share, train(slime, alone, others, learner).gradient) < 1e-6

    args, samples = rolled_out(slime, router, merge=True, prompts=(FAILS, FAILS))
    assert [sample.remove_sample for sample in samples] == [True, True]
    found = train(slime, args, samples, learner)
    assert found.loss == 0.0
    assert not found.gradient.any()


def a_step_has_whole_trees(slime, router, learner):
    """Two samples per prompt, two steps: each tree is one rollout, in one step."""
    args, samples = rolled_out(
        slime, router, merge=False, n_samples_per_prompt=2, global_batch_size=4
    )
    ids = [getattr(sample, slime.sibling) for sample in samples]
    assert sorted(set(ids)) == list(range(8))
    assert [sample.group_index for sample in samples] == [each // 2 for each in ids]
    data = slime.convert(args, samples)
    assert data[slime.ids] == ids
    steps = {}
    for rank in slime.split(args, data, 2):
        counts, batches = rank["num_microbatches"], iter(rank["micro_batch_indices"])
        assert rank["global_batch_sizes"] == [4, 4]
        for step, count in enumerate(counts):
            places = itertools.chain.from_iterable(itertools.islice(batches, count))
            for place in places:
                steps.setdefault(rank[slime.ids][place], set()).add(step)
    assert steps == {each: {each // 4} for each in range(8)}


def what_changes_the_objective_is_refused(slime, router, learner):
    """By the hooks themselves, too: another function may have generated the samples."""
    args, samples = rolled_out(slime, router, merge=True, prompts=PROMPTS)

    def advantages(**changes):
        again = changed(args, **changes)
        (rank,) = slime.split(again, slime.convert(again, copy.deepcopy(samples)), 1)
        slime.advantages(again, rank)
        return rank

    advantages()
    with pytest.raises(UsageError, match="--normalize-advantages"):
        advantages(normalize_advantages=True)
    with pytest.raises(UsageError, match="--context-parallel-size 1"):
        advantages(context_parallel_size=2)
    before = samples[1].reward
    for wrong in (None, float("nan"), float("inf"), {"score": 1.0}, "1", True):
        samples[1].reward = wrong
        with pytest.raises(RecordError, match=r"sample 1 .*finite advantage"):
            slime.convert(args, samples)
    samples[1].reward = before
    several = next(sample for sample in samples if ADVANTAGES in sample.metadata)
    several.metadata[ADVANTAGES] = several.metadata[ADVANTAGES][:-1]
    with pytest.raises(RecordError, match="response tokens"):
        slime.convert(args, samples)


def changed(args, **changes):
    """A copy of the arguments."""
    again = copy.copy(args)
    vars(again).update(changes)
    return again


CHECKS = [
    gradient_is_the_local_trainers,
    gradient_without_the_rollouts_log_probabilities,
    the_ratio_is_to_the_weights_that_sampled,
    arrays_are_what_lists_are,
    every_token_gets_its_edges_advantage,
    loggers_get_numbers,
    a_failed_tree_trains_nothing,
    a_step_has_whole_trees,
    what_changes_the_objective_is_refused,
]
