"""Slime's samples to the tensors that are trained, as arrays and as lists.

    python benchmarks/slime.py
    SLIME_SRC=DIR python benchmarks/slime.py

With ``SLIME_SRC`` the conversion and the split are a checkout's own code; without it they are the
tests' double of it. Both ways start from the same samples, which hold lists as Slime's own do, and
end with the advantages: ``focus_arrays`` is all that differs. Ray's part, carrying a rank's share,
is left out of both.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import Row, ratio, show
from focus_adapter_slime.samples import to_samples

from focus_core import ActorRecord, Span

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.adapters.slime.slime_double import Slime
from tests.adapters.slime.slime_kit import make_args
from tests.adapters.slime.slime_real import real_slime

TREES, DEPTH, PROMPT, SEGMENT, VOCABULARY = 16, 8, 256, 256, 150_000


def path(seed: int) -> ActorRecord:
    """A path of ``DEPTH`` segments, all of which train."""
    draw = np.random.default_rng(seed)
    size = PROMPT + DEPTH * SEGMENT
    logprobs = np.zeros(size, np.float32)
    logprobs[PROMPT:] = -draw.random(size - PROMPT)
    starts = range(PROMPT, size, SEGMENT)
    spans = [Span(at, at + SEGMENT, float(draw.normal()), i + 1) for i, at in enumerate(starts)]
    return ActorRecord(draw.integers(0, VOCABULARY, size).astype(np.int32), logprobs, spans, {})


def edges(record: ActorRecord) -> list[ActorRecord]:
    """The same path, one record for each segment."""
    return [
        ActorRecord(
            record.tokens[: span.stop],
            np.where(np.arange(span.stop) < span.start, 0, record.logprobs[: span.stop]),
            [span],
            {},
        )
        for span in record.spans
    ]


class Conversion:
    """A batch of samples on its way, timed."""

    def __init__(self, slime: Any, trees: Sequence[Sequence[ActorRecord]]) -> None:
        self.slime = slime
        slime.put = slime.get = lambda share: share
        sources = [slime.sample(index=place, prompt="p") for place in range(len(trees))]
        self.samples = [
            sample
            for records, source in zip(trees, sources, strict=True)
            for sample in to_samples(records, source, None, slime.Sample)
        ]
        self.tokens = sum(len(sample.tokens) for sample in self.samples)

    def seconds(self, arrays: bool) -> float:
        """Of one conversion; the copies of the samples are not counted."""
        args = make_args(
            focus_arrays=arrays, global_batch_size=TREES, max_tokens_per_gpu=8192, dp_size=1
        )
        samples = [copy.copy(sample) for sample in self.samples]
        start = time.perf_counter()
        (rank,) = self.slime.split(args, self.slime.convert(args, samples), 1)
        self.slime.advantages(args, rank)
        return time.perf_counter() - start


def rows() -> Iterator[Row]:
    """The rows of the table."""
    torch.set_num_threads(1)
    source = os.environ.get("SLIME_SRC")
    with real_slime(Path(source)) if source else contextlib.nullcontext(Slime()) as slime:
        paths = [path(seed) for seed in range(TREES)]
        for name, trees in (
            ("one span a sample", [edges(record) for record in paths]),
            ("several spans a sample", [[record] for record in paths]),
        ):
            batch = Conversion(slime, trees)
            lists, arrays, part = ratio(
                lambda batch=batch: batch.seconds(False), lambda batch=batch: batch.seconds(True)
            )
            yield Row(
                f"Slime samples to trained tensors / its list path, {name}",
                part,
                ">= 3",
                f"{batch.tokens / arrays / 1e6:.0f} / {batch.tokens / lists / 1e6:.1f} M tokens/s",
            )


if __name__ == "__main__":
    show(rows(), "Slime: from samples to tensors")
