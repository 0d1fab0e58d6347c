"""``focus train``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from focus_core.cli._common import (
    JsonOption,
    ModelOption,
    ProblemsOption,
    SetOption,
    load_plugins,
    run,
    settings,
    writable_directory,
)

__all__ = ["train"]

# ruff: noqa: UP045  # Typer resolves these annotations at run time


def train(
    task: Annotated[
        Optional[str], typer.Option("--task", help="Task to train on; see 'focus plugins'.")
    ] = None,
    trainer: Annotated[
        Optional[str], typer.Option("--trainer", help="Trainer to use.  [default: local]")
    ] = None,
    problems: ProblemsOption = None,
    model: ModelOption = None,
    steps: Annotated[
        Optional[int],
        typer.Option("--steps", min=1, help="Updates to make; cycles through the problems."),
    ] = None,
    async_depth: Annotated[
        Optional[int],
        typer.Option(
            "--async-depth",
            min=0,
            max=1,
            help="1 overlaps the next collection with the update; 0 does not.  [default: 1]",
        ),
    ] = None,
    problems_per_step: Annotated[
        Optional[int], typer.Option("--problems-per-step", min=1, help="Trees per update.")
    ] = None,
    learning_rate: Annotated[
        Optional[float],
        typer.Option("--learning-rate", help="Short for --set trainer.learning_rate=..."),
    ] = None,
    search: Annotated[
        Optional[str], typer.Option("--search", help="selective or independent.")
    ] = None,
    recipe: Annotated[Optional[str], typer.Option("--recipe", help="direct or group.")] = None,
    run_dir: Annotated[
        Optional[Path],
        typer.Option("--run-dir", help="Directory of this run.  [default: a new one in runs/]"),
    ] = None,
    resume: Annotated[
        Optional[Path],
        typer.Option("--resume", help="Continue the run in this directory."),
    ] = None,
    critic_output: Annotated[
        Optional[str],
        typer.Option("--critic-output", help="Directory of critic records, a file per batch."),
    ] = None,
    lane: Annotated[
        Optional[list[str]],
        typer.Option(
            "--lane",
            help="A plug-in's lane to keep in the run's directory; repeatable.  [default: all]",
        ),
    ] = None,
    eval_every: Annotated[
        Optional[int],
        typer.Option(
            "--eval-every",
            min=1,
            help="Measure held-out accuracy before, after, and every so many updates.",
        ),
    ] = None,
    eval_source: Annotated[
        Optional[str], typer.Option("--eval-source", help="Held-out problems for that.")
    ] = None,
    eval_problems: Annotated[
        Optional[int], typer.Option("--eval-problems", min=1, help="How many of them.")
    ] = None,
    save_every: Annotated[
        Optional[int],
        typer.Option(
            "--save-every",
            min=1,
            help="Save after every so many batches, and after the last.  [default: 10]",
        ),
    ] = None,
    deadline: Annotated[
        Optional[float],
        typer.Option("--deadline", min=0.001, help="Seconds a continuation may take."),
    ] = None,
    allow_partial: Annotated[
        Optional[bool],
        typer.Option("--allow-partial", help="Keep trees with failed continuations."),
    ] = None,
    failure_rate: Annotated[
        Optional[float],
        typer.Option(
            "--failure-rate",
            min=0.0,
            max=1.0,
            help="Largest share of a batch's continuations that may fail.  [default: 0.2]",
        ),
    ] = None,
    max_tokens: Annotated[
        Optional[int],
        typer.Option("--max-tokens", min=1, help="Stop collecting after so many sampled tokens."),
    ] = None,
    min_abs_advantage: Annotated[
        Optional[float],
        typer.Option("--min-abs-advantage", min=0.0, help="Leave out edges nearer to zero."),
    ] = None,
    merge: Annotated[
        Optional[bool],
        typer.Option("--merge/--per-edge", help="Train one sequence per path, or one per edge."),
    ] = None,
    seed: Annotated[
        Optional[int], typer.Option("--seed", help="Seed of sampling and training.  [default: 0]")
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Train a policy on trees of a task's problems.

    Keeps everything in one directory: reports, critic targets, checkpoints.
    """
    given = {
        "task": task,
        "trainer": trainer,
        "problems": problems,
        "steps": steps,
        "async_depth": async_depth,
        "problems_per_step": problems_per_step,
        "search": search,
        "recipe": recipe,
        "critic_output": critic_output,
        "lanes": lane,
        "eval_every": eval_every,
        "eval_source": eval_source,
        "eval_problems": eval_problems,
        "save_every": save_every,
        "deadline": deadline,
        "allow_partial": allow_partial,
        "failure_rate": failure_rate,
        "max_tokens": max_tokens,
        "min_abs_advantage": min_abs_advantage,
        "merge": merge,
        "seed": seed,
    }
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    asked["settings"] = settings(set_, model=model, learning_rate=learning_rate)
    _train(asked, run_dir, resume, json)


