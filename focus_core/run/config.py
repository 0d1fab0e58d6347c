"""Everything a run is made from, as one value that a run directory can hold."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from focus_core.errors import UnknownNameError, UsageError
from focus_core.plugins.options import closest

__all__ = ["RunConfig", "parse_settings"]

_SECRET = re.compile(r"api_?key|secret|password|credential", re.IGNORECASE)
_MOST = sys.float_info.max
SECTIONS = ("task", "search", "recipe", "trainer")
_SHORT = {"group_size": "recipe"}
"""Options that may be given without their section."""


def _field(words: str, fits: Callable[[Any], bool], *default: Any) -> Any:
    """A field and what it must be: a configuration may have been read from a file."""

    def check(_: RunConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
        absent = value is None and default == (None,)
        if not absent and not fits(value):
            raise ValueError(f"{attribute.name} is {value!r:.80}; it must be {words}")

    return attrs.field(**({"default": default[0]} if default else {}), validator=check)


def _text(*default: str | None) -> Any:
    return _field("text", lambda value: isinstance(value, str), *default)


def _count(default: int | None) -> Any:
    return _field("an integer from 1", lambda v: type(v) is int and v >= 1, default)


def _flag(default: bool | None) -> Any:
    return _field("true or false", lambda value: isinstance(value, bool), default)


def _number(words: str, low: float, high: float, default: float | None) -> Any:
    def fits(value: Any) -> bool:
        return isinstance(value, int | float) and low <= value <= high

    return _field(words, fits, default)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


@attrs.frozen(kw_only=True)
class RunConfig:
    """What ``focus train`` was asked for; see its ``--help`` for each field.

    ``run_id`` names the run: it is part of the names of its critic files, and names its recording.

    Raises:
        ValueError: A field is not what it must be.
    """

    task: str = _text()
    trainer: str = _text("local")
    problems: str | None = _text(None)
    steps: int = _count(10)
    epochs: int | None = _count(None)
    order: str = _text("shuffled")
    async_depth: int = _field("0 or 1", lambda v: type(v) is int and v in (0, 1), 1)
    problems_per_step: int | None = _count(None)
    critic_output: str | None = _text(None)
    lanes: Sequence[str] | None = _field("a list of names", _are_texts, None)
    search: str | None = _text(None)
    recipe: str | None = _text(None)
    seed: int = _field("an integer", lambda value: type(value) is int, 0)
    deadline: float | None = _number("above 0 and finite", 1e-9, _MOST, None)
    min_abs_advantage: float | None = _number("0 or more and finite", 0.0, _MOST, None)
    allow_partial: bool = _flag(False)
    merge: bool | None = _flag(None)
    failure_rate: float = _number("from 0 to 1", 0.0, 1.0, 0.2)
    max_tokens: int | None = _count(None)
    eval_every: int | None = _count(None)
    eval_source: str | None = _text(None)
    eval_problems: int | None = _count(None)
    save_every: int | None = _field(
        "an integer from 1", lambda v: v is None or (type(v) is int and v >= 1), 10
    )
    keep_checkpoints: int | None = _count(None)
    run_id: str = attrs.field(factory=lambda: uuid.uuid4().hex[:12])
    record: str | None = _text(None)
    replay: str | None = _text(None)
    settings: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    @run_id.validator
    def _check_run_id(self, _: Any, value: Any) -> None:
        if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z_]+", value):
            raise ValueError(f"run_id is {value!r:.80}; it must be letters and digits")

    @settings.validator
    def _check_settings(self, _: Any, value: Any) -> None:
        if not isinstance(value, Mapping) or not all(
            isinstance(v, Mapping) for v in value.values()
        ):
            raise ValueError(f"settings is {value!r:.80}; it must be options by section")

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
