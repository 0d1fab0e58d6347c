"""``focus train``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from focus_core.cli._common import (
    JsonOption,
    ModelOption,
    ProblemsOption,
    RecipeOption,
    SearchOption,
    SetOption,
    finite,
    load_plugins,
    run,
    settings,
)

if TYPE_CHECKING:
    from focus_core.run.directory import RunDirectory

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
        typer.Option(
            "--steps",
            min=1,
            help="Updates to make, over as many epochs as they take.  [default: 10]",
        ),
    ] = None,
    epochs: Annotated[
        Optional[int],
        typer.Option(
            "--epochs",
            min=1,
            help="Instead of --steps: passes over the problems. The last update is filled up "
            "from the next pass.",
        ),
    ] = None,
    order: Annotated[
        Optional[str],
        typer.Option(
            "--order",
            help="shuffled (anew each epoch, by --seed) or sequential.  [default: shuffled]",
        ),
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
        typer.Option(
            "--learning-rate", callback=finite, help="Short for --set trainer.learning_rate=..."
        ),
    ] = None,
    server_timeout: Annotated[
        Optional[float],
        typer.Option(
            "--server-timeout",
            callback=finite,
            help="Seconds a trainer's server may be gone (--set trainer.server_timeout=...).",
        ),
    ] = None,
    search: SearchOption = None,
    recipe: RecipeOption = None,
    run_dir: Annotated[
        Optional[Path],
        typer.Option("--run-dir", help="Directory of this run.  [default: a new one in runs/]"),
    ] = None,
    resume: Annotated[
        Optional[Path],
        typer.Option("--resume", help="Continue the run in this directory."),
    ] = None,
    record: Annotated[
        Optional[Path],
        typer.Option("--record", help="Keep every batch in this directory, to replay or export."),
    ] = None,
    replay: Annotated[
        Optional[Path],
        typer.Option("--replay", help="Train on the batches recorded there; nothing is sampled."),
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
    keep_checkpoints: Annotated[
        Optional[int],
        typer.Option(
            "--keep-checkpoints",
            min=1,
            help="Keep the newest N checkpoints only.  [default: all]",
        ),
    ] = None,
    deadline: Annotated[
        Optional[float],
        typer.Option(
            "--deadline", min=0.001, callback=finite, help="Seconds a continuation may take."
        ),
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
            callback=finite,
            help="Largest share of a batch's continuations that may fail.  [default: 0.2]",
        ),
    ] = None,
    max_tokens: Annotated[
        Optional[int],
        typer.Option("--max-tokens", min=1, help="Stop collecting after so many sampled tokens."),
    ] = None,
    min_abs_advantage: Annotated[
        Optional[float],
        typer.Option(
            "--min-abs-advantage",
            min=0.0,
            callback=finite,
            help="Leave out edges nearer to zero.",
        ),
    ] = None,
    merge: Annotated[
        Optional[bool],
        typer.Option("--merge/--per-edge", help="Train one sequence per path, or one per edge."),
    ] = None,
    seed: Annotated[
        Optional[int],
        typer.Option(
            "--seed",
            help="Seed of sampling and training; a tree repeats exactly at "
            "search.max_concurrency=1.  [default: 0]",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Run everything on this machine, where the trainer can: nothing is spent or kept.",
        ),
    ] = False,
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
        "epochs": epochs,
        "order": order,
        "async_depth": async_depth,
        "problems_per_step": problems_per_step,
        "search": search,
        "recipe": recipe,
        "record": str(record.absolute()) if record else None,
        "replay": str(replay.absolute()) if replay else None,
        "critic_output": critic_output,
        "lanes": lane,
        "eval_every": eval_every,
        "eval_source": eval_source,
        "eval_problems": eval_problems,
        "save_every": save_every,
        "keep_checkpoints": keep_checkpoints,
        "deadline": deadline,
        "allow_partial": allow_partial,
        "failure_rate": failure_rate,
        "max_tokens": max_tokens,
        "min_abs_advantage": min_abs_advantage,
        "merge": merge,
        "seed": seed,
    }
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    asked["settings"] = settings(
        set_, model=model, learning_rate=learning_rate, server_timeout=server_timeout
    )
    _train(asked, run_dir, resume, dry_run=dry_run, json=json)


def _train(
    asked: dict[str, Any], run_dir: Path | None, resume: Path | None, *, dry_run: bool, json: bool
) -> None:
    """Show a run: what it says goes to stdout, or beside JSON lines to stderr."""
    from focus_core.cli.display import JsonLines, display
    from focus_core.errors import UsageError
    from focus_core.run.start import Launch, opened

    out = sys.stderr if json else sys.stdout

    def say(line: str) -> None:
        print(line, file=out, flush=True)

    plugins = load_plugins()
    with opened(plugins, asked, run_dir=run_dir, resume=resume, dry_run=dry_run, say=say) as ready:
        if isinstance(ready, Launch):
            if json:
                raise UsageError(
                    f"trainer {ready.config.trainer!r} runs its own loop and reports in its own "
                    "way; leave --json out"
                )
            if code := ready.launch(say):
                raise typer.Exit(code)
            return
        shown = [display(out), *(spec.load()() for spec, _ in plugins.specs("observer").values())]
        try:
            reports = run(ready.train(shown, required=[JsonLines(sys.stdout)] if json else []))
        except BaseException:
            if not dry_run:
                _say_how_to_go_on(ready.directory, say)
            raise
        finally:
            if text := ready.summary():
                say(text)
        config = ready.config
        if len(reports) < config.steps:
            say(
                f"stopped after {len(reports)} of {config.steps} updates: the cap of "
                f"{config.max_tokens} sampled tokens is reached"
            )


def _say_how_to_go_on(directory: RunDirectory, say: Callable[[str], None]) -> None:
    """Of a run that failed: what it saved, or that nothing was and how it would have been."""
    if saved := directory.saved_batches():
        say(f"saved: {saved} batches; go on with: focus train --resume {directory.path}")
    elif made := directory.reported_batches():
        say(f"nothing was saved (batches done: {made}); --save-every N saves after every N")
