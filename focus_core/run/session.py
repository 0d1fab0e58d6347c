"""One run: task and trainer by name, the schedule between them, everything kept in a directory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import attrs

from focus_core.collect import Collector
from focus_core.errors import PluginError, UnknownNameError, UsageError
from focus_core.events import RunFinished, RunStarted
from focus_core.export import ACTOR, CRITIC
from focus_core.lanes import Lane
from focus_core.observers import Observers
from focus_core.options import build, closest, evolve, options_of
from focus_core.plugins import Plugins, resolve
from focus_core.policy import Policy
from focus_core.progress import Limits, Progress
from focus_core.recipes import DirectBranchTd, GroupCentered, Recipe
from focus_core.records import Problem, StepReport
from focus_core.run.config import RunConfig
from focus_core.run.directory import RunDirectory
from focus_core.run.evaluate import evaluate
from focus_core.schedule import run_schedule
from focus_core.search import Independent, Search, Selective
from focus_core.sinks import JsonlDirectory
from focus_core.task import CollectorFor, Task
from focus_core.trainer import RunStatus, Trainer

__all__ = ["Prepared", "lanes_of", "prepare", "train"]

SEARCHES: Mapping[str, type[Any]] = {"selective": Selective, "independent": Independent}
RECIPES: Mapping[str, type[Any]] = {"direct": DirectBranchTd, "group": GroupCentered}


@attrs.frozen
class Prepared:
    """A checked configuration: nothing heavy is loaded yet, and nothing can be misspelt."""

    config: RunConfig
    task: Task
    problems: Sequence[Problem]
    eval_problems: Sequence[Problem]
    collector_for: CollectorFor
    trainer: Trainer


def prepare(
    plugins: Plugins,
    config: RunConfig,
    trainer_options: Mapping[str, Any],
    *,
    evaluation_only: bool = False,
) -> Prepared:
    """Look everything up and read the problems, before any model loads.

    Args:
        plugins: What is installed.
        config: What was asked for.
        trainer_options: Added to the trainer's settings where it has such options.
        evaluation_only: ``config.problems`` are to be measured on; by default the held-out ones.

    Raises:
        UsageError: A name, option, value or file is wrong.
    """
    task = plugins.make("task", config.task, config.options("task"))
    defaults = task.defaults
    source = config.problems if config.problems is not None else defaults.source
    if evaluation_only:
        source = config.problems or defaults.eval_source or defaults.source
    if source is None:
        raise UsageError(f"task {config.task!r} needs problems; give --problems FILE")
    problems = held_out = _problems(task, source)
    eval_source = config.eval_source or defaults.eval_source
    if config.eval_every and eval_source is not None:
        held_out = _problems(task, eval_source)
    limit = config.eval_problems or (len(held_out) if evaluation_only else defaults.eval_problems)
    chosen = _chosen(config)
    spec = plugins.find("trainer", config.trainer)
    known = options_of(resolve(spec))
    extra = {name: value for name, value in trainer_options.items() if name in known}
    trainer = plugins.open_trainer(config.trainer, {**extra, **config.options("trainer")})

    def collector_for(policy: Policy, problem: Problem) -> Collector:
        return chosen(task.collector_for(policy, problem))

    try:  # so that a wrong option stops the run before it starts
        collector_for(cast("Policy", _Nobody()), problems[0])
    except UsageError:
        raise
    except Exception:  # a task that uses its policy here: told with its first tree
        pass
    return Prepared(config, task, problems, held_out[:limit], collector_for, trainer)


def lanes_of(plugins: Plugins, config: RunConfig) -> Sequence[Lane]:
    """The lanes kept beside actor and critic: those asked for, else all that are installed.

    Raises:
        UsageError: There is no such lane, or the run keeps it anyway.
        PluginError: A lane is no lane, or not for a sink.
    """
    own = (ACTOR.name, CRITIC.name)
    names = [name for name in plugins.specs("lane") if name not in own]
    if config.lanes is not None:
        names = list(dict.fromkeys(config.lanes))
        if kept := [name for name in names if name in own]:
            raise UsageError(f"--lane {kept[0]}: every run has this lane; name others")
    lanes = [plugins.make("lane", name, {}) for name in names]
    for name, lane in zip(names, lanes, strict=True):
        if not isinstance(lane, Lane) or (lane.name, lane.consumer) != (name, "sink"):
            raise PluginError(
                f"lane {name!r} cannot be kept; 'focus check lane {name}' says what to mend"
            )
    return lanes


class _Nobody:
    """Stands in for the policy while options are checked: it can be held, not used."""

    version = "none"

    def prepare(self, *_: Any) -> Any:
        raise RuntimeError("there is no policy yet")

    decode = generate = prepare


def _problems(task: Task, source: str) -> Sequence[Problem]:
    try:
        problems = task.problems(source)
    except OSError as error:
        raise UsageError(f"problems {source}: {error.strerror or error}") from error
    if not problems:
        raise UsageError(f"{source} holds no problems")
    return problems


def _chosen(config: RunConfig) -> Callable[[Collector], Collector]:
    """What the command line changes in a task's collector."""
    search_type = _named("search", config.search, SEARCHES)
    recipe_type = _named("recipe", config.recipe, RECIPES)
    if search_type is None and recipe_type is GroupCentered:
        search_type = Independent
    search_options, recipe_options = config.options("search"), config.options("recipe")
    if recipe_type is GroupCentered and "group_size" in recipe_options:
        search_options.setdefault("n", recipe_options.pop("group_size"))
    search: Search | None = (
        None if search_type is None else build(search_type, search_options, "search")
    )
    recipe: Recipe | None = (
        None if recipe_type is None else build(recipe_type, recipe_options, "recipe")
    )

    def changed(collector: Collector) -> Collector:
        return attrs.evolve(
            collector,
            search=search or evolve(collector.search, search_options, "search"),
            recipe=recipe or evolve(collector.recipe, recipe_options, "recipe"),
            deadline=config.deadline or collector.deadline,
        )

    return changed


