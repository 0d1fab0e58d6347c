"""``focus train``."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, Optional

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
    tries: Annotated[
        Optional[int],
        typer.Option(
            "--tries",
            min=1,
            help="Set a problem aside that fails so often, and go on.  [default: 3]",
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
        "deadline": deadline,
        "allow_partial": allow_partial,
        "failure_rate": failure_rate,
        "tries": tries,
        "max_tokens": max_tokens,
        "min_abs_advantage": min_abs_advantage,
        "merge": merge,
        "seed": seed,
    }
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    asked["settings"] = settings(
        set_, model=model, learning_rate=learning_rate, server_timeout=server_timeout
    )
    if not dry_run:
        with contextlib.ExitStack() as held:
            _train(asked, run_dir, resume, json, held)
        return
    from focus_core.errors import UsageError

    if resume is not None:
        raise UsageError("--dry-run would change the run that --resume names; try another run")
    with (
        tempfile.TemporaryDirectory(prefix="focus-dry-run-") as folder,
        contextlib.ExitStack() as held,
    ):
        _train(asked, run_dir or Path(folder, "run"), None, json, held, dry_run=True)


def _train(
    asked: dict[str, Any],
    run_dir: Path | None,
    resume: Path | None,
    json: bool,
    held: contextlib.ExitStack,
    dry_run: bool = False,
) -> None:
    import attrs

    from focus_core.cli.display import JsonLines, Keeper, display
    from focus_core.errors import UsageError
    from focus_core.plugins.observers import Observers
    from focus_core.run.config import RunConfig
    from focus_core.run.directory import RunDirectory
    from focus_core.run.prepare import prepare, prepare_replay
    from focus_core.run.recording import Recording
    from focus_core.run.replay import check_steps, replayed
    from focus_core.run.session import train
    from focus_core.schedule.progress import Progress

    if "steps" in asked and "epochs" in asked:
        raise UsageError("--steps and --epochs both say when to stop; give one of them")
    plugins = load_plugins()
    start = Progress()
    options: dict[str, Any] = {"dry_run": True} if dry_run else {}
    if resume is not None:
        if run_dir is not None:
            raise UsageError("--resume continues in its own directory; leave --run-dir out")
        directory = RunDirectory.open(resume)
        held.enter_context(directory.locked())
        start, reference = directory.state()
        asked = _continued(directory.config(), asked, start)
        options["resume_from"] = reference
    elif "replay" in asked:
        asked = replayed(Recording.open(Path(asked["replay"])), asked)
    elif "task" not in asked:
        raise UsageError(f"give --task; installed: {', '.join(plugins.specs('task')) or 'none'}")
    config = RunConfig(**asked)
    path = resume or run_dir or _new_directory(config)
    spec, _ = plugins.specs("trainer").get(config.trainer, (None, ""))
    if spec is not None and "own-loop" in spec.capabilities:
        _launch(plugins, config, options, path, json)
        return
    options |= {"checkpoint_dir": str((path / "checkpoints").resolve()), "seed": config.seed}
    if config.replay is not None:
        recording = Recording.open(Path(config.replay))
        check_steps(recording, config.steps, start.batch)
        prepared = prepare_replay(plugins, config, options, recording)
    else:
        prepared = prepare(plugins, config, options)
    config = prepared.config
    if config.critic_output is not None:
        writable_directory(Path(config.critic_output), "--critic-output")
    if config.record is not None and Path(config.record).resolve() == path.resolve():
        raise UsageError(f"--record {path} is the run's own directory; name another")
    out = sys.stderr if json else sys.stdout
    directory = RunDirectory(path)
    if resume is None:
        held.enter_context(directory.locked())
    with _recorder(plugins, config, None if resume is None else start.batch) as recorder:
        if resume is None:
            RunDirectory.create(path, config)
        else:
            if dropped := directory.rewind() + (recorder.dropped if recorder else []):
                print(f"dropped what came after the checkpoint: {_named(dropped)}", file=out)
            directory.configure(attrs.evolve(config, steps=start.batch + config.steps))
        print(f"run directory: {path}", file=out)
        observers = Observers(
            [display(out), *(spec.load()() for spec, _ in plugins.specs("observer").values())],
            required=[Keeper(directory), *([JsonLines(sys.stdout)] if json else [])],
        )
        try:
            reports = run(
                train(prepared, directory, start=start, observers=observers, recorder=recorder)
            )
        except BaseException:
            if not dry_run:
                _say_how_to_go_on(directory, out)
            raise
        finally:
            summary = getattr(prepared.trainer, "summary", None)
            if summary is not None and (text := summary()):
                print(text, file=out)
    if len(reports) < config.steps:
        print(
            f"stopped after {len(reports)} of {config.steps} updates: the cap of "
            f"{config.max_tokens} sampled tokens is reached",
            file=out,
        )


def _say_how_to_go_on(directory: Any, out: Any) -> None:
    """Of a run that failed: what it saved, or that nothing was and how it would have been."""
    if saved := directory.saved_batches():
        print(
            f"saved: {saved} batches; go on with: focus train --resume {directory.path}", file=out
        )
    elif made := directory.reported_batches():
        print(
            f"nothing was saved (batches done: {made}); --save-every N saves after every N",
            file=out,
        )


def _launch(plugins: Any, config: Any, options: dict[str, Any], path: Path, json: bool) -> None:
    """Leave the run to a trainer that has a loop of its own."""
    from focus_core.errors import UsageError
    from focus_core.run.launching import prepare_launch

    if json:
        raise UsageError(
            f"trainer {config.trainer!r} runs its own loop and reports in its own way; "
            "leave --json out"
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"--run-dir {path} is not an empty directory; name another")
    loop, plan = prepare_launch(plugins, config, options, path)
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    writable_directory(path, "--run-dir")
    print(f"run directory: {path}", flush=True)
    try:
        code = loop.launch(plan)
    except BaseException:
        with contextlib.suppress(OSError):  # what was refused before it wrote leaves nothing
            for folder in made:
                folder.rmdir()
        raise
    if code:
        raise typer.Exit(code)


def _recorder(
    plugins: Any, config: Any, resumed: int | None
) -> contextlib.AbstractContextManager[Any]:
    """What records the run, if it is to be: from the start, or from the batch it resumes with."""
    from focus_core.run.recording import Recorder

    if config.record is None:
        return contextlib.nullcontext()
    path = Path(config.record)
    if resumed is not None:
        return Recorder.resume(path, config.run_id, resumed)
    owners = [plugins.specs(kind)[getattr(config, kind)][1] for kind in ("task", "trainer")]
    versions = {name: version for name, _, version in (owner.partition(" ") for owner in owners)}
    return Recorder.create(path, config, versions)


def _continued(saved: dict[str, Any], asked: dict[str, Any], start: Any) -> dict[str, Any]:
    """A resumed run's configuration: what it was asked for, and what may change now."""
    from focus_core.errors import UsageError
    from focus_core.run.replay import check_replayed

    for name in ("task", "trainer"):
        if asked.get(name, saved[name]) != saved[name]:
            raise UsageError(
                f"--resume continues a run with --{name} {saved[name]}; start another run for "
                f"{asked[name]}"
            )
    for name in ("record", "replay"):
        if name in asked:
            raise UsageError(
                f"--resume goes on recording or replaying as the run did; leave --{name} out"
            )
    if saved["replay"] is not None:
        check_replayed({name: value for name, value in asked.items() if name != "task"})
    merged = {**saved, **asked}
    merged["settings"] = {
        section: {**saved["settings"].get(section, {}), **asked["settings"].get(section, {})}
        for section in {*saved["settings"], *asked["settings"]}
    }
    if "epochs" not in asked:
        merged["epochs"] = None  # its steps are counted, in the saved configuration
    if "steps" not in asked and "epochs" not in asked:
        merged["steps"] = saved["steps"] - start.batch
        if merged["steps"] < 1:
            raise UsageError(
                f"the run has made its {saved['steps']} updates; say how many more with --steps "
                "or --epochs"
            )
    return merged


def _named(files: list[str]) -> str:
    """Files by name, the many of records by number."""
    records = [name for name in files if name.count("-") >= 3]
    others = [name for name in files if name not in records]
    return ", ".join([*others, *([f"{len(records)} files of records"] if records else [])])


def _new_directory(config: Any) -> Path:
    now = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{config.task}-{config.trainer}-{now}-{config.run_id[:4]}"
