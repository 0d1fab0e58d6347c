"""Collecting into files: records of every lane the core knows, and the trees themselves."""

from __future__ import annotations

import json as json_module
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from focus_core.collect import Collection
from focus_core.lanes import export_actor, export_critic, export_merged
from focus_core.policy import Policy
from focus_core.run.config import RunConfig
from focus_core.run.entering import entered
from focus_core.run.prepare import Prepared
from focus_core.tree.text import render_text
from focus_core.utils.concurrency import in_thread
from focus_core.utils.files import append_lines, write_atomically
from focus_core.utils.plain_json import to_json
from focus_core.view.saved import SavedTree

__all__ = ["collect_to"]


async def collect_to(
    output: Path, prepared: Prepared, *, first: int, count: int, json: bool
) -> None:
    """Collect some problems, one after another; what there is of each is written when it is in.

    Raises:
        CollectionError: A tree failed and the configuration does not allow partial ones; those
            before it are kept.
    """
    config = prepared.config
    last = min(first + count, len(prepared.problems))
    made: Counter[str] = Counter()
    out = sys.stderr if json else sys.stdout
    if last < first + count:
        print(f"there are {len(prepared.problems)} problems: collecting {last - first}", file=out)
    async with entered(prepared.trainer, config.trainer) as trainer:
        policy = await trainer.publish_policy()
        with Console(stderr=True).status("collecting") as status:
            for place in range(first, last):
                status.update(f"problem {place + 1 - first} of {last - first}")
                problem = prepared.problems[place]
                async with prepared.collector_for(policy, problem) as collector:
                    collection = await collector.collect(
                        problem,
                        group_index=place - first,
                        key=(config.seed, 0, place),
                        fail_fast=not config.allow_partial,
                    )
                text, written = await in_thread(_write, output, place, collection, policy, config)
                made.update(written)
                summary = {
                    "problem": problem.id,
                    "stopped": collection.stopped,
                    **collection.counts,
                }
                if json:
                    print(json_module.dumps(to_json(summary)), flush=True)
                else:
                    print(text)
                    print(", ".join(f"{name} {value}" for name, value in summary.items()))
    print(
        f"{made['actor']} actor and {made['critic']} critic records of {last - first} trees: "
        f"{output}",
        file=out,
    )


def _write(
    output: Path, place: int, collection: Collection, policy: Policy, config: RunConfig
) -> tuple[str, dict[str, int]]:
    """Write a tree and its records; in a worker thread.

    Returns:
        The tree as text, and the number of records of each lane.
    """
    collection.prepare(allow_partial=config.allow_partial)
    form, text = _both_forms(collection, policy)
    write_atomically(output / f"tree-{place}.json", form + "\n")
    write_atomically(output / f"tree-{place}.txt", text + "\n")
    records: dict[str, Sequence[Any]] = {
        "actor": export_merged(collection) if config.merge else export_actor(collection),
        "critic": export_critic(collection),
    }
    for name, some in records.items():
        append_lines(output / f"{name}.jsonl", [record.to_dict() for record in some])
    return text, {name: len(some) for name, some in records.items()}


def _both_forms(collection: Collection, policy: Policy) -> tuple[str, str]:
    form = SavedTree.of(collection, policy.decode).to_json()
    text = render_text(
        collection.tree,
        collection.state_values.tolist(),
        collection.advantages.tolist(),
        policy.decode,
    )
    return form, text
