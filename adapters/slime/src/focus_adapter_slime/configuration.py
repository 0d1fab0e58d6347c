"""What the custom configuration says of what ``focus train`` was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from focus_adapter_slime.settings import PREFIX, read_settings
from focus_core.errors import UsageError
from focus_core.own_loop import LaunchPlan

__all__ = ["READY", "configuration"]

READY = "focus_adapter_slime.hooks"
"""Module of the ready-made ``generate`` and ``evaluate``, which the configuration sets up."""
_SECTIONS = ("task", "search", "recipe", "critic")
_COLLECTORS = (
    *("search", "recipe", "critic", "gamma", "kappa"),
    *("critic_output", "allow_partial", "min_abs_advantage"),
)


def configuration(
    plan: LaunchPlan, folder: Path, settings: Mapping[str, Any], hooks: str = READY
) -> dict[str, Any]:
    """Keys and values, checked as the hooks check them.

    Args:
        plan: What was asked for.
        folder: Where critic records go, unless the plan says.
        settings: Further keys, without ``focus_``.
        hooks: Module of ``generate`` and ``evaluate``.

    Raises:
        UsageError: A key or value is wrong or given twice, or an option would not reach the hooks.
    """
    ours = _ready_made(plan, folder) if hooks == READY else _of_hooks(plan, hooks)
    ours = {
        name: value
        for name, value in ours.items()
        if value is not None and value is not False and value != {}
    }
    if twice := sorted(ours.keys() & settings.keys()):
        raise UsageError(
            f"trainer.settings gives {', '.join(twice)}, for which 'focus train' has options of "
            "its own; use those"
        )
    found = {f"{PREFIX}{name}": value for name, value in {**ours, **settings}.items()}
    read_settings(SimpleNamespace(**found))
    return found


def _ready_made(plan: LaunchPlan, folder: Path) -> dict[str, Any]:
    """What the ready-made hooks are told."""
    config = plan.config
    options = {section: dict(config["settings"].get(section, {})) for section in _SECTIONS}
    search, critic = options["search"], config["critic_output"]
    counts = {name: search.pop(name) for name in ("budget", "warmup") if _is_count(search, name)}
    return {
        "task": config["task"],
        "task_options": options["task"],
        "problems": config["problems"],
        "search": config["search"],
        "search_options": search,
        **{name: int(value) for name, value in counts.items()},
        "recipe": config["recipe"],
        "recipe_options": options["recipe"],
        "critic": config["critic"],
        "critic_options": options["critic"],
        "gamma": config["gamma"],
        "kappa": config["kappa"],
        "critic_sink": str(Path(critic).absolute() if critic else folder / "critic-targets"),
        "merge": config["merge"],
        "allow_partial": config["allow_partial"],
        "min_abs_advantage": config["min_abs_advantage"],
    }


def _is_count(options: Mapping[str, Any], name: str) -> bool:
    return str(options.get(name, "")).isdecimal()


def _of_hooks(plan: LaunchPlan, hooks: str) -> dict[str, Any]:
    """What hooks of the user's are told: the rest is their own collector's and make_generate's.

    Raises:
        UsageError: An option that would not reach them.
    """
    config = plan.config
    given = [name for name in _COLLECTORS if config[name] is not None and config[name] is not False]
    asked = [f"--{name.replace('_', '-')}" for name in given]
    asked += [f"--set {section}.*" for section in _SECTIONS if config["settings"].get(section)]
    if asked:
        raise UsageError(
            f"the hooks of {hooks} have a collector of their own, which {', '.join(asked)} would "
            "not reach; say it there"
        )
    return {"merge": config["merge"]}