def _train(asked: dict[str, Any], run_dir: Path | None, resume: Path | None, json: bool) -> None:
    from focus_core.cli.display import JsonLines, Keeper, display
    from focus_core.errors import UsageError
    from focus_core.observers import Observers
    from focus_core.plugins import resolve
    from focus_core.progress import Progress
    from focus_core.run.config import RunConfig
    from focus_core.run.directory import RunDirectory
    from focus_core.run.session import lanes_of, prepare, train

    plugins = load_plugins()
    start = Progress()
    options: dict[str, Any] = {}
    if resume is not None:
        if run_dir is not None:
            raise UsageError("--resume continues in its own directory; leave --run-dir out")
        directory = RunDirectory.open(resume)
        start, reference = directory.state()
        asked = _continued(directory.config(), asked, start)
        options["resume_from"] = reference
    elif "task" not in asked:
        raise UsageError(f"give --task; installed: {', '.join(plugins.specs('task')) or 'none'}")
    config = RunConfig(**asked)
    path = resume or run_dir or _new_directory(config)
    options |= {"checkpoint_dir": str((path / "checkpoints").resolve()), "seed": config.seed}
    prepared = prepare(plugins, config, options)
    lanes = lanes_of(plugins, config)
    if config.critic_output is not None:
        writable_directory(Path(config.critic_output), "--critic-output")
    out = sys.stderr if json else sys.stdout
    if resume is None:
        directory = RunDirectory.create(path, config)
    elif dropped := directory.rewind():
        print(f"dropped what came after the checkpoint: {', '.join(dropped)}", file=out)
    print(f"run directory: {path} (go on later with: focus train --resume {path})", file=out)
    observers = [Keeper(directory), display(out)]
    if json:
        observers.append(JsonLines(sys.stdout))
    observers += [resolve(spec)() for spec, _ in plugins.specs("observer").values()]
    reports = run(
        train(prepared, directory, start=start, observers=Observers(observers), lanes=lanes)
    )
    if len(reports) < config.steps:
        print(
            f"stopped after {len(reports)} of {config.steps} updates: the cap of "
            f"{config.max_tokens} sampled tokens is reached",
            file=out,
        )


def _continued(saved: dict[str, Any], asked: dict[str, Any], start: Any) -> dict[str, Any]:
    """A resumed run's configuration: what it was asked for, and what may change now."""
    from focus_core.errors import UsageError

    for name in ("task", "trainer"):
        if asked.get(name, saved[name]) != saved[name]:
            raise UsageError(
                f"--resume continues a run with --{name} {saved[name]}; start another run for "
                f"{asked[name]}"
            )
    merged = {**saved, **asked}
    merged["settings"] = {
        section: {**saved["settings"].get(section, {}), **asked["settings"].get(section, {})}
        for section in {*saved["settings"], *asked["settings"]}
    }
    if "steps" not in asked:
        merged["steps"] = saved["steps"] - start.batch
        if merged["steps"] < 1:
            raise UsageError(
                f"the run has made its {saved['steps']} updates; say how many more with --steps"
            )
    return merged


def _new_directory(config: Any) -> Path:
    stem = f"{config.task}-{config.trainer}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, count = Path("runs") / stem, 1
    while os.path.exists(path):
        count += 1
        path = Path("runs") / f"{stem}-{count}"
    return path
