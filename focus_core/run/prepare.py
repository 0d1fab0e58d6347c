"""Looking up what a run was asked for, before anything heavy loads."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import attrs

from focus_core.collect import Collector
from focus_core.critic import Critic
from focus_core.errors import PluginError, UnknownNameError, UsageError
from focus_core.lanes import ACTOR, CRITIC, Lane
from focus_core.plugins.manager import Plugins
from focus_core.plugins.options import build, closest, evolve, options_of
from focus_core.policy import Policy
from focus_core.recipes import GroupCentered, Recipe
from focus_core.records import Problem
from focus_core.run.config import RunConfig
from focus_core.run.recording import Recording
from focus_core.schedule.order import Order, Sequential, Shuffled
from focus_core.schedule.progress import Limits
from focus_core.search import Independent, Search
from focus_core.task import CollectorFor, Task, defaults_of
from focus_core.trainer import Trainer

__all__ = [
    "ORDERS",
    "Prepared",
    "collectors_of",
    "critic_of",
    "make_task",
    "observers_of",
    "open_trainer",
    "prepare",
    "prepare_replay",
]

T = TypeVar("T")

ORDERS: Mapping[str, type[Any]] = {"sequential": Sequential, "shuffled": Shuffled}


@attrs.frozen
class Prepared:
    """A checked configuration: nothing heavy is loaded yet, and nothing can be misspelt.

    The ``steps`` of its ``config`` are those that ``epochs`` come to: the last update is filled up
    with the first problems of the next epoch, so that every update is over as many trees.

    A replay has a task only if it evaluates.
    """

    config: RunConfig
    task: Task | None
    problems: Sequence[Problem]
    eval_problems: Sequence[Problem]
    collector_for: CollectorFor
    trainer: Trainer
    limits: Limits
    order: Order
    lanes: Sequence[Lane] = ()
    replay: Recording | None = None
    close_critic: Callable[[], Awaitable[None]] | None = None

    async def closing(self, work: Awaitable[T]) -> T:
        """Await what uses it, then close the critic that was made for it, if one was."""
        try:
            return await work
        finally:
            if self.close_critic is not None:
                await self.close_critic()


def prepare(
    plugins: Plugins,
    config: RunConfig,
    trainer_options: Mapping[str, Any],
    *,
    evaluation_only: bool = False,
    own_loop: bool = False,
) -> Prepared:
    """Look everything up and read the problems, before any model loads.

    Args:
        plugins: What is installed.
        config: What was asked for.
        trainer_options: Added to the trainer's settings where it has such options.
        evaluation_only: ``config.problems`` are to be measured on; by default the held-out ones.
        own_loop: The trainer is one that runs its own loop.

    Raises:
        UsageError: A name, option, value or file is wrong.
    """
    task = make_task(plugins, config)
    defaults = defaults_of(task)
    source = config.problems if config.problems is not None else defaults.source
    if evaluation_only:
        source = config.problems or defaults.eval_source or defaults.source
    if source is None:
        raise UsageError(f"task {config.task!r} needs problems; give --problems FILE")
    limits = Limits(failure_rate=config.failure_rate, max_tokens=config.max_tokens)
    problems = held_out = _problems(task, source, config)
    if config.eval_every:
        eval_source = config.eval_source or defaults.eval_source
        if eval_source is None:
            raise UsageError(
                f"task {config.task!r} names no held-out problems; give --eval-source FILE"
            )
        held_out = _problems(task, eval_source, config)
    limit = config.eval_problems or (len(held_out) if evaluation_only else defaults.eval_problems)
    held_out = _first(held_out, limit)
    critic, close_critic = critic_of(plugins, config)
    collector_for = collectors_of(plugins, task, config, critic)
    shuffled = _named("order", config.order, ORDERS) is Shuffled
    order: Order = Shuffled(config.seed) if shuffled else Sequential()
    if config.epochs is not None:
        per_step = config.problems_per_step or defaults.problems_per_step
        steps = math.ceil(config.epochs * len(problems) / per_step)
        config = attrs.evolve(config, steps=steps)
    trainer = open_trainer(plugins, config, trainer_options, own_loop=own_loop)
    try:  # so that a wrong option stops the run before it starts
        collector_for(cast("Policy", _Nobody()), problems[0])
    except UsageError:
        raise
    except Exception:  # a task that uses its policy here: told with its first tree
        pass
    lanes = lanes_of(plugins, config)
    return Prepared(
        config,
        task,
        problems,
        held_out,
        collector_for,
        trainer,
        limits,
        order,
        lanes,
        close_critic=close_critic,
    )


def prepare_replay(
    plugins: Plugins, config: RunConfig, trainer_options: Mapping[str, Any], recording: Recording
) -> Prepared:
    """Look up the trainer and, only if the replay evaluates, the task and its held-out problems.

    Raises:
        UsageError: A name, option, value or file is wrong.
    """
    if not config.eval_every:
        trainer = open_trainer(plugins, config, trainer_options)
        return Prepared(
            config,
            task=None,
            problems=(),
            eval_problems=(),
            collector_for=_collects_nothing,
            trainer=trainer,
            limits=Limits(),
            order=Sequential(),
            lanes=lanes_of(plugins, config),
            replay=recording,
        )
    defaults = defaults_of(make_task(plugins, config))
    held_out = config.eval_source or defaults.eval_source
    prepared = prepare(
        plugins, attrs.evolve(config, problems=held_out), trainer_options, evaluation_only=True
    )
    chosen = _first(prepared.problems, config.eval_problems or defaults.eval_problems)
    return attrs.evolve(prepared, config=config, eval_problems=chosen, replay=recording)


def _collects_nothing(policy: Policy, problem: Problem) -> Collector:
    raise RuntimeError("a replay does not collect")


def make_task(plugins: Plugins, config: RunConfig) -> Task:
    """The task with its settings.

    Raises:
        UsageError: A name, option or value is wrong.
        PluginError: What the plug-in makes is no task.
    """
    task = plugins.make("task", config.task, config.options("task"))
    for name in ("problems", "collector_for"):
        if not callable(getattr(task, name, None)):
            raise PluginError(
                f"task {config.task!r}: {type(task).__name__} has no {name}(); "
                f"'focus check task {config.task}' says what a task needs"
            )
    return cast("Task", task)


def critic_of(
    plugins: Plugins, config: RunConfig
) -> tuple[Critic | None, Callable[[], Awaitable[None]] | None]:
    """The critic that was asked for by name, and what closes it.

    Raises:
        UsageError: A name, option or value is wrong.
        PluginError: What the plug-in makes is no critic.
    """
    options = config.options("critic")
    if config.critic is None:
        if options:
            raise UsageError(
                f"--set critic.{next(iter(options))}: the task's own critic takes no options; name "
                "another one with --critic"
            )
        return None, None
    made = plugins.make("critic", config.critic, options)
    predict = getattr(made, "predict", None)
    if not isinstance(made, Critic) and not callable(predict):
        raise PluginError(
            f"critic {config.critic!r}: {type(made).__name__} has no predict(); "
            f"'focus check critic {config.critic}' says what a critic needs"
        )
    critic = made if isinstance(made, Critic) else Critic.from_fn(cast("Any", predict))
    return critic, getattr(made, "aclose", None)


def collectors_of(
    plugins: Plugins, task: Task, config: RunConfig, critic: Critic | None = None
) -> CollectorFor:
    """The task's collectors, with what the configuration changes in them.

    Args:
        plugins: Where searches and recipes are looked up.
        task: Makes the collectors.
        config: What changes in them.
        critic: Predicts instead of the task's own, on contexts that the task's renders.

    Raises:
        UsageError: A name, option or value is wrong; an option of the task's own search or recipe
            is checked with the first collector.
    """
    chosen = _chosen(plugins, config, critic)

    def collector_for(policy: Policy, problem: Problem) -> Collector:
        return chosen(task.collector_for(policy, problem))

    return collector_for


def open_trainer(
    plugins: Plugins, config: RunConfig, options: Mapping[str, Any], *, own_loop: bool = False
) -> Trainer:
    """The trainer with its settings, and with those of the further options that it has.

    Raises:
        UsageError: A name, option or value is wrong.
    """
    spec = plugins.find("trainer", config.trainer)
    if "own-loop" in spec.capabilities and not own_loop:
        raise UsageError(
            f"trainer {config.trainer!r} runs its own loop, which only 'focus train' starts; "
            "name another trainer"
        )
    known = options_of(spec.load())
    if "resume_from" in options and "resume_from" not in known:
        raise UsageError(f"trainer {config.trainer!r} cannot continue from a checkpoint")
    if "dry_run" in options and "dry_run" not in known:
        raise UsageError(f"trainer {config.trainer!r} has no dry run; leave --dry-run out")
    extra = {name: value for name, value in options.items() if name in known}
    return plugins.open_trainer(config.trainer, {**extra, **config.options("trainer")})


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


def observers_of(plugins: Plugins, config: RunConfig) -> list[Any]:
    """The observers asked for, else all that are installed; made anew.

    Raises:
        UsageError: There is no such observer.
    """
    names = plugins.specs("observer") if config.observers is None else config.observers
    return [plugins.make("observer", name, {}) for name in dict.fromkeys(names)]


class _Nobody:
    """Stands in for the policy while options are checked: it can be held, not used."""

    version = "none"

    def prepare(self, *_: Any) -> Any:
        raise RuntimeError("there is no policy yet")

    decode = generate = prepare


def _problems(task: Task, source: str, config: RunConfig) -> Sequence[Problem]:
    if source == "":
        raise UsageError("--problems is empty; name a file or another source")
    asked = {name: True for name in ("strict", "skip_bad_rows") if getattr(config, name)}
    parameters = inspect.signature(task.problems).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name in asked.keys() - parameters.keys():
            raise UsageError(
                f"--{name.replace('_', '-')}: the problems() of task {config.task!r} takes no "
                f"{name!r}; leave it out"
            )
    try:
        problems = task.problems(source, **asked)
    except OSError as error:
        raise UsageError(f"problems {source}: {error.strerror or error}") from error
    if not problems:
        raise UsageError(f"{source} holds no problems")
    return problems


def _first(problems: Sequence[Problem], count: int) -> Sequence[Problem]:
    """Some problems of a sequence that may be lazy and know no slices."""
    return [problems[place] for place in range(min(count, len(problems)))]


def _chosen(
    plugins: Plugins, config: RunConfig, critic: Critic | None
) -> Callable[[Collector], Collector]:
    """What the command line changes in a task's collector."""
    search_type, recipe_type = (
        None if name is None else plugins.find(kind, name).load()
        for kind, name in (("search", config.search), ("recipe", config.recipe))
    )
    if search_type is None and getattr(recipe_type, "needs_rollouts", False):
        search_type = Independent
    search_options, recipe_options = config.options("search"), config.options("recipe")
    if recipe_type is GroupCentered and "group_size" in recipe_options:
        search_options.setdefault("n", recipe_options.pop("group_size"))
    search: Search | None = _built(search_type, search_options, "search", Search)
    recipe: Recipe | None = _built(recipe_type, recipe_options, "recipe", Recipe)

    def changed(collector: Collector) -> Collector:
        predicting = collector.critic
        if critic is not None:
            context = critic.context or (None if predicting is None else predicting.context)
            predicting = attrs.evolve(critic, context=context)
        collector = attrs.evolve(
            collector,
            critic=predicting,
            search=search or evolve(collector.search, search_options, "search"),
            recipe=recipe or evolve(collector.recipe, recipe_options, "recipe"),
            gamma=collector.gamma if config.gamma is None else config.gamma,
            kappa=collector.kappa if config.kappa is None else config.kappa,
            deadline=config.deadline or collector.deadline,
        )
        if getattr(collector.recipe, "needs_rollouts", False) and getattr(
            collector.search, "branches", True
        ):
            raise UsageError(
                f"{type(collector.recipe).__name__} compares whole rollouts, and "
                f"{type(collector.search).__name__} branches them; use --search independent"
            )
        return collector

    return changed


def _built(factory: Any, options: Mapping[str, Any], kind: str, protocol: Any) -> Any:
    """What a named factory makes, if it is what its name says.

    Raises:
        PluginError: It lacks a method.
    """
    if factory is None:
        return None
    made = build(factory, options, kind)
    if not isinstance(made, protocol):
        members = [name for name in vars(protocol) if not name.startswith("_")]
        wanted = ", ".join(name for name in members if not hasattr(made, name))
        raise PluginError(
            f"{kind} {type(made).__name__} lacks {wanted}; 'focus check {kind}' says what it needs"
        )
    return made


def _named(kind: str, name: str | None, known: Mapping[str, type[Any]]) -> type[Any] | None:
    if name is None:
        return None
    if name not in known:
        raise UnknownNameError(
            f"no {kind} {name!r}{closest(name, known)}; there are: {', '.join(known)}"
        )
    return known[name]