def _named(kind: str, name: str | None, known: Mapping[str, type[Any]]) -> type[Any] | None:
    if name is None:
        return None
    if name not in known:
        raise UnknownNameError(
            f"no {kind} {name!r}{closest(name, known)}; there are: {', '.join(known)}"
        )
    return known[name]


async def train(
    prepared: Prepared,
    directory: RunDirectory,
    *,
    start: Progress,
    observers: Observers,
    lanes: Sequence[Lane] = (),
) -> list[StepReport]:
    """Run it; ``lanes`` are kept in the directory beside the critic's targets.

    Raises:
        Exception: Whatever failed first; the trainer is closed with the status either way.
    """
    config, trainer = prepared.config, prepared.trainer
    reports: list[StepReport] = []
    status: RunStatus = "errored"

    def on_step(report: StepReport) -> None:
        reports.append(report)

    async def measure(policy: Policy) -> dict[str, float]:
        return await _measure(policy, prepared)

    observers.notify(
        "focus_run_started",
        RunStarted(config=attrs.asdict(config), steps=config.steps, directory=str(directory.path)),
    )
    try:
        async with trainer:
            try:
                await run_schedule(
                    trainer,
                    prepared.problems,
                    prepared.collector_for,
                    steps=config.steps,
                    async_depth=cast("Literal[0, 1]", config.async_depth),
                    problems_per_step=config.problems_per_step
                    or prepared.task.defaults.problems_per_step,
                    critic_sink=JsonlDirectory(config.critic_output or directory.critic_targets),
                    lanes={
                        lane.name: (lane, JsonlDirectory(directory.lanes / lane.name))
                        for lane in lanes
                    },
                    on_step=on_step,
                    min_abs_advantage=config.min_abs_advantage,
                    allow_partial=config.allow_partial,
                    merge=config.merge,
                    limits=Limits(failure_rate=config.failure_rate, max_tokens=config.max_tokens),
                    seed=config.seed,
                    start=start,
                    evaluate=measure if config.eval_every else None,
                    eval_every=config.eval_every,
                    on_saved=directory.saved,
                    save_every=config.save_every,
                    observers=observers,
                )
                status = "success"
            except (asyncio.CancelledError, KeyboardInterrupt):
                status = "interrupted"
                raise
            finally:
                failed = sys.exception()
                try:
                    await trainer.close(status)
                except Exception as error:
                    status = "errored"
                    if failed is None:
                        raise
                    failed.add_note(f"afterwards the trainer did not close: {error}")
    finally:
        observers.notify("focus_run_finished", RunFinished(status=status, reports=reports))
    return reports


async def _measure(policy: Policy, prepared: Prepared) -> dict[str, float]:
    """Sampled and greedy accuracy on the held-out problems."""
    metrics: dict[str, float] = {}
    for name, temperature in (("sampled", None), ("greedy", 0.0)):
        found = await evaluate(
            policy,
            prepared.eval_problems,
            prepared.collector_for,
            temperature=temperature,
            seed=prepared.config.seed,
        )
        if found.returns:
            low, high = found.interval
            metrics[f"eval/{name}"] = found.accuracy
            metrics[f"eval/{name}_low"], metrics[f"eval/{name}_high"] = low, high
        metrics[f"eval/{name}_failed"] = len(found.failures)
    return metrics
