"""From trees to what goes over the wire: records, datums, protobuf; and the memory of a tree.

    python benchmarks/conversion.py

Peers, each in the same run: the SDK's own ``TensorData.from_numpy``, the cookbook's
``trajectory_to_data`` on the same chain, and an export of one sequence an edge from Python lists,
which is what a straightforward program does.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from _measure import Row, ratio, seconds, show
from focus_adapter_tinker import to_datum
from scheduler import Arrays, grown
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.types import Trajectory
from tinker_cookbook.rl.types import Transition as Step

from focus_core import (
    ActorRecord,
    Agent,
    Collection,
    Collector,
    Critic,
    Generation,
    Independent,
    Problem,
    Reply,
    SamplingParams,
    Segments,
    Selective,
    Span,
    Transition,
)
from focus_core.lanes import export_actor, export_merged
from focus_core.tree.tree import Tree

PROMPT, SEGMENT, VOCABULARY = 64, 64, 50_000


def wire(datums: Sequence[Any]) -> bytes:
    """The body of a gradient's request, by the SDK's serializer."""
    asked = types.ForwardBackwardInput(data=list(datums), loss_fn="ppo")
    request = types.ForwardBackwardRequest(forward_backward_input=asked, model_id="m", seq_id=1)
    return bytes(forward_backward_request_to_proto(request).SerializeToString())


def chain(depth: int) -> tuple[ActorRecord, Any]:
    """One path: our record of it, and the cookbook's trajectory."""
    draw = np.random.default_rng(depth)
    size = PROMPT + depth * SEGMENT
    tokens = draw.integers(0, VOCABULARY, size).astype(np.int32)
    logprobs = np.zeros(size, np.float32)
    logprobs[PROMPT:] = -draw.random(size - PROMPT)
    starts = range(PROMPT, size, SEGMENT)
    spans = [Span(at, at + SEGMENT, float(draw.normal()), i + 1) for i, at in enumerate(starts)]
    ids, chances = tokens.tolist(), logprobs.tolist()
    steps = [
        Step(
            ob=types.ModelInput.from_ints(ids[:at]),
            ac=TokensWithLogprobs(ids[at : at + SEGMENT], chances[at : at + SEGMENT]),
            reward=0.0,
            episode_done=at + SEGMENT == size,
        )
        for at in starts
    ]
    trajectory = Trajectory(transitions=steps, final_ob=types.ModelInput.from_ints(ids))
    return ActorRecord(tokens, logprobs, spans, {}), trajectory


def bare(record: ActorRecord) -> Callable[[], Any]:
    """The SDK's way from arrays: a datum with three ``TensorData.from_numpy``."""
    ids = record.tokens[:-1].tolist()
    columns = {
        "target_tokens": record.tokens[1:].astype(np.int64),
        "logprobs": record.logprobs[1:].copy(),
        "advantages": record.advantages[1:].astype(np.float32),
    }

    def make() -> Any:
        return types.Datum(
            model_input=types.ModelInput.from_ints(ids),
            loss_fn_inputs={
                name: types.TensorData.from_numpy(column) for name, column in columns.items()
            },
        )

    return make


class Scatter(Arrays):
    """Says random tokens, from half a segment to a whole one."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> list[Generation]:
        """At once."""
        size = int(self.draw.integers(SEGMENT // 2, SEGMENT + 1))
        said = self.draw.integers(0, VOCABULARY, size).astype(np.int32)
        return [Generation(said, -self.draw.random(size).astype(np.float32), "length")]


class Gamble:
    """Ends at random, with a random reward; seven of eight answers continue."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def reset(self, problem: Problem) -> Sequence[Any]:
        """One message."""
        return ({"role": "user", "content": "play"},)

    async def step(self, reply: Reply) -> Transition:
        """Draw."""
        if self.draw.random() < 1 / 8:
            return Transition(self.draw.random(), done=True)
        return Transition()

    def snapshot(self) -> None:
        """Nothing is kept."""

    def restore(self, state: None) -> None:
        """Nothing is kept."""


