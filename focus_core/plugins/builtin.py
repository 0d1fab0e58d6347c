"""What the core registers itself, through the hooks plug-ins use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from focus_core.hookspecs import hookimpl
from focus_core.plugins.specs import (
    ConverterSpec,
    CriticSpec,
    LaneSpec,
    RecipeSpec,
    SearchSpec,
    TrainerSpec,
)

if TYPE_CHECKING:
    from focus_core.lanes import Lane
    from focus_core.trainer import Trainer

COMMANDS = ("train", "collect", "eval", "view", "export", "plugins", "check", "new")
"""The core's own, which no plug-in can replace: they are found without loading any."""


def _actor() -> Lane:
    from focus_core.lanes import ACTOR

    return ACTOR


def _critic() -> Lane:
    from focus_core.lanes import CRITIC

    return CRITIC


@hookimpl
def focus_searches() -> Sequence[SearchSpec]:
    """Ours; the first is what a ``Collector`` takes by default."""
    here = "focus_core.search"
    return [
        SearchSpec("selective", "where the critic's error falls most", f"{here}:Selective"),
        SearchSpec("independent", "whole rollouts from the root", f"{here}:Independent"),
        SearchSpec("fifo", "two branches for each state, oldest first", f"{here}:Fifo"),
        SearchSpec("best-first", "the highest prediction first", f"{here}:BestFirst"),
        SearchSpec("token-entropy", "where the policy was least sure", f"{here}:TokenEntropy"),
    ]


@hookimpl
def focus_recipes() -> Sequence[RecipeSpec]:
    """Ours; the first is what a ``Collector`` takes by default."""
    here = "focus_core.recipes"
    return [
        RecipeSpec("direct", "temporal difference over backed-up values", f"{here}:DirectBranchTd"),
        RecipeSpec("refined", "the same over values from whole returns", f"{here}:RefinedTd"),
        RecipeSpec("group", "a return less its group's mean (GRPO)", f"{here}:GroupCentered"),
    ]


@hookimpl
def focus_critics() -> Sequence[CriticSpec]:
    """Ours."""
    here = "focus_core.critic.named"
    return [
        CriticSpec("constant", "the same value everywhere", f"{here}:constant_critic"),
        CriticSpec(
            "vllm",
            "a value model behind vLLM's pooling endpoint",
            f"{here}:vllm_critic",
            requires=("httpx",),
            install="pip install 'focus-core[vllm]'",
        ),
    ]


@hookimpl
def focus_lanes() -> Sequence[LaneSpec]:
    """The two lanes every trainer knows."""
    return [
        LaneSpec("actor", "generated segments with advantages; the update consumes it", _actor),
        LaneSpec("critic", "states with backup targets; a sink takes it", _critic),
    ]


@hookimpl
def focus_converters() -> Sequence[ConverterSpec]:
    """The plain form, which needs no trainer."""
    return [ConverterSpec("records", "actor records in plain form", "focus_core.records:as_plain")]


@hookimpl(trylast=True)
def focus_open_trainer(spec: TrainerSpec, config: Mapping[str, Any]) -> Trainer:
    """Call the spec's factory with the options."""
    from focus_core.plugins.options import build

    trainer: Trainer = build(spec.load(), config, "trainer")
    return trainer
