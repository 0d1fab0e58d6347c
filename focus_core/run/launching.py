"""Looking up what a trainer that runs its own loop is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from focus_core.errors import PluginError, UsageError
from focus_core.own_loop import LaunchPlan, OwnLoop
from focus_core.plugins.manager import Plugins
from focus_core.run.config import RunConfig
from focus_core.run.prepare import prepare
from focus_core.task import defaults_of

__all__ = ["prepare_launch"]


def prepare_launch(
    plugins: Plugins, config: RunConfig, trainer_options: Mapping[str, Any], directory: Path
) -> tuple[OwnLoop, LaunchPlan]:
    """A trainer that runs its own loop, and what it is asked to do.

    Raises:
        UsageError: As in ``prepare``, or an option that only FOCUS's own loop follows.
        PluginError: What the plug-in makes has no ``launch``.
    """
    if config.keep_checkpoints is not None:
        raise UsageError(
            f"trainer {config.trainer!r} runs its own loop and keeps its own checkpoints; leave "
            "--keep-checkpoints out"
        )
    for name in ("record", "replay"):
        if getattr(config, name) is not None:
            raise UsageError(
                f"trainer {config.trainer!r} runs its own loop, of which FOCUS sees no batch; "
                f"leave --{name} out"
            )
    prepared = prepare(plugins, config, trainer_options, own_loop=True)
    loop: Any = prepared.trainer
    if not isinstance(loop, OwnLoop):
        raise PluginError(f"trainer {config.trainer!r}: {type(loop).__name__} has no launch()")
    assert prepared.task is not None
    per_step = config.problems_per_step or defaults_of(prepared.task).problems_per_step
    return loop, LaunchPlan(
        config=attrs.asdict(prepared.config),
        directory=directory,
        problems=prepared.problems,
        problems_per_step=per_step,
        eval_problems=prepared.eval_problems if config.eval_every else (),
    )
