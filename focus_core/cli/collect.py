"""``focus collect``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from focus_core.cli._common import (
    CriticOption,
    GammaOption,
    JsonOption,
    KappaOption,
    ModelOption,
    ProblemsOption,
    RecipeOption,
    SearchOption,
    SeedOption,
    SetOption,
    SkipBadRowsOption,
    StrictOption,
    TaskOption,
    TrainerOption,
    checkpoint_of,
    load_plugins,
    run,
    settings,
)

__all__ = ["collect"]

# ruff: noqa: UP045  # Typer resolves these annotations at run time


def collect(
    task: TaskOption,
    output: Annotated[Path, typer.Option("--output", help="Directory for records and trees.")],
    trainer: TrainerOption = "local",
    model: ModelOption = None,
    problems: ProblemsOption = None,
    strict: StrictOption = None,
    skip_bad_rows: SkipBadRowsOption = None,
    first: Annotated[int, typer.Option("--first", min=0, help="Index of the first problem.")] = 0,
    count: Annotated[int, typer.Option("--count", min=1, help="Problems to collect.")] = 1,
    search: SearchOption = None,
    recipe: RecipeOption = None,
    critic: CriticOption = None,
    gamma: GammaOption = None,
    kappa: KappaOption = None,
    merge: Annotated[
        bool, typer.Option("--merge/--per-edge", help="One actor record per path, or per edge.")
    ] = False,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Keep trees with failed continuations.")
    ] = False,
    checkpoint: Annotated[
        Optional[str],
        typer.Option("--checkpoint", help="A saved state, or a run directory: its newest one."),
    ] = None,
    seed: SeedOption = 0,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Collect trees without training: records and trees as files, the tree as text.

    Writes actor.jsonl and critic.jsonl (all problems), and tree-N.json and tree-N.txt for each.
    """
    from focus_core.cli.collecting import collect_to
    from focus_core.errors import UsageError
    from focus_core.run.config import RunConfig
    from focus_core.run.directory import writable_directory
    from focus_core.run.prepare import prepare
    from focus_core.utils.lock import hold

    config = RunConfig(
        task=task,
        trainer=trainer,
        problems=problems,
        strict=bool(strict),
        skip_bad_rows=bool(skip_bad_rows),
        search=search,
        recipe=recipe,
        critic=critic,
        gamma=gamma,
        kappa=kappa,
        allow_partial=allow_partial,
        merge=merge,
        seed=seed,
        settings=settings(set_, model=model),
    )
    options: dict[str, Any] = {"seed": seed}
    if checkpoint is not None:
        options["resume_from"] = checkpoint_of(checkpoint)
    prepared = prepare(load_plugins(), config, options)
    if first >= len(prepared.problems):
        raise UsageError(f"--first {first}: there are {len(prepared.problems)} problems")
    try:
        held = hold(writable_directory(output, "--output"))
    except BlockingIOError:
        raise UsageError(f"--output {output}: another process is writing there") from None
    try:
        if (output / "actor.jsonl").exists():
            raise UsageError(
                f"--output {output} holds a collection already; name another directory"
            )
        collecting = collect_to(output, prepared, first=first, count=count, json=json)
        run(prepared.closing(collecting))
    finally:
        os.close(held)
