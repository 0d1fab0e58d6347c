"""``focus eval``."""

from __future__ import annotations

import json as json_module
from typing import Annotated, Any, Optional

import typer

from focus_core.cli._common import (
    JsonOption,
    ModelOption,
    ProblemsOption,
    SeedOption,
    SetOption,
    SkipBadRowsOption,
    StrictOption,
    TaskOption,
    TrainerOption,
    checkpoint_of,
    finite,
    load_plugins,
    run,
    settings,
)

__all__ = ["evaluate"]

# ruff: noqa: UP045  # Typer resolves these annotations at run time


def evaluate(
    task: TaskOption,
    trainer: TrainerOption = "local",
    model: ModelOption = None,
    problems: ProblemsOption = None,
    strict: StrictOption = None,
    skip_bad_rows: SkipBadRowsOption = None,
    limit: Annotated[
        Optional[int], typer.Option("--limit", min=1, help="Only the first so many problems.")
    ] = None,
    rollouts: Annotated[int, typer.Option("--rollouts", min=1, help="Rollouts per problem.")] = 1,
    temperature: Annotated[
        Optional[float],
        typer.Option(
            "--temperature",
            min=0.0,
            callback=finite,
            help="Instead of the task's own; 0 is greedy.",
        ),
    ] = None,
    checkpoint: Annotated[
        Optional[str],
        typer.Option("--checkpoint", help="A saved state, or a run directory: its newest one."),
    ] = None,
    seed: SeedOption = 0,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a policy: unbranched rollouts, accuracy with a 95% confidence interval.

    Without --problems it measures the task's held-out problems.
    """
    from rich.console import Console

    from focus_core.run.config import RunConfig
    from focus_core.run.entering import entered
    from focus_core.run.evaluate import evaluate as measure
    from focus_core.run.prepare import prepare
    from focus_core.utils.plain_json import to_json

    options: dict[str, Any] = {"seed": seed}
    if checkpoint is not None:
        options["resume_from"] = checkpoint_of(checkpoint)
    config = RunConfig(
        task=task,
        trainer=trainer,
        problems=problems,
        strict=bool(strict),
        skip_bad_rows=bool(skip_bad_rows),
        eval_problems=limit,
        settings=settings(set_, model=model),
    )
    prepared = prepare(load_plugins(), config, options, evaluation_only=True)
    chosen = prepared.eval_problems

    async def main() -> Any:
        console = Console(stderr=True)
        async with entered(prepared.trainer, config.trainer) as opened:
            with console.status(f"0 of {len(chosen)} problems") as status:
                return await measure(
                    await opened.publish_policy(),
                    chosen,
                    prepared.collector_for,
                    rollouts=rollouts,
                    temperature=temperature,
                    seed=seed,
                    on_problem=lambda n: status.update(f"{n} of {len(chosen)} problems"),
                )

    found = run(main())
    low, high = found.interval
    if json:
        row = {
            "accuracy": found.accuracy if found.outcomes else None,
            "mean_return": found.accuracy,
            "low": low,
            "high": high,
            "interval": found.method,
            "problems": len(chosen),
            "rollouts": found.rollouts,
            "unfinished": found.unfinished,
            "failed": len(found.failures),
            "tokens": found.tokens,
        }
        print(json_module.dumps(to_json(row), allow_nan=False))
    else:
        print(
            f"{'accuracy' if found.outcomes else 'mean return'} on {len(chosen)} problems: {found}"
        )
    if found.failures and not found.returns:
        raise typer.Exit(1)
