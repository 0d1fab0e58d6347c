"""What the core registers itself, through the hooks plug-ins use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from focus_core.hookspecs import hookimpl
from focus_core.plugins.specs import ConverterSpec, LaneSpec, TrainerSpec

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
