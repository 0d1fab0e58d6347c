"""The contracts of what is installed, by name: what ``focus check`` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from focus_core.errors import UnknownNameError, UsageError
from focus_core.plugins.manager import Plugins
from focus_core.plugins.options import closest, options_of
from focus_core.task import defaults_of
from focus_core.testing.base import Contract
from focus_core.testing.critic_contract import CriticContract
from focus_core.testing.lane_contract import LaneContract
from focus_core.testing.observer_contract import ObserverContract
from focus_core.testing.policy_contract import PolicyContract
from focus_core.testing.recipe_contract import RecipeContract
from focus_core.testing.search_contract import SearchContract
from focus_core.testing.task_contract import TaskContract
from focus_core.testing.trainer_contract import TrainerContract

__all__ = ["KINDS", "contracts_of"]

KINDS = ("task", "policy", "trainer", "search", "recipe", "critic", "lane", "observer")


def contracts_of(
    plugins: Plugins,
    kind: str,
    name: str,
    *,
    options: Mapping[str, Any] | None = None,
    source: str | None = None,
    excused: Mapping[str, str] | None = None,
) -> Contract:
    """The contracts of one installed thing.

    Args:
        plugins: What is installed.
        kind: One of ``KINDS``; ``"policy"`` is what the trainer of that name publishes.
        name: Its registered name.
        options: Of its factory, as ``--set`` gives them.
        source: Of a task's problems.
        excused: Reasons, by contract.

    Raises:
        UnknownNameError: No such kind, name, option or contract.
        UsageError: An option's value is wrong, it needs a module, an excuse has no reason, or a
            task has no problems to be checked with.
    """
    if kind not in KINDS:
        raise UnknownNameError(
            f"nothing is known of a {kind!r}{closest(kind, KINDS)}; check {', '.join(KINDS)}"
        )
    registered = "trainer" if kind == "policy" else kind
    spec = plugins.find(registered, name)
    if "own-loop" in spec.capabilities:
        raise UsageError(
            f"trainer {name!r} runs its own loop and publishes no policy: there is nothing to check"
        )
    given = dict(options or {})

    def make(**more: Any) -> Any:
        if registered == "trainer":
            known = options_of(spec.load())
            extra = {key: value for key, value in more.items() if key in known}
            return plugins.open_trainer(name, {**extra, **given})
        return plugins.make(registered, name, given)

    made: Contract = _Task(make, source) if kind == "task" else _CONTRACTS[kind](make)
    made.spec = spec
    made.check_excuses(excused or {})
    made.excused = dict(excused or {})
    subject = made.subject()  # what cannot be made is one mistake, not one broken contract each
    if kind == "task" and source is None and defaults_of(subject).source is None:
        raise UsageError(
            f"task {name!r} has no problems of its own, and without any nothing is proved; give "
            "--problems SOURCE"
        )
    return made


class _Made:
    """A subject that a function makes."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def subject(self, **options: Any) -> Any:
        """A fresh one."""
        return self._make(**options)


class _Task(_Made, TaskContract):
    def __init__(self, make: Any, source: str | None) -> None:
        super().__init__(make)
        self.source = source


class _Policy(_Made, PolicyContract):
    pass


class _Trainer(_Made, TrainerContract):
    pass


class _Search(_Made, SearchContract):
    pass


class _Recipe(_Made, RecipeContract):
    pass


class _Critic(_Made, CriticContract):
    pass


class _Lane(_Made, LaneContract):
    pass


class _Observer(_Made, ObserverContract):
    pass


_CONTRACTS: Mapping[str, Callable[[Any], Any]] = {
    "policy": _Policy,
    "trainer": _Trainer,
    "search": _Search,
    "recipe": _Recipe,
    "critic": _Critic,
    "lane": _Lane,
    "observer": _Observer,
}
