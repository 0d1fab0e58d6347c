"""How near a run comes to the ideal schedule: sampling and training overlap, the rest costs time.

    python benchmarks/overlap.py

Batches of 32 trees of 48 transitions of 256 tokens. Sampling waits, as for a server, so that a
batch takes about as long to collect as to train; an update waits for its known time. What is real
is everything between them: growing the trees, values and credit, export, and conversion to
Tinker's datums.

The ideal is a schedule in which that costs nothing: the first collection, then for each step the
longer of collection and update. What a collection takes is measured on the same trees, collected
and thrown away: the latencies of sampling and the scheduler's own time are in it, and nothing that
follows is. The peer converts in the straightforward way: each edge's lists, in the event loop, when
its batch is complete.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from _measure import Row, show
from focus_adapter_tinker import to_datum
from tinker import types

from focus_core import (
    ActorRecord,
    Agent,
    Batch,
    Collector,
    Critic,
    Generation,
    PreparedPrompt,
    Problem,
    Reply,
    SamplingParams,
    Segments,
    Selective,
    Transition,
    run_schedule,
)
from focus_core.utils.concurrency import all_of

TREES, TRANSITIONS, SEGMENT, PROMPT, DEPTH = 32, 48, 256, 64, 8
PROBLEMS = [Problem("play", id=f"p{i}") for i in range(TREES)]


@attrs.define
class Latent:
    """Answers each request after so many seconds, with one of a few drawn segments."""

    seconds: float
    version: int = 0
    takes_prefix = True
    said: list[Generation] = attrs.field(init=False)
    asked: int = 0

    def __attrs_post_init__(self) -> None:
        """Draw."""
        draw = np.random.default_rng(0)
        self.said = [
            Generation(
                draw.integers(100, 50_000, SEGMENT).astype(np.int32),
                -draw.random(SEGMENT).astype(np.float32),
                "length",
            )
            for _ in range(64)
        ]

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """A prompt of one length."""
        return PreparedPrompt(range(PROMPT))

    def decode(self, tokens: Sequence[int]) -> str:
        """No text is needed."""
        return ""

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> list[Generation]:
        """After a while."""
        await asyncio.sleep(self.seconds)
        self.asked += n
        return [self.said[(self.asked + i) % len(self.said)] for i in range(n)]


class Climb:
    """Ends after ``DEPTH`` transitions, with a reward that depends on what was said."""

    def __init__(self) -> None:
        self.taken = 0

    def reset(self, problem: Problem) -> Sequence[Any]:
        """One message."""
        self.taken = 0
        return ({"role": "user", "content": "play"},)

    async def step(self, reply: Reply) -> Transition:
        """Count; pay by the first token."""
        self.taken += 1
        done = self.taken >= DEPTH
        return Transition(reply.tokens[0] % 8 / 8 if done else 0.0, done=done)

    def snapshot(self) -> int:
        """The count."""
        return self.taken

    def restore(self, state: int) -> None:
        """The count."""
        self.taken = state


def collector_for(policy: Any, problem: Problem) -> Collector:
    """48 transitions, in branches of eight at most."""
    search = Selective(budget=TRANSITIONS * 2 // 3, warmup=TRANSITIONS // 3, max_concurrency=4)
    agent = Agent(policy, Climb(), context=Segments(SEGMENT))
    return Collector(agent, critic=Critic.constant(0.4, context=lambda _: ""), search=search)


@attrs.define(eq=False)
class Timed:
    """An update takes its time, and nothing else does; conversion is Tinker's."""

    policy: Latent
    seconds: float
    capabilities = frozenset({"merges-spans"})

    async def publish_policy(self) -> Latent:
        """The same one."""
        return self.policy

    def convert(self, records: Sequence[ActorRecord]) -> list[Any]:
        """Datums, in the worker thread of a tree that landed."""
        return [to_datum(record) for record in records]

    async def update(self, batch: Batch) -> Mapping[str, float]:
        """Wait."""
        await asyncio.sleep(self.seconds)
        return {}

    async def save_state(self, name: str) -> str:
        """Nothing to save."""
        return name


class Naive(Timed):
    """The peer: every edge as lists, in the loop, when the batch is there."""

    def convert(self, records: Sequence[ActorRecord]) -> list[Any]:
        """Nothing as trees land."""
        return []

    async def update(self, batch: Batch) -> Mapping[str, float]:
        """Convert, then wait."""
        kept = [listed(record, span) for record in batch.actor for span in record.spans]
        await asyncio.sleep(self.seconds)
        return {"datums": float(len(kept))}


def listed(record: ActorRecord, span: Any) -> Any:
    """One edge's datum, from lists."""
    tokens = record.tokens[: span.stop].tolist()
    before = [0.0] * (span.start - 1)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "logprobs": before + record.logprobs[span.start : span.stop].tolist(),
            "advantages": before + [span.advantage] * (span.stop - span.start),
        },
    )


async def collection(policy: Latent) -> float:
    """Seconds to collect a batch's trees, and no more."""

    async def one(problem: Problem) -> None:
        async with collector_for(policy, problem) as collector:
            await collector.collect(problem)

    start = time.perf_counter()
    await all_of(one(problem) for problem in PROBLEMS)
    return time.perf_counter() - start


async def wall(trainer: Timed, steps: int) -> float:
    """Seconds of a run."""
    start = time.perf_counter()
    await run_schedule(trainer, PROBLEMS, collector_for, steps=steps, problems_per_step=TREES)
    return time.perf_counter() - start


async def measured(update: float, steps: int, rounds: int) -> tuple[float, float, float, str]:
    """Medians: wall over ideal, our excess over the peer's, that of the peer; and a detail."""
    policy = Latent(0.0)
    await collection(policy)  # imports, caches
    own = await collection(policy)
    policy.seconds = 0.1
    # How many answers a tree waits for one after another, so that it takes as long as an update.
    waits = (await collection(policy) - own) / policy.seconds
    policy.seconds = max(0.0, update - own) / waits
    ratios, shares, peers, said = [], [], [], ""
    for _ in range(rounds):
        collect = statistics.median([await collection(policy) for _ in range(rounds)])
        ideal = collect + (steps - 1) * max(collect, update) + update
        ours = await wall(Timed(policy, update), steps)
        peer = await wall(Naive(policy, update), steps)
        ratios.append(ours / ideal)
        peers.append(peer / ideal)
        shares.append((ours - ideal) / (peer - ideal))
        said = f"collection {collect:.2f} s; {ours:.2f}, ideal {ideal:.2f}, inline {peer:.2f} s"
    return statistics.median(ratios), statistics.median(shares), statistics.median(peers), said


def rows() -> Iterator[Row]:
    """The rows of the table."""
    for update, steps, rounds, most in ((1.0, 4, 3, "<= 1.08"), (10.0, 2, 1, "<= 1.02")):
        ratio, share, peer, said = asyncio.run(measured(update, steps, rounds))
        what = f"{steps} steps of {update:.0f} s, 32 trees"
        yield Row(f"overlap: wall / ideal, {what}", ratio, most, said)
        yield Row(f"the same, converted inline, {what}", peer)
        yield Row(f"excess over the ideal / inline's, {what}", share, "<= 0.2")


if __name__ == "__main__":
    show(rows(), "Overlap: a run against the ideal schedule")
