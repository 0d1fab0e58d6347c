"""Assertions about the hooks in Slime's stages, for the double and for Slime's own code alike.

Each takes a Slime (``slime_double.Slime`` or ``slime_real.RealSlime``), the router's stand-in and a
learner whose weights are the router's.
"""

import copy

import pytest
import torch

from focus_adapter_slime.samples import ADVANTAGES
from focus_core import RecordError, UsageError
from tests.adapters.slime.slime_kit import (
    FAILS,
    PROMPTS,
    gap,
    make_args,
    perturb,
    records_of,
    rolled_out,
    train,
    train_locally,
)

WITHIN = 1e-5
SPLITS = ({"max_tokens_per_gpu": 4096}, {"max_tokens_per_gpu": 48}, {"dp_size": 2})
"""One micro-batch, several, and several on two ranks."""
FIGURES = []
"""What was measured, for people: (check, form, split, samples, micro-batches, gaps)."""


def gradient_is_the_local_trainers(slime, router, learner):
    """On the sampler's weights and off them, in both forms, in every split."""
    perturb(learner, size=0.0)
    for merge in (False, True):
        args, samples = rolled_out(slime, router, merge=merge)
        records = records_of(samples, merge=merge)
        trained = [sample for sample in samples if not sample.remove_sample]
        assert len(trained) == len(records)
        for moved in (0.02, 0.1):
            perturb(learner, seed=int(merge), size=moved)
            loss, wanted = train_locally(records, learner, args.global_batch_size)
            for split in SPLITS:
                again = copy.copy(args)
                vars(again).update(split)
                found = train(slime, again, copy.deepcopy(samples), learner)
                distance = gap(found.gradient, wanted)
                batches = sum(sum(rank["num_microbatches"]) for rank in found.ranks)
                FIGURES.append((merge, moved, split, len(samples), batches, distance))
                assert distance < WITHIN, (merge, split)
                assert found.loss == pytest.approx(loss, abs=WITHIN * max(1, abs(loss)))


CHECKS = [gradient_is_the_local_trainers]
