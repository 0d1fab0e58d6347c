"""Ready-made functions for Slime's flags, set up by the custom configuration alone.

::

    --custom-generate-function-path focus_adapter_slime.hooks.generate
    --custom-advantage-function-path focus_adapter_slime.advantages
    --custom-reward-post-process-path focus_adapter_slime.preserve_advantages
    --custom-pg-loss-reducer-function-path focus_adapter_slime.sum_policy_tokens
    --custom-config-path focus.yaml      # focus_task: math, focus_budget: 32, ...
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from focus_adapter_slime.generate import GenerateHook, make_evaluate, make_generate
from focus_adapter_slime.losses import advantages, preserve_advantages, sum_policy_tokens
from focus_adapter_slime.settings import Settings, read_settings
from focus_core.errors import UsageError
from focus_core.lanes.sinks import JsonlDirectory
from focus_core.plugins import manager as plugins
from focus_core.run.config import RunConfig
from focus_core.run.prepare import collectors_of, critic_of, make_task
from focus_core.task import CollectorFor

__all__ = ["advantages", "evaluate", "generate", "preserve_advantages", "sum_policy_tokens"]


@attrs.define
class _Made:
    """The function made for the ``args`` seen last, which in a run are always the same."""

    make: Callable[[Settings], GenerateHook]
    args: Any = None
    hook: GenerateHook | None = None

    def of(self, args: Any) -> GenerateHook:
        if self.hook is None or self.args is not args:
            self.hook, self.args = self.make(read_settings(args)), args
        return self.hook


async def generate(
    args: Any, sample: Any, sampling_params: Any = None, evaluation: bool = False
) -> Any:
    """Collect one tree of ``focus_task``, or one rollout for evaluation; see ``make_generate``.

    Raises:
        UsageError: A setting is wrong, the task is not installed, or a flag would change the
            objective.
    """
    hook: Any = _GENERATE.of(args)
    return await hook(args, sample, sampling_params, evaluation=evaluation)


async def evaluate(
    args: Any, sample: Any, sampling_params: Any = None, evaluation: bool = True
) -> Any:
    """Roll out ``focus_task`` once, without branches; see ``make_evaluate``.

    Raises:
        UsageError: A setting is wrong, or the task is not installed.
    """
    hook: Any = _EVALUATE.of(args)
    return await hook(args, sample, sampling_params, evaluation=evaluation)


def _collector_for(settings: Settings) -> CollectorFor:
    if settings.task is None:
        raise UsageError(
            "the custom configuration names no task; put 'focus_task: NAME' into the file of "
            "--custom-config-path ('focus plugins' lists what is installed)"
        )
    config = RunConfig(
        task=settings.task,
        search=settings.search,
        recipe=settings.recipe,
        critic=settings.critic,
        gamma=settings.gamma,
        kappa=settings.kappa,
        settings={
            "task": settings.task_options,
            "search": settings.searching(),
            "recipe": settings.recipe_options,
            "critic": settings.critic_options,
        },
    )
    installed = plugins.load()
    critic, _ = critic_of(installed, config)
    return collectors_of(installed, make_task(installed, config), config, critic)


def _generate(settings: Settings) -> GenerateHook:
    folder = settings.critic_sink
    if folder is not None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"focus_critic_sink {folder}: {error.strerror}; name another folder"
            ) from error
    sink = None if folder is None else JsonlDirectory(folder)
    return make_generate(_collector_for(settings), critic_sink=sink)


def _evaluate(settings: Settings) -> GenerateHook:
    return make_evaluate(_collector_for(settings))


_GENERATE = _Made(_generate)
_EVALUATE = _Made(_evaluate)
