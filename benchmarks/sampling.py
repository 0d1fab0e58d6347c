"""Sampling of trees in this process, beside the bare model's batched loop.

    python benchmarks/sampling.py

A tree of about 48 transitions is collected with ``smollm2`` (the extra ``[smollm2]``) at
concurrency 8. The peer samples as many rows at a time as the tree had on average, at the same mean
context: a forward pass of transformers with its own cache, log-softmax, multinomial, nothing else;
its prompt is computed outside the clock. The tree's clock covers everything: prompts, search,
environment, rows that join and leave.
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import torch
from _measure import Row, show
from focus_adapter_local import LocalTrainer
from focus_adapter_local.snapshot import Snapshot, share
from torch import Tensor

from focus_core import (
    Agent,
    Collector,
    Critic,
    Problem,
    Reply,
    Segments,
    Selective,
    Transition,
)

SEGMENT, DEPTH, CONCURRENCY = 24, 4, 8
PEER_STEPS = 60
QUESTION = (
    "A baker sells loaves in bags of 6 and rolls in bags of 8. On Monday the bakery sold 17 bags "
    "of loaves and 23 bags of rolls, and on Tuesday half as many loaves and twice as many rolls. "
    "How many loaves and rolls were sold on the two days together? Explain each step."
)


class Gamble:
    """Ends after so many segments at the latest, or one time in five, with a random reward."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.taken = 0

    def reset(self, problem: Problem) -> Sequence[Any]:
        """The question."""
        self.taken = 0
        return ({"role": "user", "content": QUESTION},)

    async def step(self, reply: Reply) -> Transition:
        """Draw."""
        self.taken += 1
        if self.taken >= DEPTH or self.draw.random() < 1 / 5:
            return Transition(self.draw.random(), done=True)
        return Transition()

    def snapshot(self) -> int:
        """Segments so far."""
        return self.taken

    def restore(self, state: int) -> None:
        """Segments so far."""
        self.taken = state


@attrs.define
class Passes:
    """What went through a model.

    Attributes:
        steps: Passes of one token a row.
        rows: Their rows.
        columns: The contexts those rows attended to, in tokens.
        prompts: Tokens, padding included, of all other passes.
    """

    steps: int = 0
    rows: int = 0
    columns: int = 0
    prompts: int = 0


@attrs.frozen(eq=False)
class Counted(Snapshot):
    """A snapshot that counts its passes."""

    passes: Passes = attrs.field(factory=Passes)

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """Count, and pass on."""
        if ids.shape[1] == 1:
            self.passes.steps += 1
            self.passes.rows += len(ids)
            self.passes.columns += int(positions.sum()) + len(ids)
        else:
            self.passes.prompts += ids.numel()
        return super().forward(ids, positions, mask, cache)


@attrs.frozen
class Speed:
    """Tokens, and what they took: seconds by the clock, and of all threads' CPU time."""

    tokens: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.wall


@attrs.frozen
class Grown:
    """One tree.

    Attributes:
        speed: How fast its tokens came.
        passes: What went through the model.
        transitions: Its size.
    """

    speed: Speed
    passes: Passes
    transitions: int


async def grow(
    trainer: LocalTrainer, seed: int, concurrency: int, budget: int = 32, warmup: int = 16
) -> Grown:
    """Collect one tree with a policy of its own, whose cache is empty."""
    policy = await trainer.publish_policy()
    counted = Counted(policy._snapshot.model, policy._snapshot.facts, 0)
    policy._snapshot = counted
    agent = Agent(policy, Gamble(seed), context=Segments(SEGMENT))
    search = Selective(budget=budget, warmup=warmup, max_concurrency=concurrency)
    async with Collector(agent, critic=Critic.constant(0.5), search=search) as collector:
        wall, cpu = time.perf_counter(), time.process_time()
        tree = await collector.collect(Problem("bake", id=seed))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    await policy.aclose()
    counts = tree.counts
    return Grown(Speed(counts["tokens"], wall, cpu), counted.passes, counts["transitions"])


@torch.inference_mode()
def bare(model: Any, batch: float, context: float) -> Speed:
    """The least that samples with log probabilities.

    Args:
        model: A transformers model.
        batch: Mean rows; a fraction is met by steps of the two whole numbers beside it.
        context: Mean tokens a row attends to.
    """
    low = math.floor(batch)
    more = round(PEER_STEPS * (batch - low))
    tokens, wall, cpu = 0, 0.0, 0.0
    for rows, steps in ((low + 1, more), (low, PEER_STEPS - more)):
        if not steps or not rows:
            continue
        ids = torch.randint(1000, 20_000, (rows, max(1, round(context - steps / 2))))
        output = model(input_ids=ids, use_cache=True, logits_to_keep=1)
        start = time.perf_counter(), time.process_time()
        for _ in range(steps):
            logprobs = torch.log_softmax(output.logits[:, -1].float(), -1)
            chosen = torch.multinomial(logprobs.exp(), 1)
            logprobs.gather(-1, chosen).tolist()
            output = model(
                input_ids=chosen,
                use_cache=True,
                logits_to_keep=1,
                past_key_values=output.past_key_values,
            )
        wall += time.perf_counter() - start[0]
        cpu += time.process_time() - start[1]
        tokens += rows * steps
    return Speed(tokens, wall, cpu)


async def measured(repeat: int = 3) -> list[Row]:
    """Trees and the bare loop in turns; then one branch at a time."""
    async with LocalTrainer(model="smollm2") as trainer:
        policy = await trainer.publish_policy()
        peer = share(policy._snapshot.model)
        peer.set_attn_implementation("sdpa")  # as it is loaded
        await policy.aclose()
        bare(peer, 2, 64)
        trees, loops, parts = [], [], []
        for seed in range(repeat):
            trees.append(await grow(trainer, seed, CONCURRENCY))
            passes = trees[-1].passes
            loops.append(bare(peer, passes.rows / passes.steps, passes.columns / passes.rows))
            parts.append(trees[-1].speed.rate / loops[-1].rate)
        single = await grow(trainer, 0, 1, budget=6, warmup=6)
    middle = parts.index(statistics.median_low(parts))
    tree, loop = trees[middle], loops[middle]
    spared = statistics.median(
        loop.cpu / loop.tokens / (tree.speed.cpu / tree.speed.tokens)
        for tree, loop in zip(trees, loops, strict=True)
    )
    rate = statistics.median(tree.speed.rate for tree in trees)
    sampled, computed = tree.speed.tokens, tree.passes.prompts
    return [
        Row(
            "sampling a tree / bare loop at its batch, smollm2",
            parts[middle],
            ">= 0.85",
            f"{tree.speed.rate:.1f} / {loop.rate:.1f} tokens/s, {tree.transitions} transitions, "
            f"batch {tree.passes.rows / tree.passes.steps:.1f}, "
            f"context {tree.passes.columns / tree.passes.rows:.0f}, "
            f"{torch.get_num_threads()} threads",
        ),
        Row("the same in CPU time of the process", spared),
        Row(
            "sampling at concurrency 8 / one branch at a time",
            rate / single.speed.rate,
            "",
            f"{rate:.1f} / {single.speed.rate:.1f} tokens/s",
        ),
        Row(
            "prompt tokens computed a sampled token",
            computed / sampled,
            "",
            f"{computed:,} / {sampled:,}; the rest comes from the cache",
        ),
    ]


def rows() -> Iterator[Row]:
    """The rows of the table."""
    yield from asyncio.run(measured())


if __name__ == "__main__":
    show(rows(), "Sampling: tokens a second of a tree, beside the bare model")