def random_trees(count: int, transitions: int = 48) -> list[Collection]:
    """Trees of different shapes, prepared."""

    async def grow(seed: int) -> Collection:
        search = Selective(budget=transitions * 2 // 3, warmup=transitions // 3, max_concurrency=1)
        agent = Agent(Scatter(seed), Gamble(seed), context=Segments(SEGMENT))
        async with Collector(agent, critic=Critic.constant(0.4), search=search) as collector:
            return (await collector.collect(Problem("play", id=seed))).prepare()

    return [asyncio.run(grow(seed)) for seed in range(count)]


def as_lists(collection: Collection) -> list[tuple[list[int], list[int], list[float], float]]:
    """Each edge's prefix, tokens, log probabilities and advantage, as a plain program has them."""
    return [
        (
            record.tokens[: record.spans[0].start].tolist(),
            record.tokens[record.spans[0].start :].tolist(),
            record.logprobs[record.spans[0].start :].tolist(),
            record.spans[0].advantage,
        )
        for record in export_actor(collection)
    ]


def naive(edges: Sequence[tuple[list[int], list[int], list[float], float]]) -> bytes:
    """One sequence an edge, from lists."""
    datums = []
    for prefix, said, chances, advantage in edges:
        whole = prefix + said
        before = [0.0] * (len(prefix) - 1)
        datums.append(
            types.Datum(
                model_input=types.ModelInput.from_ints(whole[:-1]),
                loss_fn_inputs={
                    "target_tokens": whole[1:],
                    "logprobs": before + chances,
                    "advantages": before + [advantage] * len(said),
                },
            )
        )
    return wire(datums)


def list_bytes(collection: Collection) -> int:
    """Memory of the same tree as Python lists, a list of ids and one of floats an edge."""
    tree = collection.tree
    tracemalloc.start()
    kept = [
        ([int(t) + 1000 for t in tree.generated(node)[0]], tree.generated(node)[1].tolist())
        for node in range(len(tree))
    ]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size if kept else 0


class Words(Arrays):
    """Says the same segment again and again, which has a text."""

    def decode(self, tokens: Sequence[int]) -> str:
        """A token is a word."""
        return " ".join(map(str, tokens))


def asked(depth: int) -> tuple[Tree, list[str]]:
    """A path of so many transitions of 256 tokens, and what its critic was asked."""
    sent: list[str] = []

    def value(text: str) -> float:
        sent.append(text)
        return 0.5

    search = Independent(1, max_concurrency=1)
    collection = asyncio.run(grown(Words(), depth, search, Critic.from_fn(value)))
    return collection.tree, sent


def held(contexts: Sequence[Any]) -> int:
    """Bytes of what a tree keeps of its critic's contexts."""
    kept = [context for context in contexts if context is not None]
    parts = [
        getattr(context, name)
        for context in kept
        for name in getattr(context, "__slots__", ())
        if not name.startswith("_")
    ]
    return sum(map(sys.getsizeof, [*kept, *parts]))


def rows() -> Iterator[Row]:
    """The rows of the table."""
    for depth, datums, bytes_ in ((32, ">= 35", ">= 20"), (128, ">= 90", ">= 35")):
        record, trajectory = chain(depth)
        size = len(record.tokens)
        theirs = bare(record)
        ours, peer, part = ratio(
            lambda record=record: seconds(lambda: to_datum(record), 5),
            lambda theirs=theirs: seconds(theirs, 5),
        )
        yield Row(
            f"records to Datum / TensorData.from_numpy, rate, {depth}-chain",
            1 / part,
            ">= 0.6",
            f"{size / ours / 1e6:.0f} / {size / peer / 1e6:.0f} M tokens/s",
        )
        ours, peer, part = ratio(
            lambda record=record: seconds(lambda: to_datum(record), 5),
            lambda trajectory=trajectory: seconds(lambda: trajectory_to_data(trajectory, 1.0), 2),
        )
        yield Row(
            f"records to Datum / cookbook trajectory_to_data, {depth}-chain",
            1 / part,
            datums,
            f"{size / ours / 1e6:.0f} / {size / peer / 1e6:.2f} M tokens/s",
        )
        ours, peer, part = ratio(
            lambda record=record: seconds(lambda: wire([to_datum(record)]), 5),
            lambda trajectory=trajectory: seconds(
                lambda: wire(trajectory_to_data(trajectory, 1.0)), 2
            ),
        )
        yield Row(
            f"records to wire bytes / cookbook's, {depth}-chain",
            1 / part,
            bytes_,
            f"{size / ours / 1e6:.0f} / {size / peer / 1e6:.2f} M tokens/s",
        )
    trees = random_trees(32)
    edges = [edge for tree in trees for edge in as_lists(tree)]

    def merged() -> bytes:
        return wire([to_datum(record) for tree in trees for record in export_merged(tree)])

    ours, peer, part = ratio(lambda: seconds(merged, 2), lambda: seconds(lambda: naive(edges), 1))
    yield Row(
        "32 random trees to wire bytes / one list an edge",
        1 / part,
        ">= 8",
        f"{ours * 1e3:.1f} / {peer * 1e3:.0f} ms",
    )
    body, sampled = len(merged()), sum(tree.counts["tokens"] for tree in trees)
    yield Row("wire bytes a sampled token, random trees", body / sampled)
    yield Row("M sampled tokens/s from trees to wire bytes", sampled / ours / 1e6)
    for name, some in (("random trees", trees), ("deep trees", random_trees(4, 480))):
        whole = sum(len(r.tokens) for tree in some for r in export_merged(tree))
        single = sum(len(r.tokens) for tree in some for r in export_actor(tree))
        yield Row(
            f"exported tokens, one an edge / merged, {name}",
            single / whole,
            "",
            f"{single:,} / {whole:,}",
        )
    for transitions in (48, 480, 4800):
        (tree,) = random_trees(1, transitions)
        columns, kept = tree.tree, tree.tree.context
        yield Row(
            f"bytes of token columns a tree token, {transitions:,} transitions",
            columns.token_bytes / columns.token_count,
            "<= 11",
            f"depth {max(columns.depth)}; contexts apart: {held(kept):,} bytes",
        )
        yield Row(
            f"token columns / Python lists, {transitions:,} transitions",
            columns.token_bytes / list_bytes(tree),
            "<= 0.1667",
        )
    for depth in (8, 128):
        path, sent = asked(depth)
        apart, whole = held(path.context), sum(map(sys.getsizeof, sent))
        yield Row(
            f"contexts of a text critic, kept / sent, depth {depth}",
            apart / whole,
            "",
            f"{apart:,} / {whole:,} bytes; {apart / path.token_count:.1f} bytes a tree token",
        )


if __name__ == "__main__":
    show(rows(), "Conversion: from trees to the wire")
