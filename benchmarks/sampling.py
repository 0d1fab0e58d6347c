"""Sampling of trees in this process, beside the bare model's batched loop.

    python benchmarks/sampling.py

A tree of about 48 transitions is collected with ``smollm2`` (the extra ``[smollm2]``) at
concurrency 8. The peer is a forward pass of transformers with its own cache, log-softmax and
multinomial, nothing else. Its turns are between steps of the tree, some steps each, with as many
rows at the same mean context as the tree has just then; its prompts cost nothing. The tree's clock
stands still meanwhile, and covers all the rest: prompts, search, environment, rows that join and
leave.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import torch
from _measure import Row, show
from focus_adapter_local import LocalTrainer
from focus_adapter_local.snapshot import Snapshot, share
from torch import Tensor
from transformers.cache_utils import DynamicCache

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
EVERY, SPELL = 12, 4
"""The peer's turns: after so many steps of the tree, so many of its own."""
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
class Speed:
    """Tokens, and what they took: seconds by the clock, and of all threads' CPU time."""

    tokens: int = 0
    wall: float = 0.0
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.wall


@attrs.define
class Bare:
    """The least that samples with log probabilities.

    Attributes:
        model: A transformers model.
        speed: Its speed so far.
        paused: Seconds of its turns, by the clock and of CPU time, with what is not counted.
    """

    model: Any
    speed: Speed = attrs.field(factory=Speed)
    paused: Speed = attrs.field(factory=Speed)

    def turn(self, rows: int, context: int) -> None:
        """Some steps of so many rows, each with a context of so many tokens."""
        begun = time.perf_counter(), time.process_time()
        config = self.model.config
        shape = (rows, config.num_key_value_heads, context, config.head_dim)
        cache = DynamicCache(config=config)
        for layer in range(config.num_hidden_layers):
            cache.update(torch.randn(shape), torch.randn(shape), layer)
        chosen = torch.randint(1000, 20_000, (rows, 1))
        start = begun
        for step in range(SPELL + 1):
            if step == 1:  # the first finds cold memory
                start = time.perf_counter(), time.process_time()
            output = self.model(
                input_ids=chosen, past_key_values=cache, use_cache=True, logits_to_keep=1
            )
            logprobs = torch.log_softmax(output.logits[:, -1].float(), -1)
            chosen = torch.multinomial(logprobs.exp(), 1)
            logprobs.gather(-1, chosen).tolist()
        end = time.perf_counter(), time.process_time()
        for kept, since in ((self.speed, start), (self.paused, begun)):
            kept.tokens += rows * SPELL
            kept.wall += end[0] - since[0]
            kept.cpu += end[1] - since[1]


@attrs.define
class Passes:
    """What went through a tree's model.

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
    """A snapshot that counts its passes, and lets the peer take turns."""

    bare: Bare | None
    passes: Passes = attrs.field(factory=Passes)

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """Count, and pass on."""
        passes = self.passes
        if ids.shape[1] > 1:
            passes.prompts += ids.numel()
            return super().forward(ids, positions, mask, cache)
        context = int(positions.sum()) + len(ids)
        passes.steps += 1
        passes.rows += len(ids)
        passes.columns += context
        if self.bare is not None and passes.steps % EVERY == 0:
            self.bare.turn(len(ids), context // len(ids))
        return super().forward(ids, positions, mask, cache)


@attrs.frozen
class Grown:
    """One tree: its speed, passes and size, and the peer's speed."""

    speed: Speed
    passes: Passes
    transitions: int
    peer: Speed


async def grow(
    trainer: LocalTrainer, seed: int, search: Selective, peer: Any | None = None
) -> Grown:
    """Collect one tree with a policy of its own, whose cache is empty."""
    policy = await trainer.publish_policy()
    bare = Bare(peer)
    counted = Counted(
        policy._snapshot.model, policy._snapshot.facts, 0, None if peer is None else bare
    )
    policy._snapshot = counted
    agent = Agent(policy, Gamble(seed), context=Segments(SEGMENT))
    async with Collector(agent, critic=Critic.constant(0.5), search=search) as collector:
        wall, cpu = time.perf_counter(), time.process_time()
        tree = await collector.collect(Problem("bake", id=seed))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    await policy.aclose()
    speed = Speed(tree.counts["tokens"], wall - bare.paused.wall, cpu - bare.paused.cpu)
    return Grown(speed, counted.passes, tree.counts["transitions"], bare.speed)


async def measured(repeat: int = 3) -> list[Row]:
    """Some trees beside the bare loop; then one branch at a time."""
    async with LocalTrainer(model="smollm2") as trainer:
        policy = await trainer.publish_policy()
        peer = share(policy._snapshot.model)
        peer.set_attn_implementation("sdpa")  # as transformers loads it
        await policy.aclose()
        search = Selective(budget=32, warmup=16, max_concurrency=CONCURRENCY)
        trees = [await grow(trainer, seed, search, peer) for seed in range(repeat)]
        single = await grow(trainer, 0, Selective(budget=6, warmup=6, max_concurrency=1))
    trees.sort(key=lambda tree: tree.speed.rate / tree.peer.rate)
    tree = trees[repeat // 2]
    mine, theirs, passes = tree.speed, tree.peer, tree.passes
    return [
        Row(
            "sampling a tree / bare loop of its batch, smollm2",
            mine.rate / theirs.rate,
            ">= 0.85",
            f"{mine.rate:.1f} / {theirs.rate:.1f} tokens/s, {tree.transitions} transitions, "
            f"batch {passes.rows / passes.steps:.1f}, "
            f"context {passes.columns / passes.rows:.0f}, {torch.get_num_threads()} threads",
        ),
        Row(
            "the same in CPU time of the process",
            (theirs.cpu / theirs.tokens) / (mine.cpu / mine.tokens),
            "",
            f"{mine.cpu / mine.tokens * 1e3:.1f} / {theirs.cpu / theirs.tokens * 1e3:.1f} "
            "ms a token",
        ),
        Row(
            "sampling at concurrency 8 / one branch at a time",
            mine.rate / single.speed.rate,
            "",
            f"{mine.rate:.1f} / {single.speed.rate:.1f} tokens/s",
        ),
        Row(
            "prompt tokens computed a sampled token",
            passes.prompts / mine.tokens,
            "",
            f"{passes.prompts:,} / {mine.tokens:,}; prefixes come from the cache",
        ),
    ]


def rows() -> Iterator[Row]:
    """The rows of the table."""
    yield from asyncio.run(measured())


if __name__ == "__main__":
    show(rows(), "Sampling: tokens a second of a tree, beside the bare model")
