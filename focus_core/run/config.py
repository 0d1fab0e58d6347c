"""Everything a run is made from, as one value that a run directory can hold."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from focus_core.errors import UnknownNameError, UsageError
from focus_core.options import closest

__all__ = ["RunConfig", "parse_settings"]

_SECRET = re.compile(r"api_?key|secret|password|credential", re.IGNORECASE)
SECTIONS = ("task", "search", "recipe", "trainer")
_SHORT = {"group_size": "recipe"}
"""Options that may be given without their section."""


@attrs.frozen(kw_only=True)
class RunConfig:
    """What ``focus train`` was asked for; see its ``--help`` for each field.

    ``run_id`` names the run: it is part of the names of its critic files, and names its recording.
    """

    task: str
    trainer: str = "local"
    problems: str | None = None
    steps: int = 10
    epochs: int | None = None
    order: str = "shuffled"
    async_depth: int = 1
    problems_per_step: int | None = None
    critic_output: str | None = None
    lanes: Sequence[str] | None = None
    search: str | None = None
    recipe: str | None = None
    seed: int = 0
    deadline: float | None = None
    min_abs_advantage: float | None = None
    allow_partial: bool = False
    merge: bool | None = None
    failure_rate: float = 0.2
    max_tokens: int | None = None
    eval_every: int | None = None
    eval_source: str | None = None
    eval_problems: int | None = None
    save_every: int | None = 10
    run_id: str = attrs.field(factory=lambda: uuid.uuid4().hex[:12])
    record: str | None = None
    replay: str | None = None
    settings: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def options(self, section: str) -> dict[str, Any]:
        """What ``--set SECTION.NAME=VALUE`` gave."""
        return dict(self.settings.get(section, {}))


def parse_settings(pairs: Sequence[str]) -> dict[str, dict[str, str]]:
    """``KEY=VALUE`` pairs by section; ``group_size`` alone is the recipe's.

    Raises:
        UsageError: A pair without ``=`` or without a section.
        UnknownNameError: A section that does not exist.
    """
    settings: dict[str, dict[str, str]] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        section, dot, name = key.strip().partition(".")
        if equals and section in _SHORT and not dot:
            section, dot, name = _SHORT[section], ".", section
        if not equals or not dot or not name:
            raise UsageError(
                f"--set {pair!r}: write SECTION.NAME=VALUE, for example task.segment_tokens=24"
            )
        if section not in SECTIONS:
            raise UnknownNameError(
                f"--set {pair!r}: no section {section!r}{closest(section, SECTIONS)}; "
                f"sections: {', '.join(SECTIONS)}"
            )
        if _SECRET.search(name):
            raise UsageError(
                f"--set {section}.{name}: settings are written to the run's directory; "
                "give secrets through the environment"
            )
        settings.setdefault(section, {})[name] = value
    return settings
