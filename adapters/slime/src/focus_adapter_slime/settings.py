"""What the user sets in Slime's custom configuration: attributes of ``args`` named ``focus_*``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from focus_core.errors import UsageError
from focus_core.plugins.options import closest

__all__ = ["PREFIX", "Settings", "read_settings"]

PREFIX = "focus_"
"""Slime's ``--custom-config-path`` YAML sets any attribute of ``args``; ours begin with this."""


def _field(words: str, fits: Any, default: Any) -> Any:
    """A field and what it must be; ``None`` is allowed where it is the default."""

    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not (value is None and default is None) and not fits(value):
            raise ValueError(f"{PREFIX}{attribute.name} is {value!r:.80}; it must be {words}")

    return attrs.field(default=default, validator=check)


def _text() -> Any:
    return _field("text", lambda value: isinstance(value, str) and value, None)


def _choice(*names: str) -> Any:
    return _field(" or ".join(map(repr, names)), lambda value: value in names, names[0])


def _count(low: int, default: int | None) -> Any:
    return _field(f"an integer from {low}", lambda v: type(v) is int and v >= low, default)


def _number(low: float, default: float | None, *, or_equal: bool = False) -> Any:
    def fits(value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and (low < value < float("inf") or (or_equal and value == low))

    return _field(f"a finite number {'from' if or_equal else 'above'} {low:g}", fits, default)


def _options() -> Any:
    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise ValueError(
                f"{PREFIX}{attribute.name} is {value!r:.80}; it must be options by name"
            )

    return attrs.field(factory=dict, validator=check, converter=lambda v: {} if v is None else v)


@attrs.frozen(kw_only=True)
class Settings:
    """Everything that is read from ``focus_*`` attributes, without the prefix.

    Attributes:
        task: Name of an installed task, which ``hooks.generate`` and ``hooks.evaluate`` collect.
        task_options: Its options, as ``--set task.NAME=VALUE`` sets them.
        problems: The source that the prompt file was written from, for people; not read here.
        search: Where to spend (``selective``, ``independent``, ...); the task's own by default.
        search_options: Its options.
        budget: Transitions after the warm-up: the search's option of that name.
        warmup: Transitions of the warm-up: the search's option of that name.
        recipe: What an edge is worth (``direct``, ``refined``, ``group``); the task's own by
            default.
        recipe_options: Its options.
        critic: What predicts unfinished states, by name; the task's own by default.
        critic_options: Its options.
        gamma: Discount per transition; the task's own by default.
        kappa: Weight of a prediction, in branches; the task's own by default.
        critic_sink: Folder that critic records are written to; none are kept without it.
        profile: How replies are read: ``token_chunk`` (the default), ``chat``, ``hermes`` or
            ``qwen-xml``.
        merge: One sample per path with several spans, instead of one sample per span.
        arrays: Hand Slime arrays when it makes tensors of samples; ``false`` hands it lists.
        straddle: ``refuse`` fails what was sampled from other weights than its tree's first
            generation; ``keep`` trains on it. Both count it.
        on_failure: A tree that fails becomes a sample that Slime removes (``drop``), or stops the
            run (``raise``).
        max_failures: Trees that may fail in a row before ``drop`` stops the run as well.
        allow_partial: Keep a tree with failed continuations.
        min_abs_advantage: Leave out edges whose advantage is nearer to zero.
        deadline: Seconds a tree may take.
        grace: Seconds a tree that is called off may take to end.
        request_timeout: Seconds a request to the router may take.
        retries: Attempts after the first, of requests that were not taken up.
        requests: Most requests at a time.
        context_length: Most tokens of prompt and reply together; by default Slime's
            ``--rollout-max-context-len``.
        eval_temperature: Instead of the agent's own, in evaluation; 0 is greedy.
        allow: Flags that change the objective on purpose, such as ``[kl_loss_coef]``.
    """

    task: str | None = _text()
    task_options: Mapping[str, Any] = _options()
    problems: str | None = _text()
    search: str | None = _text()
    search_options: Mapping[str, Any] = _options()
    budget: int | None = _count(0, None)
    warmup: int | None = _count(0, None)
    recipe: str | None = _text()
    recipe_options: Mapping[str, Any] = _options()
    critic: str | None = _text()
    critic_options: Mapping[str, Any] = _options()
    gamma: float | None = _number(0.0, None, or_equal=True)
    kappa: float | None = _number(0.0, None)
    critic_sink: str | None = _text()
    profile: str | None = _text()
    merge: bool = _field("true or false", lambda v: isinstance(v, bool), False)
    arrays: bool = _field("true or false", lambda v: isinstance(v, bool), True)
    straddle: str = _choice("refuse", "keep")
    on_failure: str = _choice("drop", "raise")
    max_failures: int = _count(1, 32)
    allow_partial: bool = _field("true or false", lambda v: isinstance(v, bool), False)
    min_abs_advantage: float | None = _number(0.0, None, or_equal=True)
    deadline: float = _number(0.0, 1800.0)
    grace: float = _number(0.0, 30.0)
    request_timeout: float = _number(0.0, 600.0)
    retries: int = _count(0, 3)
    requests: int = _count(1, 512)
    context_length: int | None = _count(2, None)
    eval_temperature: float | None = _number(0.0, None, or_equal=True)
    allow: Sequence[str] = _field(
        "a list of flags",
        lambda v: isinstance(v, list | tuple) and all(isinstance(item, str) for item in v),
        (),
    )

    def searching(self) -> dict[str, Any]:
        """The search's options, with budget and warm-up among them."""
        named = {"budget": self.budget, "warmup": self.warmup}
        return {**self.search_options, **{k: v for k, v in named.items() if v is not None}}


def read_settings(args: Any) -> Settings:
    """Read them from Slime's ``args``.

    Raises:
        UsageError: An attribute does not exist or has a wrong value; names them all.
    """
    given = {
        name.removeprefix(PREFIX): value
        for name, value in vars(args).items()
        if name.startswith(PREFIX)
    }
    known = {field.name: field for field in attrs.fields(Settings)}
    wrong = [
        f"{PREFIX}{name} does not exist{closest(name, known)}"
        for name in given
        if name not in known
    ]
    for name in known.keys() & given.keys():
        try:
            Settings(**{name: given[name]})
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise UsageError(
            f"the custom configuration cannot be used: {'; '.join(sorted(wrong))}. It takes "
            + ", ".join(PREFIX + name for name in known)
        )
    return Settings(**given)
