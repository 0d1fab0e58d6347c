"""Collecting into files: records of every lane the core knows, and the trees themselves."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from focus_core.collect import Collection
from focus_core.export import export_actor, export_critic, export_merged
from focus_core.policy import Policy
from focus_core.run.directory import to_json
from focus_core.run.prepare import Prepared
from focus_core.sinks import write_atomically
from focus_core.tree.view import render_text
from focus_core.view.saved import SavedTree

__all__ = ["collect_to"]


async def collect_to(
    output: Path, prepared: Prepared, *, first: int, count: int, json: bool
) -> None:
    """Collect some problems, one after another; files appear whole when all are in.

    Raises:
        CollectionError: A tree failed and the configuration does not allow partial ones.
    """
    config = prepared.config
    last = min(first + count, len(prepared.problems))
    chosen = [prepared.problems[place] for place in range(first, last)]
    actor: list[dict[str, Any]] = []
    critic: list[dict[str, Any]] = []
    trees: list[tuple[str, str]] = []
    summaries: list[dict[str, Any]] = []
    async with prepared.trainer as trainer:
        policy = await trainer.publish_policy()
        with Console(stderr=True).status("collecting") as status:
            for place, problem in enumerate(chosen):
                status.update(f"problem {place + 1} of {len(chosen)}")
                async with prepared.collector_for(policy, problem) as collector:
                    collection = await collector.collect(
                        problem,
                        group_index=place,
                        key=(config.seed, 0, first + place),
                        fail_fast=not config.allow_partial,
                    )
                collection.prepare(allow_partial=config.allow_partial)
                export = export_merged if config.merge else export_actor
                actor += [record.to_dict() for record in export(collection)]
                critic += [record.to_dict() for record in export_critic(collection)]
                trees.append(_both_forms(collection, policy))
                summaries.append(
                    {"problem": problem.id, "stopped": collection.stopped, **collection.counts}
                )
    for name, records in (("actor", actor), ("critic", critic)):
        lines = [json_module.dumps(record, allow_nan=False) + "\n" for record in records]
        write_atomically(output / f"{name}.jsonl", "".join(lines))
    for place, (form, text) in enumerate(trees):
        write_atomically(output / f"tree-{first + place}.json", form + "\n")
        write_atomically(output / f"tree-{first + place}.txt", text + "\n")
        if json:
            print(json_module.dumps(to_json(summaries[place])), flush=True)
        else:
            print(text)
            print(", ".join(f"{name} {value}" for name, value in summaries[place].items()))
    print(
        f"{len(actor)} actor and {len(critic)} critic records of {len(trees)} trees: {output}",
        file=sys.stderr if json else sys.stdout,
    )


def _both_forms(collection: Collection, policy: Policy) -> tuple[str, str]:
    form = SavedTree.of(collection, policy.decode).to_json()
    text = render_text(
        collection.tree, collection.values, collection.advantages.tolist(), policy.decode
    )
    return form, text
