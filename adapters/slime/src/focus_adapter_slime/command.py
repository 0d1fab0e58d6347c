"""``focus slime-args``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from focus_core.cli._common import (
    ModelOption,
    ProblemsOption,
    RecipeOption,
    SearchOption,
    SetOption,
    TaskOption,
    finite,
    load_plugins,
    settings,
)

__all__ = ["slime_args"]

# ruff: noqa: UP045  # Typer resolves these annotations at run time


def slime_args(
    task: TaskOption,
    problems: ProblemsOption = None,
    model: ModelOption = None,
    budget: Annotated[
        Optional[int],
        typer.Option("--budget", min=1, help="Short for --set search.budget=..."),
    ] = None,
    steps: Annotated[
        int, typer.Option("--steps", min=1, help="Rollouts, each with an update.")
    ] = 10,
    problems_per_step: Annotated[
        Optional[int], typer.Option("--problems-per-step", min=1, help="Trees per rollout.")
    ] = None,
    learning_rate: Annotated[
        Optional[float], typer.Option("--learning-rate", callback=finite, help="For --lr.")
    ] = None,
    search: SearchOption = None,
    recipe: RecipeOption = None,
    eval_every: Annotated[
        Optional[int],
        typer.Option("--eval-every", min=1, help="Rollouts between evaluations; none without."),
    ] = None,
    eval_source: Annotated[
        Optional[str], typer.Option("--eval-source", help="Held-out problems for that.")
    ] = None,
    critic_output: Annotated[
        Optional[str],
        typer.Option(
            "--critic-output", help="Directory of critic records.  [default: beside the output]"
        ),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge/--per-edge", help="One sample per path, or one per edge.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the order of prompts.")] = 0,
    output: Annotated[
        Path, typer.Option("--output", help="Custom configuration to write; data go beside it.")
    ] = Path("slime.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    set_: SetOption = None,
) -> None:
    """Print the flags that make Slime train a task, and write the files that they name.

    Put them behind your own: model, checkpoints, GPUs, optimizer. In a script:
    flags=$(focus slime-args --task NAME) && eval "FOCUS_ARGS=($flags)", then "${FOCUS_ARGS[@]}".
    """
    from focus_adapter_slime.arguments import shell_lines
    from focus_adapter_slime.trainer import SlimeTrainer
    from focus_core.errors import PluginError, UsageError
    from focus_core.run.config import RunConfig
    from focus_core.run.launching import prepare_launch

    if output.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--output {output}: name a .yaml file")
    given = settings(set_, model=model, learning_rate=learning_rate)
    if budget is not None:
        given["search"] = {**given.get("search", {}), "budget": str(budget)}
    asked: dict[str, Any] = {"eval_every": eval_every, "eval_source": eval_source}
    config = RunConfig(
        task=task,
        trainer="slime",
        problems=problems,
        steps=steps,
        problems_per_step=problems_per_step,
        search=search,
        recipe=recipe,
        critic_output=critic_output,
        merge=merge,
        seed=seed,
        settings=given,
        **{name: value for name, value in asked.items() if value is not None},
    )
    trainer, plan = prepare_launch(load_plugins(), config, {}, output.parent)
    if not isinstance(trainer, SlimeTrainer):
        raise PluginError(f"a plug-in put {type(trainer).__name__} in the place of trainer 'slime'")
    launch = trainer.prepared(plan, output)
    launch.write(force=force)
    for path in launch.files:
        print(f"wrote {path}", file=sys.stderr)
    print(shell_lines(launch.words()))
